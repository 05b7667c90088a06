# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Architecture, CPU model, hypervisor."""

from __future__ import annotations

import pytest

INTEL = (
    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8462Y+\nflags\t\t: fpu lm%s\n\n"
)
AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9554\nflags\t\t: fpu lm\n"
ARM = "processor\t: 0\nFeatures\t: fp\nCPU implementer\t: 0x%x\nCPU architecture: 8\nCPU part\t: 0x%x\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9 (architected), altivec supported\n\ntimebase\t: 512000000\nplatform\t: %s\nmodel\t\t: x\nmachine\t\t: %s\n"
S390 = "vendor_id       : IBM/S390\n# processors    : 4\nprocessor 0: version = FF,  identification = 000123,  machine = 2964\n"


def identity(host, files):
    found = host.add(files).add({"sys": None}).discover()
    return found["arch"], found["cpu_vendor"], found["cpu_model"], found["hypervisor"]


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"proc/cpuinfo": INTEL % ""}, ("x86_64", "intel", "Intel(R) Xeon(R) Platinum 8462Y+", None)),
        ({"proc/cpuinfo": INTEL % " hypervisor"}, ("x86_64", "intel", "Intel(R) Xeon(R) Platinum 8462Y+", "vm")),
        ({"proc/cpuinfo": AMD}, ("x86_64", "amd", "AMD EPYC 9554", None)),
        ({"proc/cpuinfo": AMD.replace(" lm", "")}, ("i686", "amd", "AMD EPYC 9554", None)),
        ({"proc/cpuinfo": ARM % (0x41, 0xD4F)}, ("aarch64", "arm", "Neoverse-V2", None)),
        ({"proc/cpuinfo": ARM % (0x48, 0xD01)}, ("aarch64", "hisilicon", "Kunpeng-920", None)),
        ({"proc/cpuinfo": ARM % (0x99, 0xD01)}, ("aarch64", None, None, None)),
        (
            {"proc/cpuinfo": POWER % ("PowerNV", "PowerNV 8335-GTW")},
            (None, "ibm", "POWER9 (architected), altivec supported", "none"),
        ),
        (
            {"proc/cpuinfo": POWER % ("pSeries", "CHRP IBM,9009-42A")},
            (None, "ibm", "POWER9 (architected), altivec supported", "powervm"),
        ),
        (
            {"proc/cpuinfo": POWER % ("pSeries", "CHRP IBM pSeries (emulated by qemu)")},
            (None, "ibm", "POWER9 (architected), altivec supported", "kvm"),
        ),
        (
            {"proc/cpuinfo": POWER.replace("POWER9", "POWER7") % ("pSeries", "x")},
            ("ppc64", "ibm", "POWER7 (architected), altivec supported", "powervm"),
        ),
        (
            {"proc/cpuinfo": POWER % ("pSeries", "x"), "proc/version": "Linux version 6.1.0-18-powerpc64le (x) #1\n"},
            (None, "ibm", "POWER9 (architected), altivec supported", "powervm"),
        ),
        (
            {"proc/cpuinfo": POWER % ("pSeries", "x"), "proc/version": "Linux version 5.14.0-1.el9.ppc64le (x) #1\n"},
            ("ppc64le", "ibm", "POWER9 (architected), altivec supported", "powervm"),
        ),
        ({"proc/cpuinfo": S390}, ("s390x", "ibm", "IBM/S390 2964", None)),
        (
            {"proc/cpuinfo": S390, "proc/sysinfo": "VM00 Name: X\nVM00 Control Program: z/VM    6.4.0\n"},
            ("s390x", "ibm", "IBM/S390 2964", "zvm"),
        ),
        (
            {"proc/cpuinfo": S390, "proc/sysinfo": "VM00 Control Program: KVM/Linux\n"},
            ("s390x", "ibm", "IBM/S390 2964", "kvm"),
        ),
        ({"proc/cpuinfo": "processor : 0\nisa : rv64imafdcv\n"}, ("riscv64", None, None, None)),
        ({"proc/cpuinfo": "(null)"}, (None, None, None, None)),
        ({"proc/sys/kernel/arch": "aarch64\n"}, ("aarch64", None, None, None)),
        ({"proc/sys/kernel/arch": "z80\n"}, (None, None, None, None)),
        ({"proc/version": "Linux version 6.1.0-18-amd64 (x) #1\n"}, ("x86_64", None, None, None)),
        ({"proc/version": "Linux version 6.8.0-1-arm64 (x) #1\n"}, ("aarch64", None, None, None)),
    ],
)
def test_machines(host, files, expected):
    assert identity(host, files) == expected


