#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the interrupts of a host's NICs where its plan wants them. The rules are in module_utils/model/affinity.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_irq_affinity
short_description: Put the interrupt vectors of NICs on the CPUs of the plan
version_added: 0.2.0
author:
  - The lo0.rke2_hostprep authors (@lo0)
description:
  - Finds every interrupt vector of the planned NICs anew, in the C(msi_irqs) of their PCI functions, RDMA and control vectors and
    those of virtual functions included, or by name where the kernel lists none, and writes C(smp_affinity_list) of those that are
    elsewhere than planned.
  - Queue C(i) goes to CPU C(i) of the plan's queue map, and more queues than planned go round it. RDMA completion vectors go to the
    CPUs that the plan gives them, all others to the housekeeping CPUs of the NIC's NUMA node. No vector is ever put on an isolated CPU.
  - Vectors whose CPUs the kernel keeps itself (managed interrupts) are listed and never written.
  - Where the kernel has no interrupt vector left on a CPU (C(ENOSPC)), the vector goes to any housekeeping CPU that has one, and is
    listed in RV(vector_space) with a warning.
  - What was pinned is lost when drivers make their vectors anew. The program that the role C(nic_irq) installs keeps it.
options:
  root:
    description:
      - Folder that holds the C(sys/) and C(proc/) of the machine. The default is the running one. In check mode a tar archive is read too.
    type: path
    default: /
  plan:
    description:
      - The plan, as M(lo0.rke2_hostprep.cpu_plan) returned it. The default is the plan that the host keeps
        (C(/var/lib/lo0.rke2_hostprep/plan.json)), unless O(cpus) is given.
      - A plan of another machine, one whose NICs are gone, and one that lets interrupts run on isolated CPUs are refused before anything
        is written.
    type: dict
  cpus:
    description:
      - A CPU list, for a host without a plan. Each NIC of O(nics) uses those CPUs of it that are on its own NUMA node.
      - Excludes O(plan), and needs O(nics).
    type: str
  nics:
    description: NICs for O(cpus), by name, PCI address or HCA name. A bond, VLAN or bridge stands for the physical NICs beneath it.
    type: list
    elements: str
attributes:
  check_mode:
    support: full
    description: Says what would be written, and writes nothing. What the kernel would refuse is not known then.
  diff_mode:
    support: full
    description: Shows the CPUs of each interrupt before and after.
"""

EXAMPLES = r"""
- name: Put the interrupts where the plan that the host keeps wants them
  lo0.rke2_hostprep.nic_irq_affinity:

- name: The same with a plan that was just made
  lo0.rke2_hostprep.nic_irq_affinity:
    plan: "{{ host_plan_result.plan }}"

- name: Without a plan
  lo0.rke2_hostprep.nic_irq_affinity:
    cpus: 0-1,32-33
    nics: [ens1f0np0, ens1f1np1]
"""

RETURN = r"""
irqs:
  description: Every interrupt vector of the NICs.
  returned: success
  type: list
  elements: dict
  contains:
    irq:
      description: Its number.
      type: int
    nic:
      description: The NIC's name, or its PCI address where it has none.
      type: str
    name:
      description: What its driver calls it.
      type: str
    kind:
      description: V(queue), V(rx), V(tx), V(ceq) (RDMA completions), V(aeq) (asynchronous events) or V(misc).
      type: str
    queue:
      description: The queue that it serves.
      type: int
    before:
      description: CPUs it was allowed on, null where no driver has requested it.
      type: str
    after:
      description: CPUs it is allowed on now, or would be in check mode.
      type: str
    wanted:
      description: CPUs it belongs on, null for a managed one.
      type: str
    result:
      description:
        - V(ok), V(written), V(would_write) or V(managed). V(unknown) where no driver has requested it. V(vector_space) where the kernel
          has no vector left. V(vanished) if it was made anew again and again. V(not_kept) if its driver put it back at once. V(refused)
          for any other answer of the kernel.
      type: str
    why:
      description: The reason of a result that is neither V(ok) nor V(written).
      type: str
managed:
  description: Numbers of the interrupts whose CPUs the kernel keeps itself.
  returned: success
  type: list
  elements: int
vector_space:
  description: Numbers of the interrupts for which no vector is left where they belong.
  returned: success
  type: list
  elements: int
exposed:
  description: Numbers of the unmanaged interrupts whose mask still holds CPUs outside the plan's interrupt CPUs.
  returned: success
  type: list
  elements: int
results:
  description: How many interrupts have each result.
  returned: success
  type: dict
  sample: {"ok": 60, "written": 4}
code:
  description: Stable code of a refusal, with RV(read), RV(allowed) and RV(cure) beside it.
  returned: failure
  type: str
  sample: plan_other_machine
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
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.affinity import alone, lock_place, pin, read_plan
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import affinity, irq_metrics
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected

_SHOWN = ("irq", "nic", "name", "kind", "queue", "before", "after", "wanted", "result", "why")


def run(params, check):
    """(rows, warnings) of one run. Raises HostprepError."""
    tree = Tree(params["root"])
    topology = discover(tree)
    if params["cpus"] is not None:
        plan = affinity.from_cpus(topology, params["cpus"], params["nics"])
        rules = affinity.checked(plan)
    else:
        plan = read_plan(tree) if params["plan"] is None else params["plan"]
        rules = affinity.checked(plan)
        affinity.check_machine(plan, topology)
    if check:
        rows, _look = pin(params["root"], rules, True)
    else:
        with alone(lock_place(params["root"])):
            rows, _look = pin(params["root"], rules)
    return rows, list(irq_metrics.complaints(rows).values())


def main():
    spec = {
        "root": {"type": "path", "default": "/"},
        "plan": {"type": "dict"},
        "cpus": {"type": "str"},
        "nics": {"type": "list", "elements": "str"},
    }
    module = AnsibleModule(
        argument_spec=spec,
        mutually_exclusive=[("plan", "cpus")],
        required_together=[("cpus", "nics")],
        supports_check_mode=True,
    )
    try:
        rows, warnings = run(module.params, module.check_mode)
    except HostprepError as error:
        module.fail_json(msg=str(error), **error.as_dict())
    except Exception as error:  # a user never sees a traceback; the sentence says what to report
        error = unexpected(error)
        module.fail_json(msg=str(error), **error.as_dict())
    for warning in warnings:
        module.warn(warning)
    moved = [row for row in rows if row["after"] != row["before"]]
    result = {
        "changed": bool(moved),
        "irqs": [{key: row[key] for key in _SHOWN} for row in rows],
        "managed": [row["irq"] for row in rows if row["result"] == "managed"],
        "vector_space": [row["irq"] for row in rows if row["result"] == "vector_space"],
        "exposed": [row["irq"] for row in rows if irq_metrics.still_exposed(row)],
        "results": affinity.counted(rows),
    }
    if module._diff:
        result["diff"] = {
            "before_header": "CPUs of interrupts",
            "after_header": "CPUs of interrupts",
            "before": _lines(moved, "before"),
            "after": _lines(moved, "after"),
        }
    module.exit_json(**result)


def _lines(rows, when):
    return "".join("%s %s: %s\n" % (row["nic"], irq_metrics.vector(row), row[when]) for row in rows)


if __name__ == "__main__":
    main()
