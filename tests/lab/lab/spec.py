# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads machines.yml into plain objects and refuses what the lab cannot build, naming the key.

Pure but for reading the file. MAC and IP addresses follow from a machine's place in the file, so that every machine's
/etc/hosts can name all the others.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import LabError

KINDS = ("qemu", "nspawn")
BOOTS = ("grub", "grub-lvm", "grub-btrfs", "systemd-boot")
NIC_MODELS = ("virtio-net-pci", "igb", "e1000e", "vmxnet3")
DISK_MODELS = ("virtio-blk-pci", "nvme")
NETS = ("user", "lab")
DISTRIBUTIONS = ("bookworm", "trixie", "forky", "sid")
HOST_ROOT = "0"  # the root bus that every machine has
FIRST_ADDRESS = 10  # of the first machine in the subnet; the bridge has .1
USER_NET_ADDRESS = "10.0.2.15/24"  # QEMU's user network forwards to this one

_QEMU_KEYS = {
    "kind", "summary", "distribution", "kernel", "boot", "packages", "disabled", "kernel_args", "cpus", "memory_mib", "roots", "nics",
    "spare_ports", "iommu", "disks", "timeout",
}  # fmt: skip
_NSPAWN_KEYS = {"kind", "summary", "distribution", "packages", "disabled", "timeout", "count"}


@dataclass(frozen=True)
class Nic:
    """A network card: ``net`` is ``user`` (management, forwarded to 127.0.0.1) or ``lab`` (a tap on the lab's bridge)."""

    name: str
    model: str
    net: str
    root: str
    queues: int
    mac: str
    address: str | None  # with its prefix length


@dataclass(frozen=True)
class Disk:
    gib: int
    model: str


@dataclass(frozen=True)
class Cpus:
    sockets: int
    cores: int
    threads: int

    @property
    def total(self) -> int:
        return self.sockets * self.cores * self.threads


@dataclass(frozen=True)
class Machine:
    """One machine; the fields after ``timeout`` are empty for nspawn hosts."""

    name: str
    kind: str
    summary: str
    distribution: str
    packages: tuple[str, ...]
    disabled: tuple[str, ...]
    address: (
        str  # on the lab's network, without prefix length; an nspawn host always has it, a QEMU machine with a lab NIC
    )
    timeout: int
    kernel: str = ""
    boot: str = ""
    kernel_args: tuple[str, ...] = ()
    cpus: Cpus = Cpus(0, 0, 0)
    memory_mib: tuple[int, ...] = ()
    roots: tuple[tuple[str, int], ...] = ()  # root bus, NUMA node
    nics: tuple[Nic, ...] = ()
    spare_ports: tuple[str, ...] = ()
    iommu: bool = False  # an IOMMU that remaps interrupts
    disks: tuple[Disk, ...] = ()

    @property
    def node_cpus(self) -> list[range]:
        """The CPU ids of each NUMA node."""
        share = self.cpus.total // len(self.memory_mib)
        return [range(n * share, (n + 1) * share) for n in range(len(self.memory_mib))]


@dataclass(frozen=True)
class Lab:
    machines: Mapping[str, Machine]
    subnet: ipaddress.IPv4Network

    @property
    def gateway(self) -> str:
        return str(self.subnet[1])

    @property
    def hosts(self) -> dict[str, str]:
        """The machines that have an address on the lab's network: {name: address}."""
        return {
            name: m.address
            for name, m in self.machines.items()
            if m.kind == "nspawn" or any(n.net == "lab" for n in m.nics)
        }

    def machine(self, name: str) -> Machine:
        try:
            return self.machines[name]
        except KeyError:
            raise LabError(f"There is no machine {name!r} in the lab: it has {', '.join(self.machines)}.") from None


def load(path: Path) -> Lab:
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.safe_load(text)
    except OSError as error:
        raise LabError(f"{path} could not be read ({error.strerror}).") from None
    except yaml.YAMLError as error:
        raise LabError(f"{path} is not YAML ({' '.join(str(error).split())}).") from None
    except UnicodeDecodeError as error:
        raise LabError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}).") from None
    try:
        return parse(data)
    except LabError as error:
        raise LabError(f"{path.name}: {error}") from None


