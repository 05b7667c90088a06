# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The browser of these tests; where there is none they are skipped and say so."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

if "ansible_collections.lo0.rke2_hostprep" not in sys.modules:
    # The unit tests' own set-up makes a flat checkout importable as a collection, and tests/ a place to import from.
    spec = importlib.util.spec_from_file_location("unit_conftest", TOP / "tests" / "unit" / "conftest.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))

import chromium  # noqa: E402  (beside this file; the lines above make it importable)


@pytest.fixture(scope="session")
def browser():
    if not chromium.find():
        pytest.skip(
            "No Chromium on this machine (apt-get install chromium; HOSTPREP_CHROMIUM names another program): the page was not tested."
        )
    started = chromium.Browser()
    yield started
    started.close()
