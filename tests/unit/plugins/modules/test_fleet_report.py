# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fleet_report: what it writes and when, check mode, diff, and refusals that leave the folder as it was."""

from __future__ import annotations

import errno
import json
import os
import stat

import pytest
import sample_plans as samples
from ansible.module_utils.testing import patch_module_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import atomic, report_files
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import report
from ansible_collections.lo0.rke2_hostprep.plugins.modules import fleet_report

NAMES = ("plan.html", "plan.json", "plan.txt")


@pytest.fixture
def plans():
    return [samples.entry(samples.h100("gpu-01")), samples.entry(samples.h100("gpu-02")), samples.refused("old-01")]


@pytest.fixture
def clock(monkeypatch):
    """Sets the time of new reports; called with a number of hours."""
    made = report.report

    def turn(hour):
        monkeypatch.setattr(report, "report", lambda entries: made(entries, "2026-12-01T%02d:00:00Z" % hour))

    turn(1)
    return turn


def run(capsys, **arguments):
    """(exit code, result) of the module with these arguments."""
    with patch_module_args(arguments), pytest.raises(SystemExit) as stopped:
        fleet_report.main()
    return stopped.value.code or 0, json.loads(capsys.readouterr().out)


def state(folder):
    """Everything below a folder: contents, modes, and the inodes and times that a rewrite would change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        found[str(path.relative_to(folder))] = (
            facts.st_mode,
            facts.st_ino,
            facts.st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
    return found


def contents(folder):
    return {path.name: (path.stat().st_mode, path.read_bytes()) for path in folder.iterdir()}


def test_writes_the_three_files(capsys, tmp_path, plans, clock):
    dest = tmp_path / "new" / "report"
    code, result = run(capsys, plans=plans, dest=str(dest), title="Window <12>")
    assert (code, result["changed"]) == (0, True)
    assert sorted(os.listdir(dest)) == list(NAMES)
    assert {stat.S_IMODE((dest / name).stat().st_mode) for name in NAMES} == {0o644}
    assert result["files"] == {
        "json": str(dest / "plan.json"),
        "html": str(dest / "plan.html"),
        "text": str(dest / "plan.txt"),
    }
    document = json.loads((dest / "plan.json").read_text(encoding="utf-8"))
    assert document["generated_at"] == "2026-12-01T01:00:00Z"
    assert document["hosts"] == json.loads(json.dumps(plans))
    assert result["summary"] == document["summary"] and result["summary"]["planned"] == 2
    assert "\n".join(result["table"]) + "\n" == (dest / "plan.txt").read_text(encoding="utf-8")
    assert "<title>Window &lt;12&gt;</title>" in (dest / "plan.html").read_text(encoding="utf-8")
    assert "diff" not in result


def test_the_same_plans_change_nothing_later(capsys, tmp_path, plans, clock):
    run(capsys, plans=plans, dest=str(tmp_path))
    before = state(tmp_path)
    clock(2)
    code, result = run(capsys, plans=plans, dest=str(tmp_path))
    assert (code, result["changed"]) == (0, False)
    assert state(tmp_path) == before
    assert "2026-12-01T01:00:00Z" in result["table"][0]


def test_other_plans_change_all_files(capsys, tmp_path, plans, clock):
    run(capsys, plans=plans, dest=str(tmp_path))
    before = state(tmp_path)
    clock(2)
    code, result = run(capsys, plans=plans[:2], dest=str(tmp_path))
    assert (code, result["changed"]) == (0, True)
    after = state(tmp_path)
    assert sorted(after) == list(NAMES) and all(after[name] != before[name] for name in NAMES)
    assert all(b"2026-12-01T02:00:00Z" in after[name][3] for name in NAMES)


def test_another_title_changes_the_page_alone(capsys, tmp_path, plans, clock):
    run(capsys, plans=plans, dest=str(tmp_path))
    before = state(tmp_path)
    clock(2)
    assert run(capsys, plans=plans, dest=str(tmp_path), title="Other")[1]["changed"]
    after = state(tmp_path)
    assert [name for name in NAMES if after[name] != before[name]] == ["plan.html"]
    assert b"2026-12-01T01:00:00Z" in after["plan.html"][3]


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_or_damaged_file_is_restored(capsys, tmp_path, plans, clock, name):
    run(capsys, plans=plans, dest=str(tmp_path))
    wanted = (tmp_path / name).read_bytes()
    for damage in (None, b"", b"\xff\xfe", b"[1]", b'{"generated_at": 7}'):
        (tmp_path / name).unlink()
        if damage is not None:
            (tmp_path / name).write_bytes(damage)
        assert run(capsys, plans=plans, dest=str(tmp_path))[1]["changed"]
        assert (tmp_path / name).read_bytes() == wanted
        assert sorted(os.listdir(tmp_path)) == list(NAMES)


def test_check_mode_says_what_a_run_would_do_and_writes_nothing(capsys, tmp_path, plans, clock):
    dest = tmp_path / "report"
    code, result = run(capsys, plans=plans, dest=str(dest), _ansible_check_mode=True)
    assert (code, result["changed"]) == (0, True) and result["table"]
    assert os.listdir(tmp_path) == []
    run(capsys, plans=plans, dest=str(dest))
    before = state(tmp_path)
    assert run(capsys, plans=plans, dest=str(dest), _ansible_check_mode=True)[1]["changed"] is False
    assert run(capsys, plans=plans[:1], dest=str(dest), _ansible_check_mode=True)[1]["changed"] is True
    assert state(tmp_path) == before


def test_diff_is_that_of_the_text(capsys, tmp_path, plans, clock):
    first = run(capsys, plans=plans, dest=str(tmp_path), _ansible_diff=True)[1]["diff"]
    assert first["before"] == "" and first["after"] == (tmp_path / "plan.txt").read_text(encoding="utf-8")
    assert first["before_header"] == first["after_header"] == str(tmp_path / "plan.txt")
    same = run(capsys, plans=plans, dest=str(tmp_path), _ansible_diff=True)[1]["diff"]
    assert same["before"] == same["after"]
    checked = run(capsys, plans=plans[:1], dest=str(tmp_path), _ansible_diff=True, _ansible_check_mode=True)[1]["diff"]
    assert "old-01" in checked["before"] and "old-01" not in checked["after"]


def test_a_link_in_place_of_a_file_is_replaced_and_what_it_points_to_is_not(capsys, tmp_path, plans, clock):
    (tmp_path / "precious").write_text("keep")
    dest = tmp_path / "report"
    dest.mkdir()
    (dest / "plan.txt").symlink_to(tmp_path / "precious")
    assert run(capsys, plans=plans, dest=str(dest))[1]["changed"]
    assert (tmp_path / "precious").read_text() == "keep" and not (dest / "plan.txt").is_symlink()


def occupied(tmp_path, kind):
    """A folder whose state forbids a report, and the dest to ask for."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "report" / "plan.html").mkdir(parents=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    return {
        "relative": "some/report",
        "file": str(tmp_path / "file"),
        "below a file": str(tmp_path / "file" / "report"),
        "a folder in place of a file": str(tmp_path / "report"),
        "dangling link": str(tmp_path / "dangling"),
    }[kind]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("relative", "dest_not_absolute"),
        ("file", "dest_not_a_folder"),
        ("below a file", "dest_not_a_folder"),
        ("a folder in place of a file", "dest_not_a_folder"),
        ("dangling link", "dest_not_a_folder"),
    ],
)
def test_unusable_destinations_are_refused(capsys, tmp_path, plans, kind, code, check):
    dest = occupied(tmp_path, kind)
    before = state(tmp_path)
    status, result = run(capsys, plans=plans, dest=dest, _ansible_check_mode=check)
    assert status == 1 and result["failed"] and result["code"] == code
    assert result["read"] and result["allowed"] and result["cure"] and "\n" not in result["msg"]
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    ("plans", "words"),
    [
        ("[{", "plans is not JSON"),
        ("7", "plans"),
        ('{"host": "a"}', "plans"),
        ([7], "plans"),
        (["x"], "plans"),
        ("", "not JSON"),
    ],
)
def test_what_is_no_list_of_plans_is_refused(capsys, tmp_path, plans, words):
    status, result = run(capsys, plans=plans, dest=str(tmp_path / "report"))
    assert status == 1 and result["code"] == "plans_malformed" and words in result["msg"] and "\n" not in result["msg"]
    assert result["read"] is not None and result["allowed"] and result["cure"] and os.listdir(tmp_path) == []


