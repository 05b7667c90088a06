# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module kernel_cmdline on hosts of files that boot: each loader's whole life, and a power cut at every single write."""

from __future__ import annotations

import gzip
import json
import os

import fake_boot
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import atomic, boot_loaders, files, units
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_text, bootloader
from ansible_collections.lo0.rke2_hostprep.plugins.modules import kernel_cmdline
from fake_boot import NEWER, RELEASE, Machine, PowerCut

ARGS = ["isolcpus=managed_irq,2-3", "irqaffinity=0-1"]
OTHER = ["isolcpus=managed_irq,1-3", "irqaffinity=0"]
BACKENDS = ["debian", "sles", "el", "systemd-boot"]


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a live machine below a folder."""

    class Root(files.Root):
        def __init__(self, path):
            super().__init__(path)
            self.live = True

    def build(backend="debian", name="root", **more):
        (tmp_path / name).mkdir()
        machine = Machine(tmp_path / name, backend, **more)
        monkeypatch.setattr(units, "run", machine.run)
        return machine

    monkeypatch.setattr(files, "Root", Root)
    return build


def call(machine, state, **more):
    """(exit code, result) of the module's run. A tested backend is assumed: which ones are is a fact of the lab."""
    options = {"state": state, "root": str(machine.top), "accept_untested_backend": True, "lock_timeout": 0, **more}
    with patch_module_args(options), pytest.MonkeyPatch.context() as patch:
        results = []
        patch.setattr(kernel_cmdline.AnsibleModule, "exit_json", lambda self, **result: results.append((0, result)))

        def fail(self, **result):
            results.append((1, result))
            raise SystemExit(1)

        patch.setattr(kernel_cmdline.AnsibleModule, "fail_json", fail)
        try:
            kernel_cmdline.main()
        except SystemExit:
            pass
    json.dumps(results[0][1])
    return results[0]


def ok(machine, state, **more):
    code, result = call(machine, state, **more)
    assert code == 0, result
    return result


def refused(machine, state, code, **more):
    before = machine.files()
    failed, result = call(machine, state, **more)
    assert failed and result["code"] == code, result
    assert result["read"] and result["allowed"] and result["cure"]
    assert {name: data for name, data in machine.files().items() if "/lo0.rke2_hostprep/" not in name} == {
        name: data for name, data in before.items() if "/lo0.rke2_hostprep/" not in name
    }
    return result


def booted(tokens, args):
    return [token for token in tokens if token in args] == args and len(
        [t for t in tokens if t.startswith("isolcpus")]
    ) == bool(args)


