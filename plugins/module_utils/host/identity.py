# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kind of machine this is: architecture, CPU model and vendor, hypervisor.

Source: proc/cpuinfo (one form per architecture), sys/class/dmi/id, sys/hypervisor/type, proc/sysinfo (s390), proc/device-tree.
That there is no hypervisor is said only where that is known: on x86, where a guest's cpuinfo has the flag "hypervisor".
"""

from __future__ import annotations

import re

from .tree import LARGE

_FIELD = re.compile(r"^([^:\n]+?)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_X86_VENDORS = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "HygonGenuine": "hygon",
    "CentaurHauls": "zhaoxin",
    "Shanghai": "zhaoxin",
}
_ARM_VENDORS = {
    0x41: "arm",
    0x42: "broadcom",
    0x43: "cavium",
    0x46: "fujitsu",
    0x48: "hisilicon",
    0x4E: "nvidia",
    0x50: "apm",
    0x51: "qualcomm",
    0x61: "apple",
    0x6D: "microsoft",
    0xC0: "ampere",
}
# server parts of arch/arm64/include/asm/cputype.h
_ARM_MODELS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x41, 0xD85): "Cortex-X925",
    (0x41, 0xD87): "Cortex-A725",
    (0x48, 0xD01): "Kunpeng-920",
    (0x46, 0x001): "A64FX",
    (0x43, 0x0AF): "ThunderX2",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}
_MACHINES = ("x86_64", "aarch64", "ppc64le", "ppc64", "s390x", "riscv64", "ia64", "loongarch64", "i686", "armv7l")
_RELEASE_ARCH = {"amd64": "x86_64", "arm64": "aarch64", "ppc64el": "ppc64le"}

# (DMI field, start of its text, hypervisor); the vendors of machines that are virtual. Amazon and Microsoft also sell metal.
_DMI = (
    ("product_name", "KVM", "kvm"),
    ("product_name", "OpenStack", "kvm"),
    ("product_name", "Google Compute Engine", "kvm"),
    ("sys_vendor", "QEMU", "qemu"),
    ("sys_vendor", "OpenStack", "kvm"),
    ("sys_vendor", "VMware", "vmware"),
    ("sys_vendor", "innotek GmbH", "oracle"),
    ("product_name", "VirtualBox", "oracle"),
    ("sys_vendor", "Xen", "xen"),
    ("product_name", "Virtual Machine", "microsoft"),
    ("sys_vendor", "Amazon EC2", "amazon"),
)


class Identity:
    """Fields ``arch``, ``cpu_model``, ``cpu_vendor``, ``hypervisor``; each None where unknown."""

    def __init__(self, reader, release):
        self._reader = reader
        text = reader.tree.read("proc/cpuinfo", LARGE)
        # the first CPU is enough; s390 and POWER have fields after the list of CPUs too
        head = text if text is None or len(text) < 20000 else text[:8000] + "\n" + text[-2000:]
        self._fields = {}
        for name, value in _FIELD.findall(head or ""):
            self._fields.setdefault(name.strip(), value)
        self._flags = frozenset((self._fields.get("flags") or "").split())
        self.arch = self._arch(release)
        self.cpu_vendor, self.cpu_model = self._cpu()
        self.hypervisor = self._hypervisor()
        why = reader.tree.why("proc/cpuinfo") if text is None else "not told"
        for field in ("arch", "cpu_vendor", "cpu_model"):
            if getattr(self, field) is None:
                reader.note(field, "proc/cpuinfo", why)
        if self.hypervisor is None:
            reader.note("hypervisor", "proc/cpuinfo", why + ": neither a hypervisor nor the proof that there is none")

    def _arch(self, release):
        fields = self._fields
        told = self._reader.tree.read("proc/sys/kernel/arch")
        if told in _MACHINES:
            return told
        if self._flags:
            return "x86_64" if "lm" in self._flags else "i686"
        if fields.get("vendor_id") == "IBM/S390":
            return "s390x"
        if fields.get("arch") == "IA-64":
            return "ia64"
        if fields.get("isa", "").startswith("rv64"):
            return "riscv64"
        words = set(re.split(r"[-.+_~]", release or ""))
        for word, machine in list(_RELEASE_ARCH.items()) + [(machine, machine) for machine in _MACHINES]:
            if word in words or (release or "").endswith((".%s" % word, "-%s" % word)):
                return machine
        if "CPU implementer" in fields and fields.get("CPU architecture") == "8":
            return "aarch64"
        if re.match(r"POWER[4-7]\b", fields.get("cpu", "")):  # POWER8 and later run in either byte order
            return "ppc64"
        return None

    def _cpu(self):
        fields = self._fields
        if "CPU implementer" in fields:
            maker = _hex(fields["CPU implementer"])
            return _ARM_VENDORS.get(maker), fields.get("model name") or _ARM_MODELS.get(
                (maker, _hex(fields.get("CPU part")))
            )
        if fields.get("vendor_id") == "IBM/S390":
            machine = re.search(r"machine = (\w+)", fields.get("processor 0", ""))
            number = fields.get("machine") or (machine.group(1) if machine else None)
            return "ibm", "IBM/S390" + (" %s" % number if number else "")
        if fields.get("cpu", "").startswith("POWER"):
            return "ibm", fields["cpu"]
        vendor = fields.get("vendor_id") or fields.get("vendor")
        return _X86_VENDORS.get(vendor), fields.get("model name")

    def _hypervisor(self):
        tree = self._reader.tree
        if self._fields.get("vendor_id") == "IBM/S390":
            return self._on_s390(tree.read("proc/sysinfo", LARGE) or "")
        if self._fields.get("cpu", "").startswith("POWER"):
            return self._on_power()
        if tree.read("sys/hypervisor/type") == "xen":
            return "xen"
        metal = bool(self._flags) and "hypervisor" not in self._flags
        for field, start, name in _DMI:
            if (tree.read("sys/class/dmi/id/" + field) or "").startswith(start):
                if name == "amazon" and (metal or ".metal" in (tree.read("sys/class/dmi/id/product_name") or "")):
                    return "none"
                return name
        if metal and tree.read("sys/class/dmi/id/sys_vendor"):
            return "none"  # the flag alone proves nothing: VirtualBox can hide it, and a capture can have its host's cpuinfo
        node = tree.read("proc/device-tree/hypervisor/compatible") or ""
        if node.startswith("xen"):
            return "xen"
        if node.startswith("linux,kvm"):
            return "kvm"
        return "vm" if "hypervisor" in self._flags else None

    @staticmethod
    def _on_s390(text):
        match = re.search(r"^VM00 Control Program:\s*(.*?)\s*$", text, re.MULTILINE)
        if not match:
            return None  # an LPAR: a partition of the machine's own firmware
        return "zvm" if match.group(1).startswith("z/VM") else "kvm" if match.group(1).startswith("KVM") else "vm"

    def _on_power(self):
        platform = self._fields.get("platform", "")
        if platform == "PowerNV":
            return "none"
        if "emulated by qemu" in self._fields.get("machine", ""):
            return "kvm"
        if platform == "pSeries" or self._reader.tree.read("proc/device-tree/ibm,partition-name"):
            return "powervm"
        return None


def _hex(text):
    try:
        return int(text, 16)
    except (TypeError, ValueError):
        return None
