# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host tells of its kubelet: state files, process, pods, memory."""

from __future__ import annotations

import os

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import kubelet

STATE = "var/lib/kubelet/"
BASE = {"proc": None, "sys": None}
POD = "39b37746-7f5e-4064-b8e1-eebd2bfaa003"


def test_states(host):
    tree = host.add(dict(BASE, **{STATE + "cpu_manager_state": '{"policyName":"none"}'})).tree()
    found = kubelet.states(tree, "/var/lib/kubelet")
    assert found["cpu_manager_state"] == {
        "path": "/" + STATE + "cpu_manager_state",
        "state": {"policyName": "none"},
        "problem": None,
    }
    assert found["memory_manager_state"] == {
        "path": "/" + STATE + "memory_manager_state",
        "state": None,
        "problem": None,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[1]", "it holds no JSON object"), ("{", "it is not JSON"), ("", "it is not JSON"), (None, "not a regular file")],
)
def test_states_that_are_none(host, text, problem):
    tree = host.add(dict(BASE, **{STATE + "cpu_manager_state": text})).tree()
    assert problem in kubelet.states(tree, "/var/lib/kubelet")["cpu_manager_state"]["problem"]


def test_node_memory(host):
    node = "sys/devices/system/node/node%d/"
    host.add(
        dict(
            BASE,
            **{
                "sys/devices/system/node/online": "0-1\n",
                node % 0 + "meminfo": "Node 0 MemTotal:       65536 kB\nNode 0 MemFree: 5 kB\n",
                node % 0 + "hugepages/hugepages-2048kB/nr_hugepages": "4\n",
                node % 0 + "hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
                node % 1 + "meminfo": "Node 1 MemTotal:       1024 kB\n",
            },
        )
    )
    assert kubelet.node_memory(host.tree()) == {
        "0": {"memory": 65536 << 10, "hugepages-2Mi": 8 << 20, "hugepages-1Gi": 0},
        "1": {"memory": 1024 << 10},
    }
    host.add({node % 2 + "meminfo": "nothing\n"})
    assert kubelet.node_memory(host.tree()) is None


def test_node_memory_without_nodes(host):
    assert kubelet.node_memory(host.add(BASE).tree()) is None


@pytest.mark.parametrize(
    ("amount", "text"),
    [(512, "512"), (1024, "1Ki"), (64 << 10, "64Ki"), (512 << 20, "512Mi"), (16 << 30, "16Gi"), (1 << 50, "1Pi")],
)
def test_names_of_sizes(amount, text):
    assert kubelet._binary(amount) == text


def processes(host):
    return host.add(
        {
            "proc/stat": "cpu 1\nbtime 1000\n",
            "proc/7/comm": "kubelet\n",
            "proc/7/stat": "7 (ku) (be) S " + " ".join(["0"] * 18) + " %d 0\n" % (50 * os.sysconf("SC_CLK_TCK")),
            "proc/8/comm": "kubelet-wrapper\n",
            "proc/9/stat": "9 (gone\n",
            "sys": None,
            "etc/old": "",
            "etc/new": "",
        }
    )


def test_kubelets_and_what_they_do_not_know_yet(host):
    tree = processes(host).tree()
    assert kubelet.kubelets(tree) == [7]
    assert kubelet.started(tree, 7) == 1050
    assert kubelet.started(tree, 9) is None
    os.utime(host.top / "etc/old", (1049, 1049))
    assert kubelet.older_than(tree, 7, ["/etc/old", "/etc/new", "/etc/none"]) == ["/etc/new"]
    assert kubelet.older_than(tree, 9, ["/etc/new"]) == []


@pytest.mark.parametrize(
    ("path", "uid"),
    [
        (
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod39b37746_7f5e_4064_b8e1_eebd2bfaa003.slice/cri-1.scope",
            POD,
        ),
        ("kubepods.slice/kubepods-pod39b37746_7f5e_4064_b8e1_eebd2bfaa003.slice", POD),
        ("kubepods/besteffort/pod39b37746-7f5e-4064-b8e1-eebd2bfaa003/0123", POD),
        ("cpuset/kubepods/pod39b37746-7f5e-4064-b8e1-eebd2bfaa003/0123", POD),
        ("kubepods/burstable/pod0123456789abcdef0123456789abcdef/x", "0123456789abcdef0123456789abcdef"),
        ("system.slice/x.service", None),
        ("kubepods", None),
    ],
)
def test_pods_with_processes(host, path, uid):
    folder = "sys/fs/cgroup/" + path
    host.add(dict(BASE, **{folder + "/cgroup.procs": ""}))
    assert kubelet.running_pods(host.tree()) == {}
    host.add({folder + "/cgroup.procs": "12\n13\n"})
    assert kubelet.running_pods(host.tree()) == ({uid: "/" + folder} if uid else {})
