# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NICs of a host: one per PCI network function, seen or not as a network device, and hardware interfaces without PCI.

The inventory comes from PCI classes, not from network devices: an interface moved into a pod's namespace leaves sys/class/net,
its function stays. A switch-side representor of a virtual function sits on its PF's device and is no NIC.
"""

from __future__ import annotations

from ..model import netdev as rules, pci
from . import infiniband
from .reader import printable

_FROM_NETDEV = ("speed_mbps", "carrier", "up", "operstate", "rx_queues", "tx_queues")
_FILE_OF = {"speed_mbps": "speed", "up": "flags", "rx_queues": "queues", "tx_queues": "queues"}


class Nic:
    """One NIC: ``function`` (None without PCI), ``devices`` (its Netdev objects, the first gives the name), ``facts``."""

    def __init__(self, function, devices, names):
        self.function = function
        self.devices = devices
        self.names = names  # names of its network devices, also where only the function's own net/ folder tells them
        self.facts = {}

    @property
    def name(self):
        return self.names[0] if self.names else None

    @property
    def bdf(self):
        return self.function.bdf if self.function else None

    @property
    def label(self):
        """What a plan calls it: the device's name, else the PCI address."""
        return self.name or self.bdf


def find(reader, functions, netdevs):
    """[Nic] without interrupts, ordered by PCI address, those without PCI last."""
    ports = infiniband.ports_by_function(reader, functions)
    direct = {}
    loose = []
    for device in netdevs.by_name.values():
        if device.device is None:
            continue
        function = functions.at(device.device)
        if device.direct:
            if function is None:
                reader.note("nics", device.device, "nothing of the PCI function of %s can be read" % device.name)
            else:
                direct.setdefault(device.direct, []).append(device)
        elif function is None and device.below is None or function is not None and not _is_nic(function, ports):
            loose.append(device)  # vmbus, ccw, platform; an adapter on USB
    nics = []
    for bdf in sorted(functions.by_bdf):
        function = functions.by_bdf[bdf]
        if _is_nic(function, ports):
            devices, names = _devices(reader, function, direct.get(bdf, ()))
            nics.append(Nic(function, devices, names))
    nics.extend(Nic(None, [device], [device.name]) for device in sorted(loose, key=lambda device: device.name))
    numa = {nic.bdf: nic.function.numa_node() for nic in nics if nic.function}
    for nic in nics:
        nic.facts = _facts(reader, nic, numa, functions, netdevs, ports.get(nic.bdf, []))
    return nics


def outlines(reader, functions, more=()):
    """[Nic] of every PCI network function, and of those with the addresses `more`, with nothing but the names of their devices.

    For those who look often: network devices of pods, of which a node has hundreds, are not read.
    """
    found = []
    for bdf in sorted(functions.by_bdf):
        function = functions.by_bdf[bdf]
        if bdf in more or _is_nic(function, ()):
            nic = Nic(function, *_devices(reader, function, ()))
            nic.facts = {"irqs": [], "irq_source": None}
            found.append(nic)
    return found


def labels(nics, netdevs):
    """{network device: label of its NIC}, sub-functions (mlx5_core.sf) included."""
    found = {device: nic.label for nic in nics for device in nic.names}
    by_bdf = {nic.bdf: nic.label for nic in nics if nic.bdf}
    for device in netdevs.by_name.values():
        if device.direct is None and device.below in by_bdf:
            found.setdefault(device.name, by_bdf[device.below])
    return found


def _is_nic(function, ports):
    return function.bdf in ports or function.pci_class is not None and pci.network(function.pci_class)


def _devices(reader, function, found):
    """(Netdev objects, names) of a function, first port first, representors left out."""
    own = []
    for device in found:
        if rules.representor(device.text("phys_port_name")):
            device.kind = "virtual"
        else:
            own.append(device)
    if len(own) > 1:
        own.sort(key=lambda device: (device.port(), device.name))
    names = [device.name for device in own]
    if not found:  # a capture without sys/class/net
        for folder in [function.path] + ["%s/%s" % (function.path, name) for name in function.virtio()]:
            for name in reader.tree.listdir(folder + "/net") or ():
                if not rules.representor(reader.text("%s/net/%s/phys_port_name" % (folder, name))):
                    names.append(printable(name))
    return own, names


