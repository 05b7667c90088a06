# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of a running Cilium: scopes, phases, someone's own values, objects, and the judgement that puts them together."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import (
    cilium_change as change,
    cilium_cluster as cluster,
    cilium_objects as objects,
    cilium_values,
)
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.cilium import GATES
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

TOP = Path(__file__).resolve().parents[5]
TABLE = json.loads((TOP / "roles/cilium/files/chart_keys.json").read_text(encoding="utf-8"))
PROFILE = cilium_values.profile({"auto_direct_node_routes": True, "devices": ["bond0"]})
# cilium-config as the chart of 1.19.6 renders it for the profile, the keys that matter here
CONFIG = {
    "routing-mode": "native",
    "tunnel-protocol": "vxlan",
    "auto-direct-node-routes": "true",
    "ipv4-native-routing-cidr": "10.42.0.0/16",
    "kube-proxy-replacement": "true",
    "enable-bpf-masquerade": "true",
    "enable-ipv4-masquerade": "true",
    "enable-ipv6-masquerade": "true",
    "datapath-mode": "veth",
    "enable-ipv4-big-tcp": "false",
    "enable-ipv6-big-tcp": "false",
    "bpf-distributed-lru": "false",
    "bpf-map-dynamic-size-ratio": "0.0025",
    "enable-bpf-clock-probe": "true",
    "bpf-lb-acceleration": "disabled",
    "devices": "bond0",
    "enable-ipv4": "true",
    "enable-ipv6": "false",
    "ipam": "kubernetes",
}


def daemonset(name="cilium", release="rke2-cilium", tag="v1.19.6", strategy="RollingUpdate", updated=3):
    return {
        "metadata": {"name": name, "annotations": {"meta.helm.sh/release-name": release}},
        "spec": {
            "updateStrategy": {"type": strategy},
            "template": {
                "spec": {"containers": [{"name": "cilium-agent", "image": "rancher/mirrored-cilium-cilium:" + tag}]}
            },
        },
        "status": {"desiredNumberScheduled": 3, "updatedNumberScheduled": updated},
    }


def chart_config(tree, owned=(), **spec):
    text = yaml.safe_dump(tree) if isinstance(tree, dict) else tree
    return {
        "metadata": {"annotations": {change.OWNED: json.dumps(list(owned))} if owned else {}},
        "spec": dict(spec, valuesContent=text),
        "values_parsed": tree,
    }


def wanted(**more):
    return dict({"options": {"auto_direct_node_routes": True, "devices": ["bond0"]}, "chart_keys": TABLE}, **more)


def live(**more):
    return dict({"daemonsets": [daemonset()], "config": {"data": dict(CONFIG)}}, **more)


def code_of(function, *arguments):
    with pytest.raises(HostprepError) as caught:
        function(*arguments)
    assert caught.value.cure and caught.value.read
    return caught.value.code


# --- scopes --------------------------------------------------------------------------------------------------------------------------

MOVES = {
    "bpf.datapathMode": ("netkit", "node"),
    "enableIPv4BIGTCP": (True, "node"),
    "enableIPv6BIGTCP": (True, "node"),
    "devices": (["bond0", "ens9"], "node"),
    "bpf.distributedLRU.enabled": (True, "node"),
    "bpf.mapDynamicSizeRatio": (0.01, "node"),
    "bpfClockProbe": (False, "node"),
    "loadBalancer.acceleration": ("native", "node"),
    "routingMode": ("tunnel", "cluster"),
    "tunnelProtocol": ("geneve", "cluster"),
    "kubeProxyReplacement": (False, "cluster"),
    "bpf.masquerade": (False, "cluster"),
    "enableIPv4Masquerade": (False, "cluster"),
    "ipv4NativeRoutingCIDR": ("10.0.0.0/8", "cluster"),
    "ipam.mode": ("cluster-pool", "cluster"),
    "ipv6.enabled": (True, "cluster"),
    "cni.chainingMode": ("portmap", "cluster"),
    "MTU": (9000, "cluster"),
    "hubble.enabled": (False, "cluster"),
    "resources": ({"limits": {"memory": "4Gi"}}, "cluster"),
    "extraArgs": (["--debug"], "cluster"),
    "k8sServiceHost": ("10.0.0.1", "cluster"),
    "updateStrategy.type": ("OnDelete", "none"),
}


def rows(values, config=None, now=None):
    return change.differences(CONFIG if config is None else config, PROFILE if now is None else now, values)


@pytest.mark.parametrize("path", MOVES)
def test_scope_of_a_change(path):
    value, scope = MOVES[path]
    found = rows(cilium_values.merged(PROFILE, cilium_values.nested({path: value})))
    assert {row["scope"] for row in found} == {scope}
    assert all(row["path"].startswith(path) and row["why"] for row in found)


@pytest.mark.parametrize("path", MOVES)
def test_scope_of_taking_it_back(path):
    value, scope = MOVES[path]
    now = cilium_values.merged(PROFILE, cilium_values.nested({path: value}))
    config = dict(CONFIG)
    if path in change.CONFIG:
        config[change.CONFIG[path][0]] = change.config_text(value)
    assert {row["scope"] for row in rows(PROFILE, config, now)} == {scope}


def test_no_difference():
    assert rows(PROFILE) == []
    assert rows(dict(PROFILE, tunnelProtocol="vxlan")) == []  # as it runs, though nothing sets it
    assert rows(cilium_values.merged(PROFILE, {"bpf": {"mapDynamicSizeRatio": 0.00250}})) == []


def test_values_that_cilium_config_tells_are_read_there():
    """The HelmChartConfig says one thing and the chart that runs another: what runs counts."""
    found = rows(PROFILE, dict(CONFIG, **{"routing-mode": "tunnel"}))
    assert [(row["path"], row["live"], row["wanted"]) for row in found] == [("routingMode", "tunnel", "native")]


