# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs of a machine: from counts and a numbering scheme to one record per CPU. How they look in sysfs is in sysfs_cpus.py."""

from __future__ import annotations

import dataclasses

from . import lists
from .spec import SpecError, cpus as cpu_set, read

FIELDS = {
    "model": (str, None),
    "vendor": (str, None),
    "packages": (range(1, 1025), 1),
    "cores": ((range(1, 1025), [range(1, 1025)]), 4),
    "threads": (range(1, 9), 2),
    "ecores": (range(0, 1025), 0),
    "numbering": (({"block", "adjacent", "alternate"}, [[str]]), "block"),
    "ids": (str, None),
    "present": (str, None),
    "possible": (str, None),
    "offline": (str, ""),
    "dies": (range(1, 65), 1),
    "clusters": (range(0, 1025), 0),
    "llc": (range(0, 1025), 0),
    "llc_kib": (range(0, 1 << 24), 0),
    "caches": (bool, True),
    "package_ids": ((int, [int]), None),
    "core_ids": (({"package", "die", "global"}, [int]), "package"),
    "package_list": ({"package", "core"}, "package"),
    "books": (range(0, 65), 0),
    "drawers": (range(0, 65), 0),
    "smt": ({"on", "off", "forceoff", "notsupported", "notimplemented"}, None),
    "capacity": (dict, {}),
    "topology": (bool, True),
}
MOST = 8192  # CPUs: the largest NR_CPUS a kernel can be built for
E_CLUSTER = 4  # E-cores of Intel's hybrids share an L2 four at a time
MODELS = {
    "x86_64": ("Intel(R) Xeon(R) Platinum 8462Y+", "GenuineIntel"),
    "aarch64": ("Neoverse-V2", "0x41"),
    "ppc64le": ("POWER9, altivec supported", "IBM"),
    "s390x": ("3931", "IBM/S390"),
    "riscv64": ("rv64imafdcvh", "riscv"),
}


@dataclasses.dataclass
class Cpu:
    """One logical CPU. package, die, cluster, llc and core count over the machine; index counts cores within the package."""

    id: int
    package: int
    die: int
    cluster: int
    llc: int
    core: int
    index: int
    thread: int
    kind: str | None
    core_id: int = 0
    node: int | None = None
    capacity: int | None = None


