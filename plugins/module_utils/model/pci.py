# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What PCI addresses, classes and ids mean for this collection. Pure tables and functions.

Addresses (BDF) are "DDDD:BB:DD.F" in lower-case hex; domains may have more than four digits (Hyper-V, Intel VMD).
Classes are the numbers of the PCI Code and ID Assignment Specification, as sysfs prints them ("0x020000").
"""

from __future__ import annotations

import re

BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z", re.ASCII)
BDF_ANYWHERE = re.compile(r"(?<![0-9a-fA-F])[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?![0-9a-fA-F])", re.ASCII)
ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z", re.ASCII)

NVIDIA = 0x10DE
AMD = 0x1002
INTEL = 0x8086
HABANA = 0x1DA3

# vendor -> (base class, sub class) pairs that are accelerators. BMC display chips (ASPEED, Matrox) are other vendors, and
# NVSwitch is NVIDIA's class 0680. Intel's 0300 is decided by boot_vga: see accelerator().
_ACCELERATORS = {
    NVIDIA: ((0x03, 0x00), (0x03, 0x02)),
    AMD: ((0x03, 0x00), (0x03, 0x02), (0x03, 0x80), (0x12, 0x00)),
    INTEL: ((0x03, 0x80),),
    HABANA: ((0x12, 0x00),),
}

# Names of accelerators that this collection's users plan for; vendor and device id of the PCI ID repository.
_NAMES = {
    (NVIDIA, 0x1DB1): "Tesla V100 SXM2 16GB",
    (NVIDIA, 0x1DB4): "Tesla V100 PCIe 16GB",
    (NVIDIA, 0x1DB5): "Tesla V100 SXM2 32GB",
    (NVIDIA, 0x1DB6): "Tesla V100 PCIe 32GB",
    (NVIDIA, 0x1EB8): "Tesla T4",
    (NVIDIA, 0x15F8): "Tesla P100 PCIe 16GB",
    (NVIDIA, 0x20B0): "A100 SXM4 40GB",
    (NVIDIA, 0x20B2): "A100 SXM4 80GB",
    (NVIDIA, 0x20B5): "A100 PCIe 80GB",
    (NVIDIA, 0x20F1): "A100 PCIe 40GB",
    (NVIDIA, 0x2235): "A40",
    (NVIDIA, 0x2236): "A10",
    (NVIDIA, 0x20B7): "A30",
    (NVIDIA, 0x2330): "H100 SXM5 80GB",
    (NVIDIA, 0x2331): "H100 PCIe 80GB",
    (NVIDIA, 0x2321): "H100 NVL",
    (NVIDIA, 0x2335): "H200 SXM 141GB",
    (NVIDIA, 0x233B): "H200 NVL",
    (NVIDIA, 0x2342): "GH200 120GB",
    (NVIDIA, 0x26B9): "L40S",
    (NVIDIA, 0x26B5): "L40",
    (NVIDIA, 0x27B8): "L4",
    (NVIDIA, 0x2901): "B200",
    (NVIDIA, 0x2941): "GB200",
    (AMD, 0x740F): "Instinct MI210",
    (AMD, 0x7408): "Instinct MI250X",
    (AMD, 0x740C): "Instinct MI250X/MI250",
    (AMD, 0x74A0): "Instinct MI300A",
    (AMD, 0x74A1): "Instinct MI300X",
    (AMD, 0x74A5): "Instinct MI325X",
    (INTEL, 0x0BD5): "Data Center GPU Max 1550",
    (INTEL, 0x0BDA): "Data Center GPU Max 1100",
    (INTEL, 0x56C0): "Data Center GPU Flex 170",
    (HABANA, 0x1000): "Gaudi",
    (HABANA, 0x1020): "Gaudi 2",
    (HABANA, 0x1060): "Gaudi 3",
}


def base(pci_class):
    """(base class, sub class) of a class number: 0x030200 gives (3, 2)."""
    return pci_class >> 16, pci_class >> 8 & 0xFF


def network(pci_class):
    """True for Ethernet, IPoIB and every other network class, and for InfiniBand serial-bus adapters (qib)."""
    return base(pci_class)[0] == 0x02 or base(pci_class) == (0x0C, 0x06)


def display(pci_class):
    return base(pci_class)[0] == 0x03


def may_be_accelerator(pci_class):
    """True when the vendor has to be looked at."""
    return base(pci_class)[0] == 0x03 or base(pci_class) == (0x12, 0x00)


def accelerator(vendor, pci_class, boot_vga):
    """True, False, or None where it hangs on an unknown boot_vga.

    vendor, pci_class  numbers; boot_vga: True for the display that the firmware used, None where the kernel does not say.
    An Intel display of class 0300 is a data centre card unless it is the boot display; other vendors' cards count even then.
    """
    if vendor == INTEL and base(pci_class) == (0x03, 0x00):
        return None if boot_vga is None else not boot_vga
    return base(pci_class) in _ACCELERATORS.get(vendor, ())


def name(vendor, device):
    """Model name of an accelerator, or None."""
    return _NAMES.get((vendor, device))


def root_and_bridges(path):
    """(pcie_root, bridges) of a device's link-free sysfs path.

    pcie_root is the first component of the form pciDDDD:BB, wherever it stands: on Hyper-V it lies below LNXSYSTM…/VMBUS…, and
    a device behind Intel VMD has the VMD function's own root first. (The Kubernetes helper that publishes
    resource.kubernetes.io/pcieRoot accepts only "/sys/devices/pci" and a four-digit domain, so there it publishes nothing.)
    bridges are the functions between that root and the device, root port first. (None, []) where the path has no root.
    """
    parts = path.split("/")
    for index, part in enumerate(parts):
        if ROOT.match(part):
            return part, [step for step in parts[index + 1 : -1] if BDF.match(step)]
    return None, []
