# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pod shapes the kubelet would admit under which topology policy.

Follows kubelet/cm (topologymanager/policy.go, cpumanager/policy_static.go GetTopologyHints, devicemanager topology_hints.go) for
one Guaranteed pod on an empty node: a provider offers every set of NUMA nodes that can hold its part and prefers the smallest;
`restricted` admits only where all prefer the same set, `single-numa-node` only where that is one node.
"""

from __future__ import annotations

import itertools
import math

from .policy import TOPOLOGY_POLICIES

MAX_SETS = 20000


def forecast(shape, machine, topology, isolated):
    """{"shape", "policies": {policy: {"admitted", "nodes", "reason"}}}; ``nodes`` are the NUMA nodes that CPUs and GPUs would come from."""
    free = set(isolated)
    cpus_total, cpus_free = {}, {}
    for core in machine["cores"]:
        cpus_total[core["node"]] = cpus_total.get(core["node"], 0) + len(core["cpus"])
        cpus_free[core["node"]] = cpus_free.get(core["node"], 0) + len(free.intersection(core["cpus"]))
    by_vendor = {}
    for gpu in topology["gpus"]:
        nodes = by_vendor.setdefault(gpu["vendor"], {})
        nodes[gpu["numa_node"]] = nodes.get(gpu["numa_node"], 0) + 1
    # each vendor's device plugin has a resource of its own; a shape means the one that the node has most of
    gpus = max(by_vendor.values(), key=lambda nodes: sum(nodes.values()), default={})
    lacking = _lacking(shape, machine, topology, free, sum(gpus.values()))
    if lacking:
        return {
            "shape": shape,
            "policies": {policy: {"admitted": False, "nodes": [], "reason": lacking} for policy in TOPOLOGY_POLICIES},
        }
    providers = []
    if shape["cpus"] == int(shape["cpus"]):
        providers.append(("CPUs", _hints(int(shape["cpus"]), cpus_total, cpus_free)))
    located = {node: count for node, count in gpus.items() if node is not None}
    if shape["gpus"] and located:
        providers.append(("GPUs", _hints(shape["gpus"], located, located)))
    return {"shape": shape, "policies": {policy: _judge(policy, providers) for policy in TOPOLOGY_POLICIES}}


def _lacking(shape, machine, topology, free, gpus):
    """Why the node could never hold the shape, whatever the policy; None if it can."""
    whole = shape["cpus"] == int(shape["cpus"])
    threads = len(machine["online"]) // len(machine["cores"])  # the kubelet's CPUsPerCore, a mean on hybrids
    if whole and threads > 1 and int(shape["cpus"]) % threads:
        return "SMTAlignmentError: %d CPUs are not whole cores of %d threads (full-pcpus-only)" % (
            shape["cpus"],
            threads,
        )
    if shape["cpus"] > len(free):
        return "%g CPUs wanted, %d allocatable" % (shape["cpus"], len(free))
    if shape["gpus"] > gpus:
        return "%d GPUs wanted, %d present" % (shape["gpus"], gpus)
    sizes = [node["memory_mib"] for node in topology["numa_nodes"]]
    if shape["memory_mib"] and sizes and None not in sizes and shape["memory_mib"] > sum(sizes):
        return "%d MiB wanted, %d present" % (shape["memory_mib"], sum(sizes))
    return None


def _hints(want, total, free):
    """(preferred, narrowest) for one provider: the sets of nodes that it prefers, and the narrowest that is possible or None.

    `total` decides how many nodes it prefers (the fewest that could hold its part), `free` which sets can hold it now. Past
    MAX_SETS combinations only those of the nodes with most free are looked at; the kubelet itself would try 2^nodes.
    """
    nodes = sorted(total, key=lambda node: (node is None, node or 0))
    richest = sorted(nodes, key=lambda node: -free.get(node, 0))
    narrowest = _fewest(want, richest, free)
    least = _fewest(want, sorted(nodes, key=lambda node: -total[node]), total)
    if least is None or narrowest is None or len(narrowest) > len(least):
        return [], narrowest
    order = nodes if math.comb(len(nodes), len(least)) <= MAX_SETS else richest
    masks = itertools.islice(itertools.combinations(order, len(least)), MAX_SETS)
    return [frozenset(mask) for mask in masks if sum(free.get(node, 0) for node in mask) >= want], narrowest


def _fewest(want, order, amount):
    """The shortest head of `order` (largest amounts first) that holds `want`, as a set; None if all of it does not."""
    held, mask = 0, []
    for node in order:
        if held >= want:
            break
        held += amount.get(node, 0)
        mask.append(node)
    return frozenset(mask) if held >= want else None


def _judge(policy, providers):
    if not providers:
        return {"admitted": True, "nodes": [], "reason": "nothing in the shape is bound to a NUMA node"}
    preferred = [masks for _what, (masks, _narrowest) in providers]
    narrowest = [(what, mask) for what, (_masks, mask) in providers]
    spread = sorted({node for _what, mask in narrowest for node in mask or () if node is not None})
    agreed = [mask for mask in preferred[0] if all(mask in masks for masks in preferred[1:])]
    best = min(agreed, key=_narrow) if agreed else None
    nodes = sorted(node for node in best if node is not None) if best else spread
    needs = "; ".join(
        "not enough %s on known nodes" % what
        if mask is None
        else "%s need %d node%s" % (what, len(mask), "s"[len(mask) == 1 :])
        for what, mask in narrowest
    )
    if policy == "none":
        return {"admitted": True, "nodes": [], "reason": "not aligned: the policy looks at no node"}
    if policy == "best-effort":
        return {
            "admitted": True,
            "nodes": nodes,
            "reason": "aligned" if best else "admitted without alignment: " + needs,
        }
    if policy == "restricted":
        return {
            "admitted": bool(best),
            "nodes": nodes if best else [],
            "reason": "aligned" if best else "TopologyAffinityError: no set of nodes that all prefer (%s)" % needs,
        }
    one = bool(best) and len(best) == 1
    return {
        "admitted": one,
        "nodes": nodes if one else [],
        "reason": "aligned" if one else "TopologyAffinityError: not on one node (%s)" % needs,
    }


def _narrow(mask):
    """Sort key: fewest nodes first, then the lowest ids."""
    return len(mask), sorted(-1 if node is None else node for node in mask)
