# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that runs: release, boot arguments and what follows from them, build options, preemption, and the machine's own name."""

from __future__ import annotations

import re

from . import lists
from .spec import SpecError

# option -> (first release that has it, value); a spec's `config` is laid over this
CONFIG = {
    "SMP": (0, "y"),
    "NUMA": (0, "y"),
    "HOTPLUG_CPU": (0, "y"),
    "NO_HZ_FULL": (0, "y"),
    "CPU_ISOLATION": ((4, 15), "y"),
    "RCU_NOCB_CPU": (0, "y"),
    "PREEMPT_NONE": (0, "n"),
    "PREEMPT_VOLUNTARY": (0, "y"),
    "PREEMPT": (0, "n"),
    "PREEMPT_LAZY": ((6, 13), "n"),
    "PREEMPT_RT": ((5, 15), "n"),
    "PREEMPT_DYNAMIC": ((5, 12), "y"),
    "NETKIT": ((6, 7), "y"),
    "BPF_SYSCALL": (0, "y"),
    "NET_CLS_BPF": (0, "m"),
}
MODEL = {
    "none": "PREEMPT_NONE",
    "voluntary": "PREEMPT_VOLUNTARY",
    "full": "PREEMPT",
    "lazy": "PREEMPT_LAZY",
    "rt": "PREEMPT_RT",
}
DMI = {
    "none": ("Example Systems", "Rack Server 2U"),
    "kvm": ("Red Hat", "KVM"),
    "qemu": ("QEMU", "Standard PC (Q35 + ICH9, 2009)"),
    "vmware": ("VMware, Inc.", "VMware7,1"),
    "microsoft": ("Microsoft Corporation", "Virtual Machine"),
    "xen": ("Xen", "HVM domU"),
    "oracle": ("innotek GmbH", "VirtualBox"),
    "amazon": ("Amazon EC2", "m7i.8xlarge"),
    "google": ("Google", "Google Compute Engine"),
}


class Kernel:
    """The release and what the boot arguments make of it; CPU sets are lists of ids."""

    def __init__(self, spec):
        self.release = spec.kernel
        found = re.match(r"(\d+)\.(\d+)", self.release)
        if not found:
            raise SpecError(f"kernel is {self.release!r}: write a release such as 6.8.0-64-generic")
        self.number = (int(found.group(1)), int(found.group(2)))
        self.cmdline = (
            spec.cmdline if spec.cmdline is not None else f"BOOT_IMAGE=/boot/vmlinuz-{self.release} root=/dev/sda2 ro"
        )
        self.args = self.cmdline.split()
        chosen = [arg.split("=", 1)[1] for arg in self.args if arg.startswith("preempt=")]
        self.preempt = chosen[-1] if chosen and chosen[-1] in MODEL else spec.preempt
        self.config = {
            f"CONFIG_{name}": value for name, (since, value) in CONFIG.items() if since == 0 or self.number >= since
        }
        self.config["CONFIG_PREEMPT_VOLUNTARY"] = "n"
        self.config[f"CONFIG_{MODEL[self.preempt]}"] = "y"
        if spec.memory is False:
            self.config["CONFIG_NUMA"] = "n"
        for name, value in spec.config.items():
            value = {True: "y", False: "n"}.get(value, value) if isinstance(value, bool) else value
            self.config[name if name.startswith("CONFIG_") else f"CONFIG_{name}"] = value
        self.isolated = self.nohz_full = self.managed_isolated = []
        self.irqaffinity = None

    def at_least(self, *number):
        return self.number >= number

    def boot(self, cpus):
        """What the CPU sets among the arguments come to on these CPUs; a list with an id that is not possible is dropped whole."""
        for arg in self.args:
            name, _equals, value = arg.partition("=")
            if name == "isolcpus":
                flags = []
                while value and not value[0].isdigit():
                    flag, _comma, value = value.partition(",")
                    flags.append(flag)
                ids = self._possible(value, cpus)
                if not flags or "domain" in flags:
                    self.isolated = ids
                if "managed_irq" in flags:
                    self.managed_isolated = ids
                if "nohz" in flags:
                    self.nohz_full = ids
            elif name == "nohz_full":
                self.nohz_full = self._possible(value, cpus)
            elif name == "irqaffinity":
                ids = self._possible(value, cpus)
                self.irqaffinity = sorted({*ids, cpus.online[0]}) if ids else None

    @staticmethod
    def _possible(text, cpus):
        try:
            ids = lists.expand(text)
        except ValueError:
            return []
        return ids if set(ids) <= set(cpus.possible) else []


