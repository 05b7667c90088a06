# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own network: one namespace with a bridge, taps and veth pairs in it; nothing of it is in the machine's own.

QEMU runs in the machine's own namespace, so that its ssh forward listens on 127.0.0.1 there, and gets the taps as open
descriptors. What is to be reached from outside is forwarded from 127.0.0.1 (forward.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from .errors import LabError
from .tools import run

PREFIX = "hp-"
NAMESPACES = Path("/run/netns")
BRIDGE = "hp-br"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_MULTI_QUEUE, _IFF_VNET_HDR = 0x0002, 0x1000, 0x0100, 0x4000


def link(machine: str, nic: str) -> str:
    """The name of a machine's tap or veth end on the bridge; the kernel allows 15 characters."""
    name = f"{PREFIX}{machine}-{nic}"
    return name if len(name) <= 15 else f"{PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:11]}"


def exists(namespace: str) -> bool:
    return (NAMESPACES / namespace).exists()


def ensure(namespace: str, subnet: ipaddress.IPv4Network) -> None:
    """The namespace with the bridge, which has the subnet's first address."""
    if exists(namespace):
        return
    _ip("netns", "add", namespace)
    try:
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        _ip("-n", namespace, "address", "add", f"{subnet[1]}/{subnet.prefixlen}", "dev", BRIDGE)
        _ip("-n", namespace, "link", "set", BRIDGE, "up")
    except LabError:
        remove(namespace)
        raise


def remove(namespace: str) -> None:
    if exists(namespace):
        _ip("netns", "delete", namespace)


def taps(namespace: str, name: str, queues: int) -> list[int]:
    """Descriptors of a tap in the namespace, on the bridge; it goes when the last of them is closed."""
    descriptors: list[int] = []
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR | (_IFF_MULTI_QUEUE if queues > 1 else 0)
    try:
        with inside(namespace):
            for _queue in range(queues):
                descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                descriptors.append(descriptor)
                fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        _ip("-n", namespace, "link", "set", name, "master", BRIDGE, "up")
    except OSError as error:
        close(descriptors)
        raise LabError(f"The tap {name} could not be made in {namespace} ({error.strerror}).") from None
    except LabError:
        close(descriptors)
        raise
    return descriptors


def close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def host(namespace: str, lab: str, link_name: str, address: str, gateway: str, prefix: int) -> None:
    """A namespace of its own for an nspawn host, with eth0 on the lab's bridge and a default route."""
    _ip("netns", "add", namespace)
    try:
        _ip("-n", lab, "link", "add", link_name, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("-n", lab, "link", "set", link_name, "master", BRIDGE, "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "address", "add", f"{address}/{prefix}", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", namespace, "route", "add", "default", "via", gateway)
    except LabError:
        remove(namespace)
        raise


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread in another network namespace, for as long as the block lasts."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        other = os.open(NAMESPACES / namespace, os.O_RDONLY)
        try:
            enter(other)
        finally:
            os.close(other)
        try:
            yield
        finally:
            enter(own)
    finally:
        os.close(own)


def listener(port: int) -> socket.socket:
    """A socket bound to that port of 127.0.0.1, or to any free one (0)."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
        sock.listen(64)
    except OSError as error:
        sock.close()
        raise LabError(
            f"Port {port} of 127.0.0.1 is taken ({error.strerror}): choose another one or stop what listens there."
        ) from None
    return sock


def free_port(port: int = 0) -> int:
    """That port if nothing listens there, or any free one (0)."""
    with listener(port) as sock:
        return int(sock.getsockname()[1])


def _ip(*words: str) -> None:
    run(["ip", *words], f"ip {' '.join(words)}")