# -- a whole life ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_trial_commit_change_and_absent(make, backend):
    machine = make(backend)
    found = machine.files()
    old = machine.boot()

    foretold = ok(machine, "trial", args=ARGS, _ansible_check_mode=True, _ansible_diff=True)
    assert machine.files() == found and foretold["changed"] and foretold["pending_reboot"]
    tried = ok(machine, "trial", args=ARGS, _ansible_diff=True)
    assert tried["diff"] == foretold["diff"] != []
    assert (tried["changed"], tried["pending_reboot"], tried["method"], tried["backend"]) == (
        True,
        True,
        "one_shot",
        backend,
    )
    assert (tried["outcome"]["state"], tried["reboot_command"]) == ("pending", None)
    again = ok(machine, "trial", args=ARGS)
    assert (again["changed"], again["pending_reboot"]) == (False, True)
    refused(machine, "committed", "not_in_trial")

    trial = machine.boot()
    assert booted(trial, ARGS) and trial[-2:][0] == "panic=60" or "panic=60" in trial
    running = ok(machine, "trial", args=ARGS)
    assert (running["changed"], running["pending_reboot"], running["outcome"]["state"]) == (False, False, "trial")
    assert {check["name"]: check["verdict"] for check in running["checks"]} == {
        "kernel_arguments": "ok",
        "default_smp_affinity": "ok",
        "kernel_log": "ok",
        "managed_vectors": "not_judged",
        "isolated": "ok",
    }
    refused(machine, "committed", "commit_other_args", args=OTHER)
    foretold = ok(machine, "committed", _ansible_check_mode=True)
    committed = ok(machine, "committed")
    assert committed["changed"] and foretold["changed"] and not committed["pending_reboot"]
    assert committed["outcome"]["state"] == "as_planned"
    assert ok(machine, "committed")["changed"] is False
    assert ok(machine, "trial", args=ARGS)["changed"] is False
    assert not any("trial" in name for name in machine.files() if "systemd/system" in name or "entries" in name)
    assert machine.get("boot/grub/custom.cfg") is machine.get("boot/grub2/custom.cfg") is None

    after = machine.boot()
    assert booted(after, ARGS) and [t for t in trial if t not in ("panic=60",) and "hostprep" not in t] == after
    assert ok(machine, "present", args=ARGS)["changed"] is False

    assert ok(machine, "trial", args=OTHER)["outcome"]["state"] == "pending"
    assert booted(machine.boot(), OTHER)
    assert ok(machine, "committed", args=OTHER)["changed"]
    assert booted(machine.boot(), OTHER)

    gone = ok(machine, "absent", _ansible_diff=True)
    assert (gone["changed"], gone["pending_reboot"], gone["outcome"]["state"]) == (True, True, "none")
    assert machine.files() == found
    again = ok(machine, "absent")
    assert (again["changed"], again["pending_reboot"]) == (False, True)
    assert machine.boot() == old
    (machine.top / "run/lo0.rke2_hostprep/kernel-args.json").unlink()  # /run is empty after a boot
    assert ok(machine, "absent")["pending_reboot"] is False


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trial_that_fell_back_is_refused_until_it_is_asked_for_again(make, backend):
    machine = make(backend)
    ok(machine, "trial", args=ARGS)
    machine.boot()
    assert not booted(machine.boot(), ARGS)
    found = refused(machine, "trial", "trial_fell_back", args=ARGS)
    assert found["outcome"]["state"] == "fallback" and found["outcome"]["missing"] == ARGS
    assert found["pending_reboot"] is False
    assert ok(machine, "trial", args=OTHER)["changed"]
    machine.boot()
    machine.boot()
    again = ok(machine, "trial", args=OTHER, retry_after_fallback=True)
    assert again["changed"] and booted(machine.boot(), OTHER)


@pytest.mark.parametrize("backend", ["debian", "el"])
def test_kexec_where_the_loader_cannot_clear_its_entry(make, backend):
    machine = make(backend, abstraction="lvm")
    found = machine.files()
    tried = ok(machine, "trial", args=ARGS)
    assert (tried["method"], tried["reboot_command"]) == ("kexec", "systemctl kexec")
    assert {one["code"] for one in tried["findings"]} == {"one_shot_abstraction", "kexec"}
    assert {name: data for name, data in machine.files().items() if name.startswith(("boot/", "etc/default"))} == {
        name: data for name, data in found.items() if name.startswith(("boot/", "etc/default"))
    }
    assert ok(machine, "trial", args=ARGS)["changed"] is False
    assert booted(machine.boot(firmware=False), ARGS)
    assert ok(machine, "committed")["changed"]
    assert booted(machine.boot(), ARGS)
    ok(machine, "absent")
    assert machine.files() == found


@pytest.mark.parametrize(
    "custom", [None, "menuentry 'Theirs' {\n\tlinux\t/boot/vmlinuz-%s root=UUID=1 theirs\n}\n" % RELEASE]
)
def test_a_default_that_counts_entries_is_never_the_trial(make, custom):
    """GRUB takes entry 0 where GRUB_DEFAULT counts further than there are entries."""
    machine = make()
    machine.default = 2  # behind the kernel's two: their own entry, or one that is gone
    if custom:
        machine.put("boot/grub/custom.cfg", custom)
    old = machine.boot()
    assert ("theirs" in old) is bool(custom)
    ok(machine, "trial", args=ARGS)
    assert booted(machine.boot(), ARGS)
    assert machine.boot() == old == machine.boot()
    ok(machine, "absent")
    assert machine.get("boot/grub/custom.cfg") == custom


