# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NICs are planned, and which housekeeping CPU serves each of their queues and completion vectors.

Rules: only CPUs of the plan's ``irq`` list, and of those the NIC's own NUMA node; one CPU per queue, queues reduced to fit;
first threads of all cores before their siblings; several NICs of a node start at different CPUs; RDMA completion vectors (CEQ)
share the node's CPUs. Vectors beyond the planned queues (mlx5 keeps them) wrap over ``queue_cpus``: queue q belongs to
``queue_cpus[q % len(queue_cpus)]``. A NIC whose node has no housekeeping CPU uses the nearest node that has one, never an
isolated CPU.
"""

from __future__ import annotations

from . import cpulist
from .errors import HostprepError, finding
from .machine import cores_of


def label(nic):
    return nic["name"] or nic["pci"] or "unnamed NIC"


def select(topology, policy):
    """The planned NICs of a topology, in PCI order. Raises HostprepError: nic_unknown, nic_not_physical, nic_spans_nodes.

    Default: every PCI NIC that is administratively up, or every PCI NIC where that cannot be known.
    """
    if policy["nics"] is None:
        nics = [nic for nic in topology["nics"] if nic["pci"]]
        return [nic for nic in nics if nic["up"] is not False]
    chosen = []
    for name in policy["nics"]:
        for nic in _named(topology, name):
            if nic not in chosen:
                chosen.append(nic)
    return [nic for nic in topology["nics"] if nic in chosen]


def _is_called(nic, name):
    """Whether a name of the inventory means this NIC: a net device, a PCI address in either case, an HCA."""
    hcas = [hca["name"] for hca in nic["infiniband"]]
    return name.lower() == (nic["pci"] or "").lower() or name in [nic["name"], *nic["netdevs"], *hcas]


def _named(topology, name):
    for nic in topology["nics"]:
        if _is_called(nic, name):
            return [nic]
    upper = next((netdev for netdev in topology["netdevs"] if netdev["name"] == name), None)
    known = ", ".join(label(nic) for nic in topology["nics"][:24]) or "none was found"
    if upper is None:
        raise HostprepError(
            "nic_unknown",
            "the policy names a NIC that this host does not have",
            read=name,
            allowed=known,
            cure="correct nics in the inventory",
        )
    members = [nic for nic in topology["nics"] if label(nic) in upper["nics"] or nic["pci"] in upper["nics"]]
    if not members:
        raise HostprepError(
            "nic_not_physical",
            "the policy names a network device with no physical NIC beneath it",
            read="%s (%s)" % (name, upper["kind"]),
            allowed=known,
            cure="name the physical NIC",
        )
    if len({nic["numa_node"] for nic in members} - {None}) > 1:
        raise HostprepError(
            "nic_spans_nodes",
            "the policy names a %s whose NICs are on more than one NUMA node" % upper["kind"],
            read="%s over %s"
            % (
                name,
                ", ".join(
                    "%s on node %s" % (label(nic), "unknown" if nic["numa_node"] is None else nic["numa_node"])
                    for nic in members
                ),
            ),
            allowed="physical NICs, or a bond whose members share a node",
            cure="name the members one by one, so that each is pinned on its own node",
        )
    return members


def formula_nics(topology, machine, policy, planned):
    """The physical functions that the default rule counts: those that the policy names, or every PCI function present but VFs."""
    declared = policy["declared_gbps"] or {}
    missing = [name for name in declared if not any(_is_called(nic, name) for nic in topology["nics"])]
    if missing:
        raise HostprepError(
            "nic_unknown",
            "declared_gbps names a NIC that this host does not have",
            read=", ".join(missing),
            allowed=", ".join(label(nic) for nic in topology["nics"][:24]) or "none was found",
            cure="correct declared_gbps in the inventory",
        )
    nics = planned if policy["nics"] is not None else [nic for nic in topology["nics"] if nic["pci"]]
    return [
        {"label": label(nic), "node": home(nic, topology, machine), "declared_gbps": declared_speed(nic, policy)}
        for nic in nics
        if nic["function"] != "vf"
    ]


def declared_speed(nic, policy):
    return next((speed for name, speed in (policy["declared_gbps"] or {}).items() if _is_called(nic, name)), None)


def home(nic, topology, machine):
    """NUMA node of a NIC: its own, the only one there is, or None where it cannot be known."""
    if nic["numa_node"] is not None:
        return nic["numa_node"]
    return machine["nodes"][0] if len(machine["nodes"]) == 1 and len(topology["numa_nodes"]) <= 1 else None


def cpu_order(machine, irq_cpus, node):
    """Interrupt CPUs of a node in tiers: first threads of every core, then second threads, and so on. [] where it has none."""
    allowed = set(irq_cpus)
    cores = [
        [cpu for cpu in core["cpus"] if cpu in allowed]
        for core in (machine["cores"] if node == "any" else cores_of(machine, node))
    ]
    tiers = [[core[thread] for core in cores if len(core) > thread] for thread in range(machine["threads"])]
    return [tier for tier in tiers if tier]


class _Loads:
    """How many vectors each CPU has been given; ``take`` gives the next ones to the least loaded, first threads first."""

    def __init__(self):
        self._load = {}
        self._turns = {}

    def take(self, tiers, number, node):
        """`number` different CPUs (as many as there are, at most). NICs of a node begin at different CPUs of a tier."""
        turn = self._turns[node] = self._turns.get(node, -1) + 1
        ranked = []
        for tier in tiers:
            shift = turn % len(tier)
            ranked += tier[shift:] + tier[:shift]
        ranked.sort(key=lambda cpu: self._load.get(cpu, 0))  # stable: the order above among equals
        return self.give(ranked[:number])

    def give(self, cpus):
        for cpu in cpus:
            self._load[cpu] = self._load.get(cpu, 0) + 1
        return cpus

    def behind(self, tiers, number):
        """CPUs for completion vectors: the least loaded first, without a turn of their own."""
        ranked = sorted((cpu for tier in tiers for cpu in tier), key=lambda cpu: self._load.get(cpu, 0))
        return self.give(ranked[:number])


def _serving(nic, topology, machine, irq_cpus):
    """(node or "any", CPUs in order, remark or None) that serve a NIC; a remark (code, its node) where they are not its own node's."""
    node = home(nic, topology, machine)
    everywhere = "any", cpu_order(machine, irq_cpus, "any"), ("nic_node_unknown", None)
    if node is None and None not in machine["nodes"]:
        return everywhere
    order = cpu_order(machine, irq_cpus, node) if node in machine["nodes"] else []
    if order:
        return node, order, None
    distances = _distances(topology, node)
    serving = [other for other in machine["nodes"] if cpu_order(machine, irq_cpus, other)]
    if not serving:
        return everywhere
    nearest = min(serving, key=lambda other: (distances.get(str(other), 1 << 30), other is None, other or 0))
    code = "nic_without_local_housekeeping" if node in machine["nodes"] else "nic_node_without_cpus"
    return nearest, cpu_order(machine, irq_cpus, nearest), (code, node)