def test_json_text_is_the_same_as_the_list(capsys, tmp_path, plans, clock):
    run(capsys, plans=plans, dest=str(tmp_path))
    assert run(capsys, plans=json.dumps(plans), dest=str(tmp_path))[1]["changed"] is False


def test_a_folder_that_may_not_be_written_to_is_refused(capsys, tmp_path, plans, monkeypatch):
    monkeypatch.setattr(report_files.os, "access", lambda path, mode: False)  # root may write everywhere
    status, result = run(capsys, plans=plans, dest=str(tmp_path))
    assert status == 1 and result["code"] == "dest_unwritable" and os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_a_full_disk_leaves_the_old_files_and_nothing_else(capsys, tmp_path, plans, monkeypatch, fails_at, call):
    run(capsys, plans=plans, dest=str(tmp_path))
    before = contents(tmp_path)
    real, calls = getattr(os, call), []

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) == fails_at + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(atomic.os, call, fails)
    status, result = run(capsys, plans=plans[:1], dest=str(tmp_path))
    monkeypatch.undo()
    assert status == 1 and result["code"] == "report_not_written" and "No space left" in result["msg"]
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "plans", [["a"], [{}], [{"host": "a", "status": "planned", "plan": {}}], [{"host": "a", "status": "gone"}]]
)
def test_malformed_plans_write_nothing(capsys, tmp_path, plans):
    status, result = run(capsys, plans=plans, dest=str(tmp_path / "report"))
    assert status == 1 and result["failed"] and "\n" not in result["msg"] and "Traceback" not in json.dumps(result)
    assert os.listdir(tmp_path) == []


def test_no_plans_are_a_report_too(capsys, tmp_path):
    code, result = run(capsys, plans=[], dest=str(tmp_path))
    assert (code, result["summary"]["planned"]) == (0, 0) and result["table"][0].startswith("Host plan of 0 hosts")


def test_an_unforeseen_error_is_one_sentence(capsys, tmp_path, plans, monkeypatch):
    monkeypatch.setattr(report, "table", lambda document: 1 // 0)
    status, result = run(capsys, plans=plans, dest=str(tmp_path))
    assert (
        status == 1
        and result["code"] == "unexpected"
        and "ZeroDivisionError" in result["msg"]
        and os.listdir(tmp_path) == []
    )


def test_plans_stay_out_of_the_system_log(capsys, tmp_path, plans, monkeypatch):
    logged = []
    monkeypatch.setattr(
        "ansible.module_utils.basic.AnsibleModule._log_to_syslog", lambda self, message: logged.append(message)
    )
    monkeypatch.setattr("ansible.module_utils.basic.has_journal", False)
    assert run(capsys, plans=plans, dest=str(tmp_path))[0] == 0
    assert logged == []
