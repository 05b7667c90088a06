# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A soak that was broken off goes on where it stopped, and only while the source is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os, pytest

@pytest.mark.soak
@pytest.mark.parametrize("number", [1, 2])
def test_sweep(number):
    assert number < int(os.environ["FAILS_FROM"])

def test_quick():
    pass
"""


@pytest.fixture
def checkout(tmp_path):
    unit = tmp_path / "checkout/tests/unit"
    unit.mkdir(parents=True)
    shutil.copy(Path(__file__).parents[1] / "conftest.py", unit)
    shutil.copy(Path(__file__).parents[2] / "soak.py", unit.parent)
    (unit / "test_sweep.py").write_text(TESTS, encoding="utf-8")
    return tmp_path / "checkout"


def outcome(checkout, soak, fails_from, code, workers=()):
    # Without the plugins and options that ansible-test or a caller gives to pytest.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables |= {
        "XDG_CACHE_HOME": str(checkout.parent / "cache"),
        "FAILS_FROM": str(fails_from),
        "HOSTPREP_SOAK": soak,
    }
    plain = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", *(workers or ("-p", "no:xdist"))]
    command = [sys.executable, "-m", "pytest", *plain, "-q", "tests/unit"] + (
        ["-m", "soak or lab"] if soak == "1" else []
    )
    done = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_soak_tests_run_only_when_asked(checkout):
    assert "1 passed, 2 deselected" in outcome(checkout, "0", 0, 0)


def test_what_passed_on_several_workers_is_not_repeated(checkout):
    workers = ("-p", "xdist", "-n", "2")
    assert "1 failed, 1 passed" in outcome(checkout, "1", 2, 1, workers)
    assert "1 passed" in outcome(checkout, "1", 3, 0, workers)
    assert "2 tests of the sweep passed earlier on this source" in outcome(checkout, "1", 3, 0, workers)


def test_what_passed_is_not_repeated_until_the_source_changes(checkout):
    assert "1 failed, 1 passed" in outcome(checkout, "1", 2, 1)
    assert "1 passed, 2 deselected" in outcome(checkout, "1", 3, 0)
    assert "2 tests of the sweep passed earlier on this source" in outcome(checkout, "1", 3, 0)
    with open(checkout / "tests/unit/test_sweep.py", "a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert "2 passed, 1 deselected" in outcome(checkout, "1", 3, 0)


LIFE = """
import os, pytest

pytestmark = pytest.mark.lab

class TestLife:
    def test_one(self):
        pass

    def test_two(self):
        assert 2 < int(os.environ["FAILS_FROM"])

class TestPowerCuts:
    @pytest.mark.parametrize("number", [1, 2])
    def test_a_cut(self, number):
        assert number < int(os.environ["FAILS_FROM"])
"""


def test_a_life_is_repeated_as_a_whole(checkout):
    """The lab's own conftest.py, without its machines."""
    source = (Path(__file__).parents[2] / "lab/conftest.py").read_text(encoding="utf-8")
    source = source.replace("autouse=True", "autouse=False").replace("if os.geteuid():", "if False:")
    folder = checkout / "tests/unit"
    (folder / "conftest.py").write_text(source, encoding="utf-8")
    (folder / "test_sweep.py").write_text(LIFE, encoding="utf-8")
    (checkout / "plugins").mkdir()
    assert "2 failed, 2 passed" in outcome(checkout, "1", 2, 1)
    assert "3 passed, 1 deselected" in outcome(checkout, "1", 3, 0)
    assert "4 deselected" in outcome(checkout, "1", 3, 0)
    assert "2 failed, 2 passed" in outcome(checkout, "0", 2, 1)
