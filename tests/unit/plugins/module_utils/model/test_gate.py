# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data path gate: the rule, what stands beneath it, and that an unknown is never a yes."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import gate
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.cilium import BIG_TCP, GATES
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from hypothesis import given, strategies as st
from topologies import topology

GOOD_VALUES = {
    "routingMode": "native",
    "kubeProxyReplacement": True,
    "bpf": {"masquerade": True},
    "cni": {"chainingMode": "none"},
}
MLX5 = {"pci": "0000:18:00.0", "name": "ens1", "tso_max_size": 524280}
ICE = {"pci": "0000:19:00.0", "name": "ens2", "tso_max_size": 131072, "driver": "ice"}
VIRTIO = {"pci": "0000:01:00.0", "name": "eth0", "tso_max_size": 65536, "driver": "virtio_net"}


def machine(*nics, release="6.12.48", netkit="y", netdevs=()):
    made = topology([("0-1", 0, 0), ("2-3", 0, 0)], nics=[dict(nic) for nic in nics])
    made["kernel"].update(release=release, config={"CONFIG_NETKIT": netkit})
    made["netdevs"] = [
        dict({"kind": "virtual", "lower": [], "nics": [], "default_route": False}, **device) for device in netdevs
    ]
    return made


def judge(made, **options):
    options.setdefault("cilium_version", "1.19.6")
    options.setdefault("cilium_values", GOOD_VALUES)
    return gate.judge(made, options)


def values(**changes):
    made = copy.deepcopy(GOOD_VALUES)
    for path, value in changes.items():
        *above, last = path.split("__")
        place = made
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return made


@pytest.mark.parametrize(
    ("running", "newer", "options", "netkit", "warned"),
    [
        ("6.12.48", None, {}, True, False),
        ("6.12.48", {"release": "6.18.1", "config_netkit": "y"}, {}, True, True),
        ("6.12.48", {"release": "6.18.1", "config_netkit": "n"}, {}, ["netkit_not_built"], True),
        ("6.12.48", {"release": "6.18.1", "config_netkit": None}, {}, ["netkit_config_unknown"], True),
        ("6.12.48", {"release": "6.18.1", "config_netkit": None}, {"config_netkit": "y"}, True, True),
        ("6.12.48", {"release": "6.18.1", "config_netkit": "n"}, {"kernel": "6.12.48"}, True, False),
        ("6.1.0-28-amd64", {"release": "6.12.48", "config_netkit": "y"}, {}, ["kernel_below_rule", "kernel_below_floor"], True),
        ("6.1.0-28-amd64", {"release": "6.12.48", "config_netkit": "y"}, {"kernel": "6.12.48", "config_netkit": "y"}, True, False),
    ],
)  # fmt: skip
def test_a_newer_kernel_that_is_installed_must_do_too(running, newer, options, netkit, warned):
    options = dict(options, cilium_version="1.19.6", cilium_values=GOOD_VALUES)
    result = gate.judge(machine(MLX5, release=running), options, newer)
    assert outcome(result)["netkit"] == netkit
    assert ("kernel_newer_installed" in [one["code"] for one in result["warnings"]]) is warned


def outcome(result):
    """{gate: True, None, or the codes that speak against it}"""
    return {
        name: [reason["code"] for reason in answer["reasons"]] if answer["eligible"] is not True else True
        for name, answer in result["gates"].items()
    }


def both(*codes):
    return dict.fromkeys(BIG_TCP, list(codes))