@given(st.sampled_from(sorted(MOVES)), st.sampled_from(sorted(MOVES)))
def test_scopes_of_two_changes_add_up(one, other):
    values = cilium_values.merged(PROFILE, cilium_values.nested({one: MOVES[one][0]}))
    values = cilium_values.merged(values, cilium_values.nested({other: MOVES[other][0]}))
    assert {row["scope"] for row in rows(values)} == {MOVES[one][1], MOVES[other][1]}


# --- phases --------------------------------------------------------------------------------------------------------------------------

TUNNEL = cilium_values.merged(PROFILE, {"routingMode": "tunnel"})


def test_a_cluster_change_is_refused_without_permission():
    with pytest.raises(HostprepError) as caught:
        change.phases(rows(TUNNEL), True, False)
    assert caught.value.code == "cilium_cluster_change"
    assert "routingMode: native, wanted tunnel" in caught.value.read
    assert change.phases(rows(TUNNEL), True, True) == ["on_delete", "values"]


def test_a_run_without_servers_needs_a_cluster_that_has_the_values():
    rows = [{"path": "routingMode", "text": "t", "live": "tunnel", "wanted": "native", "scope": "cluster", "why": ""}]
    assert code_of(change.phases, rows, True, True, False) == "cilium_values_not_applied"
    assert change.phases([dict(rows[0], scope="node")], True, False, False) == ["values"]
    assert change.phases(rows, False, False, False) == ["values"]
    assert code_of(cluster.judge, wanted(servers=False, values={"MTU": 9000}), live()) == "cilium_values_not_applied"


def test_what_is_not_applied_yet_is_named():
    assert change.unapplied(CONFIG, PROFILE) == []
    (text,) = change.unapplied(dict(CONFIG, **{"routing-mode": "tunnel"}), PROFILE)
    assert text.startswith("routingMode: tunnel, wanted native")
    assert len(change.unapplied({}, PROFILE)) > 4


def test_phases_that_need_no_permission():
    assert change.phases(rows(cilium_values.merged(PROFILE, {"devices": ["bond1"]})), True, False) == ["values"]
    assert change.phases(rows(TUNNEL), False, False) == ["values"]


def test_agents_are_kept_from_restarting_first():
    running = live(helm_chart_config=chart_config(PROFILE, [path for path, _value in cilium_values.leaves(PROFILE)]))
    result = cluster.judge(wanted(values={"MTU": 9000}, cluster_change=True), running)
    first, second = result["phases"]
    assert (first["name"], second["name"]) == ("on_delete", "values")
    assert first["values"] == dict(PROFILE, updateStrategy={"type": "OnDelete", "rollingUpdate": None})
    assert second["values"] == dict(first["values"], MTU=9000)
    for phase in (first, second):
        assert "updateStrategy.type" in json.loads(phase["object"]["metadata"]["annotations"][change.OWNED])


def test_someone_elses_strategy_is_in_the_way_of_a_cluster_change():
    theirs = chart_config({"updateStrategy": {"type": "RollingUpdate"}})
    assert code_of(cluster.judge, wanted(cluster_change=True), live(helm_chart_config=theirs)) == "cilium_foreign_value"


# --- someone's own values ------------------------------------------------------------------------------------------------------------


def test_foreign_keys_stay():
    theirs = {
        "hubble": {"enabled": True},
        "bpf": {"monitorAggregation": "medium"},
        "tolerations": [],
        "extraConfig": {},
    }
    values, owned = change.join(theirs, [], PROFILE)
    assert values["hubble"] == {"enabled": True} and values["bpf"]["monitorAggregation"] == "medium"
    assert values["bpf"]["masquerade"] is True and values["extraConfig"] == {}
    assert "bpf.masquerade" in owned and "hubble.enabled" not in owned and "bpf.monitorAggregation" not in owned


def test_foreign_keys_with_dots_stay():
    theirs = {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "podAnnotations": {"prometheus.io/scrape": "true", "a\\.b": "c"},
        "bpf": None,
    }
    values, owned = change.join(theirs, [], PROFILE)
    assert {key: values[key] for key in ("nodeSelector", "podAnnotations")} == {
        key: theirs[key] for key in ("nodeSelector", "podAnnotations")
    }
    assert values["bpf"] == PROFILE["bpf"]
    mine = dict(PROFILE, podLabels={"example.org/team": "net"})
    values, owned = change.join(theirs, owned, mine)
    again, owned = change.join(values, owned, PROFILE)
    assert "podLabels" not in again and again["nodeSelector"] == theirs["nodeSelector"]


@pytest.mark.parametrize(
    ("theirs", "code"),
    [
        ({"bpf": {"mapDynamicSizeRatio": 0.08}}, "cilium_base_not_safe"),
        ({"bpf": {"mapDynamicSizeRatio": "0.08"}}, "cilium_base_not_safe"),
        ({"daemon": {"blockedConfigOverrides": "datapath-mode"}}, "cilium_node_config_blocked"),
        ({"bandwidthManager": {"bbr": True}}, "cilium_bbr_alone"),
        ({"ipv6": {"enabled": True}}, "cilium_native_cidr_missing"),
        ({"loadBalancer": {"mode": "dsrr"}}, "cilium_value_unknown"),
    ],
)
def test_foreign_values_must_go_with_ours(theirs, code):
    running = live(helm_chart_config=chart_config(theirs))
    assert code_of(cluster.judge, wanted(cluster_change=True), running) == code


def test_a_foreign_key_that_the_chart_does_not_have_is_said():
    running = live(helm_chart_config=chart_config({"bpf": {"clockProbe": True}, "hubble": {"enabled": "true"}}))
    (warning,) = [
        one
        for one in cluster.judge(wanted(cluster_change=True), running)["warnings"]
        if one["code"] == "cilium_foreign_key"
    ]
    assert warning["read"] == "bpf.clockProbe"


def test_an_equal_key_stays_theirs():
    _values, owned = change.join({"routingMode": "native"}, [], PROFILE)
    assert "routingMode" not in owned


