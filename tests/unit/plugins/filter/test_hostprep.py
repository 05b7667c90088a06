# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters: the same answers as the functions beneath, and errors that a template author understands."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.lo0.rke2_hostprep.plugins.filter import hostprep
from ansible_collections.lo0.rke2_hostprep.plugins.filter.hostprep import FilterModule
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_values

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
        ("rke2_files", ["text", None, {}], "takes a plan or null, not str"),
        ("rke2_files", [None, [], {}], "what kubelet_checkpoint returned in rke2, or null, not list"),
        ("rke2_files", [None, None, None], "a mapping of settings, not NoneType"),
        ("rke2_files", [None, None, {}], "whether the node is a server or an agent is not known"),
        ("rke2_files", [None, None], "does not take these arguments"),
        ("rke2_refusal", [{}, ["a"], {}], "takes the variable hostvars, not dict"),
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


def test_a_refusal_of_rke2_files_is_a_sentence():
    refused = FILTERS["rke2_files"](None, None, {"kind": "agent", "version": "v1.12.0"}, False)
    assert refused["refused"]["code"] == "rke2_version_unknown"
    sentence = FILTERS["rke2_refusal"](refused, ["a"], HostVars(a={"rke2_rendered": refused}))
    assert sentence == refused["refused"]["sentence"]
    assert sentence.startswith("which keys and options this version of RKE2 takes is not known; read: ")


def test_rke2_servers_are_compared():
    server = {"kind": "server", "version": "v1.34.4+rke2r1", "cni": "cilium", "disable_kube_proxy": True}
    one = FILTERS["rke2_files"](None, None, server)
    other = FILTERS["rke2_files"](None, None, dict(server, disable_kube_proxy=False), False)
    refused = FILTERS["rke2_files"](None, None, {}, False)
    hostvars = HostVars(a={"rke2_rendered": one}, b={"rke2_rendered": other}, c={}, d={"rke2_rendered": refused})
    agents = HostVars(
        a={"rke2_rendered": one}, c={"rke2_node_kind": "agent"}, d={"rke2_rendered": dict(refused, kind="agent")}
    )
    assert FILTERS["rke2_refusal"](one, ["a", "c", "d"], agents) == ""
    assert "not judged: c, d;" in FILTERS["rke2_refusal"](one, ["a", "c", "d"], hostvars)
    assert FILTERS["rke2_refusal"](dict(one, in_place=True), ["a", "c", "d"], hostvars) == "", "it is not changed"
    told = FILTERS["rke2_refusal"](one, ["a", "b", "c"], hostvars)
    assert told.startswith("every server must have the same value of disable-kube-proxy; read: false on b, true here")


def test_kube_missing(tmp_path, monkeypatch):
    missing = FILTERS["kube_missing"]
    assert "no kubeconfig is given" in missing("")
    assert "cannot be read" in missing(str(tmp_path / "absent"))
    (tmp_path / "config").write_text("", encoding="utf-8")
    found = []
    monkeypatch.setattr(hostprep.importlib.util, "find_spec", lambda name: name in found or None)
    assert "need kubernetes.core on the controller" in missing(str(tmp_path / "config"))
    found.append("ansible_collections.kubernetes.core")
    assert "pip install kubernetes" in missing(str(tmp_path / "config"))
    found.append("kubernetes")
    assert "pip install jsonpatch" in missing(str(tmp_path / "config"))
    found.append("jsonpatch")
    assert missing(str(tmp_path / "config")) == ""


def test_kube_results():
    result = {"failed": True, "msg": "Exception '429\nReason: Too Many Requests"}
    assert FILTERS["kube_error"](result, "reading pods").startswith(
        "reading pods failed: the API server answers that it is too busy"
    )
    assert "; written before: nothing; read: " in FILTERS["kube_error"](result, "reading pods", written="nothing")
    assert FILTERS["kube_passing"](result) is True
    assert FILTERS["kube_passing"]({"failed": False, "resources": []}) is False
    assert FILTERS["kube_passing"]({"failed": True, "msg": "Exception '403\nReason: Forbidden"}) is False
    helm = {
        "msg": "Failure when executing Helm command.",
        "stderr": "level=WARN msg=no\nError: UPGRADE FAILED: no key of ours",
    }
    told = FILTERS["kube_error"](helm, "upgrading", [{"tls": {"server": {"key": "of ours"}}}])
    assert "read: UPGRADE FAILED: no key (left out);" in told
    assert "MODULE" in FILTERS["kube_error"]({"failed": True, "exception": "MODULE FAILURE"}, "x")


