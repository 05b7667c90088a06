# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs at every boot, as it is installed; its sources come out of Ansible's zip file as they are."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import boot_compare, program
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_record, boot_units

PACKAGE = "ansible_collections.lo0.rke2_hostprep.plugins.module_utils"
TRIAL = {
    "args": ["nosmt"],
    "id": "t",
    "boot_id": "a",
    "kernel": "6",
    "method": "kexec",
    "extras": [],
    "plan": None,
    "seen": None,
}


@pytest.fixture
def top(tmp_path):
    """A host's root with the program in its place and a record."""
    for path, text in program.files(program.COMPARISON).items():
        place = tmp_path / boot_units.PROGRAM[1:] / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    home = tmp_path / boot_compare.HOME[1:]
    home.mkdir(parents=True)
    (home / "boot.json").write_text(json.dumps(dict(boot_record.empty(), trial=TRIAL)))
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("b\n")
    (tmp_path / "proc/cmdline").write_text("ro quiet\n")
    return tmp_path


def run(top):
    code = "import sys; sys.path.insert(0, %r); from hostprep.host.boot_compare import main; sys.exit(main(%r))" % (
        str(top) + boot_units.PROGRAM,
        str(top),
    )
    return subprocess.run([sys.executable, "-IB", "-c", code], capture_output=True, text=True, check=False)


def kept(top):
    return json.loads((top / boot_units.OUTCOME[1:]).read_text())["boots"]


def test_a_fallback_is_kept_and_said(top):
    done = run(top)
    assert done.returncode == 0
    assert done.stderr == "fallback: the old boot entry was booted; asked for nosmt; missing: nosmt\n"
    assert [(one["boot_id"], one["state"], one["missing"]) for one in kept(top)] == [("b", "fallback", ["nosmt"])]
    (top / "proc/cmdline").write_text("ro nosmt rke2_hostprep.trial=t\n")
    (top / "proc/sys/kernel/random/boot_id").write_text("c\n")
    assert run(top).stderr == "this boot tries kernel arguments once: nosmt\n"
    assert (
        [one["state"] for one in kept(top)]
        == ["fallback", "trial"]
        == [one["state"] for one in boot_compare.history(str(top))]
    )


@pytest.mark.parametrize("text", ["", "{}", "[1", '{"schema_version": 9}'])
def test_a_damaged_record_is_a_sentence(top, text):
    (top / boot_units.RECORD[1:]).write_text(text)
    done = run(top)
    assert (
        done.returncode == 1
        and done.stderr.startswith("the record of this host's boot")
        and "Traceback" not in done.stderr
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"boots": 1}', '{"boots": [1, {}]}'])
def test_a_damaged_history_begins_anew(top, text):
    (top / boot_units.OUTCOME[1:]).write_text(text)
    assert run(top).returncode == 0
    assert kept(top)[-1]["state"] == "fallback"


def test_the_script_starts_it(top):
    script = (top / boot_units.PROGRAM[1:] / boot_units.SCRIPT).read_text()
    assert "from hostprep.host.boot_compare import main" in script
    compile(script, "script", "exec")


def test_the_program_is_what_it_imports_and_no_more():
    names = set(program.files(program.COMPARISON))
    assert {"hostprep/host/boot_compare.py", "hostprep/model/boot_record.py", boot_units.SCRIPT} <= names
    assert len(names) < 12 and "hostprep/host/keeper.py" not in names


@pytest.mark.parametrize("first", ["", "import %s.host.compile_once; " % PACKAGE])
def test_sources_come_out_of_a_zip_as_they_are(tmp_path, first):
    folder = Path(program.TOP)
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        parts = PACKAGE.split(".")
        for number in range(1, len(parts) + 1):
            zipped.writestr("/".join([*parts[:number], "__init__.py"]), "")
        for path in folder.rglob("*.py"):
            zipped.writestr("/".join([*parts, str(path.relative_to(folder))]), path.read_bytes())
        for name in ("host", "model"):
            zipped.writestr("/".join([*parts, name, "__init__.py"]), "")
    code = (
        "import sys, json; sys.path.insert(0, %r); %sfrom %s.host import program; print(json.dumps(program.files(program.COMPARISON)))"
        % (
            str(archive),
            first,
            PACKAGE,
        )
    )
    done = subprocess.run([sys.executable, "-IB", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == program.files(program.COMPARISON)
