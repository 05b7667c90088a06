# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Topologies as plain data, for tests of pure logic that need no files. Whole machines come from tests/builder."""

from __future__ import annotations

from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist


def topology(cores, nics=(), gpus=(), llcs=None, extra_nodes=(), distances=None, **cpus):
    """cores: [(cpulist, node, package)] or with a fourth item {"llc", "type", "capacity"}; nics and gpus: dicts of what differs."""
    rows = []
    for core in cores:
        more = core[3] if len(core) > 3 else {}
        rows.append(
            dict(
                {
                    "cpus": cpulist.compress(core[0]),
                    "node": core[1],
                    "package": core[2],
                    "die": None,
                    "cluster": None,
                    "llc": None,
                    "type": None,
                    "capacity": None,
                },
                **more,
            )
        )
    rows.sort(key=lambda row: cpulist.expand(row["cpus"])[0])
    online = cpulist.union(*[row["cpus"] for row in rows])
    nodes = {}
    for row in rows:
        if row["node"] is not None:
            nodes.setdefault(row["node"], []).append(row["cpus"])
    packages = {}
    for row in rows:
        packages.setdefault(row["package"], []).append(row["cpus"])
    order = sorted(packages, key=lambda package: (package is None, package or 0))
    for row in rows:
        row["package"] = order.index(row["package"])
    sizes = [len(cpulist.expand(row["cpus"])) for row in rows]
    numa = [
        {
            "id": node,
            "cpus": cpulist.union(*lists),
            "cpus_raw": cpulist.union(*lists),
            "memory_mib": 65536,
            "distances": None,
            "has_memory": True,
        }
        for node, lists in nodes.items()
    ]
    numa += [
        {"id": node, "cpus": "", "cpus_raw": "", "memory_mib": 65536, "distances": None, "has_memory": True}
        for node in extra_nodes
    ]
    numa.sort(key=lambda node: node["id"])
    for node in numa:
        ids = [other["id"] for other in numa]
        node["distances"] = {
            str(other): (distances or {}).get((node["id"], other), 10 if node["id"] == other else 21) for other in ids
        }
    facts = {
        "possible": online,
        "present": online,
        "online": online,
        "offline": "",
        "isolated": "",
        "nohz_full": None,
        "boot": cpulist.expand(online)[0],
        "siblings": [row["cpus"] for row in rows],
        "packages": len(packages),
        "package_cpus": [{"id": package, "cpus": cpulist.union(*packages[package])} for package in order],
        "threads_per_core": max(sizes),
        "threads_per_core_min": min(sizes),
        "cores_per_package": None,
        "dies": None,
        "clusters": None,
        "llcs": llcs,
        "cores": rows,
        "smt_control": "on" if max(sizes) > 1 else "notsupported",
        "smt_active": max(sizes) > 1,
    }
    facts.update(cpus)
    return {
        "schema_version": 1,
        "root": "/",
        "arch": "x86_64",
        "cpu_model": "test",
        "cpu_vendor": "intel",
        "hypervisor": "none",
        "kernel": {"release": "6.12.0", "version": None, "cmdline": "", "args": [], "config": {}, "preempt": None},
        "cpus": facts,
        "numa_nodes": numa,
        "nics": [nic(**given) for given in nics],
        "netdevs": [],
        "gpus": [gpu(**given) for given in gpus],
        "display": [],
        "irqs": [],
        "irq_columns": None,
        "default_smp_affinity": None,
        "unknown": [],
    }


def nic(pci, name=None, node=None, queues=None, **given):
    entry = {
        "name": name,
        "netdevs": [name] if name else [],
        "pci": pci,
        "class": "0x020000",
        "vendor": "0x15b3",
        "device": "0x1021",
        "driver": "mlx5_core",
        "numa_node": node,
        "numa_source": None if node is None else "numa_node",
        "local_cpulist": None,
        "pcie_root": None,
        "bridges": [],
        "speed_mbps": None,
        "carrier": None,
        "up": True,
        "operstate": None,
        "rx_queues": queues,
        "tx_queues": queues,
        "channels": None,
        "tso_max_size": None,
        "function": "pf",
        "physfn": None,
        "vfs": [],
        "sriov_total": None,
        "infiniband": [],
        "uppers": [],
        "default_route": None,
        "irqs": [],
        "irq_source": None,
    }
    entry.update(given)
    return entry


def gpu(pci, node=None, **given):
    return dict(
        {
            "pci": pci,
            "vendor": "0x10de",
            "device": "0x2330",
            "class": "0x030200",
            "numa_node": node,
            "pcie_root": None,
            "bridges": [],
            "driver": None,
            "name": "H100",
        },
        **given,
    )


def irqs(nic_entry, count, kind="queue", start=100, name="q", affinity=None, managed=False):
    """Interrupts of a NIC, also noted in the NIC: returns rows of topology["irqs"]."""
    rows = []
    for index in range(count):
        number = start + index
        nic_entry["irqs"].append(
            {"irq": number, "queue": index, "kind": kind, "name": "%s-%d" % (name, index), "managed": managed}
        )
        rows.append(
            {
                "irq": number,
                "chip": "IR-PCI-MSIX",
                "hwirq": index,
                "actions": ["%s-%d" % (name, index)],
                "device": nic_entry["pci"],
                "managed": managed,
                "affinity": affinity,
                "effective": None,
                "msi": True,
            }
        )
    return rows


def article(numbering):
    """The article's machine: 64 logical CPUs, siblings i and i+32, two sockets; CPUs alternate between them or come in blocks."""
    return topology(
        [
            (
                "%d,%d" % (cpu, cpu + 32),
                cpu % 2 if numbering == "alternate" else cpu // 16,
                cpu % 2 if numbering == "alternate" else cpu // 16,
            )
            for cpu in range(32)
        ]
    )


def uniform(nodes, cores, threads=2, cores_per_llc=None, **given):
    """`nodes` nodes, one package each, `cores` cores each, siblings a whole machine apart (block numbering)."""
    total = nodes * cores
    rows, llcs = [], []
    for core in range(total):
        more = {}
        if cores_per_llc:
            more = {"llc": core // cores_per_llc}
        rows.append(
            (",".join(str(core + total * thread) for thread in range(threads)), core // cores, core // cores, more)
        )
    if cores_per_llc:
        for first in range(0, total, cores_per_llc):
            llcs.append(
                {
                    "cpus": cpulist.union(*[rows[core][0] for core in range(first, first + cores_per_llc)]),
                    "level": 3,
                    "size_kib": 32768,
                }
            )
    return topology(rows, llcs=llcs or None, **given)
