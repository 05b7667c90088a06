# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner: tables of machines and policies, published cases of a peer, and properties over random machines."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist, kernel_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import NOTHING_OBSERVED, make_plan
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.policy import override
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.topology import complete
from hypothesis import given, settings, strategies as st
from topologies import article, irqs, topology, uniform

ARTICLE = {"reserved": "0-1,32-33", "isolated": "2-31,34-63", "irq": "0-1,32-33"}


def lists(plan):
    return {name: plan[name] for name in ("reserved", "isolated", "irq")}


def codes(plan):
    return [warning["code"] for warning in plan["warnings"]]


def refused(machine, policy):
    with pytest.raises(HostprepError) as caught:
        make_plan(machine, policy)
    error = caught.value
    assert error.read and error.allowed and error.cure, "a refusal says what was read, what is allowed and what to do"
    assert str(error).count("\n") == 0
    return error


VALIDATOR = jsonschema.Draft202012Validator(
    json.loads(
        (Path(__file__).resolve().parents[5] / "docs" / "schemas" / "plan.schema.json").read_text(encoding="utf-8")
    )
)


def valid(plan):
    """The plan as JSON readers get it, held against its schema."""
    text = json.loads(json.dumps(plan))
    VALIDATOR.validate(text)
    return text


# --- the article -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbering", "policy"),
    [
        ("alternate", {"reserved_cores_per_node": 1}),
        ("alternate", {"reserved_count": 4, "strategy": "spread"}),
        ("alternate", {"reserved_cpus": "0-1,32-33"}),
        ("alternate", {}),
        ("block", {"reserved_cpus": "0-1,32-33"}),
        ("block", {"reserved_count": 4, "strategy": "pack"}),
    ],
)
def test_article(numbering, policy):
    plan = make_plan(article(numbering), policy)
    assert lists(plan) == ARTICLE
    assert plan["kernel_args"] == ["isolcpus=managed_irq,2-31,34-63", "irqaffinity=0-1,32-33"]
    assert plan["kubelet"]["reservedSystemCPUs"] == "0-1,32-33"


@pytest.mark.parametrize(
    ("mode", "smt", "tokens"),
    [
        ("balanced", "keep", ["isolcpus=managed_irq,2-31,34-63", "irqaffinity=0-1,32-33"]),
        (
            "quiet",
            "keep",
            [
                "isolcpus=managed_irq,2-31,34-63",
                "irqaffinity=0-1,32-33",
                "nohz_full=2-31,34-63",
                "rcu_nocbs=2-31,34-63",
            ],
        ),
        ("pinned", "keep", ["isolcpus=2-31,34-63", "irqaffinity=0-1,32-33"]),
        ("balanced", "disabled", ["isolcpus=managed_irq,2-31", "irqaffinity=0-1", "nosmt"]),
    ],
)
def test_kernel_arguments(mode, smt, tokens):
    policy = {"isolation_mode": mode, "smt": smt, "reserved_cores_per_node": 1}
    plan = make_plan(article("alternate"), policy)
    assert plan["kernel_args"] == tokens
    assert ("pinned_no_balancing" in codes(plan)) == (mode == "pinned")


# --- a peer's published results ------------------------------------------------------------------------------------------------------


def _published_machine(case, data):
    spec = data["topologies"][case["topology"]]
    node_of = {cpu: int(node) for node, cpus in spec["numa"].items() for cpu in cpulist.expand(cpus)}
    siblings = spec.get("siblings") or [row[3] for row in spec["rows"]]
    cores = [(cpus, node_of[cpulist.expand(cpus)[0]], node_of[cpulist.expand(cpus)[0]]) for cpus in siblings]
    return topology(cores, extra_nodes=[int(node) for node, cpus in spec["numa"].items() if not cpus])


def test_published_cases(shared):
    """Pairs of lists with nothing offlined: the same from pack and spread. Where the peer is wrong or refuses: the exact count."""
    data = json.loads((shared / "ppc" / "cases.json").read_text())
    same = exact = 0
    for case in data["cases"]:
        inputs = case["inputs"]
        policy = {
            "reserved_count": inputs["reserved_cpu_count"],
            "strategy": "spread" if inputs["split_reserved_across_numa"] else "pack",
            "smt": "disabled" if inputs["disable_ht"] else "keep",
        }
        if case["kind"] == "derived_probe":
            plan = make_plan(_published_machine(case, data), dict(policy))
            assert len(cpulist.expand(plan["reserved"])) == inputs["reserved_cpu_count"], case["id"]
            exact += 1
        elif inputs["offlined_cpu_count"] == 0 and case["expected"].get("reserved"):
            plan = make_plan(_published_machine(case, data), policy)
            assert (plan["reserved"], plan["isolated"]) == (
                case["expected"]["reserved"],
                case["expected"]["isolated"],
            ), case["id"]
            assert ("nosmt" in plan["kernel_args"]) == inputs["disable_ht"]
            same += 1
    assert same >= 9 and exact >= 13


# --- the default rule ----------------------------------------------------------------------------------------------------------------


def test_default_reserves_more_where_nics_live():
    machine = uniform(2, 16, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 1, "queues": 63}])
    plan = make_plan(machine, {})
    assert plan["reserved"] == "0,16-17,32,48-49"
    assert [entry["code"] for entry in plan["why"]] == ["boot_core", "base", "nic"]
    assert [(node["id"], node["reserved_cores"]) for node in plan["numa"]] == [(0, 1), (1, 2)]


def test_default_caps_and_skips_virtual_functions():
    many = [{"pci": "0000:ca:00.%d" % function, "name": "p%d" % function, "node": 1} for function in range(8)]
    virtual = [
        {"pci": "0000:cb:00.%d" % function, "name": "v%d" % function, "node": 0, "function": "vf"}
        for function in range(8)
    ]
    plan = make_plan(uniform(2, 16, nics=many + virtual), {})
    assert [(node["id"], node["reserved_cores"]) for node in plan["numa"]] == [(0, 1), (1, 3)]


def test_declared_speed_decides_the_cores():
    machine = uniform(2, 16, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 1}])
    plan = make_plan(machine, {"declared_gbps": {"ens1": 400}})
    assert [(node["id"], node["reserved_cores"], node["gbps"], node["gbps_per_core"]) for node in plan["numa"]] == [
        (0, 1, None, None),
        (1, 4, 400.0, 100.0),
    ]
    assert "gbps_per_core" not in codes(plan)
    assert refused(machine, {"declared_gbps": {"ens9": 400}}).code == "nic_unknown"


@pytest.mark.parametrize(
    "change",
    [
        {"carrier": False},
        {"carrier": True},
        {"speed_mbps": 10},
        {"speed_mbps": 400000},
        {"up": False},
        {"up": None},
        {"rx_queues": 1},
        {"vfs": ["0000:ca:00.2"]},
        {"operstate": "down"},
    ],
)
def test_lists_do_not_depend_on_links(change):
    base = {"pci": "0000:ca:00.0", "name": "ens1", "node": 1, "queues": 63}
    assert lists(make_plan(uniform(2, 16, nics=[dict(base, **change)]), {})) == lists(
        make_plan(uniform(2, 16, nics=[base]), {})
    )


def test_memory_only_nodes_count_for_nothing():
    plan = make_plan(uniform(2, 16, extra_nodes=[2, 3]), {"reserved_cores_per_node": 2})
    assert plan["reserved"] == "0-1,16-17,32-33,48-49"
    assert [node["id"] for node in plan["numa"]] == [0, 1, 2, 3]


