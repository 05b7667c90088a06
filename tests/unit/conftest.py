# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths and markers of the unit tests; the same file serves `pytest tests/unit` in a checkout and `ansible-test units`."""

from __future__ import annotations

import hashlib
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
sys.path.insert(0, str(TOP / "tests"))  # for `from builder import …`


@pytest.fixture(scope="session")
def shared():
    """The folder with captured machines and samples; it is not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip("No captured machines in {0}: set HOSTPREP_SHARED to the folder that has them.".format(SHARED))
    return SHARED


class _Soak:
    """Deselects soak tests unless they are asked for; then remembers what passed, so that a broken-off sweep goes on.

    The memory is a file in the user's cache named after a hash of the plugins and the tests that sweep them: any change starts afresh.
    """

    def __init__(self, config):
        self.asked = os.environ.get("HOSTPREP_SOAK") == "1"
        self.worker = hasattr(config, "workerinput")  # a pytest-xdist worker: its controller sees every report too
        self.done = set()
        if self.asked:
            digest = hashlib.sha256()
            paths = [*(TOP / "tests").glob("*.py")]
            for folder in ("plugins", "tests/builder", "tests/unit"):
                paths += (TOP / folder).rglob("*.py")
            for path in sorted(paths):
                digest.update(str(path.relative_to(TOP)).encode() + b"\0" + path.read_bytes())
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lo0.rke2_hostprep" / "soak"
            self.memory = cache / digest.hexdigest()[:16]
            if self.memory.exists():
                self.done = set(self.memory.read_text(encoding="utf-8").splitlines())

    def pytest_collection_modifyitems(self, config, items):
        dropped = [
            item for item in items if item.get_closest_marker("soak") and (not self.asked or item.nodeid in self.done)
        ]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
            items[:] = [item for item in items if item not in set(dropped)]

    def pytest_runtest_logreport(self, report):
        if self.asked and not self.worker and report.when == "call" and report.passed and "soak" in report.keywords:
            self.memory.parent.mkdir(parents=True, exist_ok=True)
            with open(self.memory, "a", encoding="utf-8") as memory:
                memory.write(report.nodeid + "\n")

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.done:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter):
        if self.done:
            terminalreporter.write_line(
                "{0} soak tests passed earlier on this source; remove {1} to repeat them.".format(
                    len(self.done), self.memory
                )
            )


def pytest_configure(config):
    config.addinivalue_line("markers", SOAK_MARKER)
    config.pluginmanager.register(_Soak(config))
