# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role cpu_isolation as ansible-playbook runs it, with modules in place of ours that write down how they were called.

What they answer is a table: the outcome before and after a reboot. Nothing reaches this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.services import services
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from stub_collection import skeleton

TOP = Path(__file__).resolve().parents[2]
MODULE = """
import json, os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={options!r}, supports_check_mode=True)
path = os.environ["ROLE_TEST"]
with open(path) as stream:
    world = json.load(stream)
called = "{name}" + (" " + module.params["state"] if module.params.get("state") else "")
world["calls"].append(called + (" (check)" if module.check_mode else ""))
answer = {{"changed": False}}
{body}
with open(path, "w") as stream:
    json.dump(world, stream)
if answer.get("failed"):
    module.fail_json(**answer)
module.exit_json(**answer)
"""
KERNEL = """
state = module.params["state"]
known = world["outcome"]
if world.get("refuses"):
    answer.update(failed=True, msg="the boot loader is unknown", code="backend_unknown")
elif state == "committed":
    if known != "trial":
        answer.update(failed=True, msg="not in the trial", code="not_in_trial")
    elif not module.check_mode:
        world["outcome"] = "as_planned"
    answer["changed"] = True
elif state == "absent":
    answer["changed"] = known != "none"
    known = "none"
    answer["pending_reboot"] = answer["changed"]
elif known == "none":
    known, answer["changed"] = "pending", True
answer.update(outcome={"state": known}, reboot_command=None)
answer.setdefault("pending_reboot", known == "pending")
if not module.check_mode and state != "committed":
    world["outcome"] = known
"""
# As the action of ansible.builtin.reboot answers, in check mode too.
REBOOT = """
if module.check_mode:
    answer.update(changed=True, elapsed=0, rebooted=True)
elif world["reboot"] == "command":
    answer.update(failed=True, rebooted=False, msg="Reboot command failed", elapsed=0)
elif world["reboot"] == "timeout":
    answer.update(failed=True, rebooted=True, msg="Timed out", elapsed=5)
else:
    answer.update(changed=True, elapsed=20, rebooted=True)
    world["outcome"] = {"pending": world["after"]}.get(world["outcome"], world["outcome"])
"""
ANY = {"type": "raw"}
KERNEL_OPTIONS = dict.fromkeys(
    (
        "plan",
        "trial_minutes",
        "accept_untested_backend",
        "accept_untried_arguments",
        "accept_tpm_binding",
        "retry_after_fallback",
    ),
    ANY,
)
MODULES = {
    "host_files": (
        dict.fromkeys(("owner", "purge", "files", "units", "commands", "discard_foreign_changes", "state"), ANY),
        "answer.update(would=[], done=[])",
    ),
    "kernel_cmdline": (dict(KERNEL_OPTIONS, state=ANY), KERNEL),
    "reboot": (dict.fromkeys(("reboot_command", "reboot_timeout", "msg"), ANY), REBOOT),
    "power": ({}, 'world["outcome"] = "fallback"'),
}
PLAN = {
    "host": "{{ inventory_hostname }}",
    "reserved": "0-1",
    "isolated": "2-7",
    "online_after_boot": "0-7",
    "kernel_args": ["a=b"],
}


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """A collection of the role, the filters, and the modules above."""
    top = tmp_path_factory.mktemp("collections")
    ours = skeleton(top)
    shutil.copytree(TOP / "roles" / "cpu_isolation", ours / "roles" / "cpu_isolation")
    tasks = ours / "roles" / "cpu_isolation" / "tasks"
    text = (tasks / "reboot.yml").read_text()
    assert "ansible.builtin.reboot:" in text
    (tasks / "reboot.yml").write_text(text.replace("ansible.builtin.reboot:", "lo0.rke2_hostprep.reboot:"))
    (tasks / "power.yml").write_text("- name: Switch the power\n  lo0.rke2_hostprep.power: {}\n")
    main = (tasks / "main.yml").read_text()
    (tasks / "main.yml").write_text(main.replace("'community.general.version_sort' is filter", "true"))
    for name, (options, body) in MODULES.items():
        text = MODULE.format(options=options, name=name, body=body)
        (ours / "plugins" / "modules" / (name + ".py")).write_text(text)
    return top


