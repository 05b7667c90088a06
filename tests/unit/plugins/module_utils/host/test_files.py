# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Owned files survive what a host does to them: a failure or a kill at every system call, foreign edits, two runs at once."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import atomic, files, units
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from fake_systemctl import Systemctl
from hypothesis import HealthCheck, given, settings, strategies as st

HOME = "var/lib/lo0.rke2_hostprep"
PATHS = ("/etc/a.conf", "/etc/new/deep/b.conf", "/etc/systemd/system/ours.service", "/usr/c")
CHANGES = (
    "open",
    "write",
    "fsync",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "fchmod",
    "fchown",
    "chmod",
    "makedirs",
    "utime",
    "setxattr",
)
TAKES_ROOM = ("open", "write", "mkdir", "makedirs")


class Killed(BaseException):
    """The process is gone: nothing that it would still do happens."""


class System:
    """In place of ``os``: counts the calls that change something, and fails or dies at one of them."""

    def __init__(self):
        self.count, self.at, self.how, self.dead = 0, None, None, False

    def step(self, name="run"):
        if self.dead:
            raise Killed()
        self.count += 1
        due = self.at is not None and (
            self.count == self.at or (self.how == "full" and self.count > self.at and name in TAKES_ROOM)
        )
        if not due:
            return
        if self.how == "kill":
            self.dead = True
            raise Killed()
        if self.how == "full" and name not in TAKES_ROOM:
            return
        raise OSError(errno.ENOSPC if self.how == "full" else errno.EIO, os.strerror(errno.ENOSPC))

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in CHANGES:
            return real

        def call(*arguments, **options):
            if name != "open" or arguments[1] & os.O_CREAT:
                self.step(name)
            return real(*arguments, **options)

        return call


