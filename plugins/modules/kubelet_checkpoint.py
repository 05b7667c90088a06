#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the kubelet's state files against a wanted reservation, and move them aside. The rules are in module_utils/model/kubelet_state.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_checkpoint
short_description: Say whether the kubelet would refuse its state files, and move them aside on a node that is drained and stopped
version_added: 0.2.0
author:
  - The lo0.rke2_hostprep authors (@lo0)
description:
  - The kubelet keeps what its CPU and memory managers gave away in C(cpu_manager_state) and C(memory_manager_state), and does not start
    over a file that does not fit its configuration. This module says so before anything is changed, by the kubelet's own rules.
  - With O(state=transitioned) it moves the files aside, where that is needed. Nothing is deleted but the oldest of what it moved before.
  - Returns what the host has of RKE2 too (RV(rke2)), so that a role needs no further execution to know it. Of files that others wrote
    only names of keys, and the values of those that decide something, are read; tokens never.
options:
  root:
    description: Folder with the host's files. A tar archive can be judged too.
    type: path
    default: /
  state:
    description:
      - V(judged) changes nothing.
      - V(transitioned) moves the files aside if the kubelet would refuse one of them. Refused unless the node is drained, RKE2 and the
        kubelet are stopped, and no pod has processes.
    type: str
    choices: [judged, transitioned]
    default: judged
  plan:
    description:
      - The plan, as M(lo0.rke2_hostprep.cpu_plan) returned it. The wanted reservation follows from it, O(kubelet), O(node_kind) and
        O(rke2_version), as it does in the role C(rke2).
    type: dict
  kubelet:
    description: The choices of the role C(rke2), its variable C(rke2_kubelet).
    type: dict
    default: {}
  node_kind:
    description: Kind of the node. The default is what the host shows.
    type: str
    choices: [server, agent]
  rke2_version:
    description: Version of RKE2, such as V(v1.34.4+rke2r1). The default is the one on the host.
    type: str
  data_dir:
    description: RKE2's data dir. The default is what its configuration says.
    type: path
  wanted:
    description:
      - The wanted reservation itself, instead of O(plan), with the names of a KubeletConfiguration. C(cpuManagerPolicy),
        C(cpuManagerPolicyOptions), C(reservedSystemCPUs), C(memoryManagerPolicy) and C(reservedMemory) count; what is left out is the
        kubelet's default, and what the role C(rke2) writes beside them is no matter.
      - Another name is refused.
    type: dict
  online:
    description:
      - The CPUs that will be online when the kubelet starts. The default is what the plan says of the time after the boot, and without a
        plan those that are online now.
    type: str
  state_dir:
    description: The kubelet's folder. The default is C(root-dir) in RKE2's C(kubelet-arg), else C(/var/lib/kubelet).
    type: path
  drained:
    description: Whether the node is drained, said by who asked the API. Needed for O(state=transitioned).
    type: bool
    default: false
  leftover_pods:
    description:
      - What to do where pods still have processes. V(without_exclusive) allows those that have no CPUs or memory of their own in the
        state files, such as pods of DaemonSets, which a drain leaves.
    type: str
    choices: [refuse, without_exclusive]
    default: refuse
  keep:
    description: How many old files of each name stay.
    type: int
    default: 3
attributes:
  check_mode:
    support: full
    description: Makes the same checks, refuses the same, and returns what would be moved.
  diff_mode:
    support: full
    description: Shows the names of the files before and after.
seealso:
  - name: RKE2 and its kubelet
    description: The order of a transition, what each choice is good for, and how to undo it.
    link: https://github.com/lo0/rke2_hostprep/blob/main/docs/rke2.md
"""

EXAMPLES = r"""
- name: Would the kubelet start with this plan?
  lo0.rke2_hostprep.kubelet_checkpoint:
    plan: "{{ host_plan_result.plan }}"
  register: checkpoint

- name: Move the state files aside, in the maintenance window, after drain and stop
  lo0.rke2_hostprep.kubelet_checkpoint:
    plan: "{{ host_plan_result.plan }}"
    state: transitioned
    drained: true
    leftover_pods: without_exclusive

- name: The same for a reservation that is given
  lo0.rke2_hostprep.kubelet_checkpoint:
    wanted:
      cpuManagerPolicy: static
      reservedSystemCPUs: 0-1,32-33
"""

RETURN = r"""
transition_needed:
  description: Whether the kubelet would refuse one of its state files. After a transition V(false).
  returned: success
  type: bool
why:
  description:
    - The reasons, as the kubelet would say them, with C(file), C(code), C(message), C(read) and C(cure). They are those found
      before a transition.
  returned: success
  type: list
  elements: dict
  sample:
    - file: /var/lib/kubelet/cpu_manager_state
      code: checkpoint_policy
      message: configured policy "static" differs from state checkpoint policy "none"
      read: policyName none
      cure: drain the node, stop RKE2, move the state files aside, start RKE2
moved:
  description: What was moved, in check mode what would be.
  returned: success
  type: list
  elements: dict
  sample: [{from: /var/lib/kubelet/cpu_manager_state, to: /var/lib/kubelet/cpu_manager_state.hostprep-20261130T080000Z-1c2d3e4f}]
