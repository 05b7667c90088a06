# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module kubelet_checkpoint: judging, the transition with its refusals, check mode, diff, a second run."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from ansible_collections.lo0.rke2_hostprep.plugins.modules import kubelet_checkpoint
from topologies import article

CPU, MEMORY = "var/lib/kubelet/cpu_manager_state", "var/lib/kubelet/memory_manager_state"
NONE = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
MEMORY_NONE = '{"policyName":"None","machineState":{},"checksum":4236770233}'
STILL = {"state": "transitioned", "drained": True}


PLAN = json.loads(json.dumps(make_plan(article("alternate"), {})))


@pytest.fixture
def root(tmp_path):
    """As much of a machine of 64 CPUs as the module reads."""
    put(tmp_path, "sys/devices/system/cpu/online", "0-63\n")
    put(tmp_path, "proc/sys/kernel/random/boot_id", "1c2d3e4f-0000-4000-8000-000000000000\n")
    return tmp_path


@pytest.fixture
def run(capsys, root):
    def call(**arguments):
        given = {"root": str(root), "node_kind": "agent", "rke2_version": "v1.34.4+rke2r1"}
        if "wanted" not in arguments:
            given["plan"] = PLAN
        with patch_module_args(dict(given, **arguments)), pytest.raises(SystemExit) as stopped:
            kubelet_checkpoint.main()
        return stopped.value.code or 0, json.loads(capsys.readouterr().out)

    return call


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def tree(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def names(root):
    return sorted(path.name for path in (root / "var/lib/kubelet").iterdir())


def test_nothing_is_needed_before_the_first_start(run, root):
    before = tree(root)
    code, result = run(**STILL)
    assert (code, result["changed"], result["transition_needed"], result["why"], result["moved"]) == (
        0,
        False,
        False,
        [],
        [],
    )
    assert result["wanted"]["reservedSystemCPUs"] == "0-1,32-33"
    assert (result["rke2"]["kind"], result["running"], result["restart_pending"]) == (None, False, [])
    assert tree(root) == before


def test_a_transition_once_with_check_mode_and_diff(run, root):
    put(root, CPU, NONE)
    put(root, MEMORY, MEMORY_NONE)
    before = tree(root)
    code, judged = run()
    assert (code, judged["changed"], judged["transition_needed"]) == (0, False, True)
    assert [(one["file"], one["code"]) for one in judged["why"]] == [("/" + CPU, "checkpoint_policy")]
    assert judged["why"][0]["message"] == 'configured policy "static" differs from state checkpoint policy "none"'
    code, told = run(_ansible_check_mode=True, _ansible_diff=True, **STILL)
    assert (code, told["changed"], told["transition_needed"]) == (0, True, True)
    assert [step["from"] for step in told["moved"]] == ["/" + CPU, "/" + MEMORY]
    assert tree(root) == before
    code, done = run(_ansible_diff=True, **STILL)
    assert (code, done["changed"], done["transition_needed"], done["why"]) == (0, True, False, judged["why"])
    assert done["diff"]["before"] == "/%s\n/%s\n" % (CPU, MEMORY)
    assert done["diff"]["after"] == "".join(step["to"] + "\n" for step in done["moved"])
    assert [(root / step["to"][1:]).read_text() for step in done["moved"]] == [NONE, MEMORY_NONE]
    assert not (root / CPU).exists()
    code, again = run(_ansible_diff=True, **STILL)
    assert (code, again["changed"], again["moved"]) == (0, False, [])
    assert "diff" not in again


def test_old_files_beyond_keep_are_removed(run, root):
    for day in range(1, 4):
        put(root, CPU + ".hostprep-2026010%dT000000Z-aaaa" % day, "old")
    put(root, CPU, NONE)
    code, done = run(keep=1, **STILL)
    assert (code, [path[-20:] for path in done["removed"]]) == (
        0,
        ["-20260101T000000Z-aaaa"[-20:], "-20260102T000000Z-aaaa"[-20:], "-20260103T000000Z-aaaa"[-20:]],
    )
    assert names(root) == [done["moved"][0]["to"].rpartition("/")[2]]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("files", "arguments", "refusal"),
    [
        ({}, {"drained": False}, "checkpoint_not_drained"),
        ({"proc/77/comm": "kubelet\n"}, {}, "checkpoint_kubelet_running"),
        ({"sys/fs/cgroup/kubepods/pod39b37746-7f5e-4064-b8e1-eebd2bfaa003/cgroup.procs": "5\n"}, {}, "checkpoint_pods_running"),
        ({}, {"keep": -1}, "checkpoint_keep"),
        ({}, {"rke2_version": "v1.12.1"}, "rke2_version_unknown"),
        ({}, {"kubelet": {"static_policy": "yes"}}, "rke2_boolean_quoted"),
        ({}, {"online": "0-9"}, "kubelet_reserved_not_online"),
        ({}, {"online": "x"}, "cpulist_invalid"),
        ({"etc/rancher/rke2/config.yaml": "data-dir: /a\n"}, {"data_dir": "/b"}, "rke2_data_dir_differs"),
    ],
)  # fmt: skip
def test_refusals_write_nothing(run, root, files, arguments, refusal, check):
    put(root, CPU, NONE)
    for path, text in files.items():
        put(root, path, text)
    before = tree(root)
    code, result = run(_ansible_check_mode=check, **dict(STILL, **arguments))
    assert (code, result["code"]) == (1, refusal)
    assert result["msg"].endswith(".")
    assert "\n" not in result["msg"]
    assert tree(root) == before


