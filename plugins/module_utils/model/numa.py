# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The per-node view of a plan: CPUs by list, devices, and the Gb/s that each housekeeping core carries."""

from __future__ import annotations

from . import cpulist, machine as machines, queues
from .errors import finding


def per_node(topology, machine, policy, reserved, irq, entries):
    """Per NUMA node: its CPUs by list, devices, and Gb/s per housekeeping core; warnings over the policy's threshold."""
    held, warnings, result = set(reserved), [], []
    known = {node["id"]: node for node in topology["numa_nodes"]}
    for node in sorted(set(known) | set(machine["nodes"]), key=lambda node: (node is None, node or 0)):
        cores = machines.cores_of(machine, node)
        cpus = [cpu for core in cores for cpu in core["cpus"]]
        serving = [core for core in cores if set(core["cpus"]).intersection(irq)]
        served = [entry for entry in entries if entry["served_by"] == node]
        speeds = [entry["gbps"] for entry in served if entry["gbps"] and entry["function"] != "vf"]
        gbps = sum(speeds) if speeds else None
        per_core = round(gbps / len(serving), 2) if gbps and serving else None
        if per_core and per_core > policy["gbps_per_core"]:
            need = -int(-gbps // policy["gbps_per_core"])
            warnings.append(
                finding(
                    "gbps_per_core",
                    "%s: %g Gb/s of NICs on %d housekeeping core%s is %g Gb/s a core, over %g"
                    % (
                        "the machine" if node is None else "node %d" % node,
                        gbps,
                        len(serving),
                        "s"[len(serving) == 1 :],
                        per_core,
                        policy["gbps_per_core"],
                    ),
                    "reserve %d cores there (reserved_cores_by_node, or declared_gbps), unless most of that traffic is RDMA, which needs no softirq"
                    % need,
                    ", ".join("%s %g Gb/s" % (queues.label(entry), entry["gbps"]) for entry in served if entry["gbps"]),
                )
            )
        result.append(
            {
                "id": node,
                "cpus": cpulist.compress(cpus),
                "reserved": cpulist.compress(held.intersection(cpus)),
                "isolated": cpulist.compress(set(cpus) - held),
                "cores": len(cores),
                "reserved_cores": sum(1 for core in cores if core["cpus"][0] in held),
                "memory_mib": known[node]["memory_mib"] if node in known else None,
                "nics": [
                    queues.label(nic) for nic in topology["nics"] if nic["numa_node"] == node and node is not None
                ],
                "gpus": [gpu["pci"] for gpu in topology["gpus"] if gpu["numa_node"] == node and node is not None],
                "gbps": gbps,
                "gbps_per_core": per_core,
            }
        )
    loose = [entry for entry in entries if entry["served_by"] is None and entry["gbps"] and entry["function"] != "vf"]
    cores = [core for core in machine["cores"] if set(core["cpus"]).intersection(irq)]
    total = sum(entry["gbps"] for entry in entries if entry["gbps"] and entry["function"] != "vf")
    if loose and None not in machine["nodes"] and total / len(cores) > policy["gbps_per_core"]:
        warnings.append(
            finding(
                "gbps_per_core",
                "the machine: %g Gb/s of NICs, some of unknown node, on %d housekeeping cores is %g Gb/s a core, over %g"
                % (total, len(cores), round(total / len(cores), 2), policy["gbps_per_core"]),
                "reserve more cores, unless most of that traffic is RDMA, which needs no softirq",
                ", ".join("%s %g Gb/s" % (queues.label(entry), entry["gbps"]) for entry in loose),
            )
        )
    return result, warnings