def _facts(reader, nic, numa, functions, netdevs, ports):
    function = nic.function
    what = "nics.%s." % nic.label
    facts = {
        "name": nic.name,
        "netdevs": nic.names,
        "pci": nic.bdf,
        "infiniband": ports,
        "uppers": _uppers(nic, netdevs),
        "default_route": netdevs.carries_default(nic.names)
        if nic.names
        else False
        if netdevs.default is not None
        else None,
        "channels": None,
        "tso_max_size": None,
        "irqs": [],
        "irq_source": None,
    }
    facts.update(_pci_facts(reader, what, function, numa) if function else _plain_facts(reader, what, nic.devices[0]))
    facts.update(_netdev_facts(reader, what, nic.devices, netdevs))
    return facts


def _uppers(nic, netdevs):
    """Devices stacked directly on the NIC's."""
    found = {upper for device in nic.devices for upper in device.upper}
    found.update(device.name for device in netdevs.by_name.values() if not set(device.lower).isdisjoint(nic.names))
    return sorted(found)


def _pci_facts(reader, what, function, numa):
    node = numa[function.bdf]
    source = "numa_node" if node is not None else None
    physfn = function.physfn()
    if node is None and physfn is not None and numa.get(physfn) is not None:
        node = numa[physfn]
        source = "physfn"
    if node is None:
        reader.note(what + "numa_node", function.path + "/numa_node", function.why_no_node())
        reader.note(what + "numa_source", function.path + "/numa_node", "the node is not known")
    root, bridges = pci.root_and_bridges(function.path)
    vfs = function.vfs()
    total = reader.integer(function.path + "/sriov_totalvfs") if "sriov_totalvfs" in function.names() else None
    facts = {
        "class": None if function.pci_class is None else "0x%06x" % function.pci_class,
        "vendor": function.label("vendor"),
        "device": function.label("device"),
        "driver": function.driver(),
        "numa_node": node,
        "numa_source": source,
        "local_cpulist": function.local_cpulist(what + "local_cpulist"),
        "pcie_root": root,
        "bridges": bridges,
        "function": "vf" if physfn else "pf" if vfs or total else None,
        "physfn": physfn,
        "vfs": vfs,
        "sriov_total": total,
    }
    for field in ("class", "vendor", "device"):
        if facts[field] is None:
            reader.note(what + field, "%s/%s" % (function.path, field), reader.why("%s/%s" % (function.path, field)))
    if facts["driver"] is None:
        reader.note(what + "driver", function.path + "/driver", "no driver is bound, or the link was not captured")
    if root is None:
        reader.note(what + "pcie_root", function.path, "no pciDDDD:BB in the path")
    return facts


def _plain_facts(reader, what, device):
    target = reader.tree.target(device.device + "/driver")
    driver = printable(target.rpartition("/")[2]) or None if target else None
    if driver is None:
        reader.note(what + "driver", device.device + "/driver", "no driver is bound, or the link was not captured")
    node = reader.integer(device.device + "/numa_node", None, 0, 65535)
    if node is None:
        reader.note(what + "numa_node", device.device + "/numa_node", reader.why(device.device + "/numa_node"))
    return {
        "class": None,
        "vendor": None,
        "device": None,
        "driver": driver,
        "numa_node": node,
        "numa_source": None if node is None else "numa_node",
        "local_cpulist": None,
        "pcie_root": None,
        "bridges": [],
        "function": None,
        "physfn": None,
        "vfs": [],
        "sriov_total": None,
    }


def _netdev_facts(reader, what, ports, netdevs):
    """Of a function with several ports (mlx4): up and carrier if one of them is, their speeds together; the rest of the first."""
    device = ports[0] if ports else None
    if device is None:
        path, why = (
            ("sys/class/net", "no network device of this NIC is seen")
            if netdevs.seen
            else ("sys/class/net", reader.tree.why("sys/class/net"))
        )
        for field in _FROM_NETDEV:
            reader.note(what + field, path, why)
        return dict.fromkeys(_FROM_NETDEV)
    received, sent = device.queues()
    facts = {
        "speed_mbps": _sum(port.speed() for port in ports),
        "carrier": _any(port.carrier() for port in ports),
        "up": _any(port.up() for port in ports),
        "operstate": device.operstate(),
        "rx_queues": received,
        "tx_queues": sent,
    }
    for field in _FROM_NETDEV:
        if facts[field] is None:
            path, why = device.why(_FILE_OF.get(field, field))
            reader.note(what + field, path, why)
    return facts


def _any(answers):
    """True if one is, False if all are False, else None."""
    answers = list(answers)
    return True if True in answers else None if None in answers else False


def _sum(speeds):
    known = [speed for speed in speeds if speed is not None]
    return sum(known) if known else None