@pytest.mark.parametrize("state", ["trial", "committed", "present"])
@pytest.mark.parametrize("backend", ["debian", "sles"])
def test_a_grub_cfg_that_lost_what_was_committed_is_made_anew(make, backend, state):
    machine = make(backend)
    path = machine.grub + "/grub.cfg"
    stock = machine.get(path)
    ok(machine, "trial", args=ARGS)
    machine.boot()
    ok(machine, "committed")
    machine.boot()
    machine.put(path, stock)  # a backup that was put back, or a tool that writes the file by itself
    foretold = ok(machine, state, args=ARGS, _ansible_check_mode=True)
    done = ok(machine, state, args=ARGS)
    assert foretold["changed"] and done["changed"] and not done["pending_reboot"]
    assert booted(machine.boot(), ARGS)
    assert ok(machine, state, args=ARGS)["changed"] is False
    if backend == "debian":
        machine.put("etc/default/grub.d/zzz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
        machine.put(path, machine.menu())
        found = refused(machine, state, "commit_differs", args=ARGS)
        assert ARGS[0] in found["read"]


def test_arguments_that_the_trials_entry_carries_too(make):
    machine = make()
    args = [*ARGS, "panic=10"]
    ok(machine, "trial", args=args)
    machine.boot()
    running = ok(machine, "trial", args=args)
    assert running["outcome"]["state"] == "trial" and not running["pending_reboot"]
    assert running["checks"][0]["verdict"] == "ok", running["checks"]
    assert ok(machine, "committed")["outcome"]["state"] == "as_planned"
    assert "panic=10" in machine.boot() and ok(machine, "trial", args=args)["changed"] is False


def test_limits_that_were_given_anew_are_those_of_the_trial(make):
    machine = make()
    ok(machine, "trial", args=ARGS, trial_minutes=5)
    foretold = ok(machine, "trial", args=ARGS, trial_minutes=60, _ansible_check_mode=True, _ansible_diff=True)
    done = ok(machine, "trial", args=ARGS, trial_minutes=60, _ansible_diff=True)
    assert foretold["changed"] and done["changed"] and done["diff"] == foretold["diff"]
    assert "OnBootSec=60min" in machine.get("etc/systemd/system/rke2-hostprep-trial.timer")
    assert ok(machine, "trial", args=ARGS, trial_minutes=60, panic_seconds=9)["changed"]
    assert ok(machine, "trial", args=ARGS, trial_minutes=60, panic_seconds=9)["changed"] is False
    refused(machine, "trial", "trial_limit_invalid", args=ARGS, trial_minutes=0)
    assert "panic=9" in machine.boot()


def test_what_kexec_loaded_is_the_trial_that_was_asked_for_last(make):
    machine = make(abstraction="lvm")
    ok(machine, "trial", args=OTHER)
    ok(machine, "trial", args=ARGS)
    assert booted(machine.loaded.split(), ARGS)
    ok(machine, "trial", args=ARGS, panic_seconds=9)
    assert "panic=9" in machine.loaded.split()
    assert ok(machine, "trial", args=ARGS, panic_seconds=9)["changed"] is False
    assert booted(machine.boot(firmware=False), ARGS)
    assert ok(machine, "committed")["changed"]


@pytest.mark.parametrize("before", [None, "committed"])
@pytest.mark.parametrize(
    ("backend", "abstraction", "failing", "code"),
    [
        ("debian", "lvm", "kexec --kexec", "kexec_failed"),
        ("systemd-boot", "", "bootctl", "boot_command_failed"),
    ],
)
def test_a_trial_that_cannot_be_set_leaves_nothing(make, backend, abstraction, failing, code, before):
    machine = make(backend, abstraction=abstraction)
    if before:
        ok(machine, "present", args=OTHER, accept_untried_arguments=True)
        machine.boot()
        ok(machine, "present", args=OTHER)
    found = machine.files()
    machine.fail = {failing: "not permitted"}
    failed = refused(machine, "trial", code, args=ARGS)
    assert failed["changed"] is False and failed["outcome"]["state"] == ("as_planned" if before else "none")
    assert machine.files() == found
    machine.fail = {}
    assert ok(machine, "trial", args=ARGS)["pending_reboot"]


def test_a_kexec_trial_that_was_not_booted_by_kexec_fell_back(make):
    machine = make(abstraction="lvm")
    ok(machine, "trial", args=ARGS)
    machine.boot()
    refused(machine, "trial", "trial_fell_back", args=ARGS)
    ok(machine, "trial", args=ARGS, retry_after_fallback=True)
    machine.run(["kexec", "--unload"])
    assert ok(machine, "trial", args=ARGS)["changed"] and machine.loaded
    ok(machine, "absent")
    assert machine.loaded is None


def test_neither_way_is_refused_and_an_explicit_yes_writes_for_good(make):
    machine = make(abstraction="lvm")
    (machine.top / "usr/sbin/kexec").unlink()
    refused(machine, "trial", "trial_impossible", args=ARGS)
    refused(machine, "present", "untried_arguments", args=ARGS)
    done = ok(machine, "trial", args=ARGS, accept_untried_arguments=True)
    assert (done["method"], done["pending_reboot"], done["reboot_command"]) == ("untried", True, None)
    assert booted(machine.boot(), ARGS)
    assert ok(machine, "present", args=ARGS)["changed"] is False


def test_a_kernel_package_between_trial_and_commit(make):
    machine = make()
    before = machine.get("boot/grub/grub.cfg")
    ok(machine, "trial", args=ARGS)
    machine.install(NEWER)
    assert booted(machine.boot(), ARGS)
    committed = ok(machine, "committed")
    assert committed["pending_kernel"] == NEWER
    assert "kernel_pending" in {one["code"] for one in committed["findings"]}
    assert booted(machine.boot(), ARGS)  # the newer kernel
    ok(machine, "absent")
    assert (
        RELEASE in before and machine.get("boot/grub/grub.cfg") == machine.menu() and "isolcpus" not in machine.menu()
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_newer_kernel_that_waits_for_a_reboot_is_reported(make, backend):
    machine = make(backend)
    assert ok(machine, "trial", args=ARGS, _ansible_check_mode=True)["pending_kernel"] is None
    machine.install(NEWER)
    found = ok(machine, "trial", args=ARGS)
    assert found["pending_kernel"] == NEWER and "kernel_pending" in {one["code"] for one in found["findings"]}
    assert booted(machine.boot(), ARGS) and machine.get("proc/sys/kernel/osrelease") == RELEASE + "\n"
    if backend == "el":
        block = boot_text.with_entry(fake_boot.BLOCK, "saved_entry", "m-" + RELEASE)
        machine.put("boot/grub2/grubenv", block)
    elif backend == "systemd-boot":
        machine.put("boot/efi/loader/loader.conf", "default m-%s*\n" % RELEASE)
    if machine.grub != "boot/grub" and backend != "sles":
        assert ok(machine, "trial", args=ARGS)["pending_kernel"] is None  # the default is the running one


def test_absent_when_the_running_kernel_is_no_longer_on_the_disk(make):
    machine = make()
    ok(machine, "present", args=ARGS, accept_untried_arguments=True)
    machine.boot()
    for path in machine.top.glob("boot/*" + RELEASE):
        path.unlink()
    machine.install(NEWER)
    assert ok(machine, "absent")["changed"]
    assert not booted(machine.boot(), ARGS)


def test_another_kernel_is_tried_when_it_is_named(make):
    machine = make(kernels=(RELEASE, NEWER))
    machine.put("proc/sys/kernel/osrelease", RELEASE)
    ok(machine, "trial", args=ARGS, kernel=NEWER)
    assert booted(machine.boot(), ARGS) and machine.get("proc/sys/kernel/osrelease") == NEWER + "\n"
    assert ok(machine, "committed")["changed"]
    refused(machine, "trial", "entry_unknown", args=OTHER, kernel="9.9")


def test_a_kernel_whose_configuration_is_not_known_is_not_judged_by_the_running_ones(make):
    machine = make(kernels=(RELEASE, NEWER))
    machine.put("proc/sys/kernel/osrelease", RELEASE)
    machine.put("proc/config.gz", gzip.compress(b"# CONFIG_CPU_ISOLATION is not set\n"))
    (machine.top / ("boot/config-" + NEWER)).unlink()
    ok(machine, "trial", args=ARGS, kernel=NEWER)
    (machine.top / ("boot/config-" + RELEASE)).unlink()
    refused(machine, "trial", "kernel_without_option", args=ARGS)


# -- refusals ----------------------------------------------------------------------------------------------------------------


def _foreign(machine):
    machine.put("etc/default/grub.d/a.cfg", 'GRUB_CMDLINE_LINUX="isolcpus=3"\n')


def _stale(machine):
    machine.put("boot/grub/grub.cfg", machine.menu().replace(" quiet", " quiet isolcpus=3"))


def _ended(machine):
    machine.put("boot/grub/grub.cfg", machine.menu().replace(" quiet", " quiet -- 3"))


def _waits(machine):
    machine.put(
        "boot/grub/grub.cfg", "if [ x$feature_timeout_style = xy ] ; then\n  set timeout=-1\nfi\n" + machine.menu()
    )


def _broken(machine):
    machine.put("etc/default/grub.d/a.cfg", 'GRUB_CMDLINE_LINUX="\n')


def _no_isolation(machine):
    machine.put("boot/config-" + RELEASE, "# CONFIG_CPU_ISOLATION is not set\n")


def _unknown(machine):
    (machine.top / "boot/grub/grub.cfg").unlink()


def _no_custom(machine):
    machine.put("boot/grub/grub.cfg", machine.menu().replace("custom.cfg", "other.cfg"))


def _bound(machine):
    machine.put("etc/crypttab", "root UUID=1 none tpm2-device=auto,tpm2-pcrs=7+8\n")


def _no_room(machine):
    machine.put("boot/grub/grubenv", fake_boot.BLOCK[:25] + b"a=%s\n" % (b"x" * 980) + b"#" * (1024 - 25 - 983))


def _damaged(machine):
    machine.put("var/lib/lo0.rke2_hostprep/boot.json", '{"schema_version": 1}')


def _newer(machine):
    machine.put("var/lib/lo0.rke2_hostprep/boot.json", '{"schema_version": 2}')


def _no_text(machine):
    machine.put("var/lib/lo0.rke2_hostprep/boot.json", b"\xff\0")


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_foreign, "kernel_arg_owned"),
        (_stale, "kernel_arg_owned"),
        (_waits, "boot_waits"),
        (_ended, "kernel_args_ended"),
        (_broken, "grub_defaults_broken"),
        (_no_isolation, "kernel_without_option"),
        (_unknown, "backend_unknown"),
        (_no_custom, "grub_cfg_foreign"),
        (_bound, "tpm_bound"),
        (_no_room, "grubenv_invalid"),
        (_damaged, "boot_record_damaged"),
        (_newer, "boot_record_newer"),
        (_no_text, "boot_record_damaged"),
    ],
)
def test_what_cannot_be_done_is_refused_with_nothing_written(make, spoil, code):
    machine = make()
    spoil(machine)
    found = machine.files()
    refused(machine, "trial", code, args=ARGS)
    booted_files = {name: data for name, data in machine.files().items() if name.startswith(("boot/", "etc/default"))}
    assert booted_files == {name: data for name, data in found.items() if name.startswith(("boot/", "etc/default"))}