def emit(tree, machine):
    kernel = machine.kernel
    tree.line("proc/cmdline", kernel.cmdline)
    tree.line("proc/sys/kernel/osrelease", kernel.release)
    tree.line("proc/sys/kernel/version", _banner(kernel))
    tree.line(
        "proc/version", f"Linux version {kernel.release} (build@example) (gcc 13.2.0, GNU ld 2.42) {_banner(kernel)}"
    )
    if kernel.at_least(6, 1):
        tree.line("proc/sys/kernel/arch", machine.arch)
    rows = [
        f"# CONFIG_{name} is not set" if value == "n" else f"CONFIG_{name}={value}"
        for name, value in sorted((key[len("CONFIG_") :], value) for key, value in kernel.config.items())
    ]
    tree.text(
        f"boot/config-{kernel.release}",
        "#\n# Automatically generated file; DO NOT EDIT.\n#\n" + "\n".join(rows) + "\n# end of Kernel hacking\n",
    )
    if kernel.config.get("CONFIG_PREEMPT_DYNAMIC") == "y" and kernel.preempt != "rt" and kernel.at_least(5, 13):
        modes = ["none", "voluntary", "full"] + (["lazy"] if kernel.at_least(6, 13) else [])
        tree.line(
            "sys/kernel/debug/sched/preempt",
            "".join(f"({mode}) " if mode == kernel.preempt else f"{mode} " for mode in modes),
        )
    if kernel.preempt == "rt":
        tree.line("sys/kernel/realtime", 1)
    _identity(tree, machine)


def _banner(kernel):
    if kernel.preempt == "rt":
        model = " PREEMPT_RT"
    elif kernel.config.get("CONFIG_PREEMPT_DYNAMIC") == "y":
        model = " PREEMPT_DYNAMIC"
    else:
        model = " PREEMPT" if kernel.preempt == "full" else ""
    return f"#1 SMP{model} Thu Jan  1 00:00:00 UTC 2026"


def _identity(tree, machine):
    spec = machine.spec
    kind = spec.hypervisor
    if machine.arch == "s390x":
        rows = [
            "Manufacturer:         IBM",
            f"Type:                 {machine.cpus.model}",
            "LPAR Name:            EXAMPLE",
        ]
        if kind == "zvm":
            rows += ["VM00 Name:            EXAMPLE", "VM00 Control Program: z/VM    7.3.0"]
        elif kind == "kvm":
            rows += ["VM00 Name:            EXAMPLE", "VM00 Control Program: KVM/Linux"]
        tree.text("proc/sysinfo", "\n".join(rows) + "\n")
    if kind == "xen":
        tree.line("sys/hypervisor/type", "xen")
    if machine.arch in ("x86_64", "aarch64"):
        vendor, product = DMI.get(kind, DMI["none"])
        fields = {
            "sys_vendor": vendor,
            "product_name": product,
            "board_vendor": vendor,
            "bios_vendor": vendor,
            "chassis_type": "23",
            **spec.dmi,
        }
        for name, value in fields.items():
            tree.line(f"sys/devices/virtual/dmi/id/{name}", value)
        tree.link("sys/class/dmi/id", "sys/devices/virtual/dmi/id")
