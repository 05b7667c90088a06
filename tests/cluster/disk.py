# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room on the disks, and scratch folders that are found again when the run that made them was killed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from lab.state import Process, this_process

from .common import CACHE, ClusterError, say


def _existing(folder: Path) -> Path:
    """A folder, or the nearest above it that exists: what will be made lies on the same disk."""
    while not folder.exists():
        folder = folder.parent
    return folder


def free_mib(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free // 2**20


def require_space(needs: Mapping[Path, int], what: str, variable: str) -> None:
    """Refuses where the disk of a folder has fewer MiB than it needs; folders of one disk share what is free there."""
    disks: dict[int, list[Path]] = {}
    for folder in needs:
        disks.setdefault(_existing(folder).stat().st_dev, []).append(folder)
    for folders in disks.values():
        free, needed = free_mib(folders[0]), sum(needs[folder] for folder in folders)
        if free < needed:
            together = "has" if len(folders) == 1 else "together have"
            raise ClusterError(
                f"There is no room for {what}: {' and '.join(map(str, folders))} {together} {free} MiB free, and"
                f" {needed} MiB are needed: make room there, or choose a folder on another disk with {variable}."
            )


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for as long as the block runs, named after the process that it belongs to."""
    folder = CACHE / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    me = this_process()
    mine = Path(tempfile.mkdtemp(prefix=f"build-{me.pid}-{me.started}-", dir=folder))
    try:
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def abandoned() -> list[Path]:
    """The scratch folders of runs that were killed."""
    found = []
    for folder in sorted((CACHE / "tmp").glob("build-*-*-*")):
        _build, pid, started, _random = folder.name.split("-", 3)
        if not Process(int(pid), int(started)).alive:
            found.append(folder)
    return found


def remove_abandoned() -> None:
    for folder in abandoned():
        say(f"Removing {folder}, which a killed run has left.")
        shutil.rmtree(folder, ignore_errors=True)
