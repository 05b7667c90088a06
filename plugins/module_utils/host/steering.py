# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets the number of queues of network devices, and which CPUs send and receive by which. What is wanted is in model/steering.py.

Number of queues: ethtool netlink (Documentation/networking/ethtool-netlink.rst), which needs CAP_NET_ADMIN, as writing xps_cpus and
rps_cpus does. Device names are those of this network namespace.
"""

from __future__ import annotations

import socket
import struct

from ..model import cpulist, steering
from ..model.errors import HostprepError
from . import genl

_NET = "sys/class/net"
_GET, _SET = 17, 18  # ETHTOOL_MSG_CHANNELS_*
_HEADER, _NAME = 1, 2
_KINDS = {"rx_max": 2, "tx_max": 3, "combined_max": 5, "rx": 6, "tx": 7, "combined": 9}
_ESTABLISHED = "01"
_SSH = 22
_NEWADDR, _GETADDR = 20, 22
_IFADDR = struct.Struct("=BBBBI")


# -- number of queues --------------------------------------------------------------------------------------------------


def channels(name):
    """What model/steering.channels takes, of a device. Raises OSError."""
    with genl.connect() as link:
        (answer,) = genl.ask(link, genl.family(link, "ethtool")[0], _GET, body=_device(name))
    facts = genl.command(answer)[1]
    return {kind: genl.number(facts.get(code)) for kind, code in _KINDS.items()}


def set_channels(name, counts):
    """Sets {"combined" | "rx" | "tx": n} of a device. Raises OSError."""
    body = _device(name) + b"".join(
        genl.attribute(_KINDS[kind], struct.pack("=I", number)) for kind, number in sorted(counts.items())
    )
    with genl.connect() as link:
        genl.ask(link, genl.family(link, "ethtool")[0], _SET, genl.ACKNOWLEDGE, body)


def _device(name):
    return genl.attribute(_HEADER | genl.NESTED, genl.attribute(_NAME, name.encode() + b"\0"))


def plan_queues(entries, names_of, kept):
    """Brings the planned NICs to the plan's number of queues. Returns [(priority word "notice" | "warning", line)].

    entries   of affinity.checked
    names_of  {label: [names of its network devices in this namespace]}
    kept      names of the devices that keep their number: those that carry the connection. Without any, nothing is set: which one
              carries it is not known then.
    """
    lines = []
    for entry in entries:
        for name in names_of.get(entry["label"], ()):
            try:
                now = channels(name)
                counts = steering.channels(entry["queues"] or 0, now)
                if not counts:
                    continue
                shown = ", ".join(
                    "%s %s instead of %s" % (kind, number, now[kind]) for kind, number in sorted(counts.items())
                )
                if kept is not None and (not kept or name in kept):
                    why = "it carries the connection" if kept else "which NIC carries the connection is not known"
                    lines.append(("warning", "%s: queues are left as they are (planned: %s): %s" % (name, shown, why)))
                    continue
                set_channels(name, counts)
                lines.append(("notice", "%s: queues set: %s" % (name, shown)))
            except OSError as error:
                lines.append(("warning", "%s: queues are left as they are: %s" % (name, error.strerror or error)))
    return lines


# -- which devices carry the connection --------------------------------------------------------------------------------


def carrying(tree, addresses=()):
    """Names of the devices with a default route, one of these IP addresses, or an ssh connection now, and of all beneath them."""
    found = set(_default_routes(tree))
    wanted = {packed for packed in map(_packed, addresses) if packed} | _ssh_addresses(tree)
    for packed, name in _addresses():
        if packed in wanted:
            found.add(name)
    found.discard("lo")
    todo = list(found)
    while todo:
        for entry in tree.listdir("%s/%s" % (_NET, todo.pop())) or ():
            name = entry[len("lower_") :]
            if entry.startswith("lower_") and name not in found:
                found.add(name)
                todo.append(name)
    return found


def _default_routes(tree):
    for line in (tree.read("proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == words[7] == "00000000":
            yield words[0]
    for line in (tree.read("proc/net/ipv6_route") or "").splitlines():
        words = line.split()
        if len(words) > 9 and words[1] == "00" and not int(words[0], 16):
            yield words[9]


def _packed(text):
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return _plain(socket.inet_pton(family, str(text)))
        except (OSError, ValueError):
            continue
    return None


def _plain(packed):
    """An IPv4 address that is written as an IPv6 one, as IPv4."""
    return packed[12:] if packed.startswith(b"\0" * 10 + b"\xff\xff") else packed


def _ssh_addresses(tree):
    """Own addresses of the connections to the ssh port."""
    found = set()
    for path in ("proc/net/tcp", "proc/net/tcp6"):
        for line in (tree.read(path) or "").splitlines()[1:]:
            words = line.split()
            address, _colon, port = (words[1] if len(words) > 3 else "").partition(":")
            if port and words[3] == _ESTABLISHED and int(port, 16) == _SSH:
                groups = [int(address[place : place + 8], 16) for place in range(0, len(address), 8)]
                found.add(_plain(struct.pack("=%dI" % len(groups), *groups)))  # each group in the machine's byte order
    return found


def _addresses():
    """(packed address, device name) of every address in this namespace."""
    names = dict(socket.if_nameindex())
    with genl.connect(0) as link:
        for payload in genl.dump(link, _GETADDR, _IFADDR.pack(0, 0, 0, 0, 0)):
            if len(payload) >= _IFADDR.size:
                facts = genl.attributes(payload, _IFADDR.size)
                for kind in (1, 2):
                    if kind in facts:
                        yield facts[kind], names.get(_IFADDR.unpack_from(payload)[4])


# -- which CPUs send and receive by which queue ------------------------------------------------------------------------


def steer(tree, entries, names_of, online, off=False):
    """Writes xps_cpus by the queue map and rps_cpus 0, where they differ. Returns [(word, line)] as plan_queues.

    off: both to 0, as drivers that set neither have it.
    """
    lines = []
    for entry in entries:
        for name in names_of.get(entry["label"], ()):
            folder = "%s/%s/queues" % (_NET, name)
            queues = tree.listdir(folder) or ()
            sending = sorted((queue for queue in queues if queue.startswith("tx-")), key=_number)
            wanted = {queue + "/rps_cpus": set() for queue in queues if queue.startswith("rx-")}
            sets = (
                [set() for _queue in sending] if off else steering.transmit(entry["queue_cpus"], len(sending), online)
            )
            wanted.update({queue + "/xps_cpus": cpus for queue, cpus in zip(sending, sets)})
            written, failed = {"xps": 0, "rps": 0}, None
            for path, cpus in sorted(wanted.items()):
                done = _steer(tree, "%s/%s" % (folder, path), cpus)
                if isinstance(done, OSError):
                    failed = failed or "%s: %s" % (path, done.strerror or done)
                elif done:
                    written[path[-8:-5]] += 1
            if any(written.values()):
                lines.append(
                    (
                        "notice",
                        "%s: steering written: %d transmit (XPS), %d receive (RPS)"
                        % (name, written["xps"], written["rps"]),
                    )
                )
            if failed:
                lines.append(("warning", "%s: steering cannot be written: %s" % (name, failed)))
    return lines


def _number(queue):
    return int(queue.rpartition("-")[2])


def _steer(tree, path, cpus):
    """Whether it was written; an OSError where it could not be. A device with one queue has no such map, and that is right."""
    text = tree.read(path)
    if text is None:
        return False
    try:
        if set(cpulist.expand(cpulist.from_mask(text.strip()))) == set(cpus):
            return False
    except HostprepError:
        return False
    place = tree.place(path)
    try:
        with open(place, "w", encoding="ascii") as handle:
            handle.write(cpulist.to_mask(cpulist.compress(cpus)) + "\n")
    except OSError as error:
        return error
    return True
