# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module nic_irq_affinity: plans, CPU lists, check mode, diff, refusals."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import affinity as host
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from ansible_collections.lo0.rke2_hostprep.plugins.modules import nic_irq_affinity
from builder import build, named


@pytest.fixture
def root(tmp_path):
    return build(named("article-alternate"), tmp_path / "root")


@pytest.fixture
def plan(root):
    return json.loads(json.dumps(make_plan(discover(Tree(str(root))), {})))


def run(capsys, **arguments):
    """(exit code, result) of the module with these arguments."""
    with patch_module_args(arguments), pytest.raises(SystemExit) as stopped:
        nic_irq_affinity.main()
    return stopped.value.code or 0, json.loads(capsys.readouterr().out)


def masks(root):
    return {str(path): path.read_text() for path in (root / "proc/irq").rglob("smp_affinity_list")}


def test_changes_once_with_a_diff(capsys, root, plan):
    before = masks(root)
    code, told = run(capsys, root=str(root), plan=plan, _ansible_check_mode=True, _ansible_diff=True)
    assert (code, told["changed"], told["results"]) == (0, True, {"ok": 2, "would_write": 62})
    assert masks(root) == before
    code, done = run(capsys, root=str(root), plan=plan, _ansible_diff=True)
    assert (code, done["changed"], done["results"]) == (0, True, {"ok": 2, "written": 62})
    assert done["diff"] == told["diff"]
    assert "enp26s0np0 queue 2 (irq 28): 4\n" in done["diff"]["before"]
    assert "enp26s0np0 queue 2 (irq 28): 32\n" in done["diff"]["after"]
    assert done["managed"] == done["vector_space"] == done["exposed"] == []
    code, again = run(capsys, root=str(root), plan=plan, _ansible_diff=True)
    assert (code, again["changed"], again["results"]) == (0, False, {"ok": 64})
    assert again["diff"]["before"] == again["diff"]["after"] == ""
    assert set(again["irqs"][0]) == {
        "irq", "nic", "name", "kind", "queue", "before", "after", "wanted", "result", "why",
    }  # fmt: skip


def test_the_plan_that_the_host_keeps(capsys, root, plan):
    (root / "var/lib/lo0.rke2_hostprep").mkdir(parents=True)
    (root / "var/lib/lo0.rke2_hostprep/plan.json").write_text(json.dumps(plan))
    assert run(capsys, root=str(root))[1]["results"]["written"] == 62


def test_cpus_and_nics(capsys, root):
    code, done = run(capsys, root=str(root), cpus="0-3", nics=["enp26s0np0"])
    assert (code, done["changed"]) == (0, True)
    assert {row["after"] for row in done["irqs"]} == {"0", "2", "0,2"}
    assert run(capsys, root=str(root), cpus="0-3", nics=["enp26s0np0"])[1]["changed"] is False


def test_vector_space_is_a_warning_of_its_own(capsys, root, plan, monkeypatch):
    monkeypatch.setattr(host, "_write", lambda *_all: 28)  # ENOSPC
    warnings = []  # where a controller's code is loaded too, Ansible shows them there and not in the result
    monkeypatch.setattr(nic_irq_affinity.AnsibleModule, "warn", lambda _self, text: warnings.append(text))
    code, done = run(capsys, root=str(root), plan=plan)
    assert (code, done["changed"], len(done["vector_space"])) == (0, False, 62)
    assert "no interrupt vector is left" in str(warnings)
    assert done["exposed"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "plan_missing"),
        ({"plan": {}}, "plan_invalid"),
        ({"fingerprint": "0" * 64}, "plan_other_machine"),
        ({"irq": "0-63"}, "irq_on_isolated"),
        ({"nics": "gone"}, "nic_gone"),
        ({"cpus": "0-99", "names": ["enp26s0np0"]}, "cpus_not_online"),
        ({"cpus": "0-3", "names": ["eth9"]}, "nic_unknown"),
        ({"root": "/nonexistent"}, "root_missing"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_refused_before_the_first_write(capsys, root, plan, arguments, code, check):
    before = masks(root)
    given = {"root": str(root), "_ansible_check_mode": check}
    if "names" in arguments:
        given.update(cpus=arguments["cpus"], nics=arguments["names"])
    elif "fingerprint" in arguments or "irq" in arguments:
        given["plan"] = dict(plan, **arguments)
    elif "nics" in arguments:
        given["plan"] = dict(plan, nics=[dict(plan["nics"][0], pci="0000:ff:00.0", name="gone0")])
    else:
        given.update(arguments)
    status, result = run(capsys, **given)
    assert status == 1 and result["failed"] and result["code"] == code
    assert result["read"] and result["allowed"] and result["cure"]
    assert "\n" not in result["msg"] and "Traceback" not in json.dumps(result)
    assert masks(root) == before


def test_no_traceback(capsys, root, plan, monkeypatch):
    def broken(*_all):
        raise RuntimeError("boom")

    monkeypatch.setattr(nic_irq_affinity, "pin", broken)
    status, result = run(capsys, root=str(root), plan=plan)
    assert (status, result["code"]) == (1, "unexpected")


@pytest.mark.parametrize("arguments", [{"cpus": "0"}, {"nics": ["a"]}, {"cpus": "0", "nics": ["a"], "plan": {}}])
def test_options_that_belong_together(capsys, root, arguments):
    assert run(capsys, root=str(root), **arguments)[0] == 1
