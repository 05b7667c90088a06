# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU list arithmetic: the kernel's list format ("0-1,32-33"), its hex masks ("00000003,00000003") and sets of CPU ids.

List format: Documentation/core-api/kernel-api ("bitmap_parselist"), restricted to what the kernel prints itself: ids and
ranges joined by commas. ``N``, ``all`` and strides (``0-31:2/4``) are refused, because the kubelet and irqbalance do not
read them. Mask format: 32-bit groups, most significant first, joined by commas, as in /proc/irq/*/smp_affinity.

Functions take a list string, or any iterable of ids, wherever the argument is called ``cpus``.
"""

from __future__ import annotations

import functools
import re

from .errors import HostprepError

MAX_CPU = 65535  # far above the kernel's largest NR_CPUS (8,192); bounds the memory a hostile "0-4294967295" could take
_ITEM = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
_GROUP = re.compile(r"[0-9a-fA-F]+\Z", re.ASCII)
_ALLOWED = "CPU ids and ranges joined by commas, such as 0-1,32-33, up to id %d" % MAX_CPU


def _refuse(text, why):
    shown = str(text)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return HostprepError(
        "cpulist_invalid", "not a CPU list: " + why, read=repr(shown), allowed=_ALLOWED, cure="correct the list"
    )


def expand(text):
    """Sorted list of CPU ids of a list string. "" (and white space alone) is the empty list. Raises HostprepError."""
    if not isinstance(text, str):
        ids = list(text)
        if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) > MAX_CPU:
            ids = _ids(ids)  # one by one, to refuse the first that is wrong
        return sorted(set(ids))
    return list(_parsed(text))


@functools.lru_cache(maxsize=1024)  # a host has the same few lists for each of its interrupts and CPUs
def _parsed(text):
    text = text.strip()
    if not text:
        return ()
    ids = set()
    for item in text.split(","):
        found = _ITEM.match(item.strip())
        if not found:
            raise _refuse(text, "%r is neither an id nor a range" % item[:40])
        first = int(found.group(1))
        last = first if found.group(2) is None else int(found.group(2))
        if last < first:
            raise _refuse(text, "the range %s runs backwards" % item)
        if last > MAX_CPU:
            raise _refuse(text, "id %d is too large" % last)
        ids.update(range(first, last + 1))
    return tuple(sorted(ids))


def _ids(values):
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            try:
                value = int(str(value), 10)
            except ValueError:
                raise _refuse(value, "an id must be a whole number") from None
        if value < 0 or value > MAX_CPU:
            raise _refuse(value, "an id lies between 0 and %d" % MAX_CPU)
        yield value


def compress(cpus):
    """The canonical list string: sorted, ranges joined ("0-1,32-33"); "" for none."""
    ranges = []
    for cpu in expand(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in ranges)


def union(*lists):
    ids = set()
    for cpus in lists:
        ids.update(expand(cpus))
    return compress(ids)


def minus(cpus, *others):
    ids = set(expand(cpus))
    for other in others:
        ids.difference_update(expand(other))
    return compress(ids)


def intersect(cpus, *others):
    ids = set(expand(cpus))
    for other in others:
        ids.intersection_update(expand(other))
    return compress(ids)


def to_mask(cpus):
    """Hex mask in groups of eight digits: "0,33" gives "00000002,00000001"; "" gives "00000000"."""
    value = 0
    for cpu in expand(cpus):
        value |= 1 << cpu
    digits = "%x" % value
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    return ",".join(digits[i : i + 8] for i in range(0, len(digits), 8))


def from_mask(text):
    """List string of a hex mask; groups after the first count 32 bits each, a leading 0x is accepted. Raises HostprepError."""
    shown = str(text).strip()
    body = shown[2:] if shown[:2] in ("0x", "0X") else shown
    groups = body.split(",")
    value = 0
    for index, group in enumerate(groups):
        if not _GROUP.match(group) or (len(groups) > 1 and len(group) > 8) or len(group) > (MAX_CPU + 1) // 4:
            raise HostprepError(
                "cpumask_invalid",
                "not a CPU mask",
                read=repr(shown[:80]),
                allowed="hex digits in comma-separated groups of up to eight, such as 00000003,00000003",
                cure="correct the mask",
            )
        if len(groups) > (MAX_CPU + 1) // 32:
            raise HostprepError(
                "cpumask_invalid",
                "the CPU mask is too long",
                read="%d groups" % len(groups),
                allowed="%d groups of 32 bits" % ((MAX_CPU + 1) // 32),
                cure="correct the mask",
            )
        value = (value << (32 if index else 0)) | int(group, 16)
    ids = []
    base = 0
    while value:
        chunk = value & 0xFFFFFFFF
        if chunk:
            ids.extend(base + bit for bit in range(32) if chunk >> bit & 1)
        value >>= 32
        base += 32
    return compress(ids)
