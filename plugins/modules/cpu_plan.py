#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a host's housekeeping, isolated and interrupt CPUs. The planning is in module_utils/model/plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cpu_plan
short_description: Plan the CPU lists of a host, its NIC queue map and what follows from them
version_added: 0.1.0
author:
  - The lo0.rke2_hostprep authors (@lo0)
description:
  - From the topology of a host and the policy of the inventory, computes three CPU lists that agree, namely the housekeeping CPUs
    (the kubelet's C(reservedSystemCPUs)), the isolated CPUs (C(isolcpus)) and the CPUs that NIC interrupts may use.
  - Adds what follows from them, namely which CPU serves each NIC queue, whether all interrupt vectors fit, the kernel arguments, the
    kubelet reservation with an admission forecast for declared pod shapes, the differences to what is configured and live now, and the
    transition that these take.
  - Reads only. Nothing is written on the host, in check mode or outside it.
  - A plan that the host keeps (C(/var/lib/lo0.rke2_hostprep/plan.json)) stands while it still satisfies the policy, so that a new
    version of this collection does not mean a reboot; a better one is reported as warning C(better_plan).
  - Lists depend on the policy and on the hardware present, never on carrier, link speed, queue counts or virtual functions.
options:
  root:
    description:
      - Folder, or C(.tar), C(.tar.gz), C(.tar.bz2) or C(.tar.xz) archive, that holds the C(sys/) and C(proc/) of the machine to plan.
      - The default is the running machine. Links are resolved inside the root.
    type: path
    default: /
  topology:
    description:
      - The topology that M(lo0.rke2_hostprep.host_topology) returned, instead of reading O(root).
      - What is configured on the host is then unknown, and shown so.
    type: dict
  host:
    description: Name of the host, for the report.
    type: str
  policy:
    description:
      - The policy as one mapping, as an inventory holds it, of every option of this module but O(root), O(topology), O(host), O(policy),
        O(policy_overrides), O(dataplane), O(what_if) and O(services).
      - A key that is no option is refused. An option of the module given beside it wins.
    type: raw
  policy_overrides:
    description:
      - A mapping of options that replace those of O(policy), for one host of a group. Where it says how much is reserved, the
        policy's way of saying it is dropped.
    type: raw
  reserved_cpus:
    description:
      - The housekeeping CPUs as an explicit CPU list. Must be whole physical cores that will be online, and leave some to isolate.
      - Without the boot CPU it is refused except in O(isolation_mode=balanced), where it is a warning.
      - At most one of O(reserved_cpus), O(reserved_count), O(reserved_cores_per_node) and O(reserved_cores_by_node) can be given.
    type: str
  reserved_count:
    description:
      - Exact number of logical CPUs to reserve. Allowed if whole cores, the boot CPU's among them, add up to it.
      - Looks at neither NICs nor last-level caches.
    type: int
  strategy:
    description:
      - How O(reserved_count) is laid out. V(pack) fills one NUMA node after the other, V(spread) takes cores from all nodes in turn.
      - The default with O(reserved_count) is V(spread).
    type: str
  reserved_cores_per_node:
    description: Exact number of physical cores to reserve on every NUMA node that has CPUs.
    type: int
  reserved_cores_by_node:
    description:
      - "Number of physical cores to reserve by NUMA node id, such as V({0: 2, 1: 4}). A node left out gets none, the boot CPU's core aside."
    type: dict
  nic_cores:
    description:
      - Part of the default rule, which is used where none of O(reserved_cpus), O(reserved_count), O(reserved_cores_per_node) and
        O(reserved_cores_by_node) is given. One core on every NUMA node with
        CPUs, and this many more for each physical PCI NIC function on the node, up to O(nic_cores_cap) more.
      - At most half of a node's cores are reserved.
      - The default is V(1).
    type: int
  nic_cores_cap:
    description:
      - Most cores that the default rule adds to a NUMA node for its NICs.
      - The default is V(2).
    type: int
  declared_gbps:
    description:
      - "Gb/s that NICs are bought for, by name or PCI address, such as V({ens1f0np0: 400}). On a NUMA node with declared NICs the default
        rule reserves the declared sum divided by O(gbps_per_core), rounded up, instead of O(nic_cores)."
    type: dict
  gbps_per_core:
    description:
      - Gb/s of NICs that one housekeeping core is to carry. Above it the plan warns (C(gbps_per_core)). The value is this project's own.
      - The default is V(100).
    type: float
  isolation_mode:
    description:
      - V(balanced) gives C(isolcpus=managed_irq,ISOLATED irqaffinity=IRQ), so threads of a pod still spread over its CPUs.
      - V(quiet) adds C(nohz_full) and C(rcu_nocbs), for pollers that make few system calls.
      - V(pinned) gives a bare C(isolcpus=ISOLATED), which takes load balancing away. Only for workloads whose every thread pins itself.
      - The default is V(balanced).
    type: str
  irq_cpus:
    description: CPUs that interrupts may use, a part of the reserved ones. The default is all of them.
    type: str
  nics:
    description:
      - NICs to plan, by name, PCI address or HCA name. A bond, VLAN or bridge stands for the physical NICs beneath it, which must share a NUMA node.
      - The default is every PCI NIC that is administratively up, or every PCI NIC where that cannot be known.
    type: list
    elements: str
  queues_max:
    description: Most queues to plan for a NIC. The default is one for each interrupt CPU of its NUMA node.
    type: int
  smt:
    description:
      - V(keep) plans SMT as it is; V(disabled) adds C(nosmt) and plans the machine as it will be, one thread for each core.
      - The default is V(keep).
    type: str
  offline:
    description:
      - What becomes of CPUs that are offline now. V(keep) says that they stay so, V(returns) that they are online after the boot.
      - Without it they are left out of the plan with a warning, and C(site) refuses the host.
    type: str
  assume_no_smt:
    description:
      - Plan each CPU as a core of its own where the SMT siblings cannot be known.
      - The default is V(false).
    type: bool
  vectors_per_cpu:
    description:
      - Device interrupt vectors that one x86 CPU has room for.
      - The default is V(203).
    type: int
  topology_manager_policy:
    description:
      - The kubelet's Topology Manager policy, V(none), V(best-effort), V(restricted) or V(single-numa-node).
      - The default is V(single-numa-node) if O(pod_shapes) are declared and all of them fit it, else V(best-effort).
    type: str
  pod_shapes:
    description: Guaranteed pods that the node is meant to run, each forecast alone on the empty node under every Topology Manager policy.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the shape.
        type: str
      cpus:
        description: CPU request. Fractions get no exclusive CPUs.
        type: float
        required: true
      gpus:
        description: Number of GPUs.
        type: int
      memory_mib:
        description: Memory request in MiB.
        type: int
  dataplane:
    description:
      - Options of M(lo0.rke2_hostprep.dataplane_gate) as one mapping, which may be empty. The plan then has the answers of the data path
        gate, judged for the running kernel unless C(kernel) and C(config_netkit) are among them.
      - Without it they are not judged.
    type: raw
  what_if:
    description:
      - Variants of the policy to plan beside it, each a mapping of options of this module and a C(label).
      - One that is refused shows the reason and fails nothing.
    type: raw
  node:
    description:
      - Read from O(root) also what the host has of RKE2 and of its kubelet, and return it as RV(node).
      - The roles C(rke2) and C(cilium) then need no execution of their own on a host that is as planned.
    type: bool
    default: false
  services:
    description:
      - Read from O(root) also what else decides where tasks, interrupts and received packets run, and return it as RV(services).
      - The role C(cpu_isolation) needs it. Left out by default, since a fleet's plan does not.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Reads only, so check mode and a run are the same.
  diff_mode:
    support: none
    description: Changes nothing; the differences to the host are in the plan.
"""

EXAMPLES = r"""
- name: Plan the running machine with the default policy
  lo0.rke2_hostprep.cpu_plan:
  register: result

- name: Plan with the policy that the inventory holds
  lo0.rke2_hostprep.cpu_plan:
    policy: "{{ rke2_hostprep_policy }}"

- name: Plan a captured machine, two cores on every NUMA node, with a pod shape and two variants beside it
  lo0.rke2_hostprep.cpu_plan:
    root: /srv/captures/gpu-07.tar.xz
    reserved_cores_per_node: 2
    pod_shapes:
      - {name: four-gpu, cpus: 48, gpus: 4, memory_mib: 524288}
    what_if:
      - {label: four packed CPUs, reserved_count: 4, strategy: pack}
      - {label: four cores a node, reserved_cores_per_node: 4}
"""

RETURN = r"""
reserved:
  description: Housekeeping CPUs, a kernel CPU list.
  returned: success
  type: str
  sample: 0-1,32-33
isolated:
  description: Isolated CPUs.
  returned: success
  type: str
  sample: 2-31,34-63
irq:
  description: CPUs that interrupts may use.
  returned: success
  type: str
  sample: 0-1,32-33
plan:
  description: The plan, as docs/schemas/plan.schema.json says.
  returned: success
  type: dict
rke2:
  description: V(server) or V(agent), where the host is a node of RKE2; null where it is none, and where O(topology) was given.
  returned: success
  type: str
node:
  description:
    - What the host has of RKE2 and of its kubelet, as M(lo0.rke2_hostprep.kubelet_checkpoint) returns it in C(rke2), for the filter
      P(lo0.rke2_hostprep.rke2_files#filter). Of files that others wrote only names of keys, and the values of those that decide something.
  returned: with O(node=true)
  type: dict
services:
  description:
    - What else decides where tasks, interrupts and received packets run, for the filter P(lo0.rke2_hostprep.isolation_set#filter).
    - Among it cgroup, systemd, irqbalance, tuned, frequency governors, the preemption model, workqueue masks, RPS and RFS, busy
      polling, other owners of interrupts, and which kind of RKE2 node the host is.
  returned: with O(services=true)
  type: dict
code:
  description: Stable code of a refusal, with RV(read), RV(allowed) and RV(cure) beside it.
  returned: failure
  type: str
  sample: smt_unknown
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
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import (  # pylint: disable=unused-import
    compile_once,  # noqa: F401
    rke2,
)
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.configured import observe
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import policy as policies
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan

_SHAPE = {
    "name": {"type": "str"},
    "cpus": {"type": "float", "required": True},
    "gpus": {"type": "int"},
    "memory_mib": {"type": "int"},
}


def main():
    spec = {
        name: {key: value for key, value in option.items() if key != "default"}
        for name, option in policies.OPTIONS.items()
    }
    spec["pod_shapes"]["options"] = _SHAPE
    spec.update(
        root={"type": "path", "default": "/"},
        topology={"type": "dict"},
        host={"type": "str"},
        policy={"type": "raw"},
        policy_overrides={"type": "raw"},
        dataplane={"type": "raw"},
        what_if={"type": "raw"},
        services={"type": "bool", "default": False},
        node={"type": "bool", "default": False},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    given = {name: module.params[name] for name in policies.OPTIONS if module.params[name] is not None}
    try:
        observed = None
        more = {"rke2": None}
        policy = policies.override(policies.override(module.params["policy"], module.params["policy_overrides"]), given)
        topology = module.params["topology"]
        if topology is None or module.params["services"] or module.params["node"]:
            tree = Tree(module.params["root"])
            reading = rke2.read(tree) if module.params["node"] else rke2.documents(tree)
            kind = rke2.node_kind(tree, reading)
        if topology is not None:
            # Ansible compiles what is imported anew on each host: what few need is left out
            from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.topology import complete

            topology = complete(topology)
        else:
            topology = discover(tree)
            observed = observe(tree, topology["kernel"]["release"], reading)
            more["rke2"] = kind
        plan = make_plan(
            topology,
            policy,
            module.params["what_if"] or (),
            observed,
            module.params["host"],
            module.params["dataplane"],
        )
        if module.params["services"]:
            from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.services import services

            more["services"] = services(tree, kind)
        if module.params["node"]:
            more["node"] = reading
    except HostprepError as error:
        module.fail_json(msg=str(error), **error.as_dict())
    except Exception as error:  # a user never sees a traceback; the sentence says what to report
        error = unexpected(error)
        module.fail_json(msg=str(error), **error.as_dict())
    module.exit_json(
        changed=False, plan=plan, reserved=plan["reserved"], isolated=plan["isolated"], irq=plan["irq"], **more
    )


if __name__ == "__main__":
    main()
