# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judgement of state files: the kubelet's rules one by one, real files with their real checksums, and what holds for all files."""

from __future__ import annotations

import json

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist, kubelet_state
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}
STRICT = dict(STATIC, cpuManagerPolicyOptions={"strict-cpu-reservation": "true", "full-pcpus-only": "true"})
POD = "39b37746-7f5e-4064-b8e1-eebd2bfaa003"
# Files that kubelets wrote on real machines, with the checksums that they put there
REAL = (
    '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}',
    '{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}',
    '{"policyName":"static","defaultCpuSet":"2-15,17-31,34-47,49-63","checksum":4141502832}',
    '{"policyName":"static","defaultCpuSet":"0-151","checksum":2944298236}',
    '{"policyName":"static","defaultCpuSet":"0,4-27","entries":{"39b37746-7f5e-4064-b8e1-eebd2bfaa003":{"app":"1-3"}},'
    '"checksum":3300516549}',
    '{"policyName":"static","defaultCpuSet":"0,4-8,12-15","entries":{"088fe178-cec9-4eb9-ba3c-cf45cba46371":'
    '{"qos-demo-ctr":"1,9"},"681eca58-a216-4ec4-a57b-941cad3c4e0f":{"qos-demo-ctr":"2-3,10-11"}},"checksum":2993692383}',
)


def codes(found):
    return [entry["code"] for entry in found]


@pytest.mark.parametrize(
    ("state", "wanted", "online", "expected"),
    [
        (None, STATIC, "0-7", []),
        ({"policyName": "static", "defaultCpuSet": "0-7"}, STATIC, "0-7", []),
        ({"policyName": "static", "defaultCpuSet": "0-3", "entries": {"p": {"c": "4-5", "d": "6-7"}}}, STATIC, "0-7", []),
        ({"policyName": "static", "defaultCpuSet": ""}, STATIC, "0-7", []),  # the kubelet fills it
        ({"policyName": "static", "defaultCpuSet": "2-7"}, STRICT, "0-7", []),
        ({"policyName": "none", "defaultCpuSet": ""}, {}, "0-7", []),
        ({"policyName": "none", "defaultCpuSet": "5-9"}, {"cpuManagerPolicy": "none"}, "0-7", []),
        ({"policyName": "none", "defaultCpuSet": ""}, STATIC, "0-7", ["checkpoint_policy"]),
        ({"policyName": "static", "defaultCpuSet": "0-7"}, {}, "0-7", ["checkpoint_policy"]),
        ({"defaultCpuSet": "0-7"}, STATIC, "0-7", ["checkpoint_policy"]),
        ({"policyName": "static", "defaultCpuSet": "", "entries": {"p": {"c": "1"}}}, STATIC, "0-7", ["checkpoint_empty_default"]),
        ({"policyName": "static", "defaultCpuSet": "1-3", "entries": {"p": {"c": "0,4-7"}}}, STATIC, "0-7", ["checkpoint_reserved"]),
        ({"policyName": "static", "defaultCpuSet": "0-3"}, STATIC, "0-7", ["checkpoint_cpu_set"]),
        ({"policyName": "static", "defaultCpuSet": "0-7"}, STATIC, "0-3", ["checkpoint_cpu_set"]),
        ({"policyName": "static", "defaultCpuSet": "0-7"}, STRICT, "0-7", ["checkpoint_strict", "checkpoint_cpu_set"]),
        ({"policyName": "static", "defaultCpuSet": "2-7"}, STATIC, "0-7", ["checkpoint_reserved", "checkpoint_cpu_set"]),
        ({"policyName": "static", "defaultCpuSet": "0-7", "entries": {"p": {"c": "3"}}}, STATIC, "0-7", ["checkpoint_overlap"]),
        ({"policyName": "static", "defaultCpuSet": "0-3", "entries": {"id": "4-7"}}, STATIC, "0-7", ["checkpoint_old_entries"]),
        ({"policyName": "static", "defaultCpuSet": "0-3", "podEntries": {"p": {"cpuSet": "4-7"}}, "checksum": 5}, STATIC, "0-7", []),
        ({"policyName": "static", "defaultCpuSet": "0-7", "checksum": 5}, STATIC, "0-7", ["checkpoint_checksum"]),
        ({"policyName": "static", "defaultCpuSet": 5}, STATIC, "0-7", ["checkpoint_damaged"]),
        ({"policyName": "static", "defaultCpuSet": "x"}, STATIC, "0-7", ["checkpoint_damaged"]),
        ({"policyName": "static", "entries": 5}, STATIC, "0-7", ["checkpoint_damaged"]),
        ({"policyName": "static", "defaultCpuSet": "0", "entries": {"p": {"c": 5}}}, STATIC, "0-7", ["checkpoint_damaged"]),
        ([], STATIC, "0-7", ["checkpoint_damaged"]),
    ],
)  # fmt: skip
def test_cpu(state, wanted, online, expected):
    found = kubelet_state.cpu(state, wanted, cpulist.expand(online))
    assert codes(found) == expected
    assert all(entry["cure"] == kubelet_state.CURE and entry["read"] for entry in found)


