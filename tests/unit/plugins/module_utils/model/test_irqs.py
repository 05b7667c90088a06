# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of /proc/interrupts: every form that kernels print, and whose they are."""

from __future__ import annotations

import time

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import irqs
from hypothesis import given, settings, strategies as st

HEADER = "            CPU0       CPU1       CPU3\n"


def parse(text, counts=False):
    return irqs.parse(text.encode(), counts)


def one(line, header=HEADER, counts=False):
    table = parse(header + line + "\n", counts)
    assert table.bad == []
    return table.irqs[0]


@pytest.mark.parametrize(
    "line, number, chip, hwirq, flow, actions",
    [
        (
            " 151:          0          0         12  IR-PCI-MSIX-0000:01:00.0    1-edge      eno3-TxRx-0",
            151,
            "IR-PCI-MSIX-0000:01:00.0",
            1,
            "edge",
            ["eno3-TxRx-0"],
        ),
        (
            "  30:          1          2          3 PCI-MSIX-0000:00:02.0   0-edge      virtio2-config",
            30,
            "PCI-MSIX-0000:00:02.0",
            0,
            "edge",
            ["virtio2-config"],
        ),
        (
            "  25:          0          0          0  IR-PCI-MSI 458752-edge      PCIe PME, pciehp",
            25,
            "IR-PCI-MSI",
            458752,
            "edge",
            ["PCIe PME", "pciehp"],
        ),
        (
            "  23:          0          0          0   IO-APIC-fasteoi   ehci_hcd:usb1, uhci_hcd:usb2",
            23,
            "IO-APIC",
            None,
            "fasteoi",
            ["ehci_hcd:usb1", "uhci_hcd:usb2"],
        ),
        ("   7:          2          0          0  IR-IO-APIC-edge      ", 7, "IR-IO-APIC", None, "edge", []),
        (
            "  74:      11969       3936          0  xen-pirq-msi-x     ens3-TxRx-0",
            74,
            "xen-pirq",
            None,
            "msi-x",
            ["ens3-TxRx-0"],
        ),
        (
            "  75:      11969       3936          0  xen-pirq    -msi-x     ens3-TxRx-1",
            75,
            "xen-pirq",
            None,
            "msi-x",
            ["ens3-TxRx-1"],
        ),
        (
            "  76:      11969       3936          0  xen-dyn    -event     eth0-q0-tx",
            76,
            "xen-dyn",
            None,
            "event",
            ["eth0-q0-tx"],
        ),
        (
            "  13:          1          2          3     GICv3  27 Level     arch_timer",
            13,
            "GICv3",
            27,
            "level",
            ["arch_timer"],
        ),
        (
            "  48:          1          2          3   ITS-MSI 524288 Edge      nvme0q0",
            48,
            "ITS-MSI",
            524288,
            "edge",
            ["nvme0q0"],
        ),
        (
            "  49:          1          2          3 ITS-PCI-MSIX-0006:01:00.0   2 Edge      mlx5_comp1@pci:0006:01:00.0",
            49,
            "ITS-PCI-MSIX-0006:01:00.0",
            2,
            "edge",
            ["mlx5_comp1@pci:0006:01:00.0"],
        ),
        (
            "  50:          1          2          3  2200000.gpio  85 Edge      power-button",
            50,
            "2200000.gpio",
            85,
            "edge",
            ["power-button"],
        ),
        ("  16:          1          2          3  XICS 4096 Level     IPI", 16, "XICS", 4096, "level", ["IPI"]),
        (
            "  17:          1          2          3  XIVE-IRQ 1052672 Edge      eth0-TxRx-0",
            17,
            "XIVE-IRQ",
            1052672,
            "edge",
            ["eth0-TxRx-0"],
        ),
        ("   4:          1          2          3  PCI-MSI  0      ism", 4, "PCI-MSI", 0, None, ["ism"]),
        (
            "  24:          1          2          3  Hyper-V PCIe MSI 1476395009-edge      mlx5_comp0@pci:000b:00:02.0",
            24,
            "Hyper-V PCIe MSI",
            1476395009,
            "edge",
            ["mlx5_comp0@pci:000b:00:02.0"],
        ),
        (
            "  90:          1          2          3  IR-PCI-MSI 1-edge      hfi1_0 kctxt3",
            90,
            "IR-PCI-MSI",
            1,
            "edge",
            ["hfi1_0 kctxt3"],
        ),
        (
            "  91:          1          2          3  IR-PCI-MSI 2-edge      eth4 (queue 12)",
            91,
            "IR-PCI-MSI",
            2,
            "edge",
            ["eth4 (queue 12)"],
        ),
        ("  92:          1          2          3      None", 92, "None", None, None, []),
        ("  93:          1          2          3          -  7", 93, "-", 7, None, []),
        ("  94:          1          2", 94, None, None, None, []),
        ("  95:", 95, None, None, None, []),
        ("  96:          1    IO-APIC   2-ed", 96, "IO-APIC", 2, "ed", []),
    ],
)
def test_numbered_lines(line, number, chip, hwirq, flow, actions):
    irq = one(line)
    assert (irq.number, irq.chip, irq.hwirq, irq.flow, irq.actions) == (number, chip, hwirq, flow, actions)