def test_a_menu_that_waits_for_a_key_needs_someone_at_the_console(make):
    machine = make()
    _waits(machine)
    assert ok(machine, "trial", args=ARGS, accept_untried_arguments=True)["method"] == "one_shot"
    machine = make("systemd-boot", "other")
    machine.put("boot/efi/loader/loader.conf", "#timeout menu-force\ntimeout 3\n")
    ok(machine, "trial", args=ARGS, _ansible_check_mode=True)
    machine.put("boot/efi/loader/loader.conf", "timeout menu-force\n")
    refused(machine, "trial", "boot_waits", args=ARGS)


def test_options_that_make_no_sense_are_refused(make):
    machine = make()
    refused(machine, "trial", "args_missing")
    refused(machine, "committed", "args_missing")
    refused(machine, "trial", "kernel_arg_cpus", args=["isolcpus=managed_irq,2-9"])
    refused(machine, "trial", "kernel_arg_foreign", args=["root=/dev/sda"])
    refused(machine, "trial", "kernel_arg_characters", args=["--", *ARGS])


@pytest.mark.parametrize("name", ["trial_minutes", "panic_seconds"])
@pytest.mark.parametrize("value", [0, -1, 100000])
def test_a_trial_that_would_not_end_by_itself_is_refused(make, name, value):
    refused(make(), "trial", "trial_limit_invalid", args=ARGS, **{name: value})


