# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine as it will be after the planned boot: the only view of a topology that the planner works on.

``after_boot(topology, policy)`` returns plain data::

    {"cores": [{"cpus": [0, 32], "node": 0 or None, "package": 0 or None, "llc": 0 or None, "rank": 0}, ...],   lowest CPU first
     "cores_by_node": {0: [...]}, the same cores by their node
     "nodes": [0, 1],            ids of NUMA nodes that own CPUs, in id order; [None] on a kernel without NUMA nodes, and None
                                 last where only the boot core's node is unknown
     "online": {0, 1, ...}, "boot": 0, "threads": 2 (most threads of a core), "warnings": [finding, ...]}

``rank`` orders cores for housekeeping on hybrid machines: 0 = the least capable (E-cores), larger = more capable; 0 everywhere
on machines of one kind of core. A core whose CPUs belong to no node has node None, and rules that go by node pass it over.
"""

from __future__ import annotations

import hashlib
import json

from . import cpulist
from .errors import HostprepError, finding


def after_boot(topology, policy):
    """See the module. Raises HostprepError: online_unknown, smt_unknown, offline_siblings_unknown."""
    facts = topology["cpus"]
    if not facts.get("online"):
        raise HostprepError(
            "online_unknown",
            "which CPUs are online cannot be known",
            read="no list of online CPUs under %s" % topology.get("root"),
            allowed="a host or capture with sys/devices/system/cpu",
            cure="capture sys/devices/system/cpu with the rest",
        )
    online = set(cpulist.expand(facts["online"]))
    warnings = []
    node_of = _nodes(topology)
    cores = _cores(topology, policy, online, node_of)
    listed = [cpu for core in cores for cpu in core["cpus"]]
    if len(listed) != len(online) or set(listed) != online:
        raise HostprepError(
            "smt_unknown",
            "the SMT siblings that are known do not make up the online CPUs",
            read="siblings over %s, online %s" % (cpulist.compress(listed), facts["online"]),
            allowed="every online CPU in exactly one core",
            cure="capture the topology folders again, or pass the topology that host_topology returns",
        )
    offline = sorted(set(cpulist.expand(facts.get("offline") or "")) - online)
    if offline:
        cores += _returning(facts, policy, offline, node_of, warnings)
    if policy["smt"] == "disabled":
        widest = max(len(core["cpus"]) for core in cores)
        if offline and any(len(core["cpus"]) < widest for core in cores):
            raise HostprepError(
                "offline_siblings_unknown",
                "which thread nosmt keeps is unknown for cores with a thread offline",
                read="offline " + cpulist.compress(offline),
                allowed="smt: disabled with every thread online, or with SMT off already",
                cure="bring the CPUs online and plan again",
            )
        # The kernel keeps the first thread of each core (nosmt in kernel-parameters.txt); it is the lowest id of its siblings.
        for core in cores:
            core["cpus"] = core["cpus"][:1]
    cores.sort(key=lambda core: core["cpus"][0])
    _mark_packages(facts, cores)
    after = {cpu for core in cores for cpu in core["cpus"]}
    by_node = {}
    for core in cores:
        by_node.setdefault(core["node"], []).append(core)
    nodes = sorted({core["node"] for core in cores if core["node"] is not None})
    if not nodes or cores[0]["node"] is None:
        nodes.append(None)
    return {
        "cores": cores,
        "cores_by_node": by_node,
        "nodes": nodes,
        "online": after,
        "boot": min(after),
        "threads": max(len(core["cpus"]) for core in cores),
        "warnings": warnings,
    }


def _nodes(topology):
    """{cpu: node id} from the nodes' own lists; a CPU that two nodes list belongs to none."""
    node_of = {}
    for node in topology["numa_nodes"]:
        for cpu in cpulist.expand(node["cpus"]):
            node_of[cpu] = None if cpu in node_of else node["id"]
    return node_of


def _cores(topology, policy, online, node_of):
    facts = topology["cpus"]
    known = facts.get("cores") or []
    if facts.get("siblings") is None:
        if not policy["assume_no_smt"]:
            raise HostprepError(
                "smt_unknown",
                "which CPUs are SMT siblings cannot be known",
                read="no usable thread_siblings_list below %s" % topology.get("root"),
                allowed="a host or capture with sys/devices/system/cpu/cpu*/topology, or assume_no_smt: true",
                cure="capture the topology folders, or set assume_no_smt: true if the machine has no SMT or has it switched off",
            )
        known = [{"cpus": str(cpu)} for cpu in sorted(online)]
    elif not known:
        known = [{"cpus": cpus} for cpus in facts["siblings"]]
    levels = sorted({_capability(core) for core in known})
    cores = []
    for core in known:
        cpus = [cpu for cpu in cpulist.expand(core["cpus"]) if cpu in online]
        if cpus:
            node = core["node"] if "node" in core else node_of.get(cpus[0])
            cores.append(
                {
                    "cpus": cpus,
                    "node": node,
                    "package": core.get("package"),
                    "llc": core.get("llc"),
                    "rank": levels.index(_capability(core)),
                }
            )
    return cores


def _capability(core):
    if core.get("capacity") is not None:
        return core["capacity"]
    return {"E": 0, "P": 1}.get(core.get("type"), 1)


def _returning(facts, policy, offline, node_of, warnings):
    """Cores that `offline: returns` adds. The siblings of an offline CPU are nowhere in sysfs, so they must not exist."""
    listed = cpulist.compress(offline)
    if policy["offline"] != "returns":
        warnings.append(
            finding(
                "cpus_offline",
                "CPUs %s are offline now and are in no list" % listed,
                "say offline: keep: SMT is off, and the plan keeps it so"
                if facts.get("smt_control") in ("off", "forceoff")
                else "bring them online, or say offline: keep (they stay offline) or offline: returns (they come back)"
                if policy["offline"] is None
                else "nothing, the policy says offline: keep: make sure that they stay offline",
                read="offline " + listed,
            )
        )
        return []
    single = policy["assume_no_smt"] or facts.get("smt_control") in ("notsupported", "notimplemented")
    if not single:
        raise HostprepError(
            "offline_siblings_unknown",
            "the SMT siblings of offline CPUs cannot be known",
            read="offline %s, smt control %s" % (listed, facts.get("smt_control")),
            allowed="offline: returns on machines without SMT",
            cure="bring the CPUs online and plan again, or say offline: keep",
        )
    return [{"cpus": [cpu], "node": node_of.get(cpu), "package": None, "llc": None, "rank": 0} for cpu in offline]


def _mark_packages(facts, cores):
    owner = {
        cpu: index
        for index, package in enumerate(facts.get("package_cpus") or [])
        for cpu in cpulist.expand(package["cpus"])
    }
    for core in cores:
        if core["package"] is None:
            core["package"] = owner.get(core["cpus"][0])


def cores_of(machine, node):
    return machine["cores_by_node"].get(node, [])


def fingerprint(topology, machine):
    """SHA-256 over the hardware that the lists depend on: cores, nodes, physical NIC functions and accelerators (never links or queues)."""
    parts = {
        "cores": [
            [cpulist.compress(core["cpus"]), core["node"], core["package"], core["llc"], core["rank"]]
            for core in machine["cores"]
        ],
        "nodes": [node["id"] for node in topology["numa_nodes"]],
        "nics": sorted(
            [nic["pci"], nic["vendor"], nic["device"], nic["numa_node"]]
            for nic in topology["nics"]
            if nic["pci"] and nic["function"] != "vf"
        ),
        "gpus": sorted([gpu["pci"], gpu["vendor"], gpu["device"], gpu["numa_node"]] for gpu in topology["gpus"]),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
