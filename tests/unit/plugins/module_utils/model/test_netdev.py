# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts about network devices: routes, VLANs, bonds, ports."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import netdev
from hypothesis import given, settings, strategies as st

ROUTE = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
ZERO = "0" * 32


@pytest.mark.parametrize(
    "line, found",
    [
        ("eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0", {"eth0"}),
        ("eth0\t00000000\t0100000A\t0002\t0\t0\t100\t00000000\t0\t0\t0", set()),  # not up
        ("eth0\t00000000\t0100000A\t0201\t0\t0\t100\t00000000\t0\t0\t0", set()),  # rejects
        ("eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0", set()),
        ("tun0\t00000000\t0100000A\t0003\t0\t0\t0\t00000080\t0\t0\t0", set()),  # 0.0.0.0/1 of a VPN
        ("eth0\t00000000", set()),
        ("eth0\tzzzz\t0\t0003\t0\t0\t0\t00000000\t0\t0\t0", set()),
    ],
)
def test_ipv4_default_routes(line, found):
    assert netdev.default_route_devices(ROUTE + line + "\n", None) == found


@pytest.mark.parametrize(
    "line, found",
    [
        (
            "%s 00 %s 00 fe800000000000000000000000000001 00000064 00000001 00000000 00000003     eth1" % (ZERO, ZERO),
            {"eth1"},
        ),
        ("%s 00 %s 00 %s ffffffff 00000001 00000000 00200200       lo" % (ZERO, ZERO, ZERO), set()),
        ("%s 00 %s 00 %s 00000064 00000001 00000000 00000201     eth1" % (ZERO, ZERO, ZERO), set()),
        ("2001%s 40 %s 00 %s 00000064 00000001 00000000 00000001     eth1" % (ZERO[4:], ZERO, ZERO), set()),
        ("cut short", set()),
    ],
)
def test_ipv6_default_routes(line, found):
    assert netdev.default_route_devices(None, line + "\n") == found


def test_vlans():
    text = "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\neth0.10        | 10  | eth0\nstorage | 20 | bond0\nbroken | x | eth0\n"
    assert netdev.vlans(text) == {"eth0.10": "eth0", "storage": "bond0"}
    assert netdev.vlans(None) == {}


def test_bond_members():
    text = "Bonding Mode: IEEE 802.3ad\n\nSlave Interface: ens1f0\nMII Status: up\n\nSlave Interface: ens1f1\nSlave queue ID: 0\nSlave Interface:\n"
    assert netdev.bond_members(text) == ["ens1f0", "ens1f1"]
    assert netdev.bond_members(None) == []


def test_bond_members_of_real_files(shared):
    folder = shared / "interrupts" / "bonds-proc-net-bonding" / "proc-net-bonding"
    for path in sorted(folder.iterdir()):
        text = path.read_text(encoding="utf-8")
        assert len(netdev.bond_members(text)) == text.count("Slave Interface:") > 0, path.name


@pytest.mark.parametrize(
    "name, expected",
    [
        ("pf0vf3", True),
        ("c1pf0vf3", True),
        ("pf0sf88", True),
        ("p0", False),
        ("pf0", False),
        ("pf0vf3x", False),
        ("", False),
        (None, False),
    ],
)
def test_representors(name, expected):
    assert netdev.representor(name) is expected


@pytest.mark.parametrize(
    "text, rate",
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("Gb/sec", None),
        ("(null)", None),
        ("", None),
        (None, None),
    ],
)
def test_port_rates(text, rate):
    assert netdev.port_rate(text) == rate
    assert rate is None or isinstance(netdev.port_rate(text), type(rate))


@pytest.mark.parametrize(
    "text, state", [("4: ACTIVE", "ACTIVE"), ("ACTIVE", "ACTIVE"), ("1: DOWN", "DOWN"), ("", None), (None, None)]
)
def test_port_states(text, state):
    assert netdev.port_state(text) == state


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_read(first, second):
    netdev.default_route_devices("header\n" + first, second)
    netdev.vlans(first)
    netdev.bond_members(second)
    netdev.port_rate(first)
    netdev.port_state(first)
    netdev.representor(second)
