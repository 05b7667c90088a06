# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of Cilium's chart: the profile, keys and kinds of three charts, pairs, map sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium, cilium_values as values
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

TOP = Path(__file__).resolve().parents[5]
TABLE = json.loads((TOP / "roles/cilium/files/chart_keys.json").read_text(encoding="utf-8"))
ROUTES = {"auto_direct_node_routes": True}
GIB = 1 << 30


def keys(version="1.19.6"):
    return values.chart_keys(TABLE, cilium.release(version))[0]


def code_of(function, *arguments, **named):
    with pytest.raises(HostprepError) as caught:
        function(*arguments, **named)
    assert caught.value.cure
    return caught.value.code


# --- releases ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.19.4", (1, 19, 4)),
        ("v1.20.0", (1, 20, 0)),
        ("1.19.402", (1, 19, 4)),
        ("1.19.001", (1, 19, 0)),
        ("1.19.601", (1, 19, 6)),
        ("1.19.12", (1, 19, 12)),
        ("1.20.0-rc.1", (1, 20, 0)),
    ],
)
def test_releases(text, version):
    assert cilium.release(text) == version


@pytest.mark.parametrize("text", ["", "latest", "1.19", None, "1.19.x"])
def test_no_releases(text):
    assert code_of(cilium.release, text) == "cilium_version_invalid"


# --- the profile -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", TABLE["versions"])
@pytest.mark.parametrize("owner", ["rke2", "helm"])
def test_the_profile_passes_its_own_checks(version, owner):
    made = values.profile(dict(ROUTES, cluster_cidr="10.42.0.0/16,fd00:42::/56", devices=["bond0"]), owner)
    values.check_keys(made, keys(version))
    assert [warning["code"] for warning in values.check_pairs(made, cilium.release(version))] == [
        "cilium_host_firewall_bypassed"
    ]


def test_the_articles_values_and_what_they_need():
    made = values.profile(ROUTES)
    assert (
        made["routingMode"] == "native" and made["kubeProxyReplacement"] is True and made["bpf"]["masquerade"] is True
    )
    assert made["bpfClockProbe"] is True
    assert made["ipv4NativeRoutingCIDR"] == "10.42.0.0/16" and "ipv6NativeRoutingCIDR" not in made
    assert (made["k8sServiceHost"], made["k8sServicePort"], made["cni"]["chainingMode"]) == ("localhost", 6443, "none")
    assert made["autoDirectNodeRoutes"] is True
    # the base is safe for every node
    assert (made["bpf"]["datapathMode"], made["enableIPv4BIGTCP"], made["enableIPv6BIGTCP"]) == ("veth", False, False)
    assert made["bpf"]["distributedLRU"]["enabled"] is False and "mapDynamicSizeRatio" not in made["bpf"]
    assert made["loadBalancer"]["acceleration"] == "disabled"


def test_families_and_owners():
    dual = values.profile({"fabric_has_routes": True, "cluster_cidr": ["10.42.0.0/16", "fd00:42::/56"]}, "helm")
    assert (dual["ipv4NativeRoutingCIDR"], dual["ipv6NativeRoutingCIDR"]) == ("10.42.0.0/16", "fd00:42::/56")
    assert (dual["ipv4"], dual["ipv6"], dual["ipam"]) == ({"enabled": True}, {"enabled": True}, {"mode": "kubernetes"})
    assert dual["autoDirectNodeRoutes"] is False
    wider = values.profile(dict(ROUTES, ipv4_native_routing_cidr="10.0.0.0/8", devices=["bond0", "ens3"]))
    assert wider["ipv4NativeRoutingCIDR"] == "10.0.0.0/8" and wider["devices"] == ["bond0", "ens3"]
    assert "ipam" not in wider


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "cilium_routes_missing"),
        (dict(ROUTES, cluster_cidr="10.42.0.0"), "cilium_option_invalid"),
        (dict(ROUTES, cluster_cidr=[]), "cilium_option_invalid"),
        (dict(ROUTES, ipv4_native_routing_cidr="fd00::/56"), "cilium_option_invalid"),
        (dict(ROUTES, ipv4_native_routing_cidr="10.0.0.300/8"), "cilium_option_invalid"),
        (dict(ROUTES, ipv6_native_routing_cidr="fd00::/129"), "cilium_option_invalid"),
        ({"auto_direct_node_routes": "true"}, "cilium_option_invalid"),
        (dict(ROUTES, k8s_service_port="6443"), "cilium_option_invalid"),
        (dict(ROUTES, devices="bond0"), "cilium_option_invalid"),
        (dict(ROUTES, device=["bond0"]), "cilium_option_unknown"),
        ("x", "cilium_option_invalid"),
    ],
)
def test_profile_refusals(options, code):
    assert code_of(values.profile, options) == code


