# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The example fleet: built once, described by its inventory, and planned to what each host is there to show."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COLLECTION = "ansible_collections.lo0.rke2_hostprep.plugins.module_utils."


def run(out):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "build_trees.py"), str(out)], capture_output=True, text=True, check=True
    )
    return sorted(Path(line.removeprefix("built ")).name for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    out = tmp_path_factory.mktemp("examples")
    return out, run(out)


def inventory(kind, name):
    path = EXAMPLES / "inventory" / kind / f"{name}.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def groups():
    """{host: [its groups]} of the inventory."""
    found = {}

    def walk(name, group, above):
        for host in group.get("hosts") or ():
            found[host] = [*above, name]
        for child, inner in (group.get("children") or {}).items():
            walk(child, inner, [*above, name])

    for name, group in yaml.safe_load((EXAMPLES / "inventory" / "hosts.yml").read_text(encoding="utf-8")).items():
        walk(name, group, [])
    return found


def test_each_host_has_a_machine_and_each_machine_a_host(fleet):
    out, built = fleet
    assert built == sorted(groups()) == sorted(path.stem for path in (EXAMPLES / "machines").glob("*.yml"))
    root = inventory("group_vars", "rke2_cluster")["rke2_hostprep_root"]
    assert root == "{{ inventory_dir }}/../../build/examples/{{ inventory_hostname }}"
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == built


def test_what_is_up_to_date_is_left_alone(fleet):
    out, _built = fleet
    assert run(out) == []
    (out / ".server-1.stamp").write_text("another builder", encoding="utf-8")
    assert run(out) == ["server-1"]
    assert run(out) == []


@pytest.fixture(scope="module")
def plans(fleet):
    """{host: (topology, plan)}, by the policy that the inventory gives each host."""
    out, _built = fleet
    tree, discover, configured = (
        importlib.import_module(COLLECTION + "host." + name) for name in ("tree", "discover", "configured")
    )
    plan = importlib.import_module(COLLECTION + "model.plan")
    found = {}
    for host, names in groups().items():
        variables = {}
        for kind, name in [*(("group_vars", name) for name in names), ("host_vars", host)]:
            variables.update(inventory(kind, name))
        policy = {**variables["rke2_hostprep_policy"], **variables.get("rke2_hostprep_policy_overrides", {})}
        root = tree.Tree(str(out / host))
        topology = discover.discover(root)
        observed = configured.observe(root, topology["kernel"]["release"])
        found[host] = (
            topology,
            plan.make_plan(topology, policy, variables.get("rke2_hostprep_what_if", ()), observed, host),
        )
    return found


def test_one_host_is_as_planned_and_the_others_are_not(plans):
    verdicts = {host: {row["verdict"] for row in plan["differences"]} for host, (_topology, plan) in plans.items()}
    assert verdicts.pop("h100-3") == {"same"}
    assert all("differs" in found for found in verdicts.values())
    assert {host for host, (_topology, plan) in plans.items() if not plan["transition"]["reboot"]} == {"h100-3"}


def test_the_older_server_shows_its_warnings(plans):
    _topology, plan = plans["server-1"]
    assert {"cpus_offline", "nic_without_local_housekeeping", "vector_budget"} <= {
        warning["code"] for warning in plan["warnings"]
    }


def test_the_far_host_has_its_fast_nics_on_one_socket(plans):
    nodes = {
        host: sorted({nic["numa_node"] for nic in plans[host][0]["nics"] if nic["driver"] == "mlx5_core"})
        for host in ("h100-1", "h100-2")
    }
    assert nodes == {"h100-1": [0, 1], "h100-2": [0]}
    assert [gpu["numa_node"] for gpu in plans["h100-2"][0]["gpus"]] == [0, 0, 1, 1]


def test_every_variant_and_every_pod_shape_is_judged(plans):
    for host, (_topology, plan) in plans.items():
        if host != "server-1":
            assert [row["error"] for row in plan["what_if"]] == [None] * 4
            assert [row["policies"]["best-effort"]["admitted"] for row in plan["kubelet"]["admission"]] == [True, True]
