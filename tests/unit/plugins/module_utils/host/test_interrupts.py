# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts of a host, their devices, and the queues of NICs."""

from __future__ import annotations

NIC = {"vendor": "0x15b3\n", "device": "0x1021\n", "class": "0x020000\n", "numa_node": "0\n"}
FIRST = "pci0000:17/0000:17:01.0/0000:18:00.0"
SECOND = "pci0000:17/0000:17:01.0/0000:18:00.1"


def lines(*rows):
    return "           CPU0       CPU1\n" + "".join("%4d:          1          0  %s\n" % row for row in rows)


def by_number(topology):
    return {row["irq"]: row for row in topology["irqs"]}


def summary(nic):
    return [(row["irq"], row["kind"], row["queue"], row["managed"]) for row in nic["irqs"]]


def test_vectors_of_the_function(host):
    host.pci(FIRST, **NIC).add({"sys/devices/%s/msi_irqs/%d" % (FIRST, number): "msix\n" for number in (9, 10, 100)})
    host.add(
        {
            "proc/interrupts": lines(
                (9, "IR-PCI-MSI 1-edge      mlx5_async0@pci:0000:18:00.0"),
                (10, "IR-PCI-MSI 2-edge      anything-TxRx-0"),
            )
        }
    )
    found = host.discover()
    nic = found["nics"][0]
    assert nic["irq_source"] == "msi_irqs"
    assert summary(nic) == [(9, "aeq", None, False), (10, "queue", 0, False), (100, "misc", None, None)]
    assert nic["irqs"][2]["name"] is None, "a vector without a handler"
    assert by_number(found)[100] == {
        "irq": 100,
        "chip": None,
        "hwirq": None,
        "actions": [],
        "device": "0000:18:00.0",
        "managed": None,
        "affinity": None,
        "effective": None,
        "msi": True,
    }


def test_vectors_of_the_function_above_a_virtio_device(host):
    host.pci("pci0000:00/0000:00:03.0", **NIC).netdev("pci0000:00/0000:00:03.0/virtio2", "eth0")
    host.add({"sys/devices/pci0000:00/0000:00:03.0/msi_irqs/38": "msix\n"})
    host.add({"proc/interrupts": lines((38, "PCI-MSIX-0000:00:03.0 1-edge      virtio2-input.0"))})
    nic = host.discover()["nics"][0]
    assert (nic["irq_source"], summary(nic)) == ("ancestor", [(38, "rx", 0, False)])


def test_names_stand_in_for_the_vectors(host):
    """In the order: address in the chip, address in the action, address in hwirq, device name, virtio device."""
    host.pci(FIRST, **NIC).netdev(FIRST, "ens1f0").pci(SECOND, **NIC).netdev(SECOND, "ens1f1")
    host.pci("pci0000:00/0000:00:03.0", **NIC).netdev("pci0000:00/0000:00:03.0/virtio2", "eth0")
    host.add({"sys/bus/virtio/devices/virtio2": host.Link("../../../devices/pci0000:00/0000:00:03.0/virtio2")})
    host.add(
        {
            "proc/interrupts": lines(
                (1, "IR-PCI-MSIX-0000:18:00.0    1-edge      ens1f1-TxRx-0"),
                (2, "IR-PCI-MSI 5-edge      mlx5_comp2@pci:0000:18:00.1"),
                (3, "IR-PCI-MSI %d-edge      ens1f1-TxRx-3" % (0x18 << 19 | 3)),
                (4, "IO-APIC   4-fasteoi   ens1f0"),
                (5, "IO-APIC   5-fasteoi   virtio2"),
                (6, "IR-PCI-MSI %d-edge      something" % (0x77 << 19)),
                (7, "IO-APIC   7-fasteoi   acpi"),
            )
        }
    )
    found = host.discover()
    assert {number: row["device"] for number, row in by_number(found).items()} == {
        1: "0000:18:00.0",
        2: "0000:18:00.1",
        3: "0000:18:00.0",
        4: "0000:18:00.0",
        5: "0000:00:03.0",
        6: None,
        7: None,
    }
    assert [nic["irq_source"] for nic in found["nics"]] == ["interrupts"] * 3


def test_a_function_that_is_only_a_dangling_link_still_owns_its_vectors(host):
    host.add({"sys/bus/pci/devices/0000:18:00.0": host.Link("../../../devices/pci0000:17/0000:18:00.0")})
    host.add({"proc/interrupts": lines((3, "IR-PCI-MSI %d-edge      ens1f1-TxRx-3" % (0x18 << 19 | 3)))})
    assert by_number(host.discover())[3]["device"] == "0000:18:00.0"


def test_a_nic_without_pci_is_found_by_name(host):
    host.netdev("vif-0", "eth0").add(
        {"proc/interrupts": lines((76, "xen-dyn    -event     eth0-q0-tx"), (77, "xen-dyn    -event     eth0-q0-rx"))}
    )
    found = host.discover()
    assert summary(found["nics"][0]) == [(76, "tx", 0, False), (77, "rx", 0, False)]
    assert by_number(found)[76]["device"] is None


def test_the_only_vector_of_a_card_carries_its_data(host):
    host.pci(FIRST, **NIC).netdev(FIRST, "eth2").add({"proc/interrupts": lines((60, "IR-PCI-MSI-edge      eth2"))})
    assert summary(host.discover()["nics"][0]) == [(60, "queue", 0, False)]


