# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the sys/, proc/, boot/, etc/ and var/ of a machine from a short description, as its Linux kernel would show them.

    from builder import build, named
    build({"cpus": {"packages": 2, "cores": 32}}, Path("out"))      # a mapping, YAML text, or the path of a YAML file
    build(named("ice-448"), Path("ice.tar"))                       # .tar and .tar.xz are written as archives

The format of descriptions is in spec.py; a description that no machine can have raises SpecError, with one sentence.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path

import yaml

from .machine import Machine
from .spec import SpecError

__all__ = ["Machine", "SpecError", "build", "named", "names"]


def build(spec, dest, share=False):
    """Writes the machine to a new or empty folder, or to a .tar or .tar.xz; returns its path.

    share: files of one content become one file with many names. That takes a third of the time where making files is slow, and
    is only for trees that nobody edits.
    """
    return Machine(spec).tree().write(dest, share)


@functools.cache
def _machines():
    return yaml.safe_load((Path(__file__).parent / "machines.yml").read_text(encoding="utf-8"))


def names():
    """Names of the odd machines in machines.yml."""
    return sorted(_machines())


def named(name):
    """The description of one of them, a fresh copy."""
    if name not in _machines():
        raise SpecError(f"no machine is called {name!r}: use one of {', '.join(names())}")
    return copy.deepcopy(_machines()[name])