REBOOTS = {"cpu_isolation_reboot": True}
POWER = {**REBOOTS, "cpu_isolation_power": "ipmi", "cpu_isolation_power_host": "192.0.2.9"}
TRIAL, COMMIT, AWAY = "kernel_cmdline trial", "kernel_cmdline committed", "kernel_cmdline absent"
# (variables, whether by the keyword check_mode, variables of a second inclusion or None, the world before, calls, what is said)
GOES_WELL = [
    ({}, False, None, {}, [TRIAL], [True]),
    (REBOOTS, False, None, {}, [TRIAL, "reboot", COMMIT], [False]),
    ({}, False, None, {"outcome": "trial"}, [TRIAL, COMMIT], [False]),
    (REBOOTS, False, None, {"outcome": "as_planned"}, [TRIAL], [False]),
    ({**REBOOTS, "cpu_isolation_state": "absent"}, False, None, {"outcome": "as_planned"}, [AWAY, "reboot"], [False]),
    # a second time in the same play: what the first one rebooted, or would have, counts for nothing
    (REBOOTS, False, {"state": "absent", "reboot": False}, {}, [TRIAL, "reboot", COMMIT, AWAY], [False, True]),
    (
        REBOOTS,
        True,
        {"state": "present", "reboot": False},
        {},
        [TRIAL + " (check)", "reboot (check)", TRIAL],
        [True, True],
    ),
    # check mode says what a run does, as far as that is known
    (REBOOTS, True, None, {}, [TRIAL + " (check)", "reboot (check)"], [True]),
    (REBOOTS, True, None, {"outcome": "trial"}, [TRIAL + " (check)", COMMIT + " (check)"], [False]),
    (REBOOTS, True, None, {"outcome": "as_planned"}, [TRIAL + " (check)"], [False]),
]
GOES_WRONG = [
    (REBOOTS, {"reboot": "timeout"}, [TRIAL, "reboot"], "did not come back"),
    (POWER, {"reboot": "timeout"}, [TRIAL, "reboot", "power", COMMIT], "not in the trial"),
    # a host that was not rebooted runs, with its work on it: its power is left alone
    (REBOOTS, {"reboot": "command"}, [TRIAL, "reboot"], "could not be rebooted"),
    (POWER, {"reboot": "command"}, [TRIAL, "reboot"], "could not be rebooted"),
    (REBOOTS, {"after": "fallback"}, [TRIAL, "reboot", COMMIT], "not in the trial"),
    ({**POWER, "cpu_isolation_power_host": ""}, {}, [], "cpu_isolation_power_host"),
]
INCLUDE = "ansible.builtin.include_role"
ROLE = "lo0.rke2_hostprep.cpu_isolation"


def play(collections, folder, cases, *arguments):
    """Runs the role once for all cases, (variables, keyword, second, world), each on a host of its own: [(calls, said)] and the output."""
    (folder / "empty" / "proc").mkdir(parents=True)
    (folder / "ansible.cfg").write_text("[defaults]\nforks = 8\n")
    hosts = {}
    for number, (variables, keyword, second, world) in enumerate(cases):
        path = folder / ("world-%02d" % number)
        path.write_text(json.dumps({"calls": [], "outcome": "none", "after": "trial", "reboot": "done", **world}))
        more = {"second": second} if second else {}
        hosts["h%02d" % number] = {**variables, "keyword": keyword, "world": str(path), **more}
    said = {"content": "{{ cpu_isolation_reboot_required | to_json }}", "dest": "{{ world }}-said-1", "mode": "0600"}
    second = {
        "cpu_isolation_state": "{{ second.state }}",
        "cpu_isolation_reboot": "{{ second.reboot }}",
    }
    book = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "environment": {"ROLE_TEST": "{{ world }}"},
        "vars": {
            "cpu_isolation_plan": PLAN,
            "cpu_isolation_services": services(Tree(str(folder / "empty")), None),
            "ansible_python_interpreter": sys.executable,
        },
        "tasks": [
            {INCLUDE: {"name": ROLE, "apply": {"check_mode": "{{ keyword or ansible_check_mode }}"}}},
            {"ansible.builtin.copy": said, "check_mode": False},
            {INCLUDE: {"name": ROLE}, "vars": second, "when": "second is defined"},
            {
                "ansible.builtin.copy": {**said, "dest": "{{ world }}-said-2"},
                "check_mode": False,
                "when": "second is defined",
            },
        ],
    }
    (folder / "play.yml").write_text(json.dumps([book]))
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "temporary"),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "-i",
            str(folder / "hosts.yml"),
            *arguments,
            str(folder / "play.yml"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = []
    for path in sorted(folder.glob("world-??")):
        calls = [call for call in json.loads(path.read_text())["calls"] if not call.startswith("host_files")]
        found.append((calls, [json.loads(one.read_text()) for one in sorted(folder.glob(path.name + "-said-*"))]))
    return found, done.stdout + done.stderr


def test_what_runs_in_which_order_and_what_is_said(collections, tmp_path):
    found, output = play(collections, tmp_path, [case[:4] for case in GOES_WELL])
    assert found == [case[4:] for case in GOES_WELL], output


def test_check_mode_of_the_command_line_is_that_of_the_keyword(collections, tmp_path):
    cases = [case for case in GOES_WELL if case[1] and not case[2]]
    found, output = play(collections, tmp_path, [(case[0], False, None, case[3]) for case in cases], "--check")
    assert found == [case[4:] for case in cases], output


def test_whatever_yes_a_refusal_asks_for_can_be_given():
    module = (TOP / "plugins/modules/kernel_cmdline.py").read_text()
    options = re.findall(r'^            "((?:accept|retry)_\w+)"', module, re.MULTILINE)
    task = (TOP / "roles/cpu_isolation/tasks/kernel_args.yml").read_text()
    assert len(options) >= 4 and [name for name in options if name + ': "{{ cpu_isolation_' + name not in task] == []


def test_what_kernel_cmdline_refuses_is_refused_before_the_first_write(collections, tmp_path):
    _found, output = play(collections, tmp_path, [(REBOOTS, False, None, {"refuses": True})])
    assert json.loads((tmp_path / "world-00").read_text())["calls"] == [TRIAL], output


def test_what_goes_wrong_with_a_reboot(collections, tmp_path):
    found, output = play(
        collections, tmp_path, [(variables, False, None, world) for variables, world, _calls, _words in GOES_WRONG]
    )
    assert found == [(case[2], []) for case in GOES_WRONG], output
    for number, (_variables, _world, _calls, words) in enumerate(GOES_WRONG):
        lines = [line for line in output.splitlines() if line.startswith("fatal: [h%02d]" % number)]
        assert words in lines[-1], lines