def _distances(topology, node):
    return next((entry["distances"] for entry in topology["numa_nodes"] if entry["id"] == node), None) or {}


def _remark(code, node, serving, names, topology, policy, irq_cpus):
    """The finding for all NICs of a node that its own CPUs do not serve."""
    nics = ", ".join(names)
    if code == "nic_node_unknown":
        return finding(
            code,
            "the NUMA node of %s is unknown, so housekeeping CPUs of every node serve it" % nics,
            "set the slot's NUMA affinity in the firmware, or pass the topology with numa_node filled in",
            "numa_node -1 or missing",
        )
    distances = _distances(topology, node)
    far = distances.get(str(serving))
    cost = "every packet crosses to %s" % ("CPUs of no node" if serving is None else "node %d" % serving)
    if far:
        cost += " (distance %d instead of %d)" % (far, distances.get(str(node), 10))
    if code == "nic_node_without_cpus":
        return finding(
            code,
            "node %s of %s has no CPUs: %s" % (node, nics, cost),
            "nothing, this is how the machine is built",
            "node %s" % node,
        )
    return finding(
        code,
        "node %s of %s has no housekeeping CPU: %s" % (node, nics, cost),
        "add CPUs of node %s to irq_cpus" % node
        if policy["irq_cpus"] is not None
        else "reserve a core there, with reserved_cores_by_node (node %s among its nodes) in place of the policy's way"
        % node,
        "irq CPUs %s" % cpulist.compress(irq_cpus),
    )


