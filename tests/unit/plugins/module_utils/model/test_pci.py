# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of PCI classes and ids."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import pci


@pytest.mark.parametrize(
    "number, network, display",
    [
        (0x020000, True, False),
        (0x020700, True, False),
        (0x028000, True, False),
        (0x0C0600, True, False),
        (0x0C0330, False, False),
        (0x030000, False, True),
        (0x030200, False, True),
        (0x120000, False, False),
    ],
)
def test_classes(number, network, display):
    assert pci.network(number) is network
    assert pci.display(number) is display


@pytest.mark.parametrize(
    "text, whole",
    [
        ("0000:18:00.0", True),
        ("10000:e1:00.0", True),
        ("0000:18:00.8", False),
        ("0000:18:00.0\n", False),
        ("000:18:00.0", False),
        ("0000:18:0g.0", False),
    ],
)
def test_addresses(text, whole):
    assert bool(pci.BDF.match(text)) is whole


@pytest.mark.parametrize(
    "text, found",
    [
        ("IR-PCI-MSIX-0000:18:00.0", "0000:18:00.0"),
        ("x@pci:10000:e1:00.0", "10000:e1:00.0"),
        ("a0000:18:00.0", "a0000:18:00.0"),
        ("1234567890000:18:00.0", None),
        ("0000:18:00.01", None),
    ],
)
def test_addresses_inside_text(text, found):
    match = pci.BDF_ANYWHERE.search(text)
    assert (match.group(0) if match else None) == found


def test_names():
    assert pci.name(0x10DE, 0x2330) == "H100 SXM5 80GB"
    assert pci.name(0x10DE, 0x0001) is None


def test_every_named_device_is_of_a_vendor_that_has_accelerators():
    assert {vendor for vendor, _device in pci._NAMES} <= set(pci._ACCELERATORS)
