# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever the cluster's program is told or meets, its user reads one sentence and gets an exit code that says which kind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cluster import __main__ as program
from cluster.common import HERE


def call(*words, **environment):
    return subprocess.run(
        [sys.executable, str(HERE), *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["clean", "status", "up", "kubeconfig"])
@pytest.mark.parametrize("name", ["..", "Bad_Name"])
def test_a_lab_without_a_proper_name(command, name, tmp_path):
    states = tmp_path / "lo0.rke2_hostprep" / "cluster"
    states.mkdir(parents=True)
    done = call(command, HOSTPREP_LAB=name, XDG_STATE_HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 2 and states.exists() and not (tmp_path / "cache").exists()
    assert done.stderr.startswith("The lab's name is '{0}'; use up to 12".format(name)) and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("up", "--port", "70000"), "'70000' is no port for the API server: allowed are 1 to 65531"),
        (("up", "--port", "65533"), "'65533' is no port for the API server: allowed are 1 to 65531"),
        (("hollow", "-1"), "'-1' is no number of nodes: allowed are 0 to 1000"),
        (("hollow", "many"), "'many' is no number of nodes: allowed are 0 to 1000"),
        (
            ("device-plugin", "new", "--devices", "0:101"),
            "'0:101' is not NODE:COUNT with a NUMA node of 0 to 1023 and 1",
        ),
    ],
)
def test_numbers_out_of_range(words, told):
    done = call(*words)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "one of the arguments --devices --remove is required"),
        (("--remove", "--devices", "0:1"), "not allowed with argument"),
        (("--devices", "0:1", "--resource", "gpu"), "'gpu' is no name of an extended resource: give DOMAIN/NAME"),
    ],
)
def test_what_a_device_plugin_is_told(words, told):
    done = call("device-plugin", "new", *words)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError(5, "Input/output error", "/s/file"), 2, "/s/file: Input/output error.\n"),
        (OSError(5, "Input/output error"), 2, "Input/output error.\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (KeyError("x"), 2, "This is an error of the program itself: KeyError: 'x' ("),
    ],
)
def test_what_is_unexpected(monkeypatch, capsys, error, code, told):
    def fail(_plane, _options):
        raise error

    monkeypatch.setenv("HOSTPREP_LAB", "lab")
    monkeypatch.setattr(sys, "argv", ["cluster", "status"])
    monkeypatch.setattr(program.signal, "signal", lambda *_words: None)
    monkeypatch.setitem(program.COMMANDS, "status", fail)
    assert program.main() == code
    words = capsys.readouterr().err
    assert words.startswith(told) and words.count("\n") == 1


def test_a_full_disk_is_not_guessed(monkeypatch):
    monkeypatch.setattr(program, "free_mib", lambda place: 0 if place == program.STATES else 900)
    told = program.what_failed(OSError(28, "No space left on device"))
    assert told.startswith("No space left on device (") and told.count("\n") == 0
    assert "{0} has 0 MiB free".format(program.STATES) in told and "{0} has 900 MiB free".format(program.CACHE) in told