removed:
  description: Old files beyond O(keep) that were removed, in check mode would be.
  returned: success
  type: list
  elements: str
  sample: []
wanted:
  description: The reservation that was judged, together with what other files tell the kubelet.
  returned: success
  type: dict
running:
  description: Whether a kubelet runs.
  returned: success
  type: bool
restart_pending:
  description: Our files that were written after the running kubelet started, so that it does not know them yet.
  returned: success
  type: list
  elements: str
  sample: []
rke2:
  description: What the host has of RKE2, for the filter P(lo0.rke2_hostprep.rke2_files#filter).
  returned: success
  type: dict
code:
  description: Stable code of a refusal, with RV(read), RV(allowed) and RV(cure) beside it.
  returned: failure
  type: str
  sample: checkpoint_not_drained
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
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import (  # pylint: disable=unused-import
    checkpoint,
    compile_once,  # noqa: F401
    rke2,
)
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import kubelet_state, rke2_config, rke2_facts
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected


def run(params, check):
    """The module's result. Raises HostprepError."""
    tree = Tree(params["root"])
    if params["keep"] < 0:
        raise HostprepError(
            "checkpoint_keep", "keep is below 0", read=str(params["keep"]), allowed="0 or more", cure="correct keep"
        )
    reading = rke2.read(tree, params["data_dir"], params["state_dir"])
    settings = {"kind": params["node_kind"], "version": params["rke2_version"], "data_dir": params["data_dir"]}
    wanted = _wanted(params, settings, reading)
    online = params["online"] or (params["plan"] or {}).get("online_after_boot")
    why = rke2_config.refused_states(reading, wanted, online)
    result = {
        "changed": False,
        "transition_needed": bool(why),
        "why": why,
        "moved": [],
        "removed": [],
        "wanted": wanted,
        "running": reading["running"],
        "restart_pending": reading["restart_pending"],
        "rke2": reading,
    }
    if params["state"] == "transitioned" and why:
        _transition(tree, params, reading, result, check)
    return result


def _wanted(params, settings, reading):
    data_dir = rke2_config.data_dir_of(settings, reading)[0]
    if params["wanted"] is not None:
        return rke2_config.given_wanted(params["wanted"])
    kind = rke2_config.kind_of(settings, reading)
    minor = rke2_config.minor_of(settings["version"] or reading["version"])
    wanted, _warnings = rke2_config.wanted_kubelet(params["plan"], kind, minor, rke2_config.choices(params["kubelet"]))
    return rke2_config.configured_kubelet(reading, wanted, rke2_facts.paths(data_dir))


def _transition(tree, params, reading, result, check):
    states, state_dir = reading["state"], params["state_dir"] or reading["state_dir"]
    own = kubelet_state.pods(*(entry["state"] for entry in states.values()))
    if not tree.writable:
        raise HostprepError(
            "checkpoint_root_archive",
            "files in an archive cannot be moved",
            read=params["root"],
            allowed="a folder",
            cure="use state: judged",
        )
    checkpoint.check_still(tree, params["drained"], params["leftover_pods"], own)
    there = [entry["path"] for entry in states.values() if entry["state"] is not None or entry["problem"]]
    steps = checkpoint.aside(tree, there, tree.read("proc/sys/kernel/random/boot_id"))
    old = checkpoint.surplus(tree, state_dir, params["keep"], steps)
    if not check:
        checkpoint.move(tree, steps)
        checkpoint.remove(tree, old)
        result["transition_needed"] = False
    result.update(changed=True, moved=steps, removed=old)


def main():
    spec = {
        "root": {"type": "path", "default": "/"},
        "state": {"type": "str", "choices": ["judged", "transitioned"], "default": "judged"},
        "plan": {"type": "dict"},
        "kubelet": {"type": "dict", "default": {}},
        "node_kind": {"type": "str", "choices": ["server", "agent"]},
        "rke2_version": {"type": "str"},
        "data_dir": {"type": "path"},
        "wanted": {"type": "dict"},
        "online": {"type": "str"},
        "state_dir": {"type": "path"},
        "drained": {"type": "bool", "default": False},
        "leftover_pods": {"type": "str", "choices": ["refuse", "without_exclusive"], "default": "refuse"},
        "keep": {"type": "int", "default": 3},
    }
    module = AnsibleModule(argument_spec=spec, mutually_exclusive=[("plan", "wanted")], supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode)
    except HostprepError as error:
        module.fail_json(msg=str(error), **error.as_dict())
    except Exception as error:  # a user never sees a traceback; the sentence says what to report
        error = unexpected(error)
        module.fail_json(msg=str(error), **error.as_dict())
    if module._diff and result["changed"]:
        result["diff"] = {
            "before_header": "state files of the kubelet",
            "after_header": "state files of the kubelet",
            "before": "".join("%s\n" % path for path in [step["from"] for step in result["moved"]] + result["removed"]),
            "after": "".join("%s\n" % step["to"] for step in result["moved"]),
        }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
