# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision about owned units: a table, and for every state found and wanted one run that suffices and a rollback that gives it back."""

from __future__ import annotations

import copy
import itertools
import json

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import owned
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

UNIT = "a.service"


def wanted(**unit):
    return owned.normalise({"units": [dict(unit, name=UNIT)]})


def found(enabled="disabled", active="inactive", load="loaded", fragment="/usr/lib/systemd/system/a.service"):
    return {"files": {}, "units": {UNIT: {"load": load, "enabled": enabled, "active": active, "fragment": fragment}}}


def actions(decision):
    return [step["action"] + (" --runtime" if step.get("runtime") else "") for step in decision["actions"]]


@pytest.mark.parametrize(
    ("now", "unit", "expected"),
    [
        (found(), {}, []),
        (found(), {"enabled": True}, ["enable"]),
        (found("enabled"), {"enabled": True}, []),
        (found("enabled-runtime"), {"enabled": True}, ["enable"]),
        (found("enabled"), {"enabled": False}, ["disable"]),
        (found("enabled-runtime"), {"enabled": False}, ["disable --runtime"]),
        (found("static"), {"enabled": False}, []),
        (found("linked"), {"enabled": True}, ["enable"]),
        (found(), {"masked": True}, ["mask"]),
        (found("masked"), {"masked": True}, []),
        (found("masked-runtime"), {"masked": True}, ["mask"]),
        (found("masked"), {"masked": False}, ["unmask"]),
        (
            found("masked-runtime"),
            {"masked": False, "enabled": True, "state": "started"},
            ["unmask --runtime", "enable", "start"],
        ),
        (
            found("enabled", "active"),
            {"masked": True, "enabled": False, "state": "stopped"},
            ["disable", "mask", "stop"],
        ),
        (found("enabled", "failed"), {"state": "started"}, ["start"]),
        (found("enabled", "activating"), {"state": "started"}, []),
        (found("enabled", "deactivating"), {"state": "stopped"}, []),
        (found("", load="not-found"), {"masked": True}, ["mask"]),
        (found("", load="not-found"), {"enabled": False, "state": "stopped"}, []),
    ],
)
def test_units(now, unit, expected):
    assert actions(owned.decide(wanted(**unit), now, owned.empty_record(), True)) == expected
    assert actions(owned.decide(wanted(**unit), now, owned.empty_record(), False)) == []


@pytest.mark.parametrize(
    ("name", "provided"),
    [
        ("a.service", True),
        ("t@1.service", True),
        ("t@.service", True),
        ("b.service", False),
        ("x.service", False),
        ("a.timer", False),
    ],
)
def test_a_unit_whose_file_is_in_the_set_need_not_be_there_yet(name, provided):
    paths = [
        "/etc/systemd/system/a.service",
        "/usr/lib/systemd/system/t@.service",
        "/etc/x.service",
        "/etc/systemd/system/b.service.d/c.conf",
    ]
    assert owned._provided(paths, name) is provided


class Systemd:
    """One unit with links of its own and a mask, which answers with the words that systemctl uses."""

    def __init__(self, enabled, active, masked):
        self.enabled, self.active, self.masked = enabled, active, masked

    def found(self):
        enabled = self.masked if self.masked else ("disabled", "enabled")[self.enabled]
        return found(enabled, "active" if self.active else "inactive")

    def carry_out(self, step):
        action = step["action"]
        if action in ("enable", "disable"):
            assert not self.masked, "systemctl refuses masked units"
            self.enabled = action == "enable"
        elif action in ("mask", "unmask"):
            self.masked = "" if action == "unmask" else "masked-runtime" if step.get("runtime") else "masked"
        elif action in ("start", "stop"):
            assert not (self.masked and action == "start")
            self.active = action == "start"
        else:
            raise AssertionError(action)

    def state(self):
        return self.enabled, self.active, self.masked


