# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI functions and the bridges above them: from paths in the description to sys/devices/pciDDDD:BB/… and sys/bus/pci."""

from __future__ import annotations

import dataclasses
import re

from . import lists
from .spec import SpecError, read

# kind -> class, vendor, device, driver, how many vectors ("cpus": one per online CPU and one more)
KINDS = {
    "h100": ("030200", "10de", "2330", "nvidia", 1),
    "h200": ("030200", "10de", "2335", "nvidia", 1),
    "a100": ("030200", "10de", "20b2", "nvidia", 1),
    "l40s": ("030200", "10de", "26b9", "nvidia", 1),
    "b200": ("030200", "10de", "2901", "nvidia", 1),
    "gb10": ("030200", "10de", "2e12", "nvidia", 1),
    "geforce": ("030000", "10de", "2684", "nvidia", 1),
    "hdaudio": ("040300", "10de", "22ba", "snd_hda_intel", 1),
    "nvswitch": ("068000", "10de", "22a3", "nvidia-nvswitch", 1),
    "mi300x": ("120000", "1002", "74a1", "amdgpu", 1),
    "mi210": ("038000", "1002", "740f", "amdgpu", 1),
    "gaudi2": ("120000", "1da3", "1020", "habanalabs", 1),
    "flex170": ("038000", "8086", "56c0", "i915", 1),
    "igpu": ("030000", "8086", "4680", "i915", 1),
    "bmc": ("030000", "1a03", "2000", "ast", 0),
    "matrox": ("030000", "102b", "0536", "mgag200", 0),
    "qxl": ("030000", "1b36", "0100", "qxl", 0),
    "nvme": ("010802", "144d", "a80a", "nvme", "cpus"),
    "virtio-blk": ("010000", "1af4", "1042", "virtio-pci", "cpus"),
    "ahci": ("010601", "8086", "1bd2", "ahci", 1),
    "xhci": ("0c0330", "8086", "1bcd", "xhci_hcd", 1),
    "vmd": ("010400", "8086", "28c0", "vmd", 0),
}
FIELDS = {
    "kind": (set(KINDS), None),
    "at": ((str, [str]), None),
    "node": (int, None),
    "boot_vga": (range(0, 2), None),
    "vectors": (range(0, 4097), None),
    "driver": (str, None),
    "class": (str, None),
    "vendor": (str, None),
    "device": (str, None),
}
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])\Z")


@dataclasses.dataclass
class Vector:
    """One interrupt of a device: its index there, handler's name (None: allocated, not requested), and what it serves."""

    index: int
    name: str | None
    kind: str = "misc"
    queue: int | None = None
    managed: bool = False
    irq: int | None = None
    mask: list = dataclasses.field(default_factory=list)
    effective: int | None = None


@dataclasses.dataclass
class Function:
    """One PCI function. path is below sys/devices; above are its bridges' addresses, root port first."""

    address: str
    path: str
    root: str
    above: list
    pci_class: str = "060400"
    vendor: str = "8086"
    device: str = "352a"
    driver: str = "pcieport"
    node: int = -1
    kind: str = "bridge"
    msi: str = "msix"
    boot_vga: int | None = None
    vectors: list = dataclasses.field(default_factory=list)
    files: dict = dataclasses.field(default_factory=dict)
    links: dict = dataclasses.field(default_factory=dict)

    @property
    def folder(self):
        return f"sys/devices/{self.path}"


