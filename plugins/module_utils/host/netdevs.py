# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network devices of a host, what kind each is, and what lies beneath bonds, VLANs, bridges and teams.

Source: sys/class/net (Documentation/ABI/testing/sysfs-class-net), proc/net/{route,ipv6_route,vlan/config,bonding/*}.
"""

from __future__ import annotations

import re

from ..model import netdev, pci
from .reader import printable

NET = "sys/class/net"
_IFF_UP = 0x1
_KIND_OF_DEVTYPE = {"bond": "bond", "vlan": "vlan", "bridge": "bridge"}
_TEAM = re.compile(r"team\d*\Z", re.ASCII)
_DIRECT = re.compile(r"virtio\d+\Z", re.ASCII)


class Netdev:
    """One network device.

    path    its folder, link-free, or None for a dangling link
    device  link-free path of the device it sits on ("sys/devices/pci0000:17/.../0000:18:00.0/virtio0"), or None for a virtual one
    direct  BDF of the PCI function it is the interface of, or None: USB adapters and sub-functions sit below one, but are not it
    below   BDF of the PCI function somewhere above it in the device tree, or None
    """

    def __init__(self, reader, name, folder):
        self._reader = reader
        self.name = name
        self.path = reader.tree.real(folder)
        self.names = frozenset(reader.tree.listdir(folder) or ()) if self.path else frozenset()
        self.device = self._device(folder)
        self.direct, self.below = _function(self.device)
        self.lower = []
        self.upper = sorted(printable(entry[6:]) for entry in self.names if entry.startswith("upper_"))
        self.kind = "physical" if self.device else "virtual"

    def _device(self, folder):
        place = self.path or _lexical(folder, self._reader.tree.target(folder))
        if place is None:
            return None
        if place == folder:  # a capture that copied the folder in place of the link
            return self._reader.tree.real(folder + "/device") if "device" in self.names else None
        parent = place.rpartition("/")[0]
        parent = parent[:-4] if parent.endswith("/net") else parent
        return None if parent.startswith("sys/devices/virtual") or not parent.startswith("sys/devices/") else parent

    def integer(self, name, low=0, high=2**31 - 1):
        return self._reader.integer("%s/%s" % (self.path, name), None, low, high) if self.path else None

    def text(self, name):
        return self._reader.text("%s/%s" % (self.path, name)) if self.path else None

    def operstate(self):
        return self._reader.word(self.path + "/operstate") if self.path else None

    def up(self):
        flags = self._reader.hexadecimal(self.path + "/flags") if self.path else None
        return None if flags is None else bool(flags & _IFF_UP)

    def carrier(self):
        """The kernel refuses to tell for an interface that is down: None."""
        found = self.integer("carrier", 0, 1)
        return None if found is None else bool(found)

    def speed(self):
        """Mb/s; None where unknown (down, or a driver without a speed: the kernel prints -1)."""
        found = self.integer("speed", 1, 10000000)
        return None if found == 65535 else found

    def queues(self):
        """(receive, transmit) queue counts, None where not told."""
        if "queues" not in self.names:
            return None, None
        found = self._reader.tree.listdir(self.path + "/queues")
        if found is None:
            return None, None
        return sum(name.startswith("rx-") for name in found), sum(name.startswith("tx-") for name in found)

    def port(self):
        return self.integer("dev_port") or 0

    def why(self, name):
        if self.path is None:
            return "%s/%s" % (NET, self.name), "dangling link"
        path = "%s/%s" % (self.path, name)
        return path, self._reader.why(path)


class Netdevs:
    """Every network device by name, and which devices carry a default route (None where no routing table can be read)."""

    def __init__(self, reader):
        self._reader = reader
        self.by_name = {}
        names = reader.tree.listdir(NET)
        self.seen = names is not None
        if names is None:
            reader.note("netdevs", NET, reader.tree.why(NET))
        for raw in names or ():
            folder = "%s/%s" % (NET, raw)
            if reader.tree.real(folder) is not None and reader.tree.listdir(folder) is None:
                continue  # a control file ("bonding_masters")
            self.by_name[printable(raw)] = Netdev(reader, printable(raw), folder)
        self._lower()
        ipv4 = reader.large("proc/net/route")
        ipv6 = reader.large("proc/net/ipv6_route")
        self.default = None if ipv4 is None and ipv6 is None else netdev.default_route_devices(ipv4, ipv6)
        if self.default is None:
            for what in ("nics.*.default_route", "netdevs.*.default_route"):
                reader.note(what, "proc/net/route", reader.tree.why("proc/net/route"))

    def _lower(self):
        tree = self._reader.tree
        vlans = netdev.vlans(self._reader.large("proc/net/vlan/config"))
        for device in self.by_name.values():
            lower = [entry[6:] for entry in device.names if entry.startswith("lower_")]
            if "bonding" in device.names:
                slaves = tree.read(device.path + "/bonding/slaves")
                if slaves is None:
                    slaves = " ".join(netdev.bond_members(self._reader.large("proc/net/bonding/" + device.name)))
                lower.extend(slaves.split())
            if "brif" in device.names:
                lower.extend(tree.listdir(device.path + "/brif") or ())
            if device.name in vlans:
                lower.append(vlans[device.name])
            device.lower = sorted(set(map(printable, lower)))
            if device.kind == "virtual":
                device.kind = self._kind(device, vlans)

    def _kind(self, device, vlans):
        if "bonding" in device.names:
            return "bond"
        if "bridge" in device.names:
            return "bridge"
        if device.name in vlans:
            return "vlan"
        event = device.text("uevent") if "uevent" in device.names else None
        for line in (event or "").splitlines():
            if line.startswith("DEVTYPE="):
                return _KIND_OF_DEVTYPE.get(line[8:], "virtual")
        return "team" if device.lower and _TEAM.match(device.name) else "virtual"

    def beneath(self, name):
        """Names of the physical devices under a device (itself, if it is one), sorted; loops end where they close."""
        found = set()
        seen = set()
        todo = [name]
        while todo:
            current = todo.pop()
            if current in seen or current not in self.by_name:
                continue
            seen.add(current)
            device = self.by_name[current]
            if device.device is not None:
                found.add(current)
            todo.extend(device.lower)
        return sorted(found)

    def carries_default(self, names):
        """Whether one of these devices carries the default route, alone or under a bond, VLAN or bridge; None when unknown."""
        if self.default is None:
            return None
        below = set()
        for device in self.default:
            below.add(device)
            below.update(self.beneath(device))
        return not below.isdisjoint(names)

    def facts(self, label_of):
        """The topology's ``netdevs`` list. label_of: {name of a NIC's device: the NIC's label}."""
        facts = []
        for name in sorted(self.by_name):
            device = self.by_name[name]
            labels = sorted({label_of[below] for below in self.beneath(name) if below in label_of})
            fact = {
                "name": name,
                "kind": device.kind,
                "lower": device.lower,
                "nics": labels,
                "up": device.up(),
                "carrier": device.carrier(),
                "default_route": None if self.default is None else name in self.default,
            }
            for field, source in (("up", "flags"), ("carrier", "carrier")):
                if fact[field] is None:
                    path, why = device.why(source)
                    self._reader.note("netdevs.%s.%s" % (name, field), path, why)
            facts.append(fact)
        return facts


def _lexical(folder, target):
    """Where a dangling link pointed, without following anything; None where that is not below sys/."""
    if not target:
        return None
    parts = [] if target.startswith("/") else folder.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _function(device):
    """(direct, below) of a device path: see Netdev."""
    parts = device.split("/") if device else []
    for index in range(len(parts) - 1, -1, -1):
        if pci.BDF.match(parts[index]):
            rest = parts[index + 1 :]
            direct = not rest or len(rest) == 1 and bool(_DIRECT.match(rest[0]))
            return (parts[index] if direct else None), parts[index]
    return None, None
