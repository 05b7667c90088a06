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


def test_secrets_stay_on_the_machine(tmp_path):
    root = tmp_path / "root"
    online = root / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-3\n")
    config = root / "etc/rancher/rke2/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        'token: K10secret\n"agent-token" : secret\netcd-s3-secret-key: secret\ntoken-file: >-\n  secret\n'
        'kubelet-arg: ["reserved-cpus=0-1,32-33", "v=2"]\n'
    )
    more = root / "etc/rancher/rke2/config.yaml.d/10.yaml"
    more.parent.mkdir()
    more.write_text('{"token": "secret"}\n')
    drop_in = root / "var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text('{"kind": "KubeletConfiguration", "x": "secret", "reservedSystemCPUs": "0-1"}')
    out = tmp_path / "out.tar.xz"
    subprocess.run(["sh", str(SCRIPT), str(out), str(root)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    with tarfile.open(out) as archive:
        texts = [archive.extractfile(member).read().decode() for member in archive.getmembers() if member.isfile()]
    assert not any("secret" in text for text in texts)
    assert observe(Tree(str(out)), None)["kubelet_reserved"] == observe(Tree(str(root)), None)["kubelet_reserved"]
    assert observe(Tree(str(out)), None)["kubelet_reserved"]["value"] == "0-1,32-33", "flags win over files"
    config.unlink()
    assert observe(Tree(str(root)), None)["kubelet_reserved"]["value"] == "0-1"
    subprocess.run(["sh", str(SCRIPT), str(out), str(root)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert observe(Tree(str(out)), None)["kubelet_reserved"] == observe(Tree(str(root)), None)["kubelet_reserved"]