# --- keys and kinds ----------------------------------------------------------------------------------------------------------------

BAD_KEYS = {  # all of them pass the chart's own schema
    "bpf.clockProbe": True,
    "bpf.enableIPv4BIGTCP": True,
    "enableIpv4BigTcp": True,
    "bpf.datapathmode": "veth",
    "routingmode": "native",
    "bandwithManager.enabled": True,
    "enableTunnelBIGTCP": True,
    "tunnel": "disabled",
}


@pytest.mark.parametrize("version", TABLE["versions"])
@pytest.mark.parametrize("path", BAD_KEYS)
def test_misspelt_keys(version, path):
    assert code_of(values.check_keys, values.nested({path: BAD_KEYS[path]}), keys(version)) == "cilium_key_unknown"


def test_the_refusal_names_what_was_meant():
    with pytest.raises(HostprepError, match=r"did you mean bpf\.datapathMode"):
        values.check_keys({"bpf": {"datapathmode": "veth"}}, keys())
    with pytest.raises(HostprepError, match="did you mean bpfClockProbe"):
        values.check_keys({"bpf": {"clockProbe": True}}, keys())


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("enableIPv4BIGTCP", "true", "cilium_quoted_boolean"),
        ("kubeProxyReplacement", "true", "cilium_quoted_boolean"),
        ("bpf.masquerade", "True", "cilium_quoted_boolean"),
        ("bpfClockProbe", "yes", "cilium_quoted_boolean"),
        ("bpf.distributedLRU", True, "cilium_value_kind"),
        ("bpf.distributedLRU.enabled", 1, "cilium_value_kind"),
        ("routingMode", True, "cilium_value_kind"),
        ("routingMode", ["native"], "cilium_value_kind"),
        ("MTU", "9000", "cilium_value_kind"),
        ("tolerations", {}, "cilium_value_kind"),
        ("kubeProxyReplacement", 1, "cilium_value_kind"),
    ],
)
def test_wrong_kinds(path, value, code):
    assert code_of(values.check_keys, values.nested({path: value}), keys()) == code


