# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A topology that a caller hands over: checked, and completed with "unknown" where it leaves something out.

A caller needs to give `cpus.online`, `cpus.siblings` and `numa_nodes` for a plan, and the design's keys of NICs and GPUs for what
follows; everything else may be missing. The full shape is docs/schemas/topology.schema.json.
"""

from __future__ import annotations

from . import cpulist
from .errors import HostprepError

_TEXT, _WHOLE, _FLAG, _CPUS, _TEXTS, _TABLE, _NUMBERS = (
    "text",
    "whole number",
    "true or false value",
    "CPU list",
    "list of texts",
    "mapping",
    "mapping of whole numbers",
)

# key → (kind, value where it is missing); kinds above, or a nested table, or a list with one nested table
_IRQ_OF_NIC = {
    "irq": (_WHOLE, None),
    "queue": (_WHOLE, None),
    "kind": (_TEXT, "misc"),
    "name": (_TEXT, None),
    "managed": (_FLAG, None),
}
_DEVICE = {
    "pci": (_TEXT, None),
    "vendor": (_TEXT, None),
    "device": (_TEXT, None),
    "class": (_TEXT, None),
    "driver": (_TEXT, None),
    "name": (_TEXT, None),
    "numa_node": (_WHOLE, None),
    "pcie_root": (_TEXT, None),
    "bridges": (_TEXTS, []),
}
_NIC = dict(
    _DEVICE,
    netdevs=(_TEXTS, []),
    speed_mbps=(_WHOLE, None),
    up=(_FLAG, None),
    carrier=(_FLAG, None),
    rx_queues=(_WHOLE, None),
    tx_queues=(_WHOLE, None),
    channels=(_NUMBERS, None),
    function=(_TEXT, None),
    infiniband=([{"name": (_TEXT, None)}], []),
    irqs=([_IRQ_OF_NIC], []),
)
_CORE = {
    "cpus": (_CPUS, ""),
    "node": (_WHOLE, None),
    "package": (_WHOLE, None),
    "llc": (_WHOLE, None),
    "type": (_TEXT, None),
    "capacity": (_WHOLE, None),
}
_SHAPE = {
    "root": (_TEXT, "the topology that was handed over"),
    "arch": (_TEXT, None),
    "cpu_model": (_TEXT, None),
    "hypervisor": (_TEXT, None),
    "kernel": ({"release": (_TEXT, None), "args": (_TEXTS, None), "config": (_TABLE, {})}, {}),
    "cpus": (
        {
            "online": (_CPUS, None),
            "present": (_CPUS, None),
            "offline": (_CPUS, None),
            "isolated": (_CPUS, None),
            "siblings": ([_CPUS], None),
            "smt_control": (_TEXT, None),
            "package_cpus": ([{"id": (_WHOLE, None), "cpus": (_CPUS, "")}], []),
            "cores": ([_CORE], []),
            "llcs": ([{"cpus": (_CPUS, ""), "level": (_WHOLE, None), "size_kib": (_WHOLE, None)}], None),
        },
        {},
    ),
    "numa_nodes": (
        [{"id": (_WHOLE, None), "cpus": (_CPUS, ""), "memory_mib": (_WHOLE, None), "distances": (_NUMBERS, None)}],
        [],
    ),
    "nics": ([_NIC], []),
    "netdevs": ([{"name": (_TEXT, None), "kind": (_TEXT, "virtual"), "nics": (_TEXTS, [])}], []),
    "gpus": ([_DEVICE], []),
    "irqs": (
        [
            {
                "irq": (_WHOLE, None),
                "chip": (_TEXT, None),
                "device": (_TEXT, None),
                "managed": (_FLAG, None),
                "msi": (_FLAG, None),
                "affinity": (_CPUS, None),
            }
        ],
        [],
    ),
    "default_smp_affinity": (_CPUS, None),
}


def complete(given):
    """The topology with every key that planning reads; keys it does not know are kept. Raises HostprepError ``topology_invalid``."""
    if not isinstance(given, dict) or "cpus" not in given:
        raise _invalid("topology", given, "what host_topology returns: a mapping with cpus, numa_nodes, nics, gpus")
    if given.get("schema_version", 1) != 1:
        raise _invalid("schema_version", given["schema_version"], "1")
    topology = _table("topology", given, _SHAPE)
    _relations(topology)
    return topology


def _relations(topology):
    """What one part says of another must be there."""
    ids = [node["id"] for node in topology["numa_nodes"]]
    if None in ids or len(set(ids)) < len(ids) or min(ids, default=0) < 0:
        raise _invalid("topology.numa_nodes", ids, "ids that are whole numbers from 0, each once")
    facts = topology["cpus"]
    for index, core in enumerate(facts["cores"]):
        for key, allowed in (
            ("node", ids),
            ("package", range(len(facts["package_cpus"]))),
            ("llc", range(len(facts["llcs"])) if facts["llcs"] is not None else [core["llc"]]),
        ):
            if core[key] is not None and core[key] not in allowed:
                raise _invalid(
                    "topology.cpus.cores[%d].%s" % (index, key), core[key], "null, or one that the topology lists"
                )
        if not core["cpus"]:
            raise _invalid("topology.cpus.cores[%d].cpus" % index, core["cpus"], "at least one CPU")


def _invalid(place, value, allowed):
    shown = repr(value)
    return HostprepError(
        "topology_invalid",
        "the topology that was handed over has the wrong shape at %s" % place,
        read=shown if len(shown) <= 100 else shown[:97] + "...",
        allowed=allowed,
        cure="pass what host_topology returned, or read a root",
    )


def _table(place, given, shape):
    if not isinstance(given, dict):
        raise _invalid(place, given, "a mapping")
    result = dict(given)
    for key, (kind, default) in shape.items():
        value = given.get(key)
        if value is None:
            result[key] = (
                _value(place + "." + key, {}, kind)
                if isinstance(kind, dict)
                else (list(default) if isinstance(default, list) else default)
            )
        else:
            result[key] = _value(place + "." + key, value, kind)
    return result


def _value(place, value, kind):
    if isinstance(kind, dict):
        return _table(place, value, kind)
    if isinstance(kind, list):
        if not isinstance(value, (list, tuple)):
            raise _invalid(place, value, "a list")
        return [_value("%s[%d]" % (place, index), item, kind[0]) for index, item in enumerate(value)]
    if not _FITS[kind](value):
        raise _invalid(place, value, "a " + kind)
    if kind == _CPUS:
        try:
            return cpulist.compress(value)
        except HostprepError as error:
            raise _invalid(place, value, error.allowed) from None
    return value


def _is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


_FITS = {
    _TEXT: lambda value: isinstance(value, str),
    _CPUS: lambda value: isinstance(value, str),
    _WHOLE: _is_whole,
    _FLAG: lambda value: isinstance(value, bool),
    _TEXTS: lambda value: isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value),
    _TABLE: lambda value: isinstance(value, dict),
    _NUMBERS: lambda value: isinstance(value, dict) and all(item is None or _is_whole(item) for item in value.values()),
}