def parse(data: Any) -> Lab:
    """The lab from the file's plain data; raises LabError, naming the key, on anything that it does not know."""
    top = _mapping(data, "the file", {"network", "package_sets", "defaults", "machines"})
    try:
        subnet = ipaddress.IPv4Network(
            str(_mapping(top.get("network", {}), "network", {"subnet"}).get("subnet", "10.88.0.0/24"))
        )
    except ValueError as error:
        raise LabError(f"network.subnet is no IPv4 network ({error}).") from None
    if not subnet.is_private:
        raise LabError(f"network.subnet is {subnet}; only a private network is allowed.")
    sets = {
        name: _names(names, f"package_sets.{name}")
        for name, names in _mapping(top.get("package_sets", {}), "package_sets").items()
    }
    defaults = _mapping(top.get("defaults", {}), "defaults", set(KINDS))
    machines: dict[str, Machine] = {}
    for name, given in _mapping(top.get("machines"), "machines").items():
        if not (isinstance(name, str) and name.isascii() and name.isalnum() and name.islower() and len(name) <= 12):
            raise LabError(f"the machine name {name!r} is not allowed; use up to 12 lower-case letters and digits.")
        given = _mapping(given, name)
        kind = given.get("kind")
        if kind not in KINDS:
            raise LabError(f"{name}.kind is {kind!r}; allowed are {', '.join(KINDS)}.")
        merged = {**_mapping(defaults.get(kind, {}), f"defaults.{kind}"), **given}
        _mapping(merged, name, _QEMU_KEYS if kind == "qemu" else _NSPAWN_KEYS)
        count = _integer(merged.pop("count"), f"{name}.count", 1, 200) if "count" in merged else None
        for each in [name] if count is None else [f"{name}{n}" for n in range(1, count + 1)]:
            if each in machines:
                raise LabError(f"the machine {each!r} is described twice.")
            place = FIRST_ADDRESS + len(machines)
            if place >= subnet.num_addresses - 1:
                raise LabError(f"network.subnet {subnet} has no address left for {each}.")
            machines[each] = _machine(each, kind, merged, sets, f"{subnet[place]}", subnet.prefixlen)
    return Lab(machines, subnet)


def _machine(
    name: str, kind: str, given: Mapping[str, Any], sets: Mapping[str, list[str]], address: str, prefix: int
) -> Machine:
    distribution = _one_of(given.get("distribution"), f"{name}.distribution", DISTRIBUTIONS)
    # A name of a set stands for its packages; any other name is a package.
    packages = [p for word in _names(given.get("packages", []), f"{name}.packages") for p in sets.get(word, [word])]
    common: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "summary": str(given.get("summary", "")),
        "distribution": distribution,
        "packages": tuple(dict.fromkeys(packages)),
        "disabled": tuple(_names(given.get("disabled", []), f"{name}.disabled")),
        "address": address,
        "timeout": _integer(given.get("timeout"), f"{name}.timeout", 1, 3600),
    }
    if kind == "nspawn":
        return Machine(**common)

    shape = _mapping(given.get("cpus"), f"{name}.cpus", {"sockets", "cores", "threads"})
    cpus = Cpus(*(_integer(shape.get(key, 1), f"{name}.cpus.{key}", 1, 64) for key in ("sockets", "cores", "threads")))
    memory = given.get("memory_mib")
    if not isinstance(memory, list) or not memory:
        raise LabError(f"{name}.memory_mib is {memory!r}; it is a list with one number for each NUMA node.")
    memory = [_integer(m, f"{name}.memory_mib", 128, 65536) for m in memory]
    if cpus.total % len(memory):
        raise LabError(f"{name} has {cpus.total} CPUs, which {len(memory)} NUMA nodes cannot share evenly.")
    roots: dict[str, int] = {}
    for bus, node in _mapping(given.get("roots", {}), f"{name}.roots").items():
        roots[_bus(bus, f"{name}.roots")] = _integer(node, f"{name}.roots.{bus}", 0, len(memory) - 1)
    nics: dict[str, Nic] = {}
    for nic, card in _mapping(given.get("nics"), f"{name}.nics").items():
        nics[nic] = _nic(
            name,
            nic,
            _mapping(card, f"{name}.nics.{nic}", {"model", "net", "root", "queues"}),
            roots,
            f"{address}/{prefix}",
            len(nics),
        )
    if [n.net for n in nics.values()].count("user") != 1:
        raise LabError(f"{name}.nics needs exactly one NIC with net: user, which carries ssh.")
    on_lab = [nic for nic, card in nics.items() if card.net == "lab"]
    if len(on_lab) > 1:
        raise LabError(
            f"{name}.nics has {' and '.join(on_lab)} with net: lab; a machine has one address there, so leave all but one out."
        )
    spare = given.get("spare_ports", [])
    if not isinstance(spare, list):
        raise LabError(f'{name}.spare_ports is {spare!r}; it is a list of root buses in quotes, as in ["80"], or [].')
    iommu = given.get("iommu", False)
    if not isinstance(iommu, bool):
        raise LabError(f"{name}.iommu is {iommu!r}; it is true or false.")
    disks = given.get("disks")
    if not isinstance(disks, list) or not disks:
        raise LabError(f"{name}.disks is {disks!r}; it is a list of {{gib: …, model: …}}, the boot disk first.")
    disks = [_mapping(d, f"{name}.disks", {"gib", "model"}) for d in disks]
    return Machine(
        **common,
        kernel=_kernel(given.get("kernel"), f"{name}.kernel"),
        boot=_one_of(given.get("boot"), f"{name}.boot", BOOTS),
        kernel_args=tuple(_names(given.get("kernel_args", []), f"{name}.kernel_args")),
        cpus=cpus,
        memory_mib=tuple(memory),
        roots=tuple(roots.items()),
        nics=tuple(nics.values()),
        spare_ports=tuple(_root(root, f"{name}.spare_ports", roots) for root in spare),
        iommu=iommu,
        disks=tuple(
            Disk(
                _integer(d.get("gib"), f"{name}.disks.gib", 1, 64),
                _one_of(d.get("model", DISK_MODELS[0]), f"{name}.disks.model", DISK_MODELS),
            )
            for d in disks
        ),
    )


