# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the test runner counts, and how it keeps to the clock."""

from __future__ import annotations

import os
import sys
import time
from datetime import date, timedelta
from pathlib import Path

import pytest
import run

PASSED_AND_SKIPPED = """<testsuites><testsuite><testcase name="a"/>
<testcase name="b"><skipped message="No captured machines in /x: set HOSTPREP_SHARED to the folder that has them."/></testcase>
</testsuite></testsuites>"""
JUNIT = PASSED_AND_SKIPPED.replace(
    "</testsuite>",
    '<testcase name="c"><failure message="no"/></testcase><testcase name="d"><error message="no"/></testcase></testsuite>',
)


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOGS", tmp_path)
    return tmp_path


def gate(code="pass", **more):
    return run.Gate("a gate", [sys.executable, "-c", code], dict(os.environ), **more)


def counts(outcome):
    return outcome.passed, outcome.failed, len(outcome.skips)


def run_one(a_gate, shared=None, seconds=60.0):
    return counts(run.run_gate(a_gate, time.monotonic() + seconds, shared))


def test_junit_cases_are_counted_one_by_one(logs):
    (logs / "a.xml").write_text(JUNIT, encoding="utf-8")
    assert counts(run.read_junit(logs.glob("*.xml"))) == (1, 2, 1)


def test_results_that_were_broken_off_are_a_failure(logs):
    (logs / "a.xml").write_text(JUNIT[:50], encoding="utf-8")
    assert counts(run.read_junit(logs.glob("*.xml"))) == (0, 1, 0)


def test_a_gate_without_results_is_one_test(capsys):
    assert run_one(gate("pass")) == (1, 0, 0)
    assert run_one(gate("print('what went wrong'); raise SystemExit(3)")) == (0, 1, 0)
    assert "what went wrong\n----- It exited with 3." in capsys.readouterr().out


def test_results_of_an_earlier_run_do_not_count(logs):
    (logs / "a.xml").write_text(JUNIT, encoding="utf-8")
    assert run_one(gate("pass", junit=logs / "a.xml")) == (0, 1, 0)


def writes(path, text, code=0):
    return gate(
        f"import pathlib; pathlib.Path({str(path)!r}).write_text({text!r}); raise SystemExit({code})", junit=path
    )


def test_a_run_that_executed_no_test_failed(logs):
    assert run_one(writes(logs / "a.xml", "<testsuites/>", code=5)) == (0, 1, 0)
    assert run_one(writes(logs / "a.xml", "<testsuites/>")) == (0, 1, 0)


def test_an_error_beside_the_tests_is_a_failure(logs):
    assert run_one(writes(logs / "a.xml", PASSED_AND_SKIPPED, code=3)) == (1, 1, 1)


@pytest.mark.parametrize(("shared", "expected"), [(None, (1, 0, 1)), (Path("/captured"), (1, 1, 1))])
def test_skipped_captures_are_a_failure_only_where_the_captures_are(logs, shared, expected):
    assert run_one(writes(logs / "a.xml", PASSED_AND_SKIPPED), shared) == expected


def test_what_the_output_must_have(capsys):
    assert run_one(gate("print('missing=0')", needs="missing=0")) == (1, 0, 0)
    assert run_one(gate("print('missing=1')", needs="missing=0")) == (0, 1, 0)
    assert "has no 'missing=0'" in capsys.readouterr().out


def test_the_end_of_the_time_stops_a_gate_with_its_children(logs, capsys):
    alive = logs / "alive"
    child = f"import time, pathlib; time.sleep(2); pathlib.Path({str(alive)!r}).touch()"
    began = time.monotonic()
    assert run_one(
        gate(
            "import subprocess, sys, time;"
            f" subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True); time.sleep(60)"
        ),
        seconds=0.5,
    ) == (0, 1, 0)
    assert time.monotonic() - began < 2
    assert "time for the whole run is over" in capsys.readouterr().out
    time.sleep(2.2)
    assert not alive.exists()


def test_a_gate_that_fails_ends_what_it_left_running(logs, capsys):
    ended = logs / "ended"
    after = [[sys.executable, "-c", f"import pathlib; pathlib.Path({str(ended)!r}).touch()"]]
    assert run_one(gate("pass", cleanup=after)) == (1, 0, 0)
    assert not ended.exists()
    assert run_one(gate("import time; time.sleep(60)", cleanup=after), seconds=0.3) == (0, 1, 0)
    assert ended.exists()
    ended.unlink()
    assert run_one(gate("raise SystemExit(1)", cleanup=after)) == (0, 1, 0)
    assert ended.exists()


