# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the cluster's things lie, what its failures are, and how a command is run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.errors import LabError
from lab.state import State

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lo0.rke2_hostprep" / "cluster"
STATES = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "lo0.rke2_hostprep" / "cluster"
SHARED = Path(os.environ.get("HOSTPREP_SHARED") or TOP.parent / "shared")


class ClusterError(Exception):
    """The cluster cannot do what was asked; the text is for the user: what was found, and what to do."""


class Unavailable(ClusterError):
    """This machine lacks something that cannot be made here, so whatever needs the cluster is skipped."""


def lab_state() -> State:
    """The lab beside this cluster, which has its name (HOSTPREP_LAB) and the rule for names: they become paths."""
    try:
        return State()
    except LabError as error:
        raise ClusterError(str(error)) from None


def state_folder() -> Path:
    """A lab of one's own (see tests/lab) has a cluster of its own."""
    return STATES / lab_state().lab


def say(text: str) -> None:
    """One line of progress; results go to standard output, this does not."""
    print(text, file=sys.stderr, flush=True)


def run(argv: Sequence[str | Path], *, what: str, cwd: str | Path | None = None, stdin: str | None = None) -> str:
    """Runs a command and returns its output; a failure is a ClusterError that says what it was for and what it printed."""
    done = subprocess.run(list(argv), capture_output=True, text=True, check=False, cwd=cwd, input=stdin)
    if done.returncode:
        raise ClusterError(
            f"{what}: {Path(argv[0]).name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout
