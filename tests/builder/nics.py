# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NICs: from the description's entries to PCI functions with vectors, their virtual functions, netdevs and RDMA devices."""

from __future__ import annotations

import dataclasses
import re

from .drivers import DRIVERS
from .pci import Function
from .spec import NAME_LENGTH, SpecError, interface_name, read

STATES = {"up", "nolink", "down"}
QUEUES = range(0, 4097)
FIELDS = {
    "at": (str, None),
    "dev": (str, None),
    "bus": (str, None),
    "node": (int, None),
    "driver": (set(DRIVERS), None),
    "name": ((str, [str]), None),
    "state": (STATES, "up"),
    "speed": (range(0, 1 << 31), None),
    "queues": (QUEUES, None),
    "mtu": (range(68, 65536), 1500),
    "pin": (str, None),
    "ceqs": (QUEUES, 0),
    "hca": ((str, bool), None),
    "link": ({"ethernet", "infiniband"}, "ethernet"),
    "vfs": (dict, None),
    "representors": (range(0, 1025), 0),
    "vendor": (str, None),
    "device": (str, None),
    "class": (str, None),
    "named": (bool, True),
}
VF_FIELDS = {
    "count": (range(1, 257), 1),
    "driver": (set(DRIVERS), None),
    "at": (str, None),
    "node": (int, None),
    "queues": (QUEUES, None),
    "state": (STATES, "up"),
    "named": (bool, True),
}


@dataclasses.dataclass
class Nic:
    """One network function. names are its netdevs (none where none is seen); folder is below the root, or None."""

    driver_name: str
    folder: str
    names: list
    state: str
    speed: int
    queues: int
    kernel: object
    mtu: int = 1500
    link: str = "ethernet"
    function: Function | None = None
    bus: str | None = None
    pin: str | None = None
    ceqs: int = 0
    hca_name: str | None = None
    virtio: int | None = None
    physical: Nic | None = None
    virtuals: list = dataclasses.field(default_factory=list)
    representors: int = 0

    @property
    def driver(self):
        return DRIVERS[self.driver_name]

    @property
    def name(self):
        return self.names[0] if self.names else "eth0"

    @property
    def address(self):
        return self.function.address

    @property
    def parent(self):
        """The device whose net/ folder holds the netdevs: the function, or virtio's device below it."""
        return f"{self.folder}/virtio{self.virtio}" if self.virtio is not None else self.folder

    @property
    def tx_queues(self):
        return self.queues if self.driver.tx is None else self.driver.tx


def add(machine, entry, where):
    """The NIC of one entry of the description's `nics`, and its virtual functions."""
    want = read(entry, where, FIELDS)
    if want.driver is None:
        raise SpecError(f"{where} needs driver")
    driver = DRIVERS[want.driver]
    if bool(want.at) != driver.pci or bool(want.dev) == driver.pci:
        raise SpecError(
            f"{where}: driver {want.driver} needs {'at' if driver.pci else 'dev'}, and not {'dev' if driver.pci else 'at'}"
        )
    function = machine.bus.add(want.at, want.node, where) if want.at else None
    if function:
        _identify(function, want, driver)
    names = _names(want, function, where)
    queues = want.queues if want.queues is not None else driver.queues(len(machine.cpus.online))
    nic = Nic(
        want.driver,
        function.folder if function else f"sys/devices/{want.dev}",
        names,
        want.state,
        driver.speed if want.speed is None else want.speed,
        queues,
        machine.kernel,
        want.mtu,
        want.link,
        function,
        want.bus,
        want.pin,
        want.ceqs,
        representors=want.representors,
    )
    if driver.parent == "virtio":
        nic.virtio = machine.next_of("virtio")
        function.driver = "virtio-pci"
    if driver.hca and want.hca is not False:
        nic.hca_name = want.hca if isinstance(want.hca, str) else f"{driver.hca}{machine.next_of(driver.hca)}"
    elif isinstance(want.hca, str):
        nic.hca_name = want.hca
    machine.nics.append(nic)
    _vectors(nic)
    if want.vfs:
        _virtual(machine, nic, want, where)
    return nic


def _identify(function, want, driver):
    vendor, device = driver.ids.split(":")
    function.kind, function.driver = "nic", want.driver
    function.vendor, function.device = want.vendor or vendor, want.device or device
    function.pci_class = getattr(want, "class") or (
        "020700" if want.link == "infiniband" and driver.pci_class == "020000" else driver.pci_class
    )


def _names(want, function, where):
    if want.name is None or not want.named:
        if not want.named or want.driver in ("none", "vfio-pci", "qib"):
            return []
        if function is None:
            raise SpecError(f"{where} needs name: there is no PCI address to make one from")
        domain, bus, slot, part = re.fullmatch(r"([0-9a-f]+):(..):(..)\.(.)", function.address).groups()
        prefix = "" if int(domain, 16) == 0 else f"P{int(domain, 16)}"
        kind = "ib" if want.link == "infiniband" else "en"
        tail = "np0" if want.driver in ("mlx5_core", "bnxt_en", "ice") and kind == "en" else ""
        name = f"{kind}{prefix}p{int(bus, 16)}s{int(slot, 16)}f{part}{tail}"
        return [name if len(name) <= NAME_LENGTH else name.removesuffix(tail)]
    names = want.name if isinstance(want.name, list) else [want.name]
    return [interface_name(name, where) for name in names]


def _vectors(nic):
    if not nic.function:
        return
    nic.function.vectors = nic.driver.layout(nic)
    if nic.state == "down" and not nic.driver.probe:
        for vector in nic.function.vectors:
            if vector.kind in ("queue", "rx", "tx") or vector.name == nic.name:
                vector.name = None


def _virtual(machine, nic, want, where):
    vf = read(want.vfs, f"{where}: vfs", VF_FIELDS)
    name = vf.driver or nic.driver.vf
    if name is None:
        raise SpecError(f"{where}: driver {nic.driver_name} has no virtual functions: name a driver under vfs")
    domain, bus, slot, part = re.fullmatch(r"([0-9a-f]+):(..):(..)\.(.)", nic.address).groups()
    first = (int(bus, 16) << 8) + (int(slot, 16) << 3) + int(part) + 2
    if vf.at:
        found = re.fullmatch(r"(?:[0-9a-f]+:)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", vf.at)
        if not found:
            raise SpecError(f"{where}: vfs: at is {vf.at!r}: write one address such as '1a:00.2'")
        first = (int(found[1], 16) << 8) + (int(found[2], 16) << 3) + int(found[3])
    above = want.at.rpartition("/")[0]
    nic.function.files.update(
        {"sriov_totalvfs": max(vf.count, 8), "sriov_numvfs": vf.count, "sriov_offset": 2, "sriov_stride": 1}
    )
    for index in range(vf.count):
        number = first + index
        address = f"{domain}:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"
        base = nic.names[0] if nic.names else "eth"
        entry = {
            "at": f"{above}/{address}" if above else address,
            "driver": name,
            "node": vf.node if vf.node is not None else nic.function.node,
            "state": vf.state,
            "queues": vf.queues,
            "named": vf.named,
            "device": {"mlx5_core": "101e", "iavf": "1889"}.get(name),
        }
        if vf.named and name not in ("vfio-pci", "none"):
            entry["name"] = f"{base[: NAME_LENGTH - 4]}v{index}"
        one = add(machine, {key: value for key, value in entry.items() if value is not None}, f"{where}: vfs")
        one.physical = nic
        nic.virtuals.append(one)
        one.function.links["physfn"] = nic.folder
        nic.function.links[f"virtfn{index}"] = one.folder