def _counts(nic):
    kinds = {}
    for irq in nic["irqs"]:
        kinds.setdefault(irq["kind"], set()).add(irq["queue"] if irq["queue"] is not None else -1 - irq["irq"])
    numbered = set().union(*(kinds.get(kind, set()) for kind in ("queue", "rx", "tx")))
    vectors = sum(1 for irq in nic["irqs"] if irq["kind"] in ("queue", "rx", "tx"))
    return len(numbered), vectors, sum(1 for irq in nic["irqs"] if irq["kind"] == "ceq")


def place(topology, machine, policy, planned, irq_cpus):
    """The queue map. Returns (plan entries, findings).

    An entry has what the plan shows of a NIC, and ``vectors`` {"queue", "ceq"}: how many interrupt vectors of each kind exist.
    """
    entries, warnings = [], []
    if not planned:
        present = ", ".join(
            "%s (%s)" % (label(nic), "down" if nic["up"] is False else "no PCI") for nic in topology["nics"][:16]
        )
        warnings.append(
            finding(
                "no_nic_planned",
                "no NIC is planned, so no interrupt is pinned",
                "name the NICs in nics, or bring them up",
                present or "no NIC was found",
            )
        )
    loads, remarks = _Loads(), {}
    for nic in planned:
        node, tiers, remark = _serving(nic, topology, machine, irq_cpus)
        if remark:
            remarks.setdefault((*remark, node), []).append(label(nic))
        by_irq, queue_vectors, ceqs = _counts(nic)
        channels = nic["channels"] or {}
        # gve has a vector for each direction, and mlx5 more vectors than queues: what the kernel counts as queues leads
        now = channels.get("combined") or channels.get("rx") or nic["rx_queues"] or by_irq
        cpus = sum(len(tier) for tier in tiers)
        able = max(channels.get("combined_max") or channels.get("rx_max") or 0, now or 0) or cpus
        queues = min(number for number in (able, cpus, policy["queues_max"]) if number)
        queue_cpus = loads.take(tiers, queues, node)
        ceq_cpus = loads.behind(tiers, min(ceqs, cpus))
        speed = declared_speed(nic, policy)
        if speed is None and nic["speed_mbps"]:
            speed = nic["speed_mbps"] / 1000.0
        entries.append(
            {
                "name": nic["name"],
                "pci": nic["pci"],
                "driver": nic["driver"],
                "numa_node": nic["numa_node"],
                "pcie_root": nic["pcie_root"],
                "speed_mbps": nic["speed_mbps"],
                "gbps": speed,
                "function": nic["function"],
                "queues": queues,
                "queues_now": now,
                "queue_cpus": queue_cpus,
                "ceqs": ceqs,
                "ceq_cpus": ceq_cpus,
                "other_cpus": cpulist.compress(cpu for tier in tiers for cpu in tier),
                "served_by": None if node == "any" else node,
                "gbps_per_queue": round(speed / queues, 2) if speed else None,
                "vectors": {"queue": queue_vectors, "ceq": ceqs},
            }
        )
    warnings += [_remark(*remark, names, topology, policy, irq_cpus) for remark, names in remarks.items()]
    return entries, warnings
