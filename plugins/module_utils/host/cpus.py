# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs of a host: which there are, which share a core, a package, a die, a cluster, a last-level cache.

Source: sys/devices/system/cpu (Documentation/ABI/testing/sysfs-devices-system-cpu, Documentation/admin-guide/cputopology.rst).
Cores are told by the kernel's own sibling lists only. core_id is not used: it repeats within a package on machines that number
cores per die, and keying cores by it merged distinct cores. Groups that contradict each other make the whole level unknown.
"""

from __future__ import annotations

import re

from .reader import listed

CPU = "sys/devices/system/cpu"
_DIR = re.compile(r"cpu(\d{1,5})\Z", re.ASCII)
_INDEX = re.compile(r"index\d{1,3}\Z", re.ASCII)
_SIZE = re.compile(r"(\d{1,9})([KMG]?)\Z", re.ASCII)
_UNITS = {"": 1 / 1024, "K": 1, "M": 1024, "G": 1024 * 1024}
_NONE_IDS = (-1, 65535, 2**32 - 1)  # how kernels print "there is no such id"


class Cpus:
    """What was read, as sets; ``facts`` gives the topology's ``cpus`` part."""

    def __init__(self, reader):
        self._reader = reader
        names = reader.tree.listdir(CPU)
        found = [_DIR.match(name) for name in names or ()]
        self._dirs = {int(match.group(1)) for match in found if match}
        self.possible = self._list("possible")
        self.present = self._list("present")
        self.online = self._read_online(names)
        self.isolated = self._list("isolated")
        self.nohz_full = self._read_nohz_full()
        known = sorted(self.online or ())
        self._readable = [cpu for cpu in known if cpu in self._dirs]
        self.smt_control = reader.word(CPU + "/smt/control", "cpus.smt_control")
        active = reader.integer(CPU + "/smt/active", "cpus.smt_active", 0, 1)
        self.smt_active = None if active is None else bool(active)
        self.cores = self._read_cores()
        self.packages = self._read_packages()
        self.dies = self._read_groups("die")
        self.clusters = self._read_groups("cluster")
        self.llcs = self._read_llcs()
        self.types = self._read_types()
        self.capacities = self._read_capacities()

    def _list(self, name):
        return self._reader.cpus("%s/%s" % (CPU, name), "cpus.%s" % name)

    def _read_nohz_full(self):
        path = CPU + "/nohz_full"
        if self._reader.text(path) == "(null)":
            self._reader.note("cpus.nohz_full", path, "(null), as kernels print where nohz_full= was not given")
        return self._list("nohz_full")

    def _read_online(self, names):
        path = CPU + "/online"
        found = self._reader.cpus(path)
        if found:
            return found
        if self._reader.tree.data(path) is not None:
            self._reader.note("cpus.online", path, self._reader.why(path))
            return None
        if not self._dirs:
            self._reader.note("cpus.online", CPU, self._reader.tree.why(CPU) if names is None else "no cpuN folder")
            return None
        # a capture without the file: every cpuN folder whose own "online" does not say 0 (the boot CPU often has none)
        return frozenset(cpu for cpu in self._dirs if self._reader.tree.read("%s/cpu%d/online" % (CPU, cpu)) != "0")

    def offline(self):
        if self.online is None:
            return None
        present = self.present
        if present is None:
            present = self._dirs
        return present - self.online

    # -- cores ---------------------------------------------------------------------------------------------------------

    def _read_cores(self):
        """Sets of online siblings, ordered by lowest CPU; None where the kernel does not tell."""
        if self.online is None:
            self._reader.note("cpus.siblings", CPU, "the online CPUs are not known")
            return None
        siblings = {}
        for cpu in sorted(self.online):
            found = self._siblings_of(cpu)
            if found is None:
                break
            siblings[cpu] = found & self.online
        if len(siblings) < len(self.online):
            return self._cores_without_topology(siblings)
        for cpu, group in siblings.items():
            for other in group:
                if siblings[other] != group or cpu not in group:
                    self._reader.note(
                        "cpus.siblings",
                        "%s/cpu%d/topology" % (CPU, cpu),
                        "contradictory: CPU %d lists %s, CPU %d lists %s"
                        % (cpu, listed(group), other, listed(siblings[other])),
                    )
                    return None
            if not group:
                self._reader.note(
                    "cpus.siblings",
                    "%s/cpu%d/topology" % (CPU, cpu),
                    "contradictory: CPU %d does not list itself" % cpu,
                )
                return None
        return [group for cpu, group in siblings.items() if cpu == min(group)]

    def _siblings_of(self, cpu):
        folder = "%s/cpu%d/topology/" % (CPU, cpu)
        if cpu in self._dirs:
            for name in ("core_cpus_list", "thread_siblings_list"):
                found = self._reader.cpus(folder + name)
                if found is not None:
                    return found
            for name in ("core_cpus", "thread_siblings"):
                found = self._reader.mask(folder + name)
                if found is not None:
                    return found
        return None

    def _cores_without_topology(self, siblings):
        missing = min(self.online - set(siblings))
        folder = "%s/cpu%d/topology" % (CPU, missing)
        garbled = [
            name
            for name in ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
            if missing in self._dirs and self._reader.tree.data(folder + "/" + name) is not None
        ]
        if not siblings and not garbled and (self.smt_active is False or self.smt_control == "notsupported"):
            return [frozenset((cpu,)) for cpu in sorted(self.online)]
        why = self._reader.why(folder + "/" + garbled[0]) if garbled else "missing"
        self._reader.note("cpus.siblings", folder + "/" + (garbled[0] if garbled else "core_cpus_list"), why)
        return None

    # -- packages ------------------------------------------------------------------------------------------------------

    def _read_packages(self):
        """[(id or None, set of online CPUs)] ordered by lowest CPU; None where a CPU's package is not known."""
        by_id = {}
        groups = []
        grouped = set()
        for cpu in self._readable:
            if cpu in grouped:
                continue
            folder = "%s/cpu%d/topology/" % (CPU, cpu)
            number = self._reader.integer(folder + "physical_package_id", None, -1)
            if number is not None and number not in _NONE_IDS:
                by_id.setdefault(number, set()).add(cpu)
                continue
            found = self._reader.cpus_or_mask(folder + "package_cpus_list", folder + "package_cpus")
            if found is None:
                found = self._reader.cpus_or_mask(folder + "core_siblings_list", folder + "core_siblings")
            group = found & self.online if found else None
            if not group or cpu not in group or group & grouped:
                self._reader.note(
                    "cpus.packages",
                    folder + "physical_package_id",
                    "neither a package id nor a list of the package's CPUs for CPU %d" % cpu,
                )
                return None
            grouped |= group
            groups.append((None, group))
        if not self._readable or len(self._readable) < len(self.online):
            self._reader.note("cpus.packages", CPU, "no topology folder for every online CPU")
            return None
        groups.extend((number, cpus) for number, cpus in by_id.items())
        return sorted(groups, key=lambda item: min(item[1]))

    # -- groups below or above a core ----------------------------------------------------------------------------------

    def _read_groups(self, kind):
        """Dies or clusters: sets of online CPUs ordered by lowest CPU; None where the kernel has no such level."""
        groups = []
        grouped = set()
        what = {"die": "cpus.dies", "cluster": "cpus.clusters"}[kind]
        path = "%s/cpu*/topology/%s_cpus_list" % (CPU, kind)
        for cpu in self._readable:
            if cpu in grouped:
                continue
            folder = "%s/cpu%d/topology/%s_" % (CPU, cpu, kind)
            number = self._reader.integer(folder + "id", None, -1)
            found = (
                self._reader.cpus_or_mask(folder + "cpus_list", folder + "cpus") if number not in _NONE_IDS else None
            )
            if found is None:
                if not groups:
                    self._reader.note(what, path, "the kernel tells of none")
                    return None
                continue
            group = found & self.online
            if cpu not in group or group & grouped:
                self._reader.note(what, folder + "cpus_list", "contradictory: %s" % listed(found))
                return None
            grouped |= group
            groups.append(group)
        if not groups:
            self._reader.note(what, path, "missing")
        return groups or None

    def _read_llcs(self):
        """[(set of online CPUs, level, size in KiB or None)] of each CPU's last data or unified cache; None when unknown."""
        groups = []
        grouped = set()
        for cpu in self._readable:
            if cpu in grouped:
                continue
            folder = "%s/cpu%d/cache" % (CPU, cpu)
            last = self._last_cache(folder)
            if last is None:
                self._reader.note("cpus.llcs", folder, "missing" if not groups else "no cache told for CPU %d" % cpu)
                return None
            level, index = last
            found = self._reader.cpus_or_mask(index + "/shared_cpu_list", index + "/shared_cpu_map", "cpus.llcs")
            group = found & self.online if found else frozenset()
            if cpu not in group or group & grouped:
                self._reader.note("cpus.llcs", index + "/shared_cpu_list", "contradictory: %s" % listed(found or ()))
                return None
            grouped |= group
            size = _SIZE.match(self._reader.text(index + "/size") or "")
            groups.append((group, level, int(int(size.group(1)) * _UNITS[size.group(2)]) if size else None))
        if not groups:
            self._reader.note("cpus.llcs", CPU, "missing")
        return groups or None

    def _last_cache(self, folder):
        best = None
        for name in self._reader.tree.listdir(folder) or ():
            if not _INDEX.match(name):
                continue
            index = folder + "/" + name
            level = self._reader.integer(index + "/level", None, 1, 9)
            if (
                level is not None
                and (best is None or level > best[0])
                and self._reader.text(index + "/type") in ("Unified", "Data")
            ):
                best = (level, index)
        return best

    # -- core types ----------------------------------------------------------------------------------------------------

    def _read_types(self):
        """{CPU: "P" or "E"} on Intel hybrids (their perf devices); empty elsewhere."""
        types = {}
        for name, kind in (("cpu_core", "P"), ("cpu_atom", "E"), ("cpu_lowpower", "E")):
            path = "sys/devices/%s/cpus" % name
            found = self._reader.cpus(path)
            if found is None and self._reader.tree.data(path) is not None:
                self._reader.note("cpus.cores.*.type", path, self._reader.why(path))
            types.update((cpu, kind) for cpu in found or ())
        return types

    def _read_capacities(self):
        """{CPU: capacity} where the kernel scales CPUs (Arm, RISC-V: 1024 is the fastest); empty elsewhere."""
        capacities = {}
        for cpu in self._readable:
            value = self._reader.integer("%s/cpu%d/cpu_capacity" % (CPU, cpu), None, 1, 1 << 20)
            if value is None:
                break
            capacities[cpu] = value
        if len(capacities) < len(self._readable):
            return {}
        if not self.types and len(set(capacities.values())) > 1:
            fastest = max(capacities.values())
            self.types.update((cpu, "P" if value == fastest else "E") for cpu, value in capacities.items())
        return capacities

    # -- the topology's part -------------------------------------------------------------------------------------------

    def facts(self, node_of):
        """The ``cpus`` object; node_of: {CPU: NUMA node id}."""
        packages = self.packages
        widths = [len(core) for core in self.cores or ()]
        return {
            "possible": listed(self.possible),
            "present": listed(self.present),
            "online": listed(self.online),
            "offline": listed(self.offline()),
            "isolated": listed(self.isolated),
            "nohz_full": listed(self.nohz_full),
            "boot": min(self.online) if self.online else None,
            "siblings": None if self.cores is None else [listed(core) for core in self.cores],
            "packages": None if packages is None else len(packages),
            "package_cpus": [{"id": number, "cpus": listed(cpus)} for number, cpus in packages or ()],
            "threads_per_core": max(widths) if widths else None,
            "threads_per_core_min": min(widths) if widths else None,
            "cores_per_package": self._cores_per_package(),
            "dies": None if self.dies is None else [listed(group) for group in self.dies],
            "clusters": None if self.clusters is None else [listed(group) for group in self.clusters],
            "llcs": None
            if self.llcs is None
            else [{"cpus": listed(group), "level": level, "size_kib": size} for group, level, size in self.llcs],
            "cores": self._core_facts(node_of),
            "smt_control": self.smt_control,
            "smt_active": self.smt_active,
        }

    def _cores_per_package(self):
        if self.cores is None or self.packages is None:
            return None
        counts = {sum(1 for core in self.cores if not core.isdisjoint(cpus)) for _number, cpus in self.packages}
        return counts.pop() if len(counts) == 1 else None

    def _core_facts(self, node_of):
        levels = {
            "package": _index_of([cpus for _number, cpus in self.packages or ()]),
            "die": _index_of(self.dies),
            "cluster": _index_of(self.clusters),
            "llc": _index_of([group for group, _level, _size in self.llcs or ()]),
            "node": node_of,
            "type": self.types,
            "capacity": self.capacities,
        }
        facts = []
        for core in self.cores or ():
            fact = {"cpus": listed(core)}
            for name, of in levels.items():
                values = {of.get(cpu) for cpu in core}
                fact[name] = values.pop() if len(values) == 1 else None
                if len(values) > 1:
                    self._reader.note("cpus.cores.*." + name, CPU, "the CPUs of core %s differ" % fact["cpus"])
            facts.append(fact)
        return facts


def _index_of(groups):
    return {cpu: index for index, group in enumerate(groups or ()) for cpu in group}
