# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation holds what the code says: every code has its row, links lead somewhere, one version, figures of the article."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.bootloader import BACKENDS
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.policy import OPTIONS
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.version import COLLECTION_VERSION

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(TOP))
    for path in [TOP / "README.md", *(TOP / "docs").glob("*.md"), *(TOP / "roles").glob("*/README.md")]
)
CODE = re.compile(r'(?:HostprepError|finding|_refuse|_unknown)\(\s*"([a-z][a-z0-9_]*)"')


def _codes():
    return {code for path in (TOP / "plugins").rglob("*.py") for code in CODE.findall(path.read_text(encoding="utf-8"))}


def test_every_code_has_a_row():
    documented = set(re.findall(r"`([a-z0-9_]+)`", (TOP / "docs" / "codes.md").read_text(encoding="utf-8")))
    options = set(OPTIONS)
    found = {code for code in _codes() if code not in options}
    assert len(found) > 40
    assert not found - documented - {"policy_", "invariant_"}


@pytest.mark.parametrize("page", PAGES)
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


# Words of sentences that begin like a variable of the roles rke2 and cilium and are none
OTHER_NAMES = {
    "rke2_hostprep": "the collection",
    "rke2_hostprep_boot": "the name of boot entries",
    "rke2_hostprep_irq_": "what the names of metrics begin with",
}
NAME = re.compile(r"\b(?:rke2|cilium)_[a-z0-9_]+")
ROLE = re.compile(r"\broles? `?([a-z0-9]+_[a-z0-9_]+)")


def _sentences():
    """{place: [text]}: the codes' page, and every text of the model that is not a docstring."""
    page = TOP / "docs" / "codes.md"
    found = {page.name: [page.read_text(encoding="utf-8")]}
    for path in sorted((TOP / "plugins" / "module_utils" / "model").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found[path.name] = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
        ]
    return found


def _names():
    """What a user may set or read by such a name: options, facts and inventory variables of roles, modules, filters, codes."""
    known = _codes() | {path.stem for folder in ("modules", "filter") for path in (TOP / "plugins" / folder).iterdir()}
    for role in (TOP / "roles").iterdir():
        known.add(role.name)
        specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        for spec in specs.values():
            known |= set(spec.get("options") or {})
        for path in (role / "tasks").glob("*.yml"):
            for task in yaml.safe_load(path.read_text(encoding="utf-8")):
                known |= set(task.get("ansible.builtin.set_fact") or {})
    for path in [*(TOP / "roles").glob("*/defaults/main.yml"), *(TOP / "playbooks").glob("*.yml")]:
        known |= set(re.findall(r"rke2_hostprep_[a-z0-9_]+", path.read_text(encoding="utf-8")))
    return known


@pytest.mark.parametrize(("place", "texts"), _sentences().items())
def test_sentences_name_nothing_that_does_not_exist(place, texts):
    named = {name for text in texts for name in NAME.findall(text)}
    assert not named - _names() - set(OTHER_NAMES), place
    assert not {name for text in texts for name in ROLE.findall(text)} - {
        path.name for path in (TOP / "roles").iterdir()
    }


def test_the_names_that_are_allowed_beside_are_needed():
    named = {name for texts in _sentences().values() for text in texts for name in NAME.findall(text)}
    assert not set(OTHER_NAMES) & _names() and not set(OTHER_NAMES) - named


def test_the_page_of_cilium_names_every_option_of_its_role():
    specs = yaml.safe_load((TOP / "roles/cilium/meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    page = (TOP / "docs" / "cilium.md").read_text(encoding="utf-8")
    assert not {name for spec in specs.values() for name in spec["options"] if "`%s" % name not in page}


@pytest.mark.parametrize("page", PAGES)
def test_tables_have_a_head(page):
    lines = (TOP / page).read_text(encoding="utf-8").splitlines()
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""]):
        if line.startswith("|") and not before.startswith("|"):
            assert re.match(r"\|(\s*:?-+:?\s*\|)+$", after), line