@pytest.mark.parametrize(
    "dmi, flag, expected",
    [
        ({"sys_vendor": "QEMU", "product_name": "Standard PC (Q35 + ICH9, 2009)"}, " hypervisor", "qemu"),
        ({"sys_vendor": "Red Hat", "product_name": "KVM"}, " hypervisor", "kvm"),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, " hypervisor", "kvm"),
        ({"sys_vendor": "OpenStack Foundation", "product_name": "OpenStack Nova"}, " hypervisor", "kvm"),
        ({"sys_vendor": "VMware, Inc.", "product_name": "VMware7,1"}, " hypervisor", "vmware"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, " hypervisor", "microsoft"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Surface"}, "", "none"),
        ({"sys_vendor": "innotek GmbH", "product_name": "VirtualBox"}, "", "oracle"),
        ({"sys_vendor": "Xen", "product_name": "HVM domU"}, " hypervisor", "xen"),
        ({"sys_vendor": "Amazon EC2", "product_name": "c5.large"}, " hypervisor", "amazon"),
        ({"sys_vendor": "Amazon EC2", "product_name": "i3.metal"}, "", "none"),
        ({"sys_vendor": "Dell Inc.", "product_name": "PowerEdge XE8640"}, "", "none"),
        ({"sys_vendor": "Unheard Of", "product_name": "x"}, " hypervisor", "vm"),
    ],
)
def test_hypervisors_on_x86(host, dmi, flag, expected):
    host.add({"sys/class/dmi/id/" + name: value + "\n" for name, value in dmi.items()})
    assert identity(host, {"proc/cpuinfo": INTEL % flag})[3] == expected


def test_hypervisors_elsewhere(host):
    host.add({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "c7g.metal\n"})
    assert identity(host, {"proc/cpuinfo": ARM % (0x41, 0xD40)})[3] == "none"
    (host.top / "sys/class/dmi/id/product_name").write_text("c7g.large\n", encoding="utf-8")
    assert host.discover()["hypervisor"] == "amazon"


def test_xen_says_so_itself(host):
    assert identity(host, {"sys/hypervisor/type": "xen\n"})[3] == "xen"


@pytest.mark.parametrize("text, expected", [("xen,xen-4.16\0xen,xen\0", "xen"), ("linux,kvm\0", "kvm")])
def test_device_trees(host, text, expected):
    assert identity(host, {"proc/device-tree/hypervisor/compatible": text})[3] == expected


def test_what_is_unknown_is_noted(host):
    found = host.add({"sys": None}).discover()
    assert {note["what"] for note in found["unknown"] if note["path"] == "proc/cpuinfo"} == {
        "arch",
        "cpu_vendor",
        "cpu_model",
        "hypervisor",
    }


@pytest.mark.parametrize(
    ("vendor", "expected"), [("Dell Inc.", "none"), ("innotek GmbH", "oracle"), ("QEMU", "qemu"), (None, None)]
)
def test_no_hypervisor_flag_alone_proves_nothing(host, vendor, expected):
    """VirtualBox can hide the flag, and a capture may hold its host's cpuinfo."""
    files = {"proc/cpuinfo": INTEL % ""}
    if vendor:
        files["sys/class/dmi/id/sys_vendor"] = vendor + "\n"
    assert identity(host, files)[3] == expected
