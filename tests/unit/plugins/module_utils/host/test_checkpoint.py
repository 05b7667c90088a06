# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transition of the kubelet's state files: what still depends on them, and that all are moved or none."""

from __future__ import annotations

import os

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import checkpoint
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError

STATE = "var/lib/kubelet/"
BASE = {"proc": None, "sys": None}
POD = "39b37746-7f5e-4064-b8e1-eebd2bfaa003"


def refused(host, drained=True, leftovers="refuse", own=(), live=False):
    tree = host.tree()
    tree.live = live
    with pytest.raises(HostprepError) as caught:
        checkpoint.check_still(tree, drained, leftovers, own)
    return caught.value.code


def test_what_still_depends_on_the_files(host, monkeypatch):
    host.add(BASE)
    assert (
        refused(host, drained=False)
        == refused(host, drained=None)
        == refused(host, drained="yes")
        == "checkpoint_not_drained"
    )
    checkpoint.check_still(host.tree(), True, "refuse", set())
    host.add({"sys/fs/cgroup/kubepods/pod%s/x/cgroup.procs" % POD: "5\n"})
    assert refused(host) == "checkpoint_pods_running"
    assert refused(host, leftovers="without_exclusive", own={POD}) == "checkpoint_pods_running"
    checkpoint.check_still(host.tree(), True, "without_exclusive", {"another"})
    now = {name: {"active": "inactive"} for name in checkpoint.UNITS}
    monkeypatch.setattr(checkpoint.units, "show", lambda names: now)
    now["rke2-agent.service"] = {"active": "activating"}
    assert refused(host, leftovers="without_exclusive", live=True) == "checkpoint_unit_running"
    host.add({"proc/7/comm": "kubelet\n"})
    assert refused(host) == "checkpoint_kubelet_running"


NAMES = ("cpu_manager_state", "memory_manager_state")
PATHS = ["/" + STATE + name for name in NAMES]


def files(host):
    return {path.name: path.read_text() for path in (host.top / STATE).iterdir()}


def test_move_and_what_stays(host):
    host.add(dict(BASE, **{STATE + name: name for name in NAMES}))
    steps = checkpoint.aside(host.tree(), PATHS, "1c2d3e4f-0000\n", 1_800_000_000)
    assert [step["to"] for step in steps] == [path + ".hostprep-20270115T080000Z-1c2d3e4f" for path in PATHS]
    checkpoint.move(host.tree(), steps)
    assert files(host) == {name + ".hostprep-20270115T080000Z-1c2d3e4f": name for name in NAMES}
    host.add({STATE + NAMES[0]: "again"})
    (again,) = checkpoint.aside(host.tree(), PATHS[:1], "1c2d3e4f", 1_800_000_000)
    assert again["to"] == PATHS[0] + ".hostprep-20270115T080000Z-1c2d3e4f-2"
    assert "unknown" in checkpoint.aside(host.tree(), PATHS[:1], None)[0]["to"]


def test_old_files_beyond_those_to_keep(host):
    old = ["cpu_manager_state.hostprep-2026010%dT000000Z-aaaa" % day for day in range(1, 6)]
    other = [
        "cpu_manager_state.bak",
        "cpu_manager_state.hostprep-x",
        "cpu_manager_state.previous-boot",
        "memory_manager_state",
    ]
    host.add(dict(BASE, **{STATE + name: "x" for name in old + other}))
    steps = checkpoint.aside(host.tree(), [PATHS[1]], "b")
    found = checkpoint.surplus(host.tree(), "/var/lib/kubelet", 3, steps)
    assert found == ["/" + STATE + name for name in old[:2]]
    assert len(checkpoint.surplus(host.tree(), "/var/lib/kubelet", 0, steps)) == 6
    checkpoint.remove(host.tree(), [*found, "/" + STATE + "gone"])
    assert sorted(files(host)) == sorted(old[2:] + other)


def test_one_that_cannot_be_moved_leaves_all_where_they_were(host, monkeypatch):
    host.add(dict(BASE, **{STATE + name: name for name in NAMES}))
    steps = checkpoint.aside(host.tree(), PATHS, "b")
    rename = os.rename

    def failing(source, target):
        if source.endswith(NAMES[1]):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(checkpoint.os, "rename", failing)
    with pytest.raises(HostprepError) as caught:
        checkpoint.move(host.tree(), steps)
    assert caught.value.code == "checkpoint_not_moved"
    assert "all are where they were" in caught.value.message
    assert files(host) == {name: name for name in NAMES}