class Cpus:
    """All that the description says of CPUs. `all` holds those of the numbering, by id; lists of ids are sorted."""

    def __init__(self, section, arch, args):
        self.want = want = read(section, "cpus", FIELDS)
        self.arch = arch
        self.model, self.vendor = want.model or MODELS[arch][0], want.vendor or MODELS[arch][1]
        cores = self._numbered()
        self.by_core = cores
        self.all = sorted((cpu for core in cores for cpu in core), key=lambda cpu: cpu.id)
        ids = [cpu.id for cpu in self.all]
        if len(set(ids)) != len(ids):
            raise SpecError("cpus: the numbering gives one id to two CPUs")
        self.present = cpu_set(want.present, "cpus: present") if want.present is not None else ids
        self.possible = cpu_set(want.possible, "cpus: possible") if want.possible is not None else self.present
        if not set(ids) <= set(self.present) <= set(self.possible):
            raise SpecError("cpus: present must hold every CPU of the numbering, and possible every CPU of present")
        self.bits = max(self.possible) + 1
        off = set(cpu_set(want.offline, "cpus: offline", ids)) | (set(self.present) - set(ids))
        self.smt = self._smt(args, max(len(core) for core in cores))
        if self.smt in ("off", "forceoff"):
            off |= {cpu.id for cpu in self.all if cpu.thread}
        self.online = [cpu for cpu in ids if cpu not in off]
        if not self.online:
            raise SpecError("cpus: every CPU is offline, and at least one must run")
        self.smt_active = any(len([cpu for cpu in core if cpu.id not in off]) > 1 for core in cores)
        self.offline = sorted(set(self.possible) - set(self.online))
        for text, value in want.capacity.items():
            if not isinstance(value, int):
                raise SpecError(f"cpus: capacity of {text} is {value!r}: write a whole number such as 1024")
            for cpu in cpu_set(text, "cpus: capacity", ids):
                self.all[ids.index(cpu)].capacity = value
        if arch == "aarch64":
            for cpu in self.all:
                cpu.capacity = 1024 if cpu.capacity is None else cpu.capacity

    def groups(self, key):
        """Online ids by the value of one of Cpu's fields."""
        online, out = set(self.online), {}
        for cpu in self.all:
            if cpu.id in online:
                out.setdefault(getattr(cpu, key), []).append(cpu.id)
        return out

    def siblings(self):
        """One list string per core with an online CPU, by lowest id: what a reader of the tree must find."""
        return [lists.compress(ids) for ids in sorted(self.groups("core").values())]

    def packages(self):
        """One list string per package, as a reader must count them: by id, and where that is -1 by the list that core_siblings shows."""
        by_id = {}
        for package, ids in self.groups("package").items():
            number = self.package_id(package)
            by_id.setdefault(package if number == -1 else ("id", number), []).extend(ids)
        if self.want.package_ids == -1 and self.want.package_list == "core":
            by_id = self.groups("core")
        return [lists.compress(ids) for ids in sorted(by_id.values())]

    # how the description becomes cores and ids

    def _numbered(self):
        want = self.want
        if isinstance(want.numbering, list):
            cores = self._explicit(want.numbering)
        else:
            cores = self._counted()
            self._number(cores, want.numbering)
        flat = sorted((cpu for core in cores for cpu in core), key=lambda cpu: cpu.id)
        if want.ids is not None:
            ids = cpu_set(want.ids, "cpus: ids")
            if len(ids) != len(flat):
                raise SpecError(f"cpus: ids names {len(ids)} CPUs, and the counts give {len(flat)}")
            for cpu, number in zip(flat, ids):
                cpu.id = number
        self._core_ids(cores)
        return cores

    def _counted(self):
        want = self.want
        per = want.cores if isinstance(want.cores, list) else [want.cores] * want.packages
        if len(per) != want.packages:
            raise SpecError(f"cpus: cores lists {len(per)} packages, and packages says {want.packages}")
        count = sum(per) * want.threads + want.packages * want.ecores
        if count > MOST:
            raise SpecError(f"cpus: the counts give {count} CPUs: a kernel has room for {MOST}")
        widths = [[want.threads] * count + [1] * want.ecores for count in per]
        return self._cores(widths, want.ecores)

    def _explicit(self, packages):
        parsed = [[cpu_set(core, "cpus: numbering") for core in package] for package in packages]
        if not parsed or not all(package and all(package) for package in parsed):
            raise SpecError("cpus: numbering lists a package without cores, or a core without CPUs")
        cores = self._cores([[len(core) for core in package] for package in parsed], 0)
        for core, ids in zip(cores, [core for package in parsed for core in package]):
            for cpu, number in zip(core, ids):
                cpu.id = number
        return cores

    def _cores(self, widths, ecores):
        """Lists of Cpu, one per core, of packages given by their cores' widths; ids are still to be given."""
        want, out, llcs, clusters = self.want, [], {}, {}
        dies = want.dies
        for package, cores in enumerate(widths):
            if dies > len(cores):
                raise SpecError(f"cpus: {dies} dies share {len(cores)} cores of a package: use fewer dies")
            die_of = lists.chunks(len(cores), dies)
            for index, width in enumerate(cores):
                die = die_of[index]
                in_die = index - die_of.index(die)
                efficient = index - (len(cores) - ecores)
                if efficient >= 0:
                    cluster = (package, "E", efficient // E_CLUSTER)
                else:
                    cluster = (package, die, in_die // (want.clusters or 1))
                llc = llcs.setdefault((package, die, in_die // want.llc if want.llc else 0), len(llcs))
                group = clusters.setdefault(cluster, len(clusters))
                kind = ("E" if efficient >= 0 else "P") if ecores else None
                out.append(
                    [
                        Cpu(-1, package, package * dies + die, group, llc, len(out), index, thread, kind)
                        for thread in range(width)
                    ]
                )
        return out

    def _number(self, cores, scheme):
        if scheme == "adjacent":
            order = [cpu for core in cores for cpu in core]
        else:
            place = (
                (lambda cpu: (cpu.thread, cpu.core))
                if scheme == "block"
                else (lambda cpu: (cpu.thread, cpu.index, cpu.package))
            )
            order = sorted((cpu for core in cores for cpu in core), key=place)
        for number, cpu in enumerate(order):
            cpu.id = number

    def _core_ids(self, cores):
        rule = self.want.core_ids
        firsts = {}
        for core in cores:
            one = core[0]
            if isinstance(rule, list):
                if one.index >= len(rule):
                    raise SpecError(f"cpus: core_ids lists {len(rule)} ids, and a package has more cores")
                value = rule[one.index]
            elif rule == "global":
                value = one.core
            else:
                value = one.core - firsts.setdefault(getattr(one, rule), one.core)
            for cpu in core:
                cpu.core_id = value

    def _smt(self, args, width):
        if self.want.smt:
            return self.want.smt
        if self.arch not in ("x86_64", "ppc64le"):
            return "notimplemented"
        if width == 1:
            return "notsupported"
        if "nosmt=force" in args:
            return "forceoff"
        return "off" if "nosmt" in args else "on"

    def package_id(self, package):
        ids = self.want.package_ids
        if ids is None:
            return package
        if isinstance(ids, int):
            return ids
        if package >= len(ids):
            raise SpecError(f"cpus: package_ids lists {len(ids)} ids, and there are more packages")
        return ids[package]
