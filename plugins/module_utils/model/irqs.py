# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lines of /proc/interrupts say. Bytes in, plain data out.

A line is "<label>: <one count per online CPU> <chip> <hwirq>[-<flow>| Level| Edge]  <action>[, <action>...]". Older kernels
print "<chip>-<flow>" without hwirq; chip names may hold single spaces ("Hyper-V PCIe MSI"); actions stand after two spaces or
more and may hold single ones ("hfi1_0 kctxt3"). Per-CPU sums ("NMI:", "LOC:") and the short "ERR:" and "MIS:" are no numbered
interrupts. The header names the CPUs of the columns; offline CPUs have none, so ids may have gaps.
"""

from __future__ import annotations

import re

from .pci import BDF_ANYWHERE

_BLANK = ord(" ")
_COUNTS = b" \t0123456789"
_HEADER = re.compile(r"CPU(\d{1,5})\Z", re.ASCII)
_FLOW = r"(?:-(?P<flow>[A-Za-z_][\w-]*)|(?P<trigger>Level|Edge))"
_WITH_HWIRQ = re.compile(
    r"(?P<chip>\S+(?: \S+)*?)\s+(?P<hwirq>\d{1,20})(?:\s*" + _FLOW + r")?(?:\s+(?P<actions>\S.*))?\Z", re.ASCII
)
_FLOWS = ("edge", "fasteoi", "level", "simple", "percpu", "msi-x", "msi", "event", "virq", "ipi")
_WITHOUT_HWIRQ = re.compile(
    r"(?P<chip>\S(?:\S| (?=\S))*?)(?:\s*-(?P<flow>" + "|".join(_FLOWS) + r"))?(?:\s{2,}(?P<actions>\S.*))?\Z", re.ASCII
)

# Chips whose hwirq encodes the PCI function on kernels that do not print its address (x86 before 6.2, Arm ITS, Hyper-V)
_ENCODED_CHIPS = ("PCI-MSI", "IR-PCI-MSI", "ITS-MSI", "Hyper-V PCIe MSI")


class Irq:
    """One numbered interrupt: ``number``, ``chip`` and ``hwirq`` (None where not printed), ``flow`` ("edge", …), ``actions``."""

    __slots__ = ("number", "chip", "hwirq", "flow", "actions", "counts")

    def __init__(self, number, chip, hwirq, flow, actions, counts=None):
        self.number = number
        self.chip = chip
        self.hwirq = hwirq
        self.flow = flow
        self.actions = actions
        self.counts = counts  # per column of the header, or None where not asked for

    @property
    def msi(self):
        """True where the chip or the flow handler is one for message-signalled interrupts."""
        return "msi" in (self.chip or "").lower() or "msi" in (self.flow or "")


class Interrupts:
    """A parsed file: ``columns`` (CPU ids, or None without a header), ``irqs``, ``sums`` (labels of the unnumbered lines), ``bad``.

    bad: [(line number from 1, text)] of lines that are neither.
    """

    def __init__(self, columns, irqs, sums, bad):
        self.columns = columns
        self.irqs = irqs
        self.sums = sums
        self.bad = bad


def parse(data, counts=False):
    """Interrupts of a file's bytes. counts: True, or the numbers of the interrupts whose counts are split too (slow on a thousand
    CPUs; the others are skipped unread).

    Bytes, since the file of a large machine has tens of megabytes of which only the ends of its lines are text to look at.
    """
    head = data[: _line_end(data, 0)]
    columns = _columns(_text(head))
    width = len(columns) if columns else 0
    irqs = []
    sums = []
    bad = []
    at = 0 if columns is None else len(head) + 1
    place = 0 if columns is None else 1
    while at < len(data):  # lines are kilobytes long on large machines: they are looked at in place, not cut out
        end = _line_end(data, at)
        place += 1
        colon = data.find(b":", at, end)
        label = data[at : max(colon, at)].strip()
        if not label or b" " in label:
            if data[at:end].strip():
                bad.append((place, _text(data[at:end])))
        elif label.isdigit() and len(label) < 10:
            irqs.append(_irq(int(label), data, colon + 1, end, width, counts))
        else:
            sums.append(_text(label))
        at = end + 1
    return Interrupts(columns, irqs, sums, bad)


def _text(data):
    return data.decode("utf-8", "replace")


def _line_end(data, at):
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _columns(line):
    found = [_HEADER.match(word) for word in line.split()]
    return [int(match.group(1)) for match in found] if found and all(found) else None


def _end_of_counts(data, begin, stop, width):
    """Where the counts between begin and stop end. The kernel prints each in 11 characters, a blank first; one that is wider
    would move the last, so that looking at the first and the last column is enough."""
    end = begin + 11 * width
    if width > 1 and end < stop and data[begin] == data[end - 11] == _BLANK and data[end : end + 1].isspace():
        if data[begin + 10 : begin + 11].isdigit() and data[end - 1 : end].isdigit():
            return end
    rest = data[begin:stop]
    end = len(rest) - len(rest.lstrip(_COUNTS))
    # a chip that begins with digits ("2200000.gpio") lost them
    while 0 < end < len(rest) and not rest[end - 1 : end].isspace():
        end -= 1
    return begin + end


def _irq(number, data, begin, stop, width, counts):
    end = _end_of_counts(data, begin, stop, width)
    tail = _text(data[end:stop]).strip()
    counted = counts if isinstance(counts, bool) else number in counts
    values = [int(word[:19]) for word in data[begin:end].split()] if counted else None
    if not tail:
        return Irq(number, None, None, None, [], values)
    match = _WITH_HWIRQ.match(tail)
    if match:
        chip, hwirq, flow, trigger, actions = match.groups()
        return Irq(number, chip, int(hwirq), flow or _lower(trigger), _actions(actions), values)
    match = _WITHOUT_HWIRQ.match(tail)
    if match:
        return Irq(number, match.group("chip"), None, match.group("flow"), _actions(match.group("actions")), values)
    return Irq(number, None, None, None, _actions(tail), values)


def _lower(word):
    return word.lower() if word else None


def _actions(text):
    return [action.strip() for action in text.split(", ") if action.strip()] if text else []


# -- which device an interrupt belongs to ------------------------------------------------------------------------------


def address(irq):
    """PCI address that the kernel wrote into the chip name or an action name, or None."""
    for text in [irq.chip or ""] + irq.actions:
        match = BDF_ANYWHERE.search(text)
        if match:
            return match.group(0)
    return None


def encoded_address(irq):
    """PCI address in the hwirq number of older kernels: domain << 27 | bus, device, function << 11 | vector. None elsewhere."""
    if irq.hwirq is None or irq.chip not in _ENCODED_CHIPS:
        return None
    where = irq.hwirq >> 11 & 0xFFFF
    return "%04x:%02x:%02x.%x" % (irq.hwirq >> 27, where >> 8, where >> 3 & 0x1F, where & 7)


def cut_address(irq, known):
    """The one of the known PCI addresses that an action's name was cut short in ("gve-ntfy-blk0@pci:0000:00:0"), or None."""
    for action in irq.actions:
        _name, at, part = action.partition("@pci:")
        found = [bdf for bdf in known if bdf.startswith(part)] if at and len(part) > 4 else []
        if len(found) == 1:
            return found[0]
    return None