def test_columns_with_gaps_sums_and_short_lines():
    table = parse(
        HEADER
        + "   0:          1          2          3   IO-APIC   2-edge      timer\n"
        + " NMI:          0          0          0   Non-maskable interrupts\n\n"
        + "ERR:          0\nMIS:          0\n"
    )
    assert table.columns == [0, 1, 3]
    assert [irq.number for irq in table.irqs] == [0]
    assert table.sums == ["NMI", "ERR", "MIS"]
    assert table.bad == []


def test_a_file_without_a_header():
    table = parse(" 57:          1          0   PCI-MSI 1605636-edge      eth2-TxRx-4\n")
    assert table.columns is None and table.irqs[0].actions == ["eth2-TxRx-4"]


def test_an_empty_file():
    table = parse("")
    assert (table.columns, table.irqs, table.sums, table.bad) == (None, [], [], [])


def test_lines_that_are_neither():
    table = parse(HEADER + "no colon here\ntwo words: 1\n")
    assert table.bad == [(2, "no colon here"), (3, "two words: 1")]


def test_counts():
    irq = one("  33:          7 4294967295          0  IR-PCI-MSI 1-edge      eth0", counts=True)
    assert irq.counts == [7, 4294967295, 0]
    assert one("  33:  7 8  IR-PCI-MSI 1-edge      eth0", counts=True).counts == [7, 8]
    assert one("  33:          7          8          9  IR-PCI-MSI 1-edge      eth0").counts is None


def test_counts_of_some():
    data = b"           CPU0       CPU1\n   1:          2          3  PCI-MSI 5-edge      a\n   2:          4          5  PCI-MSI 6-edge      b\n"
    assert [row.counts for row in irqs.parse(data, {2}).irqs] == [None, [4, 5]]
    assert [row.counts for row in irqs.parse(data, frozenset()).irqs] == [None, None]


def test_message_signalled():
    assert one("  33:          1          0          0  IR-PCI-MSI 1-edge      eth0").msi
    assert one("  33:          1          0          0  ITS-MSI 1 Edge      eth0").msi
    assert one("  33:          1          0          0  xen-pirq    -msi-x     eth0").msi
    assert not one("  33:          1          0          0  IR-IO-APIC    2-edge      timer").msi


def test_a_thousand_cpus_take_no_second():
    cpus, lines = 1152, 2048
    header = " " * 11 + "".join("CPU%-8d" % cpu for cpu in range(cpus))
    counts = "".join(" %10d" % (cpu * 7919 % 1000000) for cpu in range(cpus))
    text = "\n".join(
        [header]
        + [
            "%7d:%s  IR-PCI-MSIX-0000:18:00.0 %4d-edge      mlx5_comp%d@pci:0000:18:00.0"
            % (number, counts, number, number)
            for number in range(lines)
        ]
    )
    data = text.encode()
    begin = time.process_time()
    table = irqs.parse(data)
    assert time.process_time() - begin < 0.8
    assert len(table.columns) == cpus and len(table.irqs) == lines
    assert table.irqs[-1].actions == ["mlx5_comp2047@pci:0000:18:00.0"] and table.irqs[-1].hwirq == 2047


# -- attribution -------------------------------------------------------------------------------------------------------


def irq(chip=None, hwirq=None, *actions):
    return irqs.Irq(1, chip, hwirq, "edge", list(actions))


