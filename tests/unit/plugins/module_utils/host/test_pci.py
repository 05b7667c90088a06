# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI functions and accelerators."""

from __future__ import annotations

import pytest

GPU = {"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n", "numa_node": "1\n"}


def test_an_accelerator_behind_a_switch(host):
    path = "pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:02.0/0000:1a:00.0"
    host.pci(path, **GPU).add({"sys/devices/%s/driver" % path: host.Link("../../../../../../bus/pci/drivers/nvidia")})
    found = host.discover()
    assert found["gpus"] == [
        {
            "pci": "0000:1a:00.0",
            "vendor": "0x10de",
            "device": "0x2330",
            "class": "0x030200",
            "numa_node": 1,
            "pcie_root": "pci0000:17",
            "bridges": ["0000:17:01.0", "0000:18:00.0", "0000:19:02.0"],
            "driver": "nvidia",
            "name": "H100 SXM5 80GB",
        }
    ]
    assert found["display"] == ["0000:1a:00.0"]


@pytest.mark.parametrize(
    "path, root, bridges",
    [
        (
            "LNXSYSTM:00/LNXSYBUS:00/PNP0A03:00/device:07/VMBUS:01/47505500-0001-0000-3130-444531444234/pci4d5e:00/4d5e:00:02.0",
            "pci4d5e:00",
            [],
        ),
        (
            "pci0000:80/0000:80:05.5/pci10000:80/10000:80:02.0/10000:81:00.0",
            "pci0000:80",
            ["0000:80:05.5", "10000:80:02.0"],
        ),
        ("pci1a2b3c4d:00/1a2b3c4d:00:00.0", "pci1a2b3c4d:00", []),
        ("platform/soc/0000:01:00.0", None, []),
    ],
)
def test_roots_in_odd_places(host, path, root, bridges):
    found = host.pci(path, **GPU).discover()
    assert [(gpu["pci"], gpu["pcie_root"], gpu["bridges"]) for gpu in found["gpus"]] == [
        (path.rpartition("/")[2], root, bridges)
    ]


@pytest.mark.parametrize(
    "vendor, number, boot_vga, counts",
    [
        ("0x10de", "0x030000", None, True),
        ("0x10de", "0x030000", "1", True),
        ("0x10de", "0x030200", None, True),
        ("0x10de", "0x068000", None, False),  # NVSwitch
        ("0x10de", "0x040300", None, False),  # the audio function of a display card
        ("0x1002", "0x038000", None, True),
        ("0x1002", "0x120000", None, True),
        ("0x8086", "0x038000", None, True),
        ("0x8086", "0x030000", "0", True),
        ("0x8086", "0x030000", "1", False),
        ("0x8086", "0x030000", None, None),
        ("0x1da3", "0x120000", None, True),
        ("0x1da3", "0x030000", None, False),
        ("0x1a03", "0x030000", None, False),  # ASPEED
        ("0x102b", "0x030000", "1", False),  # Matrox
        ("0x1af4", "0x030000", None, False),  # virtio-gpu
        ("0x8086", "0x120000", None, False),
    ],
)
def test_what_is_an_accelerator(host, vendor, number, boot_vga, counts):
    host.pci("pci0000:00/0000:00:02.0", vendor=vendor, device="0x1234", **{"class": number})
    if boot_vga:
        host.add({"sys/devices/pci0000:00/0000:00:02.0/boot_vga": boot_vga})
    found = host.discover()
    assert len(found["gpus"]) == bool(counts)
    assert found["display"] == (["0000:00:02.0"] if number.startswith("0x03") else [])
    noted = [note for note in found["unknown"] if note["what"] == "gpus"]
    assert bool(noted) == (counts is None)


def test_dangling_links_are_one_note(host):
    for number in range(30):
        host.add(
            {"sys/bus/pci/devices/0000:%02x:00.0" % number: host.Link("../../../devices/pci0000:00/gone%d" % number)}
        )
    host.pci("pci0000:00/0000:00:1f.0", **{"class": "(null)"})
    found = host.discover()
    notes = [(note["what"], note["why"]) for note in found["unknown"] if note["what"] in ("nics", "gpus")]
    assert sorted(notes) == sorted(
        (what, why)
        for what in ("nics", "gpus")
        for why in (
            "dangling link: 30 functions, the first is 0000:00:00.0",
            "no readable class: 1 functions, the first is 0000:00:1f.0",
        )
    )


def test_ids_from_modalias_where_their_files_are_missing(host):
    host.pci(
        "pci0000:00/0000:00:03.0", modalias="pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00\n", numa_node="-1\n"
    )
    nic = host.discover()["nics"][0]
    assert (nic["class"], nic["vendor"], nic["device"]) == ("0x020000", "0x1af4", "0x1000")


def test_names_on_the_bus_that_are_no_addresses(host):
    host.add({"sys/bus/pci/devices/readme": "x", "sys/bus/pci/devices/0000:zz:00.0": host.Link("../../../devices")})
    found = host.discover()
    assert found["nics"] == found["gpus"] == []


def test_no_bus_folder(host):
    notes = {note["what"]: note["path"] for note in host.cpus(1).discover()["unknown"]}
    assert notes["nics"] == notes["gpus"] == "sys/bus/pci/devices"
