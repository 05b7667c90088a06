# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The marker of tests that boot machines, and where they are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path[:0] = [
    str(folder) for folder in Path(__file__).resolve().parents[:2]
]  # for `from lab import …` and `from soak import …`


@pytest.fixture(scope="module", autouse=True)
def clean():
    """Every module of tests begins with an empty lab, and leaves nothing of it."""
    from test_lab import lab, left  # its tests are of what is used here, and it cannot be imported before this file

    lab("clean")
    yield
    lab("clean")
    assert not any(left().values()), left()


def life(nodeid):
    """The tests of a class are one machine's life, in order; those of TestPowerCuts each begin with a host as it was found."""
    words = nodeid.split("::")
    return nodeid if len(words) < 3 or words[1] == "TestPowerCuts" else "::".join(words[:2])


def pytest_configure(config):
    config.addinivalue_line("markers", "qemu: boots a machine with a kernel of its own, which takes a minute or more")
    config.addinivalue_line("markers", "lab: boots machines under QEMU or systemd-nspawn; needs root")
    from soak import Soak  # found by the path above

    folders = ("plugins", "roles", "molecule", "tests/lab")
    config.pluginmanager.register(
        Soak(config, "lab", folders, life, lambda item: item.get_closest_marker("lab"), only_asked=False)
    )


def pytest_collection_modifyitems(items):
    if os.geteuid():
        skip = pytest.mark.skip(
            reason="The lab needs root: it makes network namespaces, taps, mounts and file trees with owners."
        )
        for item in items:
            if item.get_closest_marker("lab"):
                item.add_marker(skip)