def netdev(irq, names):
    """Name of the network device that an action names, or None: the longest that stands between word boundaries.

    Drivers cut names that do not fit their buffers (bnxt_en, gve and enic: 11 characters and more); a cut name counts when
    exactly one device begins so.
    """
    for action in irq.actions:
        best = None
        for name in names:
            if name in action and (best is None or len(name) > len(best)) and _stands_alone(name, action):
                best = name
        if best is not None:
            return best
    for action in irq.actions:
        cut = set()
        for part in _parts(action):
            cut.update(name for name in names if len(part) >= 11 and name.startswith(part))
        if len(cut) == 1:
            return cut.pop()
    return None


def _stands_alone(name, action):
    start = action.find(name)
    while start >= 0:
        end = start + len(name)
        if not (start and action[start - 1].isalnum()) and not (end < len(action) and action[end].isalnum()):
            return True
        start = action.find(name, start + 1)
    return False


def _parts(action):
    """The starts at which a device name may stand, each cut at the next "-" or at the end."""
    for match in re.finditer(r"(?:\A|-)([^-@]+)", action):
        yield match.group(1)


_VIRTIO = re.compile(r"(virtio\d+)(?![0-9])", re.ASCII)


def virtio(irq):
    """Name of the virtio device that an action names ("virtio3-req.0" gives "virtio3"), or None."""
    for action in irq.actions:
        match = _VIRTIO.match(action)
        if match:
            return match.group(1)
    return None