def converge(systemd, wish, record):
    """(number of actions, the record after it); what the host does with a decision."""
    now = systemd.found()
    decision = owned.decide(wish, now, record, True)
    record = owned.journal(wish, now, record, decision)
    for step in decision["actions"]:
        known = record["units"].get(UNIT)
        if step["action"] == "mask":
            owned.learn(known, step, systemd.found()["units"][UNIT]["enabled"])
        systemd.carry_out(step)
        if step["action"] == "unmask":
            owned.learn(known, step, systemd.found()["units"][UNIT]["enabled"])
    assert owned.not_as_wanted(wish, record, decision, systemd.found()["units"]) is None
    record = owned.settled(record, wish, decision)
    assert owned.check_record(json.loads(json.dumps(record))) == record
    return len(decision["actions"]), record


STATES = list(itertools.product((True, False), (True, False), ("", "masked", "masked-runtime")))
WISHES = [
    dict(zip(("enabled", "masked", "state"), values))
    for values in itertools.product((None, True, False), (None, True, False), (None, "started", "stopped"))
]


def one_run_each_and_back(before, wishes):
    systemd = Systemd(*before)
    record, stuck = owned.empty_record(), False
    for wish in wishes:
        try:
            wish = wanted(**wish)
            _count, record = converge(systemd, copy.deepcopy(wish), record)
        except HostprepError as error:
            assert error.code in ("unit_conflict", "unit_masked")
            continue
        assert converge(systemd, wish, record)[0] == 0
        # A mask on a running unit that was stopped: it cannot be started again behind its mask.
        stuck = stuck or (before[1] and bool(before[2]) and not systemd.active)
    back = owned.normalise({"state": "absent"})
    if not stuck:
        _count, record = converge(systemd, back, record)
        assert systemd.state() == before and owned.is_empty(record)


@pytest.mark.parametrize("before", STATES)
def test_any_two_wishes_need_one_run_each_and_a_rollback_gives_back_what_was_found(before):
    for wishes in itertools.product(WISHES, WISHES):
        one_run_each_and_back(before, wishes)


@given(st.sampled_from(STATES), st.lists(st.sampled_from(WISHES), min_size=3, max_size=4))
def test_more_wishes_need_one_run_each_and_a_rollback_gives_back_what_was_found(before, wishes):
    one_run_each_and_back(before, wishes)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_record_is_read_as_something_else(document):
    for value in (
        document,
        {"format": 1, "files": document},
        {"format": 1, "files": {"/a": document}},
        {"format": 1, "units": document},
    ):
        try:
            record = owned.check_record(value)
        except (ValueError, KeyError, TypeError):
            continue
        assert set(record) == set(owned.empty_record())


@pytest.mark.parametrize("drop_in", [True, False])
def test_commands_before_units_follow_the_reload_and_come_again_in_a_rollback(drop_in):
    path = "/etc/systemd/system/a.service.d/x.conf" if drop_in else "/etc/x.conf"
    commands = [
        {"argv": ["late"], "when_changed": [path]},
        {"argv": ["early"], "when_changed": [path], "before_units": True},
    ]
    files = [{"path": path, "content": "x"}]
    options = {"files": files, "units": [{"name": UNIT, "masked": True, "state": "stopped"}], "commands": commands}
    target = {"sha256": "0" * 64, "mode": 0o644, "uid": 0, "gid": 0}
    want = owned.normalise(options)
    want["files"][0]["target"] = target
    before = {**found("enabled", "active"), "files": {path: None}}
    decision = owned.decide(want, before, owned.empty_record(), True)
    reload_ = ["daemon-reload"] if drop_in else []

    def shown(steps):
        return [step["argv"][0] if "argv" in step else step["action"] for step in steps]

    assert shown(decision["actions"]) == ["write", *reload_, "early", "mask", "stop", "late"]
    record = owned.settled(owned.journal(want, before, owned.empty_record(), decision), want, decision)
    back = owned.normalise({"state": "absent"})
    now = {**found("masked", "inactive"), "files": {path: target}}
    assert shown(owned.decide(back, now, record, True)["actions"]) == [
        "remove",
        *reload_,
        "early",
        "unmask",
        "start",
        "late",
    ]
