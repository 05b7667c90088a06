#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try kernel arguments in one boot, commit them, or take them back. How is in module_utils/host/boot_change.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_cmdline
short_description: Try kernel arguments in one boot, commit them, or take them back
version_added: 0.2.0
author:
  - The lo0.rke2_hostprep authors (@lo0)
description:
  - Owns the kernel arguments that it was given and nothing else of a host's command line. An argument that another file or tuned sets
    is refused with that file's name.
  - With O(state=trial) the arguments are booted once. The trial alone reboots after a panic and, by a timer of systemd's, when it is
    not committed in O(trial_minutes). Whatever ends the trial, the next boot is the old one.
  - A one-shot entry is used only where the boot loader can clear it. Elsewhere (C(/boot) on LVM, RAID, LUKS, btrfs or ZFS) the trial
    is booted by kexec with nothing written to the boot loader, and RV(reboot_command) says how.
  - O(state=committed) writes them for good from within the trial that does what they are for, after a comparison of what the next boot
    will be given with the trial's command line, token for token.
  - O(state=absent) gives back what was found.
  - The module never reboots. RV(pending_reboot) says whether a reboot is due.
  - What is done on each boot loader, and how to undo it by hand at the console, is in C(docs/kernel_cmdline.md).
options:
  state:
    description:
      - V(trial) has the arguments booted once. Nothing changes where they are committed and booted, or where this trial is running.
      - V(committed) makes them the arguments of every boot, from within their own trial only.
      - V(present) does so without a trial and needs O(accept_untried_arguments).
      - V(absent) takes all of them back, with the trial, the units and the record.
    type: str
    choices: [present, absent, trial, committed]
    default: present
  args:
    description:
      - The arguments, all of them, one in each element. Needed for V(present) and V(trial) unless O(plan) is given.
      - The default for V(committed) is what was tried.
    type: list
    elements: str
  plan:
    description:
      - The plan, as M(lo0.rke2_hostprep.cpu_plan) returned it. Its C(kernel_args) are the default of O(args), and its lists are what a boot
        is judged by. A plan of another machine is refused.
    type: dict
  root:
    description:
      - Folder that the host's files are below. Below another folder than C(/) files are written and no command is run.
    type: path
    default: /
  trial_minutes:
    description: Minutes after the start of the trial's kernel at which the host reboots unless the trial was committed, 1 to 1440.
    type: int
    default: 15
  panic_seconds:
    description: Seconds after which the trial's kernel reboots from a panic, 1 to 3600.
    type: int
    default: 60
  kernel:
    description: Release of the kernel to try. The default is the running one. A newer one that an ordinary reboot would start is reported.
    type: str
  accept_untested_backend:
    description: Write to a boot loader that was never booted by this collection's tests (RV(backend)).
    type: bool
    default: false
  accept_untried_arguments:
    description:
      - Write arguments for good without a trial, with O(state=present), or with O(state=trial) where no way of trying them is open.
      - The host may not come back. Stand at its console.
    type: bool
    default: false
  accept_tpm_binding:
    description: Go on although an encrypted volume is bound to what new arguments change, or that is not known.
    type: bool
    default: false
  retry_after_fallback:
    description: Try arguments again that the host fell back from.
    type: bool
    default: false
  timeout:
    description: Seconds for each command, such as C(grub-mkconfig).
    type: int
    default: 300
  lock_timeout:
    description: Seconds to wait for another run on this host to end.
    type: int
    default: 30
attributes:
  check_mode:
    support: full
    description: Refuses what a run would refuse before its first write. What C(grub-mkconfig) will print is not known then.
  diff_mode:
    support: full
    description: Shows the boot loader's files and the units. C(grub.cfg) is generated and not shown.
seealso:
  - module: lo0.rke2_hostprep.cpu_plan
  - module: ansible.builtin.reboot
"""

EXAMPLES = r"""
- name: Try the planned arguments
  lo0.rke2_hostprep.kernel_cmdline:
    state: trial
    plan: "{{ host_plan_result.plan }}"
  register: tried

- name: Boot the trial
  ansible.builtin.reboot:
    reboot_command: "{{ tried.reboot_command | default(omit, true) }}"
  when: tried.pending_reboot

- name: Keep them
  lo0.rke2_hostprep.kernel_cmdline:
    state: committed
    plan: "{{ host_plan_result.plan }}"

- name: Take them back
  lo0.rke2_hostprep.kernel_cmdline:
    state: absent
  register: taken_back

- name: Without a plan and without a trial, at the console
  lo0.rke2_hostprep.kernel_cmdline:
    args: [mitigations=auto, audit=1]
    accept_untried_arguments: true
"""

RETURN = r"""
pending_reboot:
  description: Whether the running kernel is not the one that was asked for.
  returned: always
  type: bool
reboot_command:
  description: What has to boot it, as V(systemctl kexec) for a trial by kexec; null for an ordinary reboot.
  returned: always
  type: str
backend:
  description: V(debian), V(el), V(sles) or V(systemd-boot); null where the host was not looked at.
  returned: always
  type: str
method:
  description: How arguments are tried, V(one_shot), V(kexec) or V(untried); null without a trial.
  returned: always
  type: str
outcome:
  description:
    - What this boot made of what was asked for. C(state) is V(none), V(pending) (not rebooted since), V(trial), V(as_planned) or V(fallback).
      C(missing) and C(extra) are arguments, C(read) is what is in C(/proc/cmdline).
  returned: always
  type: dict
  sample: {"state": "trial", "missing": [], "extra": [], "read": "in /proc/cmdline: irqaffinity=0-1"}
history:
  description: Outcomes that the host itself kept at each boot, the oldest first, with C(boot_id) and C(id) of the trial.
  returned: always
  type: list
  elements: dict
pending_kernel:
  description: Release of the kernel that an ordinary reboot would start, where that is another one; null where it is not known.
  returned: always
  type: str
checks:
  description: Verdicts on a boot with the arguments, each with C(name), C(verdict) (V(ok), V(fail) or V(not_judged)), C(read) and C(cure).
  returned: always
  type: list
  elements: dict
findings:
  description: Reasons and warnings, each with C(code), C(message), C(cure) and C(read).
  returned: always
  type: list
  elements: dict
root:
  description: The folder that was worked below.
  returned: always
  type: str
code:
  description: Stable code of a refusal, with RV(read), RV(allowed) and RV(cure) beside it.
  returned: failure
  type: str
  sample: trial_fell_back
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
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.boot_change import converge
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected

_REASONS = ("one_shot", "kexec")  # findings that begin so say how arguments are tried


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "trial", "committed"], "default": "present"},
            "args": {"type": "list", "elements": "str"},
            "plan": {"type": "dict"},
            "root": {"type": "path", "default": "/"},
            "trial_minutes": {"type": "int", "default": 15},
            "panic_seconds": {"type": "int", "default": 60},
            "kernel": {"type": "str"},
            "accept_untested_backend": {"type": "bool", "default": False},
            "accept_untried_arguments": {"type": "bool", "default": False},
            "accept_tpm_binding": {"type": "bool", "default": False},
            "retry_after_fallback": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 300},
            "lock_timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    try:
        result = converge(module.params, module.check_mode, module._diff)
    except HostprepError as refused:
        told = getattr(refused, "result", {})
        told.update(refused.as_dict())
        module.fail_json(msg=str(refused), **told)
    except Exception as raised:  # a user never sees a traceback; the sentence says what to report
        refused = unexpected(raised)
        module.fail_json(msg=str(refused), **refused.as_dict())
    for one in result["findings"]:
        if not one["code"].startswith(_REASONS):
            module.warn(one["message"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