@pytest.mark.parametrize(
    "given",
    [
        {"bpf": {"masquerade": None, "mapDynamicSizeRatio": 0.01}},
        {"devices": "eth+"},
        {"devices": ["eth0", "eth1"]},
        {"resources": {"limits": {"memory": "4Gi"}}},
        {"nodeSelector": {"kubernetes.io/os": "linux"}},
        {"extraConfig": {"anything": "goes"}},
        {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
        {"hubble": {"enabled": False}},
        {"maglev": {"tableSize": 65521}},
    ],
)
def test_good_keys(given):
    values.check_keys(given, keys())


def test_a_key_of_one_chart_only():
    values.check_keys({"nativeRoutingCIDRFromClusterPool": True}, keys("1.20.0"))
    assert (
        code_of(values.check_keys, {"nativeRoutingCIDRFromClusterPool": True}, keys("1.19.6")) == "cilium_key_unknown"
    )


def test_charts_that_are_not_in_the_table():
    found, note = values.chart_keys(TABLE, (1, 19, 7))
    assert found == keys("1.19.6") and note["code"] == "cilium_chart_nearest"
    assert values.chart_keys(TABLE, (1, 19, 6))[1] is None
    assert code_of(values.chart_keys, TABLE, (1, 18, 4)) == "cilium_chart_unknown"


def test_a_chart_of_ones_own():
    own = values.keys_of_values({"routingMode": "", "bpf": {"masquerade": None, "mine": {"deep": 1}}, "labels": {}})
    assert own == {"routingMode": "s", "bpf.masquerade": "?", "bpf.mine.deep": "i", "labels": "o"}
    values.check_keys({"bpf": {"mine": {"deep": 2}}, "labels": {"a": "b"}}, own)
    assert code_of(values.check_keys, {"bpf": {"min": 1}}, own) == "cilium_key_unknown"


def test_a_chart_of_ones_own_has_keys_with_dots():
    own = values.keys_of_values({"nodeSelector": {"kubernetes.io/os": "linux"}})
    values.check_keys({"nodeSelector": {"kubernetes.io/os": "linux"}}, own)
    assert code_of(values.check_keys, {"nodeSelector": {"kubernetes": {"io/os": "linux"}}}, own) == "cilium_key_unknown"


@pytest.mark.parametrize("version", TABLE["versions"])
def test_the_table_agrees_with_the_charts_keys(shared, version):
    """Another reading of the same charts; it also lists keys that templates only name to refuse them."""
    path = shared / "cilium" / ("values_keys-%s.json" % version)
    if not path.is_file():
        pytest.skip("HOSTPREP_SHARED has no keys of chart %s." % version)
    theirs = json.loads(path.read_text(encoding="utf-8"))["keys"]
    mine = keys(version)
    more = {key for key in mine if key not in theirs and not any(other.startswith(key + ".") for other in theirs)}
    assert not more
    missing = {key for key, entry in theirs.items() if key not in mine and entry["from"] == "values"}
    below = {key for key in missing if any(key.startswith(free + ".") for free, kinds in mine.items() if "o" in kinds)}
    assert missing == below


# --- pairs -----------------------------------------------------------------------------------------------------------------------------


def profile_with(**changes):
    return values.merged(
        values.profile(dict(ROUTES, devices=["bond0"])),
        values.nested({path.replace("__", "."): value for path, value in changes.items()}),
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"kubeProxyReplacement": "strict"}, "cilium_kube_proxy_replacement"),
        ({"kubeProxyReplacement": "partial"}, "cilium_kube_proxy_replacement"),
        ({"k8sServiceHost": ""}, "cilium_api_server_missing"),
        ({"k8sServicePort": None}, "cilium_api_server_missing"),
        ({"ipv4NativeRoutingCIDR": ""}, "cilium_native_cidr_missing"),
        ({"ipv6__enabled": True}, "cilium_native_cidr_missing"),
        ({"autoDirectNodeRoutes": False}, "cilium_routes_missing"),
        ({"routingMode": "natve"}, "cilium_value_unknown"),
        ({"loadBalancer__acceleration": "foo"}, "cilium_value_unknown"),
        ({"bpf__datapathMode": "netkitt"}, "cilium_value_unknown"),
        ({"bpf__datapathMode": "auto"}, "cilium_value_unknown"),
        ({"bpf__datapathMode": "netkit"}, "cilium_base_not_safe"),
        ({"enableIPv4BIGTCP": True}, "cilium_base_not_safe"),
        ({"enableIPv6BIGTCP": True}, "cilium_base_not_safe"),
        ({"bpf__distributedLRU__enabled": True}, "cilium_base_not_safe"),
        ({"bpf__mapDynamicSizeRatio": 0.08}, "cilium_base_not_safe"),
        ({"loadBalancer__acceleration": "native"}, "cilium_base_not_safe"),
        ({"loadBalancer__acceleration": "best-effort"}, "cilium_base_not_safe"),
        ({"enableIPv4BIGTCP": True, "routingMode": "tunnel"}, "cilium_big_tcp_excluded"),
        ({"enableIPv6BIGTCP": True, "encryption": {"enabled": True}}, "cilium_big_tcp_excluded"),
        ({"bandwidthManager__bbr": True}, "cilium_bbr_alone"),
        ({"daemon__configSources": "config-map:cilium-config"}, "cilium_node_config_blocked"),
        ({"daemon__allowedConfigOverrides": "datapath-mode"}, "cilium_node_config_blocked"),
        ({"daemon__blockedConfigOverrides": "debug, enable-ipv4-big-tcp"}, "cilium_node_config_blocked"),
    ],
)
def test_pairs_that_are_refused(changes, code):
    assert code_of(values.check_pairs, profile_with(**changes), (1, 19, 6)) == code


