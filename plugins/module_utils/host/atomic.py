# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace, make and remove files so that all of them change or none, and whoever reads meanwhile sees whole files.

Everything that needs room or rights is done beside the files first: the new ones, and a copy of each old one. Then nothing but
renames is left. Where one of them fails, those that were done are undone from the copies.

A file is plain data, {"data": bytes, "mode", "uid", "gid", "xattrs": {name: bytes}, "mtime_ns"}; only ``data`` and ``mode`` must be
there. A link is {"link": target}, nothing is None. A change is {"path", "old", "new"} of those. Failures are OSError as the system
gives them; NotRestored (an OSError too) where even undoing failed, with the paths and the copies that were left.
"""

from __future__ import annotations

import hashlib
import os
import stat

HOME = "/var/lib/lo0.rke2_hostprep"  # of the records on a host, and of the plan that it keeps
RECORD = "owned.json"  # in that folder: what host_files owns
TOKEN = "hostprep"  # in the names of helper files
LONGEST = 190  # of a file name, so that what is put around it fits into 255 bytes


class NotRestored(OSError):
    """Undoing failed too. ``left``: [(path, its old file's copy or None)]."""

    def __init__(self, error, left):
        super().__init__(error.errno, error.strerror)
        self.left = left


def beside(path, kind):
    """The name of a helper file in the same folder: hidden, and with an ending that no program reads its configuration from."""
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) > LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return os.path.join(folder, ".%s.%s~" % (name, kind))


def read(path, limit=None):
    """What is at a path, as plain data with ``nlink``, ``id`` (changes with every write) and ``kind``: None, file, link, folder or other.

    Nothing is followed, and a file larger than ``limit`` has ``data`` None.
    """
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(found.st_mode):
        return {"kind": "link", "link": os.readlink(path)}
    if not stat.S_ISREG(found.st_mode):
        return {"kind": "folder" if stat.S_ISDIR(found.st_mode) else "other"}
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        found = os.fstat(handle)
        data = None if limit is not None and found.st_size > limit else stream.read()
    return {
        "kind": "file",
        "data": data,
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime_ns": found.st_mtime_ns,
        "xattrs": _xattrs(path),
        "nlink": found.st_nlink,
        "id": _identity(found),
    }


def identity(path):
    """The ``id`` that ``read`` would give now; None where there is nothing."""
    try:
        return _identity(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _identity(found):
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _xattrs(path):
    """Extended attributes (SELinux context, ACLs, capabilities); those that cannot be read are not there."""
    found = {}
    if hasattr(os, "listxattr"):  # Linux
        try:
            for name in os.listxattr(path, follow_symlinks=False):
                found[name] = os.getxattr(path, name, follow_symlinks=False)
        except OSError:
            pass
    return found


def write_new(path, file):
    """Makes a file that is not there yet and waits until the disk has it. Attributes that the file system lacks are left out."""
    if "link" in file:
        os.symlink(file["link"], path)
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(file["data"])
        while left:
            left = left[os.write(handle, left) :]
        if file.get("uid") is not None:
            os.fchown(handle, file["uid"], file["gid"])
        os.fchmod(handle, file["mode"])
        for name, value in (file.get("xattrs") or {}).items():
            try:
                os.setxattr(handle, name, value)
            except OSError:  # another file system, or a security module that does not allow it
                pass
        if file.get("mtime_ns") is not None:
            os.utime(handle, ns=(file["mtime_ns"], file["mtime_ns"]))
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path):
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path):
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def replace(changes, token, check=None):
    """Carries out all changes or none. ``token`` is part of the helper files' names; ``check()`` is called before the first rename."""
    helpers, done = [], []
    try:
        for change in changes:
            for kind, file in (("new", change["new"]), ("old", change["old"])):
                if file is not None:
                    helper = beside(change["path"], kind + "-" + token)
                    helpers.append(helper)
                    remove(helper)  # of a run that was killed
                    write_new(helper, file)
        if check:
            check()
        for change in changes:
            path = change["path"]
            done.append(change)  # before it is tried: undoing what did not happen does no harm
            if change["new"] is None:
                os.unlink(path)
            else:
                os.rename(beside(path, "new-" + token), path)
        for folder in sorted({os.path.dirname(change["path"]) for change in changes}):
            sync_folder(folder)
    except Exception as error:
        left = _undo(done, token)
        kept = {copy for _path, copy in left}
        for helper in helpers:
            if helper not in kept:
                _try(remove, helper)
        if left:
            raise NotRestored(error if isinstance(error, OSError) else OSError(str(error)), left) from error
        raise
    for helper in helpers:
        _try(remove, helper)


def _undo(done, token):
    left = []
    for change in reversed(done):
        path = change["path"]
        copy = beside(path, "old-" + token) if change["old"] is not None else None
        try:
            if copy:
                os.rename(copy, path)
            else:
                remove(path)
        except OSError:
            left.append((path, copy))
    for folder in sorted({os.path.dirname(change["path"]) for change in done}):
        _try(sync_folder, folder)
    return left


def _try(action, path):
    try:
        action(path)
    except OSError:
        pass


def write_one(path, data, mode, token):
    """Replaces or makes one file; the folder must be there."""
    helper = beside(path, "new-" + token)
    remove(helper)
    try:
        write_new(helper, {"data": data, "mode": mode})
        os.rename(helper, path)
    except OSError:
        _try(remove, helper)
        raise
    sync_folder(os.path.dirname(path))
