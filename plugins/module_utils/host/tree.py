# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the files of one host below a root: the live "/", a folder with a copy of sys/ and proc/, or a tar of one.

Paths are relative to the root, without a leading slash ("sys/devices/system/cpu/online"). Links are resolved inside the root
by this file alone: an absolute target starts at the root again, ".." stops at it, loops and dangling links lead nowhere. The
kernel is never asked to follow a link, so a snapshot cannot make the reader leave its folder.

A Tree is one look at a host: every file is opened at most once and remembered. Make a new Tree to look again.
Nothing here blocks on a FIFO, reads a device, or takes more of a file than the caller's limit.
"""

from __future__ import annotations

import errno
import os
import stat

from ..model.errors import HostprepError

LEAF = 64 * 1024  # one sysfs attribute is a page; some lists of CPUs and PCI binary attributes are a few
LARGE = 8 * 1024 * 1024  # proc/cpuinfo of 1,152 CPUs is about 2 MiB, a kernel configuration 300 KiB
INTERRUPTS = 256 * 1024 * 1024  # 2,048 interrupts on 1,152 CPUs are 26 MiB

_MAX_LINKS = 40  # as the kernel
_MAX_TARGET = 4096
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_UNSEEN = object()


class Unreadable(Exception):
    """Why a file or folder below the root gave nothing; the text ends up in the topology's ``unknown`` list."""


class Tree:
    """The files below one root.

    root   as the user gave it
    live   true when the root is this machine's own "/"
    last   the path that was looked at last, for an error message
    """

    def __init__(self, root="/"):
        self.root = root = os.fspath(root) if isinstance(root, os.PathLike) else root
        self.live = False
        self.last = None
        self._plain = set()  # paths known not to be links
        self._real = {}  # path -> path without links, or None
        self._data = {}  # path -> bytes, or None
        self._why = {}
        self._store = self._open(root)
        self._find_top()

    def _open(self, root):
        if not isinstance(root, str) or not root or "\0" in root:
            raise _refuse("root_missing", "the root is not a path", repr(root))
        try:
            found = os.stat(root)
        except FileNotFoundError:
            raise _refuse("root_missing", "the root does not exist", root) from None
        except (OSError, ValueError) as error:
            raise _refuse("root_unreadable", "the root cannot be read", "%s (%s)" % (root, reason(error))) from None
        if stat.S_ISDIR(found.st_mode):
            self.live = os.path.realpath(root) == "/"
            return _Folder("" if self.live else root.rstrip("/"))
        if stat.S_ISREG(found.st_mode):
            from .archive import Archive  # only snapshots need tarfile and its decompressors

            return Archive(root)
        raise _refuse("root_not_archive", "the root is neither a folder nor a file", root)

    def _find_top(self):
        try:
            names = self._store.entries("")
        except Unreadable as error:
            raise _refuse("root_unreadable", "the root cannot be read", "%s (%s)" % (self.root, error)) from None
        if any(name in ("sys", "proc") for name, _kind in names):
            return
        inner = [name for name, kind in names if kind == "dir"]
        if len(inner) == 1:  # an archiver's single top folder, such as the host's name
            try:
                below = self._store.entries(inner[0])
            except Unreadable:
                below = []
            if any(name in ("sys", "proc") for name, _kind in below):
                self._store.enter(inner[0])
                return
        shown = ", ".join(sorted(name for name, _kind in names)[:5]) or "nothing"
        raise _refuse("root_empty", "the root holds neither sys/ nor proc/", "%s with %s in it" % (self.root, shown))

    # -- what callers use ----------------------------------------------------------------------------------------------

    def real(self, path):
        """The path without links ("sys/devices/pci0000:17/..."), or None where it leads nowhere. It may be a folder or a file."""
        if path in self._plain:
            return path
        hit = self._real.get(path, _UNSEEN)
        if hit is _UNSEEN:
            hit = self._real[path] = self._walk(path)
        return hit

    def _walk(self, path):
        parent, _slash, name = path.rpartition("/")
        done, todo = (parent, [name]) if parent in self._plain else ("", path.split("/")[::-1])
        links = 0
        while todo:
            name = todo.pop()
            if not name or name == ".":
                continue
            if name == "..":
                done = done.rpartition("/")[0]
                continue
            step = done + "/" + name if done else name
            if step not in self._plain:
                try:
                    target = self._store.link(step)
                except Unreadable as error:
                    self._why[path] = "dangling link" if links else str(error)
                    return None
                if target is not None:
                    links += 1
                    if links > _MAX_LINKS or len(target) > _MAX_TARGET:
                        self._why[path] = "link loop"
                        return None
                    if target[:1] == "/":
                        done = ""
                    todo.extend(reversed(target.split("/")))
                    continue
                self._plain.add(step)
            done = step
        return done

    def exists(self, path):
        """True where the path leads to something, readable or not."""
        return self.real(path) is not None

    def listdir(self, path):
        """Names in a folder, sorted; None where there is no such folder."""
        self.last = path
        where = self.real(path)
        if where is None:
            return None
        try:
            entries = self._store.entries(where)
        except Unreadable as error:
            self._why[path] = str(error)
            return None
        prefix = where + "/" if where else ""
        for name, kind in entries:
            if kind == "dir":
                self._plain.add(prefix + name)
        return sorted(name for name, _kind in entries)

    def target(self, path):
        """Text of a link, resolved or not; None where the path is no link. Its last part names a driver or a device."""
        self.last = path
        parent, _slash, name = path.rpartition("/")
        where = self.real(parent)
        if where is None:
            return None
        try:
            return self._store.link(where + "/" + name)
        except Unreadable:
            return None

    def data(self, path, limit=LARGE):
        """Bytes of a regular file without the NULs that archivers pad sysfs files with; None (see ``why``) where there are none."""
        if path in self._data:
            return self._data[path]
        self.last = path
        found = None
        parent, _slash, name = path.rpartition("/")
        where = parent if parent in self._plain else self.real(parent)
        if where is None:
            self._why[path] = self._why.get(parent, "missing")
        else:
            try:
                found = self._store.read(where + "/" + name if where else name, limit)
                if found is None:  # a link
                    where = self.real(path)
                    if where is not None:
                        found = self._store.read(where, limit)
            except Unreadable as error:
                self._why[path] = str(error)
        if found is not None:
            found = found.rstrip(b"\0")
        self._data[path] = found
        return found

    def read(self, path, limit=LARGE):
        """The file as text, white space and NULs stripped at both ends; bytes that are not UTF-8 become U+FFFD."""
        found = self.data(path, limit)
        return None if found is None else found.decode("utf-8", "replace").strip(" \t\r\n\0")

    def place(self, path):
        """Where a file below the root lies on this machine, its folder free of links; None in an archive, or where that folder is not.

        For those who write: they must not follow a link at its end.
        """
        parent, _slash, name = path.rpartition("/")
        where = self.real(parent)
        return None if where is None else self._store.place(where + "/" + name if where else name)

    @property
    def writable(self):
        """Whether this is a folder, not an archive."""
        return self._store.place("") is not None

    def why(self, path):
        """Why ``data``, ``read``, ``listdir`` or ``real`` gave None for this path."""
        return self._why.get(path, "missing")