def test_xdp_has_no_way_for_single_nodes():
    with pytest.raises(HostprepError) as refused:
        values.check_pairs(profile_with(loadBalancer__acceleration="native"), (1, 19, 6))
    assert "read: loadBalancer.acceleration: native; allowed: loadBalancer.acceleration: disabled" in str(refused.value)
    assert "cilium_node_settings" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({"enableIPv4BIGTCP": True, "routingMode": "tunnel"}, "read: enableIPv4BIGTCP: true, routingMode: tunnel;"),
        ({"enableIPv6BIGTCP": True, "routingMode": None}, "read: enableIPv6BIGTCP: true, routingMode: not set;"),
        (
            {"enableIPv6BIGTCP": True, "encryption": {"enabled": True, "type": "ipsec"}},
            "read: enableIPv6BIGTCP: true, encryption.type: ipsec;",
        ),
    ],
)
def test_big_tcp_and_what_excludes_it_have_a_sentence_of_their_own(changes, read):
    with pytest.raises(HostprepError) as refused:
        values.check_pairs(profile_with(**changes), (1, 19, 6))
    assert refused.value.code == "cilium_big_tcp_excluded" and read in str(refused.value)


def test_auto_is_a_mode_of_120_and_still_not_for_the_base():
    assert code_of(values.check_pairs, profile_with(bpf__datapathMode="auto"), (1, 20, 0)) == "cilium_base_not_safe"


@pytest.mark.parametrize(
    "changes",
    [
        {"daemon__allowedConfigOverrides": "datapath-mode,enable-ipv4-big-tcp,enable-ipv6-big-tcp"},
        {"daemon__blockedConfigOverrides": "debug"},
        {"autoDirectNodeRoutes": False, "bgpControlPlane__enabled": True},
        {"ipv4NativeRoutingCIDR": "", "ipMasqAgent__enabled": True},
        {"ipv4NativeRoutingCIDR": "", "enableIPv4Masquerade": False},
    ],
)
def test_pairs_that_pass(changes):
    values.check_pairs(profile_with(**changes), (1, 19, 6))


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        (
            {"encryption": {"enabled": True, "type": "wireguard"}},
            {"cilium_encryption", "cilium_host_firewall_bypassed"},
        ),
        ({"encryption": {"enabled": True}}, {"cilium_encryption", "cilium_host_routing_off"}),
        ({"routingMode": "tunnel"}, {"cilium_tunnel", "cilium_host_firewall_bypassed"}),
        ({"bpf__tproxy": True}, {"cilium_tproxy", "cilium_host_firewall_bypassed"}),
        ({"cni__chainingMode": "portmap"}, {"cilium_host_routing_off"}),
        ({"devices": None}, {"cilium_devices_automatic", "cilium_host_firewall_bypassed"}),
    ],
)
def test_warnings(changes, codes):
    assert {warning["code"] for warning in values.check_pairs(profile_with(**changes), (1, 19, 6))} == codes


@pytest.mark.parametrize(
    ("uplinks", "cure"),
    [
        (None, "name the uplinks in devices"),
        ({}, "name the uplinks in devices"),
        ({"n1": ["bond0"], "n2": None}, "name the uplinks in devices"),
        ({"n1": ["bond0"], "n2": []}, "name the uplinks in devices"),
        ({"n1": ["ens1", "ens2"], "n2": ["ens2", "ens1"]}, "set devices: [ens1, ens2] in rke2_hostprep_cilium"),
        ({"n1": ["bond0"], "n2": ["ens1"]}, "set cilium_node_settings: {devices: uplinks}"),
    ],
)
def test_the_devices_to_set_are_shown_where_every_nodes_uplinks_are_known(uplinks, cure):
    found = values.check_pairs(profile_with(devices=None), (1, 19, 6), uplinks=uplinks)
    (warning,) = (one for one in found if one["code"] == "cilium_devices_automatic")
    assert cure in warning["cure"] and warning["read"].startswith("devices: not set")
    assert not uplinks or not all(uplinks.values()) or "n2 ens" in warning["read"]


# --- map sizes ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "ratio", "tcp", "any_"),
    [
        (512 << 20, 0.0025, 131072, 65536),  # smaller, so the minimum
        (4 * GIB, 0.025, 376751, 188375),  # 107374182 bytes shared over 149422080 of the default entries
        (1536 * GIB, 0.08, 1 << 24, 1 << 24),
    ],
)
def test_entries(memory, ratio, tcp, any_):
    made = values.map_sizes(memory, 8, ratio)
    assert (made["entries"]["ct_tcp"], made["entries"]["ct_any"]) == (tcp, any_)
    assert made["per_cpu"] is made["usable_from_irq_cpus"] is None