def test_a_kernel_package_in_the_middle_of_a_commit_keeps_its_entry(make, monkeypatch):
    machine = make()
    ok(machine, "trial", args=ARGS)
    machine.boot()

    def run(argv, timeout=None):
        done = machine.run(argv, timeout)
        if argv[0] == "grub-mkconfig" and NEWER not in machine.menu():
            machine.install(NEWER)
        return done

    monkeypatch.setattr(units, "run", run)
    code, result = call(machine, "committed")
    assert code == 1 and result["code"] == "boot_files_not_written", result
    assert NEWER in machine.get("boot/grub/grub.cfg") and "isolcpus" not in machine.get("boot/grub/grub.cfg")
    assert ok(machine, "committed")["changed"]
    assert NEWER in machine.get("boot/grub/grub.cfg") and booted(machine.boot(), ARGS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_that_never_ran_is_refused(make, backend, monkeypatch):
    machine = make(backend)
    monkeypatch.setitem(bootloader.BACKENDS[backend], "ran_on", ())
    refused(machine, "trial", "backend_untested", args=ARGS, accept_untested_backend=False)


def test_a_plan_judges_and_gives_the_arguments(make):
    machine = make()
    plan = {"kernel_args": ARGS, "mode": "balanced", "irq": "0-1", "isolated": "2-3", "reserved": "0-1", "boot_cpu": 0}
    plan.update(online_after_boot="0-7", nics=[], fingerprint="x")
    refused(machine, "trial", "plan_other_machine", plan=plan)


def test_a_trial_that_does_not_isolate_is_not_committed(make):
    machine = make()
    ok(machine, "trial", args=ARGS)
    machine.boot()
    machine.log = "Linux version 6\nHousekeeping: nohz_full= or isolcpus= incorrect CPU range\n"
    found = refused(machine, "committed", "trial_judged_fail")
    assert "Housekeeping" in found["read"]


def test_what_would_boot_something_else_is_put_back(make):
    machine = make()
    ok(machine, "trial", args=ARGS)
    trial = machine.boot()
    machine.put("etc/default/grub.d/zzz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT nosmt"\n')
    found = refused(machine, "committed", "commit_differs")
    assert "more: nosmt" in found["read"]
    assert not any("stop" in text for text in machine.calls)  # the guard was never disarmed
    assert ok(machine, "trial", args=ARGS)["outcome"]["state"] == "trial"
    (machine.top / "etc/default/grub.d/zzz.cfg").unlink()
    assert ok(machine, "committed")["changed"]
    assert set(trial) > set(machine.boot())


@pytest.mark.parametrize("backend", ["debian", "el"])
def test_a_command_that_fails_leaves_what_was(make, backend):
    machine = make(backend)
    ok(machine, "trial", args=ARGS)
    machine.boot()
    machine.fail = {{"debian": "grub-mkconfig", "el": "grubby"}[backend]: "no space left"}
    found = refused(machine, "committed", "boot_command_failed")
    assert "no space left" in found["read"]
    machine.fail = {}
    assert ok(machine, "committed")["changed"]


def test_the_guard_that_is_about_to_reboot_is_not_raced(make):
    machine = make()
    ok(machine, "trial", args=ARGS)
    machine.boot()
    machine.systemctl.units["rke2-hostprep-trial.service"]["active"] = True
    refused(machine, "committed", "trial_over")


def test_a_trial_that_is_taken_back_while_it_runs_has_no_guard_any_more(make):
    machine = make()
    ok(machine, "trial", args=ARGS)
    machine.boot()
    machine.calls.clear()
    assert ok(machine, "absent")["pending_reboot"]
    assert any(text.startswith("systemctl stop rke2-hostprep-trial.timer") for text in machine.calls)


@pytest.mark.parametrize("fails", [False, True])
def test_the_guard_stays_armed_until_the_commit_is_whole(make, fails):
    """A run that is killed in the middle leaves a trial with its limit."""
    machine = make()
    ok(machine, "trial", args=ARGS)
    machine.boot()
    machine.calls.clear()
    machine.fail = {"grub-mkconfig": "no space left"} if fails else {}
    call(machine, "committed")
    made = next(number for number, text in enumerate(machine.calls) if text.startswith("grub-mkconfig"))
    ended = [
        number
        for number, text in enumerate(machine.calls)
        if "rke2-hostprep-trial.timer" in text and {"stop", "start", "disable"}.intersection(text.split())
    ]
    assert not ended if fails else "stop" in machine.calls[min(ended)] and min(ended) > made


def test_a_one_shot_entry_that_was_not_cleared_is_said_and_cleared(make):
    machine = make()
    ok(machine, "trial", args=ARGS)
    machine.abstraction = "a disk below GRUB that it only reads"
    machine.boot()
    assert booted(machine.boot(), ARGS)  # again and again
    found = ok(machine, "trial", args=ARGS)
    assert found["changed"] and "next_entry_stuck" in {one["code"] for one in found["findings"]}
    assert not booted(machine.boot(), ARGS)


def test_an_entry_that_someone_else_chose_stays_theirs(make):
    machine = make()
    block = fake_boot.BLOCK.replace(b"#" * 20, b"next_entry=mine\n####", 1)
    machine.put("boot/grub/grubenv", block)
    ok(machine, "present", args=ARGS, accept_untried_arguments=True)
    ok(machine, "absent")
    assert (machine.top / "boot/grub/grubenv").read_bytes() == block
    codes = {one["code"] for one in ok(machine, "trial", args=ARGS)["findings"]}
    assert "next_entry_replaced" in codes


def test_someone_elses_custom_cfg_and_drop_in_survive(make):
    machine = make()
    machine.put("boot/grub/custom.cfg", b"menuentry 'x' {\n\tlinux\t/boot/\xff a\n}")
    found = machine.files()
    ok(machine, "trial", args=ARGS)
    machine.boot()
    ok(machine, "committed")
    ok(machine, "absent")
    assert machine.files() == found


def test_a_host_without_kernel_cmdline_gets_one_and_loses_it_again(make):
    machine = make("systemd-boot")
    (machine.top / "etc/kernel/cmdline").unlink()
    found = machine.files()
    ok(machine, "trial", args=ARGS)
    assert (
        machine.get("etc/kernel/cmdline") == "root=UUID=1 ro quiet\n"
    )  # a kernel that comes in now does not get the trial's
    machine.boot()
    ok(machine, "committed")
    machine.install(NEWER)
    assert booted(machine.boot(), ARGS)
    ok(machine, "absent")
    (machine.top / ("boot/efi/loader/entries/m-%s.conf" % NEWER)).unlink()
    assert machine.get("etc/kernel/cmdline") is None
    assert set(found) <= set(machine.files())


@pytest.mark.parametrize("fell_back", [True, False])
def test_back_to_what_is_committed_and_booted_needs_no_reboot(make, fell_back):
    machine = make()
    ok(machine, "trial", args=ARGS)
    machine.boot()
    ok(machine, "committed")
    machine.boot()
    found = machine.files()
    ok(machine, "trial", args=OTHER)
    if fell_back:
        machine.boot()
        machine.boot()
        refused(machine, "trial", "trial_fell_back", args=OTHER)
    foretold = ok(machine, "trial", args=ARGS, _ansible_check_mode=True)
    done = ok(machine, "trial", args=ARGS)
    assert (done["changed"], done["pending_reboot"], done["outcome"]["state"]) == (True, False, "as_planned")
    assert foretold["changed"] and not foretold["pending_reboot"]
    assert machine.files() == found and booted(machine.boot(), ARGS)
    assert ok(machine, "trial", args=ARGS)["changed"] is False


def test_where_no_record_can_be_kept_check_mode_refuses_too(make, monkeypatch):
    machine = make()
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(path) != str(machine.top / "var/lib") and access(path, mode)
    )
    refused(machine, "trial", "record_unwritable", args=ARGS, _ansible_check_mode=True)


def test_what_grub_reads_is_put_into_place_after_each_write(make, monkeypatch):
    """GRUB replays no journal."""
    machine = make()
    boot = str(machine.top / "boot/grub")
    seen = []
    rename, pwrite = os.rename, os.pwrite

    def noted(word, call, *words):
        seen.append(word)
        return call(*words)

    def renamed(old, new):
        return noted("written" if os.path.dirname(new) == boot else "elsewhere", rename, old, new)

    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "pwrite", lambda *words: noted("written", pwrite, *words))
    monkeypatch.setattr(
        boot_loaders, "settle", lambda folder: seen.append("settled" if folder == boot else "elsewhere")
    )

    def writes():
        found = [word for word in seen if word != "elsewhere"]
        seen.clear()
        return found

    ok(machine, "trial", args=ARGS)
    assert writes() == ["written", "settled"] * 2  # the trial's entry, and the choice of it
    machine.boot()
    ok(machine, "committed")
    assert writes() == ["written", "settled", "settled"]  # grub.cfg, and the trial's entry that goes
    ok(machine, "absent")
    assert writes() == ["written", "settled"]


