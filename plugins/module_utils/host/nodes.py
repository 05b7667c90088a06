# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA nodes of a host, those without CPUs (CXL, PMEM, GPU memory) and those without memory included.

Source: sys/devices/system/node (Documentation/ABI/stable/sysfs-devices-node). Only online nodes have a folder, and the distance
file has one column per online node in the order of their ids. Links cpuN/nodeM are not used: edited captures leave stale ones.
"""

from __future__ import annotations

import re

from .reader import listed, shown

NODE = "sys/devices/system/node"
_DIR = re.compile(r"node(\d{1,5})\Z", re.ASCII)
_TOTAL = re.compile(r"^Node\s+\d+\s+MemTotal:\s+(\d{1,15})\s+kB\s*$", re.MULTILINE | re.ASCII)
_DISTANCES = re.compile(r"\d{1,5}(?:\s+\d{1,5})*\Z", re.ASCII)


def numa_nodes(reader, online):
    """The topology's ``numa_nodes`` list and {CPU: node id}. online: set of CPU ids or None."""
    names = reader.tree.listdir(NODE)
    if names is None:
        reader.note("numa_nodes", NODE, reader.tree.why(NODE))
        return [], {}
    ids = sorted(int(match.group(1)) for match in map(_DIR.match, names) if match)
    if not ids:
        reader.note("numa_nodes", NODE, "no nodeN folder")
    with_memory = reader.cpus(NODE + "/has_memory") or reader.cpus(NODE + "/has_normal_memory")
    nodes = []
    node_of = {}
    for number in ids:
        what = "numa_nodes.%d" % number
        folder = "%s/node%d" % (NODE, number)
        raw = reader.cpus_or_mask(folder + "/cpulist", folder + "/cpumap", what + ".cpus")
        if raw is None:
            reader.note(what + ".cpus_raw", folder + "/cpulist", reader.why(folder + "/cpulist"))
        cpus = None if raw is None or online is None else raw & online
        for cpu in cpus or ():
            other = node_of.setdefault(cpu, number)
            if other != number and other is not None:
                why = "CPU %d is listed by nodes %d and %d" % (cpu, other, number)
                reader.note("cpus.cores.*.node", folder + "/cpulist", why)
                node_of[cpu] = None
        kib = _memory_kib(reader, folder, what)
        has_memory = None if kib is None else kib > 0
        if with_memory is not None:
            has_memory = number in with_memory
        elif kib is None:
            reader.note(what + ".has_memory", NODE + "/has_memory", reader.why(NODE + "/has_memory"))
        nodes.append(
            {
                "id": number,
                "cpus": listed(cpus),
                "cpus_raw": listed(raw),
                "memory_mib": None if kib is None else kib // 1024,
                "distances": _distances(reader, folder, what, ids),
                "has_memory": has_memory,
            }
        )
    if online is None and ids:
        reader.note("numa_nodes.*.cpus", NODE, "the online CPUs are not known")
    lost = sorted(set(online or ()) - set(node_of))
    if ids and lost:
        reader.note("cpus.cores.*.node", NODE, "no node lists CPU %s" % listed(lost))
    return nodes, node_of


def _memory_kib(reader, folder, what):
    text = reader.text(folder + "/meminfo", what + ".memory_mib")
    if text is None:
        return None
    found = _TOTAL.search(text)
    if not found:
        reader.note(what + ".memory_mib", folder + "/meminfo", "no MemTotal in kB: %s" % shown(text))
        return None
    return int(found.group(1))


def _distances(reader, folder, what, ids):
    path = folder + "/distance"
    text = reader.text(path, what + ".distances")
    if text is None:
        return None
    if not _DISTANCES.match(text):
        reader.note(what + ".distances", path, "not a row of numbers: %s" % shown(text))
        return None
    values = [int(value) for value in text.split()]
    if len(values) != len(ids):
        reader.note(what + ".distances", path, "%d columns for %d node folders" % (len(values), len(ids)))
        return None
    return {str(number): value for number, value in zip(ids, values)}
