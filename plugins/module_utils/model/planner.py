# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which physical cores become housekeeping.

``choose(machine, policy, nics)`` takes the machine after boot (``machine.py``), a normalised policy and the physical NIC
functions ``[{"label", "node", "declared_gbps"}]`` that the default rule counts, and returns
``{"cores": [(core, code, message), ...], "warnings": [finding, ...]}``; the cores in the order in which they were chosen.

Rules that hold for every policy but the explicit list: whole cores only (invariant 3), the boot CPU's core always
(invariant 4), nothing depends on carrier, speed, queue counts or VFs (invariant 6).
"""

from __future__ import annotations

from . import cpulist
from .errors import HostprepError, finding
from .machine import cores_of


def choose(machine, policy, nics):
    if len(machine["cores"]) < 2:
        raise HostprepError(
            "too_few_cores",
            "the machine has a single core",
            read="online CPUs %s" % cpulist.compress(machine["online"]),
            allowed="at least two physical cores, one to reserve and one to isolate",
            cure="leave this host out of the plan",
        )
    if policy["reserved_cpus"] is not None:
        return _explicit(machine, policy)
    if policy["reserved_count"] is not None:
        return _counted(machine, policy)
    if policy["reserved_cores_per_node"] is not None or policy["reserved_cores_by_node"] is not None:
        return _per_node(machine, policy)
    return _formula(machine, policy, nics)


def _boot_core(machine):
    return next(core for core in machine["cores"] if machine["boot"] in core["cpus"])


def _name(node):
    return "the machine" if node is None else "NUMA node %d" % node


# --- explicit list -------------------------------------------------------------------------------------------------------------


def _explicit(machine, policy):
    wanted = set(cpulist.expand(policy["reserved_cpus"]))
    online = cpulist.compress(machine["online"])
    outside = wanted - machine["online"]
    if outside:
        raise HostprepError(
            "reserved_out_of_range",
            "reserved_cpus names CPUs that will not be online after the boot",
            read=cpulist.compress(outside),
            allowed="CPUs of " + online,
            cure="remove them: the kernel drops a whole isolcpus= with one bad number, and the kubelet does not start",
        )
    if wanted == machine["online"]:
        raise HostprepError(
            "reserved_everything",
            "reserved_cpus leaves no CPU to isolate",
            read=policy["reserved_cpus"],
            allowed="a part of " + online,
            cure="reserve fewer CPUs",
        )
    split = [core for core in machine["cores"] if 0 < len(wanted.intersection(core["cpus"])) < len(core["cpus"])]
    if split:
        raise HostprepError(
            "reserved_splits_siblings",
            "reserved_cpus takes one SMT sibling and leaves the other",
            read="%s of cores %s"
            % (
                cpulist.compress({cpu for core in split for cpu in core["cpus"] if cpu in wanted}),
                " ".join(cpulist.compress(core["cpus"]) for core in split[:8]),
            ),
            allowed="whole physical cores",
            cure="use %s" % cpulist.union(wanted, [cpu for core in split for cpu in core["cpus"]]),
        )
    warnings = []
    if machine["boot"] not in wanted:
        if policy["isolation_mode"] != "balanced":
            raise HostprepError(
                "boot_cpu_isolated",
                "reserved_cpus leaves the boot CPU %d isolated" % machine["boot"],
                read=policy["reserved_cpus"],
                allowed="lists with CPU %d in isolation mode %s" % (machine["boot"], policy["isolation_mode"]),
                cure="add %s, or use isolation_mode: balanced" % cpulist.compress(_boot_core(machine)["cpus"]),
            )
        warnings.append(
            finding(
                "boot_cpu_isolated",
                "the boot CPU %d is not reserved; the kernel adds it to irqaffinity= anyway" % machine["boot"],
                "add %s to reserved_cpus" % cpulist.compress(_boot_core(machine)["cpus"]),
                policy["reserved_cpus"],
            )
        )
    chosen = [(core, "explicit", "named in reserved_cpus") for core in machine["cores"] if core["cpus"][0] in wanted]
    return {"cores": chosen, "warnings": warnings}


# --- a count of logical CPUs -----------------------------------------------------------------------------------------------------


def _sums(sizes):
    """Bit n of the result is set where some of the sizes add up to n."""
    reach = 1
    for size in sizes:
        reach |= reach << size
    return reach


def _counted(machine, policy):
    """Whole cores, the boot core among them, that sum to exactly the count; looks at neither NICs nor LLCs.

    pack fills the boot core's node first and goes on in node order; spread gives the next core to the node with the fewest
    reserved CPUs. On machines with cores of different sizes a core is passed over where the rest could no longer sum up.
    """
    count, strategy = policy["reserved_count"], policy["strategy"] or "spread"
    boot = _boot_core(machine)
    others = [core for core in machine["cores"] if core is not boot]
    left = count - len(boot["cpus"])
    if left < 0 or not _sums(len(core["cpus"]) for core in others) >> left & 1 or count >= len(machine["online"]):
        raise _count_refused(machine, count, boot, others)
    code, words = (
        strategy,
        "packed into as few NUMA nodes as possible" if strategy == "pack" else "spread evenly over the NUMA nodes",
    )
    chosen = [(boot, "boot_core", "CPU %d boots the machine" % machine["boot"])]
    order = machine["nodes"] + (
        [None] if None not in machine["nodes"] and any(core["node"] is None for core in others) else []
    )
    if strategy == "pack":
        order.sort(key=lambda node: node != boot["node"])  # stable: node order behind it
    queues = {node: [core for core in cores_of(machine, node) if core is not boot] for node in order}
    taken = dict.fromkeys(order, 0)
    taken[boot["node"]] = len(boot["cpus"])
    uniform = len({len(core["cpus"]) for core in others}) <= 1
    while left:
        nodes = [node for node in order if queues[node]]
        if strategy == "spread":
            nodes.sort(key=lambda node: taken[node])  # stable: node order where equal
        node, core = _next_core(nodes, queues, left, uniform)
        queues[node].remove(core)
        taken[node] += len(core["cpus"])
        left -= len(core["cpus"])
        chosen.append((core, code, words))
    return {"cores": chosen, "warnings": []}


def _next_core(nodes, queues, left, uniform):
    for node in nodes:
        tried = set()
        for core in queues[node]:
            size = len(core["cpus"])
            if size > left or size in tried:
                continue
            tried.add(size)
            if (
                uniform
                or _sums(len(other["cpus"]) for rest in queues.values() for other in rest if other is not core)
                >> (left - size)
                & 1
            ):
                return node, core
    raise AssertionError("a feasible count has a next core")


def _count_refused(machine, count, boot, others):
    total = len(machine["online"])
    reach = _sums(len(core["cpus"]) for core in others) << len(boot["cpus"])
    allowed = [number for number in range(1, total) if reach >> number & 1]
    near = sorted(sorted(allowed, key=lambda number: abs(number - count))[:2])
    return HostprepError(
        "reserved_count",
        "no set of whole cores with the boot CPU's core %s has that many CPUs" % cpulist.compress(boot["cpus"]),
        read="reserved_count: %d" % count,
        allowed="counts of %s"
        % (
            cpulist.compress(allowed)
            if len({b - a for a, b in zip(allowed, allowed[1:])} - {1}) == 0
            else _steps(allowed)
        ),
        cure="use %s" % " or ".join(str(number) for number in near),
    )


def _steps(allowed):
    steps = {b - a for a, b in zip(allowed, allowed[1:])}
    if len(steps) == 1:
        return "%d to %d in steps of %d" % (allowed[0], allowed[-1], steps.pop())
    return cpulist.compress(allowed)


# --- cores per NUMA node -----------------------------------------------------------------------------------------------------------


def _per_node(machine, policy):
    given = policy["reserved_cores_by_node"]
    if given is None:
        want = dict.fromkeys(machine["nodes"], policy["reserved_cores_per_node"])
        if len(want) > 1 and None in want:
            want[None] = 1  # the boot core, whose node is unknown
        read = "reserved_cores_per_node: %d" % policy["reserved_cores_per_node"]
    else:
        read = "reserved_cores_by_node: {%s}" % ", ".join(
            "%s: %d" % item for item in sorted(given.items(), key=lambda item: int(item[0]))
        )
        ids = {str(node) for node in machine["nodes"] if node is not None} or {"0"}
        missing = sorted(set(given) - ids, key=int)
        if missing:
            raise HostprepError(
                "reserved_cores_node",
                "reserved_cores_by_node names NUMA nodes without CPUs here",
                read=read,
                allowed="nodes " + ", ".join(sorted(ids, key=int)),
                cure="remove node %s" % ", ".join(missing),
            )
        want = {node: given.get("0" if machine["nodes"] == [None] else str(node), 0) for node in machine["nodes"]}
        boot_node = _boot_core(machine)["node"]
        want[boot_node] = max(1, want[boot_node])
    sizes = {node: len(cores_of(machine, node)) for node in machine["nodes"]}
    short = [node for node in machine["nodes"] if want[node] > sizes[node]]
    if short or sum(want.values()) >= len(machine["cores"]):
        raise HostprepError(
            "reserved_cores_per_node",
            "that many cores cannot be reserved and leave any to isolate",
            read=read,
            allowed="fewer than all cores, and at most "
            + ", ".join("%d on %s" % (sizes[node], _name(node)) for node in machine["nodes"][:16]),
            cure="reserve fewer cores per node",
        )
    chosen = []
    for node in machine["nodes"]:
        chosen += [
            (core, "boot_core" if machine["boot"] in core["cpus"] else "base", _base_words(machine, core, node))
            for core in pick(machine, node, want[node])
        ]
    return {"cores": chosen, "warnings": []}


def _base_words(machine, core, node):
    if machine["boot"] in core["cpus"]:
        return "CPU %d boots the machine" % machine["boot"]
    return "housekeeping for %s" % _name(node)


def _formula(machine, policy, nics):
    """The default: one core on every NUMA node with CPUs, and more where physical NIC functions live.

    Extra cores on a node: ``nic_cores`` for each physical PCI NIC function there, at most ``nic_cores_cap``; where the inventory
    declares Gb/s for NICs of the node, instead the declared sum / ``gbps_per_core``, rounded up. Never more than half of a node's
    cores. A node with a single core keeps it isolated unless it boots the machine.
    """
    chosen, warnings = [], []
    for node in machine["nodes"]:
        size = len(cores_of(machine, node))
        here = [nic for nic in nics if nic["node"] == node]
        declared = sum(nic["declared_gbps"] or 0 for nic in here)
        if declared:
            extra, why = -int(-declared // policy["gbps_per_core"]), "%g Gb/s declared on %s" % (declared, _name(node))
            extra = max(0, extra - 1)  # the node's base core carries the first share
        else:
            extra, why = (
                min(policy["nic_cores"] * len(here), policy["nic_cores_cap"]),
                "%d NIC function%s on %s" % (len(here), "s"[len(here) == 1 :], _name(node)),
            )
        boots = _boot_core(machine)["node"] == node
        total = min(1 + extra, max(size // 2, 1 if boots else 0))
        if total < 1 + extra and here:
            warnings.append(
                finding(
                    "nic_cores_limited",
                    "%s has %d core%s, so %d of %d wanted housekeeping cores %s reserved there"
                    % (_name(node), size, "s"[size == 1 :], total, 1 + extra, "is" if total == 1 else "are"),
                    "set reserved_cores_by_node if the NICs there need more",
                    why,
                )
            )
        for index, core in enumerate(pick(machine, node, total)):
            if machine["boot"] in core["cpus"] or index == 0:
                code = "boot_core" if machine["boot"] in core["cpus"] else "base"
                chosen.append((core, code, _base_words(machine, core, node)))
            else:
                chosen.append((core, "declared" if declared else "nic", "housekeeping for " + why))
    return {"cores": chosen, "warnings": warnings}


def pick(machine, node, number):
    """`number` cores of a node: the boot core first, on hybrids the least capable next, else whole LLC domains before parts.

    A part is taken from one domain only, so as few last-level caches as possible are shared between housekeeping and isolated
    CPUs (the reason is that of the kubelet's prefer-align-cpus-by-uncorecache).
    """
    cores = cores_of(machine, node)
    boot = [core for core in cores if machine["boot"] in core["cpus"]]
    if number <= 0:
        return []
    if len({core["rank"] for core in cores}) > 1:
        rest = sorted((core for core in cores if core not in boot), key=lambda core: (core["rank"], core["cpus"][0]))
        return (boot + rest)[:number]
    domains = {}
    for core in cores:
        domains.setdefault(core["llc"], []).append(core)
    domains = list(domains.values())
    if boot:
        # The boot core's domain must be entered in any case; it leads, with the boot core at its head.
        first = next(domain for domain in domains if boot[0] in domain)
        domains.remove(first)
        chosen = (boot + [core for core in first if core is not boot[0]])[:number]
    else:
        chosen = []
    while len(chosen) < number:
        left = number - len(chosen)
        whole = [domain for domain in domains if len(domain) <= left]
        domain = max(whole, key=len) if whole else min(domains, key=len)
        domains.remove(domain)
        chosen += domain[:left]
    return chosen