def test_two_runs_at_once(make):
    machine = make()
    ok(machine, "trial", args=ARGS)
    held = files.Store(files.Root(str(machine.top)))
    held.lock_path = os.path.join(held.home, "boot.lock")
    handle = held.lock(0, make=True)
    refused(machine, "absent", "files_locked")
    os.close(handle)
    assert ok(machine, "absent")["changed"]


def test_below_another_root_files_are_written_and_nothing_is_run(tmp_path, monkeypatch):
    (tmp_path / "root").mkdir()
    machine = Machine(tmp_path / "root")
    monkeypatch.setattr(units, "run", machine.run)
    found = machine.files()
    done = ok(machine, "present", args=ARGS, accept_untried_arguments=True)
    assert done["changed"] and done["pending_reboot"]
    assert "isolcpus=managed_irq,2-3" in machine.get(boot_text.DROP_IN)
    assert ok(machine, "present", args=ARGS)["changed"] is False
    ok(machine, "absent")
    assert machine.files() == found and machine.calls == []


# -- a power cut at every write ------------------------------------------------------------------------------------------------


class Cut:
    """Ends the machine at the n-th write: before it is done, or (odd n) after."""

    def __init__(self, patch, machine, number):
        self.left, self.seen = number, 0
        for module, name in ((os, "rename"), (os, "unlink"), (os, "mkdir"), (os, "pwrite"), (atomic, "write_new")):
            patch.setattr(module, name, self._cutting(getattr(module, name)))
        run = machine.run
        patch.setattr(units, "run", lambda argv, timeout=None: self._cutting(run)(argv, timeout))

    def _cutting(self, action):
        def acted(*arguments, **more):
            self.seen += 1
            if self.left == 0:
                raise PowerCut
            self.left -= 1
            if self.left == 0:
                action(*arguments, **more)
                raise PowerCut
            self.left -= 1
            return action(*arguments, **more)

        return acted


