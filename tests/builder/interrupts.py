# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts: their numbers, where each may go and goes, /proc/interrupts and /proc/irq."""

from __future__ import annotations

from . import lists
from .spec import cpus as cpu_set

FIRST = {"x86_64": 24, "aarch64": 40, "ppc64le": 16, "s390x": 3, "riscv64": 12}
LEGACY = {
    "x86_64": (
        (0, "IO-APIC", 2, "edge", "timer"),
        (8, "IO-APIC", 8, "edge", "rtc0"),
        (9, "IO-APIC", 9, "fasteoi", "acpi"),
    ),
    "aarch64": ((11, "GICv3", 30, "Level", "arch_timer"), (14, "GICv3", 33, "Level", "uart-pl011")),
}
X86_TAIL = (
    ("NMI", "Non-maskable interrupts"),
    ("LOC", "Local timer interrupts"),
    ("SPU", "Spurious interrupts"),
    ("PMI", "Performance monitoring interrupts"),
    ("IWI", "IRQ work interrupts"),
    ("RTR", "APIC ICR read retries"),
    ("RES", "Rescheduling interrupts"),
    ("CAL", "Function call interrupts"),
    ("TLB", "TLB shootdowns"),
    ("TRM", "Thermal event interrupts"),
    ("THR", "Threshold APIC interrupts"),
    ("DFR", "Deferred Error APIC interrupts"),
    ("MCE", "Machine check exceptions"),
    ("MCP", "Machine check polls"),
    ("ERR", None),
    ("MIS", None),
    ("PIN", "Posted-interrupt notification event"),
    ("NPI", "Nested posted-interrupt event"),
    ("PIW", "Posted-interrupt wakeup event"),
)
ARM_TAIL = (
    "Rescheduling interrupts",
    "Function call interrupts",
    "CPU stop interrupts",
    "CPU stop (for crash dump) interrupts",
    "Timer broadcast interrupts",
    "IRQ work interrupts",
)


def assign(machine):
    """Numbers every vector, functions in the order of their addresses, and says where it may go and goes."""
    cpus, kernel = machine.cpus, machine.kernel
    default = kernel.irqaffinity or cpus.possible
    number = FIRST[machine.arch]
    turn = 0
    nics = {nic.address: nic for nic in machine.nics if nic.function}
    for address in sorted(machine.bus.functions):
        function = machine.bus.functions[address]
        nic = nics.get(address)
        near = _near(machine, function.node)
        pinned = cpu_set(nic.pin, "nics: pin", cpus.online) if nic and nic.pin is not None else []
        managed = [vector for vector in function.vectors if vector.managed]
        groups = _managed_groups(cpus.online, len(managed))
        place = 0
        for vector in function.vectors:
            vector.irq = number
            number += 1
            if vector.managed:
                vector.mask = groups[vector.index - managed[0].index]
                kept = [cpu for cpu in vector.mask if cpu not in set(kernel.managed_isolated)]
                vector.effective = (kept or vector.mask)[0]
            elif nic and vector.kind not in ("misc", "aeq") and (pinned or nic.driver.spread):
                order = pinned or near
                vector.mask = [order[place % len(order)]]
                vector.effective = vector.mask[0]
                place += 1
            else:
                vector.mask = list(default)
                online = (
                    [cpu for cpu in default if cpu in set(cpus.online)]
                    if len(default) != len(cpus.possible)
                    else cpus.online
                )
                vector.effective = online[turn % len(online)]
                turn += 1
    machine.last_irq = number - 1


def _near(machine, node):
    """Online CPUs, those of the node first: the order in which drivers hand out CPUs."""
    first = machine.nodes.online_cpus(node, machine.cpus) if node >= 0 else []
    return first + [cpu for cpu in machine.cpus.online if cpu not in set(first)]


def _managed_groups(online, count):
    """The kernel's spread of managed vectors: every online CPU is served by one; each vector serves neighbours."""
    if not count:
        return []
    if count >= len(online):
        return [[online[place % len(online)]] for place in range(count)]
    part = lists.chunks(len(online), count)
    return [[cpu for cpu, where in zip(online, part) if where == group] for group in range(count)]


def emit(tree, machine):
    cpus, kernel = machine.cpus, machine.kernel
    tree.line("proc/irq/default_smp_affinity", lists.mask(kernel.irqaffinity or cpus.possible, cpus.bits))
    width = _number_width(machine)
    rows = [" " * (width + 8) + "".join(f"CPU{cpu:<8d}" for cpu in cpus.online)]
    zeros = ["         0"] * len(cpus.online)
    places = {cpu: place for place, cpu in enumerate(cpus.online)}
    prefix = "IR-" if machine.remapping else ""
    for number, chip, line, kind, action in LEGACY.get(machine.arch, ()):
        cells = [f"{40 + number:>10}", *zeros[1:]]
        kind = f"-{kind:<8}" if machine.arch == "x86_64" else f" {kind:<8}"
        rows.append(
            _row(
                kernel,
                width,
                number,
                cells,
                f" {(prefix if machine.arch == 'x86_64' else '') + chip:>8} {line:>{width}}{kind}  {action}",
            )
        )
        _affinity(tree, machine, number, cpus.online, cpus.online[0], -1)
    text = {}
    for function, vector in machine.vectors():
        if vector.name is None:
            continue
        cells = list(zeros)
        cells[places[vector.effective]] = f"{100 + vector.irq * 37 % 9973:>10}"
        rows.append(_row(kernel, width, vector.irq, cells, _chip(machine, function, vector, width)))
        _affinity(tree, machine, vector.irq, vector.mask, vector.effective, function.node, text)
    rows += _tail(machine, width)
    tree.text("proc/interrupts", "\n".join(rows) + "\n")


