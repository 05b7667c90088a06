# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""QEMU's command line from a machine's description: pure.

Always ``-accel tcg``: a /dev/kvm that is present can be unusable. CPUs call themselves Intel, because QEMU shows SMT of an
AMD model only with more flags. Every bus has a name of its own and every device names its bus, else QEMU puts disks behind
the expander.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from . import guest
from .spec import HOST_ROOT, Machine, Nic

BINARY = "qemu-system-x86_64"
OVMF_CODE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
OVMF_VARIABLES = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
CPU = "max,vendor=GenuineIntel"
TRANSLATION_CACHE_MIB = 512
FIRST_BOOT_MIB = 1024


def command(
    machine: Machine,
    *,
    name: str,
    overlay: Path,
    extra_disks: Sequence[Path],
    identity: Path,
    console: Path,
    console_log: Path,
    qmp: Path,
    forwards: Mapping[int, int],
    taps: Mapping[str, Sequence[int]],
    firmware_variables: Path | None = None,
) -> list[str]:
    """A machine that boots by its own boot loader.

    ``forwards`` {port on 127.0.0.1: port inside}; ``taps`` {NIC: open tap descriptors, one a queue pair}.
    """
    words = [*_base(machine), "-name", f"guest={name}"]
    words += ["-m", str(sum(machine.memory_mib))]
    for node, (mib, cpus) in enumerate(zip(machine.memory_mib, machine.node_cpus)):
        words += ["-object", f"memory-backend-ram,id=mem{node},size={mib}M"]
        words += ["-numa", f"node,nodeid={node},memdev=mem{node},cpus={cpus[0]}-{cpus[-1]}"]
    for a in range(len(machine.memory_mib)):
        for b in range(a + 1, len(machine.memory_mib)):
            words += ["-numa", f"dist,src={a},dst={b},val=21"]
    shape = machine.cpus
    words += [
        "-smp",
        f"{shape.total},sockets={shape.sockets},cores={shape.cores},threads={shape.threads}",
    ]
    if machine.iommu:  # before the devices that it is for
        words += ["-device", "intel-iommu,intremap=on"]
    for bus, node in machine.roots:
        words += ["-device", f"pxb-pcie,id={_bus(bus)},bus_nr={int(bus, 16)},numa_node={node},bus=pcie.0"]
    ports = _Ports()
    for index, (disk, file) in enumerate(zip(machine.disks, [overlay, *extra_disks])):
        # The overlay is written through to the host at the guest's flushes: after a power cut it is what the guest was told.
        words += ["-drive", f"file={file},if=none,id=disk{index},format=qcow2,cache=writeback"]
        words += ["-device", _disk(disk.model, index)]
    for nic in machine.nics:
        words += ["-netdev", _netdev(nic, forwards, taps.get(nic.name, ()))]
        bus = "pcie.0"
        if nic.root != HOST_ROOT:
            bus = f"port-{nic.name}"
            words += ports.add(bus, nic.root)
        words += ["-device", nic_device(nic.model, nic.name, bus, nic.mac, nic.queues if nic.net == "lab" else 1)]
    for index, root in enumerate(machine.spare_ports):
        words += ports.add(spare_port(index), root)
    if firmware_variables:
        words += _firmware(firmware_variables)
    words += ["-fw_cfg", f"name={guest.IDENTITY},file={identity}"]
    words += [
        "-chardev",
        f"socket,id=console,path={console},server=on,wait=off,logfile={console_log},logappend=on",
        "-serial",
        "chardev:console",
    ]
    words += ["-qmp", f"unix:{qmp},server=on,wait=off"]
    return words


def first_boot(machine: Machine, disk: Path, kernel: Path, initrd: Path, console_log: Path) -> list[str]:
    """The one boot without a boot loader: it ends when the script of guest.first_boot powers off."""
    # With -no-reboot a kernel that panics ends here at once, instead of standing there until the time is over.
    arguments = [
        "rw",
        f"root=LABEL={guest.ROOT_LABEL}",
        *guest.kernel_args(machine),
        "panic=-1",
        f"init={guest.FIRST_BOOT}",
    ]
    words = [*_base(machine), "-m", str(FIRST_BOOT_MIB), "-smp", "2", "-no-reboot"]
    words += ["-kernel", str(kernel), "-initrd", str(initrd), "-append", " ".join(arguments)]
    words += [
        "-drive",
        f"file={disk},if=none,id=disk0,format=raw,cache=unsafe",
        "-device",
        _disk(machine.disks[0].model, 0),
    ]
    if machine.boot == "systemd-boot":
        words += _firmware(disk.parent / "vars.fd")
    return [*words, "-serial", f"file:{console_log}"]


def spare_port(index: int) -> str:
    return f"spare{index}"


def nic_device(model: str, name: str, bus: str, mac: str, queues: int) -> str:
    """A NIC as -device and device_add take it."""
    words = [model, f"id={name}", f"netdev={name}", f"bus={bus}", f"mac={mac}", "romfile="]
    if model == "virtio-net-pci" and queues > 1:
        words += ["mq=on", f"vectors={2 * queues + 2}"]
    return ",".join(words)


def _base(machine: Machine) -> list[str]:
    accelerator = f"tcg,thread=multi,tb-size={TRANSLATION_CACHE_MIB}"
    return [BINARY, "-nodefaults", "-display", "none", "-machine", "q35", "-accel", accelerator, "-cpu", CPU]


def _bus(root: str) -> str:
    return "pcie.0" if root == HOST_ROOT else f"root{root}"


class _Ports:
    """Root ports, numbered as they are added: a slot number must be unique in a machine."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, name: str, root: str) -> list[str]:
        self.count += 1
        return ["-device", f"pcie-root-port,id={name},bus={_bus(root)},chassis={self.count},slot={self.count}"]


def _disk(model: str, index: int) -> str:
    if model == "nvme":
        return f"nvme,drive=disk{index},serial=lab{index},bus=pcie.0"
    return f"virtio-blk-pci,drive=disk{index},bus=pcie.0"


def _netdev(nic: Nic, forwards: Mapping[int, int], descriptors: Sequence[int]) -> str:
    if nic.net == "lab":
        key = "fd" if len(descriptors) == 1 else "fds"
        return f"tap,id={nic.name},{key}={':'.join(str(d) for d in descriptors)}"
    # restrict: the machine reaches nothing outside; only what is forwarded gets in.
    inside = str(nic.address).partition("/")[0]
    rules = "".join(f",hostfwd=tcp:127.0.0.1:{outer}-{inside}:{inner}" for outer, inner in forwards.items())
    return f"user,id={nic.name},restrict=on{rules}"


def _firmware(variables: Path) -> list[str]:
    return [
        *("-drive", f"if=pflash,format=raw,readonly=on,file={OVMF_CODE}"),
        *("-drive", f"if=pflash,format=raw,file={variables}"),
    ]
