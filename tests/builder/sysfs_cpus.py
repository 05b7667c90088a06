# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sys/devices/system/cpu as a kernel of the release and architecture shows it."""

from __future__ import annotations

from . import lists

TOP = "sys/devices/system/cpu"
KERNEL_MAX = {"x86_64": 8191, "aarch64": 511, "ppc64le": 2047, "s390x": 511, "riscv64": 511}


def emit(tree, machine):
    cpus, kernel = machine.cpus, machine.kernel
    tree.line(f"{TOP}/possible", lists.compress(cpus.possible))
    tree.line(f"{TOP}/present", lists.compress(cpus.present))
    tree.line(f"{TOP}/online", lists.compress(cpus.online))
    tree.line(f"{TOP}/offline", lists.compress(cpus.offline))
    tree.line(f"{TOP}/kernel_max", max(KERNEL_MAX[machine.arch], cpus.bits - 1))
    tree.line(f"{TOP}/isolated", lists.compress(kernel.isolated))
    if kernel.config.get("CONFIG_NO_HZ_FULL") == "y":
        # up to 6.16 a mask that was never set up is printed as a null pointer, padded to the width of the mask
        empty = "" if kernel.at_least(6, 17) else "(null)".rjust(cpus.bits)
        tree.line(f"{TOP}/nohz_full", lists.compress(kernel.nohz_full) if kernel.nohz_full else empty)
    if kernel.at_least(4, 19):
        tree.line(f"{TOP}/smt/control", cpus.smt)
        tree.line(f"{TOP}/smt/active", int(cpus.smt_active))
    kinds = cpus.groups("kind")
    for kind, name in (("P", "cpu_core"), ("E", "cpu_atom")):
        if kinds.get(kind):
            tree.line(f"sys/devices/{name}/cpus", lists.compress(kinds[kind]))
    _each(tree, machine)


def _each(tree, machine):
    cpus, kernel = machine.cpus, machine.kernel
    online = set(cpus.online)
    shown = {
        key: {value: _pair(cpus, ids) for value, ids in cpus.groups(key).items()}
        for key in ("core", "package", "die", "cluster", "llc")
    }
    l2 = shown["cluster"] if cpus.want.ecores or cpus.want.clusters else shown["core"]
    caches = _cache_files(cpus)
    outer = {"book": _outer(machine, cpus.want.books), "drawer": _outer(machine, cpus.want.books * cpus.want.drawers)}
    known = {cpu.id for cpu in cpus.all}
    for number in sorted(set(cpus.present) - known):
        tree.line(f"{TOP}/cpu{number}/online", 0)
    for cpu in cpus.all:
        top = f"{TOP}/cpu{cpu.id}"
        if cpu.id or machine.arch != "x86_64":  # the boot CPU of x86 cannot go offline
            tree.line(f"{top}/online", int(cpu.id in online))
        else:
            tree.folder(top)
        if cpu.capacity is not None:
            tree.line(f"{top}/cpu_capacity", cpu.capacity)
        if cpu.id not in online:
            continue
        if cpus.want.topology:
            _topology(tree, f"{top}/topology", machine, cpu, shown, outer)
        if cpus.want.caches:
            here = {
                "core": shown["core"][cpu.core],
                "l2": l2[cpu.cluster if l2 is shown["cluster"] else cpu.core],
                "llc": shown["llc"][cpu.llc],
            }
            numbers = {"core": cpu.core, "l2": cpu.cluster, "llc": cpu.llc}
            for index, (level, kind, size, share) in enumerate(caches[cpu.kind]):
                cache = f"{top}/cache/index{index}/"
                text, mask = here[share]
                tree.entries[cache + "level"] = level
                tree.entries[cache + "type"] = kind
                tree.entries[cache + "size"] = size
                tree.entries[cache + "shared_cpu_list"] = text
                tree.entries[cache + "shared_cpu_map"] = mask
                if kernel.at_least(4, 10):
                    tree.entries[cache + "id"] = f"{numbers[share]}\n"


def _pair(cpus, ids):
    return lists.compress(ids) + "\n", lists.mask(ids, cpus.bits) + "\n"


def _outer(machine, packages):
    """List and mask by package of the s390 container that holds so many packages; empty where there is none."""
    if not packages:
        return {}
    members = {}
    for package, ids in machine.cpus.groups("package").items():
        members.setdefault(package // packages, []).extend(ids)
    return {
        package: (package // packages, *_pair(machine.cpus, members[package // packages]))
        for package in machine.cpus.groups("package")
    }


def _topology(tree, top, machine, cpu, shown, outer):
    cpus, kernel, arch = machine.cpus, machine.kernel, machine.arch
    put = tree.entries
    package = shown["package"][cpu.package] if cpus.want.package_list == "package" else shown["core"][cpu.core]
    alone = _pair(cpus, [cpu.id])

    def both(name, pair):
        put[f"{top}/{name}_list"], put[f"{top}/{name}"] = pair

    put[f"{top}/physical_package_id"] = f"{cpus.package_id(cpu.package)}\n"
    put[f"{top}/core_id"] = f"{cpu.core_id}\n"
    both("thread_siblings", shown["core"][cpu.core])
    both("core_siblings", package)
    if kernel.at_least(5, 3):
        both("core_cpus", shown["core"][cpu.core])
        both("package_cpus", package)
        # before 5.17 architectures without dies showed id -1 and a list of the CPU alone
        if arch == "x86_64" or not kernel.at_least(5, 17):
            put[f"{top}/die_id"] = f"{cpu.die % cpus.want.dies if arch == 'x86_64' else -1}\n"
            both("die_cpus", shown["die"][cpu.die] if arch == "x86_64" else alone)
    if kernel.at_least(5, 16):
        if arch == "x86_64" or (arch == "aarch64" and cpus.want.clusters):
            put[f"{top}/cluster_id"] = f"{cpu.cluster if arch == 'aarch64' else cpu.cluster * 2}\n"
            both("cluster_cpus", shown["cluster"][cpu.cluster])
        elif arch in ("aarch64", "riscv64") or not kernel.at_least(5, 17):
            put[f"{top}/cluster_id"] = "-1\n"
            both("cluster_cpus", alone)
    for name, by_package in outer.items():
        if by_package:
            number, *pair = by_package[cpu.package]
            put[f"{top}/{name}_id"] = f"{number}\n"
            both(f"{name}_siblings", pair)


def _cache_files(cpus):
    """Per core kind: [(level, type, size, who shares it)]; sizes of a recent server part, the last level by llc_kib."""
    per_llc = max(
        (len({cpu.core for cpu in cpus.all if cpu.llc == llc}) for llc in {cpu.llc for cpu in cpus.all}), default=1
    )
    last = cpus.want.llc_kib or 2048 * per_llc
    sizes = {None: (48, 32, 2048), "P": (48, 32, 2048), "E": (32, 64, 4096)}
    out = {}
    for kind in {cpu.kind for cpu in cpus.all}:
        data, code, second = sizes[kind]
        rows = [
            (1, "Data", data, "core"),
            (1, "Instruction", code, "core"),
            (2, "Unified", second, "l2"),
            (3, "Unified", last, "llc"),
        ]
        out[kind] = [(f"{level}\n", f"{name}\n", f"{size}K\n", share) for level, name, size, share in rows]
    return out
