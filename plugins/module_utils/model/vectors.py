# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vector budget: whether all unmanaged interrupt vectors of a host fit on its housekeeping CPUs.

x86 only: a CPU has 256 IDT entries; exceptions, system vectors and the clean-up vector leave about 203 for devices
(arch/x86/include/asm/irq_vectors.h), and a managed interrupt reserves one on every CPU of its mask (kernel/irq/matrix.c).
Where the rest does not fit on the CPUs it may use, the kernel puts interrupts on isolated CPUs ("Affinity broken due to vector
space exhaustion"). Arm's GIC and POWER's XIVE have no such limit: not judged there.
"""

from __future__ import annotations

from . import cpulist
from .errors import finding

# mlx5 keeps the vectors of queues that are switched off (seastar#503), and so does mlx4.
KEEP_VECTORS = ("mlx5_core", "mlx4_core", "mlx4_en")


def budget(topology, machine, irq_cpus, nics, per_cpu):
    """Returns (budget dict as the plan shows it, [finding]).

    irq_cpus: list of CPU ids; nics: the plan's entries with ``queues``, ``vectors`` {"queue": n, "ceq": n} and ``driver``.
    """
    empty = dict.fromkeys(
        (
            "housekeeping_cpus",
            "capacity",
            "managed",
            "unmanaged_now",
            "unmanaged_planned",
            "fits_now",
            "fits_planned",
            "queues_that_fit",
            "ceqs_that_fit",
            "housekeeping_that_would",
        )
    )
    if topology["arch"] not in ("x86_64", "i686", "i386"):
        why = (
            "the architecture is unknown"
            if topology["arch"] is None
            else "%s has no vector limit per CPU" % topology["arch"]
        )
        return dict(empty, judged=False, why=why, per_cpu=per_cpu), []
    vectors = [irq for irq in topology["irqs"] if _takes_a_vector(irq)]
    if not vectors:
        return dict(empty, judged=False, why="no interrupt is known", per_cpu=per_cpu), []
    managed = [irq for irq in vectors if irq["managed"]]
    unmanaged = len(vectors) - len(managed)
    per_managed = _managed_per_cpu(managed, machine["online"], irq_cpus)
    room = {cpu: max(0, per_cpu - per_managed[cpu]) for cpu in irq_cpus}
    capacity = sum(room.values())
    freed = sum(
        max(0, nic["vectors"]["queue"] - nic["queues"] * _per_queue(nic))
        for nic in nics
        if nic["driver"] not in KEEP_VECTORS
    )
    planned = unmanaged - freed
    queues = sum(nic["vectors"]["queue"] for nic in nics)
    ceqs = sum(nic["vectors"]["ceq"] for nic in nics)
    left = max(0, capacity - (unmanaged - queues - ceqs))
    most = _most_that_fit(nics, left)
    least = min(room.values(), default=0)
    would = -(-unmanaged // least) if least else None
    result = {
        "judged": True,
        "why": None,
        "per_cpu": per_cpu,
        "housekeeping_cpus": len(irq_cpus),
        "capacity": capacity,
        "managed": len(managed),
        "unmanaged_now": unmanaged,
        "unmanaged_planned": planned,
        "fits_now": unmanaged <= capacity,
        "fits_planned": planned <= capacity,
        "queues_that_fit": min(most, max((nic["vectors"]["queue"] // _per_queue(nic) for nic in nics), default=0)),
        "ceqs_that_fit": min(most, max((nic["vectors"]["ceq"] for nic in nics), default=0)),
        "housekeeping_that_would": would,
    }
    if result["fits_now"]:
        return result, _crowded_nodes(nics, room)
    cures = []
    if most and any(nic["driver"] not in KEEP_VECTORS for nic in nics):
        cures.append(
            "set at most %d queues and %d CEQs on each planned NIC function"
            % (result["queues_that_fit"], result["ceqs_that_fit"])
        )
    if would is not None:
        would = result["housekeeping_that_would"] = -(-would // machine["threads"]) * machine["threads"]
    if would is not None and would < len(machine["online"]):
        cures.append("reserve at least %d CPUs" % would)
    cure = ", or ".join(cures) or "take devices or functions away: no number of housekeeping CPUs holds that many"
    if result["fits_planned"]:
        cure += "; the plan's queue counts (%d vectors) fit once they are set" % planned
    return result, [
        finding(
            "vector_budget",
            "%d unmanaged interrupt vectors do not fit on %d housekeeping CPUs with room for %d, so the kernel would put some on isolated CPUs"
            % (unmanaged, len(irq_cpus), capacity),
            cure,
            "%d vectors, %d of them managed" % (len(vectors), len(managed)),
        )
    ]


def _managed_per_cpu(managed, online, irq_cpus):
    """{cpu: vectors that managed interrupts reserve there}; by mask where it is known, else spread evenly per device."""
    load = dict.fromkeys(irq_cpus, 0)
    wanted = set(irq_cpus)
    spread = {}
    parsed = {}
    for irq in managed:
        mask = irq["affinity"]
        if mask is None:
            spread[irq["device"]] = spread.get(irq["device"], 0) + 1
            continue
        if mask not in parsed:
            parsed[mask] = wanted.intersection(cpulist.expand(mask))
        for cpu in parsed[mask]:
            load[cpu] += 1
    extra = sum(-(-count // max(1, len(online))) for count in spread.values())
    return {cpu: count + extra for cpu, count in load.items()}


def _takes_a_vector(irq):
    """Whether an interrupt takes one of a CPU's vectors: not the old PIC's, Xen's event channels, or those behind VMD's own."""
    chip = irq["chip"]
    if chip is None:
        return irq.get("msi") is not False
    if chip.startswith(("XT-PIC", "xen-", "VMD-")):
        return False
    return bool(irq.get("msi")) or "MSI" in chip or "APIC" in chip or chip.startswith(("HPET", "DMAR", "AMD-Vi"))


def _per_queue(nic):
    """Vectors of one queue: two where receive and transmit have their own (virtio, gve)."""
    return max(1, -(-nic["vectors"]["queue"] // nic["queues_now"])) if nic["queues_now"] else 1


def _most_that_fit(nics, left):
    """The largest N so that every function keeps at most N queues and N completion vectors and all of them fit into `left`."""

    def needed(most):
        return sum(
            min(nic["vectors"]["queue"], most * _per_queue(nic)) + min(nic["vectors"]["ceq"], most) for nic in nics
        )

    low, high = 0, max((max(nic["vectors"].values()) for nic in nics), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle) <= left else (low, middle - 1)
    return low


def _crowded_nodes(nics, room):
    """A finding for each set of CPUs whose NICs have more vectors than it has room for, although the whole host has enough."""
    wanted = {}
    for nic in nics:
        wanted[nic["other_cpus"]] = wanted.get(nic["other_cpus"], 0) + nic["vectors"]["queue"] + nic["vectors"]["ceq"]
    return [
        finding(
            "vector_budget",
            "%d vectors of NICs do not fit on their %d local housekeeping CPUs with room for %d"
            % (count, len(cpulist.expand(cpus)), sum(room[cpu] for cpu in cpulist.expand(cpus))),
            "fewer queues and CEQs on those NICs, or more housekeeping CPUs on their node (reserved_cores_by_node)",
            "CPUs " + cpus,
        )
        for cpus, count in wanted.items()
        if count > sum(room[cpu] for cpu in cpulist.expand(cpus))
    ]
