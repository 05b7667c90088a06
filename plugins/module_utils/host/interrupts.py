# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts of a host: which device each belongs to, which NIC queue it serves, where it may go.

An interrupt is attributed by the first of these that tells: the msi_irqs folder of a PCI function; a PCI address in the chip or
action name; the address that older kernels encode in the hwirq number; the name of a network device; a virtio device's name.
Source: proc/interrupts, proc/irq (Documentation/core-api/irq/irq-affinity.rst), sys/bus/pci/devices/*/msi_irqs, and, where an
administrator mounted debugfs for root, sys/kernel/debug/irq/irqs.
"""

from __future__ import annotations

from ..model import irq_names, irqs, pci
from .reader import listed
from .tree import INTERRUPTS

PROC = "proc/interrupts"
_DEBUG = "sys/kernel/debug/irq/irqs"
_VIRTIO_BUS = "sys/bus/virtio/devices"


def read(reader, functions, nics):
    """(irqs, irq_columns, default_smp_affinity) of the topology; fills each NIC's ``irqs`` and ``irq_source``."""
    seen = _Seen(reader, functions, nics)
    if seen.data is None:
        reader.note("irq_columns", PROC, reader.tree.why(PROC))
    elif seen.columns is None:
        reader.note("irq_columns", PROC, "no header of CPU columns")
    for place, line in seen.bad[:1]:
        why = "%d lines make no sense, the first is line %d: %s" % (len(seen.bad), place, line.strip()[:60])
        reader.note("irqs", PROC, why)
    facts = [seen.fact(number) for number in sorted(seen.rows)]
    seen.affinity.note_absent()
    for nic in nics:
        _finish_nic(reader, nic, seen.owner, seen.data is not None)
    default = reader.mask("proc/irq/default_smp_affinity", "default_smp_affinity")
    return facts, seen.columns, listed(default)


def of_nics(reader, functions, nics, chosen, counts=frozenset()):
    """([(NIC, fact, counts or None)], CPUs of the columns) of the interrupts of the chosen NICs; the masks of no other are read.

    nics: every NIC, so that a name that drivers cut is not taken for another's. counts: the numbers of interrupts to be counted, or
    True for all; without any, where interrupts really go is not read either (``effective`` is None).
    """
    seen = _Seen(reader, functions, nics, counts)
    found = []
    for number in sorted(seen.rows):
        nic = seen.nic(number)
        if nic in chosen:
            found.append((nic, seen.fact(number, bool(counts)), seen.rows[number].counts))
    for nic in chosen:
        _finish_nic(reader, nic, seen.owner, seen.data is not None)
    return found, seen.columns


class _Seen:
    """The interrupts of a host with the device that each belongs to."""

    def __init__(self, reader, functions, nics, counts=frozenset()):
        self.data = reader.tree.data(PROC, INTERRUPTS)
        table = irqs.parse(self.data or b"", counts)
        self.columns = table.columns
        self.bad = table.bad
        self.rows = {row.number: row for row in table.irqs}
        self.owner = _msi_owners(functions)
        for number in self.owner:
            self.rows.setdefault(number, irqs.Irq(number, None, None, None, []))
        self._device_of = _Attribution(reader, functions, nics, self.owner).devices(self.rows)
        self._nic_of = {nic.bdf or nic.name: nic for nic in nics}
        self._flags = _DebugFlags(reader)
        self.affinity = _Affinity(reader)

    def nic(self, number):
        return self._nic_of.get(self._device_of.get(number))

    def fact(self, number, effective=True):
        """What the topology says of an interrupt; adds it to its NIC."""
        row = self.rows[number]
        device = self._device_of.get(number)
        nic = self._nic_of.get(device)
        managed = self._flags.managed(number)
        if managed is None:
            managed = _managed_by_name(row, nic)
        if nic:
            _add_to_nic(nic, row, managed)
        return {
            "irq": number,
            "chip": row.chip,
            "hwirq": row.hwirq,
            "actions": row.actions,
            "device": device if device and pci.BDF.match(device) else None,
            "managed": managed,
            "affinity": self.affinity.of(number, "affinity", "smp_affinity"),
            "effective": self.affinity.of(number, "effective", "effective_affinity") if effective else None,
            "msi": row.msi or number in self.owner,
        }


def _msi_owners(functions):
    """{interrupt number: BDF} of every function that has an msi_irqs folder."""
    owner = {}
    for bdf, function in functions.by_bdf.items():
        for number in function.msi_irqs() or ():
            owner[number] = bdf
    return owner


class _Attribution:
    """Finds the device of an interrupt: a BDF, or the name of a NIC without PCI."""

    def __init__(self, reader, functions, nics, owner):
        self._reader = reader
        self._functions = functions
        self._owner = owner
        self._addresses = frozenset(functions.by_bdf) | frozenset(functions.dangling)
        self._names = {name: nic.bdf or nic.name for nic in nics for name in nic.names}
        self._virtio = None

    def devices(self, rows):
        found = dict(self._owner)
        for number, row in rows.items():
            if number not in found:
                device = self._device(row)
                if device is not None:
                    found[number] = device
        return found

    def _device(self, row):
        device = irqs.address(row)
        if device is not None:
            return device
        device = irqs.cut_address(row, self._addresses)
        if device is not None:
            return device
        device = irqs.encoded_address(row)
        if device is not None and (device in self._addresses or not self._functions.seen):
            return device
        name = irqs.netdev(row, self._names)
        if name is not None:
            return self._names[name]
        name = irqs.virtio(row)
        return self._virtio_function(name) if name else None

    def _virtio_function(self, name):
        if self._virtio is None:
            self._virtio = {}
            for device in self._reader.tree.listdir(_VIRTIO_BUS) or ():
                path = self._reader.tree.real("%s/%s" % (_VIRTIO_BUS, device))
                function = self._functions.at(path) if path else None
                if function:
                    self._virtio[device] = function.bdf
            for bdf, function in self._functions.by_bdf.items():
                for device in function.virtio():
                    self._virtio.setdefault(device, bdf)
        return self._virtio.get(name)


class _DebugFlags:
    """What debugfs says of an interrupt, where it is mounted and readable."""

    def __init__(self, reader):
        self._reader = reader
        self._names = frozenset(reader.tree.listdir(_DEBUG) or ())

    def managed(self, number):
        if str(number) not in self._names:
            return None
        text = self._reader.text("%s/%d" % (_DEBUG, number))
        return None if text is None else "IRQD_AFFINITY_MANAGED" in text


def _managed_by_name(row, nic):
    """A shared line is managed if one of its actions is; None where no name tells."""
    answers = {irq_names.managed(action, nic is not None) for action in row.actions}
    if True in answers:
        return True
    return False if answers == {False} else None


class _Affinity:
    """Masks of interrupts. One that no driver has requested has a number, but no folder in proc/irq: they are noted together."""

    def __init__(self, reader):
        self._reader = reader
        names = reader.tree.listdir("proc/irq")
        self._why = reader.tree.why("proc/irq") if names is None else None
        self._folders = frozenset(names or ())
        self._absent = []

    def of(self, number, field, name):
        if str(number) not in self._folders:
            self._absent.append(number)
            return None
        path = "proc/irq/%d/%s" % (number, name)
        return self._reader.cpulist(path + "_list", path, "irqs.%d.%s" % (number, field))

    def note_absent(self):
        if self._absent:
            why = self._why or "no folder for %d interrupts, such as %d" % (len(set(self._absent)), self._absent[0])
            for field in ("affinity", "effective"):
                self._reader.note("irqs.*.%s" % field, "proc/irq", why)


def _add_to_nic(nic, row, managed):
    """One entry for each of the line's actions that names the NIC, and for the first where none does."""
    own = [action for action in row.actions if _names(action, nic)] or row.actions[:1] or [None]
    for action in own:
        kind, queue = irq_names.kind_and_queue(action, _device_name(action, nic)) if action else ("misc", None)
        entry = {"irq": row.number, "queue": queue, "kind": kind, "name": action, "managed": managed}
        nic.facts["irqs"].append(entry)


def _names(action, nic):
    return any(name in action for name in nic.names) or bool(nic.bdf and nic.bdf in action)


def _device_name(action, nic):
    found = [name for name in nic.names if name in action]
    return max(found, key=len) if found else None


def _finish_nic(reader, nic, owner, interrupts_read):
    """Which source told, and the single vector that carries a card's data although it has the link vector's name."""
    facts = nic.facts
    entries = facts["irqs"]
    if len(entries) == 1 and entries[0]["kind"] == "misc" and entries[0]["name"] in nic.names:
        entries[0].update(kind="queue", queue=0)
    if any(owner.get(entry["irq"]) == nic.bdf for entry in entries if nic.bdf):
        above = bool(nic.devices) and nic.devices[0].device not in (None, nic.function.path)
        facts["irq_source"] = "ancestor" if above else "msi_irqs"
    elif entries:
        facts["irq_source"] = "interrupts"
    else:
        reader.note(
            "nics.%s.irq_source" % nic.label,
            PROC,
            "no interrupt of this NIC is seen" if interrupts_read else reader.tree.why(PROC),
        )
