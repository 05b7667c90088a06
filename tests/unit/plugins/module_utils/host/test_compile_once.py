# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules in a zip file are compiled once, and otherwise behave as Python's own importer has them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import compile_once

# counts the compilations of each file of the zip while top and its submodules are imported, and shows what a module sees of itself
PROGRAM = """
import json, runpy, sys
archive, once = sys.argv[1:]
sys.path.insert(0, archive)
import early
if once:
    runpy.run_path(once)
compiled = []
sys.addaudithook(lambda event, args: compiled.append(args[1]) if event == "compile" and str(args[1]).startswith(archive) else None)
from top import first
from top.inner import second
print(json.dumps({"compiled": compiled, "files": [first.__file__, second.__file__], "trace": second.where(),
                  "values": [early.VALUE, first.VALUE, second.VALUE], "paths": list(sys.modules["top"].__path__)}))
"""


@pytest.fixture
def seen(tmp_path):
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("early.py", "VALUE = 0\n")
        made.writestr("top/__init__.py", "")
        made.writestr("top/first.py", "VALUE = 1\n")
        made.writestr("top/inner/__init__.py", "")
        made.writestr(
            "top/inner/second.py",
            "import traceback\nfrom ..first import VALUE as _FIRST\nVALUE = _FIRST + 1\n\n\n"
            "def where():\n    try:\n        raise ValueError\n    except ValueError:\n        return traceback.format_exc()\n",
        )

    def run(once):
        program = [sys.executable, "-c", PROGRAM, str(archive), compile_once.__file__ if once else ""]
        done = subprocess.run(program, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    return run


def test_each_file_is_compiled_once(seen):
    compiled = seen(True)["compiled"]
    twice = sys.version_info < (3, 10)  # 3.9 runs a module by load_module, which does not ask get_code
    assert len(set(compiled)) == 4 and len(compiled) == (8 if twice else 4)


def test_python_itself_compiles_twice(seen):
    """Where this fails, Python has mended it: the file can go once the oldest target Python is that one."""
    compiled = seen(False)["compiled"]
    assert len(compiled) == 8 and len(set(compiled)) == 4


def test_modules_see_the_same_of_themselves(seen):
    ours, pythons = seen(True), seen(False)
    del ours["compiled"], pythons["compiled"]
    assert ours == pythons and "top/inner/second.py" in ours["trace"] and "raise ValueError" in ours["trace"]
