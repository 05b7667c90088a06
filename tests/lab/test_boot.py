# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel arguments on booted machines: trials, commits, fallbacks, power cuts, and everything given back.

The module runs through Ansible, as a user runs it. One machine lives through many things in a row, since a boot costs a minute; the
tests of a class stand in the order of that life. The machines that are not `new` have their turn (tests/run.py), `make soak` has all.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from test_lab import PROGRAM, ask, booted, inside, lab, said

pytestmark = [pytest.mark.lab, pytest.mark.qemu]

TOP = PROGRAM.parents[1]
SOAK = os.environ.get("HOSTPREP_SOAK") == "1"
FIRST = ["isolcpus=managed_irq,1-3", "irqaffinity=0"]
SECOND = ["isolcpus=managed_irq,2-3", "irqaffinity=0-1"]
MARK = "rke2_hostprep.trial="
CUTS = 20 if SOAK else 1
CUT_FIGURES = TOP / "build" / "figures" / "power-cuts.txt"
PATIENCE = 900  # seconds until ssh answers: a trial that panics boots twice, on a machine that shares its cores
STATE_FILES = "cat /boot/grub/grub.cfg 2>&1; echo; ls -A /boot/grub /etc/default/grub.d /etc/systemd/system; ls -A /usr/local/lib /var/lib | grep lo0; true"


@pytest.fixture(scope="session")
def collections(tmp_path_factory):
    """A folder in which Ansible finds this checkout."""
    return lay_out(tmp_path_factory.mktemp("collections"), TOP)


def lay_out(folder, source):
    space = folder / "ansible_collections" / "lo0"
    space.mkdir(parents=True)
    (space / "rke2_hostprep").symlink_to(source)
    return folder


class Machine:
    """One machine of the lab, and the module on it."""

    def __init__(self, name, collections):
        self.name = name
        self.collections = collections
        self.inventory = collections / f"{name}.yml"

    def command(self, options, *more):
        self.inventory.write_text(lab("inventory", self.name).stdout, encoding="utf-8")
        ansible = Path(sys.executable).parent / "ansible"
        words = ["-i", self.inventory, self.name, "-m", "lo0.rke2_hostprep.kernel_cmdline", "-a", json.dumps(options)]
        return [str(word) for word in [ansible, *words, *more]]

    def environment(self):
        return os.environ | {
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_PIPELINING": "True",
        }

    def run(self, state, *more, **options):
        """(whether it failed, result)."""
        command = self.command({"state": state, **options}, *more)
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), check=False, cwd=TOP / "tests"
        )
        found = re.search(rf"^{self.name} \| (\w+)!? => (\{{.*\}})", done.stdout, re.S | re.M)
        assert found, done.stdout + done.stderr
        return found.group(1) == "FAILED", json.loads(found.group(2))

    def ok(self, state, *more, **options):
        failed, result = self.run(state, *more, **options)
        assert not failed, result
        return result

    def refused(self, state, code, *more, **options):
        failed, result = self.run(state, *more, **options)
        assert failed and result["code"] == code, result
        return result

    def boot_id(self):
        return inside(self.name, "cat /proc/sys/kernel/random/boot_id")

    def reboot(self, command="systemctl reboot", boots=1, timeout=None):
        """Has it reboot, and waits until it has: `boots` times where it goes down once more by itself."""
        seen = [self.boot_id()]
        lab("ssh", self.name, f"(sleep 1; {command}) >/dev/null 2>&1 &")
        for _boot in range(boots):
            self.wait(seen[-1], timeout)
            seen.append(self.boot_id())
        return seen

    def wait(self, boot_id, timeout=None):
        lab("wait", self.name, "--boot-id", boot_id, "--timeout", str(timeout or PATIENCE))

    def tokens(self):
        return inside(self.name, "cat /proc/cmdline").split()


def isolated(tokens):
    return [token for token in tokens if token.startswith(("isolcpus=", "irqaffinity="))]


def plain(tokens):
    return [
        token
        for token in tokens
        if not token.startswith(("BOOT_IMAGE=", "initrd=", "panic=", "rke2_hostprep", "systemd.watchdog"))
    ]


