# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what a killed run left behind: by this lab's state files, and by what the kernel says that carries its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import images, network
from .state import State


@dataclass(frozen=True)
class Leftover:
    what: str  # for the user
    machine: str = ""  # to be removed with all that carries its name
    off: str = ""  # a machine that keeps its disk and is to be off
    folder: Path | None = None  # a build's scratch folder


def find(state: State) -> list[Leftover]:
    """Call it with the lab's lock held, else it names what another command is making."""
    return list(_find(state))


def _find(state: State) -> Iterator[Leftover]:
    whole = set()
    for name in state.names():
        record = state.read(name)
        if record is None or record.half_made:
            yield Leftover(f"the half-made machine {name}", name)
            continue
        whole.add(name)
        if record.abandoned:
            yield Leftover(f"the unfinished start of {name}, which keeps its disk", off=name)
    full, machines = state.full_name(""), state.folder / "machines"
    found = [(f"process {pid} of {name}", name) for pid, name in state.processes().items()]
    found += [(f"network namespace {n}", n.removeprefix(full)) for n in state.namespaces()]
    found += [(f"control group {g}", g.name.removeprefix(full)) for g in state.cgroups()]
    found += [(f"mount {p}", Path(p).relative_to(machines).parts[0]) for p in state.mounts()]
    yield from (Leftover(what, name) for what, name in found if name not in whole)
    if not whole and network.exists(state.namespace):
        yield Leftover(f"network namespace {state.namespace}")
    yield from (Leftover(f"scratch folder {folder}", folder=folder) for folder in images.abandoned())