def test_whole_llc_domains_are_preferred():
    machine = uniform(1, 32, cores_per_llc=8)
    assert make_plan(machine, {"reserved_cores_per_node": 8})["reserved"] == "0-7,32-39"
    assert make_plan(machine, {"reserved_cores_per_node": 10})["reserved"] == "0-9,32-41"
    odd = [("%d" % cpu, 0, 0, {"llc": [0, 0, 0, 0, 1, 1, 2, 2, 2][cpu]}) for cpu in range(9)]
    assert (
        make_plan(topology(odd), {"reserved_cores_per_node": 6})["reserved"] == "0-5"
    )  # the domain of two is taken whole, that of three left whole
    assert make_plan(topology(odd), {"reserved_cores_per_node": 7})["reserved"] == "0-3,6-8"


def test_efficient_cores_first_on_hybrids():
    hybrid = [("%d,%d" % (cpu, cpu + 1), 0, 0, {"type": "P"}) for cpu in range(0, 12, 2)] + [
        (str(cpu), 0, 0, {"type": "E"}) for cpu in range(12, 20)
    ]
    assert make_plan(topology(hybrid), {"reserved_cores_per_node": 3})["reserved"] == "0-1,12-13"
    arm = [(str(cpu), None, 0, {"capacity": [1024, 512, 512, 128, 128, 1024][cpu]}) for cpu in range(6)]
    assert make_plan(topology(arm), {"reserved_cores_per_node": 3})["reserved"] == "0,3-4"


@pytest.mark.parametrize(
    ("count", "strategy", "reserved"),
    [(3, "pack", "0-1,12"), (17, "pack", "0-15,16"), (18, "pack", "0-17"), (4, "spread", "0-3")],
)
def test_counts_over_cores_of_two_sizes(count, strategy, reserved):
    cores = 8 if count > 4 else 6
    hybrid = [("%d,%d" % (cpu, cpu + 1), 0, 0) for cpu in range(0, 2 * cores, 2)] + [
        (str(cpu), 0, 0) for cpu in range(2 * cores, 2 * cores + 8)
    ]
    assert make_plan(topology(hybrid), {"reserved_count": count, "strategy": strategy})["reserved"] == cpulist.compress(
        reserved
    )


# --- queues --------------------------------------------------------------------------------------------------------------------------


def test_queue_map_uses_first_threads_then_siblings_of_the_own_node():
    nics = [
        {"pci": "0000:ca:00.%d" % index, "name": "ens%d" % index, "node": 1, "queues": queues}
        for index, queues in enumerate((63, 2, 2))
    ]
    plan = make_plan(uniform(2, 16, nics=nics), {"reserved_cores_per_node": 2})
    assert [nic["queue_cpus"] for nic in plan["nics"]] == [[16, 17, 48, 49], [17, 16], [48, 49]]
    assert [nic["queues"] for nic in plan["nics"]] == [4, 2, 2]
    assert all(nic["other_cpus"] == "16-17,48-49" for nic in plan["nics"])


def test_rdma_completion_vectors_use_the_same_node():
    machine = uniform(2, 16, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 1, "driver": "ice"}])
    machine["irqs"] = irqs(machine["nics"][0], 8) + irqs(machine["nics"][0], 8, "ceq", 200)
    nic = make_plan(machine, {"reserved_cores_per_node": 2})["nics"][0]
    assert (nic["queues"], nic["queues_now"], nic["ceqs"]) == (4, 8, 8)
    assert set(nic["queue_cpus"]) == set(nic["ceq_cpus"]) == {16, 17, 48, 49}


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ({"channels": {"combined": 6, "combined_max": 63}, "rx_queues": 8}, 6),
        ({"channels": {"combined": 0, "rx": 5, "rx_max": 8}, "rx_queues": 8}, 5),
        ({"rx_queues": 4}, 4),
        ({"rx_queues": None}, 8),
    ],
)
def test_queue_count_now(given, now):
    machine = uniform(2, 16, nics=[dict({"pci": "0000:ca:00.0", "name": "ens1", "node": 1}, **given)])
    machine["irqs"] = irqs(machine["nics"][0], 8)
    assert make_plan(machine, {"reserved_cores_per_node": 1})["nics"][0]["queues_now"] == now


def test_nic_without_local_housekeeping_is_told_and_never_isolated():
    machine = uniform(
        3, 8, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 2, "queues": 8}], distances={(2, 0): 31, (2, 1): 21}
    )
    plan = make_plan(machine, {"reserved_cores_by_node": {0: 1, 1: 1}})
    assert plan["nics"][0]["queue_cpus"] == [8, 32]  # node 1 is nearer than node 0
    warning = next(warning for warning in plan["warnings"] if warning["code"] == "nic_without_local_housekeeping")
    assert "distance 21 instead of 10" in warning["message"] and "node 2 among its nodes" in warning["cure"]


def test_nics_of_one_node_share_a_warning():
    nics = [{"pci": "0000:ca:00.%d" % port, "name": "ens%d" % port, "node": 1} for port in range(3)]
    plan = make_plan(uniform(2, 8, nics=nics), {"reserved_count": 2, "strategy": "pack"})
    assert codes(plan) == ["nic_without_local_housekeeping"] and "ens0, ens1, ens2" in plan["warnings"][0]["message"]


def test_housekeeping_outside_every_node_serves_all():
    nic = {"pci": "0000:ca:00.0", "name": "ens1", "node": 0}
    stray = topology([("0", 0, 0), ("1", None, 0), ("2", 0, 0)], nics=[nic])
    plan = make_plan(stray, {"reserved_cpus": "1"})
    assert plan["nics"][0]["queue_cpus"] == [1] and "nic_node_unknown" in codes(plan)
    boots = topology([("0", None, 0), ("1", 0, 0), ("2", 0, 0)], nics=[nic])
    plan = make_plan(boots, {"reserved_cpus": "0"})
    assert plan["nics"][0]["queue_cpus"] == [0] and "crosses to CPUs of no node" in plan["warnings"][0]["message"]


def test_unknown_node_uses_every_housekeeping_cpu():
    plan = make_plan(
        uniform(2, 8, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "queues": 8}]), {"reserved_cores_per_node": 1}
    )
    assert plan["nics"][0]["queue_cpus"] == [0, 8, 16, 24]
    assert "nic_node_unknown" in codes(plan)
    single = make_plan(uniform(1, 8, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "queues": 8}]), {})
    assert "nic_node_unknown" not in codes(single)


def test_speed_per_core_and_queue_with_a_warning():
    nics = [{"pci": "0000:ca:00.0", "name": "ens1", "node": 1, "queues": 63, "speed_mbps": 400000}]
    plan = make_plan(uniform(2, 16, nics=nics), {"reserved_cores_per_node": 1})
    assert (plan["nics"][0]["gbps_per_queue"], plan["numa"][1]["gbps_per_core"]) == (200.0, 400.0)
    assert "gbps_per_core" in codes(plan)
    assert "gbps_per_core" not in codes(make_plan(uniform(2, 16, nics=nics), {"reserved_cores_per_node": 4}))


def test_bond_stands_for_its_members_on_one_node_only():
    nics = [
        {"pci": "0000:ca:00.0", "name": "ens1", "node": 1, "queues": 4},
        {"pci": "0000:ca:00.1", "name": "ens2", "node": 1, "queues": 4},
        {"pci": "0000:1a:00.0", "name": "ens3", "node": 0, "queues": 4},
    ]
    machine = uniform(2, 16, nics=nics)
    bond = {
        "name": "bond0",
        "kind": "bond",
        "lower": ["ens1", "ens2"],
        "nics": ["ens1", "ens2"],
        "up": True,
        "carrier": True,
        "default_route": None,
    }
    machine["netdevs"] = [
        bond,
        dict(bond, name="bond1", nics=["ens1", "ens3"]),
        dict(bond, name="dummy0", kind="virtual", nics=[]),
    ]
    assert [nic["name"] for nic in make_plan(machine, {"nics": ["bond0"]})["nics"]] == ["ens1", "ens2"]
    spans = refused(machine, {"nics": ["bond1"]})
    assert spans.code == "nic_spans_nodes" and "ens1 on node 1" in spans.read and "ens3 on node 0" in spans.read
    assert refused(machine, {"nics": ["dummy0"]}).code == "nic_not_physical"
    assert refused(machine, {"nics": ["eth9; reboot"]}).code == "nic_unknown"
    assert [nic["name"] for nic in make_plan(machine, {"nics": ["0000:1A:00.0"]})["nics"]] == ["ens3"]