def trial_and_commit(machine, method, args=None):
    """From nothing to committed; returns the trial's tokens."""
    args = args or SECOND
    tried = machine.ok("trial", args=args)
    assert (tried["changed"], tried["pending_reboot"], tried["method"]) == (True, True, method), tried
    again = machine.ok("trial", args=args)
    assert (again["changed"], again["pending_reboot"]) == (False, True)
    machine.reboot(tried["reboot_command"] or "systemctl reboot")
    tokens = machine.tokens()
    assert isolated(tokens) == args and any(token.startswith(MARK) for token in tokens)
    committed = machine.ok("committed")
    assert committed["changed"] and not committed["pending_reboot"] and committed["outcome"]["state"] == "as_planned"
    assert {check["verdict"] for check in committed["checks"]} <= {"ok", "not_judged"}
    return tokens


def commits_and_gives_back(machine, method):
    """The whole life on one boot loader."""
    found = inside(machine.name, STATE_FILES)
    before = machine.tokens()
    trial = trial_and_commit(machine, method)
    machine.reboot()
    assert plain(machine.tokens()) == plain(trial)
    assert machine.ok("committed")["changed"] is False
    gone = machine.ok("absent")
    assert (gone["changed"], gone["pending_reboot"]) == (True, True)
    assert inside(machine.name, STATE_FILES) == found
    machine.reboot()
    assert machine.tokens() == before
    again = machine.ok("absent")
    assert (again["changed"], again["pending_reboot"]) == (False, False)


@pytest.fixture(scope="module")
def new(collections):
    """One machine for all that comes before the others have their turn."""
    with booted("new"):
        yield Machine("new", collections)


@pytest.fixture
def other(collections):
    """Boots one of the other machines, alone."""
    lab("down", "new", check=False)
    up = []

    def boot(name):
        lab("up", name)
        up.append(name)
        return Machine(name, collections)

    yield boot
    lab("down", *up)


def edit_trial(machine, words):
    """Makes the trial's entry one that does not come up well."""
    inside(machine.name, f"sed -i '/^\\tlinux/s#$# {words}#' /boot/grub/custom.cfg && sync")


