# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host tells of its kubelet: its state files, its process, the pods that run, and the memory that it counts. Reads only."""

from __future__ import annotations

import os
import re

from .kept import parsed
from .nodes import NODE

NAMES = ("cpu_manager_state", "memory_manager_state")
_MOST = 16 * 1024 * 1024
_TOTAL = re.compile(r"^Node\s+\d+\s+MemTotal:\s+(\d{1,15})\s+kB", re.MULTILINE | re.ASCII)
_PAGES = re.compile(r"hugepages-(\d{1,12})kB\Z", re.ASCII)
_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?\Z",
    re.ASCII,
)


def states(tree, state_dir):
    """{name: {"path", "state": parsed JSON or None, "problem": why it cannot be read or None}}"""
    found = {}
    for name in NAMES:
        path = "%s/%s" % (state_dir.strip("/"), name)
        state, problem = parsed(tree, path, _MOST)
        found[name] = {"path": "/" + path, "state": state, "problem": problem}
    return found


def node_memory(tree):
    """{NUMA node: {"memory" and "hugepages-<size>": bytes}} as cAdvisor reads it for the kubelet; None where it cannot be known."""
    found = {}
    for name in tree.listdir(NODE) or []:
        if not re.match(r"node\d{1,5}\Z", name):
            continue
        folder = "%s/%s" % (NODE, name)
        total = _TOTAL.search(tree.read(folder + "/meminfo") or "")
        if not total:
            return None
        amounts = {"memory": int(total.group(1)) * 1024}
        for pages in tree.listdir(folder + "/hugepages") or []:
            size = _PAGES.match(pages)
            number = tree.read("%s/hugepages/%s/nr_hugepages" % (folder, pages))
            if not size or not (number or "").isdigit():
                return None
            amounts["hugepages-" + _binary(int(size.group(1)) * 1024)] = int(number) * int(size.group(1)) * 1024
        found[name[4:]] = amounts
    return found or None


def _binary(amount):
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if amount % 1024 or amount < 1024:
            return "%d%s" % (amount, unit)
        amount //= 1024
    return "%dPi" % amount


def kubelets(tree):
    """Process ids of kubelets, by the name of their program."""
    return [
        int(name)
        for name in tree.listdir("proc") or []
        if name.isdigit() and tree.read("proc/%s/comm" % name) == "kubelet"
    ]


def started(tree, process):
    """When a process was started, in seconds since 1970; None where that is unknown."""
    boot = re.search(r"^btime (\d+)", tree.read("proc/stat") or "", re.MULTILINE)
    fields = (tree.read("proc/%d/stat" % process) or "").rpartition(")")[2].split()
    if not boot or len(fields) < 20 or not fields[19].isdigit():
        return None
    return int(boot.group(1)) + int(fields[19]) / (os.sysconf("SC_CLK_TCK") or 100)


def older_than(tree, process, paths):
    """Those of the paths that were written after a process was started: what they say, it does not do yet."""
    begun = started(tree, process)
    found = []
    for path in paths if begun is not None else ():
        place = tree.place(path.strip("/"))
        try:
            if place and os.lstat(place).st_mtime > begun:
                found.append(path)
        except OSError:
            pass
    return found


def running_pods(tree):
    """{pod UID: a cgroup of it that has processes}, of both cgroup versions and drivers."""
    found = {}
    tops = ["sys/fs/cgroup"] + ["sys/fs/cgroup/" + name for name in tree.listdir("sys/fs/cgroup") or []]
    todo = ["%s/%s" % (top, name) for top in tops for name in ("kubepods", "kubepods.slice")]
    pods = dict.fromkeys(todo)
    while todo:
        path = todo.pop()
        names = tree.listdir(path)
        if names is None:
            continue
        match = _POD.search(path.rpartition("/")[2])
        uid = match.group(1).replace("_", "-") if match else pods[path]
        if uid and tree.read(path + "/cgroup.procs"):
            found.setdefault(uid, "/" + path)
        for name in names:
            below = "%s/%s" % (path, name)
            if "." not in name or name.endswith((".slice", ".scope")):
                pods[below] = uid
                todo.append(below)
    return found
