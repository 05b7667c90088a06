# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 tests/cluster`` as tests call it, each for a lab of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


class Command:
    """lab: the cluster's name, unless HOSTPREP_LAB has another."""

    def __init__(self, lab: str) -> None:
        self.lab = os.environ.get("HOSTPREP_LAB") or lab
        self.words = [sys.executable, str(Path(__file__).resolve().parent)]
        self.environment = os.environ | {"HOSTPREP_LAB": self.lab}

    def call(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.words, *words],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A call that must succeed; the test is skipped where the machine lacks something that cannot be made."""
        done = self.call(*words)
        if done.returncode == 77:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done
