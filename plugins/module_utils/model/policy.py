# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy of a host: which options exist, their defaults, and the check that turns an inventory's dict into a full one.

``OPTIONS`` has the shape of an Ansible argument spec, so that the module's options and the checked policy are one table.
What each option means to a user is written once, in the documentation of the ``cpu_plan`` module.
"""

from __future__ import annotations

import re

from . import cpulist
from .errors import HostprepError

MODES = ("balanced", "quiet", "pinned")
STRATEGIES = ("pack", "spread")
TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")

OPTIONS = {
    "reserved_cpus": {"type": "str"},
    "reserved_count": {"type": "int"},
    "strategy": {"type": "str"},
    "reserved_cores_per_node": {"type": "int"},
    "reserved_cores_by_node": {"type": "dict"},
    "nic_cores": {"type": "int", "default": 1},
    "nic_cores_cap": {"type": "int", "default": 2},
    "declared_gbps": {"type": "dict"},
    "gbps_per_core": {"type": "float", "default": 100.0},
    "isolation_mode": {"type": "str", "default": "balanced"},
    "irq_cpus": {"type": "str"},
    "nics": {"type": "list", "elements": "str"},
    "queues_max": {"type": "int"},
    "smt": {"type": "str", "default": "keep"},
    "offline": {"type": "str"},
    "assume_no_smt": {"type": "bool", "default": False},
    "vectors_per_cpu": {"type": "int", "default": 203},
    "topology_manager_policy": {"type": "str"},
    "pod_shapes": {"type": "list", "elements": "dict"},
}
_SHAPE_KEYS = ("name", "cpus", "gpus", "memory_mib")
_RESERVING = ("reserved_cpus", "reserved_count", "reserved_cores_per_node", "reserved_cores_by_node")


def _refuse(option, value, allowed, cure=None):
    shown = repr(value)
    return HostprepError(
        "policy_" + option,
        "the policy option %s is not usable" % option,
        read=shown if len(shown) <= 120 else shown[:117] + "...",
        allowed=allowed,
        cure=cure or "correct %s in the inventory" % option,
    )


def _whole(option, value, low, high):
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not re.match(r"\d{1,9}\Z", str(value), re.ASCII):
        raise _refuse(option, value, "a whole number from %d to %d" % (low, high))
    number = int(value)
    if not low <= number <= high:
        raise _refuse(option, value, "a whole number from %d to %d" % (low, high))
    return number


def _number(option, value):
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0.001 <= number <= 1e6:
        raise _refuse(option, value, "a number from 0.001 to 1000000")
    return number


def _flag(option, value):
    if not isinstance(value, bool):
        raise _refuse(option, value, "true or false")
    return value


def _choice(option, value, choices, cure=None):
    if not isinstance(value, str) or value not in choices:
        raise _refuse(option, value, ", ".join(choices), cure)
    return value


def _list(option, value):
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # YAML reads a list of one CPU as a number
    if not isinstance(value, str):
        raise _refuse(option, value, "a CPU list such as 0-1,32-33, quoted in YAML")
    try:
        listed = cpulist.compress(value)
    except HostprepError as error:
        raise _refuse(option, value, error.allowed) from None
    if not listed:
        raise _refuse(
            option,
            value,
            "a CPU list that names at least one CPU",
            "name the housekeeping CPUs, or leave %s out" % option,
        )
    return listed


def _cores_by_node(option, value):
    if not isinstance(value, dict) or not value:
        raise _refuse(option, value, "a mapping of NUMA node id to a number of physical cores, such as {0: 2, 1: 4}")
    cores_by_node = {
        str(_whole(option, node, 0, 4095)): _whole(option, cores, 0, 4096) for node, cores in value.items()
    }
    if len(cores_by_node) < len(value):
        raise _refuse(option, value, "each NUMA node once")
    return cores_by_node


def _gbps(option, value):
    if not isinstance(value, dict):
        raise _refuse(option, value, "a mapping of NIC name or PCI address to Gb/s, such as {ens1f0np0: 400}")
    return {str(nic): _number(option, speed) for nic, speed in value.items()}


def _names(option, value):
    if isinstance(value, str) or not isinstance(value, (list, tuple)) or not value:
        raise _refuse(option, value, "a list of NIC names or PCI addresses, or nothing for the default")
    names = []
    for name in value:
        if not isinstance(name, str) or not name.strip():
            raise _refuse(option, value, "a list of NIC names or PCI addresses")
        if name not in names:
            names.append(name)
    return names


def _shapes(option, value):
    allowed = "a list of {name, cpus, gpus, memory_mib}: cpus a number, gpus a whole number, memory in MiB"
    if not isinstance(value, (list, tuple)):
        raise _refuse(option, value, allowed)
    shapes = []
    for index, shape in enumerate(value):
        if not isinstance(shape, dict) or set(shape) - set(_SHAPE_KEYS) or "cpus" not in shape:
            raise _refuse(option, shape, allowed)
        shapes.append(
            {
                "name": str(shape.get("name") or "shape %d" % (index + 1)),
                "cpus": _number(option, shape["cpus"]),
                "gpus": _whole(option, shape.get("gpus") or 0, 0, 1024),
                "memory_mib": _whole(option, shape.get("memory_mib") or 0, 0, 1 << 40),
            }
        )
    if len({shape["name"] for shape in shapes}) < len(shapes):
        raise _refuse(option, [shape["name"] for shape in shapes], "a name of its own for each shape")
    return shapes


def _offline(option, value):
    return _choice(option, value, ("keep", "returns"))


def _smt(option, value):
    return _choice(
        option,
        value,
        ("keep", "disabled"),
        "write smt: disabled or smt: keep (YAML turns a bare off or on into a boolean)"
        if str(value).lower() in ("false", "true", "off", "on")
        else None,
    )


_CHECKS = {
    "reserved_cpus": _list,
    "reserved_count": lambda option, value: _whole(option, value, 1, cpulist.MAX_CPU),
    "strategy": lambda option, value: _choice(option, value, STRATEGIES),
    "reserved_cores_per_node": lambda option, value: _whole(option, value, 1, 4096),
    "reserved_cores_by_node": _cores_by_node,
    "nic_cores": lambda option, value: _whole(option, value, 0, 64),
    "nic_cores_cap": lambda option, value: _whole(option, value, 0, 1024),
    "declared_gbps": _gbps,
    "gbps_per_core": _number,
    "isolation_mode": lambda option, value: _choice(option, value, MODES),
    "irq_cpus": _list,
    "nics": _names,
    "queues_max": lambda option, value: _whole(option, value, 1, 4096),
    "smt": _smt,
    "offline": _offline,
    "assume_no_smt": _flag,
    "vectors_per_cpu": lambda option, value: _whole(option, value, 1, 65536),
    "topology_manager_policy": lambda option, value: _choice(option, value, TOPOLOGY_POLICIES),
    "pod_shapes": _shapes,
}


def normalise(given):
    """The full policy of a dict of options: every key of OPTIONS present, values checked, lists compressed.

    None and absent mean the default. Raises HostprepError with a code ``policy_<option>``, ``policy_unknown`` (a key that is no
    option) or ``policy_conflict`` (two ways to say how much is reserved).
    """
    if not isinstance(given, dict):
        raise HostprepError(
            "policy_invalid",
            "the policy is not a mapping",
            read=type(given).__name__,
            allowed="a mapping of options of cpu_plan",
            cure="correct the policy in the inventory",
        )
    unknown = sorted(str(key) for key in given if key not in OPTIONS)
    if unknown:
        raise HostprepError(
            "policy_unknown",
            "the policy has an option that does not exist",
            read=", ".join(unknown)[:200],
            allowed=", ".join(sorted(OPTIONS)),
            cure="remove or correct it in the inventory",
        )
    policy = {}
    for option, spec in OPTIONS.items():
        value = given.get(option)
        if value is None:
            value = spec.get("default")
        policy[option] = None if value is None else _CHECKS[option](option, value)
    used = [option for option in _RESERVING if policy[option] is not None]
    if len(used) > 1:
        raise HostprepError(
            "policy_conflict",
            "the policy says in more than one way how much is reserved",
            read=", ".join(used),
            allowed="one of " + ", ".join(_RESERVING) + ", or none for the default",
            cure="keep one of them (set the others to null)",
        )
    if policy["strategy"] and policy["reserved_count"] is None:
        raise HostprepError(
            "policy_conflict",
            "strategy is given without reserved_count",
            read="strategy: " + policy["strategy"],
            allowed="strategy together with reserved_count",
            cure="add reserved_count, or remove strategy",
        )
    return policy


def override(policy, changes):
    """The policy with changes, checked: what-if variants and one host's overrides of its group's policy.

    Where the changes say how much is reserved, the base's way of saying it is dropped. Either may be None.
    """
    for given in (policy, changes):
        if given is not None and not isinstance(given, dict):
            raise HostprepError(
                "policy_invalid",
                "the policy is not a mapping",
                read=repr(given)[:100],
                allowed="a mapping of options of cpu_plan",
                cure="correct the policy in the inventory (on the command line: -e '{\"rke2_hostprep_policy\": {...}}')",
            )
    merged, changes = dict(policy or {}), changes or {}
    if "reserved_count" in changes and "strategy" not in changes:
        merged["strategy"] = None
    if any(changes.get(option) is not None for option in _RESERVING):
        for option in _RESERVING + ("strategy",):
            merged[option] = None
    merged.update(changes)
    return normalise(merged)
