#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own a set of files, units and commands on a host. What to do is decided in module_utils/model/owned.py, done in host/files.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: Own a set of files, units and commands on a host, and give back what was found
version_added: 0.2.0
author:
  - The lo0.rke2_hostprep authors (@lo0)
description:
  - Brings a set of files and systemd units to a wanted state in one execution, and runs what has to follow the files that changed.
  - All files are replaced or none. What was there before the first change is kept on the host in C(/var/lib/lo0.rke2_hostprep), so that
    O(state=absent) gives every file back with its bytes, mode, owner and SELinux context, removes those that were not there, and brings
    units back to the state they had.
  - A run that was killed or that failed is taken up by the next one, which also runs the reloads, restarts and commands that are still due.
  - The order is files, C(systemctl daemon-reload) where a unit file changed, unmask, disable, enable, mask, stop, start, restart, reload,
    commands. Units that are given back, or whose file goes, are disabled and stopped before the files.
  - Links are resolved in the folders of a path, below O(root). A link in place of a file is refused, as are folders, devices, files with
    several names (hard links), paths below C(/proc), C(/sys) and C(/dev), and the files of the record.
  - Where a unit, a command or a disk fails, the files are not rolled back; RV(done) and RV(not_done) say what was done and what not.
options:
  state:
    description:
      - V(present) brings everything to what is given.
      - V(absent) gives back what was found. Without O(files) and O(units) it gives back all that O(owner) owns, with them only those.
        What follows the change, such as a reload, is known from the last run unless O(commands) are given.
    type: str
    choices: [present, absent]
    default: present
  owner:
    description:
      - Name of the set. One file or unit belongs to one set. Give each role its own.
    type: str
    default: host
  files:
    description: The files of the set.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path on the host, without C(..) and C(//).
        type: str
        required: true
      state:
        description: V(absent) removes the file, and keeps it to be given back.
        type: str
        choices: [present, absent]
        default: present
      content:
        description:
          - The whole content, written as UTF-8. Needed unless the file is V(absent).
          - The owner and group of the file will be those of the user who runs the module.
        type: str
      mode:
        description: Octal number in quotes; a bare number is refused, since YAML makes another number of it. The default is V("0644").
        type: raw
      validate:
        description:
          - A command as a list of words, with C(%s) in place of the path of a candidate file that has the same name in another folder.
          - It runs, in check mode too, before anything is changed, and only for a file whose content will be written.
        type: list
        elements: str
        default: []
      sensitive:
        description: Keeps contents, old and new, out of the diff, of the output of O(files[].validate) and of the returned arguments.
        type: bool
        default: false
  units:
    description: Units of systemd. What is not given is left as it is.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Full name, such as V(irqbalance.service).
        type: str
        required: true
      enabled:
        description: Whether it is enabled. A unit that has no C([Install]) section is refused.
        type: bool
      masked:
        description: Whether it is masked. V(true) excludes enabling and starting it.
        type: bool
      state:
        description: Whether it runs.
        type: str
        choices: [started, stopped]
      restart_on:
        description: Paths of O(files); the unit is restarted when one of them changed, if it runs.
        type: list
        elements: str
        default: []
      reload_on:
        description: As O(units[].restart_on), but reloaded. A restart makes a reload needless.
        type: list
        elements: str
        default: []
  commands:
    description: Commands that follow changed files, in their order, after the units unless O(commands[].before_units).
    type: list
    elements: dict
    default: []
    suboptions:
      argv:
        description: The program and its words; no shell.
        type: list
        elements: str
        required: true
      when_changed:
        description: Paths of O(files); the command runs when one of them changed. Without any, when any file of the set changed.
        type: list
        elements: str
        default: []
      before_units:
        description: Run it after systemd has read its files, and before units are changed, started or restarted; in a rollback too.
        type: bool
        default: false
  purge:
    description: Gives back what O(owner) owns and is no longer in the set, with O(state=present).
    type: bool
    default: false
  discard_foreign_changes:
    description:
      - Giving back a file that someone else changed after this module is refused, with nothing done, unless this is V(true).
    type: bool
    default: false
  root:
    description:
      - Folder with the host's files. Below another than V(/) files are converged, and no unit, command or validation is run;
        RV(not_touched) says which.
    type: path
    default: /
  timeout:
    description: Seconds that each command and each call of systemctl may take.
    type: int
    default: 120
  lock_timeout:
    description: Seconds to wait for another run on the same host.
    type: int
    default: 30
attributes:
  check_mode:
    support: full
    description: Makes the same checks and the same decision, and returns it as RV(would). Writes nothing but candidates for O(files[].validate).
  diff_mode:
    support: full
    description: One list with an entry for each file that changes, and one for units and commands.
notes:
  - New files get the SELinux type that their folder gives to them; files that are replaced keep theirs.
seealso:
  - name: Owned files
    description: How ownership, drift, rollback and the record work.
    link: https://github.com/lo0/rke2_hostprep/blob/main/docs/host_files.md
"""

EXAMPLES = r"""
- name: Keep the system on the housekeeping CPUs, and irqbalance away
  lo0.rke2_hostprep.host_files:
    owner: cpu_isolation
    files:
      - path: /etc/systemd/system/system.slice.d/50-hostprep.conf
        content: |
          [Slice]
          AllowedCPUs={{ plan.reserved }}
      - path: /etc/udev/rules.d/60-hostprep.rules
        content: "{{ rules }}"
        validate: [udevadm, verify, "%s"]
    units:
      - name: irqbalance.service
        masked: true
        state: stopped
    commands:
      - argv: [udevadm, control, --reload]
        when_changed: [/etc/udev/rules.d/60-hostprep.rules]

- name: A service of our own, restarted when its program or its unit changes
  lo0.rke2_hostprep.host_files:
    owner: nic_irq
    purge: true
    files:
      - path: /usr/local/sbin/hostprep-keeper
        mode: "0755"
        content: "{{ program }}"
      - path: /etc/systemd/system/hostprep-keeper.service
        content: "{{ unit }}"
    units:
      - name: hostprep-keeper.service
        enabled: true
        state: started
        restart_on: [/usr/local/sbin/hostprep-keeper, /etc/systemd/system/hostprep-keeper.service]

- name: Give everything back
  lo0.rke2_hostprep.host_files:
    owner: nic_irq
    state: absent
"""

RETURN = r"""
done:
  description: What was done, in order. On failure, what was done before it.
  returned: not in check mode, unless refused before the first change
  type: list
  elements: dict
  sample: [{action: write, path: /etc/udev/rules.d/60-hostprep.rules}, {action: mask, unit: irqbalance.service}]
not_done:
  description: What was still to be done when something failed. The next run does it.
  returned: not in check mode, unless refused before the first change
  type: list
  elements: dict
  sample: []
would:
  description: What a run would do, in the shape of RV(done).
  returned: in check mode
  type: list
  elements: dict
drift:
  description: Files and units that someone else changed after this module, and that were converged again.
  returned: success
  type: list
  elements: dict
  sample: [{path: /etc/udev/rules.d/60-hostprep.rules, message: changed by someone else since the last run}]
not_touched:
  description: Units and commands that were not looked at since O(root) is not V(/).
  returned: success
  type: list
  elements: dict
  sample: []
output:
  description: The last lines that the failed command printed.
  returned: when a unit or a command failed
  type: list
  elements: str
code:
  description: Stable code of a refusal or failure, with RV(read), RV(allowed) and RV(cure) beside it.
  returned: failure
  type: str
  sample: files_changed_by_others
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

from ansible.module_utils.basic import AnsibleModule

# For its effect alone, and before the others, which Python then compiles once
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import compile_once  # noqa: F401  pylint: disable=unused-import
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.files import converge
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected

_WORDS = {"type": "list", "elements": "str", "default": []}
_FILE = {
    "path": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "content": {"type": "str"},
    "mode": {"type": "raw"},
    "validate": _WORDS,
    "sensitive": {"type": "bool", "default": False},
}
_UNIT = {
    "name": {"type": "str", "required": True},
    "enabled": {"type": "bool"},
    "masked": {"type": "bool"},
    "state": {"type": "str", "choices": ["started", "stopped"]},
    "restart_on": _WORDS,
    "reload_on": _WORDS,
}
_COMMAND = {
    "argv": {"type": "list", "elements": "str", "required": True},
    "when_changed": _WORDS,
    "before_units": {"type": "bool", "default": False},
}


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "owner": {"type": "str", "default": "host"},
            "files": {"type": "list", "elements": "dict", "default": [], "options": _FILE},
            "units": {"type": "list", "elements": "dict", "default": [], "options": _UNIT},
            "commands": {"type": "list", "elements": "dict", "default": [], "options": _COMMAND},
            "purge": {"type": "bool", "default": False},
            "discard_foreign_changes": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
            "timeout": {"type": "int", "default": 120},
            "lock_timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
        no_log=True,  # contents may be secrets, and are long: keep them out of the system log
    )
    for entry in module.params["files"]:
        if entry["sensitive"] and entry["content"]:
            module.no_log_values.add(entry["content"])  # so that the returned arguments do not show it either
    try:
        result = converge(module.params, module.check_mode, module._diff)
        error = result.pop("error", None)
    except HostprepError as refused:
        module.fail_json(msg=str(refused), **refused.as_dict())
    except Exception as raised:  # a user never sees a traceback; the sentence says what to report
        refused = unexpected(raised)
        module.fail_json(msg=str(refused), **refused.as_dict())
    if error:
        module.fail_json(msg=str(error), **dict(result, **error.as_dict()))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
