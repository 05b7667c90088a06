# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module: what it returns, and that a refusal is one sentence."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.module_utils import basic
from ansible_collections.lo0.rke2_hostprep.plugins.modules import host_topology


class Exit(Exception):
    pass


@pytest.fixture
def run(monkeypatch):
    """Runs the module with options; gives what it returned, with ``failed`` set by how it ended."""

    def finish(failed):
        def end(_module, **result):
            raise Exit(dict(result, failed=failed))

        return end

    monkeypatch.setattr(basic.AnsibleModule, "exit_json", finish(False))
    monkeypatch.setattr(basic.AnsibleModule, "fail_json", finish(True))

    def call(check_mode=False, **options):
        arguments = dict(
            options, _ansible_check_mode=check_mode, _ansible_remote_tmp="/tmp", _ansible_keep_remote_files=False
        )
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        with pytest.raises(Exit) as caught:
            host_topology.main()
        return caught.value.args[0]

    return call


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "sys/devices/system/cpu"
    folder.mkdir(parents=True)
    (folder / "online").write_text("0-3\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_root(run, root, check_mode):
    result = run(check_mode, root=str(root))
    assert result["failed"] is False and result["changed"] is False
    assert result["topology"]["cpus"]["online"] == "0-3"
    assert result["topology"]["root"] == str(root)


def test_the_live_host_is_the_default(run):
    assert run()["topology"]["root"] == "/"


@pytest.mark.parametrize(
    "name, code", [("absent", "root_missing"), ("empty", "root_empty"), ("file", "root_not_archive")]
)
def test_a_refusal(run, tmp_path, name, code):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"no archive" * 100)
    result = run(root=str(tmp_path / name))
    assert result["failed"] is True and result["code"] == code
    assert "\n" not in result["msg"] and str(tmp_path / name) in result["msg"]
    assert result["read"] and result["allowed"] and result["cure"]
    assert "topology" not in result


def test_a_defect_is_a_sentence_too(run, root, monkeypatch):
    def fail(_tree):
        raise KeyError("defect")

    monkeypatch.setattr(host_topology, "discover", fail)
    result = run(root=str(root))
    assert result["failed"] is True and result["code"] == "unexpected"
    assert "KeyError" in result["msg"] and "Traceback" not in result["msg"] and "\n" not in result["msg"]


def test_the_documentation_names_every_option_and_every_part(run, root):
    documentation = yaml.safe_load(host_topology.DOCUMENTATION)
    returned = yaml.safe_load(host_topology.RETURN)
    assert list(documentation["options"]) == ["root"]
    assert set(returned["topology"]["contains"]) == set(run(root=str(root))["topology"])
    assert yaml.safe_load(host_topology.EXAMPLES)
