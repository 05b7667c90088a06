# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths and markers of the unit tests; the same file serves `pytest tests/unit` in a checkout and `ansible-test units`."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path

import pytest
from hypothesis import settings

TOP = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("HOSTPREP_SHARED") or TOP.parent / "shared")
SOAK_MARKER = "soak: a long sweep; runs only with HOSTPREP_SOAK=1 (make soak), where tests that passed are not repeated"


def _importable(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _lay_out_collection():
    """Makes a flat checkout importable as ansible_collections.lo0.rke2_hostprep, without writing a link anywhere."""
    if _importable("ansible_collections.lo0.rke2_hostprep"):  # ansible-test, or PYTHONPATH
        return
    parent, name = None, ""
    for part, path in (("ansible_collections", []), ("lo0", []), ("rke2_hostprep", [str(TOP)])):
        name = name + "." + part if name else part
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = path
            sys.modules[name] = package
            if parent:
                setattr(parent, part, package)
        parent = sys.modules[name]


# The same examples in every run of the tests, so that a failure is the change's; the sweeps of `make soak` look for new ones.
settings.register_profile("tests", derandomize=True, deadline=None)
settings.register_profile("soak", max_examples=2000, deadline=None)
settings.load_profile("soak" if os.environ.get("HOSTPREP_SOAK") == "1" else "tests")

_lay_out_collection()
sys.path.insert(0, str(TOP / "tests"))  # for `from builder import …` and `from soak import …`


@pytest.fixture(scope="session")
def shared():
    """The folder with captured machines and samples; it is not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip("No captured machines in {0}: set HOSTPREP_SHARED to the folder that has them.".format(SHARED))
    return SHARED


def pytest_configure(config):
    config.addinivalue_line("markers", SOAK_MARKER)
    from soak import Soak  # found by the path above

    config.pluginmanager.register(
        Soak(
            config,
            "unit",
            ("plugins", "tests/builder", "tests/unit"),
            group=lambda nodeid: nodeid,
            swept=lambda item: item.get_closest_marker("soak"),
            only_asked=True,
        )
    )
