# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module cpu_plan: its two sources, its policy, its refusals, and that it writes nothing."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.isolation import isolation_set
from ansible_collections.lo0.rke2_hostprep.plugins.modules import cpu_plan
from builder import build, named
from topologies import article


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return build(named("article-alternate"), tmp_path_factory.mktemp("trees") / "article")


def run(capsys, **arguments):
    """(exit code, result) of the module with these arguments."""
    with patch_module_args(arguments), pytest.raises(SystemExit) as stopped:
        cpu_plan.main()
    return stopped.value.code or 0, json.loads(capsys.readouterr().out)


def fingerprint(folder):
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path).encode() + (path.read_bytes() if path.is_file() and not path.is_symlink() else b""))
    return digest.hexdigest()


@pytest.mark.parametrize("check", [False, True])
def test_plans_a_tree_and_writes_nothing(capsys, tree, check):
    before = fingerprint(tree)
    code, result = run(capsys, root=str(tree), host="gpu-01", reserved_cores_per_node=1, _ansible_check_mode=check)
    assert (code, result["changed"]) == (0, False)
    assert (result["reserved"], result["isolated"], result["irq"]) == ("0-1,32-33", "2-31,34-63", "0-1,32-33")
    assert (result["plan"]["host"], result["plan"]["reserved"]) == ("gpu-01", "0-1,32-33")
    assert fingerprint(tree) == before


@pytest.mark.parametrize("options", [{}, {"services": True}, {"node": True}, {"services": True, "node": True}])
def test_no_file_of_rke2_and_its_kubelet_is_read_twice(capsys, monkeypatch, tmp_path, options):
    root = build(named("article-alternate"), tmp_path / "root")
    state = "var/lib/kubelet/cpu_manager_state"
    drop_in = "var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50.conf"
    files = {
        "etc/rancher/rke2/config.yaml": "cni: cilium\n",
        drop_in: "maxPods: 250\n",
        state: '{"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}',
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    seen = []
    read = Tree.read
    monkeypatch.setattr(Tree, "read", lambda tree, path, *more: seen.append(path.strip("/")) or read(tree, path, *more))
    assert run(capsys, root=str(root), reserved_cores_per_node=1, **options)[0] == 0
    assert {path: seen.count(path) for path in files} == dict.fromkeys(files, 1)


def test_plans_a_topology(capsys):
    code, result = run(capsys, topology=article("block"), reserved_count=4, strategy="pack")
    assert (code, result["reserved"], result["rke2"]) == (0, "0-1,32-33", None)
    assert {row["configured"] for row in result["plan"]["differences"]} == {None}


def test_policy_as_a_mapping_and_options_that_win(capsys):
    policy = {"reserved_cores_per_node": 2, "isolation_mode": "quiet"}
    assert run(capsys, topology=article("block"), policy=policy)[1]["plan"]["mode"] == "quiet"
    result = run(
        capsys, topology=article("block"), policy=policy, isolation_mode="balanced", reserved_cores_per_node=1
    )[1]
    assert (result["plan"]["mode"], result["reserved"]) == ("balanced", "0,16,32,48")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"policy": {"reserved_core_per_node": 2}}, "policy_unknown"),
        ({"policy": {"smt": False}}, "policy_smt"),
        ({"isolation_mode": "loud"}, "policy_isolation_mode"),
        ({"nics": ["bond7"]}, "nic_unknown"),
        ({"reserved_cpus": "0-99"}, "reserved_out_of_range"),
        ({"what_if": [{"x": 1}], "reserved_cpus": "0"}, "reserved_splits_siblings"),
    ],
)
def test_refusals_are_one_sentence(capsys, arguments, code):
    status, result = run(capsys, topology=article("block"), **arguments)
    assert status == 1 and result["failed"] and result["code"] == code
    assert result["read"] and result["allowed"] and result["cure"]
    assert "\n" not in result["msg"] and "Traceback" not in json.dumps(result)


@pytest.mark.parametrize("root", ["missing", "empty", "garbage.tar"])
def test_unusable_roots(capsys, tmp_path, root):
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage.tar").write_bytes(b"\x00garbage" * 200)
    status, result = run(capsys, root=str(tmp_path / root))
    assert status == 1 and result["code"].startswith("root_") and root in result["msg"]


@pytest.mark.parametrize(
    "topology",
    [
        {},
        {"cpus": 5},
        {"cpus": {"online": [0, 1]}},
        {"cpus": {}, "schema_version": 9},
        {"cpus": {"siblings": ["0-"]}},
        {"cpus": {}, "nics": {}},
    ],
)
def test_a_topology_of_another_shape_is_refused(capsys, topology):
    status, result = run(capsys, topology=topology)
    assert status == 1 and result["code"] == "topology_invalid" and "\n" not in result["msg"]


def test_a_topology_with_only_what_the_design_names(capsys):
    topology = {
        "cpus": {"online": "0-7", "siblings": ["0,4", "1,5", "2,6", "3,7"], "packages": 1},
        "numa_nodes": [
            {"id": 0, "cpus": "0-1,4-5", "memory_mib": 1024},
            {"id": 1, "cpus": "2-3,6-7", "memory_mib": 1024},
        ],
        "nics": [
            {
                "name": "ens1",
                "pci": "0000:ca:00.0",
                "driver": "mlx5_core",
                "numa_node": 1,
                "pcie_root": None,
                "irqs": [{"irq": 40, "queue": 0, "name": "x"}],
            }
        ],
        "gpus": [{"pci": "0000:cb:00.0", "vendor": "0x10de", "numa_node": 1, "pcie_root": None}],
    }
    code, result = run(capsys, topology=topology)
    assert code == 0, result
    assert (result["reserved"], result["plan"]["nics"][0]["queue_cpus"]) == ("0,2,4,6", [2, 6])


def test_no_online_cpus(capsys):
    assert run(capsys, topology={"cpus": {}})[1]["code"] == "online_unknown"


def test_the_unforeseen_is_told_without_a_traceback(capsys, monkeypatch):
    def broken(*_arguments):
        raise KeyError("surprise")

    monkeypatch.setattr(cpu_plan, "make_plan", broken)
    status, result = run(capsys, topology=article("block"))
    assert (
        status == 1
        and result["code"] == "unexpected"
        and "KeyError" in result["read"]
        and "Traceback" not in json.dumps(result)
    )


@pytest.mark.parametrize("kind", ["server", "agent", None])
def test_which_kind_of_node_the_host_is_is_told_without_services(capsys, tmp_path, kind):
    tree = build(named("article-alternate"), tmp_path / "host")
    if kind:
        wants = tree / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True)
        (wants / ("rke2-%s.service" % kind)).write_text("")
    code, result = run(capsys, root=str(tree))
    assert (code, result["rke2"], "services" in result) == (0, kind, False)


def test_services_are_read_where_asked_for_and_make_a_set(capsys, tree):
    code, plain = run(capsys, root=str(tree), reserved_cores_per_node=1)
    assert (code, "services" in plain) == (0, False)
    code, result = run(capsys, root=str(tree), reserved_cores_per_node=1, services=True)
    assert (code, result["plan"]) == (0, plain["plan"])
    found = isolation_set(result["plan"], result["services"])
    assert found["applies"] and result["reserved"] in found["files"][0]["content"]
