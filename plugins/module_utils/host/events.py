# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may have moved interrupts, as the kernel tells it. Each source is a class with ``name``, ``fileno()``, ``close()`` and

    events() -> [text]    what happened since the last call, in a person's words; [] for what does not concern NICs

Making one raises OSError where the kernel refuses; ``events`` raises OSError where something was lost (ENOBUFS) or the source ended.
A node with pods makes and removes many virtual network devices: they are no events.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct

from . import genl

_KOBJECT_UEVENT = 15
_ROUTE = 0
_LINKS = 1  # multicast group of links, and of the kernel's own uevents
_BUFFER = 1 << 20
_SUBSYSTEMS = ("net", "pci", "cpu", "virtio", "auxiliary")
_NEWLINK, _DELLINK = 16, 17
_IFINFO = struct.Struct("=BxHiII")
_IFLA_IFNAME, _IFLA_LINKINFO, _INFO_KIND = 3, 18, 1
_ETHTOOL = {13: "features", 15: "private flags", 17: "ring sizes", 19: "channels"}
_MODIFY, _DELETE_SELF, _OVERFLOW = 0x2, 0x400, 0x4000
_EVENT = struct.Struct("=iIII")


class _Netlink:
    """A socket that is read until it is empty."""

    def __init__(self, link):
        self._link = link

    def fileno(self):
        return self._link.fileno()

    def close(self):
        self._link.close()

    def events(self):
        found = []
        while True:
            try:
                data, address = self._link.recvfrom(1 << 16)
            except BlockingIOError:
                return found
            if address[0] == 0:  # from the kernel: any process may send to a group
                for text in self.parse(data):
                    if text not in found:
                        found.append(text)


def _bound(protocol, groups):
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol)
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        link.bind((0, groups))
    except BaseException:
        link.close()
        raise
    return link


class Uevents(_Netlink):
    """Devices, drivers and CPUs that come and go."""

    name = "uevents"

    def __init__(self):
        super().__init__(_bound(_KOBJECT_UEVENT, _LINKS))

    @staticmethod
    def parse(data):
        fields = dict(part.split("=", 1) for part in data.decode("utf-8", "replace").split("\0") if "=" in part)
        subsystem, path = fields.get("SUBSYSTEM"), fields.get("DEVPATH", "")
        if subsystem not in _SUBSYSTEMS or path.startswith("/devices/virtual/"):
            return []
        what = fields.get("INTERFACE") or fields.get("PCI_SLOT_NAME") or path.rpartition("/")[2]
        return ["%s %s: %s" % (subsystem, what, fields.get("ACTION", "changed"))]


class Links(_Netlink):
    """Network devices that are set up or down, renamed or moved: drivers request interrupts when a device is opened."""

    name = "links"

    def __init__(self):
        super().__init__(_bound(_ROUTE, _LINKS))

    @staticmethod
    def parse(data):
        found = []
        for kind, payload in genl.messages(data):
            if kind not in (_NEWLINK, _DELLINK) or len(payload) < _IFINFO.size:
                continue
            facts = genl.attributes(payload, _IFINFO.size)
            if _INFO_KIND in genl.attributes(facts.get(_IFLA_LINKINFO, b"")):
                continue  # a virtual device (veth, bond, vlan …)
            flags = _IFINFO.unpack_from(payload)[3]
            state = "gone" if kind == _DELLINK else "up" if flags & 1 else "down"
            found.append(
                "link %s: %s" % (facts.get(_IFLA_IFNAME, b"?").rstrip(b"\0").decode("utf-8", "replace"), state)
            )
        return found


class Ethtool(_Netlink):
    """Settings of network devices, the number of channels among them, whichever interface changed them."""

    name = "ethtool"

    def __init__(self):
        super().__init__(genl.listen("ethtool", "monitor"))

    @staticmethod
    def parse(data):
        found = []
        for kind, payload in genl.messages(data):
            number, _facts = genl.command(payload)
            if kind >= 0x10 and number in _ETHTOOL:
                found.append("ethtool: %s changed" % _ETHTOOL[number])
        return found


class Devlink(_Netlink):
    """Reloads and reconfigurations of whole adapters."""

    name = "devlink"

    def __init__(self):
        super().__init__(genl.listen("devlink", "config"))

    @staticmethod
    def parse(data):
        return ["devlink: an adapter changed" for kind, _payload in genl.messages(data) if kind >= 0x10][:1]


class Masks:
    """Writes to the masks of interrupts, by hand or by another program, which send no other event.

    Through inotify of the C library, which Python has no module for. The kernel reports only writes through the same mount of
    /proc: a container with a /proc of its own is not seen. A folder of /proc/irq that was removed and made again has new files,
    which the old watches do not cover: ``watch`` is called after each look.
    """

    name = "masks"

    def __init__(self):
        self._library = ctypes.CDLL(None, use_errno=True)
        self._handle = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise self._error()
        self._watched = {}  # watch -> interrupt number
        self.missed = 0

    @staticmethod
    def _error():
        number = ctypes.get_errno()
        return OSError(number, os.strerror(number))

    def fileno(self):
        return self._handle

    def close(self):
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def watch(self, paths):
        """Watches these files, [(interrupt number, path)], and no others; ``missed`` counts those that the kernel refused.

        A path that is watched already, and is still the same file, keeps its watch.
        """
        watched = {}
        self.missed = 0
        for number, path in paths:
            watch = self._library.inotify_add_watch(self._handle, os.fsencode(path), _MODIFY | _DELETE_SELF)
            if watch >= 0:
                watched[watch] = number
            elif os.path.exists(path):
                self.missed += 1
        for watch in set(self._watched) - set(watched):
            self._library.inotify_rm_watch(self._handle, watch)
        self._watched = watched

    def events(self):
        numbers = set()
        lost = False
        while True:
            try:
                data = os.read(self._handle, 1 << 16)
            except BlockingIOError:
                break
            place = 0
            while place + _EVENT.size <= len(data):
                watch, mask, _cookie, length = _EVENT.unpack_from(data, place)
                place += _EVENT.size + length
                lost = lost or bool(mask & _OVERFLOW)
                if mask & (_MODIFY | _DELETE_SELF) and watch in self._watched:
                    numbers.add(self._watched[watch])
        if not numbers:
            return ["masks written: too many to say which"] if lost else []
        some = ", ".join(str(number) for number in sorted(numbers)[:4])
        return ["mask written: irq %s%s" % (some, " and %d more" % (len(numbers) - 4) if len(numbers) > 4 else "")]


class Signals:
    """SIGTERM and SIGINT ("stop"), SIGHUP ("look again"), as readable events; call it in the main thread."""

    name = "signals"

    def __init__(self):
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self.stopped = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._noted)
        signal.set_wakeup_fd(self._write.fileno())

    def _noted(self, number, _frame):
        if number != signal.SIGHUP:
            self.stopped = True

    def fileno(self):
        return self._read.fileno()

    def close(self):
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        self._read.close()
        self._write.close()

    def events(self):
        found = b""
        try:
            while True:
                found += self._read.recv(64)
        except BlockingIOError:
            pass
        return ["asked by a signal"] if signal.SIGHUP in found else []


SOURCES = (Uevents, Links, Ethtool, Devlink, Masks)