def test_the_words_are_the_kubelets():
    state = {"policyName": "none", "defaultCpuSet": ""}
    (found,) = kubelet_state.cpu(state, STATIC, {0, 1})
    assert found["message"] == 'configured policy "static" differs from state checkpoint policy "none"'


@pytest.mark.parametrize("text", REAL)
def test_real_checksums_hold_and_a_changed_file_is_told(text):
    state = json.loads(text)
    wanted = {"cpuManagerPolicy": state["policyName"]}
    everything = state["defaultCpuSet"] + "".join(
        "," + cpus for containers in state.get("entries", {}).values() for cpus in containers.values()
    )
    assert kubelet_state.cpu(state, wanted, cpulist.expand(everything)) == []
    state["defaultCpuSet"] += ",200" if state["defaultCpuSet"] else "200"
    assert codes(kubelet_state.cpu(state, wanted, cpulist.expand(everything))) == ["checkpoint_checksum"]


# What Go's printer gave for structures of the same names and types
@pytest.mark.parametrize(
    ("forms", "state", "expected"),
    [
        (
            kubelet_state._cpu_forms,
            {"policyName": "static", "defaultCpuSet": "0-1,4", "entries": {"pod-b": {"c": "2", "a": "3"}, "pod-a": {}}},
            794875960,
        ),
        (kubelet_state._cpu_forms, {"policyName": 'st"a\ttic é', "defaultCpuSet": "0-3", "entries": None}, 3652252566),
        (kubelet_state._cpu_forms, {"policyName": "static", "defaultCpuSet": "0-1", "entries": {"id2": "3", "id1": "2"}}, 1529903641),
        (kubelet_state._memory_forms, {"policyName": "None", "machineState": {}}, 4236770233),
        (
            kubelet_state._memory_forms,
            {
                "policyName": "Static",
                "machineState": {
                    "0": {
                        "numberOfAssignments": 0,
                        "memoryMap": {
                            "memory": {"total": 135, "systemReserved": 3, "allocatable": 132, "reserved": 0, "free": 132},
                            "hugepages-1Gi": {"total": 0, "systemReserved": 0, "allocatable": 0, "reserved": 0, "free": 0},
                        },
                        "cells": [0],
                    },
                    "10": {"numberOfAssignments": 1, "memoryMap": {}, "cells": [2, 10]},
                    "2": {"numberOfAssignments": 1, "memoryMap": None, "cells": None},
                },
                "entries": {"u1": {"c": [{"numaAffinity": [0, 2], "type": "memory", "size": 5}], "d": None}},
            },
            3466037480,
        ),
    ],
)  # fmt: skip
def test_checksums(forms, state, expected):
    assert kubelet_state.checksum(next(forms(state))) == expected


# -- memory ----------------------------------------------------------------------------------------------------------------

GIB = 1 << 30
NODES = {0: {"memory": 64 * GIB, "hugepages-1Gi": 0}, 1: {"memory": 64 * GIB, "hugepages-1Gi": 4 * GIB}}
RESERVED = [{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 1, "limits": {"memory": "1024Mi"}}]
MEMORY = {"memoryManagerPolicy": "Static", "reservedMemory": RESERVED}


def table(total, kept=0, taken=0, pages=0):
    free = total - kept - pages
    return {"total": total, "systemReserved": kept, "allocatable": free, "reserved": taken, "free": free - taken}


def machine(**changes):
    state = {
        "policyName": "Static",
        "machineState": {
            "0": {
                "numberOfAssignments": 0,
                "memoryMap": {"memory": table(64 * GIB, GIB), "hugepages-1Gi": table(0)},
                "cells": [0],
            },
            "1": {
                "numberOfAssignments": 0,
                "memoryMap": {"memory": table(64 * GIB, GIB, pages=4 * GIB), "hugepages-1Gi": table(4 * GIB)},
                "cells": [1],
            },
        },
        "entries": {},
    }
    state.update(changes)
    return state


def assigned():
    """A container with 100 GiB over both nodes."""
    state = machine(entries={POD: {"app": [{"numaAffinity": [0, 1], "type": "memory", "size": 100 * GIB}]}})
    for node, taken, pages in (("0", 63, 0), ("1", 37, 4 * GIB)):
        state["machineState"][node].update(numberOfAssignments=1, cells=[0, 1])
        state["machineState"][node]["memoryMap"]["memory"] = table(64 * GIB, GIB, taken * GIB, pages)
    return state


def test_memory_that_fits():
    for state in (None, machine(), assigned(), machine(machineState={}), machine(machineState=None, entries=None)):
        assert kubelet_state.memory(state, MEMORY, NODES) == []
    assert kubelet_state.memory({"policyName": "None", "machineState": {}, "checksum": 4236770233}, {}, NODES) == []


def test_memory_spread_differently_over_a_group_is_the_same():
    state = assigned()
    for node, taken, pages in (("0", 50, 0), ("1", 50, 4 * GIB)):
        state["machineState"][node]["memoryMap"]["memory"] = table(64 * GIB, GIB, taken * GIB, pages)
    assert kubelet_state.memory(state, MEMORY, NODES) == []