def test_a_refusal_of_a_judgement_is_a_result():
    judged = FILTERS["cilium_cluster"]({"options": {}, "version": "1.19.6"}, {})
    assert judged["code"] == "cilium_routes_missing" and "what to do" in judged["refused"]
    node = FILTERS["cilium_node"]({"gates": {}})
    assert node["refused"] is None and node["labels"]["rke2-hostprep.lo0/netkit"] is None
    assert FILTERS["cilium_node"]({"gates": {}}, {"nic": 1})["code"] == "cilium_node_setting"
    drained = FILTERS["cilium_label_patch"]({"metadata": {"labels": {}}, "spec": {}}, {"a": "b"}, [])
    assert drained["code"] == "cilium_node_not_drained"
    refused = FILTERS["cilium_node"]({"gates": {}}, {"nic": 1})
    assert [each["kind"] for each in FILTERS["cilium_node_configs"]([node, refused])] == ["CiliumNodeConfig"] * 3


_BOMB = "\n".join(
    "%s: &%s [%s]" % (one, one, ", ".join(["*" + other] * 8)) for other, one in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("hubble: {enabled: true}", None),
        ("", None),
        ("# hubble is off\n", None),
        ("a: [", "cilium_foreign_unreadable"),
        ("- a", "cilium_foreign_unreadable"),
        ("a: &a\n  b: *a", "cilium_foreign_unreadable"),
        ("a: !!binary aGVsbG8=", "cilium_foreign_unreadable"),
        ("a: .inf", "cilium_foreign_unreadable"),
        ("? [a]\n: b", "cilium_foreign_unreadable"),
        ("a: &a [x, x, x, x, x, x, x, x]\n" + _BOMB, "cilium_foreign_unreadable"),
    ],
)
def test_someones_values_are_parsed(text, code):
    table = {"versions": ["1.19.6"], "keys": {}}
    wanted = {"options": {"fabric_has_routes": True}, "version": "1.19.6", "chart_keys": table, "cluster_change": True}
    keys = [path for path, _value in cilium_values.leaves(cilium_values.profile(wanted["options"]))] + [
        "hubble.enabled"
    ]
    live = {"helm_chart_config": {"metadata": {}, "spec": {"valuesContent": text}}}
    judged = FILTERS["cilium_cluster"](dict(wanted, extra_keys=keys), live)
    assert judged["code"] == code
    assert code or ("hubble" in judged["values"]) == text.startswith("hubble")


@pytest.mark.parametrize(
    ("text", "value"),
    [  # as Helm's parser reads them, which is not PyYAML's way: what is written back must be the same to Helm
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("1e3", 1000.0),
        ("0o644", 420),
        ("0644", 420),
        ("1.19.6", "1.19.6"),
        ("1_000", 1000),
        ("'1e3'", "1e3"),
        ("yes", True),
        ("&x {b: 1}", {"b": 1}),
        ("{2: a, true: b}", {"2": "a", "true": "b"}),
        ("{node.kubernetes.io/x: a}", {"node.kubernetes.io/x": "a"}),
    ],
)
def test_someones_values_are_read_as_helm_does(text, value):
    found = hostprep._values_of({"spec": {"valuesContent": "a: %s\n" % text}})["values_parsed"]
    assert found == {"a": value} and type(found["a"]) is type(value)


def test_isolation_set_refuses_in_one_sentence():
    with pytest.raises(AnsibleFilterError, match="host_plan_services: true"):
        FILTERS["isolation_set"]({"reserved": "0", "isolated": "1", "online_after_boot": "0-1"}, {})


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
