# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many queues, and who sends by which."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import steering
from hypothesis import given, strategies as st


def now(combined=None, combined_max=None, rx=None, rx_max=None, tx=None, tx_max=None):
    return {
        "combined": combined, "combined_max": combined_max, "rx": rx, "rx_max": rx_max, "tx": tx, "tx_max": tx_max,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("queues", "have", "wanted"),
    [
        (2, now(8, 8), {"combined": 2}),
        (8, now(8, 8), {}),
        (16, now(4, 8), {"combined": 8}),
        (4, now(0, 0, 8, 8, 2, 2), {"rx": 4}),
        (4, now(None, None, 8, 16, 8, 16), {"rx": 4, "tx": 4}),
        (4, now(), {}),
        (0, now(8, 8), {}),
        (2, now(1, 1, 0, 0, 0, 0), {}),
        (4, now(8, 8, 0, 4, 0, 4), {"combined": 4}),
    ],
)
def test_channels(queues, have, wanted):
    assert steering.channels(queues, have) == wanted


def test_transmit():
    assert steering.transmit([4, 5], 2, range(8)) == [{4, 0, 2, 6}, {5, 1, 3, 7}]
    assert steering.transmit([4, 5], 4, {4, 5}) == [{4}, {5}, {4}, {5}]
    assert steering.transmit([4, 5], 2, {4}) == [{4}, set()], "5 is offline"
    assert steering.transmit([4], 0, range(8)) == []
    assert steering.transmit([], 2, range(8)) == [set(), set()]


@given(
    st.lists(st.integers(0, 63), min_size=1, max_size=16, unique=True),
    st.integers(1, 64),
    st.sets(st.integers(0, 63), min_size=1),
)
def test_every_cpu_sends_and_those_that_serve_by_their_own(queue_cpus, queues, cpus):
    found = steering.transmit(queue_cpus, queues, cpus)
    assert len(found) == queues and set().union(*found) == cpus
    for queue, own in enumerate(found):
        for cpu in own & set(queue_cpus[:queues]):
            assert cpu == queue_cpus[queue % len(queue_cpus)]
    others = [sum(cpu not in queue_cpus[:queues] for cpu in own) for own in found]
    assert max(others) - min(others) <= 1