@pytest.mark.parametrize(
    "theirs",
    [
        {"routingMode": "tunnel"},
        {"kubeProxyReplacement": "true"},
        {"bpf": {"masquerade": False}},
        {"bpf": "none"},
        {"routingMode": {"deep": 1}},
    ],
)
def test_a_conflict_is_refused(theirs):
    assert code_of(change.join, theirs, [], PROFILE) == "cilium_foreign_value"


def test_what_was_ours_changes_and_goes():
    first, owned = change.join({"hubble": {"enabled": True}}, [], PROFILE)
    smaller = {key: value for key, value in PROFILE.items() if key != "devices"}
    second, owned_then = change.join(first, owned, dict(smaller, routingMode="tunnel"))
    assert second["routingMode"] == "tunnel" and "devices" not in second and second["hubble"] == {"enabled": True}
    assert "devices" not in owned_then


NAMES = st.sampled_from(["a", "b", "c", "routingMode", "bpf"])
TREES = st.recursive(
    st.dictionaries(NAMES, st.one_of(st.integers(0, 2), st.booleans()), max_size=3),
    lambda below: st.dictionaries(NAMES, below, min_size=1, max_size=2),
    max_leaves=4,
)


@given(TREES, TREES, TREES)
def test_joining_twice_changes_nothing_and_foreign_keys_outlive_ours(theirs, first, second):
    try:
        values, owned = change.join(theirs, [], first)
        again, owned_again = change.join(values, owned, first)
        assert (again, owned_again) == (values, owned)
        then, _owned = change.join(values, owned, second)
    except HostprepError as error:
        assert error.code == "cilium_foreign_value"
        return
    found = dict(cilium_values.leaves(then))
    for path, value in cilium_values.leaves(theirs):
        assert value == {} or found[path] == value
    for path, value in cilium_values.leaves(second):
        assert value == {} or found[path] == value


@pytest.mark.parametrize("text", ["x", "{}", '{"a": 1}', "[1, 2]", None])
def test_a_damaged_list_owns_nothing(text):
    assert change.owned_paths({change.OWNED: text}) == []


# --- objects -------------------------------------------------------------------------------------------------------------------------


