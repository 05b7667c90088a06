# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of a trial and of the comparison at boot: whole, and as systemd wants them."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_units

FILES = {**boot_units.guard(7), **boot_units.comparison("/usr/bin/python3", {"a/b.py": "x"})}
UNITS = {path.rpartition("/")[2]: text for path, text in FILES.items() if path.startswith(boot_units.FOLDER)}


def test_files():
    assert set(UNITS) == {boot_units.TIMER, boot_units.SERVICE, boot_units.COMPARISON}
    assert FILES[boot_units.PROGRAM + "/a/b.py"] == "x"
    assert "{" not in "".join(UNITS.values())


@pytest.mark.parametrize("name", sorted(UNITS))
def test_lines_are_whole(name):
    for line in UNITS[name].replace("\\\n", "").splitlines():
        assert not line or line[0] in "#[" or re.match(r"[A-Z]\w+=", line), line


def test_the_guard_needs_nothing_and_runs_in_the_trial_alone():
    for name in (boot_units.TIMER, boot_units.SERVICE):
        lines = UNITS[name].splitlines()
        assert {
            "ConditionKernelCommandLine=rke2_hostprep.trial",
            "DefaultDependencies=no",
            "IgnoreOnIsolate=yes",
        } <= set(lines)
        assert not any(line.startswith(("After=", "Requires=", "Conflicts=")) for line in lines)
    assert "OnBootSec=7min" in UNITS[boot_units.TIMER]
    assert "WantedBy=sysinit.target emergency.target rescue.target" in UNITS[boot_units.TIMER]


def test_systemd_takes_them(tmp_path):
    program = shutil.which("systemd-analyze")
    if not program:
        pytest.skip("needs systemd-analyze")
    for name, text in UNITS.items():
        (tmp_path / name).write_text(text.replace("-IB " + boot_units.PROGRAM, "-IB /usr"))
    done = subprocess.run(
        [program, "verify", "--man=no", "--recursive-errors=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "hostprep" in line]
    assert not ours, ours