ALL = dict.fromkeys(GATES, True)
CASES = {
    "everything fits": (machine(MLX5), {}, ALL),
    "a mixture of listed drivers": (machine(MLX5, ICE), {}, ALL),
    "the kernel of Debian 12": (
        machine(MLX5, release="6.1.0-28-amd64", netkit="n"),
        {},
        {
            "netkit": ["kernel_below_rule", "kernel_below_floor", "netkit_not_built"],
            "big_tcp_ipv4": ["kernel_below_rule", "kernel_below_floor"],
            "big_tcp_ipv6": ["kernel_below_rule"],
        },
    ),
    "6.1 with a lower rule: IPv6 alone has an effect before 6.7": (
        machine(MLX5, release="6.1.0-28-amd64"),
        {"kernel_min": "5.15"},
        {"netkit": ["kernel_below_floor"], "big_tcp_ipv4": ["kernel_below_floor"], "big_tcp_ipv6": True},
    ),
    "6.7 with a lower rule": (machine(MLX5, release="6.7.1"), {"kernel_min": "6.7"}, ALL),
    "6.7 under the rule": (machine(MLX5, release="6.7.12"), {}, dict.fromkeys(GATES, ["kernel_below_rule"])),
    "NVIDIA's flavour of Ubuntu's 6.8, made from -45": (
        machine(MLX5, release="6.8.0-1015-nvidia"),
        {},
        {"netkit": ["kernel_known_bad"], "big_tcp_ipv4": True, "big_tcp_ipv6": True},
    ),
    "a newer one": (machine(MLX5, release="6.8.0-1030-nvidia-64k"), {}, ALL),
    "a kernel of Enterprise Linux 9": (
        machine(MLX5, release="5.14.0-427.el9.x86_64"),
        {"wanted": ["netkit"]},
        {
            "netkit": ["kernel_below_rule", "kernel_below_floor"],
            "big_tcp_ipv4": ["kernel_below_rule", "kernel_below_floor", "gate_not_wanted"],
            "big_tcp_ipv6": ["kernel_below_rule", "kernel_below_floor", "gate_not_wanted"],
        },
    ),
    "Ubuntu's 6.8.0-45": (
        machine(MLX5, release="6.8.0-45-generic"),
        {},
        {"netkit": ["kernel_known_bad"], "big_tcp_ipv4": True, "big_tcp_ipv6": True},
    ),
    "Ubuntu's 6.8.0-64": (machine(MLX5, release="6.8.0-64-generic"), {}, ALL),
    "a bad kernel of one's own": (
        machine(MLX5),
        {"known_bad_kernels": [{"release": r"6\.12\.48", "gates": ["big_tcp_ipv6"], "why": "measured"}]},
        {"netkit": True, "big_tcp_ipv4": ["big_tcp_one_family"], "big_tcp_ipv6": ["kernel_known_bad"]},
    ),
    "no CONFIG_NETKIT": (machine(MLX5, netkit="n"), {}, dict(ALL, netkit=["netkit_not_built"])),
    "CONFIG_NETKIT cannot be a module": (machine(MLX5, netkit="m"), {}, dict(ALL, netkit=["netkit_not_built"])),
    "CONFIG_NETKIT not read": (machine(MLX5, netkit=None), {}, dict(ALL, netkit=["netkit_config_unknown"])),
    "CONFIG_NETKIT declared": (machine(MLX5, netkit=None), {"config_netkit": "y"}, ALL),
    "the running kernel's CONFIG_NETKIT says nothing of the next": (
        machine(MLX5),
        {"kernel": "6.12.60"},
        dict(ALL, netkit=["netkit_config_unknown"]),
    ),
    "the kernel that will boot is judged": (
        machine(MLX5, release="6.1.0-28-amd64", netkit="n"),
        {"kernel": "6.12.60", "config_netkit": "y"},
        ALL,
    ),
    "no kernel": (machine(MLX5, release=None), {}, dict.fromkeys(GATES, ["kernel_unknown"])),
    "a driver outside the rule": (
        machine(VIRTIO),
        {},
        dict(both("nic_driver_not_listed", "tso_max_size_small"), netkit=["nic_driver_not_listed"]),
    ),
    "a driver allowed for netkit; its limit stands": (
        machine(VIRTIO),
        {"nic_drivers": ["virtio_net"]},
        dict(both("tso_max_size_small"), netkit=True),
    ),
    "the rule for BIG TCP only": (
        machine(dict(MLX5, driver="bnxt_en")),
        {"nic_drivers_gates": list(BIG_TCP)},
        dict(both("nic_driver_not_listed"), netkit=True),
    ),
    "mlx4_en is mlx4": (machine(dict(MLX5, driver="mlx4_en")), {}, ALL),
    "mlx4_core is mlx4, named by its module": (
        machine(dict(MLX5, driver="mlx4_core")),
        {"nic_drivers": ["mlx4_en"]},
        ALL,
    ),
    "an unknown driver": (machine(dict(MLX5, driver=None)), {}, dict.fromkeys(GATES, ["nic_driver_unknown"])),
    "a limit that a snapshot cannot tell": (
        machine(dict(MLX5, tso_max_size=None)),
        {},
        dict(both("tso_max_size_unknown"), netkit=True),
    ),
    "a limit that is declared": (machine(dict(MLX5, tso_max_size=None)), {"tso_max_sizes": {"ens1": 524280}}, ALL),
    "the smallest limit counts": (
        machine(MLX5, dict(ICE, tso_max_size=65536)),
        {},
        dict(both("tso_max_size_small"), netkit=True),
    ),
    "an uplink that Cilium is not to use": (machine(MLX5, VIRTIO), {"uplinks": ["ens1"]}, ALL),
    "the default route decides": (machine(dict(MLX5, default_route=True), VIRTIO), {}, ALL),
    "a VLAN on a bond of two": (
        machine(
            MLX5,
            dict(ICE, tso_max_size=65536),
            netdevs=[
                {"name": "bond0", "lower": ["ens1", "ens2"], "nics": ["ens1", "ens2"]},
                {"name": "bond0.7", "lower": ["bond0"], "default_route": True},
            ],
        ),
        {},
        dict(both("tso_max_size_small"), netkit=True),
    ),
    "a bridge in a circle": (
        machine(
            MLX5,
            netdevs=[
                {"name": "br0", "lower": ["br1", "ens1"], "default_route": True},
                {"name": "br1", "lower": ["br0"]},
            ],
        ),
        {},
        ALL,
    ),
    "the node's address on a dummy": (
        machine(MLX5, netdevs=[{"name": "dummy0", "default_route": True}]),
        {},
        dict.fromkeys(GATES, ["uplink_virtual"]),
    ),
    "the same where netkit may have any NIC": (
        machine(MLX5, netdevs=[{"name": "dummy0", "default_route": True}]),
        {"nic_drivers_gates": list(BIG_TCP)},
        dict(both("uplink_virtual"), netkit=True),
    ),
    "no NIC": (machine(), {}, dict.fromkeys(GATES, ["no_uplink"])),
    "one family wanted": (
        machine(MLX5),
        {"wanted": ["netkit", "big_tcp_ipv4"]},
        {"netkit": True, "big_tcp_ipv4": ["big_tcp_one_family"], "big_tcp_ipv6": ["gate_not_wanted"]},
    ),
    "one family wanted on 6.5": (
        machine(MLX5, release="6.5.0"),
        {"wanted": ["big_tcp_ipv4"], "kernel_min": "6.3"},
        {
            "netkit": ["kernel_below_floor", "gate_not_wanted"],
            "big_tcp_ipv4": True,
            "big_tcp_ipv6": ["gate_not_wanted"],
        },
    ),
    "tunnel": (
        machine(MLX5),
        {"cilium_values": values(routingMode="tunnel")},
        dict(both("cilium_tunnel"), netkit=True),
    ),
    "tunnel on 1.19.4": (
        machine(MLX5),
        {"cilium_values": values(routingMode="tunnel"), "cilium_version": "1.19.402"},
        dict(both("cilium_tunnel", "cilium_release_bad"), netkit=True),
    ),
    "egress gateway on 1.19.4": (
        machine(MLX5),
        {"cilium_values": values(egressGateway__enabled=True), "cilium_version": "v1.19.4"},
        dict(both("cilium_release_bad"), netkit=True),
    ),
    "egress gateway on 1.19.6": (machine(MLX5), {"cilium_values": values(egressGateway__enabled=True)}, ALL),
    "egress gateway on 1.19.4, list emptied": (
        machine(MLX5),
        {"cilium_values": values(egressGateway__enabled=True), "cilium_version": "1.19.4", "known_bad_releases": []},
        ALL,
    ),
    "IPsec": (
        machine(MLX5),
        {"cilium_values": values(encryption={"enabled": True, "type": "ipsec"})},
        dict(both("cilium_host_routing_off", "cilium_encryption"), netkit=["cilium_host_routing_off"]),
    ),
    "WireGuard": (
        machine(MLX5),
        {"cilium_values": values(encryption={"enabled": True, "type": "wireguard"})},
        dict(both("cilium_encryption"), netkit=True),
    ),
    "tproxy": (machine(MLX5), {"cilium_values": values(bpf__tproxy=True)}, dict(ALL, netkit=["cilium_tproxy"])),
    "endpoint routes": (
        machine(MLX5),
        {"cilium_values": values(endpointRoutes__enabled=True)},
        dict(ALL, netkit=["cilium_endpoint_routes"]),
    ),
    "DSR over geneve": (
        machine(MLX5),
        {"cilium_values": values(loadBalancer__dsrDispatch="geneve")},
        dict(both("cilium_dsr_dispatch"), netkit=True),
    ),
    "RKE2's default chaining mode": (
        machine(MLX5),
        {"cilium_values": values(cni__chainingMode="portmap")},
        dict.fromkeys(GATES, ["cilium_host_routing_off"]),
    ),
    "chaining with host routing on by hand": (
        machine(MLX5),
        {"cilium_values": values(cni__chainingMode="portmap", bpf__hostLegacyRouting=False)},
        ALL,
    ),
    "legacy host routing": (
        machine(MLX5),
        {"cilium_values": values(bpf__hostLegacyRouting=True)},
        dict.fromkeys(GATES, ["cilium_host_routing_off"]),
    ),
    "the chart's defaults": (
        machine(MLX5),
        {"cilium_values": {}},
        dict(
            both("cilium_host_routing_off", "cilium_host_routing_off", "cilium_tunnel"),
            netkit=["cilium_host_routing_off", "cilium_host_routing_off"],
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    made, options, wanted = CASES[name]
    assert outcome(judge(made, **options)) == wanted


@pytest.mark.parametrize("name", CASES)
def test_every_answer_says_what_to_do(name):
    made, options, _wanted = CASES[name]
    for answer in judge(made, **options)["gates"].values():
        assert answer["reasons"]
        for reason in answer["reasons"]:
            assert set(reason) == {"code", "message", "cure", "read"} and reason["message"]
            assert reason["cure"] or answer["eligible"]
            assert reason["read"], reason["code"]
    for warning in judge(made, **options)["warnings"]:
        assert warning["read"], warning["code"]


def test_what_was_read_where_nothing_was_found():
    found = judge(machine(MLX5, netkit=None), wanted=["netkit"])
    reasons = {one["code"]: one["read"] for answer in found["gates"].values() for one in answer["reasons"]}
    assert reasons["netkit_config_unknown"] == "kernel 6.12.48, CONFIG_NETKIT not known"
    assert reasons["gate_not_wanted"] == "wanted: netkit"
    none = {one["code"]: one["read"] for one in judge(machine())["gates"]["netkit"]["reasons"]}
    assert none["no_uplink"] == "no default route, no PCI NIC that may be up"
    named = {one["code"]: one["read"] for one in judge(machine(MLX5), uplinks=[])["gates"]["netkit"]["reasons"]}
    assert named["no_uplink"] == "uplinks: []"


def test_values_that_are_not_given_close_nothing():
    result = gate.judge(machine(MLX5))
    assert outcome(result) == ALL
    assert [warning["code"] for warning in result["warnings"]] == ["cilium_version_unknown"]


def test_warnings():
    def codes(made, **options):
        return [warning["code"] for warning in judge(made, **options)["warnings"]]

    assert codes(machine(MLX5)) == []
    assert codes(machine(MLX5, release="6.8.0-64-generic")) == ["netkit_kernel_young"]
    assert codes(machine(MLX5), kernel="6.14.0") == ["judged_on_another_kernel"]


def test_what_was_read_of_uplinks():
    result = judge(
        machine(MLX5, ICE, netdevs=[{"name": "bond0", "nics": ["ens1", "ens2"], "default_route": True}]),
        tso_max_sizes={"0000:19:00.0": 262144},
    )
    assert result["dataplane"]["uplinks"] == [
        {
            "name": "bond0",
            "nics": [
                {"name": "ens1", "driver": "mlx5_core", "tso_max_size": 524280},
                {"name": "ens2", "driver": "ice", "tso_max_size": 262144},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"uplinks": ["eth9"]}, "uplink_unknown"),
        ({"uplinks": "ens1"}, "gate_uplinks"),
        ({"kernel_min": 6.1}, "gate_kernel_min"),
        ({"kernel_min": "new"}, "gate_kernel_min"),
        ({"kernel": True}, "gate_kernel"),
        ({"wanted": ["netkitt"]}, "gate_wanted"),
        ({"nic_drivers_gates": ["xdp"]}, "gate_nic_drivers_gates"),
        ({"config_netkit": "yes"}, "gate_config_netkit"),
        ({"tso_max_sizes": {"ens1": "big"}}, "gate_tso_max_sizes"),
        ({"tso_max_size_above": -1}, "gate_tso_max_size_above"),
        ({"known_bad_kernels": [{"release": "("}]}, "gate_known_bad_kernels"),
        ({"known_bad_kernels": [{"release": "(", "gates": [], "why": ""}]}, "gate_known_bad_kernels"),
        ({"known_bad_releases": [{"first": "1.19.0"}]}, "gate_known_bad_releases"),
        ({"cilium_version": "newest"}, "cilium_version_invalid"),
        ({"cilium_values": "x"}, "gate_cilium_values"),
        ({"uplink": ["ens1"]}, "gate_option_unknown"),
        ("x", "gate_options"),
    ],
)
def test_refusals(options, code):
    with pytest.raises(HostprepError) as caught:
        gate.judge(machine(MLX5), options)
    assert caught.value.code == code
    assert caught.value.allowed and caught.value.cure


NICS = st.lists(
    st.fixed_dictionaries(
        {
            "pci": st.sampled_from(["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]),
            "name": st.sampled_from(["a", "b", None]),
            "driver": st.sampled_from(["mlx5_core", "ice", "virtio_net", None]),
            "tso_max_size": st.sampled_from([None, 65536, 131072]),
            "default_route": st.sampled_from([True, False, None]),
        }
    ),
    max_size=3,
)
MACHINES = st.builds(
    lambda nics, release, netkit: machine(*nics, release=release, netkit=netkit),
    NICS,
    st.sampled_from(
        ["5.14.0-570.el9.x86_64", "6.1.0", "6.5", "6.7", "6.8.0-45-generic", "6.12.1", "7.0.0-rc1", "x", None]
    ),
    st.sampled_from(["y", "n", None]),
)


@given(MACHINES, st.booleans())
def test_yes_only_where_all_was_read(made, strict):
    result = gate.judge(made, None if strict else {"kernel_min": "5.10"})
    for name, answer in result["gates"].items():
        if answer["eligible"] is not True:
            continue
        nics = [nic for link in result["dataplane"]["uplinks"] for nic in link["nics"]]
        assert nics and all(gate.family(nic["driver"]) in ("mlx4", "mlx5", "ice") for nic in nics)
        assert not gate.below(result["dataplane"]["kernel"], gate.OPTIONS[name + "_kernel_floor"]["default"])
        assert not strict or not gate.below(result["dataplane"]["kernel"], "6.8")
        if name == "netkit":
            assert made["kernel"]["config"]["CONFIG_NETKIT"] == "y"
        else:
            assert min(nic["tso_max_size"] for nic in nics) > 65536


@given(MACHINES)
def test_from_67_on_both_families_agree(made):
    result = gate.judge(made)
    if gate.kernel_number(result["dataplane"]["kernel"]) and not gate.below(result["dataplane"]["kernel"], "6.7"):
        assert len({result["gates"][name]["eligible"] for name in BIG_TCP}) == 1


def test_a_plan_carries_the_answers():
    made = machine(MLX5)
    plan = make_plan(made, {}, dataplane={"cilium_version": "1.19.6"})
    assert plan["gates"] == gate.judge(made, {"cilium_version": "1.19.6"})["gates"]
    unasked = make_plan(made, {})
    assert {answer["eligible"] for answer in unasked["gates"].values()} == {None}
    assert unasked["gates"]["netkit"]["reasons"][0]["code"] == "not_judged"
    assert "cilium_version_unknown" in [warning["code"] for warning in make_plan(made, {}, dataplane={})["warnings"]]
