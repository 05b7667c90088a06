# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tar of a host's sys/ and proc/, read once into memory and looked at as if it were a folder (see tree.py).

Only regular files, folders and links are taken. What a member claims is believed no further than the limits below: a file
that says it is larger is remembered as too large and skipped. Names cannot leave the archive: a leading "/" is dropped and a
member with ".." in its name is ignored.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import tarfile
import zlib

from ..model.errors import HostprepError
from .tree import INTERRUPTS, LARGE, Unreadable, reason

MAX_MEMBERS = 1000000
MAX_TOTAL = 512 * 1024 * 1024  # bytes of files kept
MAX_STREAM = 1024 * 1024 * 1024  # bytes read, after unpacking
_OPENERS = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open), (b"BZh", bz2.open))
_ALLOWED = "a .tar, .tar.gz, .tar.xz or .tar.bz2 that holds sys/ and proc/"
_BROKEN = (
    tarfile.TarError,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    ValueError,
    LookupError,
    OverflowError,
    RecursionError,
    MemoryError,
)
_FOLDER = object()


class _Link(str):
    """Target of a symbolic link."""


class _Refused(str):
    """Why a member was not taken."""


class Archive:
    """The store behind a Tree whose root is a tar file."""

    def __init__(self, path):
        self._nodes = {"": _FOLDER}  # path -> bytes, _Link, _Refused or _FOLDER
        self._children = {"": set()}
        self._top = ""
        self._load(path)

    def _load(self, path):
        try:
            with open(path, "rb") as raw:
                magic = raw.read(6)
                raw.seek(0)
                opener = next((opener for start, opener in _OPENERS if magic.startswith(start)), None)
                if opener is None:
                    self._members(tarfile.open(fileobj=_Limited(raw, path), mode="r:"), path)
                else:
                    with opener(raw, "rb") as unpacked:
                        self._members(tarfile.open(fileobj=_Limited(unpacked, path), mode="r|", bufsize=1 << 18), path)
        except HostprepError:
            raise
        except OSError as error:
            if error.errno is not None:
                raise HostprepError(
                    "root_unreadable",
                    "the root cannot be read",
                    read="%s (%s)" % (path, reason(error)),
                    allowed=_ALLOWED,
                    cure="correct root or its permissions",
                ) from None
            raise _not_archive(path, error) from None
        except _BROKEN as error:
            raise _not_archive(path, error) from None

    def _members(self, archive, path):
        total = 0
        count = 0
        with archive:
            for member in archive:
                count += 1
                if count > MAX_MEMBERS:
                    raise _too_large(path, "more than %d members" % MAX_MEMBERS)
                archive.members = []  # tarfile keeps every header it has seen; hard links are resolved here instead
                name = _clean(member.name)
                if name is None:
                    continue
                if member.isdir():
                    self._folder(name)
                elif member.issym():
                    self._add(name, _Link(member.linkname))
                elif member.islnk():
                    other = _clean(member.linkname)
                    self._add(
                        name, self._nodes.get(other, _Refused("dangling link")) if other else _Refused("dangling link")
                    )
                elif not member.isreg():
                    self._add(name, _Refused("not a regular file"))
                elif member.size > (INTERRUPTS if name.endswith("proc/interrupts") else LARGE):
                    self._add(name, _Refused("too large: %d bytes" % member.size))
                else:
                    total += member.size
                    if total > MAX_TOTAL:
                        raise _too_large(path, "more than %d MiB of files" % (MAX_TOTAL >> 20))
                    content = archive.extractfile(member).read()
                    if len(content) != member.size:
                        raise _not_archive(path, "%s is cut short" % name)
                    self._add(name, content)

    def _folder(self, path):
        missing = []
        while path not in self._children:
            missing.append(path)
            path = path.rpartition("/")[0]
        for path in reversed(missing):
            parent, _slash, name = path.rpartition("/")
            self._children[parent].add(name)
            self._children[path] = set()
            self._nodes[path] = _FOLDER

    def _add(self, path, node):
        parent, _slash, name = path.rpartition("/")
        self._folder(parent)
        if path not in self._children:
            self._children[parent].add(name)
            self._nodes[path] = node

    # -- what Tree calls -----------------------------------------------------------------------------------------------

    def enter(self, name):
        self._top = name + "/"

    def _node(self, path):
        try:
            return self._nodes[(self._top + path).rstrip("/")]
        except KeyError:
            raise Unreadable("missing") from None

    def place(self, _path):
        """No file of an archive lies anywhere that could be written to."""
        return None

    def link(self, path):
        node = self._node(path)
        return str(node) if isinstance(node, _Link) else None

    def entries(self, path):
        if self._node(path) is not _FOLDER:
            raise Unreadable("missing")
        where = (self._top + path).rstrip("/")
        prefix = where + "/" if where else ""
        return [(name, "dir" if self._nodes[prefix + name] is _FOLDER else "other") for name in self._children[where]]

    def read(self, path, limit):
        node = self._node(path)
        if isinstance(node, _Link):
            return None
        if node is _FOLDER:
            raise Unreadable("not a regular file")
        if isinstance(node, _Refused):
            raise Unreadable(str(node))
        if len(node) > limit:
            raise Unreadable("too large: %d bytes, at most %d are read" % (len(node), limit))
        return node


class _Limited:
    """A stream that refuses to give, or to unpack, without end."""

    def __init__(self, stream, path):
        self._stream = stream
        self._path = path
        self._left = MAX_STREAM
        self.seek = stream.seek
        self.tell = stream.tell

    def read(self, size):
        if size > self._left:
            raise _too_large(self._path, "more than %d MiB to read" % (MAX_STREAM >> 20))
        chunk = self._stream.read(size)
        self._left -= len(chunk)
        return chunk


def _clean(name):
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in name:
        return None
    return "/".join(parts)


def _not_archive(path, error):
    why = str(error)[:120] or type(error).__name__
    return HostprepError(
        "root_not_archive",
        "the root is a file but not a whole tar archive",
        read="%s (%s)" % (path, why),
        allowed=_ALLOWED,
        cure="give a folder, or make the archive again",
    )


def _too_large(path, why):
    return HostprepError(
        "root_too_large",
        "the archive is too large to be read into memory",
        read="%s (%s)" % (path, why),
        allowed=_ALLOWED,
        cure="unpack it and give the folder as root",
    )