class Host:
    """A host's files below a folder, with a systemd of its own."""

    def __init__(self, top):
        self.top = Path(top)
        self.systemctl = Systemctl(top)
        self.system = System()

    def put(self, path, content, mode=0o644):
        place = self.top / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.unlink(missing_ok=True)
            return
        place.write_bytes(content)
        place.chmod(mode)

    def run(self, check=False, diff=False, at=None, how=None, live=True, **options):
        """The result, or the HostprepError that was raised or returned (with ``result``)."""
        system = System()
        system.at, system.how = at, how
        self.system = system

        class Root(files.Root):
            def __init__(self, root):
                super().__init__(root)
                self.live = live

        def run(argv, timeout):
            if "show" not in argv:
                try:
                    system.step()
                except OSError:
                    return 1, "failed"
            elif system.dead:
                raise Killed()
            return self.systemctl.run(argv, timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomic, "os", system)
            patch.setattr(files, "os", system)
            patch.setattr(files, "Root", Root)
            patch.setattr(units, "run", run)
            options.setdefault("lock_timeout", 0)
            try:
                result = files.converge(dict(options, root=str(self.top)), check, diff)
            except HostprepError as error:
                error.result = None
                return error
        if "error" in result:
            result["error"].result = result
            return result["error"]
        return result

    def record(self):
        try:
            return json.loads((self.top / HOME / "owned.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"files": {}, "units": {}}

    def tree(self, record=False):
        """Files and folders with contents, modes and owners; without the record's folder unless asked for."""
        found = {}
        for path in sorted(self.top.rglob("*")):
            name = "/" + str(path.relative_to(self.top))
            if not record and (name.startswith("/var") or name == "/var"):
                continue
            facts = path.lstat()
            found[name] = (
                stat.S_IMODE(facts.st_mode),
                facts.st_uid,
                facts.st_gid,
                path.read_bytes() if path.is_file() else None,
            )
        return found


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path / "root")
    _found(host)
    return host


def _found(host):
    host.put("/etc/a.conf", b"found\xff\x00", 0o640)
    host.put("/usr/c", b"c", 0o755)
    host.put("/etc/systemd/system/x", b"")
    os.chown(host.top / "etc/a.conf", 12, 34) if os.geteuid() == 0 else None
    host.systemctl = Systemctl(
        host.top, {"irqbalance.service": {"enabled": True, "active": True}, "net.service": {"active": True}}
    )


@contextmanager
def fresh():
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of fsync calls
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        host = Host(Path(folder) / "root")
        _found(host)
        yield host


def wanted(word="one", **options):
    return dict(
        {
            "files": [
                {"path": PATHS[0], "content": word},
                {"path": PATHS[1], "content": word + "b", "mode": "0600"},
                {"path": PATHS[2], "content": "[Install]\n" + word},
                {"path": PATHS[3], "state": "absent"},
            ],
            "units": [
                {"name": "irqbalance.service", "masked": True, "state": "stopped"},
                {"name": "ours.service", "enabled": True, "state": "started", "restart_on": [PATHS[2]]},
                {"name": "net.service", "reload_on": [PATHS[1]]},
            ],
            "commands": [{"argv": ["udevadm", "control", "--reload"], "when_changed": [PATHS[0]]}],
        },
        **options,
    )


def refused(error, code):
    assert isinstance(error, HostprepError), error
    assert error.code == code, str(error)
    assert error.read and "\n" not in str(error)
    return error


def as_wanted(host, word):
    assert (host.top / "etc/a.conf").read_text() == word
    assert stat.S_IMODE((host.top / "etc/new/deep/b.conf").stat().st_mode) == 0o600
    assert not (host.top / "usr/c").exists()
    assert host.systemctl.state()["irqbalance.service"][1:] == (False, True)
    assert host.systemctl.state()["ours.service"] == (True, True, False)


def test_present_again_and_back(host):
    before, units_before = host.tree(record=True), host.systemctl.state()
    foretold = host.run(check=True, diff=True, **wanted())
    assert host.tree(record=True) == before and host.systemctl.calls == []
    first = host.run(diff=True, **wanted())
    assert first["changed"] and first["done"] == foretold["would"] and first["diff"] == foretold["diff"]
    assert first["not_done"] == []
    as_wanted(host, "one")
    assert host.systemctl.calls == [
        "daemon-reload",
        "enable ours.service",
        "mask irqbalance.service",
        "stop irqbalance.service",
        "start ours.service",
        "reload net.service",
        "udevadm control --reload",
    ]
    after, host.systemctl.calls = host.tree(record=True), []
    for check in (True, False):
        again = host.run(check=check, diff=True, **wanted())
        assert not again["changed"] and again.get("done") == ([] if not check else None) and again["diff"] == []
    assert host.tree(record=True) == after and host.systemctl.calls == []
    second = host.run(**wanted("two"))
    assert [step["action"] for step in second["done"]] == ["write"] * 3 + ["daemon-reload", "restart", "reload", "run"]
    foretold = host.run(check=True, state="absent")
    assert host.run(state="absent")["done"] == foretold["would"]
    assert host.tree(record=True) == {
        **before,
        **{k: v for k, v in host.tree(True).items() if k in ("/var", "/var/lib")},
    }
    assert host.systemctl.state() == units_before
    host.systemctl.calls = []
    assert not host.run(state="absent")["changed"] and host.systemctl.calls == []


def test_rollback_stops_a_unit_before_its_file_goes_and_follows_up(host):
    host.run(**wanted())
    host.systemctl.calls = []
    done = host.run(state="absent")["done"]
    assert done[:2] == [{"action": "disable", "unit": "ours.service"}, {"action": "stop", "unit": "ours.service"}]
    assert host.systemctl.calls[2:] == [
        "daemon-reload",
        "unmask irqbalance.service",
        "start irqbalance.service",
        "reload net.service",
        "udevadm control --reload",
    ]


def test_drift_is_said_and_converged_and_rollback_refuses_a_foreign_edit(host):
    before = host.tree()
    host.run(**wanted())
    host.put("/etc/a.conf", b"by hand")
    host.systemctl.units["irqbalance.service"].update(masked=False, active=True)
    state = host.tree(record=True)
    error = refused(host.run(state="absent"), "files_changed_by_others")
    assert "/etc/a.conf" in str(error) and host.tree(record=True) == state
    result = host.run(**wanted())
    assert [entry.get("path") or entry["unit"] for entry in result["drift"]] == ["/etc/a.conf", "irqbalance.service"]
    as_wanted(host, "one")
    kept = {path.read_bytes() for path in (host.top / HOME / "originals").iterdir()}
    assert b"by hand" in kept
    host.put("/etc/a.conf", b"again")
    assert host.run(state="absent", discard_foreign_changes=True)["drift"]
    assert host.tree() == before and not (host.top / HOME).exists()


@pytest.mark.parametrize("how", ["mode", "removed", "owner"])
def test_what_counts_as_a_foreign_change(host, how):
    if how == "owner" and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    host.run(**wanted())
    place = host.top / "etc/a.conf"
    {"mode": lambda: place.chmod(0o600), "removed": place.unlink, "owner": lambda: os.chown(place, 1, 1)}[how]()
    refused(host.run(state="absent"), "files_changed_by_others")
    assert host.run(**wanted())["drift"] and not host.run(**wanted())["changed"]


def test_the_wanted_content_made_by_hand_becomes_ours(host):
    before = host.tree()
    host.run(files=[{"path": "/etc/a.conf", "content": "one"}])
    host.put("/etc/a.conf", b"two")
    result = host.run(files=[{"path": "/etc/a.conf", "content": "two"}])
    assert not result["changed"] and not result["drift"]
    host.run(state="absent")
    assert host.tree() == before


def test_what_is_already_as_wanted_is_not_owned(host):
    host.put("/etc/same", b"same")
    before = host.tree(record=True)
    assert not host.run(files=[{"path": "/etc/same", "content": "same"}])["changed"]
    assert {k: v for k, v in host.tree(record=True).items() if k in before} == before and not (host.top / HOME).exists()


def test_owners_are_apart_and_purge_gives_back_what_left_the_set(host):
    before = host.tree()
    host.run(owner="one", files=[{"path": "/etc/a.conf", "content": "1"}, {"path": "/etc/n/1", "content": "1"}])
    host.run(owner="two", files=[{"path": "/etc/n/2", "content": "2"}])
    refused(host.run(owner="two", files=[{"path": "/etc/a.conf", "content": "2"}]), "files_owned_by_another")
    result = host.run(owner="one", purge=True, files=[{"path": "/etc/n/1", "content": "1"}])
    assert result["done"] == [{"action": "restore", "path": "/etc/a.conf"}]
    host.run(owner="one", state="absent")
    assert (host.top / "etc/n/2").exists()
    host.run(owner="two", state="absent")
    assert host.tree() == before


def test_named_files_are_given_back_alone(host):
    host.run(**wanted())
    result = host.run(state="absent", files=[{"path": "/etc/a.conf"}])
    assert [step.get("path") for step in result["done"]] == ["/etc/a.conf", None]
    assert (host.top / "etc/new/deep/b.conf").exists()


def test_another_root_touches_no_unit(host):
    result = host.run(live=False, **wanted())
    assert host.systemctl.calls == [] and all("path" in step for step in result["done"])
    assert [entry.get("unit") or entry["argv"][0] for entry in result["not_touched"]] == [
        "irqbalance.service",
        "ours.service",
        "net.service",
        "udevadm",
    ]
    assert host.record()["units"] == {} and not host.run(live=False, **wanted())["changed"]


# -- paths


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("etc/a", "file_path_invalid"),
        ("", "file_path_invalid"),
        ("/etc/../a", "file_path_invalid"),
        ("/etc//a", "file_path_invalid"),
        ("/etc/", "file_path_invalid"),
        ("/etc/a\0b", "file_path_invalid"),
        ("/proc/sys/x", "file_path_forbidden"),
        ("/sys", "file_path_forbidden"),
        ("/dev/null", "file_path_forbidden"),
        ("/to-sys/x", "file_path_forbidden"),
        ("/var/lib/lo0.rke2_hostprep", "file_path_forbidden"),
        ("/var/lib/lo0.rke2_hostprep/owned.json", "file_path_forbidden"),
        ("/var/lib/lo0.rke2_hostprep/.owned.json.new-hostprep~", "file_path_forbidden"),
        ("/var/lib/lo0.rke2_hostprep/originals/x", "file_path_forbidden"),
        ("/to-record/lock", "file_path_forbidden"),
        ("/link", "file_is_link"),
        ("/etc", "file_not_regular"),
        ("/pipe", "file_not_regular"),
        ("/hard", "file_hard_linked"),
        ("/usr/c/below", "file_folder_invalid"),
        ("/dangling/x", "file_folder_invalid"),
        ("/loop/x", "file_folder_invalid"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_paths_that_are_refused(host, path, code, check):
    (host.top / "link").symlink_to("etc/a.conf")
    (host.top / "to-sys").symlink_to("/sys")
    (host.top / "to-record").symlink_to("/var/lib/lo0.rke2_hostprep")
    (host.top / HOME).mkdir(parents=True)
    (host.top / "sys").mkdir()
    (host.top / "dangling").symlink_to("/nowhere/at/all")
    (host.top / "loop").symlink_to("loop")
    os.mkfifo(host.top / "pipe")
    (host.top / "one").write_text("1")
    os.link(host.top / "one", host.top / "hard")
    before = host.tree()
    both = [{"path": "/etc/a.conf", "content": "x"}, {"path": path, "content": "x"}]
    refused(host.run(check=check, files=both), code) if path else host.run(files=both)
    assert host.tree() == before and not (host.top / HOME / "owned.json").exists()


def test_a_file_beside_the_record_comes_and_goes(host):
    """The plan that the host keeps lies there."""
    before = host.tree()
    path = "/var/lib/lo0.rke2_hostprep/plan.json"
    wanted = [{"path": path, "content": "{}"}]
    assert [step["path"] for step in host.run(check=True, files=wanted)["would"]] == [path]
    assert [step["path"] for step in host.run(files=wanted)["done"]] == [path]
    assert not host.run(files=wanted)["changed"]
    host.run(state="absent")
    assert host.tree() == before and not (host.top / HOME).exists()


def test_links_in_folders_stay_below_the_root(host):
    (host.top / "abs").symlink_to("/etc")
    (host.top / "up").symlink_to("../../../../etc")
    for name in ("abs", "up"):
        assert host.run(files=[{"path": "/%s/%s" % (name, name), "content": "x"}])["done"][0]["path"] == "/etc/" + name
        assert (host.top / "etc" / name).read_text() == "x"
    refused(
        host.run(files=[{"path": "/abs/q", "content": "x"}, {"path": "/up/q", "content": "x"}]), "files_named_twice"
    )
    taken = [{"path": "/etc/q", "content": "x"}, {"path": "/etc/q/r", "content": "x"}]
    refused(host.run(files=taken), "file_folder_invalid")


def test_a_link_in_place_of_an_owned_file_is_never_followed(host):
    host.run(**wanted())
    (host.top / "etc/a.conf").unlink()
    (host.top / "etc/a.conf").symlink_to("../usr/precious")
    for options in (wanted("two"), {"state": "absent"}, {"state": "absent", "discard_foreign_changes": True}):
        refused(host.run(**options), "file_is_link")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"files": [{"path": "/a"}]}, "file_content_missing"),
        ({"files": [{"path": "/a", "content": "x", "mode": 420}]}, "file_mode_invalid"),
        ({"files": [{"path": "/a", "content": "x", "mode": "rw"}]}, "file_mode_invalid"),
        ({"files": [{"path": "/a", "content": "x"}] * 2}, "files_named_twice"),
        ({"files": [{"path": "/a", "content": "x", "validate": ["true"]}]}, "file_validate_invalid"),
        ({"units": [{"name": "irqbalance", "enabled": True}]}, "unit_name_invalid"),
        ({"units": [{"name": "--now.service", "enabled": True}]}, "unit_name_invalid"),
        ({"units": [{"name": "a.service", "masked": True, "enabled": True}]}, "unit_conflict"),
        ({"units": [{"name": "gone.service", "enabled": True}]}, "unit_missing"),
        ({"units": [{"name": "masked.service", "state": "started"}]}, "unit_masked"),
        ({"units": [{"name": "static.service", "enabled": True}]}, "unit_not_enableable"),
        ({"units": [{"name": "etc.service", "masked": True}]}, "unit_not_maskable"),
        ({"units": [{"name": "a.service", "restart_on": ["/b"]}]}, "files_reference_unknown"),
        ({"commands": [{"argv": []}]}, "command_invalid"),
        ({"commands": [{"argv": ["x"], "when_changed": ["/b"]}]}, "files_reference_unknown"),
        ({"owner": "../x"}, "files_owner_invalid"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_refusals_before_anything_is_done(host, options, code, check):
    host.systemctl.units.update(
        {
            "masked.service": {"enabled": False, "active": False, "masked": True},
            "static.service": {"enabled": False, "active": False, "masked": False, "static": True},
            "etc.service": {
                "enabled": False,
                "active": False,
                "masked": False,
                "fragment": "/etc/systemd/system/etc.service",
            },
        }
    )
    before = host.tree()
    refused(host.run(check=check, **options), code)
    assert host.tree() == before and host.systemctl.calls == [] and not (host.top / HOME).exists()


# -- the record


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "record_damaged"),
        ("[]", "record_damaged"),
        ('{"format": 1, "files": []}', "record_damaged"),
        ('{"format": 1, "files": {"/a": {}}}', "record_damaged"),
        (
            '{"format": 1, "files": {"/../a": {"owner": "host", "original": null, "ours": [], "unsettled": false}}}',
            "record_damaged",
        ),
        (
            '{"format": 1, "files": {"/a": {"owner": "h", "original": {}, "ours": [null], "unsettled": false}}}',
            "record_damaged",
        ),
        ('{"format": 1, "units": {"a.service": {"owner": 1}}}', "record_damaged"),
        ('{"format": 99}', "record_newer"),
    ],
)
def test_a_record_that_cannot_be_used(host, text, code):
    (host.top / HOME).mkdir(parents=True)
    (host.top / HOME / "owned.json").write_text(text)
    before = host.tree()
    for options in (wanted(), {"state": "absent"}):
        refused(host.run(**options), code)
    assert host.tree() == before and (host.top / HOME / "owned.json").read_text() == text