class TestGrub:
    """One life of `new`, in order."""

    def test_a_read_only_boot_folder_is_refused(self, new):
        inside("new", "mount --bind /boot/grub /boot/grub && mount -o remount,ro,bind /boot/grub")
        new.refused("trial", "boot_read_only", args=FIRST)
        inside(
            "new",
            "umount /boot/grub && mount -t tmpfs -o size=64k full /mnt && cp /boot/grub/grub*  /mnt && mount --bind /mnt /boot/grub",
        )
        full = new.refused("trial", "boot_full", args=FIRST)
        inside("new", "umount /boot/grub /mnt; test ! -e /boot/grub/custom.cfg")
        assert full["outcome"]["state"] == "none" and full["changed"] is False

    def test_two_runs_at_once_are_one_after_the_other(self, new):
        TestGrub.found = inside("new", STATE_FILES)
        inside(
            "new",
            "mkdir -p /var/lib/lo0.rke2_hostprep && (flock /var/lib/lo0.rke2_hostprep/boot.lock sleep 40 >/dev/null 2>&1 &)",
        )
        new.refused("trial", "files_locked", args=FIRST, lock_timeout=0)
        foretold = new.ok("trial", "--check", args=FIRST, lock_timeout=120)
        tried = new.ok("trial", args=FIRST, lock_timeout=120)
        assert (foretold["changed"], foretold["pending_reboot"], foretold["method"]) == (True, True, "one_shot")
        assert {key: foretold[key] for key in ("changed", "pending_reboot", "method", "outcome", "backend")} == {
            key: tried[key] for key in ("changed", "pending_reboot", "method", "outcome", "backend")
        }

    def test_the_trial_boots_and_is_guarded(self, new):
        new.reboot()
        facts = ask(
            "new",
            tokens="cat /proc/cmdline",
            guard="systemctl is-active rke2-hostprep-trial.timer",
            due="systemctl show --property=NextElapseUSecMonotonic --value rke2-hostprep-trial.timer",
            said="until systemctl is-active -q rke2-hostprep-boot; do sleep 1; done; journalctl -b -u rke2-hostprep-boot -o cat",
            next="grub-editenv - list",
            watchdog="systemctl show --property=RuntimeWatchdogUSec --value",
        )
        assert isolated(said(facts["tokens"]).split()) == FIRST and "panic=60" in said(facts["tokens"])
        assert said(facts["guard"]) == "active" and said(facts["due"]).startswith("15min")
        assert "tries kernel arguments once: " + " ".join(FIRST) in said(facts["said"])
        assert "hostprep" not in said(facts["next"])
        assert said(facts["watchdog"]) == "3min"
        running = new.ok("trial", args=FIRST)
        assert (running["changed"], running["pending_reboot"], running["outcome"]["state"]) == (False, False, "trial")
        assert running["history"][-1]["state"] == "trial"

    def test_commit_after_a_kernel_package_came_in(self, new):
        inside(
            "new",
            "r=$(uname -r); for f in vmlinuz initrd.img config; do cp /boot/$f-$r /boot/$f-9.9.9; done; update-grub >/dev/null 2>&1",
        )
        TestGrub.trial = new.tokens()
        committed = new.ok("committed")
        assert committed["changed"] and committed["pending_kernel"] == "9.9.9"
        left = ask(
            "new",
            files="ls /boot/grub/custom.cfg /etc/systemd/system/rke2-hostprep-trial.timer",
            timers="systemctl list-timers --all",
        )
        assert left["files"][0] != 0 and "hostprep" not in said(left["timers"])
        inside("new", "rm /boot/*-9.9.9 && update-grub >/dev/null 2>&1")

    def test_the_committed_boot_is_the_trials_token_for_token(self, new):
        # on the way: a trial whose kernel panics
        tried = new.ok("trial", args=SECOND, panic_seconds=5)
        assert tried["changed"]
        edit_trial(new, "init=/bin/false")  # the kernel panics when its first program ends
        new.reboot()
        assert plain(new.tokens()) == plain(TestGrub.trial)
        fell = new.refused("trial", "trial_fell_back", args=SECOND)
        assert fell["outcome"]["state"] == "fallback" and fell["outcome"]["missing"] == SECOND
        assert fell["history"][-1]["state"] == "fallback"
        assert "fallback: the old boot entry was booted" in inside("new", "journalctl -b -u rke2-hostprep-boot -o cat")

    def test_absent_gives_back_what_was_found(self, new):
        gone = new.ok("absent")
        assert gone["changed"] and gone["pending_reboot"]
        assert inside("new", STATE_FILES) == TestGrub.found
        again = new.ok("absent")
        assert (again["changed"], again["pending_reboot"]) == (False, True)


# What a trial may meet that does not come up or cannot be reached: all in `make soak`, one a day in CI.
SLOW = [
    "systemd.mask=systemd-networkd.service systemd.mask=ssh.service systemd.mask=ssh.socket",
    "systemd.unit=rescue.target",
    "systemd.unit=emergency.target",
    "root=/dev/nothing",
    "hostprep.hang",
]


class TestSlowFallbacks:
    @pytest.mark.parametrize("words", SLOW if SOAK else [SLOW[date.today().toordinal() % len(SLOW)]])
    def test_it_comes_back(self, new, words):
        if "hang" in words:
            unit = "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\nConditionKernelCommandLine=hostprep.hang\n"
            unit += "[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=sysinit.target\n"
            inside("new", f"printf '{unit}' > /etc/systemd/system/hang.service && systemctl enable hang.service")
        new.ok("trial", args=FIRST, retry_after_fallback=True, trial_minutes=3)
        edit_trial(new, words)
        began = time.monotonic()
        new.reboot()
        assert isolated(new.tokens()) == []
        if "unit=" in words:
            assert time.monotonic() - began > 180, "nothing answers in such a mode, so it was the guard that ended it"
        assert new.run("trial", args=FIRST)[1]["code"] == "trial_fell_back"