# --- vector budget -------------------------------------------------------------------------------------------------------------------


def test_vector_budget_counts_every_unmanaged_vector():
    machine = uniform(
        2,
        28,
        nics=[{"pci": "0000:4b:00.%d" % port, "name": "ens%d" % port, "node": 0, "driver": "ice"} for port in range(4)],
    )
    for port, entry in enumerate(machine["nics"]):
        machine["irqs"] += irqs(entry, 112, "queue", 1000 + 1000 * port) + irqs(entry, 112, "ceq", 1500 + 1000 * port)
    nvme = dict(machine["irqs"][0], device="0000:01:00.0", managed=True, affinity=None)
    machine["irqs"] += [dict(nvme, irq=9000 + index) for index in range(113)]
    plan = make_plan(machine, {"reserved_count": 4, "strategy": "pack"})
    budget = plan["vector_budget"]
    assert (budget["unmanaged_now"], budget["managed"], budget["capacity"]) == (896, 113, 4 * (203 - 2))
    assert (budget["fits_now"], budget["unmanaged_planned"], budget["fits_planned"]) == (False, 896 - 4 * 108, True)
    assert (budget["queues_that_fit"], budget["ceqs_that_fit"], budget["housekeeping_that_would"]) == (100, 100, 6)
    warning = next(warning for warning in plan["warnings"] if warning["code"] == "vector_budget")
    assert "100 queues" in warning["cure"] and "6 CPUs" in warning["cure"]
    assert "vector_budget" not in codes(make_plan(machine, {"reserved_count": 8, "strategy": "pack"}))


def test_vector_budget_knows_masks_drivers_and_architectures():
    machine = uniform(2, 4, nics=[{"pci": "0000:4b:00.0", "name": "ens1", "node": 0}])
    machine["irqs"] = irqs(machine["nics"][0], 500)
    budget = make_plan(machine, {"reserved_cores_per_node": 1})["vector_budget"]
    assert budget["unmanaged_planned"] == 500  # mlx5 keeps the vectors of queues that are switched off
    managed = [
        dict(machine["irqs"][0], irq=5000 + cpu, managed=True, affinity=str(cpu), device="0000:01:00.0")
        for cpu in range(16)
    ]
    machine["irqs"] += managed
    assert make_plan(machine, {"reserved_cores_per_node": 1})["vector_budget"]["capacity"] == budget["capacity"] - 4
    machine["arch"] = "aarch64"
    budget = make_plan(machine, {"reserved_cores_per_node": 1})["vector_budget"]
    assert not budget["judged"] and "aarch64" in budget["why"] and budget["capacity"] is None


def test_nothing_to_pin_is_told():
    assert "no_nic_planned" in codes(make_plan(uniform(2, 4), {}))
    down = make_plan(uniform(2, 4, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 1, "up": False}]), {})
    assert down["nics"] == [] and "ens1" in next(w["read"] for w in down["warnings"] if w["code"] == "no_nic_planned")


# --- refusals --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"reserved_cpus": "0-1,32-33,64"}, "reserved_out_of_range"),
        ({"reserved_cpus": ""}, "policy_reserved_cpus"),
        ({"reserved_cpus": "0-63"}, "reserved_everything"),
        ({"reserved_cpus": "0-1"}, "reserved_splits_siblings"),
        ({"reserved_cpus": "0,32,33"}, "reserved_splits_siblings"),
        ({"reserved_cpus": "0-1,x"}, "policy_reserved_cpus"),
        ({"reserved_cpus": "1,33", "isolation_mode": "quiet"}, "boot_cpu_isolated"),
        ({"reserved_cpus": "1,33", "isolation_mode": "pinned"}, "boot_cpu_isolated"),
        ({"reserved_count": 3}, "reserved_count"),
        ({"reserved_count": 64}, "reserved_count"),
        ({"reserved_count": 1}, "reserved_count"),
        ({"reserved_count": 0}, "policy_reserved_count"),
        ({"reserved_count": True}, "policy_reserved_count"),
        ({"reserved_cores_per_node": 16}, "reserved_cores_per_node"),
        ({"reserved_cores_per_node": 17}, "reserved_cores_per_node"),
        ({"reserved_cores_by_node": {7: 1}}, "reserved_cores_node"),
        ({"reserved_cores_by_node": {}}, "policy_reserved_cores_by_node"),
        ({"reserved_cores_by_node": {"a": 1}}, "policy_reserved_cores_by_node"),
        ({"reserved_count": 4, "reserved_cpus": "0,32"}, "policy_conflict"),
        ({"strategy": "pack"}, "policy_conflict"),
        ({"strategy": "pack", "reserved_cores_per_node": 1}, "policy_conflict"),
        ({"reserved_count": 4, "strategy": "wide"}, "policy_strategy"),
        ({"isolation_mode": "loud"}, "policy_isolation_mode"),
        ({"smt": False}, "policy_smt"),
        ({"smt": "off"}, "policy_smt"),
        ({"offline": "maybe"}, "policy_offline"),
        ({"reserved_cpu": "0"}, "policy_unknown"),
        ({"irq_cpus": "2"}, "irq_outside_reserved"),
        ({"irq_cpus": ""}, "policy_irq_cpus"),
        ({"nics": "ens1"}, "policy_nics"),
        ({"nics": []}, "policy_nics"),
        ({"nics": [""]}, "policy_nics"),
        ({"nics": ["ens1"]}, "nic_unknown"),
        ({"pod_shapes": [{"gpus": 1}]}, "policy_pod_shapes"),
        ({"pod_shapes": [{"cpus": "many"}]}, "policy_pod_shapes"),
        ({"pod_shapes": [{"cpus": 1, "gpu": 1}]}, "policy_pod_shapes"),
        ({"gbps_per_core": 0}, "policy_gbps_per_core"),
        ({"topology_manager_policy": "strict"}, "policy_topology_manager_policy"),
    ],
)
def test_refused(policy, code):
    assert refused(article("alternate"), policy).code == code


def test_boot_cpu_may_be_isolated_in_balanced_with_a_warning():
    plan = make_plan(article("alternate"), {"reserved_cpus": "1,33"})
    assert plan["reserved"] == "1,33" and "boot_cpu_isolated" in codes(plan)


def test_refusal_of_a_count_names_the_next_ones():
    error = refused(article("alternate"), {"reserved_count": 5})
    assert "2 to 62 in steps of 2" in error.allowed and error.cure == "use 4 or 6"


def test_unknown_siblings():
    machine = article("block")
    machine["cpus"].update(siblings=None, cores=[])
    assert refused(machine, {}).code == "smt_unknown"
    assert make_plan(machine, {"assume_no_smt": True, "reserved_count": 3})["reserved"] == "0-1,16"
    machine["cpus"]["online"] = None
    assert refused(machine, {}).code == "online_unknown"


def test_cpus_that_two_nodes_list_belong_to_none():
    machine = uniform(2, 4)
    machine["cpus"]["cores"] = []  # as a caller gives it: siblings and nodes only
    machine["numa_nodes"][1]["cpus"] = machine["numa_nodes"][0]["cpus"]
    plan = make_plan(machine, {})
    assert plan["reserved"] == "0,8" and {entry["node"] for entry in plan["why"]} == {None}


def test_single_core():
    assert refused(topology([("0-1", 0, 0)]), {}).code == "too_few_cores"


