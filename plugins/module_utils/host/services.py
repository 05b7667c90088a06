# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else decides on a host where tasks, interrupts and receive work run: systemd, irqbalance, tuned, frequencies, RPS and others.

Reads only, and runs no program: what a unit does is told by its files and by the control group that systemd makes for it. A file that
is absent or unreadable gives None, which ``model/isolation.py`` never takes for a "no".
"""

from __future__ import annotations

import re

from ..model import cpulist, isolation, shell_values
from ..model.errors import HostprepError
from .bootloader import tuned
from .unit_files import CGROUP as _CGROUP, unit

_LIBRARY = re.compile(r"libsystemd-shared-(\d+)\D", re.ASCII)
_CPU = re.compile(r"cpu(\d+)\Z", re.ASCII)
_RX = re.compile(r"rx-(\d+)\Z", re.ASCII)
_SYSCTLS = ("net.core.busy_poll", "net.core.busy_read", "net.core.rps_sock_flow_entries")
_IRQBALANCE = ("etc/default/irqbalance", "etc/sysconfig/irqbalance")
_CPU_FOLDER = "sys/devices/system/cpu"
_WORKQUEUE = "sys/devices/virtual/workqueue"
_RUNTIMES = ("containerd.service", "docker.service", "crio.service", "k3s.service", "k3s-agent.service")
_NRI = re.compile(r"balloons|topology-aware|cpu", re.IGNORECASE)


def services(tree, kind):
    """Plain data, see the functions below; what ``model/isolation.py`` judges and writes from. kind: of host/rke2.py's ``node_kind``."""
    return {
        "container": tree.read("run/systemd/container"),
        "systemd": _systemd(tree),
        "cgroup": _cgroup(tree),
        "manager_cpus": _allowed(tree, "proc/1/status"),
        "irqbalance": _irqbalance(tree),
        "tuned": _tuned(tree),
        "governor": _governor(tree),
        "preemption": _preemption(tree),
        "workqueue": _workqueue(tree),
        "sysctl": {name: _integer(tree, "proc/sys/" + name.replace(".", "/")) for name in _SYSCTLS},
        "nics": _nics(tree),
        "owners": _owners(tree),
        "rke2": kind,
        "runc": None,  # which one RKE2 ships is in no file: only the program itself tells
        "runtimes": [name for name in _RUNTIMES if unit(tree, name)["installed"]],
        "ours": {path: _text(tree, path[1:]) for path in isolation.WATCHED},
    }


def _text(tree, path):
    data = tree.data(path)
    return None if data is None else data.decode("utf-8", "replace")


def _integer(tree, path):
    try:
        return int(tree.read(path) or "", 10)
    except ValueError:
        return None


# -- systemd ---------------------------------------------------------------------------------------------------------------


def _systemd(tree):
    """Version, from the name of the library that each release has for itself; None where it is elsewhere."""
    folders = ["usr/lib/systemd", "lib/systemd", "usr/lib64/systemd"]
    folders += ["usr/lib/%s/systemd" % name for name in tree.listdir("usr/lib") or () if name.endswith("-linux-gnu")]
    for folder in folders:
        for name in tree.listdir(folder) or ():
            found = _LIBRARY.match(name)
            if found:
                return int(found.group(1))
    return None


def _cgroup(tree):
    """{"unified": whether cgroup v2 is all there is, "cpuset": whether it has cpusets, "slices": {unit: {"cpus", "effective"}}}.

    ``cpus`` is what systemd was told (AllowedCPUs=), "" where nothing, None where the controller is not on or not seen.
    """
    controllers = tree.read(_CGROUP + "/cgroup.controllers")
    return {
        "unified": controllers is not None,
        "cpuset": "cpuset" in (controllers or "").split(),
        "slices": {
            name: {
                "cpus": _list(tree.read("%s/%s/cpuset.cpus" % (_CGROUP, name))),
                "effective": _list(tree.read("%s/%s/cpuset.cpus.effective" % (_CGROUP, name))),
            }
            for name in isolation.SLICES
        },
    }


def _list(text):
    try:
        return None if text is None else cpulist.compress(text)
    except HostprepError:
        return None


def _mask(text):
    try:
        return None if text is None else cpulist.from_mask(text)
    except HostprepError:
        return None


def _allowed(tree, path):
    for line in (tree.read(path) or "").splitlines():
        key, _colon, value = line.partition(":")
        if key == "Cpus_allowed_list":
            return _list(value.strip())
    return None


# -- irqbalance and tuned --------------------------------------------------------------------------------------------------


def _irqbalance(tree):
    """``unit`` and {"config": path or None, "banned": {variable: value}}."""
    path = next((path for path in _IRQBALANCE if tree.exists(path)), None)
    values = shell_values.evaluate([(path, tree.read(path) or "")])["values"] if path else {}
    banned = {
        name: shell_values.flat(values[name])[0]
        for name in ("IRQBALANCE_BANNED_CPULIST", "IRQBALANCE_BANNED_CPUS")
        if name in values
    }
    return dict(unit(tree, "irqbalance.service"), config=path and "/" + path, banned=banned)


def _tuned(tree):
    """``unit`` and {"mode", "folder": where profiles of a host's own are looked for, "base": whether network-latency is there, …}.

    With them what host/bootloader.py knows of the active profile: "profile" (None for none), "arguments", "skips", "settings", "missing".
    """
    nested = tree.exists("usr/lib/tuned/profiles")  # since 2.23, which looks nowhere else
    base = "usr/lib/tuned/%snetwork-latency/tuned.conf" % ("profiles/" if nested else "")
    active = tuned(tree) or {"profile": None, "arguments": {}, "skips": False, "settings": {}, "missing": []}
    return dict(
        active,
        mode=tree.read("etc/tuned/profile_mode") or None,
        folder="/etc/tuned/profiles" if nested else "/etc/tuned",
        base=tree.exists(base),
        **unit(tree, "tuned.service"),
    )


