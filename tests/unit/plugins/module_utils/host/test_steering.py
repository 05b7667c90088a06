# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of queues over ethtool netlink, the NICs that carry the connection, and steering, on trees of files."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import genl, steering
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree

ENTRY = {"label": "ens1", "queues": 2, "queue_cpus": [4, 5]}
NAMES = {"ens1": ["ens1"]}
EIGHT = {"combined": 8, "combined_max": 8, "rx": None, "rx_max": None, "tx": None, "tx_max": None}


def message(kind, payload):
    return genl.HEADER.pack(genl.HEADER.size + len(payload), kind, 0, 0, 0) + payload + b"\0" * (-len(payload) % 4)


def u32(kind, value):
    return genl.attribute(kind, struct.pack("=I", value))


@pytest.fixture
def kernel(monkeypatch):
    """A kernel's end of generic netlink: ``answers`` are sent in turn, ``asked`` is what came."""

    class Kernel:
        def __init__(self):
            self.answers, self.asked = [], []

        def connect(self, _protocol=genl.GENERIC):
            kernel = self

            class Link:
                def __enter__(self):
                    return self

                def __exit__(self, *_all):
                    pass

                def send(self, data):
                    kernel.asked.append(data)

                def recv(self, _size):
                    return kernel.answers.pop(0)

            return Link()

    found = Kernel()
    monkeypatch.setattr(genl, "connect", found.connect)
    return found


FAMILY = message(0x10, struct.pack("=BBxx", 1, 1) + genl.attribute(1, struct.pack("=H", 21)))


def test_channels_are_read_and_set(kernel):
    kernel.answers = [FAMILY, message(21, struct.pack("=BBxx", 17, 1) + u32(5, 8) + u32(9, 4))]
    assert steering.channels("ens1") == dict(EIGHT, combined=4)
    kernel.answers = [FAMILY, message(2, struct.pack("=i", 0) + b"\0" * 16)]
    steering.set_channels("ens1", {"combined": 2})
    ((kind, payload),) = genl.messages(kernel.asked[-1])
    order, facts = genl.command(payload)
    assert (kind, order, facts[9]) == (21, 18, struct.pack("=I", 2))
    assert genl.attributes(facts[1]) == {2: b"ens1\0"}
    assert struct.unpack_from("=HH", payload, 4)[1] & genl.NESTED, "the kernel refuses it without"
    kernel.answers = [FAMILY, message(2, struct.pack("=i", -22) + b"\0" * 16)]
    with pytest.raises(OSError, match="Invalid argument"):
        steering.set_channels("ens1", {"combined": 2})


@pytest.mark.parametrize(
    ("kept", "word", "line"),
    [
        (None, "notice", "ens1: queues set: combined 2 instead of 8"),
        ({"eth0"}, "notice", "ens1: queues set: combined 2 instead of 8"),
        ({"eth0", "ens1"}, "warning", "it carries the connection"),
        (set(), "warning", "which NIC carries the connection is not known"),
    ],
)
def test_never_on_the_nic_that_carries_the_connection(monkeypatch, kept, word, line):
    done = []
    monkeypatch.setattr(steering, "channels", lambda _name: EIGHT)
    monkeypatch.setattr(steering, "set_channels", lambda *what: done.append(what))
    ((said, text),) = steering.plan_queues([ENTRY], NAMES, kept)
    assert said == word and line in text
    assert done == ([("ens1", {"combined": 2})] if word == "notice" else [])


def test_what_the_kernel_refuses_is_said_and_what_is_right_is_not_set(monkeypatch):
    monkeypatch.setattr(steering, "channels", lambda _name: dict(EIGHT, combined=2))
    monkeypatch.setattr(steering, "set_channels", lambda *_what: 1 / 0)
    assert steering.plan_queues([ENTRY], NAMES, None) == []

    def refuse(*_what):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(steering, "channels", refuse)
    assert steering.plan_queues([ENTRY], NAMES, None) == [
        ("warning", "ens1: queues are left as they are: Operation not supported")
    ]