def strict(schema):
    """An API server with fieldValidation=Strict refuses fields that a schema does not name."""
    if (
        schema.get("type") == "object"
        and "properties" in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        schema["additionalProperties"] = False
    for part in list(schema.values()):
        for below in part if isinstance(part, list) else [part]:
            if isinstance(below, dict):
                strict(below)
    return schema


def validate(shared, kind, instance):
    path = shared / "crds" / kind
    if not path.is_file():
        pytest.skip("HOSTPREP_SHARED has no %s." % kind)
    crd = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    version = next(each for each in crd["versions"] if each["name"] == instance["apiVersion"].partition("/")[2])
    schema = strict(copy.deepcopy(version["schema"]["openAPIV3Schema"]))
    schema["properties"].setdefault("metadata", {})
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.Draft7Validator(schema).validate(instance)


def test_objects_fit_their_definitions(shared):
    result = cluster.judge(wanted(cluster_change=True), live())
    assert len(result["phases"]) == 2
    validate(shared, "helmchartconfigs.helm.cattle.io.yaml", result["phases"][0]["object"])
    node = cluster.node({"gates": dict.fromkeys(GATES, {"eligible": True})}, {"devices": ["bond0", "ens9"]}, {})
    made = objects.gate_configs() + objects.class_configs([node["defaults"]])
    assert len(made) == 4
    for instance in made:
        validate(shared, "ciliumnodeconfigs.cilium.io.yaml", instance)


def test_gate_configs_select_the_labels_that_nodes_get():
    node = cluster.node({"gates": dict.fromkeys(GATES, {"eligible": True})}, {"devices": ["bond0"]}, {})
    made = objects.gate_configs() + objects.class_configs([node["defaults"]])
    for instance in made:
        for label, value in instance["spec"]["nodeSelector"]["matchLabels"].items():
            assert node["labels"][label] == value
        assert all(isinstance(value, str) for value in instance["spec"]["defaults"].values())
    settings = [key for instance in made for key in instance["spec"]["defaults"]]
    assert len(set(settings)) == len(settings)  # no two set the same
    assert {key: value for instance in made[:3] for key, value in instance["spec"]["defaults"].items()} == {
        "datapath-mode": "netkit",
        "enable-ipv4-big-tcp": "true",
        "enable-ipv6-big-tcp": "true",
    }


def test_labels_only_where_the_gate_says_true():
    gates = {"netkit": {"eligible": True}, "big_tcp_ipv4": {"eligible": None}, "big_tcp_ipv6": {"eligible": False}}
    node = cluster.node({"gates": gates}, {}, {})
    assert node["labels"] == {
        "rke2-hostprep.lo0/netkit": "true",
        "rke2-hostprep.lo0/big-tcp-ipv4": None,
        "rke2-hostprep.lo0/big-tcp-ipv6": None,
        "rke2-hostprep.lo0/node-class": None,
    }
    assert node["node_label"] == ["rke2-hostprep.lo0/netkit=true"]
    live_labels = {"rke2-hostprep.lo0/big-tcp-ipv4": "true", "kubernetes.io/os": "linux"}
    assert objects.label_changes(node["labels"], live_labels) == {
        "rke2-hostprep.lo0/netkit": "true",
        "rke2-hostprep.lo0/big-tcp-ipv4": None,
    }
    assert objects.label_changes(node["labels"], {"rke2-hostprep.lo0/netkit": "true"}) == {}


def test_nodes_of_the_same_settings_are_one_class():
    one = objects.class_settings({"devices": ["bond0"], "map_ratio": 0.01, "distributed_lru": True})
    assert one == {"devices": "bond0", "bpf-map-dynamic-size-ratio": "0.01", "bpf-distributed-lru": "true"}
    other = objects.class_settings({"devices": ["ens3"]})
    assert len(objects.class_configs([one, other, dict(one), {}])) == 2
    assert objects.class_name({}) is None
    assert code_of(objects.class_settings, {"device": ["x"]}) == "cilium_node_setting"


@pytest.mark.parametrize(
    "settings",
    [
        {"devices": "bond0"},
        {"devices": []},
        {"devices": ["bond0", ""]},
        {"distributed_lru": "true"},
        {"map_ratio": "0.01"},
        {"map_ratio": 0},
        {"map_ratio": True},
        {5: 1},
    ],
)
def test_settings_of_a_class_that_are_not_usable(settings):
    assert code_of(objects.class_settings, settings) == "cilium_node_setting"


OPEN = {gate: {"eligible": True, "reasons": []} for gate in GATES}
SHUT = {gate: {"eligible": False, "reasons": [{"code": "kernel_below_rule"}]} for gate in GATES}
READ = {"uplinks": [{"name": "bond0", "nics": []}, {"name": "ens9", "nics": []}]}
ALL_LABELS = dict.fromkeys(objects.GATE_LABELS.values(), "true")


def api_node(name="n1", **labels):
    return {"metadata": {"name": name, "labels": dict({"kubernetes.io/hostname": name}, **labels)}}


@pytest.mark.parametrize(
    ("gates", "nodes", "pending", "code"),
    [
        (OPEN, None, 0, None),
        (OPEN, [], 0, "cilium_node_not_there"),
        (OPEN, [api_node("n2")], 0, "cilium_node_not_there"),
        (OPEN, [api_node()], 3, "cilium_node_waits"),
        (OPEN, [api_node(**ALL_LABELS)], 0, None),
        (SHUT, [api_node(**ALL_LABELS)], 3, "cilium_node_lost"),
        (SHUT, [api_node()], 0, None),
        (dict(OPEN, netkit=SHUT["netkit"]), [api_node(**{objects.GATE_LABELS["netkit"]: "true"})], 3, "cilium_node_lost"),
    ],
)  # fmt: skip
def test_a_node_whose_labels_are_to_change_is_reported(gates, nodes, pending, code):
    found = cluster.node({"gates": gates}, {}, {"name": "n1", "nodes": nodes})
    assert len(found["pending"]) == pending
    assert [one["code"] for one in found["warnings"]] == ([code] if code else [])
    if code == "cilium_node_lost":
        assert "kernel_below_rule" in found["warnings"][0]["message"]


@pytest.mark.parametrize(
    ("context", "labels", "code"),
    [
        ({}, 3, None),
        ({"owner": "helm", "running": True}, 3, None),
        ({"owner": "rke2", "running": True, "server": True}, 3, None),
        ({"owner": "helm", "running": False}, 0, "cilium_labels_later"),
        ({"owner": "helm", "running": False, "server": True}, 0, "cilium_labels_later"),
        ({"owner": "rke2", "running": False, "server": True}, 0, "cilium_labels_later"),
        ({"owner": "rke2", "running": False, "server": False}, 3, "cilium_joins_later"),
    ],
)
def test_no_node_registers_with_a_label_that_its_first_agent_cannot_follow(context, labels, code):
    found = cluster.node({"gates": dict.fromkeys(GATES, {"eligible": True, "reasons": []})}, {}, context)
    assert len(found["node_label"]) == labels
    assert [one["code"] for one in found["warnings"]] == ([code] if code else [])
    assert not code or "rke2-hostprep.lo0/netkit=true" in found["warnings"][0]["read"]
    assert {value for name, value in found["labels"].items() if name in ALL_LABELS} == {"true"}, "its drain gives them"
    assert cluster.node({"gates": SHUT}, {}, context)["warnings"] == []


def test_what_the_gate_answers_is_told_in_short():
    read = {"code": "kernel_below_rule", "read": "kernel 6.1.0, kernel_min 6.8"}
    gates = {
        "netkit": {"eligible": False, "reasons": [read, {"code": "kernel_below_floor", "read": "kernel 6.1.0"}]},
        "big_tcp_ipv4": {"eligible": None, "reasons": [{"code": "tso_max_size_unknown", "read": None}]},
        "big_tcp_ipv6": {"eligible": True, "reasons": [{"code": "eligible", "read": "kernel 6.12"}]},
    }
    assert cluster.node({"gates": gates}, {}, {})["gates_text"] == [
        "netkit: no; kernel_below_rule (kernel 6.1.0, kernel_min 6.8), kernel_below_floor (kernel 6.1.0)",
        "big_tcp_ipv4: not known, so no; tso_max_size_unknown",
        "big_tcp_ipv6: yes",
    ]


def test_devices_may_be_the_uplinks_that_the_gate_found():
    found = cluster.node({"gates": SHUT, "dataplane": READ}, {"devices": "uplinks"}, {})
    assert found["defaults"] == {"devices": "bond0 ens9"}
    named = cluster.node({"gates": SHUT}, {"devices": ["bond0", "ens9"]}, {})
    assert found["class"] == named["class"]
    assert (
        code_of(cluster.node, {"gates": SHUT, "dataplane": {}}, {"devices": "uplinks"}, {}) == "cilium_uplinks_unknown"
    )


@pytest.mark.parametrize(
    ("settings", "values", "closed"),
    [
        ({}, {}, False),
        ({"devices": ["bond0", "ens9"]}, {}, False),
        ({"devices": ["ens9"]}, {"devices": ["mgmt0"]}, False),  # the node's own devices win
        ({"devices": ["bond0", "mgmt0"]}, {}, True),
        ({}, {"devices": ["mgmt0"]}, True),
        ({}, {"devices": "bond0 mgmt0"}, True),
        ({}, {"devices": "bond+"}, False),  # which ones those are is not known here
    ],
)
def test_big_tcp_needs_a_look_at_every_device_of_cilium(settings, values, closed):
    gates = {name: {"eligible": True, "reasons": []} for name in GATES}
    made = cilium_values.merged({key: value for key, value in PROFILE.items() if key != "devices"}, values)
    found = cluster.node({"gates": gates, "dataplane": READ}, settings, {"version": "1.19.6", "values": made})
    assert {name for name, one in found["gates"].items() if one["eligible"] is not True} == (
        {"big_tcp_ipv4", "big_tcp_ipv6"} if closed else set()
    )
    assert not closed or found["gates"]["big_tcp_ipv4"]["reasons"][0]["code"] == "cilium_devices_not_judged"


def test_each_object_is_a_manifest_of_its_own():
    judged = cluster.judge(wanted(version="1.19.6"))
    configs = objects.gate_configs() + objects.class_configs([{"devices": "bond0"}])
    files = cluster.manifests(judged, "values", "/m", "rke2-hostprep-cilium", configs)
    assert [file["path"] for file in files] == ["/m/rke2-hostprep-cilium.yaml"] + [
        "/m/%s.yaml" % one["metadata"]["name"] for one in configs
    ]
    assert [yaml.safe_load(file["content"]) for file in files[1:]] == configs
    assert {file["mode"] for file in files} == {"0600"} and not any(file["sensitive"] for file in files)


@pytest.mark.parametrize("name", ["a_b", "A", "../x", "-a", "x.yaml", "rke2-hostprep-netkit", 5.5])
def test_names_that_no_manifest_can_have(name):
    assert code_of(cluster.judge, wanted(version="1.19.6", manifest=name)) == "cilium_manifest_name"


@pytest.mark.parametrize(
    ("rke2", "more", "code"),
    [
        (None, {}, None),
        ({"cni": "cilium", "disable-kube-proxy": True}, {}, None),
        ({"cni": ["multus", "cilium"], "disable-kube-proxy": True}, {}, None),
        ({"cni": "multus, cilium", "disable-kube-proxy": "true"}, {}, None),
        ({"cni": "none", "disable-kube-proxy": True}, {"owner": "helm"}, None),
        ({"cni": "cilium", "disable-kube-proxy": False}, {"values": {"kubeProxyReplacement": False}}, None),
        ({"cni": "canal", "disable-kube-proxy": True}, {}, "cilium_cni_of_rke2"),
        ({"disable-kube-proxy": True}, {}, "cilium_cni_of_rke2"),
        ({"cni": "none", "disable-kube-proxy": True}, {}, "cilium_cni_of_rke2"),
        ({"cni": "cilium", "disable-kube-proxy": True}, {"owner": "helm"}, "cilium_cni_of_rke2"),
        ({"cni": "cilium"}, {}, "cilium_kube_proxy_of_rke2"),
        ({"cni": "cilium", "disable-kube-proxy": True}, {"values": {"kubeProxyReplacement": False}}, "cilium_kube_proxy_of_rke2"),
    ],
)  # fmt: skip
def test_what_rke2_is_told_must_fit(rke2, more, code):
    want = wanted(version="1.19.6", rke2=rke2, **more)
    if code is None:
        assert cluster.judge(want)["version"] == "1.19.6"
    else:
        assert code_of(cluster.judge, want) == code


# --- secrets in someone's own values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        ("clustermesh.config.clusters.tls.key", True),
        ("hubble.tls.server.cert", True),
        ("hubble.tls.server.key", True),
        ("etcd.password", True),
        ("authToken", True),
        ("bpf.masquerade", False),
        ("k8sServiceHost", False),
        ("hubble.tls.enabled", False),
        ("monkey", False),
    ],
)
def test_names_of_secrets(path, secret):
    assert change.secret(path) is secret


