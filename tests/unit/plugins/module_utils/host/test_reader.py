# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed reading: what makes no sense is None and noted with the file and the reason."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import reader as readers
from hypothesis import HealthCheck, given, settings, strategies as st


@pytest.mark.parametrize(
    "text, value, why",
    [
        ("1000\n", 1000, None),
        ("0", 0, None),
        ("-1\n", None, "out of range: '-1'"),
        ("", None, "not a number: ''"),
        ("(null)\n", None, "not a number: '(null)'"),
        ("12 34", None, "not a number: '12 34'"),
        ("1e3", None, "not a number: '1e3'"),
        ("\u0661\u0662", None, "not a number: '\u0661\u0662'"),
        ("9" * 5000, None, "not a number: '%s...'" % ("9" * 37)),
        ("99999999999999999999", None, "not a number: '99999999999999999999'"),
        ("9223372036854775808", None, "out of range: '9223372036854775808'"),
    ],
)
def test_integers(host, text, value, why):
    reader = host.add({"sys/x": text}).reader()
    assert reader.integer("sys/x", "a.b") == value
    assert [note["why"] for note in reader.unknown] == ([why] if why else [])


def test_hexadecimal(host):
    reader = host.add({"sys/a": "0x020000\n", "sys/b": "15b3", "sys/c": "0xg", "sys/d": "0x1ffff"}).reader()
    assert [reader.hexadecimal("sys/" + name, None, 0xFFFFF) for name in "abcd"] == [0x20000, 0x15B3, None, 0x1FFFF]
    assert reader.hexadecimal("sys/d", "x", 0xFFFF) is None
    assert reader.unknown == [{"what": "x", "path": "sys/d", "why": "out of range: '0x1ffff'"}]


def test_words(host):
    reader = host.add(
        {"sys/a": "up\n", "sys/b": "InfiniBand\n", "sys/c": "(null)\n", "sys/d": "two words", "sys/e": ""}
    ).reader()
    assert [reader.word("sys/" + name, name) for name in "abcdef"] == ["up", "InfiniBand", None, None, None, None]
    assert [note["why"] for note in reader.unknown] == [
        "not a word: '(null)'",
        "not a word: 'two words'",
        "not a word: ''",
        "missing",
    ]


def test_cpu_lists_and_masks(host):
    reader = host.add(
        {"sys/list": "0-2,8\n", "sys/mask": "00000001,00000003\n", "sys/none": "\n", "sys/bad": "0-\n"}
    ).reader()
    assert reader.cpus("sys/list") == {0, 1, 2, 8}
    assert reader.mask("sys/mask") == {0, 1, 32}
    assert reader.cpus("sys/none") == frozenset()
    assert reader.cpus("sys/bad", "x") is None
    assert reader.unknown == [{"what": "x", "path": "sys/bad", "why": "neither a CPU list nor a mask: '0-'"}]


def test_a_mask_stands_in_for_a_missing_list_only(host):
    reader = host.add({"sys/mask": "3", "sys/bad": "(null)", "sys/list": "0-3"}).reader()
    assert reader.cpus_or_mask("sys/absent", "sys/mask", "a") == {0, 1}
    assert reader.cpus_or_mask("sys/list", "sys/mask", "b") == {0, 1, 2, 3}
    assert reader.unknown == []
    assert reader.cpus_or_mask("sys/bad", "sys/mask", "c") is None
    assert reader.cpus_or_mask("sys/absent", "sys/bad", "d") is None
    assert reader.cpus_or_mask("sys/absent", "sys/absent2", "e") is None
    assert [(note["what"], note["path"], note["why"]) for note in reader.unknown] == [
        ("c", "sys/bad", "makes no sense: '(null)'"),
        ("d", "sys/bad", "makes no sense: '(null)'"),
        ("e", "sys/absent", "missing"),
    ]


def test_an_unknown_is_noted_once_and_not_without_end(host, monkeypatch):
    monkeypatch.setattr(readers, "MAX_UNKNOWN", 3)
    reader = host.add({"sys": None}).reader()
    for number in range(9):
        reader.text("sys/%d" % (number // 2), "x")
    assert len(reader.unknown) == 3


def test_canonical_lists(host):
    reader = host.add(
        {"sys/a": "7,5-6\n", "sys/b": "7,5-6\n", "sys/mask": "e0\n", "sys/none": "\n", "sys/bad": "7-"}
    ).reader()
    assert reader.cpulist("sys/a", "sys/mask") == "5-7"
    assert reader.cpulist("sys/b", "sys/mask") is reader.cpulist("sys/a", "sys/mask")
    assert reader.cpulist("sys/absent", "sys/mask") == "5-7"
    assert reader.cpulist("sys/none", "sys/mask") == ""
    assert reader.cpulist("sys/bad", "sys/mask", "x") is None
    assert reader.unknown == [{"what": "x", "path": "sys/bad", "why": "makes no sense: '7-'"}]
    assert readers.listed(frozenset((2, 0, 1))) == "0-2"
    assert readers.listed(None) is None


def test_names_that_are_not_text():
    assert readers.printable("eth\udce9") == "eth\\udce9"
    assert "\udce9" not in readers.shown("eth\udce9")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=60))
def test_nothing_escapes(host, data):
    reader = host.add({"sys/x": data}).reader()
    assert reader.integer("sys/x", "x") is None or reader.unknown == []
    for found in (reader.cpus("sys/x", "y"), reader.mask("sys/x", "z")):
        assert found is None or all(isinstance(cpu, int) for cpu in found)
    assert reader.hexadecimal("sys/x") is None or reader.hexadecimal("sys/x") >= 0