class _Folder:
    """Files of a folder of this machine."""

    def __init__(self, top):
        self._top = top + "/"

    def enter(self, name):
        self._top += name + "/"

    def place(self, path):
        return self._top + path

    def link(self, path):
        try:
            return os.readlink(self._top + path)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise Unreadable(reason(error)) from None
        except ValueError:
            raise Unreadable("not a path") from None

    def entries(self, path):
        try:
            with os.scandir(self._top + path) as found:
                return [(entry.name, "dir" if entry.is_dir(follow_symlinks=False) else "other") for entry in found]
        except (OSError, ValueError) as error:
            raise Unreadable(reason(error)) from None

    def read(self, path, limit):
        try:
            handle = os.open(self._top + path, _FLAGS)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise Unreadable(reason(error)) from None
        except ValueError:
            raise Unreadable("not a path") from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable("not a regular file")
            size = found.st_size  # sysfs says 4096 and procfs 0 whatever they hold
            if size > limit:
                raise Unreadable("too large: %d bytes, at most %d are read" % (size, limit))
            chunk = os.read(handle, (size if size > 4096 else 4096) + 1)
            if len(chunk) == size:
                return chunk
            chunks = [chunk]
            total = len(chunk)
            while chunk and total <= limit:
                chunk = os.read(handle, min(limit + 1 - total, 1 << 20))
                total += len(chunk)
                chunks.append(chunk)
            if total > limit:
                raise Unreadable("too large: more than %d bytes" % limit)
            return b"".join(chunks)
        except OSError as error:
            raise Unreadable(reason(error)) from None
        finally:
            os.close(handle)


def reason(error):
    number = getattr(error, "errno", None)
    if number in (errno.ENOENT, errno.ENOTDIR):
        return "missing"
    if number is None:
        return "not a path"
    return "unreadable: %s" % os.strerror(number)


def _refuse(code, message, read):
    return HostprepError(
        code,
        message,
        read=read,
        allowed="/, or a folder or .tar[.gz|.xz|.bz2] that holds a host's sys/ and proc/",
        cure="correct root",
    )
