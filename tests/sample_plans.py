# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans made by hand for the tests of the report: any machine size, in the plan's own shape, without the planner.

They are shaped like the planner's (docs/schemas/plan.schema.json) but obey simple rules: one housekeeping core per node, one more
where a NIC lives, one queue per housekeeping CPU of the NIC's node.
"""

from __future__ import annotations

from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist

H100 = "NVIDIA H100 80GB HBM3"


def nic(name, node, gbps=400, planned=True, root=None, driver="mlx5_core"):
    return {"name": name, "node": node, "gbps": gbps, "planned": planned, "root": root, "driver": driver}


def gpu(node, name=H100, root=None):
    return {"node": node, "name": name, "root": root}


def sample(
    host,
    sockets=2,
    nodes_per_socket=1,
    cores_per_node=16,
    threads=2,
    cores_per_llc=None,
    alternate=False,
    nics=(),
    gpus=(),
    memory_only=0,
    model="Intel(R) Xeon(R) Platinum 8480+",
    kernel="6.8.0-45-generic",
    mode="balanced",
    irq=None,
    hybrid=0,
    extra_reserved=0,
):
    """One plan. ``memory_only`` adds nodes without CPUs, ``hybrid`` makes the last n cores E-cores, ``irq`` sets an own irq list."""
    nodes = sockets * nodes_per_socket
    total = nodes * cores_per_node
    cores = []
    for index in range(total):
        node = index % nodes if alternate else index // cores_per_node
        cores.append(
            {
                "cpus": [index + total * thread for thread in range(threads)],
                "node": node,
                "socket": node // nodes_per_socket,
                "place": index,
            }
        )
    cores.sort(key=lambda core: core["cpus"][0])
    planned = [item for item in nics if item["planned"]]
    housekeeping = []
    for node in range(nodes):
        own = [core for core in cores if core["node"] == node]
        wanted = 1 + min(2, sum(1 for item in planned if item["node"] == node)) + extra_reserved
        housekeeping += own[: min(wanted, len(own) - 1)] if len(own) > 1 else []
    reserved = cpulist.compress(cpu for core in housekeeping for cpu in core["cpus"])
    online = cpulist.compress(cpu for core in cores for cpu in core["cpus"])
    isolated = cpulist.minus(online, reserved)
    irq = reserved if irq is None else irq
    llcs = _llcs(cores, nodes, cores_per_llc)
    plan_nics = [_plan_nic(index, item, housekeeping, cpulist.expand(irq)) for index, item in enumerate(planned)]
    args = ["isolcpus=managed_irq," + isolated, "irqaffinity=" + irq]
    return {
        "schema_version": 1,
        "collection_version": "0.2.0",
        "host": host,
        "fingerprint": "%064x" % (total * 7919 + nodes),
        "mode": mode,
        "policy": {"isolation_mode": mode, "reserved_cores_per_node": None, "nics": None},
        "reserved": reserved,
        "isolated": isolated,
        "irq": irq,
        "online_after_boot": online,
        "boot_cpu": 0,
        "why": [
            {
                "cpus": cpulist.compress(core["cpus"]),
                "node": core["node"],
                "code": "boot_core" if core["cpus"][0] == 0 else "base",
                "message": "CPU 0 boots the machine; interrupts land on it whatever the arguments say"
                if core["cpus"][0] == 0
                else "housekeeping core of node %d" % core["node"],
            }
            for core in housekeeping
        ],
        "numa": _numa(nodes, cores, reserved, isolated, planned, gpus, memory_only),
        "nics": plan_nics,
        "vector_budget": _vectors(reserved, plan_nics),
        "kernel_args": args,
        "kubelet": {
            "reservedSystemCPUs": reserved,
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {},
            "topologyManagerPolicy": "best-effort",
            "topologyManagerPolicyOptions": {},
            "allocatable_cpus": len(cpulist.expand(isolated)),
            "admission": [_admission("llm-4gpu", 24, 4, nodes), _admission("embedder", 4, 1, nodes)] if gpus else [],
        },
        "gates": {name: {"eligible": None, "reasons": []} for name in ("netkit", "big_tcp_ipv4", "big_tcp_ipv6")},
        "locality": {},
        "transition": {
            "reboot": True,
            "drain": True,
            "kubelet_state_files": ["/var/lib/kubelet/cpu_manager_state"],
            "reasons": [
                {
                    "code": "kernel_args",
                    "message": "the boot arguments change",
                    "cure": "reboot in a maintenance window",
                    "read": "quiet splash",
                }
            ],
        },
        "differences": [
            {
                "what": "isolcpus",
                "planned": "managed_irq," + isolated,
                "configured": None,
                "live": "",
                "verdict": "differs",
                "note": None,
            },
            {"what": "irqaffinity", "planned": irq, "configured": irq, "live": irq, "verdict": "same", "note": None},
            {
                "what": "reservedSystemCPUs",
                "planned": reserved,
                "configured": None,
                "live": None,
                "verdict": "unknown",
                "note": "no kubelet was found",
            },
        ],
        "warnings": [
            {
                "code": "gbps_per_core",
                "message": "node %d: %d Gb/s on 4 housekeeping CPUs is more than 100 Gb/s per core"
                % (item["node"], item["gbps"]),
                "cure": "reserve more cores on that node: reserved_cores_by_node",
                "read": "%d Gb/s" % item["gbps"],
            }
            for item in planned[:1]
            if item["node"] is not None and (item["gbps"] or 0) >= 400
        ],
        "what_if": [
            {
                "policy": {"isolation_mode": mode},
                "label": "as planned",
                "reserved": reserved,
                "isolated": isolated,
                "isolated_lost": 0,
                "queues": {item["name"] or item["pci"]: item["queues"] for item in plan_nics},
                "gbps_per_core": {"0": 200.0},
                "vectors_fit": True,
                "shapes_admitted": {"llm-4gpu": ["none", "best-effort", "restricted"]},
                "error": None,
            },
            {
                "policy": {"reserved_cores_per_node": 1},
                "label": "one core per node",
                "reserved": cpulist.compress(cores[0]["cpus"]),
                "isolated": cpulist.minus(online, cores[0]["cpus"]),
                "isolated_lost": -2,
                "queues": {item["name"] or item["pci"]: 2 for item in plan_nics},
                "gbps_per_core": {"0": 400.0},
                "vectors_fit": False,
                "shapes_admitted": {"llm-4gpu": ["none", "best-effort"]},
                "error": None,
            },
            {
                "policy": {"reserved_cpus": "0"},
                "label": "CPU 0 alone",
                "reserved": None,
                "isolated": None,
                "isolated_lost": None,
                "queues": {},
                "gbps_per_core": {},
                "vectors_fit": None,
                "shapes_admitted": {},
                "error": "the list splits siblings; read: 0; allowed: whole cores; what to do: add their siblings.",
            },
        ]
        if planned
        else [],
        "layout": {
            "machine": {"cpu_model": model, "arch": "x86_64", "hypervisor": "none", "kernel": kernel},
            "packages": [
                {
                    "id": socket,
                    "cpus": cpulist.compress(cpu for core in cores if core["socket"] == socket for cpu in core["cpus"]),
                }
                for socket in range(sockets)
            ],
            "nodes": [
                {
                    "id": node,
                    "package": node // nodes_per_socket,
                    "memory_mib": 257000,
                    "cpus": cpulist.compress(cpu for core in cores if core["node"] == node for cpu in core["cpus"]),
                }
                for node in range(nodes)
            ]
            + [
                {"id": nodes + extra, "package": None, "memory_mib": 131072, "cpus": ""} for extra in range(memory_only)
            ],
            "llcs": llcs,
            "cores": [
                [
                    cpulist.compress(core["cpus"]),
                    core["node"],
                    core["socket"],
                    core["llc"],
                    None if not hybrid else "E" if index >= total - hybrid else "P",
                    "r" if core in housekeeping else "i",
                ]
                for index, core in enumerate(cores)
            ],
            "nics": [
                {
                    "name": item["name"],
                    "pci": _nic_pci(index),
                    "driver": item["driver"],
                    "numa_node": item["node"],
                    "pcie_root": _root(item),
                    "speed_mbps": item["gbps"] * 1000 if item["gbps"] else None,
                    "planned": item["planned"],
                }
                for index, item in enumerate(planned + [item for item in nics if not item["planned"]])
            ],
            "gpus": [
                {
                    "pci": "0000:%02x:00.0" % (0x80 + index),
                    "vendor": "0x10de",
                    "name": item["name"],
                    "numa_node": item["node"],
                    "pcie_root": _root(item),
                }
                for index, item in enumerate(gpus)
            ],
        },
    }


def _nic_pci(index):
    return "0000:%02x:00.0" % (0x17 + index)


def _root(item):
    return item["root"] or (None if item["node"] is None else "pci0000:%02x" % (0x10 * (item["node"] + 1)))


def _llcs(cores, nodes, cores_per_llc):
    llcs = []
    for node in range(nodes):
        own = [core for core in cores if core["node"] == node]
        size = cores_per_llc or len(own)
        for start in range(0, len(own), size):
            for core in own[start : start + size]:
                core["llc"] = len(llcs)
            llcs.append(
                {
                    "cpus": cpulist.compress(cpu for core in own[start : start + size] for cpu in core["cpus"]),
                    "level": 3,
                    "size_kib": 32768,
                }
            )
    return llcs


def _plan_nic(index, item, housekeeping, allowed):
    cpus = [
        core["cpus"][thread]
        for thread in range(len(housekeeping[0]["cpus"]))
        for core in housekeeping
        if core["node"] == (item["node"] or 0)
    ]
    cpus = [cpu for cpu in cpus if cpu in allowed]
    return {
        "name": item["name"],
        "pci": _nic_pci(index),
        "driver": item["driver"],
        "numa_node": item["node"],
        "pcie_root": _root(item),
        "speed_mbps": item["gbps"] * 1000 if item["gbps"] else None,
        "gbps": float(item["gbps"]) if item["gbps"] else None,
        "function": "pf",
        "served_by": item["node"] or 0,
        "vectors": {"queue": len(cpus), "ceq": len(cpus)},
        "queues": len(cpus),
        "queues_now": 63,
        "queue_cpus": cpus,
        "ceqs": len(cpus),
        "ceq_cpus": cpus,
        "other_cpus": cpulist.compress(cpus[:1]),
        "gbps_per_queue": item["gbps"] / len(cpus) if cpus and item["gbps"] else None,
    }


def _numa(nodes, cores, reserved, isolated, planned, gpus, memory_only):
    numa = []
    for node in range(nodes):
        own = [core for core in cores if core["node"] == node]
        cpus = cpulist.compress(cpu for core in own for cpu in core["cpus"])
        speed = sum(item["gbps"] or 0 for item in planned if item["node"] == node)
        kept = [core for core in own if cpulist.intersect(core["cpus"], reserved)]
        numa.append(
            {
                "id": node,
                "cpus": cpus,
                "reserved": cpulist.intersect(cpus, reserved),
                "isolated": cpulist.intersect(cpus, isolated),
                "cores": len(own),
                "reserved_cores": len(kept),
                "memory_mib": 257000,
                "nics": [item["name"] for item in planned if item["node"] == node],
                "gpus": ["0000:%02x:00.0" % (0x80 + index) for index, item in enumerate(gpus) if item["node"] == node],
                "gbps": float(speed) if speed else None,
                "gbps_per_core": speed / len(kept) if speed and kept else None,
            }
        )
    for extra in range(memory_only):
        numa.append(
            {
                "id": nodes + extra,
                "cpus": "",
                "reserved": "",
                "isolated": "",
                "cores": 0,
                "reserved_cores": 0,
                "memory_mib": 131072,
                "nics": [],
                "gpus": [],
                "gbps": None,
                "gbps_per_core": None,
            }
        )
    return numa


def _vectors(reserved, nics):
    cpus = len(cpulist.expand(reserved))
    planned = sum(item["queues"] + item["ceqs"] + 2 for item in nics)
    return {
        "judged": True,
        "why": None,
        "per_cpu": 203,
        "housekeeping_cpus": cpus,
        "capacity": cpus * 203 - 40,
        "managed": 40,
        "unmanaged_now": 130 * len(nics) + 50,
        "unmanaged_planned": planned + 50,
        "fits_now": 130 * len(nics) + 50 <= cpus * 203 - 40,
        "fits_planned": True,
        "queues_that_fit": 64,
        "ceqs_that_fit": 64,
        "housekeeping_that_would": cpus,
    }


def _admission(name, cpus, gpus, nodes):
    one = gpus <= 2
    policies = {
        "none": {"admitted": True, "nodes": list(range(nodes)), "reason": "no alignment is asked for"},
        "best-effort": {
            "admitted": True,
            "nodes": [0] if one else list(range(nodes)),
            "reason": "admitted whatever the alignment",
        },
        "restricted": {
            "admitted": True,
            "nodes": [0] if one else list(range(nodes)),
            "reason": "the GPUs alone need %d nodes" % nodes,
        },
        "single-numa-node": {
            "admitted": one,
            "nodes": [0] if one else [],
            "reason": "fits on node 0" if one else "no node has %d GPUs" % gpus,
        },
    }
    return {"shape": {"name": name, "cpus": float(cpus), "gpus": gpus, "memory_mib": 262144}, "policies": policies}


def h100(host, **changes):
    """A node of 4 H100 SXM on two sockets of 56 cores, two NICs of 400 Gb/s, a management NIC that is not planned."""
    wanted = {
        "cores_per_node": 56,
        "nics": [
            nic("ens1f0np0", 0, root="pci0000:15"),
            nic("ens2f0np0", 1, root="pci0000:b7"),
            nic("eno1", 0, 1, planned=False, driver="tg3"),
        ],
        "gpus": [
            gpu(0, root="pci0000:15"),
            gpu(0, root="pci0000:37"),
            gpu(1, root="pci0000:b7"),
            gpu(1, root="pci0000:d7"),
        ],
    }
    wanted.update(changes)
    return sample(host, **wanted)


def entry(plan):
    return {"host": plan["host"], "status": "planned", "plan": plan, "error": None, "error_code": None}


def refused(
    host,
    error="the reserved list names CPU 99; read: 99; allowed: 0-63; what to do: correct the list.",
    code="reserved_out_of_range",
):
    return {"host": host, "status": "refused", "plan": None, "error": error, "error_code": code}


def unreachable(host):
    return {
        "host": host,
        "status": "unreachable",
        "plan": None,
        "error": "ssh: connect to host %s port 22: No route to host" % host,
        "error_code": None,
    }


def fleet(count=200):
    """A mixed fleet of ``count`` hosts with 112 to 256 CPUs: five kinds of hardware, memory sizes and findings that differ by host."""
    entries = []
    for index in range(count):
        kind = index % 5
        host = "%s-%03d" % (("h100", "h100", "epyc", "old", "arm")[kind], index + 1)
        if kind < 2:
            plan = h100(host)
        elif kind == 2:
            plan = sample(
                host,
                nodes_per_socket=4,
                cores_per_node=16,
                cores_per_llc=8,
                model="AMD EPYC 9554 64-Core Processor",
                nics=[nic("ens%df0np0" % slot, slot % 8, 200) for slot in range(8)],
                gpus=[gpu(slot) for slot in range(8)],
            )
        elif kind == 3:
            plan = sample(
                host,
                cores_per_node=28,
                alternate=True,
                model="Intel(R) Xeon(R) CPU E5-2697 v3",
                kernel="5.15.0-119-generic",
                nics=[nic("eno1", 0, 25, driver="i40e"), nic("eno2", 0, 25, driver="i40e")],
            )
        else:
            plan = sample(
                host,
                sockets=1,
                nodes_per_socket=4,
                cores_per_node=32,
                threads=1,
                cores_per_llc=32,
                model="Neoverse-N1",
                nics=[nic("enp1s0f0", 0, 100)],
            )
        for node in plan["numa"] + plan["layout"]["nodes"]:
            node["memory_mib"] -= index * 3
        entries.append(entry(plan))
    if count >= 50:
        entries[7] = refused("h100-bad")
        entries[11] = unreachable("gone-1")
    return entries