def test_offline_cpus():
    machine = topology([(str(cpu), 0, 0) for cpu in range(4)], present="0-5", offline="4-5")
    plan = make_plan(machine, {})
    assert plan["online_after_boot"] == "0-3" and "cpus_offline" in codes(plan)
    assert refused(machine, {"reserved_cpus": "0,4"}).code == "reserved_out_of_range"
    back = make_plan(machine, {"offline": "returns"})
    assert (back["reserved"], back["isolated"], codes(back)) == ("0", "1-5", ["no_nic_planned"])
    boots = topology(
        [(str(cpu), cpu % 2, 0) for cpu in range(2, 8)], present="0-7", offline="0-1", smt_control="notsupported"
    )
    assert (
        make_plan(boots, {"offline": "returns"})["reserved"] == "0,2-3"
    )  # CPU 0 boots, its node unknown, and each node has its core
    assert make_plan(boots, {"offline": "returns", "reserved_cores_per_node": 2})["reserved"] == "0,2-5"
    assert make_plan(boots, {"offline": "returns", "reserved_cores_by_node": {1: 1}})["reserved"] == "0,3"
    assert make_plan(boots, {"offline": "returns", "reserved_count": 7, "strategy": "pack"})["isolated"] == "7"
    machine["cpus"]["smt_control"] = "on"
    assert refused(machine, {"offline": "returns"}).code == "offline_siblings_unknown"
    assert "policy says offline: keep" in make_plan(machine, {"offline": "keep"})["warnings"][0]["cure"]


def test_boot_cpu_is_the_lowest_online_one():
    machine = topology([(str(cpu), cpu % 2, 0) for cpu in range(5, 13)], present="0-12", offline="0-4")
    plan = make_plan(machine, {"reserved_count": 1, "strategy": "pack"})
    assert (plan["boot_cpu"], plan["reserved"]) == (5, "5")


def test_the_kubelet_takes_any_part_of_the_online_cpus():
    """It compares with the set of online CPUs, not with their number (kubernetes cmd/kubelet/app/server.go, getReservedCPUs)."""
    high = make_plan(topology([(str(cpu), 0, 0) for cpu in (40, 41, 42, 43)]), {})
    assert high["reserved"] == "40" and "kubelet_refuses_reserved" not in codes(high)
    boots = topology(
        [(str(cpu), 0, 0) for cpu in range(2, 8)], present="0-7", offline="0-1", smt_control="notsupported"
    )
    plan = make_plan(boots, {"offline": "returns"})
    (warning,) = [entry for entry in plan["warnings"] if entry["code"] == "kubelet_refuses_reserved"]
    assert warning["read"] == "reserved 0,2, of which 0 are offline"
    assert "kubelet_refuses_reserved" not in codes(make_plan(boots, {"offline": "keep"}))


# --- kept plan, differences, transition ----------------------------------------------------------------------------------------------


def observed(**parts):
    return dict(NOTHING_OBSERVED, **parts)


def test_a_kept_plan_stands_while_it_satisfies_the_policy():
    machine = uniform(2, 16)
    kept = make_plan(machine, {"reserved_cpus": "0,17,32,49"})
    seen = observed(kept_plan={"path": "/plan.json", "plan": kept, "problem": None})
    plan = make_plan(machine, {"reserved_cores_per_node": 1}, observed=seen)
    assert plan["reserved"] == "0,17,32,49" and "better_plan" in codes(plan)
    assert make_plan(machine, {"reserved_cores_per_node": 2}, observed=seen)["reserved"] == "0-1,16-17,32-33,48-49"
    assert make_plan(machine, {"reserved_cpus": "0-1,32-33"}, observed=seen)["reserved"] == "0-1,32-33"
    for broken in (
        {},
        {"reserved": 5},
        {"reserved": "0,17"},
        {"reserved": "x"},
        {"reserved": "16-17,48-49"},
        {"reserved": "0,32,99"},
    ):
        seen["kept_plan"]["plan"] = broken
        assert make_plan(machine, {"reserved_cores_per_node": 1}, observed=seen)["reserved"] == "0,16,32,48"


def test_a_damaged_kept_plan_is_told():
    plan = make_plan(
        uniform(2, 4),
        {},
        observed=observed(kept_plan={"path": "/plan.json", "plan": None, "problem": "plan.json is not JSON"}),
    )
    assert "kept_plan_unreadable" in codes(plan)


def rows(plan):
    return {row["what"]: row for row in plan["differences"]}


def test_prepared_host_differs_in_nothing():
    machine = article("alternate")
    machine["kernel"]["args"] = ["quiet", "irqaffinity=0,1,32,33", "isolcpus=managed_irq,2-31,34-63"]
    machine["default_smp_affinity"] = "0-1,32-33"
    state = {"policyName": "static", "defaultCpuSet": "0-63", "entries": {}}
    plan = make_plan(
        machine,
        {},
        observed=observed(
            boot_args={
                "source": "etc/default/grub",
                "tokens": ["isolcpus=managed_irq,2-31,34-63", "irqaffinity=0-1,32-33"],
            },
            kubelet_reserved={"source": "etc/rancher/rke2/config.yaml", "value": "0,1,32,33"},
            cpu_manager_state={"path": "/s", "state": state, "problem": None},
        ),
    )
    assert {row["verdict"] for row in plan["differences"]} == {"same"}
    assert plan["transition"] == {"reboot": False, "drain": False, "kubelet_state_files": [], "reasons": []}


def test_untouched_host_needs_reboot_and_state_transition():
    machine = article("alternate")
    machine["kernel"]["args"] = ["quiet", "isolcpus=4-7"]
    state = {"policyName": "none", "defaultCpuSet": "", "entries": {}}
    plan = make_plan(
        machine,
        {},
        observed=observed(
            cpu_manager_state={"path": "/var/lib/kubelet/cpu_manager_state", "state": state, "problem": None}
        ),
    )
    assert rows(plan)["isolcpus"] == {
        "what": "isolcpus",
        "planned": "managed_irq,2-31,34-63",
        "configured": None,
        "live": "4-7",
        "verdict": "differs",
        "note": None,
    }
    assert plan["transition"]["reboot"] and plan["transition"]["drain"]
    assert plan["transition"]["kubelet_state_files"] == ["/var/lib/kubelet/cpu_manager_state"]
    assert [reason["code"] for reason in plan["transition"]["reasons"]] == ["kernel_args", "kubelet_state"]
    leftover = dict(
        machine,
        kernel=dict(
            machine["kernel"], args=["isolcpus=managed_irq,2-31,34-63", "irqaffinity=0-1,32-33", "nohz_full=2-31"]
        ),
    )
    assert rows(make_plan(leftover, {}))["nohz_full"]["verdict"] == "differs"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"policyName": "static", "defaultCpuSet": "0-31", "entries": {}}, "doesn't match"),
        ({"policyName": "none"}, "differs from state checkpoint"),
        ({"policyName": "static", "defaultCpuSet": "2-63", "entries": {"p": {"c": "0-1"}}}, "not all reserved cpus"),
        ({"policyName": "static", "defaultCpuSet": 5}, "not one that the kubelet wrote"),
        ({"policyName": "static", "defaultCpuSet": "x"}, "not one that the kubelet wrote"),
        ({"policyName": "static", "entries": 5}, "not one that the kubelet wrote"),
    ],
)
def test_kubelet_state_refused(state, words):
    plan = make_plan(
        article("alternate"), {}, observed=observed(cpu_manager_state={"path": "/s", "state": state, "problem": None})
    )
    assert any(words in reason["read"] for reason in plan["transition"]["reasons"])


def test_vectors_on_isolated_cpus_are_counted():
    machine = uniform(2, 8, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 1}])
    machine["irqs"] = (
        irqs(machine["nics"][0], 6, affinity="8")
        + irqs(machine["nics"][0], 4, start=200, affinity="0-31")
        + irqs(machine["nics"][0], 2, start=300)
    )
    row = rows(make_plan(machine, {}))["ens1 vectors on isolated CPUs"]
    assert (row["planned"], row["live"], row["verdict"], row["note"]) == (
        "0",
        "4",
        "differs",
        "of 12 unmanaged vectors, 10 with known affinity",
    )


