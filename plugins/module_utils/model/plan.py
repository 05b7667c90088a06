# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's plan: from its topology and policy to the three CPU lists and everything that follows from them.

``make_plan`` composes the other files of this folder; its result is described by docs/schemas/plan.schema.json. The invariants
are checked after every plan: one that breaks them is an error, never a warning.
"""

from __future__ import annotations

from . import (
    compare,
    cpulist,
    kernel_args,
    kubelet,
    layout,
    machine as machines,
    numa,
    planner,
    policy as policies,
    queues,
    vectors,
)
from .errors import HostprepError, finding
from .version import COLLECTION_VERSION

SCHEMA_VERSION = 1
# What a kept plan does not have: what was so at the moment of planning and is otherwise at the next look (link speeds, counts of vectors,
# what differs from the plan), and what is only shown. With it every run would write another file although nothing was decided anew.
_NOT_KEPT = ("differences", "transition", "what_if", "layout", "why", "warnings", "numa", "vector_budget")
_NOT_KEPT_OF_NICS = ("speed_mbps", "gbps", "gbps_per_queue", "queues_now", "vectors")
NOTHING_OBSERVED = {
    "boot_args": {"source": None, "tokens": None},
    "kubelet_reserved": {"source": None, "value": None},
    "cpu_manager_state": {"path": None, "state": None, "problem": None},
    "newer_kernel": None,
    "kept_plan": {"path": None, "plan": None, "problem": None},
}
NOT_JUDGED = {
    name: {
        "eligible": None,
        "reasons": [
            finding("not_judged", "the data path gate was not asked for", "give dataplane, a mapping that may be empty")
        ],
    }
    for name in ("netkit", "big_tcp_ipv4", "big_tcp_ipv6")
}


def make_plan(topology, policy, what_if=(), observed=None, host=None, dataplane=None):
    """The plan of one host.

    topology   as docs/schemas/topology.schema.json says
    policy     dict of options of cpu_plan (policy.OPTIONS); None and absent mean the default
    what_if    list of {"label", option: value, ...}: variants that are planned beside it
    observed   what is configured on the host, see compare.py; None where nothing could be read. A plan that the host keeps
               stands while it satisfies policy and invariants
    dataplane  dict of options of the data path gate (gate.OPTIONS); None leaves the gates unjudged

    Raises HostprepError.
    """
    policy = policies.normalise(policy)
    observed = observed or NOTHING_OBSERVED
    plan, machine = _lists(topology, policy, observed["kept_plan"]["plan"])
    reserved, isolated, irq = (cpulist.expand(plan[name]) for name in ("reserved", "isolated", "irq"))
    tokens = plan["kernel_args"]
    kubelet_part, kubelet_warnings = kubelet.reservation(machine, topology, policy, reserved, isolated)
    rows = compare.differences(topology, observed, plan)
    plan.update(
        host=host,
        kubelet=kubelet_part,
        differences=rows,
        transition=compare.transition(rows, observed, plan["reserved"], plan["online_after_boot"]),
        gates=NOT_JUDGED,
        locality={},
        layout=layout.drawing(topology, machine, plan),
        what_if=[],
    )
    if what_if:
        from .what_if import (
            side_by_side,
        )  # Ansible compiles what is imported anew on each host: what few need is left out

        plan["what_if"] = side_by_side(
            plan, what_if, lambda changes: _variant(topology, policies.override(policy, changes))
        )
    if dataplane is not None:
        from . import gate  # as above

        judged = gate.judge(topology, dataplane, observed.get("newer_kernel"))
        plan.update(gates=judged["gates"], dataplane=judged["dataplane"])
        plan["warnings"] += judged["warnings"]
    plan["warnings"] += kubelet_warnings + kernel_args.lint(
        policy["isolation_mode"], topology["kernel"]["config"], tokens
    )
    if observed["kept_plan"]["problem"]:
        plan["warnings"].append(
            finding(
                "kept_plan_unreadable",
                "the plan that the host keeps cannot be read, so this one is made from nothing",
                "move %s aside" % observed["kept_plan"]["path"],
                observed["kept_plan"]["problem"],
            )
        )
    check(plan, machine, irq)
    return plan


def kept(plan):
    """The part of a plan that its host keeps: what was decided, and what tells whether it is this host's."""
    found = {name: value for name, value in plan.items() if name not in _NOT_KEPT}
    found["nics"] = [
        {name: value for name, value in nic.items() if name not in _NOT_KEPT_OF_NICS} for nic in plan.get("nics") or ()
    ]
    return found


