# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel arguments on a host: tried once, committed, or taken back. The work of the module kernel_cmdline.

A run brings four things to what its state means: the arguments of every boot, the trial's entry, which entry is booted once, and the
units. Each is compared first and written only where it differs, so a run that was broken off anywhere is simply gone on with. The record
is written before the first of them and again after the last. The order is such that a power cut between any two leaves the old entry as
what is booted, but for the one rename that is the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

from ..model import (
    affinity,
    boot_judge,
    boot_record,
    boot_text,
    boot_units,
    bootloader as loaders,
    cmdline,
    cpulist,
    irqs,
    kernel_args,
    shell_values,
    tpm,
)
from ..model.errors import HostprepError, finding
from . import atomic, boot_args, boot_compare, bootloader, files, kernel, program, units
from .boot_loaders import PROBE, Loader, kexec_load, kexec_unload
from .reader import Reader
from .tree import INTERRUPTS, Tree

KEPT = ("args", "id", "boot_id", "plan", "extras")  # of a trial, by the commit
OWNERS = ("kernel_cmdline", "kernel_cmdline_trial")
WATCHDOG = "systemd.watchdog_sec=180"
LEFT = (
    "/run/lo0.rke2_hostprep/kernel-args.json"  # arguments that were taken back and still run: gone with the next boot
)
ROOM = 1024 * 1024  # beside twice the size of grub.cfg