def test_a_lost_original_stops_the_rollback_before_it_begins(host):
    host.run(**wanted())
    shutil.rmtree(host.top / HOME / "originals")
    before = host.tree()
    refused(host.run(state="absent"), "original_lost")
    assert host.tree() == before and host.systemctl.state()["ours.service"] == (True, True, False)


def test_originals_are_for_root_alone(host):
    host.run(**wanted())
    home = host.top / HOME
    assert stat.S_IMODE((home / "originals").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*") if path.is_file()} == {0o600}


def test_extended_attributes_come_back(host):
    try:
        os.setxattr(host.top / "etc/a.conf", "user.note", b"kept")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    host.run(**wanted())
    assert os.listxattr(host.top / "etc/a.conf") == []
    host.run(state="absent")
    assert os.getxattr(host.top / "etc/a.conf", "user.note") == b"kept"


@pytest.mark.parametrize("check", [False, True])
def test_two_runs_at_once(host, check):
    host.run(**wanted())
    lock = os.open(host.top / HOME / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    before = host.tree(record=True)
    refused(host.run(check=check, **wanted("two")), "files_locked")
    assert host.tree(record=True) == before
    os.close(lock)
    assert host.run(**wanted("two"))["changed"]


def test_the_second_run_waits(host):
    host.run(**wanted())
    holder = subprocess.Popen(["flock", str(host.top / HOME / "lock"), "sleep", "0.5"])
    try:
        while subprocess.run(["flock", "-n", str(host.top / HOME / "lock"), "true"], check=False).returncode == 0:
            pass
        assert host.run(lock_timeout=20, **wanted("two"))["changed"]
    finally:
        holder.wait()


def test_a_lock_that_the_run_before_removed_is_not_taken_for_the_lock(host, monkeypatch):
    home = host.top / HOME
    home.mkdir(parents=True)
    (home / "lock").touch()
    real, calls = fcntl.flock, []

    def flock(handle, how):
        real(handle, how)
        calls.append(handle)
        if (
            len(calls) == 1
        ):  # between our opening and our locking it, its holder removed it and the next run made a new one
            (home / "lock").rename(home / "old")
            (home / "lock").touch()

    monkeypatch.setattr(files.fcntl, "flock", flock)
    host.run(**wanted())
    assert len(calls) == 2 and not (home / "lock").samefile(home / "old")


def test_a_helper_file_left_behind_is_in_nobodys_way(host):
    for kind in ("new", "old"):
        Path(atomic.beside(str(host.top / "etc/a.conf"), kind + "-" + files.TOKEN)).write_text("left")
    host.run(**wanted())
    as_wanted(host, "one")
    assert not [path for path in host.tree() if path.endswith("~")]


# -- failures and kills


def test_a_failed_command_is_tried_again_and_nothing_else(host):
    host.systemctl.fail = {"udevadm control --reload": "no such\nrule"}
    error = refused(host.run(**wanted()), "command_failed")
    assert error.result["output"] == ["no such", "rule"] and error.result["changed"]
    assert [step["action"] for step in error.result["not_done"]] == ["run"]
    as_wanted(host, "one")
    refused(host.run(**wanted()), "command_failed")
    host.systemctl.fail, host.systemctl.calls = {}, []
    assert host.run(check=True, **wanted())["would"][-1]["action"] == "run"
    assert host.run(**wanted())["changed"] and "udevadm control --reload" in host.systemctl.calls
    assert not host.run(**wanted())["changed"]


def test_a_unit_that_fails_or_dies_is_reported(host):
    host.systemctl.fail = {"start ours.service": "Job failed"}
    error = refused(host.run(**wanted()), "unit_failed")
    assert error.result["output"] == ["Job failed", "status of ours.service"]
    assert {"action": "start", "unit": "ours.service"} == error.result["not_done"][0]
    host.systemctl.fail = {}
    host.systemctl.units["ours.service"]["dies"] = True
    refused(host.run(**wanted()), "unit_not_as_wanted")
    host.systemctl.units["ours.service"]["dies"] = False
    host.run(**wanted())
    as_wanted(host, "one")


def test_a_mask_found_comes_back_with_what_was_beneath(host):
    for enabled in (True, False):
        host.systemctl = Systemctl(host.top, {"a.service": {"enabled": enabled, "masked": True}})
        before = host.systemctl.state()
        host.run(units=[{"name": "a.service", "masked": False}])
        host.run(units=[{"name": "a.service", "masked": False, "enabled": not enabled, "state": "started"}])
        assert host.systemctl.state()["a.service"] == (not enabled, True, False)
        host.run(state="absent")
        assert host.systemctl.state() == before


@pytest.mark.parametrize("masked", [True, False])
def test_a_unit_whose_package_was_removed_does_not_stop_the_rollback(host, masked):
    before = host.tree()
    host.run(
        units=[{"name": "irqbalance.service", "masked": masked, "enabled": False, "state": "stopped"}],
        files=[{"path": "/etc/a.conf", "content": "x"}],
    )
    host.systemctl.units["irqbalance.service"]["gone"] = True
    result = host.run(state="absent")
    assert result["drift"][0]["unit"] == "irqbalance.service" and "not on the host" in result["drift"][0]["message"]
    assert host.tree() == before and not (host.top / HOME).exists()


def test_validation_comes_before_everything(host):
    entry = {"path": "/etc/systemd/system/ours.service", "content": "bad", "validate": ["check", "%s"]}
    seen = []

    def run(argv, timeout=None):
        seen.append((os.path.basename(argv[1]), Path(argv[1]).read_text()))
        return 1, "line 1: bad"

    host.systemctl.run = run
    before = host.tree()
    for check in (True, False):
        error = refused(host.run(check=check, files=[entry]), "file_content_invalid")
        assert "line 1: bad" in str(error) and host.tree() == before
    assert seen == [("ours.service", "bad")] * 2
    assert "line 1" not in str(host.run(files=[dict(entry, sensitive=True)]))


def test_a_file_that_changes_during_the_run_is_not_overwritten(host, monkeypatch):
    real = atomic.write_new

    def write_new(path, file):
        real(path, file)
        host.put("/etc/a.conf", b"just now")

    monkeypatch.setattr(atomic, "write_new", write_new)
    refused(host.run(**wanted()), "file_changed_meanwhile")
    assert (host.top / "etc/a.conf").read_bytes() == b"just now" and not host.record()["files"]


def only_files(tree):
    return {path: facts for path, facts in tree.items() if facts[3] is not None}


def _steps(prepare, options):
    with fresh() as host:
        prepare(host)
        result = host.run(**options)
        assert not isinstance(result, HostprepError), result
        return host.system.count


SCENARIOS = {
    "first": (lambda host: None, wanted()),
    "second": (lambda host: host.run(**wanted()), wanted("two")),
    "more": (lambda host: host.run(files=wanted()["files"][1:2]), wanted()),
    "drift": (lambda host: (host.run(**wanted()), host.put("/etc/a.conf", b"hand")), wanted()),
    "rollback": (lambda host: host.run(**wanted()), {"state": "absent"}),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_step(name):
    prepare, options = SCENARIOS[name]
    for at in range(1, _steps(prepare, options) + 1):
        for then in ("present", "absent"):
            with fresh() as host:
                before, units_before = host.tree(), host.systemctl.state()
                prepare(host)
                with pytest.raises(Killed):
                    host.run(at=at, how="kill", **options)
                if then == "present":
                    result = host.run(**wanted("two"))
                    assert not isinstance(result, HostprepError), (at, result)
                    as_wanted(host, "two")
                    assert not [path for path in host.tree() if path.endswith("~")], at
                    calls = len(host.systemctl.calls)
                    assert not host.run(**wanted("two"))["changed"] and len(host.systemctl.calls) == calls
                result = host.run(state="absent", discard_foreign_changes=name == "drift")
                assert not isinstance(result, HostprepError), (at, result)
                assert host.tree() == before and host.systemctl.state() == units_before, at
                assert not (host.top / HOME).exists(), at


@pytest.mark.parametrize("how", ["fail", "full"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_failure_at_every_step_leaves_all_files_old_or_all_new(name, how):
    prepare, options = SCENARIOS[name]
    with fresh() as host:
        prepare(host)
        host.run(**options)
        new = host.tree()
    for at in range(1, _steps(prepare, options) + 1):
        with fresh() as host:
            before, units_before = host.tree(), host.systemctl.state()
            prepare(host)
            old = host.tree()
            result = host.run(at=at, how=how, **options)
            if isinstance(result, HostprepError):
                assert "\n" not in str(result) and result.code != "unexpected", (at, str(result))
                wrote = [step for step in (result.result or {}).get("done", []) if "path" in step]
                assert only_files(host.tree()) == only_files(new if wrote else old), (at, str(result))
                assert wrote or host.tree() == old, at
            else:
                seen = host.tree()
                assert {path: seen[path] for path in new} == new, at
            result = host.run(**wanted("two"))
            assert not isinstance(result, HostprepError), (at, result)
            as_wanted(host, "two")
            assert not host.run(**wanted("two"))["changed"]
            assert not isinstance(host.run(state="absent"), HostprepError)
            assert host.tree() == before and host.systemctl.state() == units_before, at


CONTENT = st.sampled_from([None, "", "one", "two", "three"])
FILES = st.dictionaries(st.sampled_from(PATHS), CONTENT, min_size=1)
STEP = st.one_of(
    st.tuples(st.just("present"), FILES, st.booleans(), st.none() | st.integers(1, 60)),
    st.tuples(st.just("absent"), st.none(), st.booleans(), st.none() | st.integers(1, 60)),
    st.tuples(st.just("edit"), st.sampled_from(PATHS), CONTENT, st.none()),
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(st.lists(STEP, max_size=8))
def test_whatever_happens_a_rollback_gives_back_what_was_found(steps):
    with fresh() as host:

        def now():
            tree = host.tree()
            return {path: tree.get(path) for path in PATHS}

        original = now()
        for kind, what, flag, at in steps:
            if kind == "edit":
                host.put(what, None if flag is None else flag.encode())
            else:
                options = {"state": kind, "discard_foreign_changes": True}
                if kind == "present":
                    options["purge"] = flag
                    options["files"] = [
                        {"path": path, "content": content, "state": "absent" if content is None else "present"}
                        for path, content in what.items()
                    ]
                recorded = set(host.record()["files"])
                try:
                    result = host.run(at=at, how="kill", **options)
                    assert not isinstance(result, HostprepError), result
                    if kind == "present":
                        again = host.run(**options)
                        assert not again["changed"] and again["done"] == []
                except Killed:
                    pass
                for path in recorded - set(host.record()["files"]):
                    assert now()[path] == original[path]
            recorded = host.record()["files"]
            original.update({path: state for path, state in now().items() if path not in recorded})
        result = host.run(state="absent", discard_foreign_changes=True)
        assert not isinstance(result, HostprepError), result
        assert now() == original
        assert not [path for path in host.tree() if path.endswith("~")] and not (host.top / HOME).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("options", ["size=64k", "ro"])
def test_a_disk_that_is_really_full_or_read_only(tmp_path, options):
    top = tmp_path / "disk"
    top.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(top)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        host = Host(top)
        host.put("/etc/a.conf", b"found")
        if options == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(top)], check=True)
        before = host.tree(record=True)
        big = [{"path": "/etc/a.conf", "content": "x"}, {"path": "/etc/b", "content": "y" * 100000}]
        error = host.run(files=big)
        assert error.code in ("files_not_written", "record_unwritable", "file_unwritable"), str(error)
        assert {k: v for k, v in host.tree(True).items() if k not in ("/var", "/var/lib")} == before
        if options == "ro":
            assert not isinstance(host.run(files=[{"path": "/etc/none", "state": "absent"}]), HostprepError)
    finally:
        subprocess.run(["umount", str(top)], check=True)
