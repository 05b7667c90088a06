# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of each boot loader on a host: what the next boot will be given, what they become, and which entry is booted once.

Texts are made in model/boot_text.py. Files are replaced all or none (atomic.py). Two are not simply replaced: grub.cfg is what
grub-mkconfig prints into another file, looked at before it takes the old one's place, since grub-mkconfig itself empties grub.cfg before
it fills it; and GRUB's environment block is written over in place, as GRUB does.

GRUB reads file systems without replaying their journals. What a program has synchronised may so be invisible to it until the journal
is written back, which takes seconds to minutes: after a power cut it would see the files as they were, or, where the old file's blocks
were given to another, neither. So each write is followed by `settle`.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile

from ..model import boot_text
from ..model.errors import HostprepError
from . import atomic, boot_args, files, units
from .tree import Tree

_GRUB = {"debian": "boot/grub/", "sles": "boot/grub2/", "el": "boot/grub2/"}
PROBE = {"debian": "grub-probe", "sles": "grub2-probe", "el": "grub2-probe"}
_CMDLINE = "etc/kernel/cmdline"
TOKEN = "hostprep-boot"  # in the names of helper files


# EXT4_IOC_CHECKPOINT (Documentation/filesystems/ext4/journal.rst, since 5.15) and BTRFS_IOC_SYNC, as numbers of x86, arm64 and s390.
_CHECKPOINTS = ((0x4004662B, struct.pack("I", 0)), (0x9408, b""))


