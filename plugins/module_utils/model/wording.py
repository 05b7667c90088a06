# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How names and figures are written for people, wherever they are shown.

Names come from hosts and inventories and may hold anything: ``plain`` makes them harmless in a terminal.
"""

from __future__ import annotations

import re


def plain(text):
    """A string that a terminal cannot misread: control, direction and other unprintable characters as \\x escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in str(text)
    )


def number(value):
    """A figure for people: at most one decimal, none where it is whole; "?" for unknown."""
    if value is None:
        return "?"
    return ("%.1f" % value).rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def count(amount, noun):
    return "%d %s%s" % (amount, noun, "" if amount == 1 else "s")


def host_ranges(names):
    """Host names with runs of numbers folded: ["gpu-01", "gpu-02", "old"] gives "gpu-[01-02],old". Order of first appearance."""
    families = {}
    for name in names:
        parts = re.split(r"([0-9]+)", name)
        families.setdefault("\0".join(parts[0::2]), []).append(parts)
    folded = []
    for members in families.values():
        columns = range(1, len(members[0]), 2)
        varying = [column for column in columns if len({parts[column] for parts in members}) > 1]
        if not varying:
            folded += ["".join(parts) for parts in members]
            continue
        last = varying[-1]
        lines = {}
        for parts in members:
            lines.setdefault((tuple(parts[:last]), tuple(parts[last + 1 :])), []).append(parts[last])
        for (before, after), numbers in lines.items():
            shown = _number_runs(numbers)
            folded.append("".join(before) + ("[%s]" % shown if len(numbers) > 1 else shown) + "".join(after))
    return ",".join(folded)


def _number_runs(numbers):
    """["01", "02", "05"] gives "01-02,05". Numbers join a run only when counting up yields exactly their spelling."""
    runs = []
    for digits in sorted(numbers, key=lambda text: (int(text), len(text))):
        if runs and str(int(runs[-1][1]) + 1).zfill(len(runs[-1][1])) == digits:
            runs[-1][1] = digits
        else:
            runs.append([digits, digits])
    return ",".join(first if first == last else "%s-%s" % (first, last) for first, last in runs)
