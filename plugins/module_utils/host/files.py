# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converge a set of owned files, units and commands on a host, or give back what was found. What to do is decided in model/owned.py.

The order of a run, each step durable before the next: lock, record and host read, decision, validation, originals kept, record written,
files replaced (all or none), record written, systemd and commands, record written. A run that is killed at any moment leaves a record
that knows every state its files can have, so the next run, or a rollback, goes on from there.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
import time

from ..model import owned
from ..model.errors import HostprepError
from . import atomic, units
from .atomic import HOME, RECORD, TOKEN

LARGEST = 16 * 1024 * 1024
LARGEST_DIFF = 100 * 1024
MOST_LINKS = 40
NOT_OURS = (
    errno.ENOTEMPTY,
    errno.EEXIST,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EBUSY,
)  # a folder in use stays, and is no longer ours


# -- paths below the root -------------------------------------------------------------------------------------------------


class Root:
    """The folder that a host's files are below: "/" or another."""

    def __init__(self, root):
        if not root or not os.path.isabs(root) or not os.path.isdir(root):
            raise HostprepError(
                "files_root_invalid",
                "the root is no folder on this host",
                read=root,
                allowed="/, or the absolute path of a folder with a host's files",
                cure="correct root",
            )
        real = os.path.realpath(root)
        self.live = real == "/"
        self.top = "" if self.live else real

    def at(self, path):
        """Where a path of the host is for us."""
        return self.top + path

    def resolve(self, path):
        """(the path with links in its folders resolved below the root, folders that are missing). The last part is not followed."""
        folders, _slash, name = path[1:].rpartition("/")
        todo = [(part, False) for part in folders.split("/") if part]
        done, missing, links = "", [], 0
        while todo:
            part, linked = todo.pop(0)
            if part in ("", "."):
                continue
            if part == "..":  # of a link's target
                done = done.rpartition("/")[0]
                continue
            step = done + "/" + part
            try:
                found = os.lstat(self.at(step))
            except FileNotFoundError:
                if linked:
                    raise _no_folder(path, step, "a link on the way leads nowhere") from None
                done = step
                missing.append(step)
                continue
            except OSError as error:
                raise _unreadable(step, error) from None
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > MOST_LINKS:
                    raise _no_folder(path, step, "links lead in a circle")
                target = os.readlink(self.at(step))
                if target.startswith("/"):
                    done = ""
                todo = [(word, True) for word in target.split("/")] + todo
                continue
            if not stat.S_ISDIR(found.st_mode):
                raise _no_folder(path, step, "something else is where a folder must be")
            done = step
        return done + "/" + name, missing


def _no_folder(path, step, message):
    return HostprepError(
        "file_folder_invalid",
        "%s of a file to own" % message,
        read="%s for %s" % (step, path),
        allowed="folders, links to folders, or nothing",
        cure="repair the folder, or correct the path",
    )


def _unreadable(path, error):
    return HostprepError(
        "file_unreadable",
        "a file cannot be read",
        read="%s: %s" % (path, error.strerror or error),
        allowed="a file that the user who runs this may read",
        cure="run as root (become: true), or repair the file system",
    )


def look(root, path):
    """What is at a path (resolved), as ``atomic.read`` says; None for nothing. Refuses what cannot be owned."""
    try:
        found = atomic.read(root.at(path), LARGEST)
    except OSError as error:
        raise _unreadable(path, error) from None
    if found is None:
        return None
    if found["kind"] == "link":
        raise HostprepError(
            "file_is_link",
            "a link is where an owned file belongs; it is neither followed nor replaced",
            read="%s leads to %s" % (path, found["link"]),
            allowed="a file, or nothing",
            cure="own the file that it leads to, or remove the link",
        )
    if found["kind"] != "file":
        raise HostprepError(
            "file_not_regular",
            "a %s is where an owned file belongs"
            % ("folder" if found["kind"] == "folder" else "device, pipe or socket"),
            read=path,
            allowed="a file, or nothing",
            cure="move it away, or correct the path",
        )
    if found["nlink"] > 1:
        raise HostprepError(
            "file_hard_linked",
            "a file has more than one name, and replacing it would part them",
            read="%s with %d names" % (path, found["nlink"]),
            allowed="a file with one name",
            cure="make a copy of its own of it (cp and mv)",
        )
    if found["data"] is None:
        raise HostprepError(
            "file_too_large",
            "a file is too large for a configuration file, and is not replaced",
            read="%s with %d bytes" % (path, found["size"]),
            allowed="at most %d bytes" % LARGEST,
            cure="correct the path",
        )
    return found


