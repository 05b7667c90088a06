# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the running kernel tells: netlink datagrams, and failures that are unknowns."""

from __future__ import annotations

import struct

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import discover, netlink
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.reader import Reader
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from hypothesis import given, settings, strategies as st


def attribute(kind, value):
    data = struct.pack("=HH", len(value) + 4, kind) + value
    return data + b"\0" * (-len(data) % 4)


def message(kind, payload):
    data = struct.pack("=IHHII", len(payload) + 16, kind, 0, 1, 0) + payload
    return data + b"\0" * (-len(data) % 4)


def link(name, size=None):
    attributes = attribute(3, name.encode() + b"\0") + attribute(1, b"\0" * 6)
    if size is not None:
        attributes += attribute(59, struct.pack("=I", size))
    return message(16, b"\0" * 16 + attributes)


def test_links_of_a_dump():
    found = {}
    assert netlink.parse_links(link("eth0", 524280) + link("lo") + link("a-name-of-fifte", 65536), found) is True
    assert netlink.parse_links(message(3, b"\0" * 4), found) is False
    assert found == {"eth0": 524280, "a-name-of-fifte": 65536}


def test_a_refusal():
    with pytest.raises(OSError):
        netlink.parse_links(message(2, b"\0" * 20), {})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_datagram_ends(data):
    for payload in (data, link("eth0", 1)[:-3] + data):
        try:
            netlink.parse_links(payload, {})
        except OSError:
            pass


class Nic:
    def __init__(self, name):
        self.name = self.label = name
        self.facts = {"tso_max_size": None, "channels": None}


def live_reader():
    return Reader(Tree("/"))


def test_a_live_host(monkeypatch):
    monkeypatch.setattr(netlink, "tso_max_sizes", lambda: {"eth0": 524280})
    monkeypatch.setattr(netlink, "channels", lambda name: {"combined": 8})
    reader, nics = live_reader(), [Nic("eth0"), Nic(None)]
    netlink.fill(reader, nics)
    assert nics[0].facts == {"tso_max_size": 524280, "channels": {"combined": 8}}
    assert nics[1].facts == {"tso_max_size": None, "channels": None}
    assert {note["why"] for note in reader.unknown} == {
        "not told by this kernel (older than 6.0), or no network device",
        "no network device",
    }


def test_failures_are_unknowns(monkeypatch):
    def refuse(*_args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(netlink, "tso_max_sizes", refuse)
    monkeypatch.setattr(netlink, "channels", refuse)
    reader, nics = live_reader(), [Nic("eth0")]
    netlink.fill(reader, nics)
    assert nics[0].facts == {"tso_max_size": None, "channels": None}
    assert [(note["what"], note["why"]) for note in reader.unknown] == [
        ("nics.eth0.tso_max_size", "[Errno 95] Operation not supported"),
        ("nics.eth0.channels", "Operation not supported"),
    ]


def test_a_snapshot_has_no_kernel_to_ask(host, monkeypatch):
    monkeypatch.setattr(netlink, "fill", lambda *_args: pytest.fail("asked"))
    discover.ask_kernel(reader := host.add({"sys": None}).reader(), [Nic("eth0")])
    assert [note["what"] for note in reader.unknown] == ["nics.*.tso_max_size", "nics.*.channels"]


def test_the_kernel_that_runs_this_test_answers():
    """The loopback device has no channels, on any kernel; the dump itself works without privilege."""
    try:
        sizes = netlink.tso_max_sizes()
    except OSError as error:
        pytest.skip("No netlink here: {0}".format(error))
    assert all(isinstance(size, int) for size in sizes.values())
    with pytest.raises(OSError):
        netlink.channels("lo")
