# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the kubelet would start over its state files (checkpoints) with a wanted configuration, by the kubelet's own rules.

Follows kubelet/cm/cpumanager (state/checkpoint.go, state/state_checkpoint.go, policy_static.go validateState), kubelet/cm/memorymanager
(state/checkpoint.go, policy_static.go validateState) and util/hash of Kubernetes 1.31 to 1.36. Texts in quotes are the kubelet's.

``wanted`` has the names of a KubeletConfiguration: ``cpuManagerPolicy``, ``cpuManagerPolicyOptions``, ``reservedSystemCPUs``,
``memoryManagerPolicy``, ``reservedMemory``; what is absent is the kubelet's default. A state is the parsed JSON file, None where there
is no file. Every function returns a list of findings; none means that the kubelet takes the file.
"""

from __future__ import annotations

import re

from . import cpulist
from .errors import HostprepError, finding

CURE = "drain the node, stop RKE2, move the state files aside, start RKE2"
STRICT = "strict-cpu-reservation"
_QUANTITY = re.compile(r"(\d{1,18})([KMGTPE]i|[kMGTPE]|)\Z", re.ASCII)
_POWERS = "KMGTPE"


def cpu(state, wanted, online):
    """Findings about cpu_manager_state; ``online``: set of the CPU ids that are online when the kubelet starts."""
    if state is None:
        return []
    try:
        return list(_cpu(state, wanted, set(online)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return [_damaged("CPU manager")]


def memory(state, wanted, nodes):
    """Findings about memory_manager_state; ``nodes``: {NUMA node id: {"memory" or "hugepages-<size>": bytes}}, None where unknown."""
    if state is None:
        return []
    try:
        return list(_memory(state, wanted, nodes))
    except (AttributeError, KeyError, TypeError, ValueError):
        return [_damaged("memory manager")]


def _damaged(manager):
    return finding(
        "checkpoint_damaged", "the %s's state file is not one that the kubelet wrote" % manager, CURE, "another shape"
    )


def quantity(text):
    """Bytes of a Kubernetes quantity such as 1Gi, 500M or 1024. Raises HostprepError."""
    match = _QUANTITY.match(str(text))
    if not match:
        raise HostprepError(
            "quantity_invalid",
            "not a whole quantity of memory",
            read=repr(text),
            allowed="a number with Ki, Mi, Gi, Ti, k, M, G, T or nothing",
            cure="correct it",
        )
    number, unit = int(match.group(1)), match.group(2)
    if not unit:
        return number
    return number * (1024 if unit.endswith("i") else 1000) ** (_POWERS.index(unit[0].upper()) + 1)


# -- CPU manager -----------------------------------------------------------------------------------------------------------


def _cpu(state, wanted, online):
    policy = wanted.get("cpuManagerPolicy") or "none"
    if not _checksum_holds(state, _cpu_forms):
        yield _corrupt("CPU manager", state)
        return
    entries, old = _cpu_entries(state)
    default = set(cpulist.expand(_text(state.get("defaultCpuSet") or "")))
    if state.get("policyName") != policy:
        yield finding(
            "checkpoint_policy",
            'configured policy "%s" differs from state checkpoint policy "%s"' % (policy, state.get("policyName")),
            CURE,
            "policyName %s" % state.get("policyName"),
        )
        return
    if old:
        yield finding(
            "checkpoint_old_entries",
            "the state file is of a kubelet before 1.18, and its containers cannot be told apart after they ended",
            CURE,
            "%d containers" % len(entries),
        )
    if policy != "static":
        return
    strict = (wanted.get("cpuManagerPolicyOptions") or {}).get(STRICT) == "true"
    reserved = set(cpulist.expand(wanted.get("reservedSystemCPUs") or ""))
    if not default:
        if entries:
            yield finding(
                "checkpoint_empty_default", "default cpuset cannot be empty", CURE, "%d containers" % len(entries)
            )
        return
    shown = cpulist.compress(default)
    if strict and reserved & default:
        yield finding(
            "checkpoint_strict",
            'some of strictly reserved cpus: "%s" are present in defaultCpuSet: "%s"'
            % (cpulist.compress(reserved & default), shown),
            CURE,
            "defaultCpuSet " + shown,
        )
    if not strict and not reserved <= default:
        yield finding(
            "checkpoint_reserved",
            'not all reserved cpus: "%s" are present in defaultCpuSet: "%s"' % (cpulist.compress(reserved), shown),
            CURE,
            "defaultCpuSet " + shown,
        )
    for pod, container, cpus in entries:
        if default & cpus:
            yield finding(
                "checkpoint_overlap",
                'pod: %s, container: %s cpuset: "%s" overlaps with default cpuset "%s"'
                % (pod, container, cpulist.compress(cpus), shown),
                CURE,
                "defaultCpuSet " + shown,
            )
    known = default.union(*(cpus for _pod, _container, cpus in entries))
    available = online - reserved if strict else online
    if known != available:
        yield finding(
            "checkpoint_cpu_set",
            'current set of available CPUs "%s" doesn\'t match with CPUs in state "%s"'
            % (cpulist.compress(available), cpulist.compress(known)),
            CURE,
            "CPUs %s in the file" % cpulist.compress(known),
        )


def _text(value):
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _cpu_entries(state):
    """([(pod, container, set of CPUs)], whether they are of the first format, container ids without pods)."""
    found, old = [], False
    for pod, containers in (state.get("entries") or {}).items():
        if isinstance(containers, str):
            old = True
            found.append(("", pod, set(cpulist.expand(containers))))
            continue
        found += [(pod, name, set(cpulist.expand(_text(cpus)))) for name, cpus in (containers or {}).items()]
    for pod, entry in (state.get("podEntries") or {}).items():
        found.append((pod, "", set(cpulist.expand(_text(entry.get("cpuSet") or "")))))
    return found, old


def pods(*states):
    """UIDs of the pods that a state gives CPUs or memory to themselves."""
    found = set()
    for state in states:
        for key in ("entries", "podEntries"):
            entries = (state or {}).get(key)
            found.update(entries if isinstance(entries, dict) else ())
    return found


# -- memory manager --------------------------------------------------------------------------------------------------------


def _memory(state, wanted, nodes):
    policy = wanted.get("memoryManagerPolicy") or "None"
    if not _checksum_holds(state, _memory_forms):
        yield _corrupt("memory manager", state)
        return
    if state.get("policyName") != policy:
        yield finding(
            "checkpoint_memory_policy",
            '[memorymanager] configured policy "%s" differs from state checkpoint policy "%s"'
            % (policy, state.get("policyName")),
            CURE,
            "policyName %s" % state.get("policyName"),
        )
        return
    if policy != "Static" or nodes is None:
        return
    machine, entries = state.get("machineState") or {}, state.get("entries") or {}
    if not machine:
        if entries:
            yield finding(
                "checkpoint_memory_state",
                "[memorymanager] machine state can not be empty when it has memory assignments",
                CURE,
                "%d pods" % len(entries),
            )
        return
    why = _memory_differs(machine, _expected(nodes, wanted.get("reservedMemory") or [], entries))
    if why:
        yield finding(
            "checkpoint_memory_state",
            "[memorymanager] the expected machine state is different from the real one",
            CURE,
            why,
        )


def _expected(nodes, reserved, entries):
    """The machine state that the kubelet would work out: {id: {"count", "cells", "map": {resource: table}}}; None where it cannot."""
    system = {}
    for entry in reserved:
        for resource, amount in entry["limits"].items():
            system[(int(entry["numaNode"]), resource)] = quantity(amount)
    machine = {}
    for node, totals in nodes.items():
        pages = sum(amount for resource, amount in totals.items() if resource != "memory")
        tables = {}
        for resource, total in totals.items():
            kept = system.get((node, resource), 0)
            free = total - kept - (pages if resource == "memory" else 0)
            tables[resource] = {
                "total": total,
                "systemReserved": kept,
                "allocatable": free,
                "free": free,
                "reserved": 0,
            }
        machine[node] = {"count": 0, "cells": [node], "map": tables}
    for containers in entries.values():
        for blocks in (containers or {}).values():
            for block in blocks or []:
                left = block["size"]
                for node in block["numaAffinity"]:
                    if node not in machine or block["type"] not in machine[node]["map"]:
                        return None
                    machine[node]["count"] += 1
                    machine[node]["cells"] = list(block["numaAffinity"])
                    table = machine[node]["map"][block["type"]]
                    taken = min(left, max(0, table["free"]))
                    table["free"] -= taken
                    table["reserved"] += taken
                    left -= taken
    return machine


def _memory_differs(state, expected):
    """What differs, in words; None where nothing does."""
    if expected is None:
        return "a container has memory of a node or a kind that is not there"
    state = {int(node): entry for node, entry in state.items()}
    if set(state) != set(expected):
        return "NUMA nodes %s in the file, %s now" % (cpulist.compress(state), cpulist.compress(expected))
    for node, entry in sorted(state.items()):
        other, tables = expected[node], entry["memoryMap"] or {}
        if entry["numberOfAssignments"] != other["count"] or sorted(entry["cells"] or []) != sorted(other["cells"]):
            return "node %d has other assignments in the file" % node
        if set(tables) != set(other["map"]):
            return "node %d has %s in the file, %s now" % (
                node,
                ", ".join(sorted(tables)),
                ", ".join(sorted(other["map"])),
            )
        for resource in sorted(tables):
            for field in ("total", "systemReserved", "allocatable"):
                if tables[resource][field] != other["map"][resource][field]:
                    return "%s of %s on node %d is %d in the file, %d now" % (
                        field,
                        resource,
                        node,
                        tables[resource][field],
                        other["map"][resource][field],
                    )
            for field in ("free", "reserved"):
                kept = sum(state[cell]["memoryMap"][resource][field] for cell in entry["cells"])
                now = sum(expected[cell]["map"][resource][field] for cell in entry["cells"])
                if kept != now:
                    return "%s %s on node %d is %d in the file, %d now" % (field, resource, node, kept, now)
    return None


# -- checksums -------------------------------------------------------------------------------------------------------------
# FNV-1a over Go's printed form of the structure (github.com/davecgh/go-spew). A checksum of 0 is not looked at by the kubelet.


def _corrupt(manager, state):
    return finding(
        "checkpoint_checksum",
        "the checksum of the %s's state file does not match: checkpoint is corrupted" % manager,
        CURE,
        "checksum %s" % state.get("checksum"),
    )


def checksum(text):
    value = 0x811C9DC5
    for byte in text.encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _checksum_holds(state, forms):
    if not state.get("checksum") or state.get(
        "podEntries"
    ):  # the newest format is behind a gate that is off, and has its own form
        return True
    return any(checksum(form) == state["checksum"] for form in forms(state))


def _cpu_forms(state):
    entries = state.get("entries", {})
    flat = bool(entries) and all(isinstance(cpus, str) for cpus in entries.values())
    kind = "map[string]string" if flat else "map[string]map[string]string"
    body = "PolicyName:(string)%s DefaultCPUSet:(string)%s Entries:(%s)%s Checksum:(checksum.Checksum)0" % (
        state.get("policyName") or "",
        state.get("defaultCpuSet") or "",
        kind,
        _go_map(entries, str if flat else lambda containers: _go_map(containers, str)),
    )
    for name in ("CPUManagerCheckpoint", "CPUManagerCheckpointV2"):
        yield "(*state.%s){%s}" % (name, body)


def _memory_forms(state):
    body = (
        "PolicyName:(string)%s MachineState:(state.NUMANodeMap)%s Entries:(state.ContainerMemoryAssignments)%s"
        " Checksum:(checksum.Checksum)0"
    ) % (
        state.get("policyName") or "",
        _go_map(state.get("machineState", {}), _go_node, int),
        _go_map(state.get("entries", {}), lambda containers: _go_map(containers, _go_blocks)),
    )
    for name in ("MemoryManagerCheckpoint", "MemoryManagerCheckpointV1"):
        yield "(*state.%s){%s}" % (name, body)


def _go_map(entries, shown, key=lambda name: name.encode("utf-8", "surrogatepass")):
    if entries is None:
        return "<nil>"
    return "map[%s]" % " ".join("%s:%s" % (name, shown(entries[name])) for name in sorted(entries, key=key))


def _go_ints(values):
    return "<nil>" if values is None else "[%s]" % " ".join("%d" % value for value in values)


def _go_node(node):
    return "<*>{NumberOfAssignments:(int)%d MemoryMap:(map[v1.ResourceName]*state.MemoryTable)%s Cells:([]int)%s}" % (
        node["numberOfAssignments"],
        _go_map(node["memoryMap"], _go_table),
        _go_ints(node["cells"]),
    )


def _go_table(table):
    return (
        "<*>{TotalMemSize:(uint64)%(total)d SystemReserved:(uint64)%(systemReserved)d Allocatable:(uint64)%(allocatable)d"
        " Reserved:(uint64)%(reserved)d Free:(uint64)%(free)d}" % table
    )


def _go_blocks(blocks):
    if blocks is None:
        return "<nil>"
    return "[%s]" % " ".join(
        "{NUMAAffinity:([]int)%s Type:(v1.ResourceName)%s Size:(uint64)%d}"
        % (_go_ints(block["numaAffinity"]), block["type"], block["size"])
        for block in blocks
    )