def test_a_file_that_is_none_is_a_reason(run, root):
    put(root, CPU, "{")
    code, result = run()
    assert (code, [one["code"] for one in result["why"]]) == (0, ["checkpoint_damaged"])
    assert run(**STILL)[1]["changed"] is True


def test_a_file_that_cannot_be_read_is_refused(run, root):
    (root / CPU).mkdir(parents=True)
    code, result = run()
    assert (code, result["code"]) == (1, "checkpoint_unreadable")


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        ({}, []),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}, ["checkpoint_policy"]),
        ({"memoryManagerPolicy": "Static"}, ["checkpoint_memory_policy"]),
    ],
)
def test_a_reservation_that_is_given(run, root, wanted, codes):
    put(root, CPU, NONE)
    put(root, MEMORY, MEMORY_NONE)
    code, result = run(wanted=wanted)
    assert (code, [one["code"] for one in result["why"]], result["wanted"]) == (0, codes, wanted)


def test_a_server_keeps_the_policy_that_others_gave_it(run, root):
    put(root, "etc/rancher/rke2/config.yaml", "kubelet-arg:\n  - cpu-manager-policy=static\n  - reserved-cpus=0-1\n")
    put(root, CPU, '{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}')
    code, result = run(node_kind="server")
    assert (code, result["why"], result["wanted"]["reservedSystemCPUs"]) == (0, [], "0-1")


def test_the_state_dir_follows_root_dir(run, root):
    put(root, "etc/rancher/rke2/config.yaml", "kubelet-arg: [root-dir=/srv/kubelet]\n")
    put(root, "srv/kubelet/cpu_manager_state", NONE)
    assert run()[1]["why"][0]["file"] == "/srv/kubelet/cpu_manager_state"
    assert run(state_dir="/var/lib/kubelet")[1]["why"] == []


def test_without_a_plan_the_online_cpus_are_those_of_the_machine(run, root):
    put(root, CPU, '{"policyName":"static","defaultCpuSet":"0-151","checksum":2944298236}')
    code, result = run(wanted={"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
    assert (code, [one["code"] for one in result["why"]]) == (0, ["checkpoint_cpu_set"])
    assert '"0-63"' in result["why"][0]["message"]