def test_a_secret_of_someone_else_is_neither_shown_nor_lost():
    theirs = {"hubble": {"tls": {"server": {"key": "hunter2"}}}}
    judged = cluster.judge(wanted(cluster_change=True), live(helm_chart_config=chart_config(theirs)))
    assert judged["sensitive"] is True
    assert "hunter2" in judged["phases"][-1]["text"]
    assert all(file["sensitive"] for file in cluster.manifests(judged, "values", "/m", "m"))
    for own, found in (
        ({"hubble": {"tls": {"server": {"key": "other"}}}}, live(helm_chart_config=chart_config(theirs))),
        ({}, live(helm_chart_config=chart_config("hunter2: [", values_parsed=None))),
    ):
        with pytest.raises(HostprepError) as caught:
            cluster.judge(wanted(values=own), found)
        assert "hunter2" not in str(caught.value)
        assert "other" not in caught.value.read


@pytest.mark.parametrize("where", ["theirs", "ours"])
def test_a_chart_that_rolls_pods_out_makes_every_change_one_of_the_cluster(where):
    """With rollOutCiliumPods the configuration's checksum is in the pod template."""
    now = cilium_values.merged(PROFILE, {"devices": ["ens9"]})
    both = {"rollOutCiliumPods": True}
    values, new = (
        (cilium_values.merged(now, both), PROFILE) if where == "theirs" else (now, cilium_values.merged(PROFILE, both))
    )
    rows = {row["path"]: row for row in change.differences(dict(CONFIG, devices="ens9"), values, new)}
    assert (rows["devices"]["scope"], rows["devices"]["why"]) == ("cluster", change.AT_ONCE)
    assert change.differences(dict(CONFIG, devices="ens9"), now, PROFILE)[0]["scope"] == "node"


