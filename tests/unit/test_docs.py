# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation holds what the code says: every code has its row, links lead somewhere, one version, figures of the article."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.bootloader import BACKENDS
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.policy import OPTIONS
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.version import COLLECTION_VERSION

TOP = Path(__file__).resolve().parents[2]
CODE = re.compile(r'(?:HostprepError|finding|_refuse)\(\s*"([a-z][a-z0-9_]*)"')


def _codes():
    return {code for path in (TOP / "plugins").rglob("*.py") for code in CODE.findall(path.read_text(encoding="utf-8"))}


def test_every_code_has_a_row():
    documented = set(re.findall(r"`([a-z0-9_]+)`", (TOP / "docs" / "codes.md").read_text(encoding="utf-8")))
    options = set(OPTIONS)
    found = {code for code in _codes() if code not in options}
    assert len(found) > 40
    assert not found - documented - {"policy_", "invariant_"}


@pytest.mark.parametrize(
    "page",
    sorted(
        str(path.relative_to(TOP))
        for path in [TOP / "README.md", *(TOP / "docs").glob("*.md"), *(TOP / "roles").glob("*/README.md")]
    ),
)
def test_links_lead_somewhere(page):
    text = (TOP / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((TOP / page).parent / target).exists(), target


def test_one_version():
    assert yaml.safe_load((TOP / "galaxy.yml").read_text(encoding="utf-8"))["version"] == COLLECTION_VERSION


def test_every_policy_option_is_documented_with_its_default():
    documentation = re.search(
        r'DOCUMENTATION = r"""(.*?)"""', (TOP / "plugins" / "modules" / "cpu_plan.py").read_text(encoding="utf-8"), re.S
    ).group(1)
    options = yaml.safe_load(documentation)["options"]
    for name, spec in OPTIONS.items():
        text = str(options[name]["description"])
        if spec.get("default") is not None:
            default = (
                str(spec["default"]).lower()
                if isinstance(spec["default"], bool)
                else ("%g" % spec["default"] if isinstance(spec["default"], float) else str(spec["default"]))
            )
            assert "The default is V(%s)" % default in text, name


def test_planning_page_names_every_policy_option():
    text = (TOP / "docs" / "planning.md").read_text(encoding="utf-8")
    assert not {name for name in OPTIONS if "`%s" % name not in text and name + ":" not in text}


def test_the_page_of_boot_loaders_says_where_each_backend_ran():
    page = (TOP / "docs" / "kernel_cmdline.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", page, re.M)
    assert rows == [
        (name, row["title"], row["writes"], ", ".join(row["ran_on"]) or "nothing yet", row["read_in"])
        for name, row in BACKENDS.items()
    ]