def test_a_link_vector_beside_queues_stays_one(host):
    host.pci(FIRST, **NIC).netdev(FIRST, "eth2")
    host.add({"proc/interrupts": lines((60, "IR-PCI-MSI-edge      eth2"), (61, "IR-PCI-MSI-edge      eth2-0"))})
    assert summary(host.discover()["nics"][0]) == [(60, "misc", None, False), (61, "queue", 0, False)]


def test_a_shared_line_counts_by_the_nics_own_name(host):
    host.pci(FIRST, **NIC).netdev(FIRST, "eth1").add(
        {"proc/interrupts": lines((17, "IO-APIC-fasteoi   uhci_hcd:usb4, eth1"))}
    )
    found = host.discover()
    assert [row["name"] for row in found["nics"][0]["irqs"]] == ["eth1"]
    assert by_number(found)[17]["actions"] == ["uhci_hcd:usb4", "eth1"]


def test_what_is_managed(host):
    host.add(
        {
            "proc/interrupts": lines(
                (1, "IR-PCI-MSIX-0000:3e:00.0    0-edge      nvme0q0"),
                (2, "IR-PCI-MSIX-0000:3e:00.0    1-edge      nvme0q1"),
                (3, "IO-APIC   7-fasteoi   acpi"),
                (4, "IO-APIC   7-fasteoi   nvme0q3, acpi"),
            )
        }
    )
    assert {number: row["managed"] for number, row in by_number(host.discover()).items()} == {
        1: False,
        2: True,
        3: None,
        4: True,
    }


def test_debugfs_knows_better(host):
    host.add(
        {
            "proc/interrupts": lines(
                (1, "IR-PCI-MSIX-0000:3e:00.0    1-edge      nvme0q1"), (2, "IO-APIC   7-fasteoi   acpi")
            )
        }
    )
    host.add({"sys/kernel/debug/irq/irqs/1": "dstate:   0x1\n            IRQD_AFFINITY_SET\n"})
    host.add({"sys/kernel/debug/irq/irqs/2": "dstate:   0x1\n            IRQD_AFFINITY_MANAGED\n"})
    assert {number: row["managed"] for number, row in by_number(host.discover()).items()} == {1: False, 2: True}


def test_where_interrupts_may_go_and_do_go(host):
    host.add(
        {
            "proc/interrupts": lines(
                (1, "IO-APIC   7-fasteoi   acpi"), (2, "IO-APIC   8-fasteoi   rtc0"), (3, "IO-APIC   9-fasteoi   x")
            )
        }
    )
    host.add({"proc/irq/1/smp_affinity_list": "0-3,8\n", "proc/irq/1/effective_affinity_list": "8\n"})
    host.add({"proc/irq/2/smp_affinity": "00000001,00000003\n", "proc/irq/2/effective_affinity": "(null)\n"})
    host.add({"proc/irq/default_smp_affinity": "ff\n"})
    found = host.discover()
    assert {number: (row["affinity"], row["effective"]) for number, row in by_number(found).items()} == {
        1: ("0-3,8", "8"),
        2: ("0-1,32", None),
        3: (None, None),
    }
    assert found["default_smp_affinity"] == "0-7"
    assert [(note["what"], note["why"]) for note in found["unknown"] if note["what"].startswith("irqs")] == [
        ("irqs.2.effective", "makes no sense: '(null)'"),
        ("irqs.*.affinity", "no folder for 1 interrupts, such as 3"),
        ("irqs.*.effective", "no folder for 1 interrupts, such as 3"),
    ]


def test_no_interrupts_file(host):
    found = host.pci(FIRST, **NIC).discover()
    assert (found["irqs"], found["irq_columns"], found["nics"][0]["irq_source"]) == ([], None, None)
    assert {"what": "nics.0000:18:00.0.irq_source", "path": "proc/interrupts", "why": "missing"} in found["unknown"]


def test_garbage_lines_are_counted(host):
    found = host.add({"proc/interrupts": "(null)\n" * 5}).discover()
    assert found["irqs"] == [] and found["irq_columns"] is None
    assert [note["why"] for note in found["unknown"] if note["what"] == "irqs"] == [
        "5 lines make no sense, the first is line 1: (null)"
    ]


def test_rdma_vectors_of_an_ethernet_card(host):
    host.pci(FIRST, **NIC).netdev(FIRST, "ens1f0")
    rows = [
        (100 + number, "IR-PCI-MSIX-0000:18:00.0 %d-edge      ice-ens1f0-TxRx-%d" % (number, number))
        for number in range(3)
    ]
    rows += [
        (200 + number, "IR-PCI-MSIX-0000:18:00.0 %d-edge      irdma-0000:18:00.0-CEQ-%d" % (9 + number, number))
        for number in range(3)
    ]
    nic = host.add({"proc/interrupts": lines(*rows)}).discover()["nics"][0]
    assert [(row["kind"], row["queue"]) for row in nic["irqs"]] == [
        ("queue", 0),
        ("queue", 1),
        ("queue", 2),
        ("ceq", 0),
        ("ceq", 1),
        ("ceq", 2),
    ]