def _lists(topology, policy, kept=None):
    """The part of a plan that what-if variants need too: lists, queue map, vector budget, NUMA summary."""
    machine = machines.after_boot(topology, policy)
    planned = queues.select(topology, policy)
    chosen = planner.choose(machine, policy, queues.formula_nics(topology, machine, policy, planned))
    warnings = machine["warnings"] + chosen["warnings"]
    cores, better = _standing(kept, machine, policy, chosen["cores"])
    if better:
        warnings.append(better)
    reserved = sorted(cpu for core, _code, _message in cores for cpu in core["cpus"])
    isolated = sorted(machine["online"].difference(reserved))
    irq = _irq_cpus(policy, reserved)
    entries, queue_warnings = queues.place(topology, machine, policy, planned, irq)
    budget, budget_warnings = vectors.budget(topology, machine, irq, entries, policy["vectors_per_cpu"])
    nodes, speed_warnings = numa.per_node(topology, machine, policy, reserved, irq, entries)
    smt = kernel_args.smt_token(policy["smt"], topology["cpus"]["smt_control"], topology["kernel"]["args"])
    tokens = kernel_args.wanted(policy["isolation_mode"], cpulist.compress(irq), cpulist.compress(isolated), smt)
    return {
        "schema_version": SCHEMA_VERSION,
        "collection_version": COLLECTION_VERSION,
        "host": None,
        "fingerprint": machines.fingerprint(topology, machine),
        "mode": policy["isolation_mode"],
        "policy": policy,
        "reserved": cpulist.compress(reserved),
        "isolated": cpulist.compress(isolated),
        "irq": cpulist.compress(irq),
        "online_after_boot": cpulist.compress(machine["online"]),
        "boot_cpu": machine["boot"],
        "why": [
            {"cpus": cpulist.compress(core["cpus"]), "node": core["node"], "code": code, "message": message}
            for core, code, message in cores
        ],
        "numa": nodes,
        "nics": entries,
        "vector_budget": budget,
        "kernel_args": tokens,
        "warnings": warnings + queue_warnings + budget_warnings + speed_warnings,
    }, machine


def _variant(topology, policy):
    """(lists, pod shapes' admission) under another policy."""
    lists, machine = _lists(topology, policy)
    return lists, kubelet.forecasts(policy["pod_shapes"], machine, topology, cpulist.expand(lists["isolated"]))


def _irq_cpus(policy, reserved):
    if policy["irq_cpus"] is None:
        return reserved
    wanted = cpulist.expand(policy["irq_cpus"])
    outside = set(wanted) - set(reserved)
    if outside:
        raise HostprepError(
            "irq_outside_reserved",
            "irq_cpus names CPUs that are not reserved",
            read=cpulist.compress(outside),
            allowed="CPUs of " + cpulist.compress(reserved),
            cure="remove them from irq_cpus, or reserve them",
        )
    return wanted


def _standing(kept, machine, policy, fresh):
    """(cores of the plan, finding or None): the kept plan's cores while they satisfy the policy, else the fresh ones.

    A kept list satisfies the policy if it has whole cores with the boot core, and on each node as many as the policy asks for now
    (an explicit list must be that list). So a better algorithm, or a NIC moved to another slot, is reported and no reboot follows.
    """
    if not isinstance(kept, dict) or not isinstance(kept.get("reserved"), str) or policy["reserved_cpus"] is not None:
        return fresh, None
    try:
        wanted = set(cpulist.expand(kept["reserved"]))
    except HostprepError:
        return fresh, None
    cores = [core for core in machine["cores"] if wanted.intersection(core["cpus"])]
    whole = {cpu for core in cores for cpu in core["cpus"]} == wanted
    whole = whole and policy["reserved_count"] in (None, len(wanted))
    if (
        not whole
        or machine["boot"] not in wanted
        or _per_node(cores) != _per_node(core for core, _code, _message in fresh)
    ):
        return fresh, None
    fresh_cpus = {cpu for core, _code, _message in fresh for cpu in core["cpus"]}
    if fresh_cpus == wanted:
        return fresh, None
    stand = [(core, "kept", "stands in the host's kept plan and still satisfies the policy") for core in cores]
    return stand, finding(
        "better_plan",
        "a plan made from nothing would reserve %s; the kept one stands, so no reboot follows"
        % cpulist.compress(fresh_cpus),
        "to take the new one, set reserved_cpus to it",
        "kept " + kept["reserved"],
    )


def _per_node(cores):
    counts = {}
    for core in cores:
        counts[core["node"]] = counts.get(core["node"], 0) + 1
    return counts


def check(plan, machine, irq):
    """Invariants 1 to 5 of the design on a finished plan. Raises HostprepError ``invariant_<n>``: a defect of the planner, not of the input."""
    reserved, isolated = set(cpulist.expand(plan["reserved"])), set(cpulist.expand(plan["isolated"]))
    explicit = plan["policy"]["reserved_cpus"] is not None
    rules = (
        (
            1,
            "reserved and isolated are a partition of the CPUs online after the boot",
            reserved | isolated == machine["online"] and not reserved & isolated and reserved and isolated,
        ),
        (
            2,
            "interrupt CPUs are reserved",
            irq
            and set(irq) <= reserved
            and all(reserved.issuperset(nic["queue_cpus"] + nic["ceq_cpus"]) for nic in plan["nics"]),
        ),
        (
            3,
            "SMT siblings are on the same side",
            all(reserved.issuperset(core["cpus"]) or reserved.isdisjoint(core["cpus"]) for core in machine["cores"]),
        ),
        (4, "the boot CPU is reserved", machine["boot"] in reserved or (explicit and plan["mode"] == "balanced")),
        (5, "only CPUs online after the boot are named", reserved | isolated <= machine["online"]),
    )
    for number, rule, holds in rules:
        if not holds:
            raise HostprepError(
                "invariant_%d" % number,
                "the plan breaks invariant %d (%s)" % (number, rule),
                read="reserved %s, isolated %s" % (plan["reserved"], plan["isolated"]),
                allowed="plans that keep it",
                cure="report this as a defect, with the topology that host_topology returns",
            )


def refuse_other_host(plan, host):
    """Refuses a plan that names another host than `host`, where both are known: plan_other_machine."""
    if host and plan.get("host") not in (None, host):
        raise HostprepError(
            "plan_other_machine",
            "the plan was made for another host",
            read="planned for %s, to be kept by %s" % (plan["host"], host),
            allowed="a plan of this host",
            cure="plan this host again",
        )
