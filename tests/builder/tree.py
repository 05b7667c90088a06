# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file tree in memory, written to a folder or a .tar in one sorted pass, so that one spec gives the same bytes each time."""

from __future__ import annotations

import fnmatch
import io
import os
import tarfile
from pathlib import Path

from .spec import SpecError

MOST_LINKS = 60000  # ext4 allows 65,000 names of one file


class Link(str):
    """The target of a symbolic link."""


class Folder:
    """An empty folder."""


class Tree:
    """Paths relative to the root, with text (a newline is added by `line`), Link or Folder."""

    def __init__(self):
        self.entries = {}

    def text(self, path, content):
        self.entries[path] = content

    def line(self, path, value):
        self.entries[path] = f"{value}\n"

    def folder(self, path):
        self.entries.setdefault(path, Folder)

    def link(self, path, target):
        """A relative link at `path` to `target`, which is a path below the root."""
        mine, other = path.split("/")[:-1], target.split("/")
        same = 0
        while same < min(len(mine), len(other) - 1) and mine[same] == other[same]:
            same += 1
        self.entries[path] = Link("/".join([".."] * (len(mine) - same) + other[same:]))

    def remove(self, pattern):
        """Takes away what matches a shell pattern, and everything below it; says whether anything did. **/name is name anywhere."""
        depth = pattern.count("/") + 1
        if pattern.startswith("**/"):
            gone = [
                path for path in self.entries if any(fnmatch.fnmatchcase(part, pattern[3:]) for part in path.split("/"))
            ]
        else:
            gone = [
                path
                for path in self.entries
                if path.count("/") + 1 >= depth and fnmatch.fnmatchcase("/".join(path.split("/")[:depth]), pattern)
            ]
        for path in gone:
            del self.entries[path]
        return bool(gone)

    def write(self, dest, share=False):
        dest = Path(dest)
        if dest.name.endswith((".tar", ".tar.xz")):
            self._write_tar(dest)
        else:
            self._write_folder(dest, share)
        return dest

    def _write_folder(self, dest, share):
        if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
            raise SpecError(f"{dest} is not an empty folder: give a new path, or remove it")
        dest.mkdir(parents=True, exist_ok=True)
        made = {""}
        first, names = {}, {}
        top = str(dest) + "/"
        for path, content in sorted(self.entries.items()):
            parent = path.rpartition("/")[0]
            if parent not in made:
                os.makedirs(top + parent, exist_ok=True)
                while parent not in made:
                    made.add(parent)
                    parent = parent.rpartition("/")[0]
            if isinstance(content, Link):
                os.symlink(content, top + path)
            elif content is Folder:
                os.makedirs(top + path, exist_ok=True)
                made.add(path)
            elif share and content in first and names[content] < MOST_LINKS:
                os.link(first[content], top + path)
                names[content] += 1
            else:
                first[content], names[content] = top + path, 1
                handle = os.open(top + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                try:
                    os.write(handle, content.encode())
                finally:
                    os.close(handle)

    def _write_tar(self, dest):
        dest.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(dest, "w:xz" if dest.suffix == ".xz" else "w") as archive:
            for path, content in sorted(self.entries.items()):
                member = tarfile.TarInfo(path)
                member.mode = 0o644
                data = b""
                if isinstance(content, Link):
                    member.type, member.linkname = tarfile.SYMTYPE, content
                elif content is Folder:
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                else:
                    data = content.encode()
                    member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