def test_map_sizes_of_a_node():
    gate = {"gates": {}, "dataplane": {"memory_mib": 1546000, "possible_cpus": 224}}
    node = cluster.node(
        gate, {"distributed_lru": True, "map_ratio": 0.08}, {"version": "1.19.6", "irq_cpus": 8, "dual_stack": True}
    )
    assert node["maps"]["capped"] and node["maps"]["usable_from_irq_cpus"]["ct_tcp"] == 8 * ((1 << 24) // 224)
    unknown = {"gates": {}, "dataplane": {"memory_mib": None, "possible_cpus": 4}}
    assert cluster.node(unknown, {}, {})["maps"] is None
    assert code_of(cluster.node, unknown, {"map_ratio": 0.01}, {}) == "cilium_maps_unknown"
    assert code_of(cluster.node, gate, {"distributed_lru": True}, {"version": "1.19.0"}) == "cilium_release_lru"


def test_failure_policy_is_never_reinstall():
    def policy(**spec):
        return objects.helm_chart_config({}, [], {"spec": spec})["spec"]["failurePolicy"]

    assert policy() == policy(failurePolicy="reinstall") == policy(failurePolicy="abort") == "abort"
    assert policy(failurePolicy="retry") == "retry"
    assert code_of(objects.helm_chart_config, {}, [], None, "reinstall") == "cilium_failure_policy"


def test_other_settings_of_the_object_stay():
    made = objects.helm_chart_config({"a": 1}, ["a"], {"spec": {"valuesSecrets": [{"name": "s"}], "values": {"b": 1}}})
    assert made["spec"]["valuesSecrets"] == [{"name": "s"}] and made["spec"]["values"] == {"b": 1}


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(1e-9, 1e9),
    st.text(max_size=12),
    st.sampled_from(["yes", "a: b\n", "\n", "x\ny\n", " z\n", "#\n", "1.0", "- a\n"]),
)
DATA = st.recursive(
    SCALARS,
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.text(max_size=5), below, max_size=3)),
    max_leaves=8,
)


@given(DATA)
def test_yaml_reads_back(data):
    back = yaml.safe_load(objects.yaml_text(data))
    assert back == rounded(data)


def rounded(data):
    if isinstance(data, float):
        return pytest.approx(data, rel=1e-6, abs=1e-9)
    if isinstance(data, dict):
        return {key: rounded(value) for key, value in data.items()}
    return [rounded(value) for value in data] if isinstance(data, list) else data


# --- the whole judgement ---------------------------------------------------------------------------------------------------------------


def test_a_new_cluster():
    result = cluster.judge(wanted(version="1.19.601"))
    assert (result["running"], result["version"], result["rows"]) == (False, "1.19.6", [])
    (phase,) = result["phases"]
    document = yaml.safe_load(phase["text"])
    assert document == phase["object"]
    assert yaml.safe_load(document["spec"]["valuesContent"]) == result["values"] == PROFILE
    assert document["spec"]["failurePolicy"] == "abort"


@pytest.mark.parametrize(
    ("want", "refused"),
    [
        ({"new_cluster": True, "node_configs_by": "manifest"}, None),
        ({"new_cluster": True, "node_configs_by": "api"}, "read: cilium_new_cluster: true, cilium_node_configs_by: api;"),
        ({"owner": "helm", "new_cluster": True, "node_configs_by": "api"}, None),
        ({"owner": "helm", "node_configs_by": "manifest"}, "read: cilium_owner: helm, cilium_node_configs_by: manifest;"),
    ],
)  # fmt: skip
def test_per_node_configuration_never_goes_nowhere(want, refused):
    if refused is None:
        cluster.judge(wanted(version="1.19.601", **want))
        return
    with pytest.raises(HostprepError) as found:
        cluster.judge(wanted(version="1.19.601", **want))
    assert found.value.code == "cilium_node_configs_nowhere" and refused in str(found.value)


def test_helm_has_nothing_to_write_to_before_there_is_an_api():
    def warned(**want):
        return [
            one
            for one in cluster.judge(wanted(version="1.19.6", **want))["warnings"]
            if "labels" in one["code"] or "api" in one["code"]
        ]

    assert [one["code"] for one in warned(owner="helm", new_cluster=True)] == ["cilium_helm_needs_api"]
    assert warned(owner="helm") == warned(new_cluster=True, node_configs_by="manifest") == []


@pytest.mark.parametrize(
    ("owner", "agents", "nodes", "named"),
    [
        ("helm", [], [api_node("n1", **ALL_LABELS), api_node("n2")], "n1"),
        ("helm", [], [api_node("n2")], None),
        ("helm", [daemonset(release="cilium")], [api_node("n1", **ALL_LABELS)], None),
        ("rke2", [daemonset()], [api_node("n1", **ALL_LABELS)], None),
    ],
)
def test_nodes_that_have_labels_before_cilium_is_installed_are_named(owner, agents, nodes, named):
    found = cluster.judge(
        wanted(owner=owner, version="1.19.6", cluster_change=True), live(daemonsets=agents, nodes=nodes)
    )
    early = [one["read"] for one in found["warnings"] if one["code"] == "cilium_labels_early"]
    assert early == ([named] if named else [])


def read_back(phase):
    """The object as the API server gives it after the manifest was applied."""
    written = yaml.safe_load(phase["text"])
    return dict(written, values_parsed=yaml.safe_load(written["spec"]["valuesContent"]))


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_cluster_without_a_helm_chart_config(nothing):
    judged = cluster.judge(wanted(cluster_change=True), live(helm_chart_config=nothing))
    assert [phase["name"] for phase in judged["phases"]] == ["on_delete", "values"]
    assert judged["phases"][0]["values"] == change.ON_DELETE


def test_a_second_run_writes_the_same():
    theirs = {"hubble": {"enabled": True}, "bpf": {"monitorAggregation": "low"}}
    running = live(helm_chart_config=chart_config(theirs))
    first = cluster.judge(wanted(cluster_change=True), running)["phases"][-1]
    running["helm_chart_config"] = read_back(first)
    running["daemonsets"] = [daemonset(strategy="OnDelete", updated=0)]
    waiting = cluster.judge(wanted(), running)
    assert waiting["rows"] == [] and [phase["text"] for phase in waiting["phases"]] == [first["text"]]
    running["daemonsets"] = [daemonset(strategy="OnDelete", updated=3)]
    done = cluster.judge(wanted(), running)
    assert {row["scope"] for row in done["rows"]} == {"none"} and "updateStrategy" not in done["values"]
    running["helm_chart_config"] = read_back(done["phases"][-1])
    running["daemonsets"] = [daemonset()]
    again = cluster.judge(wanted(), running)
    assert again["rows"] == [] and [phase["text"] for phase in again["phases"]] == [done["phases"][-1]["text"]]
    assert again["values"]["hubble"] == theirs["hubble"]


