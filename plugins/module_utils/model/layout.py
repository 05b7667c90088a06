# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a drawing of a host needs: its packages, nodes, caches, cores by list, NICs and accelerators, as compact plain data."""

from __future__ import annotations

from . import cpulist, machine as machines, queues


def drawing(topology, machine, plan):
    """Everything that a drawing of the host needs, compact: cores are [cpus, node index, package index, LLC index, P/E, list]."""
    held = set(cpulist.expand(plan["reserved"]))
    ids = [node["id"] for node in topology["numa_nodes"]]
    if any(core["node"] is None for core in machine["cores"]):
        ids = ids + [None]
    known = {node["id"]: node for node in topology["numa_nodes"]}
    types = {cpulist.expand(core["cpus"])[0]: core.get("type") for core in topology["cpus"]["cores"] if core["cpus"]}
    package_of = {}
    for core in machine["cores"]:
        package_of.setdefault(core["node"], core["package"])
    planned = {queues.label(entry) for entry in plan["nics"]}
    device = ("pci", "numa_node", "pcie_root", "name")
    return {
        "machine": {
            "cpu_model": topology["cpu_model"],
            "arch": topology["arch"],
            "hypervisor": topology["hypervisor"],
            "kernel": topology["kernel"]["release"],
        },
        "packages": [
            {"id": package["id"], "cpus": cpulist.intersect(package["cpus"], machine["online"])}
            for package in topology["cpus"]["package_cpus"]
        ],
        "nodes": [
            {
                "id": node,
                "package": package_of.get(node),
                "memory_mib": known[node]["memory_mib"] if node in known else None,
                "cpus": cpulist.compress(cpu for core in machines.cores_of(machine, node) for cpu in core["cpus"]),
            }
            for node in ids
        ],
        "llcs": [
            {
                "cpus": cpulist.intersect(llc["cpus"], machine["online"]),
                "level": llc["level"],
                "size_kib": llc["size_kib"],
            }
            for llc in topology["cpus"]["llcs"] or []
        ],
        "cores": [
            [
                cpulist.compress(core["cpus"]),
                ids.index(core["node"]),
                core["package"],
                core["llc"],
                types.get(core["cpus"][0]),
                "r" if core["cpus"][0] in held else "i",
            ]
            for core in machine["cores"]
        ],
        "nics": [
            dict(
                {key: nic[key] for key in device},
                driver=nic["driver"],
                speed_mbps=nic["speed_mbps"],
                planned=queues.label(nic) in planned,
            )
            for nic in topology["nics"]
        ],
        "gpus": [dict({key: gpu[key] for key in device}, vendor=gpu["vendor"]) for gpu in topology["gpus"]],
    }