@pytest.mark.parametrize(
    ("change", "nodes", "wanted", "words"),
    [
        (lambda state: None, {0: NODES[0]}, MEMORY, "NUMA nodes 0-1 in the file, 0 now"),
        (
            lambda state: None,
            {0: NODES[0], 1: dict(NODES[1], memory=64 * GIB - 4096)},
            MEMORY,
            "total of memory on node 1",
        ),
        (
            lambda state: None,
            {0: NODES[0], 1: {"memory": 64 * GIB}},
            MEMORY,
            "node 1 has hugepages-1Gi, memory in the file",
        ),
        (lambda state: None, NODES, dict(MEMORY, reservedMemory=RESERVED[:1]), "systemReserved of memory on node 1"),
        (lambda state: state["machineState"]["0"].update(numberOfAssignments=2), NODES, MEMORY, "other assignments"),
        (lambda state: state["machineState"]["0"].update(cells=[0, 1]), NODES, MEMORY, "other assignments"),
        (
            lambda state: state["machineState"]["0"]["memoryMap"].update(memory=table(64 * GIB, GIB, taken=5)),
            NODES,
            MEMORY,
            "free memory on node 0",
        ),
        (
            lambda state: state.update(entries={POD: {"c": [{"numaAffinity": [7], "type": "memory", "size": 1}]}}),
            NODES,
            MEMORY,
            "not there",
        ),
    ],
)
def test_memory_that_differs(change, nodes, wanted, words):
    state = machine()
    change(state)
    (found,) = kubelet_state.memory(state, wanted, nodes)
    assert found["code"] == "checkpoint_memory_state"
    assert words in found["read"]


@pytest.mark.parametrize(
    ("state", "wanted", "code"),
    [
        ({"policyName": "None", "machineState": {}}, MEMORY, "checkpoint_memory_policy"),
        (machine(), {}, "checkpoint_memory_policy"),
        (machine(checksum=7), MEMORY, "checkpoint_checksum"),
        (machine(machineState={}, entries={"p": {}}), MEMORY, "checkpoint_memory_state"),
        (machine(machineState={"0": 5, "1": 5}), MEMORY, "checkpoint_damaged"),
        (machine(machineState={"x": {}}), MEMORY, "checkpoint_damaged"),
        ("text", MEMORY, "checkpoint_damaged"),
    ],
)
def test_memory_refused(state, wanted, code):
    assert codes(kubelet_state.memory(state, wanted, NODES)) == [code]


def test_unknown_nodes_are_not_judged():
    assert kubelet_state.memory(machine(machineState={"9": {}}), MEMORY, None) == []


def test_pods_with_something_of_their_own():
    assert kubelet_state.pods({"entries": {"a": {}}, "podEntries": {"b": {}}}, None, assigned(), {"entries": 5}) == {
        "a",
        "b",
        POD,
    }


@pytest.mark.parametrize(
    ("text", "amount"), [("0", 0), ("1024", 1024), ("1Ki", 1024), ("3Mi", 3 << 20), ("2G", 2 * 10**9), ("1k", 1000)]
)
def test_quantity(text, amount):
    assert kubelet_state.quantity(text) == amount


@pytest.mark.parametrize("text", ["", "1.5Gi", "-1", "1gi", "Gi", "1 Gi", "1e3"])
def test_quantity_refused(text):
    with pytest.raises(HostprepError, match="not a whole quantity"):
        kubelet_state.quantity(text)


# -- for all files -----------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["static", "0-3", "memory"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "policyName",
                    "defaultCpuSet",
                    "entries",
                    "podEntries",
                    "checksum",
                    "machineState",
                    "0",
                    "memoryMap",
                    "cells",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_file_breaks_the_judge(state):
    for found in (kubelet_state.cpu(state, STATIC, {0, 1, 2, 3}), kubelet_state.memory(state, MEMORY, NODES)):
        assert found == [] or all(entry["code"].startswith("checkpoint_") for entry in found)


@given(st.sets(st.integers(0, 40), min_size=2), st.data(), st.booleans())
def test_a_fresh_state_of_the_same_reservation_is_taken_and_no_other_set_of_cpus(online, data, strict):
    """The kubelet starts over the file that it wrote itself; with another CPU set it never does."""
    reserved = data.draw(st.sets(st.sampled_from(sorted(online)), min_size=1, max_size=len(online) - 1))
    wanted = dict(STRICT if strict else STATIC, reservedSystemCPUs=cpulist.compress(reserved))
    default = online - reserved if strict else set(online)
    own = data.draw(st.sets(st.sampled_from(sorted(online - reserved))))
    entries = {POD: {"app": cpulist.compress(own)}} if own and own != default else {}
    state = {
        "policyName": "static",
        "defaultCpuSet": cpulist.compress(default - (own if entries else set())),
        "entries": entries,
    }
    assert kubelet_state.cpu(state, wanted, online) == []
    other = data.draw(st.sets(st.integers(0, 40), min_size=1).filter(lambda cpus: cpus != online and reserved <= cpus))
    assert "checkpoint_cpu_set" in codes(kubelet_state.cpu(state, wanted, other))
