# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module host_files: its options and results. What it does to a host is tested in module_utils/host/test_files.py."""

from __future__ import annotations

import errno
import json

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import files, units
from ansible_collections.lo0.rke2_hostprep.plugins.modules import host_files
from fake_systemctl import Systemctl


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "a.conf").write_text("found\n")
    return tmp_path / "root"


@pytest.fixture
def live(root, monkeypatch):
    """Makes the root one whose units are touched; returns its systemd."""

    class Root(files.Root):
        def __init__(self, path):
            super().__init__(path)
            self.live = True

    systemctl = Systemctl(root, {"irqbalance.service": {"enabled": True, "active": True}})
    monkeypatch.setattr(files, "Root", Root)
    monkeypatch.setattr(units, "run", systemctl.run)
    return systemctl


def run(capsys, **arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit) as stopped:
        host_files.main()
    return stopped.value.code or 0, json.loads(capsys.readouterr().out)


FILE = {"path": "/etc/a.conf", "content": "ours\n"}
UNIT = {"name": "irqbalance.service", "masked": True, "state": "stopped"}


def test_check_mode_foretells_the_run_and_the_second_run_does_nothing(capsys, root, live):
    options = {
        "root": str(root),
        "files": [FILE],
        "units": [UNIT],
        "commands": [{"argv": ["true", "x"]}],
        "_ansible_diff": True,
    }
    code, foretold = run(capsys, _ansible_check_mode=True, **options)
    assert code == 0 and live.calls == [] and (root / "etc" / "a.conf").read_text() == "found\n"
    code, done = run(capsys, **options)
    assert code == 0 and done["changed"] is foretold["changed"] is True
    assert done["done"] == foretold["would"] and done["diff"] == foretold["diff"]
    assert [step["action"] for step in done["done"]] == ["write", "mask", "stop", "run"]
    live.calls.clear()
    code, again = run(capsys, **options)
    assert (code, again["changed"], again["done"], again["diff"], live.calls) == (0, False, [], [], [])


@pytest.mark.parametrize("check", [True, False])
def test_where_no_record_can_be_kept_check_mode_refuses_too(capsys, root, monkeypatch, check):
    make, access = files.os.makedirs, files.os.access

    def closed(path, *more, **options):
        if "var" in str(path).split("/"):
            raise PermissionError(errno.EROFS, "Read-only file system")
        return make(path, *more, **options)

    monkeypatch.setattr(files.os, "makedirs", closed)
    monkeypatch.setattr(files.os, "access", lambda path, mode: str(path) != str(root) and access(path, mode))
    code, result = run(capsys, root=str(root), files=[FILE], _ansible_check_mode=check)
    assert (code, result["code"]) == (1, "record_unwritable") and result["read"].startswith(str(root) + "/var/lib")
    assert (root / "etc" / "a.conf").read_text() == "found\n" and not (root / "var").exists()
    (root / "etc" / "a.conf").write_text("ours\n")
    assert (
        run(capsys, root=str(root), files=[FILE], _ansible_check_mode=check)[0] == 0
    )  # nothing to do, nothing to keep


def test_diff_is_one_list(capsys, root, live):
    diff = run(capsys, root=str(root), files=[FILE], units=[UNIT], _ansible_diff=True)[1]["diff"]
    assert [(entry["before"], entry["after"]) for entry in diff] == [
        ("found\n", "ours\n"),
        ("irqbalance.service: enabled, started\n", "irqbalance.service: masked, stopped\n"),
    ]
    assert diff[0]["after_header"].startswith("/etc/a.conf (mode 0644, owner ")
    assert "diff" not in run(capsys, root=str(root), state="absent")[1]


def test_a_failure_says_what_was_done_and_what_not(capsys, root, live):
    live.fail = {"stop irqbalance.service": "no\nway"}
    code, result = run(capsys, root=str(root), files=[FILE], units=[UNIT])
    assert code == 1 and result["failed"] and result["changed"] and result["code"] == "unit_failed"
    assert [step["action"] for step in result["done"]] == ["write", "mask"]
    assert result["not_done"] == [{"action": "stop", "unit": "irqbalance.service"}]
    assert result["output"] == ["no", "way"] and "\n" not in result["msg"]


def test_secrets_are_nowhere_in_the_result(capsys, root):
    secret = "K10c0ffee::server:hunter2"
    (root / "etc" / "a.conf").write_text("old-" + secret)
    for options in ({"files": [dict(FILE, content=secret, sensitive=True)]}, {"state": "absent"}):
        for check in (True, False):
            code, result = run(capsys, root=str(root), _ansible_diff=True, _ansible_check_mode=check, **options)
            assert code == 0 and result["changed"] and secret not in json.dumps(result)
    assert (root / "etc" / "a.conf").read_text() == "old-" + secret


def test_contents_stay_out_of_the_system_log(capsys, root, monkeypatch):
    logged = []
    monkeypatch.setattr(
        "ansible.module_utils.basic.AnsibleModule._log_to_syslog", lambda self, message: logged.append(message)
    )
    monkeypatch.setattr("ansible.module_utils.basic.has_journal", False)
    assert run(capsys, root=str(root), files=[FILE])[0] == 0 and logged == []


def test_binary_and_long_contents_are_described_in_the_diff(capsys, root):
    for content in (b"\xff\x00", b"x" * 200000):
        (root / "etc" / "a.conf").write_bytes(content)
        diff = run(capsys, root=str(root), files=[FILE], _ansible_diff=True, _ansible_check_mode=True)[1]["diff"]
        assert diff[0]["before"].startswith("(%d bytes, sha256 " % len(content))


def test_keys_of_the_result_are_not_those_that_ansible_takes_for_itself(capsys, root):
    code, result = run(capsys, root=str(root), files=[FILE], units=[UNIT])
    assert result["not_touched"] == [{"unit": "irqbalance.service"}]
    assert not set(result) & {"skipped", "warnings", "stdout", "rc", "results", "unreachable"}


@pytest.mark.parametrize("root_given", ["relative", "/nowhere/at/all", "/etc/passwd", ""])
def test_a_root_that_is_no_folder(capsys, root_given):
    code, result = run(capsys, root=root_given, files=[])
    assert code == 1 and result["code"] == "files_root_invalid"


def test_an_unforeseen_error_is_one_sentence(capsys, root, monkeypatch):
    monkeypatch.setattr(files.owned, "decide", lambda *arguments: 1 // 0)
    code, result = run(capsys, root=str(root), files=[FILE])
    assert (
        code == 1
        and result["code"] == "unexpected"
        and "ZeroDivisionError" in result["msg"]
        and "\n" not in result["msg"]
    )


def test_the_documentation_names_every_option_and_default():
    documented = yaml.safe_load(host_files.DOCUMENTATION)["options"]
    for name, spec in (("files", host_files._FILE), ("units", host_files._UNIT), ("commands", host_files._COMMAND)):
        assert set(documented[name]["suboptions"]) == set(spec)
        for option, given in spec.items():
            assert documented[name]["suboptions"][option].get("default") == given.get("default"), option
    assert yaml.safe_load(host_files.EXAMPLES) and yaml.safe_load(host_files.RETURN)