ROUTE = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
    "%s\t00000000\t0100580A\t0003\t0\t0\t0\t00000000\n"
    "ens9\t0000580A\t0\t1\t0\t0\t0\t00FFFFFF\n"
)
TCP = (
    "  sl  local_address rem_address st\n   0: 0F02000A:0016 0202000A:DA74 01 0\n"
    "   1: 0900000A:0016 0202000A:DA74 0A 0\n   2: 0800000A:0050 0202000A:DA74 01 0\n"
)
TCP6 = (
    "  sl  local_address remote_address st\n   0: 0000000000000000FFFF000007000A0A:0016 0:1 01 0\n"
    "   1: B80D0120000000000000000001000000:0016 0:1 01 0\n"
)
ADDRESSES = {
    "10.0.2.15": "mgmt",
    "10.0.0.9": "listens",
    "10.0.0.8": "web",
    "10.10.0.7": "mapped",
    "2001:db8::1": "six",
    "192.0.2.1": "given",
    "127.0.0.1": "lo",
}


@pytest.mark.skipif(
    sys.byteorder == "big", reason="/proc/net/tcp has the machine's byte order; the text here is of the other"
)
def test_the_nics_that_carry_the_connection(tmp_path, monkeypatch):
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    (net / "route").write_text(ROUTE % "br0")
    (net / "ipv6_route").write_text(
        "%s 00 %s 00 %s 00000400 1 0 3 bond0\n%s 40 %s 00 %s 100 1 0 1 ens8\n" % (("0" * 32,) * 6)
    )
    (net / "tcp").write_text(TCP)
    (net / "tcp6").write_text(TCP6)
    for lower in ("br0/lower_vlan5", "vlan5/lower_ens1", "bond0/lower_ens2", "bond0/lower_ens3"):
        (tmp_path / "sys/class/net" / lower).mkdir(parents=True)
    packed = [(steering._packed(text), name) for text, name in ADDRESSES.items()]
    monkeypatch.setattr(steering, "_addresses", lambda: packed)
    tree = Tree(str(tmp_path))
    assert steering.carrying(tree, ["192.0.2.1", "127.0.0.1", "not.an.address"]) == {
        "br0", "vlan5", "ens1", "bond0", "ens2", "ens3", "mgmt", "mapped", "six", "given",
    }  # fmt: skip
    for path in net.iterdir():
        path.unlink()
    assert steering.carrying(Tree(str(tmp_path))) == set()


def test_addresses_of_this_machine():
    if not os.path.exists("/proc/net/if_inet6") and not os.path.exists("/proc/net/fib_trie"):
        pytest.skip("no network")
    found = subprocess.run(["ip", "-o", "address"], check=False, capture_output=True, text=True)
    if found.returncode or "127.0.0.1" not in found.stdout:
        pytest.skip("no loopback address to be found")
    assert (socket.inet_pton(socket.AF_INET, "127.0.0.1"), "lo") in set(steering._addresses())


def test_steering(tmp_path):
    queues = tmp_path / "sys/class/net/ens1/queues"
    for queue in ("tx-0", "tx-1", "tx-2", "tx-10"):
        (queues / queue).mkdir(parents=True)
        (queues / queue / "xps_cpus").write_text("00\n")
    for queue in ("rx-0", "rx-1"):
        (queues / queue).mkdir()
        (queues / queue / "rps_cpus").write_text("ff\n" if queue == "rx-0" else "00\n")
    tree = Tree(str(tmp_path))
    lines = steering.steer(tree, [ENTRY], NAMES, range(8))
    assert lines == [("notice", "ens1: steering written: 4 transmit (XPS), 1 receive (RPS)")]
    masks = {path.parent.name: int(path.read_text().replace(",", ""), 16) for path in queues.glob("*/*_cpus")}
    assert masks == {
        "tx-0": 1 << 4 | 1 << 0 | 1 << 6, "tx-1": 1 << 5 | 1 << 1 | 1 << 7, "tx-2": 1 << 4 | 1 << 2, "tx-10": 1 << 5 | 1 << 3,
        "rx-0": 0, "rx-1": 0,
    }  # fmt: skip
    assert steering.steer(Tree(str(tmp_path)), [ENTRY], NAMES, range(8)) == [], "nothing to write"
    assert steering.steer(Tree(str(tmp_path)), [ENTRY], NAMES, range(8), off=True)
    assert {int(path.read_text().replace(",", ""), 16) for path in queues.glob("*/*_cpus")} == {0}
    assert steering.steer(tree, [ENTRY], {}, range(8)) == [], "in another network namespace"