class Store(files.Store):
    """The record of the boot, with a lock of its own."""

    def __init__(self, root):
        super().__init__(root)
        self.record_path = os.path.join(self.home, "boot.json")
        self.outcome_path = os.path.join(self.home, "boot-outcome.json")
        self.lock_path = os.path.join(self.home, "boot.lock")

    def load(self):
        try:
            with open(self.record_path, "rb") as stream:
                return boot_record.check(json.loads(stream.read().decode("utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return boot_record.empty()
        except OSError as error:
            raise HostprepError(
                "boot_record_unreadable",
                "the record of this host's boot cannot be read",
                read="%s: %s" % (self.record_path, error.strerror or error),
                allowed="a file that the user who runs this may read",
                cure="run as root (become: true)",
            ) from None
        except ValueError as error:
            if isinstance(error, HostprepError):
                raise
            boot_record.check(None)

    def save(self, record):
        try:
            super().save(record)
        except OSError as error:
            raise HostprepError(
                "record_unwritable",
                "the record of this host's boot could not be written",
                read="%s: %s" % (self.record_path, error.strerror or error),
                allowed="a writable file system with room, and root's rights",
                cure="free space or run as root (become: true), and run again",
            ) from error

    def remove(self):
        for path in (atomic.beside(self.record_path, "new-" + files.TOKEN), self.outcome_path, self.record_path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass


def converge(options, check=False, diff=False):
    """The module's whole work. Returns its result; raises HostprepError, with ``result`` where something was found out before."""
    root = files.Root(options["root"] if options.get("root") is not None else "/")
    store = Store(root)
    lock = store.lock(options["lock_timeout"], make=not check)
    try:
        if store.closed() if check else lock is None:
            why = "cannot write to %s" % store.closed() if check else store.unlocked.strerror or store.unlocked
            raise HostprepError(
                "record_unwritable",
                "the record of this host's boot could not be written",
                read="%s: %s" % (store.home, why),
                allowed="a writable file system with room, and root's rights",
                cure="free space or run as root (become: true), and run again",
            )
        return _Run(root, store, options, check, diff).result()
    finally:
        if lock is not None:
            try:
                store.leave(made=not check)
            finally:
                os.close(lock)


class _Run:
    def __init__(self, root, store, options, check, diff):
        self.root, self.store, self.options, self.check, self.diff = root, store, options, check, diff
        self.state = options["state"]
        self.record = store.load()
        self.tree = Tree(root.top or "/")
        self.release = self.tree.read("proc/sys/kernel/osrelease") or ""
        self.boot_id = self.tree.read("proc/sys/kernel/random/boot_id") or ""
        self.tokens = kernel_args.split(self.tree.read("proc/cmdline") or "")
        self.outcome = boot_record.outcome(self.record, self.tokens, self.boot_id)
        self.findings, self.diffs, self.done = [], [], False
        self.loader = self.facts = self.method = self.pending_kernel = None
        self.checks, self.left = [], []

    # -- what is wanted

    def result(self):
        try:
            getattr(self, "_" + self.state)()
        except HostprepError as error:
            error.result = self._result()
            raise
        return self._result()

    def _result(self):
        trial = self.record["trial"]
        pending = self._pending()
        by_kexec = pending and trial and trial["method"] == "kexec" and self.state == "trial"
        result = {
            "changed": self.done,
            "pending_reboot": pending,
            "reboot_command": "systemctl kexec" if by_kexec else None,
            "backend": self.record["backend"] or (self.loader and self.loader.backend),
            "method": trial["method"] if trial else self.method,
            "outcome": self.outcome,
            "history": boot_compare.history(self.root.top),
            "pending_kernel": self.pending_kernel,
            "checks": self.checks,
            "findings": self.findings,
            "root": self.root.top or "/",
        }
        if self.diff:
            result["diff"] = self.diffs
        return result

    def _pending(self):
        if self.state == "absent":
            return any(token in self.tokens for token in self.left)
        return self.outcome["state"] == "pending"

    def _args(self):
        """The arguments that are asked for."""
        args, plan = self.options.get("args"), self.options.get("plan")
        if args is None and plan:
            args = plan.get("kernel_args")
        if args is None and self.state == "committed":
            args = (self.record["trial"] or self.record["committed"] or {"args": None})["args"]
        if not args:
            raise HostprepError(
                "args_missing",
                "no kernel arguments are given" if self.state != "committed" else "there is no trial to be committed",
                read="args and plan are empty" if self.state != "committed" else "no record of a trial",
                allowed="args, or a plan with kernel_args",
                cure="give args or plan; state: absent takes arguments back"
                if self.state != "committed"
                else "run state: trial first",
            )
        return list(args)

    def _open(self, release):
        """Finds out which boot loader it is. Raises HostprepError."""
        self.facts = bootloader.facts(self.tree)
        backend = loaders.choose(self.facts)
        loaders.accept(backend, self.options["accept_untested_backend"])
        self.loader = Loader(self.root, self.tree, backend, release, self.options["timeout"])
        self.pending_kernel = self.loader.pending_kernel()
        if self.pending_kernel:
            self.findings.append(
                finding(
                    "kernel_pending",
                    "an ordinary reboot starts another kernel than the one that is tried",
                    "reboot into it first, or try it with kernel: %s" % self.pending_kernel,
                    "%s, tried: %s" % (self.pending_kernel, release),
                )
            )

    def _trial(self):
        args = self._args()
        trial = self.record["trial"]
        release = self.options.get("kernel") or self.release
        here = trial and trial["args"] == args and trial["kernel"] == release
        self._open(release)
        self._lint(args)
        if (
            trial
            and trial["args"] == args
            and self.record["going"] == "commit"
            and self.outcome["state"] == "as_planned"
        ):
            return self._settle(args)  # the commit was broken off behind the rename that is the commit
        if self._runs_committed(args) and not self.loader.permanent(args, boot_record.ours(self.record))["files"]:
            return self._settle(args)
        if here and self.outcome["state"] == "trial":
            self._judge(trial)
            stuck = self._stuck(trial)
            if self.record["going"] and not self.check:  # it was set, and only the last word of it is missing
                self.record = dict(self.record, going=None)
                self.store.save(self.record)
            if stuck:
                self._step("next_entry", trial["id"], None, lambda: self.loader.select(None))
            return None
        if here and self.outcome["state"] == "fallback" and not self.options["retry_after_fallback"]:
            raise HostprepError(
                "trial_fell_back",
                "these arguments were tried already, and the host came back with its old boot entry",
                read="%s; %s" % (self._tried(trial), self.outcome["read"]),
                allowed="other arguments, or retry_after_fallback: true",
                cure="read the log of that boot (journalctl -b -1, the console), then correct the arguments or try again",
            )
        again = here and self.outcome["state"] == "pending"
        if again and trial["method"] != "untried":  # not booted yet: with other limits it is set anew
            limits = self.options["trial_minutes"], self._extras(args, release)
            again = (trial.get("minutes"), trial["extras"]) == limits
        if not again:
            trial = self._new_trial(args, release)
        if trial["method"] == "untried":
            return self._permanent(args)
        return self._apply(self._kept(), trial)

    def _runs_committed(self, args):
        """Whether these are committed and booted. A trial of others that is set, or that the host fell back from, is given up then."""
        committed, trial = self.record["committed"], self.record["trial"]
        if not committed or committed["args"] != args or (trial and (trial["args"] == args or self.record["going"])):
            return False
        return boot_record.outcome(dict(self.record, trial=None), self.tokens, self.boot_id)["state"] == "as_planned"

    def _tried(self, trial):
        seen = [one["state"] for one in boot_compare.history(self.root.top) if one.get("id") == trial["id"]]
        return "trial %s %s" % (
            trial["id"],
            "was booted and not committed" if "trial" in seen else "was not seen to come up",
        )

    def _kept(self):
        """The arguments of every boot, as they are until a commit."""
        return [] if self.record["going"] == "absent" else list((self.record["committed"] or {"args": []})["args"])

    def _new_trial(self, args, release):
        boot_text.check_limits(self.options["trial_minutes"], self.options["panic_seconds"])
        self._preflight(args, release)
        self._refuse_waiting()
        self.method = self._way(release)
        return {
            "args": args,
            "id": self._id(args, release),
            "boot_id": self.boot_id,
            "kernel": release,
            "method": self.method,
            "extras": self._extras(args, release),
            "minutes": self.options["trial_minutes"],
            "plan": self._judged_by(args),
            "seen": None,
        }

    def _extras(self, args, release):
        more = [WATCHDOG] if self.tree.exists("dev/watchdog0") else []
        return boot_text.extras(self._id(args, release), self.options["panic_seconds"], more)

    def _id(self, args, release):
        """Of these arguments in what follows this boot: the same in check mode and in the run."""
        return hashlib.sha256("\0".join([self.boot_id, release, *args]).encode()).hexdigest()[:12]

    def _present(self):
        args = self._args()
        release = self.options.get("kernel") or self.release
        self._open(release)
        self._lint(args)
        same = self.record["committed"] and self.record["committed"]["args"] == args and self.record["going"] is None
        if not same or self.loader.permanent(args, boot_record.ours(self.record))["files"]:
            if not self.options["accept_untried_arguments"]:
                raise HostprepError(
                    "untried_arguments",
                    "arguments would become those of every boot without having been booted once",
                    read=" ".join(args),
                    allowed="state: trial and then state: committed, or accept_untried_arguments: true",
                    cure="try them first; or stand at the console and accept it",
                )
            self._preflight(args, release)
        self._permanent(args)

    def _permanent(self, args):
        """Writes untried arguments for good."""
        self.method = "untried"
        wanted = self.loader.expected(args, boot_record.ours(self.record))
        entry = {
            "args": args,
            "id": self._id(args, self.loader.kernel),
            "boot_id": self.boot_id,
            "plan": self._judged_by(args),
        }
        now = self.record["committed"]
        if now and now["args"] == args and self.record["trial"] is None and self.record["going"] is None:
            entry = now
        self._apply(args, None, entry, lambda boots: self._refuse_other(wanted, boots, ()), "present")
        self._judge(entry)

    def _committed(self):
        args = self._args()
        trial, committed = self.record["trial"], self.record["committed"]
        if trial is None or trial["args"] != args:
            if committed and committed["args"] == args and self.record["going"] in (None, "trial"):
                self._open(self.release)
                return self._settle(args)
            raise HostprepError(
                "commit_other_args",
                "the arguments to be committed are not those of the trial",
                read="trial: %s" % " ".join((trial or {"args": ["none"]})["args"]),
                allowed=" ".join(args),
                cure="run state: trial with them, and reboot",
            )
        self._open(trial["kernel"])
        if self.record["going"] == "commit" and self.outcome["state"] == "as_planned":
            return self._settle(args)
        if self.outcome["state"] != "trial" or self.release != trial["kernel"]:
            raise HostprepError(
                "not_in_trial",
                "arguments are committed from within their own trial only",
                read="this boot: %s, kernel %s; %s" % (self.outcome["state"], self.release, self.outcome["read"]),
                allowed="the boot of trial %s with kernel %s" % (trial["id"], trial["kernel"]),
                cure="reboot into the trial, if it is still set; else run state: trial again",
            )
        self._judge(trial)
        failed = [check for check in self.checks if check["verdict"] == "fail"]
        if failed:
            raise HostprepError(
                "trial_judged_fail",
                "the trial does not do what the arguments are for; it stays uncommitted and ends by itself",
                read="; ".join("%s: %s" % (check["name"], check["read"]) for check in failed),
                allowed="no check that fails",
                cure=failed[0]["cure"],
            )
        self._refuse_over(trial)
        self._stuck(trial)
        self._room()
        seen = cmdline.booted(self.tokens)
        entry = {key: trial[key] for key in KEPT}
        self._apply(args, None, entry, lambda boots: self._refuse_other(seen, boots, trial["extras"]), "commit")

    def _settle(self, args):
        """Arguments that are booted and committed: whatever else of a trial is left goes."""
        entry = self.record["committed"] or self.record["trial"]
        if self.record["going"] == "commit":
            entry = {key: self.record["trial"][key] for key in KEPT}
        wanted = self.loader.expected(args, boot_record.ours(self.record))
        self._apply(args, None, entry, lambda boots: self._refuse_other(wanted, boots, ()), "commit")
        self._judge(entry)

    def _absent(self):
        empty = boot_record.empty()
        self.left = boot_record.ours(self.record) + list((self.record["trial"] or {"args": []})["args"])
        if self.record["committed"] is None and self.record["trial"] is None and self.record["going"] is None:
            self.left += list(self.options.get("args") or []) + self._left()
            owned = self._units(None, False)
            self._outcome_after(empty)
            if not owned:
                if not self.check:
                    self.store.remove()  # what a run left that was killed before it had a record
                return
        self.outcome = boot_record.outcome(empty, self.tokens, self.boot_id)
        self._open(None)  # the running kernel may be gone from the disk
        self._room()
        self._apply([], None, None, self._refuse_ours, "absent")

    # -- the one way of changing it

    def _apply(self, args, trial, entry=None, accept=None, going="trial"):
        """Brings the host to `args` for every boot, to this trial or none, and to the record that says so.

        entry: the record's ``committed`` from then on, where it is not the trial that is written.
        """
        ours = boot_record.ours(self.record)
        if not self.check:
            self.loader.tidy()
        permanent = self.loader.permanent(args, ours)
        self._drop_made(permanent, args)
        if (
            not permanent["files"]
            and self.loader.made_from_sources()
            and (self.record["going"] in ("commit", "present", "absent") or self._lost(args))
        ):
            permanent["generate"] = ["grub-mkconfig" if self.loader.backend == "debian" else "grub2-mkconfig"]
        method = trial and trial["method"]
        alone = trial["extras"] if trial else []
        once = self.loader.trial(trial["args"] if method == "one_shot" else None, alone, ours)
        wanted_id = once["id"] if method == "one_shot" else None
        now_id = self.loader.selected()
        theirs = now_id and not _is_ours(now_id)
        choose = now_id != wanted_id and not (wanted_id is None and (now_id is None or theirs))
        loaded = self.tree.read("sys/kernel/kexec_loaded") == "1"
        set_already = self.record["going"] is None and self.record["trial"] == trial
        load = method == "kexec" and not (loaded and set_already) and self.root.live
        unload = (
            method != "kexec" and (self.record["trial"] or {}).get("method") == "kexec" and loaded and self.root.live
        )
        folders = self._folders(permanent, once)
        record = self._recorded(entry, trial, going, once, folders)
        steps = bool(permanent["files"] or permanent["generate"] or once["files"] or choose or load or unload)
        unit_steps = self._units(trial, going != "absent")
        if not steps and not unit_steps and record == self.record:
            return
        self._show(args, permanent, once, now_id, wanted_id, choose, load)
        self.done = bool(steps or unit_steps or record != self.record)
        if theirs and wanted_id:
            self.findings.append(
                finding(
                    "next_entry_replaced",
                    "another entry was to be booted once, and the trial takes its place",
                    "nothing",
                    now_id,
                )
            )
        if wanted_id and choose:
            self.loader.may_select(wanted_id)
        if self.check:
            self._outcome_after(record)
            return
        self.done = False
        self._begin(going, trial, record, folders)
        self.done = True
        entries = {path: self.loader.texts.get(path) for path in once["files"]}
        try:
            if going == "trial":
                self._units(trial, True, carry_out=True)
            self._make_permanent(permanent, accept, going)
            self._set_once(once, wanted_id, choose, unload, load and trial, ours)
        except HostprepError:
            if going == "trial":  # nothing is booted by what is there so far
                self._take_back(entries, now_id)
            raise
        if going != "absent":
            self.store.save(record)
        if going != "trial":
            if self.root.live:  # it was started by the trial's boot: to be disabled does not end it
                units.run(["systemctl", "stop", boot_units.TIMER], units.LOOK_TIMEOUT)
            self._units(trial, going != "absent", carry_out=True)
        if going == "absent":
            self.loader.texts.drop(self.record["folders"])
            self._remember_left()
            self.store.remove()
        self.record = record
        self._outcome_after(record)

    def _set_once(self, once, wanted_id, choose, unload, load, ours):
        """The trial's entry and the choice of it: the entry is there before it is chosen, and no longer chosen before it goes."""
        if wanted_id is None and choose:
            self.loader.select(None)
        if unload:
            kexec_unload(self.options["timeout"])
        if once["files"]:
            self.loader.write_trial(once["files"])
        if wanted_id is not None and choose:
            self.loader.select(wanted_id)
            found = self.loader.selected()
            if self.root.live and found != wanted_id:
                raise _not_selected(wanted_id, found)
        if load:
            tokens = self.loader.expected([*load["args"], *load["extras"]], ours)
            kexec_load(self.tree, load["kernel"], tokens, self.options["timeout"])

    def _lost(self, args):
        """Whether grub.cfg has not what its sources have of ours: another's hand made it, or files that come after ours."""
        return self.root.live and any(set(args).difference(tokens) for tokens in self.loader.next_boots())

    def _take_back(self, entries, chosen):
        """What was there before a trial that could not be set; entries: {path: text or None}, chosen: what was to be booted once."""
        try:
            if self.loader.selected() != chosen:
                self.loader.select(chosen)
            if any(self.loader.texts.get(path) != text for path, text in entries.items()):
                self.loader.write_trial(entries)
            self._units(self.before["trial"], self.before != boot_record.empty(), carry_out=True)
            self.loader.texts.drop(set(self.record["folders"]) - set(self.before["folders"]))
        except HostprepError:
            return  # the record says that a trial was begun: the next run goes on from there
        self.record, self.done = self.before, False
        if self.record == boot_record.empty():
            self.store.remove()
        else:
            self.store.save(self.record)

    def _drop_made(self, permanent, args):
        """An /etc/kernel/cmdline that we made goes with the last of our arguments, unless someone put more into it."""
        if args or not self.record["new_cmdline"] or self.loader.backend != "systemd-boot":
            return
        path = "etc/kernel/cmdline"
        now = self.loader.texts.get(path)
        ours = boot_record.ours(self.record)
        if now is None or boot_text.with_tokens(now, [], ours).split() != self.loader.new_cmdline([], ours).split():
            return
        permanent["files"] = [one for one in permanent["files"] if one["path"] != path]
        permanent["files"].append({"path": path, "before": now, "after": None})

    def _recorded(self, entry, trial, going, once, folders):
        if going == "absent":
            return boot_record.empty()
        made = self.record["new_cmdline"] or "etc/kernel/cmdline" in once["files"]
        kept = None if self.record["going"] == "absent" else self.record["committed"]
        return dict(
            boot_record.empty(),
            backend=self.loader.backend,
            committed=entry if going != "trial" else kept,
            trial=trial,
            new_cmdline=bool(made),
            folders=folders,
        )

    def _folders(self, permanent, once):
        """Folders that are ours once these files are written."""
        paths = [one["path"] for one in permanent["files"] if one["after"] is not None]
        paths += [path for path, text in once["files"].items() if text is not None]
        return sorted({*self.record["folders"], *self.loader.texts.missing(paths)})

    def _begin(self, going, trial, record, folders):
        """Writes down what is about to be done."""
        begun = dict(record if going == "trial" else self.record, going=going, backend=self.loader.backend)
        begun["folders"] = folders
        if going == "commit" and begun["trial"]:
            begun["trial"] = dict(begun["trial"], seen=self.tokens)
        elif going == "present":
            begun["trial"] = dict(
                record["committed"], kernel=self.loader.kernel, method="untried", extras=[], seen=None
            )
        self.before = self.record
        self.store.save(begun)
        self.record = begun

    def _make_permanent(self, permanent, accept, going):
        if not permanent["files"] and not permanent["generate"]:
            if accept and going == "commit":
                accept(self.loader.next_boots())
            return
        try:  # the guard stays armed: its reboot in the midst of this is no worse than a power cut, and a run that hangs has a limit
            self._refuse_over(self.record["trial"])
            self.loader.make_permanent(permanent, accept or (lambda boots: None))
        except HostprepError:
            self.loader.texts.drop(set(self.record["folders"]) - set(self.before["folders"]))
            self.store.save(self.before)
            self.record = self.before
            self.done = False
            raise

    def _refuse_other(self, wanted, boots, extras):
        """Refuses a next boot that would not be the trial's, token for token."""
        for tokens in boots:
            found = cmdline.same_boot(_plain(wanted), _plain(tokens), extras)
            if not found["same"]:
                raise HostprepError(
                    "commit_differs",
                    "the next boot would not get the arguments that were asked for, so all was put back",
                    read="missing: %s; more: %s%s"
                    % (
                        " ".join(found["missing"]) or "none",
                        " ".join(found["extra"]) or "none",
                        "; in another order" if found["order"] else "",
                    ),
                    allowed=" ".join(wanted),
                    cure="find out what else changed the boot loader's files since, and try again",
                )

    def _refuse_ours(self, boots):
        names = set(self.left)
        for tokens in boots:
            kept = [token for token in tokens if token in names]
            if kept:
                raise HostprepError(
                    "commit_differs",
                    "the next boot would still get arguments of ours, so all was put back",
                    read=" ".join(kept),
                    allowed="none of them",
                    cure="find out which file sets them, and remove them there",
                )

    # -- before anything is written

    def _lint(self, args):
        config = kernel.config(Reader(self.tree), self.loader.kernel, self.loader.kernel == self.release)
        foreign = [
            token
            for token in self.tokens
            if kernel_args.name_of(token) not in {kernel_args.name_of(one) for one in args}
        ]
        facts = {
            "present": self._present_cpus(),
            "boot_cpu": self._boot_cpu(),
            "config": config,
            "others": sum(len(token) + 1 for token in foreign) + 80,
        }
        self.findings += cmdline.lint(args, facts)

    def _present_cpus(self):
        plan = self.options.get("plan") or {}
        text = plan.get("online_after_boot") or self.tree.read("sys/devices/system/cpu/present")
        if not text:
            raise _unreadable("/sys/devices/system/cpu/present", self.tree.why("sys/devices/system/cpu/present"))
        return text

    def _boot_cpu(self):
        plan = self.options.get("plan") or {}
        if plan.get("boot_cpu") is not None:
            return plan["boot_cpu"]
        online = cpulist.expand(self.tree.read("sys/devices/system/cpu/online") or self._present_cpus())
        return min(online)

    def _preflight(self, args, release):
        plan = self.options.get("plan")
        if plan:
            from .discover import discover  # needed for a plan only

            affinity.check_machine(plan, discover(self.tree))
        found = boot_args.boot_args(self.tree, release)
        if found["owned"] is None:
            path, why = found["problems"][0] if found["problems"] else ("the boot loader's files", "none was found")
            raise _unreadable("/" + path, why)
        ours = {"paths": (boot_text.DROP_IN,), "tokens": boot_record.ours(self.record)}
        cmdline.refuse_foreign(args, found["owned"], ours, bootloader.tuned(self.tree))
        # what is booted may be older than the files it is made from, and the trial's entry is a copy of it
        booted = self.loader.next_boots()[0]
        cmdline.refuse_foreign(args, [{"text": token, "owner": self.loader.source} for token in booted], ours)
        cmdline.refuse_ended(booted, self.loader.source)
        defaults = boot_args.grub_files(self.tree) if self.loader.backend in ("debian", "sles") else None
        if defaults is not None:
            for path, _text in defaults:
                if self.tree.read(path) is None:
                    raise _unreadable("/" + path, self.tree.why(path))
            self.findings += boot_text.refuse_defaults(shell_values.evaluate(defaults), self.facts["sh"])
            if self.loader.backend == "debian":
                boot_text.refuse_discarded(defaults, args)
        if not self.options["accept_tpm_binding"]:
            tpm.refuse_bound(tpm.bindings(self.tree.read("etc/crypttab"), self._luks_headers()))
        self._room()

    def _refuse_waiting(self):
        """A boot loader at which someone has to press a key brings no machine back alone."""
        found = self.loader.waits()
        if found and not self.options["accept_untried_arguments"]:
            raise HostprepError(
                "boot_waits",
                "the boot loader's menu waits for a key, so that neither the trial nor the way back from it is booted without a hand",
                read="%s in /%s" % (found[1], found[0]),
                allowed="a menu that goes on after some seconds",
                cure="give GRUB_TIMEOUT (GRUB_RECORDFAIL_TIMEOUT, the timeout in loader.conf) seconds and generate grub.cfg, or stand at the "
                "console and set accept_untried_arguments: true",
            )

    def _luks_headers(self):
        if not self.root.live:
            return {}
        code, output = units.run(["blkid", "-t", "TYPE=crypto_LUKS", "-o", "device"], units.LOOK_TIMEOUT)
        headers = {}
        for device in output.split() if code == 0 else ():
            code, text = units.run(["cryptsetup", "luksDump", "--dump-json-metadata", device], units.LOOK_TIMEOUT)
            headers[device] = text[text.find("{") : text.rfind("}") + 1] if code == 0 and "{" in text else None
        return headers

    def _way(self, release):
        backend = self.loader.backend
        if backend == "systemd-boot":
            clears = loaders.efi_one_shot(self.facts)
        else:
            block = bootloader.environment_block(self.root.top or "/")
            probe = dict(block, abstraction=None, fs=None)
            for target in ("abstraction", "fs") if self.root.live and block["path"] else ():
                argv = [PROBE[backend], "--target=" + target, os.path.dirname(block["path"])]
                code, output = units.run(argv, units.LOOK_TIMEOUT)
                probe[target] = output.strip() if code == 0 else None
            clears = loaders.one_shot(probe)
        state = bootloader.kexec_state(self.tree, release)
        found = loaders.trial_method(backend, clears, loaders.kexec(state), self.options["accept_untried_arguments"])
        self.findings += found["reasons"]
        return found["method"]

    def _room(self):
        """Refuses a boot folder that is read-only or full."""
        grub_cfg = self.loader.texts.get(self.loader.grub + "grub.cfg") if self.loader.grub else None
        need = ROOM + 2 * len(grub_cfg or "")
        places = ["boot", self.loader.grub and self.loader.grub.rstrip("/"), self.loader.folder]
        for place in [one for one in places if one and self.tree.exists(one)] + ["etc"]:
            where = self.root.at("/" + (self.tree.real(place) or place))
            try:
                found = os.statvfs(where)
            except OSError as error:
                raise _unreadable("/" + place, error.strerror) from None
            if found.f_flag & os.ST_RDONLY or not os.access(where, os.W_OK):
                raise HostprepError(
                    "boot_read_only",
                    "a folder of the boot loader cannot be written to",
                    read="/" + place,
                    allowed="a writable file system",
                    cure="mount it writable, and run as root (become: true)",
                )
            free = found.f_bfree * found.f_frsize
            if free < need or (found.f_files and found.f_ffree < 16):
                raise HostprepError(
                    "boot_full",
                    "a folder of the boot loader has no room for what is written",
                    read="/%s: %d KiB and %d files free" % (place, free // 1024, found.f_ffree),
                    allowed="at least %d KiB and 16 files" % (need // 1024),
                    cure="remove kernels that are not needed any more",
                )

    # -- units

    def _units(self, trial, comparison, carry_out=False):
        """Whether the units are, or were, to be changed."""
        changed = False
        guard = boot_units.guard(trial.get("minutes") or 15) if trial else {}
        boot = {}
        if comparison:
            boot = boot_units.comparison(_python(), program.files(program.COMPARISON))
        for owner, wanted, name in ((OWNERS[0], boot, boot_units.COMPARISON), (OWNERS[1], guard, boot_units.TIMER)):
            options = {
                "state": "absent",
                "owner": owner,
                "root": self.root.top or "/",
                "lock_timeout": self.options["lock_timeout"],
            }
            if wanted:
                listed = [{"path": path, "content": text} for path, text in sorted(wanted.items())]
                options.update(state="present", purge=True, files=listed, units=[{"name": name, "enabled": True}])
            result = files.converge(options, check=self.check or not carry_out, diff=self.diff)
            if result.get("error"):
                raise result["error"]
            if not carry_out and self.diff:
                self.diffs += [one for one in result["diff"] if not one["after_header"].startswith(boot_units.PROGRAM)]
            changed = changed or result["changed"]
        return changed

    def _refuse_over(self, trial):
        """A reboot that is under way is not raced."""
        if not self.root.live or trial is None:
            return
        if units.show([boot_units.SERVICE])[boot_units.SERVICE]["active"] in ("activating", "active"):
            raise HostprepError(
                "trial_over",
                "the time of the trial is over and the host is about to reboot",
                read="%s is running" % boot_units.SERVICE,
                allowed="a commit within %s minutes of the boot" % trial.get("minutes"),
                cure="run state: trial with retry_after_fallback: true and more trial_minutes",
            )

    def _stuck(self, trial):
        """Whether the trial would be booted again and again; says so."""
        if trial["method"] != "one_shot" or not _is_ours(self.loader.selected() or ""):
            return False
        self.findings.append(
            finding(
                "next_entry_stuck",
                "the boot loader did not clear the one-shot entry: without a hand the trial would be booted again",
                "it is cleared now; try arguments by kexec on this host",
                self.loader.selected(),
            )
        )
        return True

    def _step(self, what, before, after, action):
        self.diffs.append(
            {"before_header": what, "after_header": what, "before": "%s\n" % before, "after": "%s\n" % (after or "")}
        )
        self.done = True
        if not self.check:
            action()

    # -- what is shown

    def _show(self, args, permanent, once, now_id, wanted_id, choose, load):
        if not self.diff:
            return
        shown = [(one["path"], one["before"], one["after"]) for one in permanent["files"]]
        shown += [(path, self.loader.texts.get(path), text) for path, text in sorted(once["files"].items())]
        for path, before, after in shown:
            self.diffs.append(
                {"before_header": "/" + path, "after_header": "/" + path, "before": before or "", "after": after or ""}
            )
        commands = [" ".join(argv) for argv in permanent["commands"]]
        if permanent["generate"]:
            commands.append("%s, and its output becomes grub.cfg" % " ".join(permanent["generate"]))
        if load:
            commands.append("kexec --load")
        before = ["booted once: %s" % now_id] if choose and now_id else []
        after = ["booted once: %s" % wanted_id] if choose and wanted_id else []
        if before or after or commands:
            self.diffs.append(
                {
                    "before_header": "boot",
                    "after_header": "boot",
                    "before": "".join(line + "\n" for line in before),
                    "after": "".join(line + "\n" for line in after + ["run: " + command for command in commands]),
                }
            )

    def _outcome_after(self, record):
        """What the outcome is once the record is this one."""
        self.outcome = boot_record.outcome(record, self.tokens, self.boot_id)
        if self.check and record["trial"]:
            self.method = record["trial"]["method"]
        if self.state == "trial" and self.check:
            self.record = record

    def _left(self):
        try:
            with open(self.root.at(LEFT), encoding="utf-8") as stream:
                kept = json.load(stream)
        except (OSError, ValueError):
            return []
        return [token for token in kept if isinstance(token, str)] if isinstance(kept, list) else []

    def _remember_left(self):
        running = [token for token in self.left if token in self.tokens]
        if self.root.live and running:
            try:
                os.makedirs(os.path.dirname(self.root.at(LEFT)), mode=0o755, exist_ok=True)
                atomic.write_one(self.root.at(LEFT), json.dumps(running).encode("utf-8"), 0o600, files.TOKEN)
            except OSError:
                pass  # only known until the next run then

    # -- judging

    def _judged_by(self, args):
        plan = self.options.get("plan")
        if plan and args == plan.get("kernel_args"):
            return {key: plan[key] for key in ("mode", "irq", "isolated", "boot_cpu", "kernel_args")}
        return boot_judge.planned(args, self._boot_cpu())

    def _judge(self, entry):
        plan = entry.get("plan")
        if not plan or any(token not in self.tokens for token in entry["args"]):
            return
        seen = bootloader.seen(self.tree)
        if "%s=%s" % (cmdline.TRIAL_MARK, entry["id"]) in self.tokens:
            seen["cmdline"] = " ".join(cmdline.without(self.tokens, entry.get("extras", ())))
        seen.update(kernel_log=self._kernel_log(), managed=self._managed())
        self.checks = boot_judge.judge(plan, seen)

    def _kernel_log(self):
        if not self.root.live:
            return self.tree.read("var/log/dmesg")
        for argv in (["journalctl", "--dmesg", "--boot", "--no-pager", "--output=cat"], ["dmesg"]):
            code, output = units.run(argv, units.LOOK_TIMEOUT)
            if code == 0 and boot_judge.begins(output):
                return output
        return output if code == 0 else None

    def _managed(self):
        from .discover import discover  # needed for judging only

        before = {
            row.number: row.counts
            for row in irqs.parse(self.tree.data("proc/interrupts", INTERRUPTS) or b"", True).irqs
        }
        topology = discover(self.tree)
        again = Tree(self.root.top or "/").data("proc/interrupts", INTERRUPTS) or b""
        after = {row.number: row.counts for row in irqs.parse(again, True).irqs}
        return [
            {
                "irq": fact["irq"],
                "affinity": fact["affinity"],
                "effective": fact["effective"],
                "moved": before.get(fact["irq"]) != after.get(fact["irq"]),
            }
            for fact in topology["irqs"]
            if fact["managed"]
        ]


def _is_ours(chosen):
    return chosen == boot_text.TRIAL_ID or boot_text.trial_name(
        chosen if chosen.endswith(".conf") else chosen + ".conf"
    )


def _plain(tokens):
    """Without the quotes and backslashes that GRUB and the kernel treat in their own ways."""
    return [token.replace('"', "").replace("'", "").replace("\\", "") for token in tokens]


def _python():
    """The interpreter of the boot's program: the system's own where it is there, which a virtual environment's is not."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else os.path.realpath(sys.executable)


def _unreadable(path, why):
    return HostprepError(
        "boot_files_unreadable",
        "the boot loader's files cannot be read, so it is not known who sets which argument",
        read="%s: %s" % (path, why),
        allowed="files that the user who runs this may read",
        cure="run as root (become: true)",
    )


def _not_selected(wanted, found):
    return HostprepError(
        "one_shot_not_set",
        "the trial's entry was not taken as the one that is booted once",
        read="wanted %s, found %s" % (wanted, found or "none"),
        allowed="the trial's entry",
        cure="look at grubenv or bootctl, and run again",
    )
