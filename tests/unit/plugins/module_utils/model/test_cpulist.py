# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU list arithmetic: tables of the kernel's formats, and properties against Python sets."""

from __future__ import annotations

import json

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

CPUS = st.sets(st.integers(0, 4095), max_size=300)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("3,1,1,2", [1, 2, 3]),
        ("0-1,32-33\n", [0, 1, 32, 33]),
        ("7-7", [7]),
        (" 1 , 3 ", [1, 3]),
        ("1023-1025", [1023, 1024, 1025]),
        ("65535", [65535]),
    ],
)
def test_expand(text, ids):
    assert cpulist.expand(text) == ids


@pytest.mark.parametrize(
    "text",
    [
        "0-",
        "-",
        "-3",
        ",,",
        ",2",
        "-,",
        "0-1,",
        "0,1,3,,4",
        "a",
        "0x1",
        "1.5",
        "3-1",
        "5-4",
        "(null)",
        "0-4294967295",
        "65536",
        "0 1",
        "N",
        "all",
        "0-31:2/4",
        "0--3",
        "\x00",
        "１",
        "1" * 5000,
    ],
)
def test_refused(text):
    with pytest.raises(HostprepError) as caught:
        cpulist.expand(text)
    assert caught.value.code == "cpulist_invalid"
    assert caught.value.read and caught.value.allowed and len(str(caught.value)) < 400


@pytest.mark.parametrize("ids", [[-1], [70000], ["x"], [1.5], [None]])
def test_ids_refused(ids):
    with pytest.raises(HostprepError):
        cpulist.compress(ids)


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [
        ("", "00000000"),
        ("0", "00000001"),
        ("2-3", "0000000c"),
        ("31", "80000000"),
        ("32", "00000001,00000000"),
        ("0-1,32-33", "00000003,00000003"),
        ("1056", "00000001" + ",00000000" * 33),
    ],
)
def test_masks(cpus, mask):
    assert cpulist.to_mask(cpus) == mask
    assert cpulist.from_mask(mask) == cpus


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [("f", "0-3"), ("0xff", "0-7"), ("ffff,ffffffff,fffff81f", "0-4,11-79"), ("1ffffffff", "0-32"), ("0", "")],
)
def test_masks_as_others_write_them(mask, cpus):
    assert cpulist.from_mask(mask) == cpus


@pytest.mark.parametrize(
    "mask", ["", "g", "1,", ",1", "1,123456789", "-1", "(null)", "0x", "1 2", "f" * 20000, ",".join(["f"] * 3000)]
)
def test_masks_refused(mask):
    with pytest.raises(HostprepError) as caught:
        cpulist.from_mask(mask)
    assert caught.value.code == "cpumask_invalid"
    assert len(str(caught.value)) < 400


@given(CPUS)
def test_round_trips(cpus):
    text = cpulist.compress(cpus)
    assert cpulist.expand(text) == sorted(cpus)
    assert cpulist.compress(text) == text
    assert cpulist.from_mask(cpulist.to_mask(cpus)) == text


@given(CPUS, CPUS, CPUS)
def test_set_algebra(one, two, three):
    texts = [cpulist.compress(cpus) for cpus in (one, two, three)]
    assert cpulist.expand(cpulist.union(*texts)) == sorted(one | two | three)
    assert cpulist.expand(cpulist.minus(*texts)) == sorted(one - two - three)
    assert cpulist.expand(cpulist.intersect(*texts)) == sorted(one & two & three)


@given(st.text(max_size=60))
def test_any_text_is_a_list_or_refused(text):
    for parse in (cpulist.expand, cpulist.from_mask):
        try:
            parse(text)
        except HostprepError as error:
            assert str(error)


def test_published_masks(shared):
    published = json.loads((shared / "ppc" / "cases.json").read_text())["cpulist_to_mask"]
    for cpus, mask in published["rows"]:
        assert cpulist.to_mask(cpus) == mask
    for text in published["invalid_cpulists"]:
        with pytest.raises(HostprepError):
            cpulist.expand(text)