def test_from_rke2s_defaults_to_the_profile_is_a_cluster_change():
    config = dict(
        CONFIG, **{"routing-mode": "tunnel", "kube-proxy-replacement": "false", "cni-chaining-mode": "portmap"}
    )
    running = live(config={"data": config})
    with pytest.raises(HostprepError) as caught:
        cluster.judge(wanted(), running)
    assert caught.value.code == "cilium_cluster_change"
    for path in ("routingMode", "kubeProxyReplacement", "cni.chainingMode", "k8sServiceHost"):
        assert path in caught.value.read
    assert [phase["name"] for phase in cluster.judge(wanted(cluster_change=True), running)["phases"]] == [
        "on_delete",
        "values",
    ]


@pytest.mark.parametrize(
    ("want", "found", "code"),
    [
        ({}, {"daemonsets": [daemonset("rke2-canal")]}, "cni_differs"),
        ({}, {"daemonsets": [daemonset("calico-node"), daemonset()]}, "cni_differs"),
        ({}, {"daemonsets": [daemonset(release="cilium")]}, "cilium_two_owners"),
        ({"owner": "helm"}, {"daemonsets": [daemonset()]}, "cilium_two_owners"),
        ({}, {}, "cilium_version_needed"),
        ({"version": "newest"}, {}, "cilium_version_invalid"),
        ({"version": "1.18.4"}, {}, "cilium_chart_unknown"),
        ({"version": "1.19.6", "values": {"hubbel": {"enabled": True}}}, {}, "cilium_key_unknown"),
        ({"version": "1.19.6", "values": {"bpf": {"masquerade": "true"}}}, {}, "cilium_quoted_boolean"),
        ({"version": "1.19.6", "failure_policy": "reinstall"}, {}, "cilium_failure_policy"),
        ({}, live(helm_chart_config=chart_config({"routingMode": "tunnel"})), "cilium_foreign_value"),
        ({}, live(helm_chart_config=chart_config({}, values={"routingMode": "native"})), "cilium_foreign_value"),
        ({}, live(helm_chart_config=chart_config(["x"])), "cilium_foreign_unreadable"),
        (
            {},
            live(
                helm_chart_config=dict(
                    chart_config({}),
                    metadata={"annotations": {"objectset.rio.cattle.io/owner-name": "rke2-cilium-config"}},
                )
            ),
            "cilium_foreign_manifest",
        ),
    ],
)
def test_refusals(want, found, code):
    assert code_of(cluster.judge, wanted(**want), found) == code


def test_a_manifest_of_someone_else_can_be_taken_over():
    existing = dict(
        chart_config({"hubble": {"enabled": True}}),
        metadata={"annotations": {"objectset.rio.cattle.io/owner-name": "rke2-cilium-config"}},
    )
    result = cluster.judge(wanted(manifest="rke2-cilium-config", cluster_change=True), live(helm_chart_config=existing))
    assert result["values"]["hubble"] == {"enabled": True}


def test_versions():
    newer = cluster.judge(wanted(version="1.20.0", cluster_change=True), live())
    assert newer["version"] == "1.20.0" and "cilium_version_differs" in [
        warning["code"] for warning in newer["warnings"]
    ]
    own_tag = live(daemonsets=[daemonset(tag="mine")])
    assert cluster.judge(wanted(version="1.19.6", cluster_change=True), own_tag)["version"] == "1.19.6"


def test_a_chart_of_ones_own_and_keys_of_ones_own():
    own = {"routingMode": "", "newThing": {"enabled": False}, "bpf": {"masquerade": None}}
    result = cluster.judge(wanted(version="1.19.6", chart_values=own, values={"newThing": {"enabled": True}}))
    assert result["values"]["newThing"] == {"enabled": True}
    result = cluster.judge(wanted(version="1.19.6", extra_keys=["patched"], values={"patched": 1}))
    assert result["values"]["patched"] == 1


def test_a_helm_release_of_ones_own():
    running = {"daemonsets": [daemonset(release="cilium")], "config": {"data": dict(CONFIG)}}
    mine = cilium_values.profile({"auto_direct_node_routes": True, "devices": ["bond0"]}, "helm")
    result = cluster.judge(wanted(owner="helm"), dict(running, release={"values": mine}))
    assert (result["rows"], result["values"]) == ([], mine)
    assert code_of(
        cluster.judge, wanted(owner="helm"), dict(running, release={"values": dict(mine, hubble={"enabled": True})})
    ) == ("cilium_cluster_change")


MINE = cilium_values.profile({"auto_direct_node_routes": True, "devices": ["bond0"]}, "helm")
RELEASE = {"values": MINE, "status": "deployed", "chart": "cilium-1.19.6"}


def own(release=None, **more):
    """What is read where Cilium is a Helm release of one's own."""
    return live(daemonsets=[daemonset(release="cilium")], release=release or RELEASE, **more)


def test_the_first_phase_of_a_helm_release_keeps_its_values():
    more = {"hubble": {"tls": {"server": {"key": "hunter2"}}}}
    release = dict(RELEASE, values=cilium_values.merged(MINE, more))
    result = cluster.judge(wanted(owner="helm", values={"debug": {"enabled": True}}, cluster_change=True), own(release))
    first, second = result["phases"]
    strategy = {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}
    assert first["values"] == cilium_values.merged(release["values"], strategy), "Helm resets what is not given again"
    assert second["values"] == cilium_values.merged(MINE, dict(strategy, debug={"enabled": True}))
    assert (first["version"], second["version"]) == ("1.19.6", "1.19.6")
    # a secret among them, though none is wanted
    assert result["sensitive"] is True