def _state_of(machine, state):
    """Brings a new machine to where `state` is the next thing to do."""
    if state != "trial":
        ok(machine, "trial", args=ARGS)
        machine.boot()
    if state == "absent":
        ok(machine, "committed")
        machine.boot()


@pytest.mark.parametrize("backend", ["debian", "systemd-boot"])
@pytest.mark.parametrize("state", ["trial", "committed", "absent"])
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.soak), 17])
def test_a_power_cut_at_any_write_leaves_a_host_that_boots_and_a_run_that_goes_on(make, backend, state, step):
    number, seen = 0, None
    while seen is None:
        machine = make(backend, name="root-%d" % number)
        found = machine.files()
        _state_of(machine, state)
        with pytest.MonkeyPatch.context() as patch:
            cut = Cut(patch, machine, number)
            try:
                ok(machine, state, **({"args": ARGS} if state == "trial" else {}))
                seen = cut.seen
            except PowerCut:
                pass
        tokens = machine.boot()
        trial = any(token.startswith("rke2_hostprep.trial=") for token in tokens)
        assert booted(tokens, ARGS) or not any(token.startswith("isolcpus") for token in tokens)
        if trial:
            assert state == "trial"
            assert not booted(machine.boot(), ARGS)  # once, and then the old entry
        next_one = machine.boot()
        assert not any(token.startswith("rke2_hostprep") for token in next_one)  # no trial by itself
        if state == "committed" and booted(next_one, ARGS):
            assert ok(machine, "committed")["outcome"]["state"] == "as_planned"
            assert ok(machine, "committed")["changed"] is False
        else:
            ok(machine, "trial", args=ARGS, retry_after_fallback=True)
            assert booted(machine.boot(), ARGS)
            ok(machine, "committed")
        assert booted(machine.boot(), ARGS)
        ok(machine, "absent")
        assert machine.files() == found, number
        assert not booted(machine.boot(), ARGS)
        number += step
    assert number > 40