@pytest.mark.parametrize(
    "row, address",
    [
        (irq("IR-PCI-MSIX-0000:18:00.0", 2, "megasas1-msix2"), "0000:18:00.0"),
        (irq("PCI-MSIX-10000:e1:00.0", 0, "nvme4q0"), "10000:e1:00.0"),
        (irq("IR-PCI-MSI", 5, "mlx5_comp3@pci:0000:19:01.2"), "0000:19:01.2"),
        (irq("IR-PCI-MSI", 5, "i40e-0000:86:00.1:misc"), "0000:86:00.1"),
        (irq("IR-PCI-MSI", 5, "ahci[0000:00:1f.2]"), "0000:00:1f.2"),
        (irq("IR-PCI-MSI", 5, "irdma-0000:4b:00.0-CEQ-3"), "0000:4b:00.0"),
        (irq("IR-PCI-MSI", 5, "hns3-0000:bd:00.0-TxRx-0"), "0000:bd:00.0"),
        (irq("IR-IO-APIC", 5, "acpi"), None),
        (irq("IR-PCI-MSI", 5, "gve-ntfy-blk0@pci:0000:00:0"), None),
    ],
)
def test_addresses_in_names(row, address):
    assert irqs.address(row) == address


@pytest.mark.parametrize(
    "row, address",
    [
        (irq("IR-PCI-MSI", 13107201, "x"), "0000:19:00.0"),
        (irq("PCI-MSI", 1605640, "eth2"), "0000:03:02.0"),
        (irq("ITS-MSI", 524288, "nvme0q0"), "0000:01:00.0"),
        (irq("Hyper-V PCIe MSI", (0xB << 27) | (2 << 14), "x"), "000b:00:02.0"),
        (irq("PCI-MSI", 0x10000 << 27 | 1 << 19, "x"), "10000:01:00.0"),
        (irq("PCI-MSIX-0000:19:00.0", 13107201, "x"), None),
        (irq("DMAR-MSI", 13107201, "dmar6"), None),
        (irq("IR-IO-APIC", 9, "acpi"), None),
        (irq("PCI-MSI", None, "x"), None),
    ],
)
def test_addresses_encoded_in_hwirq(row, address):
    assert irqs.encoded_address(row) == address


def test_addresses_cut_short():
    known = ("0000:00:04.0", "0000:00:05.0", "0000:01:00.0")
    assert irqs.cut_address(irq(None, None, "gve-ntfy-blk12@pci:0000:00:04"), known) == "0000:00:04.0"
    assert irqs.cut_address(irq(None, None, "gve-ntfy-blk12@pci:0000:00:0"), known) is None, "two begin so"
    assert irqs.cut_address(irq(None, None, "gve-ntfy-blk12@pci:"), known) is None
    assert irqs.cut_address(irq(None, None, "timer"), known) is None


NAMES = ("eth0", "eth0.10", "eth1", "eth10", "eno1", "eno1np0", "enp129s0f0np0", "enp129s0f1np1", "my-nic")


@pytest.mark.parametrize(
    "action, name",
    [
        ("eth0-TxRx-3", "eth0"),
        ("i40e-eth10-TxRx-3", "eth10"),
        ("eth1", "eth1"),
        ("eth100-rx-0", None),
        ("eno1np0-TxRx-0", "eno1np0"),
        ("bnxt_en-eno1-TxRx-0", "eno1"),
        ("my-nic-rx-1", "my-nic"),
        ("xeth0-rx-1", None),
        ("eth0.10-rx-1", "eth0.10"),
        ("enp129s0f0np0-TxR", "enp129s0f0np0"),
        ("enp129s0f0n-rx-12", "enp129s0f0np0"),  # enic keeps 11 characters
        ("bnxt_en-enp129s0f1np", "enp129s0f1np1"),
        ("enp129s0f-rx-1", None),
        ("enp129s0-rx-1", None),
        ("timer", None),
    ],
)
def test_device_names(action, name):
    assert irqs.netdev(irq(None, None, action), NAMES) == name


def test_virtio_names():
    assert irqs.virtio(irq(None, None, "virtio12-req.3")) == "virtio12"
    assert irqs.virtio(irq(None, None, "uhci_hcd:usb1", "virtio4")) == "virtio4"
    assert irqs.virtio(irq(None, None, "virtio")) is None


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300)
    | st.text(alphabet=st.sampled_from("0123456789: \t\n-abcXIMS@.,(){}\x00\u0664"), max_size=300).map(str.encode),
    st.booleans(),
)
def test_any_file_is_parsed(data, counts):
    table = irqs.parse(data, counts)
    for row in table.irqs:
        irqs.address(row), irqs.encoded_address(row), irqs.netdev(row, NAMES), irqs.virtio(row)
        irqs.cut_address(row, ("0000:00:04.0",))
        assert row.msi in (True, False)