# -- CPUs ------------------------------------------------------------------------------------------------------------------


def _governor(tree):
    """{"current": {governor: CPU list}, "available": those that every CPU has}; both empty where there is no cpufreq."""
    current, available = {}, None
    for name in tree.listdir(_CPU_FOLDER) or ():
        match = _CPU.match(name)
        folder = "%s/%s/cpufreq" % (_CPU_FOLDER, name)
        found = match and tree.read(folder + "/scaling_governor")
        if found:
            current.setdefault(found, []).append(int(match.group(1)))
            offered = set((tree.read(folder + "/scaling_available_governors") or "").split())
            available = offered if available is None else available & offered
    return {
        "current": {name: cpulist.compress(cpus) for name, cpus in sorted(current.items())},
        "available": sorted(available or ()),
    }


def _preemption(tree):
    """{"model": the one in use, "models": those that the kernel offers, "why": why neither can be read or None}."""
    path = "sys/kernel/debug/sched/preempt"
    words = (tree.read(path) or "").split()
    model = next((word[1:-1] for word in words if word.startswith("(") and word.endswith(")")), None)
    return {
        "model": model,
        "models": [word.strip("()") for word in words],
        "why": None if words else "/%s is %s" % (path, tree.why(path)),
    }


def _workqueue(tree):
    """{path: CPU list} of the masks that can be written: that of all unbound work, and those of single queues."""
    paths = ["%s/cpumask" % _WORKQUEUE]
    paths += ["%s/%s/cpumask" % (_WORKQUEUE, name) for name in tree.listdir(_WORKQUEUE) or () if name != "cpumask"]
    found = {path: _mask(tree.read(path)) for path in paths if tree.exists(path)}
    return {"/" + path: cpus for path, cpus in found.items() if cpus is not None}


# -- receive work ----------------------------------------------------------------------------------------------------------


def _nics(tree):
    """[{"name", "rps": {queue: CPU list}, "flows": sum of rps_flow_cnt, "threaded", "defer", "timeout"}] of devices with hardware.

    Whether aRFS steers (ntuple filters) is told by ethtool alone; it does nothing without ``flows``.
    """
    found = []
    for name in tree.listdir("sys/class/net") or ():
        folder = "sys/class/net/" + name
        if not tree.exists(folder + "/device"):
            continue
        rps, flows = {}, 0
        for queue in tree.listdir(folder + "/queues") or ():
            match = _RX.match(queue)
            if match:
                cpus = _mask(tree.read("%s/queues/%s/rps_cpus" % (folder, queue)))
                if cpus:
                    rps[match.group(1)] = cpus
                flows += _integer(tree, "%s/queues/%s/rps_flow_cnt" % (folder, queue)) or 0
        found.append(
            {
                "name": name,
                "rps": rps,
                "flows": flows,
                "threaded": bool(_integer(tree, folder + "/threaded")),
                "defer": _integer(tree, folder + "/napi_defer_hard_irqs"),
                "timeout": _integer(tree, folder + "/gro_flush_timeout"),
            }
        )
    return found


# -- who else moves interrupts or CPUs -------------------------------------------------------------------------------------


def _owners(tree):
    """[{"name", "path", "read"}] of programs and settings that place interrupts or tasks themselves."""
    found = []
    path = "etc/infiniband/openib.conf"
    values = shell_values.evaluate([(path, tree.read(path) or "")])["values"]
    for variable, name in (("RUN_AFFINITY_TUNER", "openibd's affinity tuner"), ("RUN_MLNX_TUNE", "mlnx_tune")):
        if shell_values.flat(values.get(variable, []))[0].lower() in ("yes", "true", "1", "on"):
            found.append({"name": name, "path": "/" + path, "read": variable + "=yes"})
    for service in ("mlnx_tune.service", "mlnx_affinity.service", "katalyst-agent.service"):
        state = unit(tree, service)
        if state["enabled"] or state["running"]:
            found.append({"name": service, "path": "/etc/systemd/system", "read": "enabled or running"})
    found += _links(tree)
    for path in ("var/lib/katalyst", "etc/katalyst"):
        if tree.exists(path):
            found.append({"name": "katalyst", "path": "/" + path, "read": "its folder is there"})
            break
    for folder in ("opt/nri/plugins", "etc/nri/conf.d"):
        for name in tree.listdir(folder) or ():
            if _NRI.search(name):
                found.append({"name": "an NRI plugin", "path": "/%s/%s" % (folder, name), "read": name})
    return found


def _links(tree):
    """systemd's .link files, and drop-ins of them, with a key that places interrupts."""
    found = []
    for top in (
        "etc/systemd/network",
        "run/systemd/network",
        "usr/local/lib/systemd/network",
        "usr/lib/systemd/network",
    ):
        for name in tree.listdir(top) or ():
            paths = ["%s/%s" % (top, name)] if name.endswith(".link") else []
            if name.endswith(".link.d"):
                paths = ["%s/%s/%s" % (top, name, one) for one in tree.listdir("%s/%s" % (top, name)) or ()]
            for path in paths:
                for line in (tree.read(path) or "").splitlines():
                    if line.strip().startswith("IRQAffinity"):
                        found.append({"name": "a systemd .link file", "path": "/" + path, "read": line.strip()})
                        break
    return found
