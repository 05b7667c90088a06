# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `bench isolation` counts inside a machine: a share that is wrong would be believed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("The bench is for Python 3.11 and newer.", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import isolation  # noqa: E402  (found by the path above)
import on_machine  # noqa: E402


@pytest.mark.parametrize("cpus, numbers", [("", set()), ("3", {3}), ("0-1,4", {0, 1, 4}), ("10-11,2", {2, 10, 11})])
def test_a_cpu_list(cpus, numbers):
    assert on_machine.expand(cpus) == numbers


@pytest.fixture
def moments(monkeypatch):
    """Answers of counts(), one for each second."""
    answers = []
    monkeypatch.setattr(on_machine, "counts", lambda: answers.pop(0))
    monkeypatch.setattr(on_machine.time, "sleep", lambda _seconds: None)
    return answers


def test_shares_are_of_what_came_meanwhile(moments):
    moments += [
        ({("24", "ens1-TxRx-0"): {0: 100, 2: 500}, ("25", "ens1"): {0: 7, 2: 7}}, {0: 10, 2: 90}),
        ({("24", "ens1-TxRx-0"): {0: 106, 2: 502}, ("25", "ens1"): {0: 7, 2: 7}}, {0: 19, 2: 91}),
        ({("24", "ens1-TxRx-0"): {0: 108, 2: 502}, ("25", "ens1"): {0: 7, 2: 7}}, {0: 20, 2: 91}),
    ]
    found = on_machine.interrupts("2", "2-3")
    assert found == {"interrupts": [2, 10], "net_rx": [1, 11], "queues": 1, "seconds": [1, 2]}
    assert isolation.shares(found) == ("20.0 %", "9.1 %", "50.0 %", "1")


def test_a_vector_that_is_made_anew_counts_from_nothing(moments):
    moments += [
        ({("24", "ens1-TxRx-0"): {0: 100, 2: 0}}, {0: 0, 2: 0}),
        ({("31", "ens1-TxRx-0"): {0: 3, 2: 1}}, {0: 3, 2: 1}),
    ]
    assert on_machine.interrupts("1", "2")["interrupts"] == [1, 4]


def test_nothing_counted_is_not_a_share_of_nothing(moments):
    moments += [({}, {0: 5, 2: 5})] * 2
    assert isolation.shares(on_machine.interrupts("1", "2")) == ("-", "-", "0.0 %", "0")


def test_the_rows_of_the_kernels_tables(tmp_path):
    path = tmp_path / "interrupts"
    path.write_text(
        "           CPU0       CPU2\n 24:   1   2  PCI-MSI 0-edge  ens1-TxRx-0\nLOC:  30  40  Local timer interrupts\nERR:  0\n"
    )
    rows, names = on_machine.table(path)
    assert rows == {"24": {0: 1, 2: 2}, "LOC": {0: 30, 2: 40}}
    assert names["24"] == "ens1-TxRx-0"
