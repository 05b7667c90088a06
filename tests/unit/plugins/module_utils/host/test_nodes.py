# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA nodes, and the odd ones among them."""

from __future__ import annotations

NODE = "sys/devices/system/node/"


def node(host, number, cpus="", memory=1048576, distance=None, mask=None):
    folder = "%snode%d/" % (NODE, number)
    host.add({folder + "meminfo": "Node %d MemTotal:       %d kB\nNode %d MemFree:  1 kB\n" % (number, memory, number)})
    if mask:
        host.add({folder + "cpumap": mask})
    else:
        host.add({folder + "cpulist": cpus + "\n"})
    if distance:
        host.add({folder + "distance": distance + "\n"})


def test_nodes(host):
    host.cpus(8)
    node(host, 0, "0-3", 2097152, "10 21")
    node(host, 1, "4-7", 1023, "21 10")
    found = host.discover()
    assert found["numa_nodes"] == [
        {
            "id": 0,
            "cpus": "0-3",
            "cpus_raw": "0-3",
            "memory_mib": 2048,
            "distances": {"0": 10, "1": 21},
            "has_memory": True,
        },
        {
            "id": 1,
            "cpus": "4-7",
            "cpus_raw": "4-7",
            "memory_mib": 0,
            "distances": {"0": 21, "1": 10},
            "has_memory": True,
        },
    ]
    assert [core["node"] for core in found["cpus"]["cores"]] == [0] * 4 + [1] * 4


def test_sparse_ids_with_cpuless_and_memoryless_nodes(host):
    host.cpus(4)
    node(host, 0, "0-1", distance="10 20 30")
    node(host, 2, "2-3", memory=0, distance="20 10 30")
    node(host, 17, "", distance="30 30 10")
    found = host.discover()["numa_nodes"]
    assert [(item["id"], item["cpus"], item["has_memory"]) for item in found] == [
        (0, "0-1", True),
        (2, "2-3", False),
        (17, "", True),
    ]
    assert found[2]["distances"] == {"0": 30, "2": 30, "17": 10}


def test_the_kernels_own_word_on_memory_counts_most(host):
    host.cpus(1).add({NODE + "has_memory": "1\n"})
    node(host, 0, "0")
    node(host, 1, "")
    assert [item["has_memory"] for item in host.discover()["numa_nodes"]] == [False, True]


def test_cpus_are_cut_to_what_is_online(host):
    host.cpus(4)
    node(host, 0, "0-140")
    found = host.discover()["numa_nodes"][0]
    assert (found["cpus"], found["cpus_raw"]) == ("0-3", "0-140")


def test_a_mask_where_there_is_no_list(host):
    host.cpus(4)
    node(host, 0, mask="00000000,0000000f\n")
    assert host.discover()["numa_nodes"][0]["cpus"] == "0-3"


def test_no_node_folder(host):
    found = host.cpus(2).discover()
    assert found["numa_nodes"] == []
    assert [core["node"] for core in found["cpus"]["cores"]] == [None, None]
    assert {"what": "numa_nodes", "path": "sys/devices/system/node", "why": "missing"} in found["unknown"]


def test_what_cannot_be_read_is_unknown(host):
    host.cpus(2)
    node(host, 0, "(null)", distance="10")
    node(host, 1, "0-1", distance="ten")
    (host.top / NODE / "node1/meminfo").write_text("Node 1 MemTotal: lots\n", encoding="utf-8")
    found = host.discover()
    assert [(item["cpus"], item["memory_mib"], item["distances"]) for item in found["numa_nodes"]] == [
        (None, 1024, None),
        ("0-1", None, None),
    ]
    why = {note["what"]: note["why"] for note in found["unknown"] if note["what"].startswith("numa_nodes")}
    assert why["numa_nodes.0.distances"] == "1 columns for 2 node folders"
    assert why["numa_nodes.0.cpus"] == "makes no sense: '(null)'"
    assert why["numa_nodes.1.distances"].startswith("not a row of numbers")
    assert why["numa_nodes.1.memory_mib"].startswith("no MemTotal in kB")


def test_a_cpu_in_two_nodes_or_none_has_no_node(host):
    host.cpus(3)
    node(host, 0, "0-1")
    node(host, 1, "1")
    found = host.discover()
    assert [core["node"] for core in found["cpus"]["cores"]] == [0, None, None]
    assert [note["why"] for note in found["unknown"] if note["what"] == "cpus.cores.*.node"] == [
        "CPU 1 is listed by nodes 0 and 1",
        "no node lists CPU 2",
    ]


def test_without_online_cpus_nodes_keep_the_kernels_list(host):
    host.add({"proc/version": "x"})
    node(host, 0, "0-3")
    found = host.discover()["numa_nodes"][0]
    assert (found["cpus"], found["cpus_raw"]) == (None, "0-3")
