# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/capture.sh takes everything that discovery reads: a captured machine is planned as the machine itself."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.configured import observe
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from builder import build, named

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "capture.sh"


@pytest.mark.parametrize("name", ["ena-arm", "hybrid", "hyperv", "s390-books", "sriov-host", "stacked"])
def test_a_capture_holds_all_that_is_read(tmp_path, name):
    root = build(named(name), tmp_path / "root")
    out = tmp_path / "out.tar.xz"
    subprocess.run(["sh", str(SCRIPT), str(out), str(root)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    whole, captured = Tree(str(root)), Tree(str(out))
    expected, found = discover(whole), discover(captured)
    assert dict(found, root=None) == dict(expected, root=None)
    release = expected["kernel"]["release"]
    assert observe(captured, release) == observe(whole, release)


def test_tokens_stay_on_the_machine(tmp_path):
    root = tmp_path / "root"
    (root / "sys").mkdir(parents=True)
    config = root / "etc/rancher/rke2/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        "server: https://10.0.0.1:9345\ntoken: K10secret::server:hidden\nagent-token: hidden\nkubelet-arg:\n  - reserved-cpus=0-1\n"
    )
    out = tmp_path / "out.tar.xz"
    subprocess.run(["sh", str(SCRIPT), str(out), str(root)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    with tarfile.open(out) as archive:
        text = archive.extractfile("./etc/rancher/rke2/config.yaml").read().decode()
    assert "hidden" not in text and "secret" not in text and "reserved-cpus=0-1" in text