# --- admission forecast --------------------------------------------------------------------------------------------------------------


def verdicts(machine, shape, policy=None):
    plan = make_plan(machine, dict({"pod_shapes": [shape], "reserved_cores_per_node": 1}, **(policy or {})))
    return {name: verdict["admitted"] for name, verdict in plan["kubelet"]["admission"][0]["policies"].items()}, plan


GPUS = [{"pci": "0000:%02x:00.0" % bus, "node": bus // 2} for bus in range(4)]


@pytest.mark.parametrize(
    ("shape", "admitted"),
    [
        ({"cpus": 24, "gpus": 4}, ["none", "best-effort"]),  # CPUs want one node, GPUs two: no common preference
        ({"cpus": 48, "gpus": 4}, ["none", "best-effort", "restricted"]),  # both want two
        ({"cpus": 24, "gpus": 2}, ["none", "best-effort", "restricted", "single-numa-node"]),
        (
            {"cpus": 32, "gpus": 1},
            ["none", "best-effort"],
        ),  # 32 CPUs are a whole node by size, but two of them are reserved
        ({"cpus": 0.5, "gpus": 1}, ["none", "best-effort", "restricted", "single-numa-node"]),
        ({"cpus": 7, "gpus": 1}, []),
        ({"cpus": 62}, []),
        ({"cpus": 8, "gpus": 5}, []),
        ({"cpus": 8, "memory_mib": 200000}, []),
    ],
)
def test_admission(shape, admitted):
    got, _plan = verdicts(uniform(2, 16, gpus=GPUS), shape)
    assert [name for name, yes in got.items() if yes] == admitted


def test_admission_policy_follows_the_shapes():
    machine = uniform(2, 16, gpus=GPUS)
    assert verdicts(machine, {"cpus": 24, "gpus": 2})[1]["kubelet"]["topologyManagerPolicy"] == "single-numa-node"
    assert verdicts(machine, {"cpus": 24, "gpus": 4})[1]["kubelet"]["topologyManagerPolicy"] == "best-effort"
    plan = verdicts(machine, {"cpus": 24, "gpus": 4}, {"topology_manager_policy": "single-numa-node"})[1]
    assert "shape_not_admitted" in codes(plan)
    assert (
        verdicts(uniform(12, 2), {"cpus": 2})[1]["kubelet"]["topologyManagerPolicyOptions"]["max-allowable-numa-nodes"]
        == "12"
    )


def test_admission_scales_past_eight_nodes():
    got, _plan = verdicts(uniform(32, 4), {"cpus": 12})
    assert got["best-effort"]


# --- what-if -------------------------------------------------------------------------------------------------------------------------


def test_what_if_side_by_side():
    machine = uniform(
        2, 16, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 1, "queues": 8, "speed_mbps": 400000}], gpus=GPUS
    )
    plan = make_plan(
        machine,
        {"pod_shapes": [{"name": "two", "cpus": 28, "gpus": 2}]},
        what_if=[
            {"label": "four a node", "reserved_cores_per_node": 4},
            {"reserved_count": 3},
            {"isolation_mode": "quiet"},
        ],
    )
    assert [entry["label"] for entry in plan["what_if"]] == [
        "as planned",
        "four a node",
        "reserved_count 3",
        "isolation_mode quiet",
    ]
    assert [entry["isolated_lost"] for entry in plan["what_if"]] == [0, 10, None, 0]
    assert plan["what_if"][1]["gbps_per_core"] == {"1": 100.0} and plan["what_if"][1]["queues"] == {"ens1": 8}
    assert (
        "single-numa-node" in plan["what_if"][0]["shapes_admitted"]["two"]
        and "single-numa-node" not in plan["what_if"][1]["shapes_admitted"]["two"]
    )
    assert "no set of whole cores" in plan["what_if"][2]["error"]
    valid(plan)


# --- properties ----------------------------------------------------------------------------------------------------------------------


@st.composite
def machines(draw):
    """Random machines: nodes with gaps in their ids, cores of one to four threads, scattered CPU ids, LLCs, hybrids, NICs anywhere."""
    node_ids = draw(st.lists(st.integers(0, 40), min_size=1, max_size=6, unique=True))
    homes = node_ids + [None] if draw(st.booleans()) else node_ids  # None: CPUs outside every node
    sizes = draw(st.lists(st.tuples(st.sampled_from(homes), st.sampled_from([1, 2, 2, 4])), min_size=2, max_size=24))
    total = sum(size for _home, size in sizes)
    ids = draw(st.permutations(range(total))) if draw(st.booleans()) else list(range(total))
    gap = draw(st.integers(1, 3))
    rows, at = [], 0
    for node, size in sizes:
        rows.append(
            (
                ",".join(str(cpu * gap) for cpu in ids[at : at + size]),
                node,
                draw(st.integers(0, 1)),
                {"llc": draw(st.integers(0, 3)), "type": draw(st.sampled_from([None, None, "P", "E"]))},
            )
        )
        at += size
    nics = [
        {
            "pci": "0000:%02x:00.0" % bus,
            "name": "eth%d" % bus,
            "node": draw(st.sampled_from(node_ids + [None, 63])),
            "queues": draw(st.sampled_from([None, 1, 3, 64])),
            "speed_mbps": draw(st.sampled_from([None, 100000, 400000])),
            "up": draw(st.sampled_from([True, False, None])),
        }
        for bus in range(draw(st.integers(0, 4)))
    ]
    return topology(rows, nics=nics, extra_nodes=[63] if draw(st.booleans()) else [])


POLICIES = st.one_of(
    st.just({}),
    st.builds(lambda cores: {"reserved_cores_per_node": cores}, st.integers(1, 5)),
    st.builds(
        lambda count, strategy: {"reserved_count": count, "strategy": strategy},
        st.integers(1, 96),
        st.sampled_from(["pack", "spread"]),
    ),
)


@settings(max_examples=300, deadline=None)
@given(machines(), POLICIES, st.sampled_from(["balanced", "quiet", "pinned"]), st.sampled_from(["keep", "disabled"]))
def test_invariants(machine, policy, mode, smt):
    policy = dict(policy, isolation_mode=mode, smt=smt)
    try:
        plan = make_plan(machine, policy)
    except HostprepError as error:
        assert error.code in ("reserved_count", "reserved_cores_per_node")
        return
    reserved, isolated, irq = (set(cpulist.expand(plan[name])) for name in ("reserved", "isolated", "irq"))
    online = set(cpulist.expand(plan["online_after_boot"]))
    assert reserved and isolated and not reserved & isolated and reserved | isolated == online and irq <= reserved
    assert min(online) in reserved
    for core in machine["cpus"]["cores"]:
        cpus = set(cpulist.expand(core["cpus"])) & online
        assert cpus <= reserved or not cpus & reserved
    if smt == "disabled":
        assert len(online) == len(machine["cpus"]["cores"])
    if "reserved_count" in policy:
        assert len(reserved) == policy["reserved_count"]
    if "reserved_cores_per_node" in policy:
        nodes = [node for node in plan["numa"] if node["cores"]]
        known = [node for node in nodes if node["id"] is not None] or nodes  # the boot core's node can be unknown
        assert {node["reserved_cores"] for node in known} == {policy["reserved_cores_per_node"]}
    node_of = {cpu: core["node"] for core in machine["cpus"]["cores"] for cpu in cpulist.expand(core["cpus"])}
    for nic in plan["nics"]:
        assert nic["queues"] == len(nic["queue_cpus"]) == len(set(nic["queue_cpus"])) >= 1
        assert set(nic["queue_cpus"]) <= irq
        if nic["numa_node"] is not None and any(node_of[cpu] == nic["numa_node"] for cpu in irq):
            assert {node_of[cpu] for cpu in nic["queue_cpus"]} == {nic["numa_node"]}
    assert make_plan(machine, policy) == plan
    assert valid(plan) == plan