def _number_width(machine):
    """Digits of the first column: those of the kernel's interrupt limit, which grows with CPUs and IO-APICs."""
    inputs = 24 * (1 + len(machine.cpus.groups("package")))
    limit = max(inputs + 8 * machine.cpus.bits + 16 * inputs, machine.last_irq + 1)
    return max(3, len(str(limit)))


def _row(kernel, width, number, cells, tail):
    """Up to 6.13 a space follows each count, later one precedes it."""
    if kernel.at_least(6, 14):
        return f"{number:>{width}}:" + "".join(f" {cell}" for cell in cells) + tail
    return f"{number:>{width}}: " + "".join(f"{cell} " for cell in cells) + tail


def _chip(machine, function, vector, width):
    """The columns after the counts: interrupt chip, its own number for the vector, trigger, handlers."""
    kernel, arch = machine.kernel, machine.arch
    domain, bus, rest = function.address.split(":")
    slot, part = rest.split(".")
    encoded = vector.index | (int(bus, 16) << 8 | int(slot, 16) << 3 | int(part)) << 11 | int(domain, 16) << 27
    what = "MSIX" if function.msi == "msix" else "MSI"
    if arch == "s390x":
        return f" {'PCI-MSI':>8}  {vector.name}"
    if arch == "ppc64le":
        return f" {'XIVE-IRQ':>8} {encoded & 0xFFFFFFF:>{width}} Edge      {vector.name}"
    if arch == "aarch64":
        chip, number = (
            (f"ITS-PCI-{what}-{function.address}", vector.index) if kernel.at_least(6, 11) else ("ITS-MSI", encoded)
        )
        return f" {chip:>8} {number:>{width}} {'Edge':<8}  {vector.name}"
    if machine.spec.hypervisor == "xen":  # event channels: no number of the chip's own
        return f" {'xen-pirq':>8} {'':>{width}}-{'msi-x' if function.msi == 'msix' else 'msi':<8}  {vector.name}"
    prefix = "IR-" if machine.remapping else ""
    if machine.spec.hypervisor == "microsoft" and not kernel.at_least(6, 17):
        chip, number = "Hyper-V PCIe MSI", encoded
    elif int(domain, 16) > 0xFFFF and not kernel.at_least(6, 17):
        chip, number = "VMD-MSI", vector.index
    elif kernel.at_least(6, 2) if arch == "x86_64" else kernel.at_least(6, 11):
        chip, number = f"{prefix}PCI-{what}-{function.address}", vector.index
    else:
        chip, number = f"{prefix}PCI-MSI", encoded
    return f" {chip:>8} {number:>{width}}-{'edge':<8}  {vector.name}"


def _affinity(tree, machine, number, mask, effective, node, seen=None):
    """Files of one interrupt; `seen` keeps the text of masks, of which there are few."""
    key = tuple(mask)
    pair = (seen or {}).get(key)
    if pair is None:
        pair = lists.compress(mask) + "\n", lists.mask(mask, machine.cpus.bits) + "\n"
        if seen is not None:
            seen[key] = pair
    top = f"proc/irq/{number}/"
    tree.entries[top + "smp_affinity_list"], tree.entries[top + "smp_affinity"] = pair
    tree.entries[top + "effective_affinity_list"] = f"{effective}\n"
    tree.entries[top + "node"] = f"{node}\n"


def _tail(machine, width):
    online = machine.cpus.online
    out = []
    if machine.arch == "x86_64":
        for name, words in X86_TAIL:
            if words is None:
                out.append(f"{name:>{width}}: {0:>10}")
            else:
                counts = "".join(f"{cpu + 1000 if name in ('LOC', 'RES', 'CAL') else 0:>10} " for cpu in online)
                out.append(f"{name:>{width}}: {counts}  {words}")
    elif machine.arch == "aarch64":
        for place, words in enumerate(ARM_TAIL):
            out.append(
                f"{'IPI':>{width - 1}}{place}:{' ' if width >= 4 else ''}"
                + "".join(f"{cpu + 10:>10} " for cpu in online)
                + f"      {words}"
            )
        out.append(f"{'Err':>{width}}: {0:>10}")
    elif machine.arch == "s390x":
        for name, words in (
            ("EXT", None),
            ("I/O", None),
            ("CLK", "[EXT] Clock Comparator"),
            ("RST", "[CPU] CPU Restart"),
        ):
            out.append(f"{name}: " + "".join(f"{cpu + 10:>10} " for cpu in online) + (f" {words}" if words else ""))
    else:
        out.append(
            f"{'LOC':>{width}}: "
            + "".join(f"{cpu + 10:>10} " for cpu in online)
            + "  Local timer interrupts for timer event device"
        )
    return out
