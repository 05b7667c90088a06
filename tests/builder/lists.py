# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's two ways to print a set of CPUs. Written apart from the collection's own list arithmetic, so that one can test the other."""

from __future__ import annotations


def expand(text):
    """Sorted ids of a list string ("0-1,32-33"); raises ValueError on anything else."""
    ids = set()
    for item in str(text).split(","):
        if not item.strip() and "," not in str(text):
            break
        first, dash, last = item.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(text)
        low, high = int(first), int(last or first)
        if high < low or high > 65535:
            raise ValueError(text)
        ids.update(range(low, high + 1))
    return sorted(ids)


def compress(ids):
    """List string of ids, as "%*pbl" prints it; "" for none."""
    out = []
    start = last = None
    for number in [*sorted(ids), None]:
        if last is not None and number == last + 1:
            last = number
            continue
        if last is not None:
            out.append(str(start) if start == last else f"{start}-{last}")
        start = last = number
    return ",".join(out)


def mask(ids, bits):
    """Hex mask of ids over `bits` CPUs, as "%*pb" prints it: groups of eight digits, the first only as wide as it must be."""
    value = 0
    for number in ids:
        value |= 1 << number
    digits = f"{value:0{(bits + 3) // 4}x}"
    head = len(digits) % 8
    groups = [digits[:head]] if head else []
    groups += [digits[i : i + 8] for i in range(head, len(digits), 8)]
    return ",".join(groups)


def chunks(count, parts):
    """Index of the part of each of `count` things that are dealt, in order, to `parts` parts of sizes as equal as can be."""
    return [i * parts // count for i in range(count)]