class Bus:
    """All PCI functions by address."""

    def __init__(self, roots, nodes):
        self.functions = {}
        self.nodes = nodes
        self.roots = {}
        for name, node in roots.items():
            domain, _colon, bus = ("0000:" + str(name).zfill(2)).rpartition(":")
            self.roots[f"pci{domain.rpartition(':')[2] or domain}:{bus}"] = self._node(node, f"roots: {name}")

    def _node(self, node, where):
        if node is None or node == -1:
            return -1
        if not isinstance(node, int) or node not in self.nodes.ids:
            raise SpecError(
                f"{where}: node {node!r} is named, and the machine has nodes {lists.compress(self.nodes.ids)}"
            )
        return node

    def add(self, at, node, where):
        """The function at the end of a path; bridges before it are made where they are not there yet."""
        parts = str(at).split("/")
        while parts and not _ADDRESS.match(parts[0]) and len(parts) > 1:
            parts.pop(0)
        path = "/".join(str(at).split("/")[: -len(parts)])
        domain, root, above = None, None, []
        for place, part in enumerate(parts):
            found = _ADDRESS.match(part)
            if not found:
                raise SpecError(
                    f"{where}: at is {at!r}: write PCI addresses from the root bus down in quotes, such as '17:01.0/18:00.0'"
                )
            given, bus, slot, function = found.groups()
            if domain is None or (given and given != domain):
                domain = given or "0000"
                top = f"pci{domain}:{bus}"
                root = root or top
                path = f"{path}/{top}" if path else top
            address = f"{domain}:{bus}:{slot}.{function}"
            path = f"{path}/{address}"
            last = place == len(parts) - 1
            known = self.functions.get(address)
            if known and (last or known.path != path):
                raise SpecError(f"{where}: {address} is described twice")
            if not known:
                near = self._node(node, where) if node is not None else self.roots.get(root, -1)
                self.roots.setdefault(root, near)
                known = Function(address, path, root, list(above), node=near if last else self.roots[root])
                self.functions[address] = known
                if not above and not last:
                    known.msi = "msi"
                    known.vectors = [Vector(0, "PCIe PME")]
            above.append(address)
        return known

    def describe(self, entry, number, machine):
        """Adds what one entry of the description's `pci` list says."""
        where = f"pci[{number}]"
        want = read(entry, where, FIELDS)
        if want.kind is None or want.at is None:
            raise SpecError(f"{where} needs kind and at")
        pci_class, vendor, device, driver, vectors = KINDS[want.kind]
        for at in want.at if isinstance(want.at, list) else [want.at]:
            one = self.add(at, want.node, where)
            one.kind, one.boot_vga = want.kind, want.boot_vga
            one.pci_class = getattr(want, "class") or pci_class
            one.vendor, one.device = want.vendor or vendor, want.device or device
            one.driver = want.driver or driver
            if one.pci_class.startswith("0300") and one.boot_vga is None:
                one.boot_vga = int(want.kind in ("bmc", "matrox", "qxl", "igpu"))
            count = want.vectors if want.vectors is not None else vectors
            one.vectors = [] if one.driver != driver else _vectors(one, count, machine)


def _vectors(one, count, machine):
    if one.kind in ("nvme", "virtio-blk"):
        queues = len(machine.cpus.online) if count == "cpus" else count
        number = machine.next_of("nvme" if one.kind == "nvme" else "virtio")
        first = Vector(0, f"nvme{number}q0" if one.kind == "nvme" else f"virtio{number}-config")
        name = f"nvme{number}q%d" if one.kind == "nvme" else f"virtio{number}-req.%d"
        start = 1 if one.kind == "nvme" else 0
        return [first, *(Vector(index + 1, name % (index + start), managed=True) for index in range(queues))]
    one.msi = "msi"
    names = {"ahci": f"ahci[{one.address}]", "nvswitch": "nvidia-nvswitch"}
    return [Vector(index, names.get(one.kind, one.driver)) for index in range(count)]


def emit(tree, machine):
    tree.folder("sys/bus/pci/devices")
    for one in machine.bus.functions.values():
        top = one.folder
        ids = machine.nodes.online_cpus(one.node, machine.cpus)
        files = {
            "class": f"0x{one.pci_class}",
            "vendor": f"0x{one.vendor}",
            "device": f"0x{one.device}",
            "subsystem_vendor": f"0x{one.vendor}",
            "subsystem_device": "0x0001",
            "revision": "0x01",
            "enable": int(one.driver != "none"),
            "irq": one.vectors[0].irq if one.vectors else 0,
            "local_cpulist": lists.compress(ids),
            "local_cpus": lists.mask(ids, machine.cpus.bits),
            **one.files,
        }
        if machine.nodes.exist:
            files["numa_node"] = one.node
        if one.boot_vga is not None:
            files["boot_vga"] = one.boot_vga
        for name, value in files.items():
            tree.line(f"{top}/{name}", value)
        for vector in one.vectors:
            tree.line(f"{top}/msi_irqs/{vector.irq}", one.msi)
        tree.link(f"{top}/subsystem", "sys/bus/pci")
        if one.driver != "none":
            tree.folder(f"sys/bus/pci/drivers/{one.driver}")
            tree.link(f"{top}/driver", f"sys/bus/pci/drivers/{one.driver}")
        for name, target in one.links.items():
            tree.link(f"{top}/{name}", target)
        tree.link(f"sys/bus/pci/devices/{one.address}", top)
