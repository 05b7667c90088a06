# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where each interrupt vector of the planned NICs belongs, and whether it is there. Plain data in, plain data out.

Rules (those of model/queues.py, on a machine that runs): a vector of queue q belongs to ``queue_cpus[q % len(queue_cpus)]``, a
completion vector to its place in ``ceq_cpus``, every other one to all CPUs that serve the NIC (``other_cpus``); one without a handler
stays on whatever interrupt CPUs it is on. So queues beyond
the planned ones spread over the same CPUs. A CPU that is offline is replaced by one that serves the NIC, else by any of the plan's
``irq`` CPUs; an isolated CPU never is one. Vectors of virtual functions that no plan names follow their physical function.

A vector is {"irq", "kind", "queue", "name", "managed", "affinity", "effective", "shift", "why", "counts"}: ``affinity`` and
``effective`` are CPU lists or None, ``shift`` moves a virtual function's queues on, ``why`` says why ``affinity`` is None.

Verdicts: ``ok``; ``drift`` (its mask is not the wanted one: written); ``managed`` (the kernel keeps the mask: listed, never written);
``unknown`` (no driver has requested it yet, or nothing is online to serve it); ``vector_space`` (its mask is right, and the kernel had
no vector left there, so it fires elsewhere).
"""

from __future__ import annotations

from . import cpulist, kernel_args, machine as machines, policy as policies, queues
from .errors import HostprepError

QUEUES = ("queue", "rx", "tx")
_LISTS = ("irq", "isolated", "reserved", "online_after_boot")


# -- plans -------------------------------------------------------------------------------------------------------------


def checked(plan):
    """The plan's part for interrupts: {"irq", "isolated", "reserved": sets, "online": set of the CPUs it is for, "nics": [entry]}.

    An entry: ``label``, ``pci``, ``name``, ``driver``, ``queues`` (how many are planned, or None), ``queue_cpus``, ``ceq_cpus``,
    ``other_cpus`` (lists of ids).
    Raises HostprepError: plan_invalid, irq_on_isolated.
    """
    try:
        lists = {name: cpulist.expand(plan[name]) for name in _LISTS}
        nics = [_entry(nic) for nic in plan["nics"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = "no %s" % error if isinstance(error, KeyError) else str(error)
        raise HostprepError(
            "plan_invalid",
            "the plan cannot be used",
            read=what,
            allowed="a plan as cpu_plan returns it",
            cure="plan this host again",
        ) from None
    irq, isolated, reserved = (set(lists[name]) for name in ("irq", "isolated", "reserved"))
    for label, cpus in [("irq", irq)] + [
        (nic["label"], set(nic["queue_cpus"] + nic["ceq_cpus"] + nic["other_cpus"])) for nic in nics
    ]:
        wrong = (cpus & isolated) | (cpus - irq)
        if wrong or not irq:
            raise HostprepError(
                "irq_on_isolated",
                "the plan lets interrupts run on isolated CPUs, or on CPUs outside its irq list",
                read="%s: %s" % (label, cpulist.compress(wrong) or "no CPU at all"),
                allowed="CPUs of irq that are not isolated",
                cure="plan this host again; a plan edited by hand is not used",
            )
    return {
        "irq": irq,
        "isolated": isolated,
        "reserved": reserved - isolated,
        "online": set(lists["online_after_boot"]),
        "nics": nics,
    }


def _entry(nic):
    name, pci = nic["name"], nic["pci"]
    if not isinstance(pci or name, str):
        raise TypeError("a NIC with neither PCI address nor name")
    other = cpulist.expand(nic["other_cpus"])
    return {
        "label": name or pci,
        "pci": pci,
        "name": name,
        "driver": nic.get("driver"),
        "queues": nic.get("queues"),
        "queue_cpus": [int(cpu) for cpu in nic["queue_cpus"]] or other,
        "ceq_cpus": [int(cpu) for cpu in nic.get("ceq_cpus") or ()] or other,
        "other_cpus": other,
    }


def from_cpus(topology, cpus, names):
    """A plan made of a CPU list and NICs alone (names, PCI addresses, bonds …), for those who have no other.

    Raises HostprepError: cpulist_invalid, cpus_not_online, irq_on_isolated, and what queues.select refuses.
    """
    ids = cpulist.expand(cpus)
    online = set(cpulist.expand(topology["cpus"]["online"] or ""))
    if not ids or not online.issuperset(ids):
        raise HostprepError(
            "cpus_not_online",
            "cpus names CPUs that are not online, or none",
            read=cpulist.minus(ids, online) or "an empty list",
            allowed="CPUs of " + cpulist.compress(online),
            cure="correct cpus",
        )
    isolated = _isolated(topology)
    if isolated.intersection(ids):
        raise HostprepError(
            "irq_on_isolated",
            "cpus names CPUs that the kernel isolates",
            read=cpulist.compress(isolated.intersection(ids)),
            allowed="CPUs outside " + cpulist.compress(isolated),
            cure="correct cpus",
        )
    policy = policies.normalise({"nics": names, "assume_no_smt": True})
    machine = machines.after_boot(topology, policy)
    entries, _warnings = queues.place(topology, machine, policy, queues.select(topology, policy), ids)
    listed = cpulist.compress(ids)
    return {
        "irq": listed,
        "reserved": listed,
        "isolated": cpulist.compress(isolated),
        "online_after_boot": cpulist.compress(online),
        "nics": entries,
    }


def _isolated(topology):
    """Ids of the CPUs that the running kernel was told to isolate; cpu/isolated alone is empty with isolcpus=managed_irq."""
    found = set(cpulist.expand(topology["cpus"].get("isolated") or ""))
    for token in (topology.get("kernel") or {}).get("args") or ():
        if kernel_args.name_of(token) in ("isolcpus", "nohz_full"):
            cpus = kernel_args.cpus_of(token.partition("=")[2].strip('"'))[1]
            found.update(cpulist.expand(cpus or ""))
    return found


def check_machine(plan, topology):
    """Refuses a plan that was made for another machine, or whose NICs are gone. Raises HostprepError: plan_other_machine, nic_gone.

    The fingerprint decides. While CPUs of the plan are offline, which it counts as other hardware, CPUs and NICs are compared alone.
    """
    facts = topology["cpus"]
    online = set(cpulist.expand(facts["online"] or ""))
    check_parts(
        checked(plan),
        online | set(cpulist.expand(facts.get("offline") or "")),
        {nic["pci"]: nic["driver"] for nic in topology["nics"]}.keys() | {nic["name"] for nic in topology["nics"]},
    )
    if not online.issuperset(cpulist.expand(plan["online_after_boot"])):
        return
    try:
        policy = policies.normalise(plan.get("policy"))
        found = machines.fingerprint(topology, machines.after_boot(topology, policy))
    except HostprepError:
        found = None
    if plan.get("fingerprint") not in (found, None):
        raise _other_machine(
            "fingerprint %s, this machine's is %s" % (str(plan["fingerprint"])[:12], (found or "unknown")[:12])
        )


def check_parts(rules, present, devices):
    """The part of check_machine that needs no topology: its CPUs, and that every planned NIC is there.

    present: ids of the CPUs that there are, online or not. devices: PCI addresses and names of NICs.
    """
    if present and not rules["online"] <= present:
        raise _other_machine("it plans CPUs %s, which are not there" % cpulist.compress(rules["online"] - present))
    gone = absent(rules, devices)
    if gone:
        raise HostprepError(
            "nic_gone",
            "a planned NIC is not there",
            read=", ".join(gone),
            allowed="the NICs that the plan names",
            cure="plan this host again, or put the NIC back",
        )


def absent(rules, devices):
    """Labels of the planned NICs that are not among these PCI addresses and names."""
    return [entry["label"] for entry in rules["nics"] if (entry["pci"] or entry["name"]) not in devices]


def _other_machine(read):
    return HostprepError(
        "plan_other_machine",
        "the plan was made for another machine, or for other hardware in this one",
        read=read,
        allowed="a plan of this machine",
        cure="plan this host again",
    )


# -- where vectors belong ----------------------------------------------------------------------------------------------


def wanted(entry, vectors, irq, online):
    """{interrupt number: CPU list} for the vectors of one NIC; None where no interrupt CPU is online."""
    near = [cpu for cpu in entry["other_cpus"] if cpu in online] or sorted(irq & online)
    everywhere = cpulist.compress(near)
    numbers = _numbers(vectors)
    found = {}
    for vector in vectors:
        number = numbers.get(vector["irq"])
        if not near:
            found[vector["irq"]] = None
        elif number is None:
            idle = vector["name"] is None and exposed(vector["affinity"], irq) is False  # its link is down: it stays
            found[vector["irq"]] = vector["affinity"] if idle else everywhere
        else:
            cpus = entry["ceq_cpus"] if vector["kind"] == "ceq" else entry["queue_cpus"]
            cpu = cpus[number % len(cpus)] if cpus else None
            found[vector["irq"]] = str(cpu if cpu in online else near[number % len(near)])
    return found


def _numbers(vectors):
    """{interrupt number: queue number} of vectors that serve a queue. Those whose names lost it get the lowest that are left."""
    found = {}
    for kinds in (QUEUES, ("ceq",)):
        own = [vector for vector in vectors if vector["kind"] in kinds]
        taken = {vector["queue"] for vector in own}
        free = 0
        for vector in own:
            number = vector["queue"]
            if number is None:
                while free in taken:
                    free += 1
                number = free
                free += 1
            found[vector["irq"]] = number + vector.get("shift", 0)
    return found


def judge(rules, vectors_of, online, strayed=None):
    """Rows for every vector, in the order of the plan's NICs.

    vectors_of   {label of a planned NIC: [vector]}
    online       set of the CPUs that are online
    strayed      {interrupt number: interrupts that fired outside the plan's irq CPUs while the mask was right}, or None
    """
    rows = []
    allowed = cpulist.compress(rules["irq"])
    for entry in rules["nics"]:
        vectors = vectors_of.get(entry["label"], ())
        targets = wanted(entry, vectors, rules["irq"], online)
        wider = (
            set(entry["other_cpus"]),
            rules["irq"],
            rules["reserved"],
        )  # for want of vectors; never an isolated CPU
        spare = [cpulist.compress(cpus & online) for cpus in wider if cpus & online]
        for vector in vectors:
            strays = (strayed or {}).get(vector["irq"])
            if strays and vector["effective"] and not exposed(vector["effective"], rules["irq"]):
                strays = None  # it moved with its first interrupt, which the CPU before still took
            verdict, why = _verdict(vector, targets[vector["irq"]], strays)
            rows.append(
                {
                    "nic": entry["label"],
                    "irq": vector["irq"],
                    "kind": vector["kind"],
                    "queue": vector["queue"],
                    "name": vector["name"],
                    "before": vector["affinity"],
                    "after": vector["affinity"],
                    "wanted": None if verdict == "managed" else targets[vector["irq"]],
                    "spare": spare,
                    "verdict": verdict,
                    "why": why,
                    "exposed": exposed(vector["affinity"], rules["irq"]),
                    "allowed": allowed,
                }
            )
    return rows


def _verdict(vector, target, strayed):
    if vector["managed"]:
        return "managed", "the kernel keeps its CPUs itself"
    if vector["affinity"] is None:
        return "unknown", vector.get("why") or "no driver has requested it"
    if target is None:
        return "unknown", "no interrupt CPU of the plan is online"
    if vector["affinity"] != target:
        return "drift", None
    if strayed:
        return "vector_space", "%d interrupts fired on other CPUs although its mask is right" % strayed
    return "ok", None


def exposed(affinity, irq):
    """Whether a mask lets an interrupt fire outside the interrupt CPUs; None where it is not known."""
    return None if affinity is None else not set(irq).issuperset(cpulist.expand(affinity))


# -- what happened -----------------------------------------------------------------------------------------------------


def deltas(columns, before, after, irq):
    """{interrupt number: (interrupts since then, those of them outside the CPUs `irq`)} from two readings of the counts.

    before, after: {interrupt number: (name, [count per column])}. An interrupt that got another name or fewer counts is a new one.
    """
    outside = [place for place, cpu in enumerate(columns or ()) if cpu not in irq]
    found = {}
    for number, (name, counts) in after.items():
        old_name, old = before.get(number, (None, None))
        if old is None or old_name != name or len(old) != len(counts):
            continue
        more = sum(counts) - sum(old)
        if more >= 0:
            found[number] = more, max(0, sum(counts[place] - old[place] for place in outside))
    return found


def counted(rows):
    """{verdict or result: how many} of rows."""
    found = {}
    for row in rows:
        key = row.get("result") or row["verdict"]
        found[key] = found.get(key, 0) + 1
    return found
