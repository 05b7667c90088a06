# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the boot: what it holds, what a boot makes of it, and the lines that the journal gets."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_record
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

ARGS = ["isolcpus=managed_irq,2-3", "irqaffinity=0-1"]
OLD = ["isolcpus=managed_irq,1-3"]
TRIAL = {
    "args": ARGS,
    "id": "t",
    "boot_id": "a",
    "kernel": "6",
    "method": "one_shot",
    "extras": ["panic=60"],
    "plan": None,
    "seen": None,
}
COMMITTED = {"args": OLD, "id": "c", "boot_id": "a", "plan": None}
MARK = "rke2_hostprep.trial=t"


def record(**more):
    return dict(boot_record.empty(), **more)


@pytest.mark.parametrize(
    ("found", "tokens", "boot", "state"),
    [
        (record(), ARGS, "a", "none"),
        (record(trial=TRIAL), ["ro"], "a", "pending"),
        (record(trial=TRIAL), ["ro"], "b", "fallback"),
        (record(trial=TRIAL), [*ARGS, MARK], "b", "trial"),
        (record(trial=TRIAL), [*ARGS, "isolcpus=3", MARK], "b", "fallback"),
        (record(trial=TRIAL), [*ARGS, "rke2_hostprep.trial=another"], "b", "fallback"),
        (record(trial=TRIAL, committed=COMMITTED), OLD, "b", "fallback"),
        (record(committed=COMMITTED), OLD, "b", "as_planned"),
        (record(committed=COMMITTED), ["ro"], "a", "pending"),
        (record(committed=COMMITTED), ["ro"], "b", "fallback"),
        # broken off
        (record(trial=TRIAL, going="trial"), ["ro"], "a", "pending"),
        (record(trial=TRIAL, going="trial"), ["ro"], "b", "none"),
        (record(trial=TRIAL, going="trial"), [*ARGS, MARK], "b", "trial"),
        (record(trial=TRIAL, going="commit"), [*ARGS, MARK], "b", "trial"),
        (record(trial=TRIAL, going="commit"), ARGS, "c", "as_planned"),
        (record(trial=TRIAL, going="commit"), ["ro"], "c", "fallback"),
        (record(trial=TRIAL, going="present"), ARGS, "c", "as_planned"),
    ],
)
def test_what_a_boot_makes_of_the_record(found, tokens, boot, state):
    outcome = boot_record.outcome(found, tokens, boot)
    assert outcome["state"] == state
    bad, line = boot_record.line(found, outcome)
    assert bad is (state == "fallback") and line


@pytest.mark.parametrize(
    ("found", "tokens"),
    [
        (record(), []),
        (record(committed=COMMITTED, trial=TRIAL), OLD),
        (record(committed=COMMITTED, trial=TRIAL, going="trial"), OLD),
        (record(committed=COMMITTED, trial=TRIAL, going="commit"), [*OLD, *ARGS]),
        (record(trial=TRIAL, going="absent"), ARGS),
    ],
)
def test_tokens_that_may_stand_in_files_of_others(found, tokens):
    assert boot_record.ours(found) == tokens


def test_a_boot_is_remembered_once_and_the_oldest_go():
    found = record(trial=TRIAL)
    history = "damaged"
    for number in range(boot_record.HISTORY + 5):
        for _run in range(2):
            boot = "b%d" % number
            history = boot_record.remembered(history, found, boot_record.outcome(found, [], boot), boot)
    assert [one["boot_id"] for one in history] == ["b%d" % number for number in range(5, boot_record.HISTORY + 5)]
    assert history[0]["id"] == "t" and history[0]["missing"] == ARGS


@pytest.mark.parametrize("going", boot_record.GOING)
def test_what_the_module_writes_is_taken(going):
    found = record(trial=TRIAL, committed=COMMITTED, going=going)
    assert boot_record.check(found) is found


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    )
)
def test_anything_else_is_refused_with_a_sentence(document):
    with pytest.raises(HostprepError) as caught:
        boot_record.check(document)
    assert caught.value.code in ("boot_record_damaged", "boot_record_newer")


@pytest.mark.parametrize("slot", ["committed", "trial"])
@pytest.mark.parametrize("key", ["args", "id", "boot_id"])
@pytest.mark.parametrize("value", [None, 1, [1]])
def test_a_slot_that_lacks_something_is_damaged(slot, key, value):
    found = record(trial=dict(TRIAL), committed=dict(COMMITTED))
    found[slot][key] = value
    with pytest.raises(HostprepError):
        boot_record.check(found)
