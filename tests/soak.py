# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make soak` need not repeat: the pytest plugin that remembers what passed, so that a sweep that was broken off goes on."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
MARK = ("sweep", "yes")
ASKED = os.environ.get("HOSTPREP_SOAK") == "1"


class Soak:
    """Deselects groups of tests of which all passed on the same source, where HOSTPREP_SOAK=1 asks for the sweeps.

    name: of the sweep, in the memory's file name. folders: of the checkout, whose text files are the source: any change starts afresh.
    group: a test's node id to that of the group it can only run in as a whole. swept: whether a test belongs to the sweep; one that
    does and that nobody asked for is deselected where ``only_asked``.
    """

    def __init__(self, config, name, folders, group, swept, only_asked):
        self.worker = hasattr(config, "workerinput")  # a pytest-xdist worker: its controller sees every report too
        self.group, self.swept, self.only_asked = group, swept, only_asked
        self.done = set()
        if ASKED:
            cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lo0.rke2_hostprep" / "soak"
            self.memory = cache / "{0}-{1}".format(name, self._digest(folders))
            if self.memory.exists():
                for line in self.memory.read_text(encoding="utf-8").splitlines():
                    verdict, _space, nodeid = line.partition(" ")
                    (self.done.add if verdict == "passed" else self.done.discard)(nodeid)

    @staticmethod
    def _digest(folders):
        digest = hashlib.sha256()
        paths = [*(TOP / "tests").glob("*.py")]
        for folder in folders:
            paths += [path for path in (TOP / folder).rglob("*") if path.suffix in (".py", ".yml", ".j2", ".sh")]
        for path in sorted(paths):
            digest.update(str(path.relative_to(TOP)).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    def pytest_collection_modifyitems(self, config, items):
        swept = [item for item in items if self.swept(item)]
        for item in swept:  # the report has it too, and that is all that a controller of pytest-xdist sees
            item.user_properties.append(MARK)
        going_on = {self.group(item.nodeid) for item in swept if item.nodeid not in self.done}
        dropped = {item for item in swept if self.group(item.nodeid) not in going_on or (self.only_asked and not ASKED)}
        if dropped:
            config.hook.pytest_deselected(items=[item for item in items if item in dropped])
            items[:] = [item for item in items if item not in dropped]

    def pytest_runtest_logreport(self, report):
        if not ASKED or self.worker or MARK not in map(tuple, report.user_properties):
            return
        if report.failed or (report.when == "call" and report.passed):
            self.memory.parent.mkdir(parents=True, exist_ok=True)
            with open(self.memory, "a", encoding="utf-8") as memory:
                memory.write("{0} {1}\n".format("failed" if report.failed else "passed", report.nodeid))

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.done:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter):
        if self.done:
            terminalreporter.write_line(
                "{0} tests of the sweep passed earlier on this source; remove {1} to repeat them.".format(
                    len(self.done), self.memory
                )
            )
