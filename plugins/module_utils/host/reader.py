# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed reading of a Tree: what is not there or makes no sense becomes None and an entry in ``unknown``.

unknown[] = {what, path, why}: ``what`` is the place in the topology ("cpus.isolated", "nics.eth0.speed_mbps"; "*" stands for
every item of a list), ``path`` the file below the root, ``why`` a few words. A method called without ``what`` notes nothing:
its caller has another file to try and notes the last one.
"""

from __future__ import annotations

import re

from ..model import cpulist
from ..model.errors import HostprepError
from .tree import LARGE, LEAF

_INTEGER = re.compile(r"[+-]?\d{1,19}\Z", re.ASCII)
_WORD = re.compile(r"[0-9A-Za-z]{1,40}\Z", re.ASCII)
_HEX = re.compile(r"(?:0[xX])?[0-9a-fA-F]{1,16}\Z", re.ASCII)
MAX_UNKNOWN = 2000  # entries; a topology full of rubbish must not grow without end


class Reader:
    """A tree and what could not be known from it."""

    def __init__(self, tree):
        self.tree = tree
        self.unknown = []
        self._noted = set()
        self._lists = {}  # text of a list or mask -> frozenset of ids, or the reason it is none
        self._canonical = {}  # text of a list -> its canonical form

    def note(self, what, path, why):
        """Records one unknown, once."""
        if what is not None and (what, path) not in self._noted and len(self._noted) < MAX_UNKNOWN:
            self._noted.add((what, path))
            self.unknown.append({"what": what, "path": path, "why": why})

    def text(self, path, what=None, limit=LEAF):
        found = self.tree.read(path, limit)
        if found is None:
            self.note(what, path, self.tree.why(path))
        return found

    def word(self, path, what=None):
        """One word of letters and digits ("notsupported", "up", "InfiniBand")."""
        found = self.text(path, what)
        if found is not None and not _WORD.match(found):
            self.note(what, path, "not a word: %s" % shown(found))
            return None
        return found

    def large(self, path, what=None):
        """Text of a file that is more than one value (cpuinfo, a kernel configuration, a routing table)."""
        return self.text(path, what, LARGE)

    def integer(self, path, what=None, low=0, high=2**63 - 1):
        """Decimal number in [low, high]."""
        return self._number(path, what, _INTEGER, 10, low, high)

    def hexadecimal(self, path, what=None, high=2**64 - 1):
        return self._number(path, what, _HEX, 16, 0, high)

    def _number(self, path, what, pattern, base, low, high):
        found = self.text(path, what)
        if found is None:
            return None
        if not pattern.match(found):
            self.note(what, path, "not a number: %s" % shown(found))
            return None
        value = int(found, base)
        if not low <= value <= high:
            self.note(what, path, "out of range: %s" % shown(found))
            return None
        return value

    def cpus(self, path, what=None):
        """frozenset of the CPU ids in a list file ("0-1,32-33"; an empty file is the empty set)."""
        return self._ids(path, what, cpulist.expand)

    def mask(self, path, what=None):
        """frozenset of the CPU ids in a hex mask file."""
        return self._ids(path, what, _of_mask)

    def cpus_or_mask(self, list_path, mask_path, what=None):
        """As ``cpus``, from the mask where the kernel is older than the list file."""
        found = self.cpus(list_path)
        if found is None and self.tree.data(list_path) is None:
            found = self.mask(mask_path)
            if found is None and self.tree.data(mask_path) is not None:
                list_path = mask_path
        if found is None:
            self.note(what, list_path, self.why(list_path))
        return found

    def cpulist(self, list_path, mask_path, what=None):
        """Canonical list string of a list or mask file. Thousands of interrupts share a few lists, so each text is parsed once."""
        text = self.tree.read(list_path, LEAF)
        found = self._canonical.get(text)
        if found is None:
            found = listed(self.cpus_or_mask(list_path, mask_path, what))
            if text is not None and found is not None:
                self._canonical[text] = found
        return found

    def _ids(self, path, what, parse):
        found = self.text(path, what)
        if found is None:
            return None
        key = (parse, found)
        ids = self._lists.get(key)
        if ids is None:
            try:
                ids = frozenset(parse(found))
            except HostprepError:
                ids = "neither a CPU list nor a mask: %s" % shown(found)
            self._lists[key] = ids
        if isinstance(ids, str):
            self.note(what, path, ids)
            return None
        return ids

    def why(self, path):
        """Why this file gave nothing usable."""
        found = self.tree.read(path)
        return self.tree.why(path) if found is None else "makes no sense: %s" % shown(found)


def _of_mask(text):
    return cpulist.expand(cpulist.from_mask(text))


def listed(ids):
    """Kernel list string of a set of ids; None stays None."""
    return None if ids is None else cpulist.compress(ids)


def shown(text):
    """A short, printable form of what a file held."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def printable(text):
    """A name from a file system as plain text: bytes that are no UTF-8 would break the JSON of the caller."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