def test_a_clean_up_has_its_time(monkeypatch):
    monkeypatch.setattr(run, "CLEANUP_SECONDS", 0.2)
    began = time.monotonic()
    assert run_one(gate("raise SystemExit(1)", cleanup=[["sleep", "60"]])) == (0, 1, 0)
    assert time.monotonic() - began < 10


def test_a_gate_that_a_signal_ended_is_not_called_late(capsys):
    assert run_one(gate("import os; os.kill(os.getpid(), 9)")) == (0, 1, 0)
    assert "exited with -9" in capsys.readouterr().out


def test_a_gate_may_say_that_this_machine_cannot_run_it(capsys):
    code = "print('some output'); print('Go is not on this machine.'); raise SystemExit(77)"
    assert run_one(gate(code, skips=77)) == (0, 0, 1)
    assert "skipped 1: Go is not on this machine." in capsys.readouterr().out
    assert run_one(gate(code)) == (0, 1, 0)
    assert run_one(gate("raise SystemExit(1)", skips=77)) == (0, 1, 0)


def test_an_unknown_tier_is_refused(capsys):
    assert run.main(["test", "nope"]) == 2
    assert "There is no tier nope: there are static, unit, " in capsys.readouterr().out


@pytest.mark.parametrize(("user", "expected"), [(0, (1, 0, 0)), (1000, (0, 0, 0))])
def test_machines_are_booted_as_root_only(monkeypatch, capsys, user, expected):
    monkeypatch.setattr(run.os, "geteuid", lambda: user)
    assert counts(run.run_tiers([run.Tier("booted", lambda: [gate()], root=True)], time.monotonic(), None)) == expected
    assert ("needs root" in capsys.readouterr().out) is bool(user)


def tiers(ran):
    def gates(name):
        ran.append(name)
        yield gate()

    return [run.Tier("first", lambda: gates("first")), run.Tier("booted", lambda: gates("booted"), late=20)]


def test_a_late_tier_begins_before_minute_65_only(capsys):
    ran = []
    assert counts(run.run_tiers(tiers(ran), time.monotonic() - 64 * 60, None)) == (2, 0, 0)
    assert ran == ["first", "booted"]
    ran.clear()
    assert counts(run.run_tiers(tiers(ran), time.monotonic() - 66 * 60, None)) == (1, 0, 0)
    assert ran == ["first"]
    assert "Tier booted: skipped, because minute 65 was over" in capsys.readouterr().out


def test_a_late_tier_begins_where_it_would_end_by_minute_85_only(capsys):
    ran = []
    first, booted = tiers(ran)
    booted.late = 25
    assert counts(run.run_tiers([first, booted], time.monotonic() - 59 * 60, None)) == (2, 0, 0)
    ran.clear()
    assert counts(run.run_tiers([first, booted], time.monotonic() - 61 * 60, None)) == (1, 0, 0)
    assert ran == ["first"]
    assert (
        "Tier booted: skipped in minute 61, because it may take 25 and minute 85 is the last."
        in capsys.readouterr().out
    )


def test_after_minute_85_every_gate_is_a_failure(capsys):
    assert counts(run.run_tiers(tiers([])[:1], time.monotonic() - 86 * 60, None)) == (0, 1, 0)
    assert "not begun, because minute 85 is over" in capsys.readouterr().out


def test_what_cannot_be_set_up_is_a_failure_and_the_next_tier_runs(capsys):
    def broken():
        yield gate()
        raise run.workspace.WorkspaceError("pip could not install it.")

    assert counts(run.run_tiers([run.Tier("first", broken), *tiers([])[:1]], time.monotonic(), None)) == (2, 1, 0)
    assert "FAILED the rest of tier first: pip could not install it." in capsys.readouterr().out


@pytest.mark.parametrize("names", ["abcde", "abcdeg", "abcd"])
def test_each_late_tier_is_the_last_for_some_days_and_meets_every_layout(names):
    tiers = [run.Tier("first", list)] + [run.Tier(name, list, late=20) for name in names]
    days = [date(2026, 11, 30) + timedelta(days=number) for number in range(len(names) * len(run.LAYOUTS))]
    orders = ["".join(tier.name[0] for tier in run.in_turn(tiers, day)) for day in days]
    assert {"".join(sorted(order)) for order in orders} == {"".join(sorted("f" + names))}
    assert {order[0] for order in orders} == {"f"}
    met = {(order[-1], day.toordinal() % len(run.LAYOUTS)) for order, day in zip(orders, days)}
    assert len(met) == len(days)  # no layout is always in the tier that may be skipped
    assert run.in_turn(tiers[:1], days[0]) == tiers[:1]
