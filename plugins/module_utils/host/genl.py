# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generic netlink: joining a family's multicast group, asking a family, and which queue an interrupt serves. That needs no privilege.

Numbers: include/uapi/linux/{netlink,genetlink,netdev}.h, Documentation/netlink/specs/netdev.yaml. Everything that goes wrong is an
OSError, and text that makes no sense is passed over.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

GENERIC = 16
SOL_NETLINK = 270
ADD_MEMBERSHIP = 1
HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")
_GENL = struct.Struct("=BBxx")
_REQUEST = 1
ACKNOWLEDGE = 4  # of `ask`, for a command that has no answer of its own
_DUMP = 0x300
NESTED = 0x8000  # of an attribute's type
_ERROR = 2
_DONE = 3
_CONTROL = 0x10
_GETFAMILY = 3
_FAMILY_ID, _FAMILY_NAME, _GROUPS = 1, 2, 7
_GROUP_NAME, _GROUP_ID = 1, 2
_QUEUE_GET, _NAPI_GET = 10, 11
_QUEUE_ID, _QUEUE_TYPE, _QUEUE_NAPI = 1, 3, 4
_NAPI_ID, _NAPI_IRQ = 2, 3


def messages(data):
    """(type, payload) of each message of a datagram; a length that makes no sense ends it."""
    place = 0
    while place + HEADER.size <= len(data):
        length, kind, _flags, _sequence, _port = HEADER.unpack_from(data, place)
        if length < HEADER.size or place + length > len(data):
            return
        yield kind, data[place + HEADER.size : place + length]
        place += length + 3 & ~3


def attributes(data, place=0):
    """{type: bytes} of the attributes from `place` on; of a type that stands twice, the last."""
    found = {}
    while place + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, place)
        if length < ATTRIBUTE.size or place + length > len(data):
            break
        found[kind & 0x3FFF] = data[place + ATTRIBUTE.size : place + length]
        place += length + 3 & ~3
    return found


def attribute(kind, value):
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def command(payload):
    """(command, attributes) of a generic netlink message."""
    if len(payload) < _GENL.size:
        return None, {}
    return _GENL.unpack_from(payload)[0], attributes(payload, _GENL.size)


def number(value):
    """Value of an unsigned attribute of two, four or eight bytes; None for others."""
    size = {2: "=H", 4: "=I", 8: "=Q"}.get(len(value or b""))
    return struct.unpack(size, value)[0] if size else None


def _text(value):
    return (value or b"").rstrip(b"\0").decode("utf-8", "replace")


def ask(link, family, order, flags=0, body=b""):
    """Payloads of the answer. Raises OSError for a refusal."""
    return _answer(link, family, flags, _GENL.pack(order, 1) + body)


def dump(link, kind, body):
    """Payloads of all that a kind of request of another netlink protocol lists. Raises OSError for a refusal."""
    return _answer(link, kind, _DUMP, body)


def _answer(link, kind, flags, body):
    link.send(HEADER.pack(HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
    found = []
    while True:
        for kind, payload in messages(link.recv(1 << 18)):
            if kind == _DONE:
                return found
            if kind == _ERROR:
                code = -struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else errno.EPROTO
                if not code:  # what was asked to be acknowledged is done
                    return found
                raise OSError(code, os.strerror(code))
            found.append(payload)
            if not flags:
                return found


def connect(protocol=GENERIC):
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    link.settimeout(2)
    return link


def family(link, name):
    """(number, {multicast group: number}) of a family. Raises OSError where this kernel has none of that name."""
    body = attribute(_FAMILY_NAME, name.encode() + b"\0")
    _command, facts = command(ask(link, _CONTROL, _GETFAMILY, body=body)[0])
    groups = {}
    for entry in _nested(facts.get(_GROUPS, b"")):
        groups[_text(entry.get(_GROUP_NAME))] = number(entry.get(_GROUP_ID))
    return number(facts.get(_FAMILY_ID)), groups


def _nested(data):
    return [attributes(value) for value in attributes(data).values()]


def listen(name, group):
    """A socket that gets what a family tells a group. Raises OSError."""
    link = connect()
    try:
        place = family(link, name)[1].get(group)
        if place is None:
            raise OSError(errno.ENOENT, "the family %s has no group %s" % (name, group))
        link.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, place)
        link.setblocking(False)
    except BaseException:
        link.close()
        raise
    return link


def queues_of_irqs():
    """{interrupt number: lowest queue that it serves}, of the network devices in this namespace whose drivers tell (6.8 and later)."""
    with connect() as link:
        identity, _groups = family(link, "netdev")
        queues = [command(payload)[1] for payload in ask(link, identity, _QUEUE_GET, _DUMP)]
        napis = [command(payload)[1] for payload in ask(link, identity, _NAPI_GET, _DUMP)]
    return join(queues, napis)


def join(queues, napis):
    """See queues_of_irqs; from the attributes of the two answers."""
    irq_of = {number(napi.get(_NAPI_ID)): number(napi.get(_NAPI_IRQ)) for napi in napis}
    found = {}
    for queue in queues:
        irq = irq_of.get(number(queue.get(_QUEUE_NAPI)))
        identity = number(queue.get(_QUEUE_ID))
        if irq is not None and identity is not None:
            found[irq] = min(found.get(irq, identity), identity)
    return found
