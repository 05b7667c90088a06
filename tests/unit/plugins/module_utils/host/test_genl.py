# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Netlink messages, and what generic netlink's families tell of queues and channels."""

from __future__ import annotations

import socket
import struct

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import events, genl
from hypothesis import given, strategies as st


def message(kind, payload):
    return genl.HEADER.pack(genl.HEADER.size + len(payload), kind, 0, 0, 0) + payload + b"\0" * (-len(payload) % 4)


def generic(number, *attributes):
    return struct.pack("=BBxx", number, 1) + b"".join(attributes)


def u32(kind, value):
    return genl.attribute(kind, struct.pack("=I", value))


def test_messages_and_attributes():
    data = message(3, b"abcde") + message(4, b"")
    assert list(genl.messages(data)) == [(3, b"abcde"), (4, b"")]
    assert genl.attributes(genl.attribute(1, b"x\0") + u32(0x8000 | 2, 7)) == {1: b"x\0", 2: struct.pack("=I", 7)}


@given(st.binary(max_size=200))
def test_rubbish_is_passed_over(data):
    list(genl.messages(data))
    genl.command(data)
    genl.join([genl.attributes(data)], [genl.attributes(data)])
    for source in events.SOURCES[:4]:
        source.parse(data)


def test_queues_of_interrupts():
    queues = [
        u32(1, 0) + u32(3, 0) + u32(4, 51),
        u32(1, 0) + u32(3, 1) + u32(4, 51),
        u32(1, 7) + u32(4, 52),
        u32(1, 3) + u32(4, 52),
    ]
    napis = [u32(2, 3) + u32(1, 51) + u32(2, 51) + u32(3, 131), u32(2, 52) + u32(3, 132), u32(2, 53)]
    parsed = [[genl.attributes(one) for one in many] for many in (queues, napis)]
    assert genl.join(*parsed) == {131: 0, 132: 3}


def test_families_answer():
    """A family's number and groups, from a socket that answers as the kernel does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    group = genl.attribute(1, genl.attribute(1, b"monitor\0") + u32(2, 5))
    theirs.send(message(0x10, generic(1, genl.attribute(1, struct.pack("=H", 21)), genl.attribute(7, group))))
    assert genl.family(ours, "ethtool") == (21, {"monitor": 5})
    theirs.send(message(2, struct.pack("=i", -2)))
    with pytest.raises(FileNotFoundError):
        genl.family(ours, "absent")
    ours.close()
    theirs.close()


def test_channels_and_adapters():
    assert events.Ethtool.parse(message(21, generic(19))) == ["ethtool: channels changed"]
    assert events.Ethtool.parse(message(21, generic(3))) == []
    assert events.Devlink.parse(message(22, generic(3))) == ["devlink: an adapter changed"]


def link(name, kind, flags=1, info=None):
    body = struct.pack("=BxHiII", 0, 1, 2, flags, 0) + genl.attribute(3, name + b"\0")
    return message(kind, body + (genl.attribute(18, info) if info else b""))


def test_links():
    data = link(b"ens1", 16) + link(b"ens2", 16, 0) + link(b"ens3", 17)
    assert events.Links.parse(data) == ["link ens1: up", "link ens2: down", "link ens3: gone"]
    assert events.Links.parse(link(b"lxc1", 16, info=genl.attribute(1, b"veth\0"))) == []
    member = genl.attribute(4, b"bond\0")  # the kind of its master alone: a physical device in a bond
    assert events.Links.parse(link(b"ens1", 16, info=member)) == ["link ens1: up"]


def test_this_kernels_family():
    try:
        found = genl.queues_of_irqs()
    except OSError as error:
        pytest.skip("this kernel has no netdev family: %s" % error)
    assert all(isinstance(number, int) for pair in found.items() for number in pair)