class TestPowerCuts:
    """The power is cut at a random moment of a run. The host comes up with the old arguments or the new, and the next run goes on."""

    @pytest.mark.parametrize("number", range(CUTS))
    def test_a_cut(self, new, number):
        chance = random.Random(f"{number}{time.time() if SOAK else ''}")
        state = ("trial", "committed", "absent")[number % 3]
        if state != "trial":
            new.ok("trial", args=FIRST, retry_after_fallback=True)
            new.reboot()
        if state == "absent":
            new.ok("committed")
        started = time.monotonic()
        options = {"state": state, **({"args": FIRST, "retry_after_fallback": True} if state == "trial" else {})}
        process = subprocess.Popen(
            new.command(options),
            env=new.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=TOP / "tests",
        )
        moment = chance.uniform(0, 30)
        while process.poll() is None and time.monotonic() - started < moment:
            time.sleep(0.05)
        over = process.poll() is not None
        lab("power-cut", "new")
        process.kill()
        process.wait()
        lab("power-on", "new")
        tokens = new.tokens()
        CUT_FIGURES.parent.mkdir(parents=True, exist_ok=True)
        with open(CUT_FIGURES, "a", encoding="utf-8") as figures:
            when = "after its end" if over else f"{moment:.1f} s after its start"
            arguments = "the trial" if any(MARK in token for token in tokens) else isolated(tokens) or "the old ones"
            figures.write(f"{state}, cut {when}: booted with {arguments}\n")
        assert isolated(tokens) in ([], FIRST), (state, moment)
        tried = any(token.startswith(MARK) for token in tokens)
        assert not tried or state == "trial"
        if over:  # nothing of what was done is lost, although GRUB replays no journal
            assert process.returncode == 0
            assert (isolated(tokens), tried) == ([] if state == "absent" else FIRST, state == "trial"), state
        after = new.ok("absent")
        assert after["pending_reboot"] is (isolated(tokens) == FIRST)
        left = inside(
            "new",
            "cat /boot/grub/grub.cfg; ls /boot/grub/custom.cfg /var/lib/lo0.rke2_hostprep 2>&1; grub-editenv - list",
        )
        assert "isolcpus" not in left and "hostprep-trial" not in left and left.count("No such file") == 2


def test_boot_on_lvm_is_tried_by_kexec(other):
    commits_and_gives_back(other("lvm"), "kexec")


class TestBtrfs:
    def test_on_btrfs_kexec_and_the_stuck_entry_of_a_check_that_is_gone(self, other, tmp_path):
        machine = other("btrfs")
        commits_and_gives_back(machine, "kexec")
        # The mutation: grub-probe's answer is ignored. What then happens is why it is asked.
        source = tmp_path / "source"
        source.mkdir()
        subprocess.run(["cp", "-a", TOP / "plugins", TOP / "meta", TOP / "galaxy.yml", str(source)], check=True)
        place = source / "plugins/module_utils/model/bootloader.py"
        text = place.read_text(encoding="utf-8")
        mutated = text.replace(
            "    layers = probe[", '    probe = dict(probe, abstraction="", fs="ext2")\n    layers = probe['
        )
        assert mutated != text
        place.write_text(mutated, encoding="utf-8")
        careless = Machine("btrfs", lay_out(tmp_path / "careless", source))
        tried = careless.ok("trial", args=FIRST)
        assert tried["method"] == "one_shot"
        for _time in range(2):
            machine.reboot()
            assert any(token.startswith(MARK) for token in machine.tokens())  # again and again
        found = machine.ok("trial", args=FIRST)
        assert found["changed"] and "next_entry_stuck" in {one["code"] for one in found["findings"]}
        machine.reboot()
        assert isolated(machine.tokens()) == []


def test_under_uefi_systemd_boot_tries_commits_and_gives_back(other):
    machine = other("sdboot")
    folders = "$(find /efi /boot/efi /boot -path '*loader/entries*' -type f 2>/dev/null | sort -u)"
    show = f"for f in {folders}; do echo $f; cat $f; done; cat /etc/kernel/cmdline"
    found = inside("sdboot", show)
    commits_and_gives_back(machine, "one_shot")
    assert inside("sdboot", show) == found


class TestOld:
    def test_kernel_6_1_tries_commits_and_gives_back(self, other):
        commits_and_gives_back(other("old"), "one_shot")
