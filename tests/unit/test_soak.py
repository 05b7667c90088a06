# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long sweeps for `make soak`: every count, node reservation and mode on every machine there is, and damaged trees by the thousand."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.configured import observe
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from builder import build, named, names

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
CAPTURED = (
    "cnto-bm-worker1 cnto-bm-worker2 cnto-pao-bm-worker1 cnto-pao-vm-worker2 cnto-sno-vm crirm-2s-snc2-irregular crirm-2s-snc2-pmem crirm-4s-144"
    " crirm-desktop-20 ghw-offline-cpus ghw-ryzen-1600 ghw-vm-nvidia-gpu ghw-xeon-l5640 hwloc-2s-mlx4-mic hwloc-4s-pci-conflicts hwloc-bulldozer-cgroup1"
    " hwloc-bulldozer-cgroup2 hwloc-haswell-cod-buggy hwloc-i7-1370p-hybrid hwloc-magnycours-sparse hwloc-offline-cpu0-node0 hwloc-power7-256"
    " hwloc-qemu-cpuless-initiators hwloc-superdome-ia64-17n hwloc-x3950m2-16pkg nri-hybrid-sample1 ul-arm-x3-a715 ul-epyc-7451-2s ul-power7-64"
    " ul-rv64-pioneer ul-s390-lpar-drawer ul-s390-zvm ul-vbox"
).split()

pytestmark = pytest.mark.soak


def _validator(name):
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / name).read_text(encoding="utf-8")))


def _sweep(topology):
    """(plans, refusals) of every policy that counts; each plan valid and within the invariants, each refusal for a reason."""
    validator = _validator("plan.schema.json")
    online = len(cpulist.expand(topology["cpus"]["online"]))
    policies = [
        {"reserved_count": count, "strategy": strategy}
        for count in range(1, online + 1)
        for strategy in ("pack", "spread")
    ]
    policies += [{"reserved_cores_per_node": cores} for cores in range(1, online + 1)]
    policies += [{"reserved_count": count, "smt": "disabled"} for count in range(1, online + 1, 3)]
    policies += [{"isolation_mode": mode, "smt": smt} for mode in ("quiet", "pinned") for smt in ("keep", "disabled")]
    plans = refusals = 0
    for policy in policies:
        try:
            plan = make_plan(topology, policy)
        except HostprepError as error:
            expected = {"reserved_count", "reserved_cores_per_node"}
            if topology["cpus"]["offline"] and policy.get("smt") == "disabled":
                expected.add("offline_siblings_unknown")
            assert error.code in expected, (policy, error)
            refusals += 1
            continue
        plans += 1
        if plans % 50 == 1:
            validator.validate(json.loads(json.dumps(plan)))
        reserved = cpulist.expand(plan["reserved"])
        assert "reserved_count" not in policy or len(reserved) == policy["reserved_count"], policy
        assert not set(reserved) & set(cpulist.expand(plan["isolated"]))
        for nic in plan["nics"]:
            assert set(nic["queue_cpus"] + nic["ceq_cpus"]) <= set(reserved), policy
    return plans, refusals


@pytest.mark.parametrize("name", CAPTURED)
def test_captured(shared, name):
    plans, refusals = _sweep(discover(Tree(str(shared / "machines" / (name + ".tar.xz")))))
    print("%s: %d plans, %d refusals" % (name, plans, refusals))
    assert plans


def test_the_list_of_captured_machines_is_complete(shared):
    entries = json.loads((shared / "machines" / "index.json").read_text(encoding="utf-8"))
    assert sorted(CAPTURED) == sorted(
        entry["name"] for entry in entries if entry["ground_truth"]["siblings"] is not None
    )


@pytest.mark.parametrize("name", [name for name in names() if name != "no-topology"])
def test_built(tmp_path, name):
    plans, refusals = _sweep(discover(Tree(str(build(named(name), tmp_path / "tree.tar")))))
    print("%s: %d plans, %d refusals" % (name, plans, refusals))
    assert plans


def _damage(root, chance):
    """One thing a broken capture or a hostile one may hold."""
    files = [path for path in root.rglob("*") if path.is_symlink() or path.is_file()]
    path = chance.choice(files)
    kind = chance.choice(
        ("cut", "garbage", "binary", "null", "empty", "gone", "loop", "dangling", "huge", "folder", "number", "list")
    )
    text = b"" if path.is_symlink() else path.read_bytes()
    path.unlink()
    if kind in ("cut", "garbage", "binary", "null", "empty", "number", "list"):
        path.write_bytes(
            {
                "cut": text[: chance.randrange(len(text) + 1)],
                "garbage": b"$(reboot) \xff; `x`\n",
                "binary": chance.randbytes(200),
                "null": b"(null)\n",
                "empty": b"",
                "number": b"%d\n" % chance.choice((-1, 2**31, 2**64, 10**40)),
                "list": chance.choice((b"0-4294967295\n", b"3-1\n", b",\n", b"0-7\n")),
            }[kind]
        )
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("../" * 40 + "etc/passwd")
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with open(path, "wb") as sparse:
            sparse.truncate(4 << 30)
    return kind, path


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", ["sriov-host", "s390-books", "hybrid", "ena-arm", "stacked"])
def test_damaged_trees(tmp_path, name, seed):
    """Ten to thirty wounds at once: a topology that fits its schema, or one sentence."""
    chance = random.Random("%s %d" % (name, seed))
    root = build(named(name), tmp_path / "tree")
    wounds = [_damage(root, chance) for _wound in range(chance.randrange(10, 30))]
    validator = _validator("topology.schema.json")
    try:
        tree = Tree(str(root))
        topology = discover(tree)
        validator.validate(json.loads(json.dumps(topology)))
        plan = make_plan(topology, {}, observed=observe(tree, topology["kernel"]["release"]))
        _validator("plan.schema.json").validate(json.loads(json.dumps(plan)))
    except HostprepError as error:
        assert error.code != "unexpected" and not error.code.startswith("invariant"), (wounds, str(error))
    shutil.rmtree(root)