def settle(folder):
    """Has a file system put into place what its journal holds. Where it knows no such call (FAT has no journal, XFS), nothing."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for number, argument in _CHECKPOINTS:
            try:
                fcntl.ioctl(handle, number, argument)
                return
            except OSError:
                continue
    finally:
        os.close(handle)


class Texts:
    """Text files below a root, by path without a leading slash; what is no UTF-8 survives."""

    def __init__(self, root):
        self.root = root
        self._found = {}
        self._where = {}
        self._missing = {}

    def get(self, path):
        """The text, None where there is no file. Refuses links in its place and what cannot be read."""
        if path not in self._found:
            self._where[path], self._missing[path] = self.root.resolve("/" + path)
            self._found[path] = files.look(self.root, self._where[path])
        found = self._found[path]
        return None if found is None else found["data"].decode("utf-8", "surrogateescape")

    def forget(self):
        self._found.clear()

    def replace(self, wanted, like=None):
        """Makes {path: text or None} so, all or none. A new file has the mode of the file `like` (0644 without)."""
        changes, folders = [], set()
        for path, text in sorted(wanted.items()):
            self.get(path)
            old = self._found[path]
            new = None
            if text is not None:
                model = old or (self._found.get(like) if like and self.get(like) is not None else None)
                new = {"data": text.encode("utf-8", "surrogateescape"), "mode": model["mode"] if model else 0o644}
                if old:
                    new.update(uid=old["uid"], gid=old["gid"], xattrs=old["xattrs"])
                folders.update(self._missing[path])
            if old is not None or new is not None:
                changes.append({"path": self.root.at(self._where[path]), "old": old, "new": new})
        held = []
        try:
            # the blocks of an old file are nobody else's until what replaced it is in place
            held += [os.open(one["path"], os.O_RDONLY | os.O_CLOEXEC) for one in changes if one["old"] is not None]
            for folder in sorted(folders):
                os.mkdir(self.root.at(folder))
                os.chmod(self.root.at(folder), 0o755)
            atomic.replace(changes, TOKEN, lambda: self._unchanged(wanted))
            for folder in sorted({os.path.dirname(one["path"]) for one in changes}):
                settle(folder)
        except atomic.NotRestored as error:
            raise HostprepError(
                "boot_not_restored",
                "files of the boot loader could not be written, and not all could be put back",
                read="%s: %s" % (error.strerror or error, ", ".join(path for path, _copy in error.left)),
                allowed="a writable file system with room",
                cure="look at them before the next reboot (docs/kernel_cmdline.md says what was written)",
            ) from error
        except OSError as error:
            raise HostprepError(
                "boot_files_not_written",
                "files of the boot loader could not be written; they are as they were",
                read="%s: %s" % (", ".join("/" + path for path in sorted(wanted)), error.strerror or error),
                allowed="a writable file system with room",
                cure="free space or repair the file system, and run again",
            ) from error
        finally:
            for handle in held:
                os.close(handle)
            self.forget()

    def missing(self, paths):
        """Folders that `replace` would make for these."""
        for path in paths:
            self.get(path)
        return sorted({folder for path in paths for folder in self._missing[path]})

    def drop(self, folders):
        """Removes folders that were made for files that are gone, unless someone put something into them."""
        for folder in sorted(folders, reverse=True):
            try:
                os.rmdir(self.root.at(folder))
            except OSError as error:
                if error.errno not in files.NOT_OURS:
                    raise _not_removed(folder, error) from error

    def tidy(self, folders):
        """Removes helper files of a run that was killed; nobody else's have such names."""
        for folder in folders:
            try:
                place = self.root.at(self.root.resolve("/%s/x" % folder)[0].rpartition("/")[0])
                for name in os.listdir(place):
                    if name.startswith(".") and name.endswith("-%s~" % TOKEN):
                        os.unlink(os.path.join(place, name))
            except OSError:
                pass

    def _unchanged(self, wanted):
        for path in wanted:
            if atomic.identity(self.root.at(self._where[path])) != (self._found[path] or {}).get("id"):
                raise OSError("/%s was changed by someone else meanwhile" % path)

    def over(self, path, data):
        """Writes bytes over a file's, in place and at once."""
        where, _missing = self.root.resolve("/" + path)
        try:
            handle = os.open(self.root.at(where), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(handle, data, 0)
                os.fsync(handle)
            finally:
                os.close(handle)
            settle(os.path.dirname(self.root.at(where)))
        except OSError as error:
            raise HostprepError(
                "boot_files_not_written",
                "GRUB's environment block could not be written",
                read="/%s: %s" % (path, error.strerror or error),
                allowed="a writable file system",
                cure="repair the file system, and run again",
            ) from error
        self.forget()


class Loader:
    """One boot loader of a host. ``kernel`` is the release that is tried or committed, None for any; ``kernels`` are installed."""

    def __init__(self, root, tree, backend, kernel, timeout):
        self.root, self.tree, self.backend, self.kernel, self.timeout = root, tree, backend, kernel, timeout
        self.texts = Texts(root)
        self.grub = _GRUB.get(backend)
        self.kernels = [
            name for name in tree.listdir("lib/modules") or [] if tree.exists("lib/modules/%s/modules.dep" % name)
        ]
        self.folder = self._entry_folder()
        self.source = self.folder or self.grub + "grub.cfg"  # of what is booted

    def made_from_sources(self):
        """Whether what is booted is generated (grub.cfg), and can be older than its sources."""
        return self.folder is None

    def waits(self):
        """(path, line) by which the boot loader waits for a key; None where it goes on by itself."""
        path = self.grub + "grub.cfg" if self.grub else self.folder[: -len("entries")] + "loader.conf"
        line = boot_text.waits(self.tree.read(path) or "")
        return (path, line) if line else None

    def tidy(self):
        self.texts.tidy(
            one
            for one in ("etc/default", "etc/default/grub.d", "etc/kernel", self.grub and self.grub[:-1], self.folder)
            if one
        )

    # -- what is there

    def _entry_folder(self):
        if self.backend == "el":
            return "boot/loader/entries"
        if self.backend != "systemd-boot":
            return None
        for folder in boot_args.ENTRY_FOLDERS:
            for name in boot_args.entry_names(self.tree, folder) or []:
                if boot_text.release_of(self.tree.read("%s/%s" % (folder, name)) or "") in (
                    [self.kernel] if self.kernel else self.kernels
                ):
                    return folder
        return next(
            (folder for folder in boot_args.ENTRY_FOLDERS if self.tree.exists(folder)), boot_args.ENTRY_FOLDERS[0]
        )

    def _entries(self):
        """{file name: text} of the entries of the Boot Loader Specification."""
        names = boot_args.entry_names(self.tree, self.folder) or []
        texts = {name: self.texts.get("%s/%s" % (self.folder, name)) for name in names}
        return {name: text for name, text in texts.items() if text is not None}

    def _grub_cfg(self, text=None):
        text = self.texts.get(self.grub + "grub.cfg") if text is None else text
        if text is None:
            raise _unreadable("/%sgrub.cfg" % self.grub, "missing")
        return text

    def next_boots(self, grub_cfg=None):
        """[[token]] that the entries of the kernel give to it; at least one. grub_cfg: a text in place of the file's."""
        environment = boot_args.environment(self.tree) if self.grub else {}
        if self.folder is None:
            found = boot_text.menu_tokens(self._grub_cfg(grub_cfg), self.kernel, environment)
        else:
            entries = {name: text for name, text in self._entries().items() if not boot_text.trial_name(name)}
            names = [boot_text.running_entry(entries, self.kernel)] if self.kernel else sorted(entries)
            found = [boot_text.entry_tokens(entries[name], environment) for name in names]
        if not found:
            raise HostprepError(
                "entry_unknown",
                "which boot entry boots the kernel cannot be known",
                read="kernel %s; no entry names it" % self.kernel,
                allowed="an entry of the kernel that is not a recovery entry",
                cure="generate the boot loader's files anew, or install that kernel again",
            )
        return found

    def pending_kernel(self):
        """Release that the default entry boots, where that is another; None where it is not known."""
        if self.kernel is None:
            return None
        if self.folder is None:
            return boot_text.pending_kernel(self._grub_cfg(), self.kernel)
        return boot_text.pending_entry(self._entries(), self.kernel, self._default_entries())

    def _default_entries(self):
        """Ids and patterns by which an entry is chosen, in their order; none where the newest is booted."""
        if self.backend == "el":
            saved = dict(boot_text.block_entries(self._block() or b"")).get("saved_entry")
            return (saved,) if saved and saved != "0" else ()
        lines = (self.tree.read(self.folder[: -len("entries")] + "loader.conf") or "").splitlines()
        said = [line.split()[1] for line in lines if line.split()[:1] == ["default"] and len(line.split()) == 2]
        variable = boot_args.loader_variable(self.tree, "LoaderEntryDefault")
        return tuple(([variable] if variable else []) + said[-1:])

    # -- for good

    def permanent(self, tokens, added):
        """What boot_text.changes says of making `tokens` the arguments of every boot."""
        if self.backend == "debian":
            found = {boot_text.DROP_IN: self.texts.get(boot_text.DROP_IN)}
        elif self.backend == "sles":
            found = {"etc/default/grub": self.texts.get("etc/default/grub")}
        else:
            found = {"%s/%s" % (self.folder, name): text for name, text in self._entries().items()}
            if self.backend == "systemd-boot":
                found[_CMDLINE] = self.texts.get(_CMDLINE)
        base = self.new_cmdline([], added).split() if tokens and _CMDLINE in found and found[_CMDLINE] is None else ()
        return boot_text.changes(self.backend, found, tokens, added, base, self.kernels)

    def base(self, added):
        """Tokens of the kernel's entry without ours."""
        tokens = list(self.next_boots()[0])
        for token in reversed(added):
            if token in tokens:
                del tokens[len(tokens) - 1 - tokens[::-1].index(token)]
        return tokens

    def expected(self, tokens, added):
        """Tokens of the kernel's entry with these as ours."""
        base = self.base(added)
        end = len(base) - 1 if base and base[-1].startswith(boot_text.MACHINE_ID) else len(base)
        return base[:end] + list(tokens) + base[end:]

    def new_cmdline(self, tokens, added):
        """Text of an /etc/kernel/cmdline; kernel-install adds systemd.machine_id= itself."""
        base = [token for token in self.base(added) if not token.startswith(boot_text.MACHINE_ID)]
        return boot_text.new_cmdline(base, tokens)

    def make_permanent(self, change, accept):
        """Writes what ``permanent`` said. accept(next_boots) raises where that is not to be booted; then all is put back."""
        if self.backend == "el" and self.root.live:
            self._by_grubby(change, accept)
            return
        before = {one["path"]: one["before"] for one in change["files"]}
        after = {one["path"]: one["after"] for one in change["files"]}
        if not change["generate"]:
            self._written_and_accepted(before, after, accept)
            return
        if after:
            self.texts.replace(after)
        now = self._grub_cfg()  # kept: one that a kernel package generates meanwhile is not overwritten with less
        try:
            made = self.generated(change["generate"])
            if made is not None:
                accept(self.next_boots(made))
                if made != now:
                    self.texts.replace({self.grub + "grub.cfg": made})
        except HostprepError:
            if before:
                self.texts.replace(before)
            if (
                self.root.live and self._grub_cfg() != now
            ):  # someone else's, made while our arguments were in its sources
                self.texts.replace({self.grub + "grub.cfg": self.generated(change["generate"])})
            raise

    def _written_and_accepted(self, before, after, accept):
        like = next((path for path in sorted(after) if path.startswith(self.folder)), None)
        self.texts.replace(after, like)
        try:
            accept(self.next_boots())
        except HostprepError:
            self.texts.replace(before)
            raise

    def _by_grubby(self, change, accept):
        """grubby writes; its exit status proves nothing, so the entries are compared with what they must be."""
        try:
            for argv in change["commands"]:
                self._run(argv)
            self.texts.forget()
            for one in change["files"]:
                wanted, found = (
                    boot_text.entry_tokens(text or "") for text in (one["after"], self.texts.get(one["path"]))
                )
                if wanted != found:
                    raise HostprepError(
                        "commit_differs",
                        "a boot entry is not what grubby was to make of it, so all was put back",
                        read="/%s: %s" % (one["path"], " ".join(found)),
                        allowed=" ".join(wanted),
                        cure="compare it with grubby --info=ALL",
                    )
            accept(self.next_boots())
        except HostprepError:
            for argv in change["undo"]:
                units.run(argv, self.timeout)
            self.texts.forget()
            self.texts.replace({one["path"]: one["before"] for one in change["files"]})
            raise

    def generated(self, argv):
        """A grub.cfg of grub-mkconfig's, which looks at its syntax too; None below another root."""
        if not self.root.live:
            return None
        try:
            with tempfile.TemporaryDirectory(prefix="hostprep-") as folder:
                path = os.path.join(folder, "grub.cfg")
                self._run([*argv, "-o", path])
                with open(path, encoding="utf-8", errors="surrogateescape") as stream:
                    return stream.read()
        except OSError as error:
            raise _failed(" ".join(argv), str(error)) from error

    def _run(self, argv):
        code, output = units.run(argv, self.timeout)
        if code != 0:
            ended = "no exit code" if code is None else "exit code %d" % code
            raise _failed(" ".join(argv), "%s: %s" % (ended, " | ".join(units.last(output))))

    # -- once

    def trial(self, tokens, alone, added):
        """{"files": {path: text or None}, "id"} with the trial's entry; tokens None: without one, id None."""
        if self.folder is None:
            path = self.grub + "custom.cfg"
            menu = None
            if tokens is not None:
                grub_cfg = self._grub_cfg()
                if "custom.cfg" not in grub_cfg or boot_text.ONE_SHOT not in grub_cfg:
                    raise HostprepError(
                        "grub_cfg_foreign",
                        "grub.cfg reads no custom.cfg or no %s, so it was not made by grub-mkconfig as it is shipped"
                        % boot_text.ONE_SHOT,
                        read="/%sgrub.cfg" % self.grub,
                        allowed="the scripts 00_header and 41_custom in /etc/grub.d, executable",
                        cure="make them executable and run update-grub, or set accept_untried_arguments: true at the console",
                    )
                menu = boot_text.trial_menu(grub_cfg, self.kernel, tokens, alone, added)
            now = self.texts.get(path)
            new = boot_text.with_trial_menu(now, menu and menu["text"])
            return {"files": {path: new} if new != now else {}, "id": menu and menu["id"]}
        entries = self._entries()
        wanted, chosen = {}, None
        if tokens is not None:
            name = boot_text.running_entry(entries, self.kernel)
            clone = boot_text.trial_entry(name, entries[name], tokens, alone, added)
            wanted, chosen = {clone["name"]: clone["text"]}, clone["id"]
        for name in entries:
            if boot_text.trial_name(name):
                wanted.setdefault(name, None)
        changed = {"%s/%s" % (self.folder, name): text for name, text in wanted.items() if entries.get(name) != text}
        if tokens is not None and self.backend == "systemd-boot" and self.texts.get(_CMDLINE) is None:
            # without it kernel-install copies /proc/cmdline, the trial's too, into the entry of a kernel that comes in
            changed[_CMDLINE] = self.new_cmdline([], added)
        return {"files": changed, "id": chosen}

    def write_trial(self, wanted):
        like = self.grub + "grub.cfg" if self.folder is None else None
        if self.folder is not None:
            names = sorted(self._entries())
            like = "%s/%s" % (self.folder, names[0]) if names else None
        self.texts.replace(wanted, like)

    def selected(self):
        """Id of the entry that is booted once; None for none."""
        if self.backend == "systemd-boot":
            found = boot_args.loader_variable(Tree(self.tree.root), "LoaderEntryOneShot") or ""  # looked at anew
            return (found[: -len(".conf")] if found.endswith(".conf") else found) or None
        block = self._block()
        return dict(boot_text.block_entries(block)).get(boot_text.ONE_SHOT) or None if block else None

    def may_select(self, chosen):
        """Raises HostprepError where ``select`` would: an environment block that is damaged or full."""
        block = self._block() if self.grub else None
        if block is not None:
            boot_text.with_entry(block, boot_text.ONE_SHOT, chosen)

    def select(self, chosen):
        """Has an entry booted once; None: takes that back."""
        if self.backend == "systemd-boot":
            if self.root.live:
                self._run(["bootctl", "set-oneshot", chosen and chosen + ".conf" or ""])
            return
        block = self._block()
        if block is not None:
            self.texts.over(self.grub + "grubenv", boot_text.with_entry(block, boot_text.ONE_SHOT, chosen))

    def _block(self):
        text = self.texts.get(self.grub + "grubenv")
        return None if text is None else text.encode("utf-8", "surrogateescape")


def image(tree, release):
    """(kernel, initramfs or None) of a release, as paths on the host. Raises HostprepError: kexec_failed."""
    kernel = next(
        (path for path in ("boot/vmlinuz-%s" % release, "lib/modules/%s/vmlinuz" % release) if tree.exists(path)), None
    )
    names = ("boot/initrd.img-%s", "boot/initramfs-%s.img", "boot/initrd-%s")
    initramfs = next((path for path in (name % release for name in names) if tree.exists(path)), None)
    if kernel is None:
        raise _failed("kexec", "no /boot/vmlinuz-%s" % release, "kexec_failed")
    return "/" + kernel, initramfs and "/" + initramfs


def kexec_load(tree, release, tokens, timeout):
    """Loads a kernel to be booted next; signatures are checked by the kernel where it can."""
    kernel, initramfs = image(tree, release)
    argv = ["--load", kernel, "--command-line=" + " ".join(tokens)] + (["--initrd=" + initramfs] if initramfs else [])
    for way in (["kexec", "--kexec-file-syscall"], ["kexec", "--kexec-syscall"]):
        code, output = units.run(way + argv, timeout)
        if code == 0:
            return
    raise _failed("kexec", " | ".join(units.last(output)), "kexec_failed")


def kexec_unload(timeout):
    units.run(["kexec", "--unload"], timeout)


def _not_removed(folder, error):
    return HostprepError(
        "boot_files_not_written",
        "a folder that was made for a file of ours could not be removed; the boot loader's files are as asked for",
        read="/%s: %s" % (folder.lstrip("/"), error.strerror or error),
        allowed="a writable file system",
        cure="repair the file system, and run again",
    )


def _failed(what, read, code="boot_command_failed"):
    return HostprepError(
        code,
        "a command of the boot loader failed, and what is booted is as it was",
        read="%s: %s" % (what, read),
        allowed="exit code 0",
        cure="repair what it complains about, and run again",
    )


def _unreadable(path, why):
    return HostprepError(
        "boot_files_unreadable",
        "the boot loader's files cannot be read, so it is not known who sets which argument",
        read="%s: %s" % (path, why),
        allowed="files that the user who runs this may read",
        cure="run as root (become: true)",
    )