def _nic(machine: str, name: str, card: Mapping[str, Any], roots: Mapping[str, int], address: str, index: int) -> Nic:
    where = f"{machine}.nics.{name}"
    if not (isinstance(name, str) and name.isascii() and name.isalnum() and len(name) <= 8):
        raise LabError(f"the NIC name {name!r} of {machine} is not allowed; use up to 8 letters and digits.")
    net = _one_of(card.get("net"), f"{where}.net", NETS)
    if net == "lab" and index == 0:
        raise LabError(f"{where} is the first NIC; the first one is the management NIC with net: user.")
    return Nic(
        name=name,
        model=_one_of(card.get("model"), f"{where}.model", NIC_MODELS),
        net=net,
        root=_root(card.get("root", HOST_ROOT), f"{where}.root", roots),
        queues=_integer(card.get("queues", 1), f"{where}.queues", 1, 64),
        mac=mac(machine, name),
        address=USER_NET_ADDRESS if net == "user" else address,
    )


def mac(machine: str, nic: str) -> str:
    """A locally administered address that is the same in every run."""
    digest = hashlib.sha256(f"{machine}/{nic}".encode()).hexdigest()
    return "52:54:00:" + ":".join(digest[i : i + 2] for i in (0, 2, 4))


def _mapping(value: Any, where: str, allowed: set[str] | None = None) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise LabError(f"{where} is {value!r}; it must be a mapping.")
    for key in value:
        if allowed is not None and key not in allowed:
            raise LabError(f"{where} has the unknown key {key!r}; allowed are {', '.join(sorted(allowed))}.")
    return dict(value)


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(
        isinstance(v, str) and v and not set(v) & set(" \t\n'\"\\") for v in value
    ):
        raise LabError(f"{where} is {value!r}; it must be a list of words.")
    return list(value)


def _integer(value: Any, where: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise LabError(f"{where} is {value!r}; it must be a whole number from {low} to {high}.")
    return value


def _one_of(value: Any, where: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise LabError(f"{where} is {value!r}; allowed are {', '.join(allowed)}.")
    return value


def _kernel(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.replace(".", "").isdigit():
        raise LabError(f'{where} is {value!r}; write the beginning of the release in quotes, as in "6.12".')
    return value


def _bus(value: Any, where: str) -> str:
    try:
        number = int(value, 16) if isinstance(value, str) else -1
    except ValueError:
        number = -1
    # An expander's own bridges take the numbers after it, so the first and the last ones are left alone.
    if not 0x10 <= number <= 0xF0:
        raise LabError(f'{where} names the bus {value!r}; write it in hexadecimal and in quotes, from "10" to "f0".')
    return f"{number:02x}"


def _root(value: Any, where: str, roots: Mapping[str, int]) -> str:
    if value == HOST_ROOT:
        return HOST_ROOT
    bus = _bus(value, where)
    if bus not in roots:
        raise LabError(f"{where} names the root bus {bus!r}, which `roots` does not have.")
    return bus