def state_of(found):
    """The state in the sense of model/owned.py."""
    if found is None:
        return None
    digest = hashlib.sha256(found["data"]).hexdigest()
    return {"sha256": digest, "mode": found["mode"], "uid": found["uid"], "gid": found["gid"]}


# -- the record -----------------------------------------------------------------------------------------------------------


class Store:
    """The record, the originals and the lock, in one folder of the host."""

    NAMES = (RECORD, "originals", "lock")

    def __init__(self, root):
        where, _missing = root.resolve(HOME + "/record")
        self.shown = os.path.dirname(where)
        self.home = root.at(self.shown)
        self.record_path, self.originals, self.lock_path = (os.path.join(self.home, name) for name in self.NAMES)
        self.unlocked = None  # why there is no lock

    def owns(self, path):
        """Whether a path (resolved) is the folder, or what lies in it by our hand: the record, kept bytes, the lock, helper files."""
        if path == self.shown:
            return True
        if not path.startswith(self.shown + "/"):
            return False
        name = path[len(self.shown) + 1 :].partition("/")[0]
        return name in self.NAMES or name.startswith(".")

    def closed(self):
        """The folder where a run could not keep its record, looked at without making anything; None where it could."""
        folder = self.home
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return None if os.access(folder, os.W_OK | os.X_OK) else folder

    def lock(self, wait, make):
        """Takes the lock within ``wait`` seconds. Where it cannot be made, ``unlocked`` says why: enough to look, not to write."""
        until = time.monotonic() + wait
        while True:
            try:
                if make:
                    os.makedirs(self.home, mode=0o755, exist_ok=True)
                handle = os.open(
                    self.lock_path,
                    os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDWR | os.O_CREAT if make else os.O_RDONLY),
                    0o600,
                )
            except OSError as error:
                self.unlocked = error
                return None
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                        os.close(handle)
                        self.unlocked = error
                        return None
                if time.monotonic() >= until:
                    os.close(handle)
                    raise HostprepError(
                        "files_locked",
                        "another run is changing this host",
                        read="%s is still locked after %d seconds" % (self.lock_path, wait),
                        allowed="one run at a time",
                        cure="wait until it has ended and run again",
                    )
                time.sleep(0.1)
            try:
                if os.stat(self.lock_path).st_ino == os.fstat(handle).st_ino:
                    return handle
            except FileNotFoundError:
                pass
            os.close(handle)  # the run before us removed it with everything else

    def load(self):
        try:
            with open(self.record_path, "rb") as stream:
                return owned.check_record(json.loads(stream.read().decode("utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return owned.empty_record()
        except HostprepError as error:
            if error.code == "record_newer":
                raise
            raise self._damaged(error.message) from None
        except OSError as error:
            raise _unreadable(self.record_path, error) from None
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error):
        return HostprepError(
            "record_damaged",
            "the record of owned files is damaged",
            read="%s: %s" % (self.record_path, error),
            allowed="the file as this module wrote it",
            cure="restore it from a backup; or put the files back by hand (their originals lie beside it) and move the folder away",
        )

    def save(self, record):
        atomic.write_one(
            self.record_path, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode("utf-8"), 0o600, TOKEN
        )

    def keep(self, data):
        """Keeps bytes; returns their sha256."""
        digest = hashlib.sha256(data).hexdigest()
        path = os.path.join(self.originals, digest)
        kept = atomic.read(path)
        if kept is None or kept.get("data") != data:
            os.makedirs(self.originals, mode=0o700, exist_ok=True)
            atomic.write_one(path, data, 0o600, TOKEN)
        return digest

    def original(self, path, state):
        """The bytes of a kept original."""
        try:
            kept = atomic.read(os.path.join(self.originals, state["sha256"]))
        except OSError as error:
            raise _unreadable(os.path.join(self.originals, state["sha256"]), error) from None
        data = (kept or {}).get("data")
        if data is None or hashlib.sha256(data).hexdigest() != state["sha256"]:
            raise HostprepError(
                "original_lost",
                "the kept original of a file is gone or damaged; nothing was done",
                read="%s for %s" % (os.path.join(self.originals, state["sha256"]), path),
                allowed="the file as this module kept it",
                cure="restore it from a backup, or put the file back by hand and run again",
            )
        return data

    def leave(self, made):
        """Removes the lock, and the folder where it is empty, after a run that ended with nothing recorded."""
        if made and not os.path.exists(self.record_path):
            _quietly(os.unlink, self.lock_path)
            _quietly(os.rmdir, self.home)

    def tidy(self, record):
        """Removes kept bytes that nothing needs, and the record where nothing is owned. What cannot be removed stays."""
        needed = set()
        for entry in record["files"].values():
            needed.add((entry["original"] or {}).get("sha256"))
            needed.add(entry.get("foreign"))
        try:
            for name in os.listdir(self.originals):
                if name not in needed:
                    os.unlink(os.path.join(self.originals, name))
            if not os.listdir(self.originals):
                os.rmdir(self.originals)
        except OSError:
            pass
        if owned.is_empty(record):
            _quietly(os.unlink, atomic.beside(self.record_path, "new-" + TOKEN))
            _quietly(os.unlink, self.record_path)


# -- one run --------------------------------------------------------------------------------------------------------------


def converge(options, check=False, diff=False):
    """The module's whole work. Returns its result; a failure after the first change is in it as ``error``, one before is raised."""
    wanted = owned.normalise(options)
    root = Root(options["root"] if options.get("root") is not None else "/")
    store = Store(root)
    lock = store.lock(options["lock_timeout"] if options.get("lock_timeout") is not None else 30, make=not check)
    try:
        return _Run(root, store, wanted, check, diff).result()
    finally:
        if lock is not None:
            try:
                store.leave(made=not check)
            finally:
                os.close(lock)


class _Run:
    def __init__(self, root, store, wanted, check, diff):
        self.root, self.store, self.wanted, self.check, self.diff = root, store, wanted, check, diff
        self.record = store.load()
        self.missing = {}  # path -> folders that are not there
        self.now = {}  # path -> what atomic.read gave
        self._resolve()
        recorded = owned.scope(wanted, self.record)[0]
        named = {entry["path"] for entry in wanted["files"] if wanted["state"] == "present"}
        for path in sorted(named | set(recorded)):
            if path not in self.missing:
                again, self.missing[path] = root.resolve(path)
                if again != path:
                    raise _no_folder(path, again, "a link has come into the way")
            self.now[path] = look(root, path)
        self.found = {
            "files": {path: state_of(found) for path, found in self.now.items()},
            "units": units.show(owned.unit_names(wanted, self.record)) if root.live else {},
        }
        self.decision = owned.decide(wanted, self.found, self.record, root.live)
        self.new = {path: self._content(path, target) for path, target in self.decision["files"].items()}
        self._check_places()

    def _resolve(self):
        """Replaces the paths that were given by those on the host, and gives each file its target state."""
        names = {}
        for entry in self.wanted["files"]:
            path, missing = self.root.resolve(entry["path"])
            owned.check_path(path)
            if self.store.owns(path):
                raise HostprepError(
                    "file_path_forbidden",
                    "a file of the record cannot be owned",
                    read=path,
                    allowed="another path than %s, and those of %s in it" % (self.store.shown, ", ".join(Store.NAMES)),
                    cure="choose another place",
                )
            if path in self.missing:
                raise HostprepError(
                    "files_named_twice",
                    "two paths of the set are the same file",
                    read="%s is %s" % (entry["path"], path),
                    allowed="each file once",
                    cure="remove one entry",
                )
            self.missing[path] = missing
            names[entry["path"]] = entry["path"] = path
            entry["target"] = None
            if self.wanted["state"] == "present" and entry["state"] == "present":
                digest = hashlib.sha256(entry["content"]).hexdigest()
                entry["target"] = {"sha256": digest, "mode": entry["mode"], "uid": os.geteuid(), "gid": os.getegid()}
        for unit in self.wanted["units"]:
            for key in ("restart_on", "reload_on"):
                unit[key] = [names.get(path, path) for path in unit[key]]
        for command in self.wanted["commands"]:
            command["when_changed"] = [names.get(path, path) for path in command["when_changed"]]
        for path, missing in self.missing.items():
            taken = set(missing) & set(self.missing)
            if taken:
                raise _no_folder(path, sorted(taken)[0], "another file of the set is where a folder must be")

    def _content(self, path, target):
        """The file to write, as plain data; None to remove."""
        if target is None:
            return None
        if path in self.decision["give_back"][0]:
            original = self.record["files"][path]["original"]
            xattrs = {name: bytes.fromhex(value) for name, value in (original.get("xattrs") or {}).items()}
            file = {"data": self.store.original(path, original), "xattrs": xattrs, "mtime_ns": original.get("mtime_ns")}
        else:
            content = next(entry["content"] for entry in self.wanted["files"] if entry["path"] == path)
            xattrs = {
                name: value
                for name, value in ((self.now[path] or {}).get("xattrs") or {}).items()
                if name == "security.selinux"
            }
            file = {"data": content, "xattrs": xattrs}
        return dict(file, mode=target["mode"], uid=target["uid"], gid=target["gid"])

    def _check_places(self):
        """Refuses folders that cannot be written to, in check mode too."""
        for path in self.new:
            folder = os.path.dirname(path)
            while folder and not os.path.isdir(self.root.at(folder)):
                folder = os.path.dirname(folder)
            if not os.access(self.root.at(folder) or "/", os.W_OK | os.X_OK):
                raise HostprepError(
                    "file_unwritable",
                    "a folder cannot be written to; nothing was done",
                    read=folder or "/",
                    allowed="a folder on a writable file system, and a user with the right to write there",
                    cure="run as root (become: true), or mount it writable",
                )

    def _validate(self):
        for entry in self.wanted["files"]:
            path = entry["path"]
            if (
                not entry["validate"]
                or not self.new.get(path)
                or path in self.decision["give_back"][0]
                or not self.root.live
            ):
                continue
            try:
                with tempfile.TemporaryDirectory(prefix="hostprep-") as folder:
                    candidate = os.path.join(folder, os.path.basename(path))
                    atomic.write_new(candidate, {"data": entry["content"], "mode": 0o600})
                    argv = [word.replace("%s", candidate) for word in entry["validate"]]
                    code, output = units.run(argv, self.wanted["timeout"])
            except OSError as error:
                raise _not_written([path], error, "the candidate for its check") from error
            if code != 0:
                shown = (
                    "no output shown: the file is sensitive" if entry["sensitive"] else " | ".join(units.last(output))
                )
                raise HostprepError(
                    "file_content_invalid",
                    "the command that validates a file does not accept the new content; nothing was done",
                    read="%s: %s: %s" % (path, "no exit code" if code is None else "exit code %d" % code, shown),
                    allowed="content that %s accepts" % entry["validate"][0],
                    cure="correct the content",
                )

    # -- results

    def result(self):
        self._validate()
        actions = self.decision["actions"]
        result = {
            "changed": bool(actions),
            "drift": self.decision["drift"],
            "not_touched": self.decision["not_touched"],
            "root": self.root.top or "/",
        }
        if self.diff:
            result["diff"] = self._diff()
        if self.check:
            if actions and self.store.closed():
                raise _not_kept(
                    self.store.home, PermissionError(errno.EACCES, "cannot write to " + self.store.closed())
                )
            result["would"] = actions
            return result
        done = []
        try:
            if actions or self.decision["bookkeeping"]:
                self._act(done)
            elif self.store.unlocked is None:
                self.store.tidy(self.record)
        except HostprepError as error:
            result["changed"] = bool(done)
            result["error"] = error
            result["output"] = getattr(error, "output", [])
        result["done"] = done
        result["not_done"] = actions[len(done) :]
        return result

    def _act(self, done):
        if self.store.unlocked is not None:
            raise _not_kept(self.store.home, self.store.unlocked)
        actions = self.decision["actions"]
        middle = [index for index, step in enumerate(actions) if "path" in step]
        first, last = (middle[0], middle[-1] + 1) if middle else (0, 0)
        try:
            self._remove_leftovers(self.record)
            record = self._journal()
        except OSError as error:
            self._tidy_unstarted()
            raise _not_kept(self.store.home, error) from error
        record = self._steps(actions[:first], done, record)
        if middle:
            record = self._replace(record)
            done += actions[first:last]
        record = self._keep(owned.written(record, self.wanted, self.decision))
        record = self._steps(actions[last:], done, record)
        if any("unit" in step for step in actions):
            missed = owned.not_as_wanted(
                self.wanted, record, self.decision, units.show(owned.unit_names(self.wanted, self.record))
            )
            if missed:
                raise HostprepError(
                    "unit_not_as_wanted",
                    "systemctl reported success, and %s is not as wanted: %s" % missed,
                    read=missed[0],
                    allowed="a unit that stays as it was set",
                    cure="look at it with systemctl status %s; a oneshot without RemainAfterExit is better started by a command"
                    % missed[0],
                )
        try:
            self._remove_leftovers(record)  # where their removal failed before
            record = owned.settled(record, self.wanted, self.decision)
            record["folders"] = self._remove_folders(record)
            self.store.save(record)
        except OSError as error:
            raise _not_kept(self.store.home, error) from error
        self.store.tidy(record)

    def _keep(self, record):
        try:
            self.store.save(record)
        except OSError as error:
            raise _not_kept(self.store.home, error) from error
        return record

    def _tidy_unstarted(self):
        try:
            self.store.tidy(self.store.load())
        except HostprepError:
            pass

    def _remove_leftovers(self, record):
        """Helper files of a run that was killed. Their names are ours, and we hold the lock."""
        for path in record["files"]:
            for kind in ("new-", "old-"):
                atomic.remove(atomic.beside(self.root.at(path), kind + TOKEN))

    def _journal(self):
        """Keeps the originals, then the record that is true from now on."""
        record = owned.journal(self.wanted, self.found, self.record, self.decision)
        for path in self.decision["files"]:
            entry, now = record["files"][path], self.now[path]
            if path not in self.record["files"] and now is not None:
                xattrs = {name: value.hex() for name, value in now["xattrs"].items()}
                entry["original"] = dict(entry["original"], xattrs=xattrs, mtime_ns=now["mtime_ns"])
                self.store.keep(now["data"])
            elif now is not None and self.found["files"][path] not in self.record["files"][path]["ours"]:
                entry["foreign"] = self.store.keep(now["data"])
        folders = {folder for path, new in self.new.items() if new for folder in self.missing[path]}
        record["folders"] = sorted(set(record["folders"]) | folders)
        self.store.save(record)
        return record

    def _replace(self, record):
        made = []
        changes = [{"path": self.root.at(path), "old": self.now[path], "new": new} for path, new in self.new.items()]
        try:
            for folder in sorted({folder for path, new in self.new.items() if new for folder in self.missing[path]}):
                os.mkdir(self.root.at(folder))
                made.append(self.root.at(folder))
                os.chmod(self.root.at(folder), 0o755)
                atomic.sync_folder(os.path.dirname(self.root.at(folder)))
            atomic.replace(changes, TOKEN, self._check_unchanged)
        except atomic.NotRestored as error:
            left = ", ".join("%s (as it was: %s)" % (path, kept) if kept else path for path, kept in error.left)
            raise HostprepError(
                "files_half_written",
                "files could not be replaced, and some could not be put back either",
                read="%s: %s" % (error.strerror or error, left),
                cure="repair the file system and run again: the record knows both states",
            ) from error
        except (OSError, _Changed) as error:
            for folder in reversed(made):
                _quietly(os.rmdir, folder)
            _quietly(self.store.save, self.record)  # where this fails the journal stays, which is true too
            self._tidy_unstarted()
            if isinstance(error, _Changed):
                raise HostprepError(
                    "file_changed_meanwhile",
                    "someone else changed a file while it was about to be replaced; the files are as they were",
                    read=str(error),
                    allowed="files that keep still during the run",
                    cure="find out who writes it, and run again",
                ) from error
            raise _not_written(sorted(self.new), error, "owned files") from error
        return record

    def _check_unchanged(self):
        for path in self.new:
            if atomic.identity(self.root.at(path)) != (self.now[path] or {}).get("id"):
                raise _Changed(path)

    def _steps(self, steps, done, record):
        for step in steps:
            known = record["units"].get(step.get("unit"))
            if step["action"] == "mask" and known:
                self._learn(record, known, step)
            failure = units.carry_out(step, self.wanted["timeout"])
            if failure and self._is_gone(step):
                self.decision["drift"].append({"unit": step["unit"], "message": owned.GONE})
            elif failure:
                error, lines = failure
                error.output = lines
                raise error
            done.append(step)
            if step["action"] == "unmask" and known:
                self._learn(record, known, step)
        return record

    def _learn(self, record, known, step):
        name = step["unit"]
        if owned.learn(known, step, units.show([name])[name]["enabled"]):
            self._keep(record)

    def _is_gone(self, step):
        """A unit to give back whose mask hid that its package was removed meanwhile."""
        name = step.get("unit")
        if step["action"] not in ("enable", "start") or name not in self.decision["give_back"][1]:
            return False
        return owned.is_gone(self.record["units"][name], units.show([name])[name])

    def _remove_folders(self, record):
        """Removes folders that were made for files that are gone; returns those that are still ours."""
        kept = []
        for folder in sorted(record["folders"], reverse=True):
            if any(path.startswith(folder + "/") for path in record["files"]):
                kept.append(folder)
                continue
            try:
                os.rmdir(self.root.at(folder))
            except OSError as error:
                if error.errno not in NOT_OURS:
                    raise
        return sorted(kept)

    def _diff(self):
        entries = []
        sensitive = {entry["path"] for entry in self.wanted["files"] if entry["sensitive"]}
        sensitive |= {path for path, entry in self.record["files"].items() if entry.get("sensitive")}
        for path, new in self.new.items():
            old = self.now[path]
            entries.append(
                {
                    "before_header": _header(path, old),
                    "after_header": _header(path, new),
                    "before": _shown(old, path in sensitive),
                    "after": _shown(new, path in sensitive),
                }
            )
        before, after = [], []
        for name, now in sorted(self.found["units"].items()):
            actions = [step["action"] for step in self.decision["actions"] if step.get("unit") == name]
            if actions:
                before.append("%s: %s, %s" % ((name,) + owned.unit_after(now, [])))
                after.append("%s: %s, %s" % ((name,) + owned.unit_after(now, actions)))
                after += ["%s: %s" % (name, action) for action in actions if action in ("restart", "reload")]
        for step in self.decision["actions"]:
            if step["action"] == "daemon-reload":
                after.append("systemctl daemon-reload")
            elif step["action"] == "run":
                after.append("run: " + " ".join(step["argv"]))
        if after:
            entries.append(
                {
                    "before_header": "units and commands",
                    "after_header": "units and commands",
                    "before": "".join(line + "\n" for line in before),
                    "after": "".join(line + "\n" for line in after),
                }
            )
        return entries


class _Changed(Exception):
    pass


def _quietly(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        pass


def _not_written(paths, error, what):
    return HostprepError(
        "files_not_written",
        "%s could not be written; all files are as they were" % what,
        read="%s: %s" % (", ".join(paths), error.strerror or error),
        allowed="a writable file system with room",
        cure="free space or repair the file system, and run again",
    )


def _not_kept(home, error):
    return HostprepError(
        "record_unwritable",
        "the record of owned files could not be written",
        read="%s: %s" % (home, error.strerror or error),
        allowed="a writable file system with room, and root's rights",
        cure="free space or run as root (become: true), and run again: what is still missing is then done",
    )


def _header(path, file):
    return "%s (%s)" % (path, "mode %04o, owner %d:%d" % (file["mode"], file["uid"], file["gid"]) if file else "absent")


def _shown(file, sensitive):
    if file is None:
        return ""
    if sensitive:
        return "(content not shown)\n"
    data = file["data"]
    try:
        if len(data) <= LARGEST_DIFF and b"\0" not in data:
            return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    return "(%d bytes, sha256 %s)\n" % (len(data), hashlib.sha256(data).hexdigest())
