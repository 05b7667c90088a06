# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine, resolved from its description: what all the writers read."""

from __future__ import annotations

import types

from . import interrupts, kernel, net, nics, nodes, pci, procfs, settings, spec as specs, sysfs_cpus
from .cpus import Cpus
from .tree import Tree

CGROUP = {"cpus": (str, None), "mems": (str, "0"), "version": (range(1, 3), 2)}


class Machine:
    """spec is the description as read; cpus, nodes, bus, nics, netdevs and kernel are what it comes to."""

    def __init__(self, spec):
        self.spec = spec = specs.load(spec)
        self.arch = spec.arch
        self._counters = {}
        self.kernel = kernel.Kernel(spec)
        self.cpus = Cpus(spec.cpus, spec.arch, self.kernel.args)
        self.kernel.boot(self.cpus)
        self.nodes = nodes.Nodes(spec.memory, self.cpus)
        self.bus = pci.Bus(spec.roots, self.nodes)
        self.remapping = spec.hypervisor == "none" and spec.arch == "x86_64"
        self.nics = []
        for number, entry in enumerate(spec.pci):
            self.bus.describe(entry, number, self)
        for number, entry in enumerate(spec.nics):
            nics.add(self, entry, f"nics[{number}]")
        self.netdevs = net.collect(self)
        self.routes = self._carriers(spec.default_route, "default_route")
        self.routes6 = self._carriers(spec.default_route6, "default_route6")
        self.cgroup = self._cgroup(spec.cgroup)
        self.last_irq = 0
        interrupts.assign(self)

    def next_of(self, kind):
        """0, 1, 2 … of a kind of device that the kernel numbers."""
        self._counters[kind] = self._counters.get(kind, -1) + 1
        return self._counters[kind]

    def vectors(self):
        """(function, vector) in the order of interrupt numbers."""
        return [
            (self.bus.functions[address], vector)
            for address in sorted(self.bus.functions)
            for vector in self.bus.functions[address].vectors
        ]

    def tree(self):
        tree = Tree()
        for part in (sysfs_cpus, nodes, kernel, pci, net, interrupts, procfs, settings):
            part.emit(tree, self)
        nodes.emit_meminfo(tree, self)
        settings.overrides(tree, self)
        return tree

    def _carriers(self, value, where):
        names = [value] if isinstance(value, str) else value
        for name in names:
            if name not in self.netdevs:
                raise specs.SpecError(f"{where} names {name!r}, and the machine has netdevs {', '.join(self.netdevs)}")
        return names

    def _cgroup(self, section):
        if section is None:
            return None
        want = specs.read(section, "cgroup", CGROUP)
        cpus = specs.cpus(want.cpus or "", "cgroup: cpus", self.cpus.online)
        return types.SimpleNamespace(cpus=cpus, mems=specs.cpus(want.mems, "cgroup: mems"), version=want.version)