def test_another_chart_of_a_helm_release_is_a_change_of_the_whole_cluster():
    newer = wanted(owner="helm", version="1.20.0")
    with pytest.raises(HostprepError) as refused:
        cluster.judge(newer, own())
    assert refused.value.code == "cilium_cluster_change" and "cilium_version: 1.19.6, wanted 1.20.0" in str(
        refused.value
    )
    result = cluster.judge(dict(newer, cluster_change=True), own())
    assert [(phase["name"], phase["version"]) for phase in result["phases"]] == [
        ("on_delete", "1.19.6"),
        ("values", "1.20.0"),
    ]
    assert [row["path"] for row in result["rows"]] == ["cilium_version"] and result["rows"][0]["scope"] == "cluster"
    # the chart's number tells what runs where the image's tag is someone's own
    agents = daemonset(release="cilium", tag="mine")
    assert cluster.judge(wanted(owner="helm"), dict(own(), daemonsets=[agents]))["version"] == "1.19.6"
    # RKE2 exchanges its chart itself, when RKE2 is upgraded
    assert cluster.judge(wanted(version="1.20.0"), live(helm_chart_config=chart_config(PROFILE)))["rows"] == []


def test_a_chart_that_helm_calls_another_one():
    judged = cluster.judge(wanted(owner="helm", cluster_change=True), own(chart_differs=True))
    assert [(row["path"], row["live"], row["scope"]) for row in judged["rows"]] == [
        ("cilium_helm_chart", "cilium-1.19.6", "cluster")
    ]
    assert [phase["name"] for phase in judged["phases"]] == ["on_delete", "values"]


@pytest.mark.parametrize("status", ["failed", "pending-upgrade"])
def test_after_a_failed_upgrade_no_value_tells_what_the_agents_have(status):
    release = dict(RELEASE, status=status)
    with pytest.raises(HostprepError) as refused:
        cluster.judge(wanted(owner="helm"), own(release))
    assert refused.value.code == "cilium_cluster_change" and "Helm release: %s, wanted deployed" % status in str(
        refused.value
    )
    # one phase: what the first would write is not known; the agents are kept from restarting in the same write
    result = cluster.judge(wanted(owner="helm", cluster_change=True), own(release))
    (only,) = result["phases"]
    assert only["name"] == "values" and only["values"]["updateStrategy"]["type"] == "OnDelete"
    # without agents there is nothing to lose
    assert cluster.judge(wanted(owner="helm", version="1.19.6"), {"release": release})["phases"][0]["values"] == MINE


def test_a_release_of_another_name_or_namespace_is_never_doubled():
    agents = daemonset(release="mine")
    with pytest.raises(HostprepError) as refused:
        cluster.judge(wanted(owner="helm"), dict(own(), daemonsets=[agents]))
    assert refused.value.code == "cilium_two_owners" and "set cilium_owner" not in str(refused.value)
    agents = daemonset(release="cilium")
    agents["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = "network"
    with pytest.raises(HostprepError) as refused:
        cluster.judge(wanted(owner="helm"), dict(own(), daemonsets=[agents]))
    assert refused.value.code == "cilium_two_owners" and "release cilium in namespace network" in str(refused.value)


# --- a node's gates and labels -----------------------------------------------------------------------------------------------------------

OPEN = {"gates": {name: {"eligible": True, "reasons": []} for name in GATES}}


def test_values_close_gates_that_a_plan_left_open():
    closed = cluster.node(OPEN, {}, {"version": "1.19.6", "values": dict(PROFILE, routingMode="tunnel")})
    assert [closed["gates"][name]["eligible"] for name in GATES] == [True, False, False]
    assert closed["gates"]["big_tcp_ipv4"]["reasons"][0]["code"] == "cilium_tunnel"
    assert closed["node_label"] == ["rke2-hostprep.lo0/netkit=true"]
    assert cluster.node(OPEN, {}, {"version": "1.19.6", "values": PROFILE})["gates"] == OPEN["gates"]


def node_object(cordoned=True, **labels):
    return {
        "metadata": {"name": "g1", "labels": dict({"kubernetes.io/os": "linux"}, **labels)},
        "spec": {"unschedulable": cordoned},
    }


def pod(name="model", owner=None, phase="Running", **spec):
    return {
        "metadata": {"name": name, "namespace": "llm", "ownerReferences": [{"kind": owner}] if owner else []},
        "spec": spec,
        "status": {"phase": phase},
    }


LABELS = cluster.node(OPEN, {}, {})["labels"]
REST = [
    pod(owner="DaemonSet"),
    pod(hostNetwork=True),
    pod(phase="Succeeded"),
    dict(pod(), metadata={"name": "etcd", "annotations": {"kubernetes.io/config.mirror": "x"}}),
]


def test_a_drained_node_gets_its_labels():
    patch = cluster.label_patch(LABELS, node_object(**{"rke2-hostprep.lo0/node-class": "c-old"}), REST)
    assert patch == [
        {"op": "add", "path": "/metadata/labels/rke2-hostprep.lo0~1big-tcp-ipv4", "value": "true"},
        {"op": "add", "path": "/metadata/labels/rke2-hostprep.lo0~1big-tcp-ipv6", "value": "true"},
        {"op": "add", "path": "/metadata/labels/rke2-hostprep.lo0~1netkit", "value": "true"},
        {"op": "remove", "path": "/metadata/labels/rke2-hostprep.lo0~1node-class"},
    ]
    assert (
        cluster.label_patch(LABELS, {"metadata": {"name": "g1"}, "spec": {"unschedulable": True}}, [])[0]["value"] == {}
    )


@pytest.mark.parametrize("live_node", [node_object(cordoned=False), node_object(cordoned=None)])
def test_labels_of_a_node_that_is_not_cordoned_stay(live_node):
    assert code_of(cluster.label_patch, LABELS, live_node, []) == "cilium_node_not_drained"


@pytest.mark.parametrize("left", [pod(), pod(owner="ReplicaSet"), pod(phase="Pending")])
def test_labels_of_a_node_with_pods_stay(left):
    with pytest.raises(HostprepError, match="llm/model"):
        cluster.label_patch(LABELS, node_object(), [*REST, left])


def test_labels_as_wanted_need_no_drain():
    live_node = node_object(cordoned=False, **{name: value for name, value in LABELS.items() if value})
    assert cluster.label_patch(LABELS, live_node, [pod()]) == []