@settings(max_examples=60, deadline=None)
@given(machines(), st.sampled_from(["pack", "spread"]))
def test_every_count_is_exact_or_refused_rightly(machine, strategy):
    sizes = sorted(len(cpulist.expand(core["cpus"])) for core in machine["cpus"]["cores"])
    boot = next(
        len(cpulist.expand(core["cpus"]))
        for core in machine["cpus"]["cores"]
        if str(machine["cpus"]["boot"]) in core["cpus"].split("-")[0].split(",")[0]
    )
    others = list(sizes)
    others.remove(boot)
    sums = {boot}
    for size in others:
        sums |= {reached + size for reached in sums}
    for count in range(1, sum(sizes)):
        try:
            plan = make_plan(machine, {"reserved_count": count, "strategy": strategy})
        except HostprepError as error:
            assert error.code == "reserved_count" and count not in sums
        else:
            assert count in sums and len(cpulist.expand(plan["reserved"])) == count


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "reserved_cpus",
                "reserved_count",
                "strategy",
                "nics",
                "smt",
                "pod_shapes",
                "isolation_mode",
                "irq_cpus",
                "declared_gbps",
                "x",
            ]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["name", "cpus", "gpus"]), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
)
def test_any_policy_is_planned_or_refused(policy):
    try:
        make_plan(article("block"), policy)
    except HostprepError as error:
        assert str(error)


@st.composite
def broken_topologies(draw):
    """A sound topology with one value somewhere replaced by any JSON."""
    topology = json.loads(json.dumps(draw(machines())))
    place = topology
    for _depth in range(draw(st.integers(1, 4))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        holder, place = place, place[key]
    anything = (
        st.none()
        | st.booleans()
        | st.integers(-2, 70000)
        | st.text(max_size=6)
        | st.sampled_from([[], {}, "0-3", ["0"], "", [None]])
    )
    holder[key] = draw(anything)
    return topology


@settings(max_examples=400, deadline=None)
@given(broken_topologies())
def test_a_broken_topology_is_planned_or_refused(topology):
    try:
        plan = make_plan(complete(topology), {})
    except HostprepError as error:
        assert str(error) and error.code != "unexpected"
    else:
        valid(plan)


# --- edges that a small slip would move ------------------------------------------------------------------------------


def reserved_by_node(plan):
    return {node["id"]: node["reserved_cores"] for node in plan["numa"]}


@pytest.mark.parametrize(("gbps", "cores"), [(100, 1), (101, 2), (250, 3), (400, 4), (10000, 8)])
def test_declared_speed_rounds_up_and_stops_at_half_the_node(gbps, cores):
    machine = uniform(2, 16, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 1}])
    plan = make_plan(machine, {"declared_gbps": {"ens1": gbps}})
    assert reserved_by_node(plan) == {0: 1, 1: cores}
    assert ("nic_cores_limited" in codes(plan)) == (gbps == 10000)


@pytest.mark.parametrize(("cores", "held"), [(2, 1), (3, 1), (4, 2), (6, 3), (12, 3)])
def test_the_default_never_takes_more_than_half_of_a_node(cores, held):
    nics = [{"pci": "0000:ca:00.%d" % port, "name": "p%d" % port, "node": 0} for port in range(4)]
    assert reserved_by_node(make_plan(uniform(1, cores, nics=nics), {})) == {0: held}


def test_a_part_comes_from_the_smallest_cache_domain_that_holds_it():
    sizes = [2, 6, 4, 5]
    llc_of = [index for index, size in enumerate(sizes) for _core in range(size)]
    cores = [(str(cpu), 0, 0, {"llc": llc}) for cpu, llc in enumerate(llc_of)]
    assert make_plan(topology(cores), {"reserved_cores_per_node": 5})["reserved"] == "0-1,8-10"


@pytest.mark.parametrize(
    ("queues", "ceqs", "queue_cpus", "ceq_cpus"), [(2, 2, [0, 1], [2, 3]), (4, 2, [0, 1, 2, 3], [0, 1])]
)
def test_completion_vectors_begin_behind_the_queues(queues, ceqs, queue_cpus, ceq_cpus):
    machine = uniform(1, 8, threads=1, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 0, "driver": "ice"}])
    machine["irqs"] = irqs(machine["nics"][0], queues) + irqs(machine["nics"][0], ceqs, "ceq", 200)
    nic = make_plan(machine, {"reserved_cores_per_node": 4})["nics"][0]
    assert (nic["queue_cpus"], nic["ceq_cpus"]) == (queue_cpus, ceq_cpus)


@pytest.mark.parametrize(("vectors", "fits"), [(20, True), (21, False)])
def test_vector_budget_at_its_edge(vectors, fits):
    machine = uniform(1, 4, threads=1, nics=[{"pci": "0000:ca:00.0", "name": "ens1", "node": 0}])
    machine["irqs"] = irqs(machine["nics"][0], vectors)
    budget = make_plan(machine, {"reserved_count": 2, "vectors_per_cpu": 10})["vector_budget"]
    assert (budget["capacity"], budget["fits_now"], budget["housekeeping_that_would"]) == (20, fits, 2 if fits else 3)


@pytest.mark.parametrize(
    ("name", "left", "right", "equal"),
    [
        ("isolcpus", "managed_irq,2-3", "managed_irq,3,2", True),
        ("isolcpus", "managed_irq,2-3", "2-3", False),
        ("isolcpus", "domain,2-3", "2-3", True),
        ("isolcpus", "managed_irq,domain,2-3", "domain,managed_irq,2-3", True),
        ("isolcpus", "managed_irq,2-N", "managed_irq,2-3", False),
        ("nohz_full", "2-3", "2,3", True),
        ("nohz_full", "2-3", "2-4", False),
        ("nosmt", "", "force", True),
        ("nosmt", "", "", True),
        ("irqaffinity", None, "0", False),
        ("irqaffinity", None, None, True),
    ],
)
def test_values_of_kernel_arguments_are_compared_by_meaning(name, left, right, equal):
    assert kernel_args.same(name, left, right) is equal


def test_an_argument_that_stands_twice_shows_both():
    found = kernel_args.owned(["isolcpus=2-3", "quiet", "isolcpus=4-5", "nosmt", 'irqaffinity="0-1"', "rcu-nocbs=2"])
    assert found == {"isolcpus": "2-3 and 4-5", "irqaffinity": "0-1", "nohz_full": None, "rcu_nocbs": "2", "nosmt": ""}


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("", []),
        (" a  b=c\n", ["a", "b=c"]),
        ('x="a b" c', ['x="a b"', "c"]),
        ('dyndbg="file x +p" y', ['dyndbg="file x +p"', "y"]),
        ('a"b c', ['a"b c']),
    ],
)
def test_a_command_line_is_split_as_the_kernel_splits_it(line, tokens):
    assert kernel_args.split(line) == tokens


def test_long_arguments_and_missing_kernel_options_are_told():
    scattered = [(str(cpu), cpu % 40, 0) for cpu in range(0, 1200, 1)]
    plan = make_plan(topology(scattered), {"reserved_cores_per_node": 1, "isolation_mode": "quiet"})
    assert ("kernel_args_long" in codes(plan)) == (sum(len(token) + 1 for token in plan["kernel_args"]) > 1024)
    odd = [(str(cpu), 0, 0, {"llc": 0 if cpu % 2 == 0 else 1}) for cpu in range(700)]
    assert "kernel_args_long" in codes(make_plan(topology(odd), {"reserved_cores_per_node": 350}))
    machine = uniform(2, 4)
    machine["kernel"]["config"] = {"CONFIG_CPU_ISOLATION": "n", "CONFIG_NO_HZ_FULL": "n", "CONFIG_RCU_NOCB_CPU": "y"}
    assert codes(make_plan(machine, {})).count("kernel_option_missing") == 1
    assert codes(make_plan(machine, {"isolation_mode": "quiet"})).count("kernel_option_missing") == 2


