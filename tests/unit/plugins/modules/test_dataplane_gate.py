# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module dataplane_gate: roots, topologies, the kernel that will boot, refusals, and that its documentation has every default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.gate import OPTIONS
from ansible_collections.lo0.rke2_hostprep.plugins.modules import dataplane_gate
from builder import build

SIZES = {"up0": 524280, "up1": 524280}
MACHINE = {
    "kernel": "6.8.0-64-generic",
    "config": {"NETKIT": "y"},
    "roots": {"17": 0},
    "nics": [
        {"at": "17:01.0/18:00.0", "driver": "mlx5_core", "name": "up0"},
        {"at": "17:01.0/18:00.1", "driver": "mlx5_core", "name": "up1"},
    ],
    "netdevs": [{"name": "bond0", "kind": "bond", "lower": ["up0", "up1"]}],
    "default_route": "bond0",
    "files": {"boot/config-6.1.0-28-amd64": "CONFIG_NO_HZ_FULL=y\n# end of Kernel hacking\n"},
}


def run(capsys, **arguments):
    """(exit code, result) of the module with these arguments."""
    with patch_module_args(arguments), pytest.raises(SystemExit) as stopped:
        dataplane_gate.main()
    return stopped.value.code or 0, json.loads(capsys.readouterr().out)


@pytest.fixture
def root(tmp_path):
    return str(build(MACHINE, tmp_path / "root"))


def eligible(result):
    return [result["gates"][name]["eligible"] for name in ("netkit", "big_tcp_ipv4", "big_tcp_ipv6")]


def test_a_snapshot(capsys, root):
    code, result = run(capsys, root=root, cilium_version="1.19.6", _ansible_check_mode=True)
    assert (code, result["changed"]) == (0, False)
    assert eligible(result) == [True, None, None]
    assert [reason["code"] for reason in result["gates"]["big_tcp_ipv4"]["reasons"]] == ["tso_max_size_unknown"] * 2
    assert [(link["name"], [nic["name"] for nic in link["nics"]]) for link in result["dataplane"]["uplinks"]] == [
        ("bond0", ["up0", "up1"])
    ]
    assert [warning["code"] for warning in result["gate_warnings"]] == ["netkit_kernel_young"]
    assert eligible(run(capsys, root=root, tso_max_sizes=SIZES)[1]) == [True, True, True]


def test_the_kernel_that_will_boot(capsys, root):
    result = run(capsys, root=root, kernel="6.1.0-28-amd64", tso_max_sizes=SIZES, kernel_min="5.15")[1]
    assert (result["dataplane"]["kernel"], eligible(result)) == ("6.1.0-28-amd64", [False, False, True])
    assert "netkit_not_built" in [reason["code"] for reason in result["gates"]["netkit"]["reasons"]]
    unread = run(capsys, root=root, kernel="6.12.48", tso_max_sizes=SIZES)[1]
    assert eligible(unread) == [None, True, True]


def test_a_newer_kernel_that_is_installed(capsys, root):
    boot = Path(root) / "boot"
    for release in ("6.1.0-28-amd64", "6.8.0-64-generic", "0-rescue-0123456789abcdef0123456789abcdef"):
        (boot / ("vmlinuz-" + release)).write_text("")
    assert eligible(run(capsys, root=root, tso_max_sizes=SIZES)[1]) == [True, True, True]
    (boot / "vmlinuz-6.12.48+deb13-amd64").write_text("")
    result = run(capsys, root=root, tso_max_sizes=SIZES)[1]
    assert eligible(result) == [None, True, True]
    assert "6.12.48+deb13-amd64" in result["gates"]["netkit"]["reasons"][0]["message"]
    (boot / "config-6.12.48+deb13-amd64").write_text("CONFIG_NETKIT=y\nCONFIG_A=y\n# end of Kernel hacking\n")
    assert eligible(run(capsys, root=root, tso_max_sizes=SIZES)[1]) == [True, True, True]


def test_a_topology_and_a_policy(capsys, root):
    topology = json.loads(json.dumps(discover(Tree(root))))
    result = run(capsys, topology=topology, policy={"tso_max_sizes": SIZES, "wanted": []}, wanted=["netkit"])[1]
    assert eligible(result) == [True, False, False]
    small = {
        "cpus": {},
        "kernel": {"release": "6.12.1"},
        "nics": [{"name": "e", "driver": "ice", "tso_max_size": 131072, "pci": "0000:01:00.0"}],
    }
    assert eligible(run(capsys, topology=small)[1]) == [None, True, True]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"policy": {"kernel_minimum": "6.8"}}, "gate_option_unknown"),
        ({"policy": "x"}, "gate_options"),
        ({"kernel_min": 6.1}, "gate_kernel_min"),
        ({"uplinks": ["eth9"]}, "uplink_unknown"),
        ({"topology": {"nics": []}}, "topology_invalid"),
        ({"root": "/nowhere"}, "root_missing"),
    ],
)
def test_refusals(capsys, root, arguments, code):
    failed, result = run(capsys, **dict({"root": root}, **arguments))
    assert (failed, result["code"]) == (1, code)
    assert result["cure"] and result["msg"].endswith(".")


def test_every_option_is_documented_with_its_default():
    options = yaml.safe_load(dataplane_gate.DOCUMENTATION)["options"]
    assert set(options) == set(OPTIONS) | {"root", "topology", "policy"}
    for name, spec in OPTIONS.items():
        default = spec.get("default")
        if default is not None:
            words = "[%s]" % ", ".join(default) if isinstance(default, list) else str(default)
            assert "The default is V(%s)" % words in str(options[name]["description"]), name
