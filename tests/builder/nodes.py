# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA nodes: which CPUs and how much memory each has, and sys/devices/system/node."""

from __future__ import annotations

import dataclasses

from . import lists
from .spec import SpecError, cpus as cpu_set, read

TOP = "sys/devices/system/node"
ID, MIB = range(0, 1024), range(0, 1 << 32)
FIELDS = {
    "nodes_per_package": (range(1, 65), 1),
    "mib": ((MIB, [MIB]), 262144),
    "cpus": (dict, None),
    "ids": ([ID], None),
    "memoryless": ([ID], []),
    "cpuless": ([dict], []),
    "distances": ([[range(0, 256)]], None),
}
CPULESS = {"id": (ID, None), "count": (range(1, 1025), 1), "mib": (MIB, 131072), "near": (ID, None)}
LOCAL, PACKAGE, REMOTE, NEAR, FAR = 10, 12, 21, 17, 28


@dataclasses.dataclass
class Node:
    """One NUMA node; cpus are all of its ids, online or not; near is the node beside which memory without CPUs sits."""

    id: int
    cpus: list
    mib: int
    package: int | None
    near: int | None = None


class Nodes:
    """The nodes by id; `exist` is false for a kernel without NUMA, which shows no node directory at all."""

    def __init__(self, section, cpus):
        self.exist = section is not False
        want = read({} if isinstance(section, bool) else section, "memory", FIELDS)
        members = self._explicit(want, cpus) if want.cpus is not None else self._split(want, cpus)
        self.all = []
        sizes = want.mib if isinstance(want.mib, list) else [want.mib] * len(members)
        if len(sizes) != len(members):
            raise SpecError(f"memory: mib lists {len(sizes)} sizes, and there are {len(members)} nodes with CPUs")
        for (number, (package, ids)), mib in zip(members.items(), sizes):
            self.all.append(Node(number, ids, 0 if number in want.memoryless else mib, package))
        for entry in want.cpuless:
            extra = read(entry, "memory: cpuless", CPULESS)
            near = extra.near if extra.near is not None else self.all[0].id
            number = extra.id if extra.id is not None else max(node.id for node in self.all) + 1
            self.all.extend(Node(number + place, [], extra.mib, None, near) for place in range(extra.count))
        self.all.sort(key=lambda node: node.id)
        self.ids = [node.id for node in self.all]
        if len(set(self.ids)) != len(self.ids):
            raise SpecError("memory: two nodes have one id")
        unknown = [
            number
            for number in [*want.memoryless, *(node.near for node in self.all if node.near is not None)]
            if number not in self.ids
        ]
        if unknown:
            raise SpecError(f"memory: node {unknown[0]} is named, and the machine has nodes {lists.compress(self.ids)}")
        self.distances = want.distances or [[self._distance(a, b) for b in self.all] for a in self.all]
        if [len(row) for row in self.distances] != [len(self.all)] * len(self.all):
            raise SpecError(f"memory: distances must be {len(self.all)} rows of {len(self.all)} numbers")
        by_id = {cpu.id: cpu for cpu in cpus.all}
        for node in self.all:
            for number in node.cpus:
                by_id[number].node = node.id

    def online_cpus(self, number, cpus):
        """Online CPUs of a node; of node -1 all online ones, as the kernel's cpumask_of_node has it."""
        if number < 0:
            return cpus.online
        online = set(cpus.online)
        return [cpu for node in self.all if node.id == number for cpu in node.cpus if cpu in online]

    def _split(self, want, cpus):
        per = want.nodes_per_package
        packages = sorted({cpu.package for cpu in cpus.all})
        numbers = want.ids if want.ids is not None else list(range(len(packages) * per))
        if len(numbers) != len(packages) * per:
            raise SpecError(f"memory: ids lists {len(numbers)} nodes, and there are {len(packages) * per} with CPUs")
        members = {}
        for place, package in enumerate(packages):
            inside = [cpu for cpu in cpus.all if cpu.package == package]
            cores = max(cpu.index for cpu in inside) + 1
            if per > cores:
                raise SpecError(f"memory: {per} nodes share {cores} cores of a package: use fewer nodes")
            part = lists.chunks(cores, per)
            for index in range(per):
                members[numbers[place * per + index]] = (
                    package,
                    sorted(cpu.id for cpu in inside if part[cpu.index] == index),
                )
        return members

    def _explicit(self, want, cpus):
        known = [cpu.id for cpu in cpus.all]
        package = {cpu.id: cpu.package for cpu in cpus.all}
        for number in want.cpus:
            if not isinstance(number, int) or number not in ID:
                raise SpecError(f"memory: cpus names node {number!r}: write ids from 0 to {ID[-1]}")
        members = {number: cpu_set(text, f"memory: cpus of node {number}", known) for number, text in want.cpus.items()}
        flat = [cpu for ids in members.values() for cpu in ids]
        if len(set(flat)) != len(flat):
            raise SpecError("memory: cpus puts one CPU on two nodes")
        return {number: (package[ids[0]] if ids else None, ids) for number, ids in members.items()}

    def _distance(self, a, b):
        if a.id == b.id:
            return LOCAL
        if a.near is not None or b.near is not None:
            return NEAR if a.near == b.id or b.near == a.id else FAR
        return PACKAGE if a.package == b.package else REMOTE


def emit(tree, machine):
    nodes, cpus = machine.nodes, machine.cpus
    if not nodes.exist:
        return
    everything = lists.compress(nodes.ids)
    with_memory = lists.compress(node.id for node in nodes.all if node.mib)
    tree.line(f"{TOP}/online", everything)
    tree.line(f"{TOP}/possible", lists.compress(range(max(nodes.ids) + 1)))
    tree.line(f"{TOP}/has_cpu", lists.compress(node.id for node in nodes.all if nodes.online_cpus(node.id, cpus)))
    tree.line(f"{TOP}/has_memory", with_memory)
    tree.line(f"{TOP}/has_normal_memory", with_memory)
    for node, row in zip(nodes.all, nodes.distances):
        top = f"{TOP}/node{node.id}"
        ids = nodes.online_cpus(node.id, cpus)
        tree.line(f"{top}/cpulist", lists.compress(ids))
        tree.line(f"{top}/cpumap", lists.mask(ids, cpus.bits))
        tree.line(f"{top}/distance", " ".join(str(value) for value in row))
        tree.text(
            f"{top}/meminfo",
            "".join(f"Node {node.id} {name + ':':<16}{size:>8} kB\n" for name, size in _meminfo(node.mib * 1024)),
        )
        for number in ids:
            tree.link(f"{top}/cpu{number}", f"sys/devices/system/cpu/cpu{number}")
            tree.link(f"sys/devices/system/cpu/cpu{number}/node{node.id}", top)


def _meminfo(kib):
    return [("MemTotal", kib), ("MemFree", kib * 9 // 10), ("MemUsed", kib - kib * 9 // 10)]


def emit_meminfo(tree, machine):
    kib = sum(node.mib for node in machine.nodes.all) * 1024
    rows = [
        ("MemTotal", kib),
        ("MemFree", kib * 9 // 10),
        ("MemAvailable", kib * 9 // 10),
        ("SwapTotal", 0),
        ("SwapFree", 0),
    ]
    tree.text("proc/meminfo", "".join(f"{name + ':':<16}{size:>8} kB\n" for name, size in rows))
