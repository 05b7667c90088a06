# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters: the same answers as the functions beneath, and errors that a template author understands."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.lo0.rke2_hostprep.plugins.filter.hostprep import FilterModule

FILTERS = FilterModule().filters()


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("cpulist_expand", ["0-1,32-33"], [0, 1, 32, 33]),
        ("cpulist_compress", [[33, 0, 1, 32]], "0-1,32-33"),
        ("cpulist_union", ["0-1", "32-33", "5"], "0-1,5,32-33"),
        ("cpulist_minus", ["0-63", "0-1,32-33"], "2-31,34-63"),
        ("cpulist_intersect", ["0-31", "0-1,32-33"], "0-1"),
        ("cpulist_to_mask", ["0-1,32-33"], "00000003,00000003"),
        ("cpulist_from_mask", ["00000003,00000003"], "0-1,32-33"),
        (
            "plan_query",
            [{"nics": [{"name": "a", "numa_node": 1}, {"name": "b", "numa_node": 0}]}, "nics[?numa_node==`1`].name"],
            ["a"],
        ),
        ("plan_query", [{"nics": []}, "missing.key"], None),
    ],
)
def test_answers(name, arguments, result):
    assert FILTERS[name](*arguments) == result


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("cpulist_expand", ["3-1"], "runs backwards"),
        ("cpulist_to_mask", ["x"], "neither an id nor a range"),
        ("cpulist_from_mask", ["xyz"], "not a CPU mask"),
        ("plan_query", [{"a": 1}, "a["], "cannot read the expression"),
        ("plan_query", ["text", "a"], "takes a plan"),
        ("plan_records", [["a"], {}], "takes the variable hostvars, not dict"),
    ],
)
def test_errors(name, arguments, words):
    with pytest.raises(AnsibleFilterError, match=words) as caught:
        FILTERS[name](*arguments)
    assert "Traceback" not in str(caught.value)


class HostVars(dict):
    raw_get = dict.__getitem__


def test_plan_records():
    hostvars = HostVars(
        {
            "a": {"host_plan_result": {"plan": {"x": 1}}},
            "b": {"host_plan_result": {"failed": True, "msg": "no", "code": "smt_unknown"}},
            "c": {"host_plan_result": {"unreachable": True, "msg": "no route"}},
            "d": {},
        }
    )
    records = json.loads(FILTERS["plan_records"](list(hostvars), hostvars))
    assert [(record["host"], record["status"], record["error_code"]) for record in records] == [
        ("a", "planned", None),
        ("b", "refused", "smt_unknown"),
        ("c", "unreachable", None),
        ("d", "unreachable", None),
    ]
    assert records[0]["plan"] == {"x": 1} and records[0]["error"] is None and records[2]["error"] == "no route"


PLAN = {
    "host": "a",
    "irq": "0-1",
    "reserved": "0-1",
    "isolated": "2-3",
    "online_after_boot": "0-3",
    "transition": {"reboot": True},
    "nics": [
        {
            "name": "eth0",
            "pci": "0000:01:00.0",
            "queue_cpus": [0, 1],
            "other_cpus": "0-1",
            "speed_mbps": 1000,
            "queues": 2,
        }
    ],
}


def test_nic_irq_files():
    files = {entry["path"]: entry["content"] for entry in FILTERS["nic_irq_files"](PLAN, "a")}
    kept = json.loads(files.pop("/var/lib/lo0.rke2_hostprep/plan.json"))
    assert kept["irq"] == "0-1" and kept["nics"][0]["queue_cpus"] == [0, 1]
    assert "transition" not in kept and "speed_mbps" not in kept["nics"][0], "of the moment only"
    assert all(path.startswith("/usr/local/lib/lo0.rke2_hostprep/") for path in files)
    assert FILTERS["nic_irq_files"](dict(PLAN, host=None), "a") and FILTERS["nic_irq_files"](PLAN)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (dict(PLAN, host="b"), "made for another host"),
        (dict(PLAN, isolated="1-3"), "isolated CPUs"),
        ({}, "cannot be used"),
        ("text", "cannot be used"),
    ],
)
def test_nic_irq_files_of_a_plan_that_cannot_be_kept(plan, words):
    with pytest.raises(AnsibleFilterError, match=words):
        FILTERS["nic_irq_files"](plan, "a")
