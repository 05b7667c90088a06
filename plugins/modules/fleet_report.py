#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the report of a fleet's plans. What it says is in module_utils/model/report.py, the page in model/report_page.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Write the plans of a fleet as JSON, as a page and as text
version_added: 0.1.0
author:
  - The lo0.rke2_hostprep authors (@lo0)
description:
  - Takes the plans that M(lo0.rke2_hostprep.cpu_plan) made for the hosts of a play and writes three files into a folder of the machine
    that it runs on, which is meant to be the controller.
  - C(plan.json) holds the plans whole, for other programs (docs/schemas/report.schema.json). C(plan.html) is one page for a browser that
    needs no network and no other file, with a table of the fleet and, for each host, the lists, the reasons, the differences and a drawing.
    C(plan.txt) is the same for a terminal.
  - All three files are replaced, or none. A run with the same plans changes nothing; the time in the files is that of the last change.
options:
  plans:
    description:
      - A list with one mapping for each host, or its JSON text, which the filter P(lo0.rke2_hostprep.plan_records#filter) makes from
        the results of a play.
      - C(host) is its name, C(status) one of V(planned), V(refused) and V(unreachable).
      - C(plan) is the plan of a planned host; C(error) and C(error_code) say why another has none.
    type: json
    required: true
  dest:
    description:
      - Absolute path of the folder for the files. It is made where it does not exist.
    type: path
    required: true
  title:
    description: Heading of the page.
    type: str
    default: Host plan
attributes:
  check_mode:
    support: full
    description: Says what would change, and refuses what a run would refuse; writes nothing.
  diff_mode:
    support: full
    description: Shows the difference in C(plan.txt).
"""

EXAMPLES = r"""
- name: Write the report of all hosts of the play on the controller
  lo0.rke2_hostprep.fleet_report:
    plans: "{{ ansible_play_hosts_all | lo0.rke2_hostprep.plan_records(hostvars) }}"
    dest: /srv/reports/gpu-fleet
    title: GPU fleet, maintenance window 12
  delegate_to: localhost
  run_once: true
  register: report

- name: Show the table
  ansible.builtin.debug:
    var: report.table
  run_once: true
"""

RETURN = r"""
files:
  description: Paths of the files, by kind.
  returned: success
  type: dict
  sample: {html: /srv/reports/gpu-fleet/plan.html, json: /srv/reports/gpu-fleet/plan.json, text: /srv/reports/gpu-fleet/plan.txt}
table:
  description: The lines of C(plan.txt).
  returned: success
  type: list
  elements: str
summary:
  description: How many hosts are planned, refused and unreachable, how many need a reboot, and how many have each warning.
  returned: success
  type: dict
  sample: {planned: 4, refused: 1, unreachable: 0, reboot: 3, warnings: {gbps_per_core: 2}}
code:
  description: Stable code of a refusal, with RV(read), RV(allowed) and RV(cure) beside it.
  returned: failure
  type: str
  sample: dest_not_absolute
read:
  description: What was read.
  returned: failure
  type: str
allowed:
  description: What would be accepted.
  returned: failure
  type: str
cure:
  description: What to do.
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import report_files
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import report, report_page
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected

NAMES = {"json": "plan.json", "html": "plan.html", "text": "plan.txt"}


def render(document, title):
    return {
        NAMES["json"]: report.encode(document),
        NAMES["html"]: report_page.page(document, title),
        NAMES["text"]: report.table(document),
    }


def converge(plans, dest, title, write):
    """(report, texts of the files, their old texts, names of the files that changed); writes them if ``write``."""
    report_files.check_folder(dest, NAMES.values())
    document = report.report(plans)
    old = {name: report_files.read(dest, name) for name in NAMES.values()}
    since = report_files.generated_at(dest, NAMES["json"])
    if since and report.encode(dict(document, generated_at=since)) == old[NAMES["json"]]:
        document["generated_at"] = since  # the same plans are no change: the files keep the time of the last one
    texts = render(document, title)
    changed = [name for name in texts if texts[name] != old[name]]
    if changed and write:
        report_files.write(dest, {name: texts[name] for name in changed})
    return document, texts, old, changed


def main():
    module = AnsibleModule(
        argument_spec={
            "plans": {"type": "json", "required": True},
            "dest": {"type": "path", "required": True},
            "title": {"type": "str", "default": "Host plan"},
        },
        supports_check_mode=True,
        no_log=True,  # plans of a fleet are megabytes, and they are in the report: keep them out of the system log
    )
    dest = module.params["dest"]
    try:
        document, texts, old, changed = converge(
            report.parse(module.params["plans"]), dest, module.params["title"], not module.check_mode
        )
    except HostprepError as error:
        module.fail_json(msg=str(error), **error.as_dict())
    except Exception as error:  # a user never sees a traceback; the sentence says what to report
        error = unexpected(error)
        module.fail_json(msg=str(error), **error.as_dict())
    result = {
        "changed": bool(changed),
        "files": {kind: os.path.join(dest, name) for kind, name in NAMES.items()},
        "table": texts[NAMES["text"]].splitlines(),
        "summary": document["summary"],
    }
    if module._diff:
        path = result["files"]["text"]
        result["diff"] = {
            "before": old[NAMES["text"]] or "",
            "after": texts[NAMES["text"]],
            "before_header": path,
            "after_header": path,
        }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
