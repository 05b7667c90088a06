# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI functions of a host, and which of them are accelerators.

Source: sys/bus/pci/devices (Documentation/ABI/testing/sysfs-bus-pci). Captures often carry links whose device was not captured:
they are counted, and listed as one unknown.
"""

from __future__ import annotations

import re

from ..model import pci
from .reader import printable

BUS = "sys/bus/pci/devices"
_ALIAS = re.compile(
    r"pci:v0000(?P<vendor>[0-9A-F]{4})d0000(?P<device>[0-9A-F]{4})sv\w{8}sd\w{8}bc(?P<class>[0-9A-F]{2}sc[0-9A-F]{2}i[0-9A-F]{2})\Z",
    re.ASCII,
)
_VIRTFN = re.compile(r"virtfn(\d{1,5})\Z", re.ASCII)
_VIRTIO = re.compile(r"virtio\d{1,6}\Z", re.ASCII)


class Function:
    """One PCI function: ``bdf``, ``path`` (link-free, below the root), ``pci_class`` (number or None)."""

    def __init__(self, reader, bdf, path):
        self._reader = reader
        self.bdf = bdf
        self.path = path
        self.pci_class = reader.hexadecimal(path + "/class", None, 0xFFFFFF)
        self._names = None
        self._alias = None
        if self.pci_class is None:
            self.pci_class = self._from_alias("class")

    def names(self):
        """Names in the function's folder."""
        if self._names is None:
            self._names = self._reader.tree.listdir(self.path) or []
        return self._names

    def label(self, name):
        """Text of an id file ("0x8086") or None."""
        found = self._reader.hexadecimal("%s/%s" % (self.path, name), None, 0xFFFF)
        if found is None:
            found = self._from_alias(name)
        return None if found is None else "0x%04x" % found

    def _from_alias(self, name):
        """Number of an id file that was not captured, from modalias, which holds the same ids."""
        if self._alias is None:
            match = _ALIAS.match(self._reader.text(self.path + "/modalias") or "")
            self._alias = (
                {key: int(re.sub("[sci]", "", value), 16) for key, value in match.groupdict().items()} if match else {}
            )
        return self._alias.get(name)

    def driver(self):
        target = self._reader.tree.target(self.path + "/driver")
        return printable(target.rpartition("/")[2]) or None if target else None

    def numa_node(self):
        """Node id; None for -1 (the firmware does not say) or an unreadable file, without a note: the caller may know better."""
        return self._reader.integer(self.path + "/numa_node", None, 0, 65535)

    def local_cpulist(self, what):
        return self._reader.cpulist(self.path + "/local_cpulist", self.path + "/local_cpus", what)

    def boot_vga(self):
        found = self._reader.integer(self.path + "/boot_vga", None, 0, 1)
        return None if found is None else bool(found)

    def physfn(self):
        """BDF of the physical function of a virtual one, or None."""
        target = self._reader.tree.target(self.path + "/physfn")
        last = target.rstrip("/").rpartition("/")[2] if target else ""
        return last if pci.BDF.match(last) else None

    def vfs(self):
        """BDFs of the virtual functions, by their number."""
        found = []
        for name in self.names():
            match = _VIRTFN.match(name)
            last = (
                (self._reader.tree.target("%s/%s" % (self.path, name)) or "").rstrip("/").rpartition("/")[2]
                if match
                else ""
            )
            if pci.BDF.match(last):
                found.append((int(match.group(1)), last))
        return [bdf for _number, bdf in sorted(found)]

    def msi_irqs(self):
        """Sorted interrupt numbers of the function's MSI vectors; None where it has no such folder."""
        found = self._reader.tree.listdir(self.path + "/msi_irqs")
        return (
            None
            if found is None
            else sorted(int(name) for name in found if name.isdigit() and name.isascii() and len(name) < 10)
        )

    def virtio(self):
        """Names of virtio devices on this function ("virtio0")."""
        return [name for name in self.names() if _VIRTIO.match(name)]

    def why_no_node(self):
        text = self._reader.tree.read(self.path + "/numa_node")
        return "-1: the firmware does not say" if text == "-1" else self._reader.why(self.path + "/numa_node")


class Functions:
    """Every PCI function that can be read, by BDF, and the BDFs that are only names (dangling links)."""

    def __init__(self, reader):
        self._reader = reader
        self.by_bdf = {}
        self.dangling = []
        self.seen = True
        names = reader.tree.listdir(BUS)
        if names is None:
            self.seen = False
            reader.note("nics", BUS, reader.tree.why(BUS))
            reader.note("gpus", BUS, reader.tree.why(BUS))
        classless = []
        for bdf in names or ():
            if not pci.BDF.match(bdf):
                continue
            path = reader.tree.real("%s/%s" % (BUS, bdf))
            if path is None:
                self.dangling.append(bdf)
                continue
            function = self.by_bdf[bdf] = Function(reader, bdf, path)
            if function.pci_class is None:
                classless.append(bdf)
        for bdfs, why in ((self.dangling, "dangling link"), (classless, "no readable class")):
            if bdfs:
                for what in ("nics", "gpus"):
                    reader.note(
                        what, "%s (%s)" % (BUS, why), "%s: %d functions, the first is %s" % (why, len(bdfs), bdfs[0])
                    )

    def at(self, path):
        """The function that a device path belongs to: its last BDF component. Adds it where the bus folder did not list it.

        None where the path has no BDF, or nothing about the function can be read.
        """
        parts = path.split("/")
        for index in range(len(parts) - 1, -1, -1):
            if pci.BDF.match(parts[index]):
                bdf = parts[index]
                if bdf not in self.by_bdf:
                    function = Function(self._reader, bdf, "/".join(parts[: index + 1]))
                    if function.pci_class is None:
                        return None
                    self.by_bdf[bdf] = function
                return self.by_bdf[bdf]
        return None


def gpus(reader, functions):
    """The topology's ``gpus`` and ``display`` lists."""
    found = []
    shown = []
    for bdf in sorted(functions.by_bdf):
        function = functions.by_bdf[bdf]
        if function.pci_class is None:
            continue
        if pci.display(function.pci_class):
            shown.append(bdf)
        if not pci.may_be_accelerator(function.pci_class):
            continue
        vendor = function.label("vendor")
        if vendor is None:
            reader.note("gpus", function.path + "/vendor", reader.why(function.path + "/vendor"))
            continue
        counts = pci.accelerator(int(vendor, 16), function.pci_class, function.boot_vga())
        if counts is None:
            reader.note(
                "gpus",
                function.path + "/boot_vga",
                "an Intel display is an accelerator only if it is not the boot display",
            )
        if counts:
            found.append(_gpu(reader, function, vendor))
    return found, shown


def _gpu(reader, function, vendor):
    what = "gpus.%s." % function.bdf
    node = function.numa_node()
    if node is None:
        reader.note(what + "numa_node", function.path + "/numa_node", function.why_no_node())
    device = function.label("device")
    if device is None:
        reader.note(what + "device", function.path + "/device", reader.why(function.path + "/device"))
    root, bridges = pci.root_and_bridges(function.path)
    if root is None:
        reader.note(what + "pcie_root", function.path, "no pciDDDD:BB in the path")
    return {
        "pci": function.bdf,
        "vendor": vendor,
        "device": device,
        "class": "0x%06x" % function.pci_class,
        "numa_node": node,
        "pcie_root": root,
        "bridges": bridges,
        "driver": function.driver(),
        "name": pci.name(int(vendor, 16), int(device, 16)) if device else None,
    }
