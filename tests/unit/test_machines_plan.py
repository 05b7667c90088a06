# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every captured machine, planned by every policy; the invariants are held against the independent ground truth of the captures' index."""

from __future__ import annotations

import json

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.configured import observe
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan


@pytest.fixture(scope="module")
def machines(shared):
    """name → (ground truth, topology, observed) of every captured machine."""
    found = {}
    for entry in json.loads((shared / "machines" / "index.json").read_text()):
        tree = Tree(str(shared / "machines" / (entry["name"] + ".tar.xz")))
        topology = discover(tree)
        found[entry["name"]] = (entry["ground_truth"], topology, observe(tree, topology["kernel"]["release"]))
    return found


def hold(name, truth, plan):
    """The invariants, from the ground truth alone."""
    online = set(cpulist.expand(truth["online"]))
    reserved, isolated, irq = (set(cpulist.expand(plan[key])) for key in ("reserved", "isolated", "irq"))
    assert reserved and isolated and not reserved & isolated and reserved | isolated == online, name
    assert irq == reserved, name
    assert min(online) in reserved, name
    for siblings in truth["siblings"]:
        cpus = set(cpulist.expand(siblings))
        assert cpus <= reserved or not cpus & reserved, (name, siblings)
    nodes = {int(node): set(cpulist.expand(cpus)) & online for node, cpus in truth["numa"].items()}
    for nic in plan["nics"]:
        assert set(nic["queue_cpus"] + nic["ceq_cpus"]) <= irq, name
        local = nodes.get(nic["numa_node"], set()) & irq
        if local:
            assert set(nic["queue_cpus"]) <= local, (name, nic)


def test_default_policy(machines):
    planned = 0
    for name, (truth, topology, observed) in machines.items():
        if truth["siblings"] is None:
            with pytest.raises(HostprepError) as caught:
                make_plan(topology, {}, observed=observed)
            assert caught.value.code == "smt_unknown", name
            continue
        plan = make_plan(topology, {}, observed=observed)
        hold(name, truth, plan)
        planned += 1
        online = set(cpulist.expand(truth["online"]))
        for node, cpus in truth["numa"].items():
            cores = [
                set(cpulist.expand(siblings))
                for siblings in truth["siblings"]
                if set(cpulist.expand(siblings)) & set(cpulist.expand(cpus)) & online
            ]
            got = sum(1 for core in cores if core <= set(cpulist.expand(plan["reserved"])))
            if len(cores) >= 2:
                assert 1 <= got <= max(1, len(cores) // 2), (name, node)
    assert planned == len(machines) - 1


@pytest.mark.parametrize("strategy", ["pack", "spread"])
def test_every_count(machines, strategy):
    """Each count from 1 to online-1: exact where whole cores with the boot core sum to it, else refused with the neighbours named."""
    plans = refusals = 0
    for name, (truth, topology, _observed) in machines.items():
        if truth["siblings"] is None:
            continue
        sizes = [len(cpulist.expand(siblings)) for siblings in truth["siblings"]]
        boot = min(cpulist.expand(truth["online"]))
        start = next(
            len(cpulist.expand(siblings)) for siblings in truth["siblings"] if boot in cpulist.expand(siblings)
        )
        others = list(sizes)
        others.remove(start)
        sums = {start}
        for size in others:
            sums |= {reached + size for reached in sums}
        for count in range(1, sum(sizes)):
            policy = {"reserved_count": count, "strategy": strategy}
            if count not in sums:
                with pytest.raises(HostprepError) as caught:
                    make_plan(topology, policy)
                assert (
                    caught.value.code == "reserved_count"
                    and str(count) in caught.value.read
                    and caught.value.cure.startswith("use ")
                ), name
                refusals += 1
                continue
            plan = make_plan(topology, policy)
            hold(name, truth, plan)
            assert len(cpulist.expand(plan["reserved"])) == count, name
            plans += 1
            if strategy == "spread" and len(set(sizes)) == 1:
                _even(name, truth, plan)
    print("%s: %d plans, %d refusals" % (strategy, plans, refusals))
    assert plans > 1000 and refusals > 300


def _even(name, truth, plan):
    """No node has more than one core above another that still has cores to give."""
    online, reserved = set(cpulist.expand(truth["online"])), set(cpulist.expand(plan["reserved"]))
    width = truth["threads_per_core"]
    counts = []
    for cpus in truth["numa"].values():
        here = set(cpulist.expand(cpus)) & online
        if here:
            counts.append((len(here & reserved), len(here)))
    if sum(size for _held, size in counts) != len(online):
        return  # CPUs outside every node
    most = max(held for held, _size in counts)
    assert all(most - held <= width for held, size in counts if held < size), name