def test_closest_nodes_are_preferred_only_where_there_are_several():
    assert make_plan(uniform(1, 4), {})["kubelet"]["topologyManagerPolicyOptions"] == {}
    assert make_plan(uniform(2, 4), {})["kubelet"]["topologyManagerPolicyOptions"] == {
        "prefer-closest-numa-nodes": "true"
    }
    assert (
        make_plan(uniform(2, 4), {"topology_manager_policy": "none"})["kubelet"]["topologyManagerPolicyOptions"] == {}
    )


def test_what_if_replaces_the_way_of_reserving():
    plan = make_plan(
        uniform(2, 16),
        {"reserved_cores_per_node": 2, "isolation_mode": "quiet"},
        what_if=[{"reserved_count": 8, "strategy": "pack"}, {"reserved_cpus": "0,32"}],
    )
    assert [entry["error"] for entry in plan["what_if"]] == [None, None, None]
    assert [entry["reserved"] for entry in plan["what_if"]] == ["0-1,16-17,32-33,48-49", "0-3,32-35", "0,32"]
    assert [entry["isolated_lost"] for entry in plan["what_if"]] == [0, 0, -6]


def test_a_kept_plan_without_the_boot_core_does_not_stand():
    seen = observed(kept_plan={"path": "/plan.json", "plan": {"reserved": "1,17,33,49"}, "problem": None})
    assert make_plan(uniform(2, 16), {"reserved_cores_per_node": 1}, observed=seen)["reserved"] == "0,16,32,48"


def test_what_is_configured_counts_as_much_as_what_is_live():
    machine = article("alternate")
    machine["kernel"]["args"] = ["isolcpus=managed_irq,2-31,34-63", "irqaffinity=0-1,32-33"]
    plan = make_plan(machine, {}, observed=observed(boot_args={"source": "etc/default/grub", "tokens": ["quiet"]}))
    assert rows(plan)["isolcpus"]["verdict"] == "differs"
    assert rows(make_plan(machine, {}))["isolcpus"]["verdict"] == "same"


def test_unknown_arguments_mean_a_reboot_to_be_sure():
    machine = article("alternate")
    machine["kernel"]["args"] = None
    plan = make_plan(machine, {})
    assert plan["transition"]["reboot"] and "is unknown" in plan["transition"]["reasons"][0]["message"]


def test_the_fingerprint_is_of_hardware_only():
    base = [{"pci": "0000:ca:00.0", "name": "ens1", "node": 1}]
    virtual = [{"pci": "0000:ca:00.2", "name": "v0", "node": 1, "function": "vf"}]
    plain = make_plan(uniform(2, 8, nics=base), {})["fingerprint"]
    assert make_plan(uniform(2, 8, nics=base + virtual), {})["fingerprint"] == plain
    assert (
        make_plan(uniform(2, 8, nics=[dict(base[0], name="renamed", speed_mbps=1, up=False)]), {})["fingerprint"]
        == plain
    )
    assert make_plan(uniform(2, 8, nics=[dict(base[0], node=0)]), {})["fingerprint"] != plain
    assert make_plan(uniform(2, 8, nics=base, gpus=GPUS), {})["fingerprint"] != plain
    assert make_plan(uniform(2, 9, nics=base), {})["fingerprint"] != plain


# --- found by trying to break it -------------------------------------------------------------------------------------


def smt_off(args, control="off"):
    machine = uniform(1, 8, threads=1, present="0-15", offline="8-15", smt_control=control)
    machine["kernel"]["args"] = args
    return machine


@pytest.mark.parametrize(
    ("args", "control", "token"),
    [
        (["nosmt"], "off", "nosmt"),
        (["nosmt=force"], "forceoff", "nosmt=force"),
        (["quiet"], "off", "nosmt"),
        (["nosmt"], None, "nosmt"),
        (["nosmt"], "on", None),
    ],
)
def test_smt_that_is_off_stays_off(args, control, token):
    """Else the siblings come back at the planned boot, and are in no list."""
    plan = make_plan(smt_off(args, control), {})
    assert [argument for argument in plan["kernel_args"] if argument.startswith("nosmt")] == ([token] if token else [])
    if token and args[0].startswith("nosmt"):
        assert rows(plan)["nosmt"]["verdict"] == "same" and rows(plan)["nosmt"]["planned"] in ("present", "force")


def test_threads_that_nosmt_keeps_off_are_never_planned():
    assert refused(smt_off(["nosmt"]), {"smt": "disabled", "offline": "returns"}).code == "offline_siblings_unknown"
    partial = topology([("0,4", 0, 0), ("1,5", 0, 0), ("2", 0, 0)], present="0-2,4-6", offline="6")
    assert refused(partial, {"smt": "disabled"}).code == "offline_siblings_unknown"


def test_vector_counts_are_for_each_function():
    nics = [
        {"pci": "0000:4b:00.%d" % port, "name": "ens%d" % port, "node": 0, "driver": "ice", "queues": 112}
        for port in range(4)
    ]
    nics.append({"pci": "0000:04:00.0", "name": "eno1", "node": 0, "driver": "tg3", "queues": 4})
    machine = uniform(2, 28, nics=nics)
    for port, entry in enumerate(machine["nics"]):
        count = 5 if entry["driver"] == "tg3" else 112
        machine["irqs"] += irqs(entry, count, "queue", 1000 + 1000 * port)
        if count > 5:
            machine["irqs"] += irqs(entry, count, "ceq", 1500 + 1000 * port)
    budget = make_plan(machine, {"reserved_cores_per_node": 1})["vector_budget"]
    assert (budget["capacity"], budget["queues_that_fit"], budget["ceqs_that_fit"]) == (812, 100, 100)


def test_a_queue_of_two_vectors_frees_and_needs_two():
    machine = uniform(
        1, 4, threads=1, nics=[{"pci": "0000:4b:00.0", "name": "ens5", "node": 0, "driver": "gve", "queues": 64}]
    )
    machine["irqs"] = irqs(machine["nics"][0], 128)
    budget = make_plan(machine, {"reserved_count": 2, "vectors_per_cpu": 40})["vector_budget"]
    assert (budget["queues_that_fit"], budget["unmanaged_now"], budget["unmanaged_planned"]) == (40, 128, 4)
    same = uniform(
        1, 4, threads=1, nics=[{"pci": "0000:00:03.0", "name": "eth0", "node": 0, "driver": "virtio-pci", "queues": 1}]
    )
    same["irqs"] = irqs(same["nics"][0], 2)
    assert make_plan(same, {})["vector_budget"]["unmanaged_planned"] == 2


def test_vectors_without_a_way_out_and_chips_without_vectors():
    machine = uniform(1, 4, threads=1, nics=[{"pci": "0000:4b:00.0", "name": "ens5", "node": 0, "queues": 8}])
    machine["irqs"] = irqs(machine["nics"][0], 90)
    warning = next(w for w in make_plan(machine, {"vectors_per_cpu": 1})["warnings"] if w["code"] == "vector_budget")
    assert "no number of housekeeping CPUs" in warning["cure"]
    machine["irqs"] += [dict(machine["irqs"][0], irq=500 + index, chip="xen-percpu", msi=False) for index in range(600)]
    assert make_plan(machine, {})["vector_budget"]["unmanaged_now"] == 90


def test_a_crowded_node_is_told_although_the_host_has_room():
    machine = uniform(2, 8, nics=[{"pci": "0000:4b:00.0", "name": "ens1", "node": 0, "driver": "ice", "queues": 300}])
    machine["irqs"] = irqs(machine["nics"][0], 300) + irqs(machine["nics"][0], 300, "ceq", 1000)
    plan = make_plan(machine, {"reserved_cores_per_node": 1})
    assert plan["vector_budget"]["fits_now"] and "local housekeeping CPUs with room for 406" in next(
        w["message"] for w in plan["warnings"] if w["code"] == "vector_budget"
    )


