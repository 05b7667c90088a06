# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nulls of a topology its ``unknown`` list does not explain."""

from __future__ import annotations

import re

# nulls that mean "there is none": the docstring of module_utils/host/discover.py says which
_NONE = [
    re.compile(pattern)
    for pattern in (
        r"cpus\.package_cpus\.\*\.id",
        r"cpus\.cores\.\*\.(type|capacity|die|cluster|llc)",
        r"cpus\.llcs\.\*\.size_kib",
        r"nics\.[^*]+\.(name|function|physfn|sriov_total)",
        r"nics\.[^*]+\.irqs\.\*\.(queue|name|managed)",
        r"gpus\.[^*]+\.(name|driver)",
        r"irqs\.\d+\.(chip|hwirq|device|managed)",
    )
]
_WITHOUT_PCI = re.compile(r"nics\.[^*]+\.(pci|class|vendor|device|local_cpulist|pcie_root|numa_source)")
_FOLLOWS = {  # a null that follows from another one
    "cpus.boot": "cpus.online",
    "cpus.offline": "cpus.online",
    "cpus.threads_per_core": "cpus.siblings",
    "cpus.threads_per_core_min": "cpus.siblings",
    "cpus.cores.*.package": "cpus.packages",
    "cpus.cores.*.node": "numa_nodes",
}
_KEYS = {
    "nics": lambda item: item["name"] or item["pci"],
    "netdevs": lambda item: item["name"],
    "gpus": lambda item: item["pci"],
    "numa_nodes": lambda item: str(item["id"]),
    "irqs": lambda item: str(item["irq"]),
    "infiniband": lambda item: item["name"],
}


def _nulls(value, place):
    if value is None:
        yield place
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _nulls(item, "%s.%s" % (place, key) if place else key)
    elif isinstance(value, list):
        key_of = _KEYS.get(place.rpartition(".")[2] if place.endswith(".infiniband") else place, lambda item: "*")
        for item in value:
            yield from _nulls(item, "%s.%s" % (place, key_of(item)))


def _covers(what, place):
    """True when an entry stands for a place, or for something that the place is part of."""
    if place == what or place.startswith(what + "."):
        return True
    pattern = re.escape(what).replace(r"\*", r"[^*]+?")
    return re.match(pattern + r"(\.|\Z)", place) is not None


def unexplained(topology):
    """Places of nulls that neither ``unknown`` nor the documented exceptions explain; [] for a sound topology."""
    whats = {note["what"] for note in topology["unknown"]}
    off_pci = {"nics." + (nic["name"] or "") for nic in topology["nics"] if nic["pci"] is None}
    uneven = topology["cpus"]["siblings"] is not None and topology["cpus"]["packages"] is not None
    found = []
    for place in _nulls({key: value for key, value in topology.items() if key != "unknown"}, ""):
        if any(pattern.fullmatch(place) for pattern in _NONE):
            continue
        if _WITHOUT_PCI.fullmatch(place) and place.rpartition(".")[0] in off_pci:
            continue
        if place == "cpus.cores_per_package" and (uneven or {"cpus.siblings", "cpus.packages"} & whats):
            continue
        if _FOLLOWS.get(place) not in whats and not any(_covers(what, place) for what in whats):
            found.append(place)
    return found