def test_008_on_a_gpu_node_hits_every_cap_and_costs_gigabytes():
    made = values.map_sizes(1536 * GIB, 128, 0.08)
    assert set(made["capped"]) == set(values.MAPS)
    assert 10 * GIB < made["memory_bytes"] < 13 * GIB
    assert [note["code"] for note in made["notes"]] == ["cilium_maps_capped"]
    assert values.map_sizes(1536 * GIB, 128, 0.08, families=2)["memory_bytes"] == 2 * made["memory_bytes"]
    assert values.map_sizes(64 * GIB, 128, 0.08)["notes"][-1]["code"] == "cilium_maps_memory"


def test_few_interrupt_cpus_can_use_a_small_share():
    made = values.map_sizes(256 * GIB, 128, None, True, 4, version=(1, 19, 6))
    assert made["entries"]["ct_tcp"] == made["per_cpu"]["ct_tcp"] * 128
    assert made["usable_from_irq_cpus"]["ct_tcp"] == made["per_cpu"]["ct_tcp"] * 4 < 1 << 19
    assert [note["code"] for note in made["notes"]] == ["cilium_lru_share"]
    unplanned = values.map_sizes(256 * GIB, 128, None, True, None, version=(1, 19, 6))
    assert [note["code"] for note in unplanned["notes"]] == ["cilium_lru_share_unknown"]
    assert unplanned["notes"][0]["read"] and "interrupt CPUs: not known" in unplanned["text"]
    assert values.map_sizes(256 * GIB, 128)["notes"] == [], "every CPU uses the whole of maps that are not distributed"
    large = values.map_sizes(1536 * GIB, 128, 0.08, True, 4, version=(1, 19, 6))
    assert large["usable_from_irq_cpus"]["ct_tcp"] == 4 * (1 << 24) // 128


@pytest.mark.parametrize("version", [(1, 17, 3), (1, 19, 0), (1, 19, 3)])
def test_releases_with_a_defective_lru(version):
    assert code_of(values.map_sizes, GIB, 4, None, True, 1, version=version) == "cilium_release_lru"
    values.map_sizes(GIB, 4, None, False, 1, version=version)
    values.map_sizes(GIB, 4, None, True, 1, version=version, bad=[])


@pytest.mark.parametrize("ratio", [0, -0.1, 1.5, "0.08", True])
def test_bad_ratios(ratio):
    assert code_of(values.map_sizes, GIB, 4, ratio) == "cilium_map_ratio"


@given(
    st.integers(1 << 29, 1 << 43),
    st.integers(1, 1024),
    st.floats(0.0001, 1.0),
    st.booleans(),
)
def test_sizes_are_what_the_kernel_takes(memory, cpus, ratio, lru):
    made = values.map_sizes(memory, cpus, ratio, lru, max(1, cpus // 16), version=(1, 19, 6))
    for name, count in made["entries"].items():
        assert (values.MAPS[name][1] <= count or lru) and count <= 1 << 24
        assert not lru or count % cpus == 0
    assert made["memory_bytes"] > sum(count * values.MAPS[name][2] for name, count in made["entries"].items())


# --- trees ----------------------------------------------------------------------------------------------------------------------------------

NAMES = st.text("ab./\\\\", min_size=1, max_size=3)
TREES = st.recursive(
    st.dictionaries(NAMES, st.one_of(st.integers(), st.booleans(), st.none(), st.text(max_size=3)), max_size=3),
    lambda below: st.dictionaries(NAMES, below, min_size=1, max_size=3),
    max_leaves=6,
)


@given(TREES)
def test_leaves_and_back(tree):
    assert values.nested(dict(values.leaves(tree))) == tree


@given(TREES, TREES)
def test_merged_lays_one_over_the_other(base, more):
    result = values.merged(base, more)
    assert values.merged(result, more) == result
    found = dict(values.leaves(result))
    for path, value in values.leaves(more):
        assert value == {} or found[path] == value


def test_values_are_data():
    yaml.safe_dump(values.profile(ROUTES))