def test_gpus_of_unknown_node_give_no_hint_that_could_be_preferred():
    gpus = [{"pci": "0000:%02x:00.0" % bus, "node": 0 if bus < 2 else None} for bus in range(4)]
    got, _plan = verdicts(uniform(2, 16, gpus=gpus), {"cpus": 4, "gpus": 3})
    assert [name for name, yes in got.items() if yes] == ["none", "best-effort"]


def test_gpus_of_two_vendors_are_two_resources():
    gpus = [
        {"pci": "0000:01:00.0", "node": 0},
        {"pci": "0000:02:00.0", "node": 0},
        {"pci": "0000:03:00.0", "node": 0, "vendor": "0x8086"},
    ]
    assert not any(verdicts(uniform(2, 16, gpus=gpus), {"cpus": 4, "gpus": 3})[0].values())
    assert all(verdicts(uniform(2, 16, gpus=gpus), {"cpus": 4, "gpus": 2})[0].values())


def test_whole_cores_on_a_hybrid_are_the_mean_as_the_kubelet_counts():
    hybrid = [("%d,%d" % (cpu, cpu + 1), 0, 0) for cpu in range(0, 16, 2)] + [(str(cpu), 0, 0) for cpu in range(16, 28)]
    assert all(verdicts(topology(hybrid), {"cpus": 3})[0].values())


def test_the_preferred_size_goes_by_all_cpus_of_a_node():
    """32 CPUs are one node by size; with two reserved they need two, which no provider prefers."""
    got, plan = verdicts(uniform(2, 16), {"cpus": 32})
    assert not got["restricted"] and got["best-effort"]
    assert plan["kubelet"]["admission"][0]["policies"]["best-effort"]["nodes"] == [0, 1]


def test_forecasts_on_many_nodes_stay_quick():
    plan = make_plan(uniform(64, 4), {"pod_shapes": [{"name": "wide", "cpus": 100}, {"name": "one", "cpus": 4}]})
    assert all(entry["policies"]["best-effort"]["admitted"] for entry in plan["kubelet"]["admission"])


def test_a_kept_plan_must_have_the_count():
    hybrid = [("%d,%d" % (cpu, cpu + 1), 0, 0) for cpu in range(0, 12, 2)] + [(str(cpu), 0, 0) for cpu in range(12, 20)]
    seen = observed(kept_plan={"path": "/plan.json", "plan": {"reserved": "0-5"}, "problem": None})
    assert len(cpulist.expand(make_plan(topology(hybrid), {"reserved_count": 5}, observed=seen)["reserved"])) == 5


def test_isolated_lost_counts_isolated_cpus():
    plan = make_plan(
        uniform(1, 8), {"reserved_cores_per_node": 1}, what_if=[{"smt": "disabled", "reserved_cores_per_node": 1}]
    )
    assert plan["what_if"][1]["isolated_lost"] == 7


def test_a_nic_of_unknown_node_counts_for_the_machine_and_takes_idle_cpus():
    nics = [
        {"pci": "0000:4b:00.0", "name": "a", "node": 0, "queues": 1},
        {"pci": "0000:4c:00.0", "name": "b", "queues": 1, "speed_mbps": 400000},
    ]
    plan = make_plan(uniform(2, 4, nics=nics), {"reserved_cores_per_node": 1})
    assert plan["nics"][0]["queue_cpus"] != plan["nics"][1]["queue_cpus"] and "gbps_per_core" in codes(plan)


def test_nics_of_a_node_share_its_cpus_evenly():
    nics = [
        {"pci": "0000:4b:00.%d" % port, "name": "p%d" % port, "node": 0, "queues": queues}
        for port, queues in enumerate((4, 6, 4, 1))
    ]
    plan = make_plan(uniform(1, 12, threads=1, nics=nics), {"reserved_count": 6})
    load = [sum(nic["queue_cpus"].count(cpu) for nic in plan["nics"]) for cpu in range(6)]
    assert max(load) - min(load) <= 1


def test_cures_that_can_cure():
    nics = [{"pci": "0000:4b:00.0", "name": "a", "node": 0}]
    plan = make_plan(uniform(2, 8, nics=nics), {"reserved_cores_per_node": 1, "irq_cpus": "8,24"})
    assert (
        next(w["cure"] for w in plan["warnings"] if w["code"] == "nic_without_local_housekeeping")
        == "add CPUs of node 0 to irq_cpus"
    )


def test_the_kernel_adds_the_boot_cpu_to_the_default_affinity():
    machine = article("alternate")
    machine["default_smp_affinity"] = "0-1,33"
    assert rows(make_plan(machine, {"reserved_cpus": "1,33"}))["irq/default_smp_affinity"]["verdict"] == "same"


@pytest.mark.parametrize(
    "policy", [{"nics": ["a\nb\x1b[31m"]}, {"declared_gbps": {"a\nb": 1}}, {"x\ny": 1}, {"smt": "a\tb\u202e"}]
)
def test_refusals_are_one_printable_line(policy):
    error = refused(article("block"), policy)
    assert str(error).isprintable() and all(value is None or value.isprintable() for value in error.as_dict().values())


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"gbps_per_core": 1e-310}, "policy_gbps_per_core"),
        ({"reserved_cores_by_node": {0: 1, "0": 2}}, "policy_reserved_cores_by_node"),
        ({"reserved_count": "1_0"}, "policy_reserved_count"),
        ({"reserved_count": "\u0664"}, "policy_reserved_count"),
        ({"pod_shapes": [{"name": "a", "cpus": 1}, {"name": "a", "cpus": 2}]}, "policy_pod_shapes"),
    ],
)
def test_values_that_only_look_usable(policy, code):
    assert refused(article("block"), policy).code == code


def test_names_of_nics_are_matched_in_one_way():
    machine = uniform(
        1, 8, nics=[{"pci": "0000:3b:00.0", "name": "ens1", "node": 0, "infiniband": [{"name": "mlx5_0"}]}]
    )
    for name in ("ens1", "0000:3B:00.0", "mlx5_0"):
        plan = make_plan(machine, {"nics": [name], "declared_gbps": {name: 300}})
        assert (plan["nics"][0]["gbps"], plan["numa"][0]["reserved_cores"]) == (300.0, 3), name


@pytest.mark.parametrize(
    ("base", "changes", "reserved"),
    [
        ({"reserved_count": 4, "strategy": "pack"}, {"reserved_cores_per_node": 1}, "0,16,32,48"),
        ({"reserved_count": 4, "strategy": "pack"}, {"reserved_count": None}, "0,16,32,48"),
        ({"reserved_count": 4, "strategy": "pack"}, {"reserved_count": 2}, "0,32"),
        ({"reserved_cores_per_node": 2}, {"reserved_count": 4, "strategy": "pack"}, "0-1,32-33"),
        ({"reserved_cores_per_node": 2}, {"reserved_cpus": 0}, None),
        ({"reserved_cores_per_node": 1}, None, "0,16,32,48"),
        (None, {"reserved_cpus": "0-1,32-33"}, "0-1,32-33"),
    ],
)
def test_a_host_overrides_its_group(base, changes, reserved):
    if reserved is None:
        with pytest.raises(HostprepError, match="SMT sibling"):
            make_plan(article("block"), override(base, changes))
    else:
        assert make_plan(article("block"), override(base, changes))["reserved"] == reserved


@pytest.mark.parametrize(("base", "changes"), [("text", None), ([{"smt": "keep"}], None), ({}, "text"), ({}, [1])])
def test_a_policy_that_is_no_mapping(base, changes):
    with pytest.raises(HostprepError) as caught:
        override(base, changes)
    assert caught.value.code == "policy_invalid"
