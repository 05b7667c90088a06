# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs are run with a limit, in the C locale, without waiting for what they leave behind; systemctl is asked and told in its words."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import fake_systemctl
import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import units
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A program systemctl on PATH; returns a function that gives its state."""
    state = tmp_path / "state.json"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nexec "%s" "%s" "$@"\n' % (sys.executable, Path(fake_systemctl.__file__).resolve()))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (program.parent, os.environ["PATH"]))
    monkeypatch.setenv("FAKE_SYSTEMCTL", str(state))
    monkeypatch.setenv("LC_ALL", "es_ES.UTF-8")

    def put(fail=None, **named):
        found = {
            name + ".service": dict({"enabled": False, "active": False, "masked": False}, **unit)
            for name, unit in named.items()
        }
        state.write_text(json.dumps({"root": str(tmp_path), "units": found, "fail": fail or {}}))
        return lambda: json.loads(state.read_text())

    return put


def test_states_are_read_in_one_call(systemctl):
    systemctl(a={"active": True, "enabled": True}, b={"masked": True})
    found = units.show(["b.service", "gone.service", "a.service"])
    assert [(name, unit["load"], unit["enabled"], unit["active"]) for name, unit in found.items()] == [
        ("b.service", "masked", "masked", "inactive"),
        ("gone.service", "not-found", "", "inactive"),
        ("a.service", "loaded", "enabled", "active"),
    ]
    assert units.show([]) == {}


def test_actions_are_told_and_failures_have_their_last_lines(systemctl):
    state = systemctl(a={}, fail={"start a.service": "\n".join("line %d" % number for number in range(40))})
    assert units.carry_out({"action": "enable", "unit": "a.service"}, 10) is None
    assert units.carry_out({"action": "daemon-reload"}, 10) is None
    error, lines = units.carry_out({"action": "start", "unit": "a.service"}, 10)
    assert (
        error.code == "unit_failed"
        and "line 39" in str(error)
        and "line 1 " not in str(error)
        and "\n" not in str(error)
    )
    assert lines[-1] == "status of a.service" and len(lines) == units.LAST_LINES + 1
    assert state()["calls"] == ["enable a.service", "daemon-reload", "start a.service"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"action": "mask", "unit": "a.service"}, ["mask", "--", "a.service"]),
        ({"action": "unmask", "unit": "a.service", "runtime": True}, ["unmask", "--runtime", "--", "a.service"]),
        ({"action": "daemon-reload"}, ["daemon-reload"]),
    ],
)
def test_words(step, words):
    assert units.argv(step) == ["systemctl", "--no-ask-password", "--no-pager"] + words


@pytest.mark.parametrize(
    "text", ["exit 1", "echo System has not been booted with systemd; exit 1", "exit 0", "echo ActiveState=active"]
)
def test_a_systemd_that_does_not_answer(tmp_path, monkeypatch, text):
    (tmp_path / "systemctl").write_text("#!/bin/sh\n%s\n" % text)
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostprepError) as refused:
        units.show(["a.service", "b.service"])
    assert refused.value.code == "systemd_unavailable" and refused.value.read and refused.value.cure


def test_a_program_that_hangs_is_stopped_with_its_children():
    begun = time.monotonic()
    code, output = units.run(["sh", "-c", "echo before; sleep 60 & sleep 60"], 0.5)
    assert code is None and "before" in output and "stopped" in output and time.monotonic() - begun < 10


def test_what_a_program_leaves_running_is_not_waited_for():
    begun = time.monotonic()
    assert units.run(["sh", "-c", "sleep 5 & echo done"], 60) == (0, "done\n")
    assert time.monotonic() - begun < 4


def test_a_program_that_cannot_be_started():
    for argv in (["/nowhere/program"], ["no-such-program"], ["/etc"]):
        code, output = units.run(argv, 5)
        assert code is None and "could not be started" in output
    error, _lines = units.carry_out({"action": "run", "argv": ["no-such-program", "x"]}, 5)
    assert error.code == "command_failed" and "no-such-program x" in str(error)


def test_locale_input_folder_and_path(monkeypatch):
    monkeypatch.setenv("LC_ALL", "es_ES.UTF-8")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    code, output = units.run(["sh", "-c", 'echo "$LC_ALL $PWD $PATH"; cat'], 5)
    assert (code, output) == (0, "C / /usr/bin:/bin:/usr/sbin:/sbin\n")


def test_output_that_is_not_text_or_very_long():
    assert units.run(["sh", "-c", r"printf '\377\000x'"], 5) == (0, "\ufffd\0x")
    code, output = units.run(["sh", "-c", "yes | head -c 3000000; echo end"], 30)
    assert code == 0 and len(output) == 1024 * 1024 and units.last(output)[-1] == "end"
