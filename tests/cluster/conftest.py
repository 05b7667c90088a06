# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The marker of tests that run a control plane, and where they are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `from cluster import …`


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "cluster: runs a control plane on 127.0.0.1; needs root, and Go at the first time"
    )


def pytest_collection_modifyitems(items):
    if os.geteuid():
        skip = pytest.mark.skip(reason="The tests of the cluster need root: they mount small disks.")
        for item in items:
            if item.get_closest_marker("cluster"):
                item.add_marker(skip)
