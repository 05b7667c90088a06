# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin does for a kubelet what the API asks of it; beside the program lie its tests, with a kubelet of theirs."""

from __future__ import annotations

import os
import subprocess

import pytest

from cluster import binaries
from cluster.common import Unavailable

(NAME,) = binaries.DEVICE_PLUGIN
PROGRAM = binaries.PROGRAMS[NAME]
BUILD = ("-trimpath", "-mod=readonly")  # as the program is built, so that what it depends on is compiled once
ENVIRONMENT = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}


@pytest.fixture(scope="module")
def built():
    try:
        path = binaries.need([NAME])[NAME]
    except Unavailable as missing:
        pytest.skip(str(missing))
    return path


@pytest.mark.parametrize("command", [("vet",), ("test", "-count=1")])
def test_its_own_tests(built, command):
    go = binaries.toolchain()
    if not go or (binaries.go_numbers(go) or ()) < binaries.wanted_go(PROGRAM.go_mod):
        pytest.skip(f"{NAME} is tested with Go, and this machine has {go or 'none'}.")
    words = ["go", *command, *BUILD, PROGRAM.package]
    done = subprocess.run(words, cwd=PROGRAM.folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert command[0] == "vet" or done.stdout.startswith("ok "), done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--devices is needed: NODE:COUNT,…, such as 0:2,1:2"),
        (("--devices", "0:0"), '--devices: "0:0" is not NODE:COUNT with a NUMA node of 0 to 1023 and 1 to 100 devices'),
        (("--devices", "0:1", "--resource", "gpu"), '--resource: "gpu" is no name of an extended resource'),
        (("--device", "0:1"), "flag provided but not defined: -device"),
    ],
)
def test_what_it_refuses(built, words, told):
    done = subprocess.run([built, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(f"deviceplugin: {told}") and done.stderr.count("\n") == 1


def test_it_ends_when_it_is_asked_to(built, tmp_path):
    words = [built, "--devices", "0:1", "--folder", tmp_path]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as plugin:
        assert plugin.stderr
        assert plugin.stderr.readline() == "Waiting for the kubelet.\n"
        plugin.terminate()
        assert plugin.wait(60) == 0
    assert not list(tmp_path.iterdir())
