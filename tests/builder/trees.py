# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The named machines as folders, each built once a test run and removed at its end: for tests that only read them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from . import Machine, named

MEMORY = Path("/dev/shm")  # making thousands of files on a disk takes seconds
TOP = Path(tempfile.mkdtemp(prefix="builder-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
_OWNER = os.getpid()
_machines = {}


@atexit.register
def _remove():
    if os.getpid() == _OWNER:  # ansible-test forks for each test
        shutil.rmtree(TOP, ignore_errors=True)


def built(name):
    """(Machine, folder) of a named machine."""
    if name not in _machines:
        _machines[name] = Machine(named(name))
    folder = TOP / name
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=TOP))
        _machines[name].tree().write(fresh)
        fresh.rename(folder)
    return _machines[name], folder
