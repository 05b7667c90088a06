# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the collection's documentation and renders each plugin and role with ansible-doc into build/docs; runs in a test environment."""

from __future__ import annotations

import json
import shutil
import subprocess

from workspace import BUILD, TOP, run_tool

KINDS = ("module", "filter", "role")


def documentation(*arguments: str) -> str | None:
    """What ansible-doc prints; None where it fails (it says why itself)."""
    answer = subprocess.run(["ansible-doc", *arguments], cwd=TOP, check=False, stdout=subprocess.PIPE, text=True)
    return None if answer.returncode else answer.stdout


def main(_arguments: list[str]) -> int:
    checked = subprocess.run(
        ["antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs=self", "."],
        cwd=TOP,
        check=False,
    )
    failed = checked.returncode
    pages = BUILD / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    for kind in KINDS:
        names = sorted(json.loads(documentation("--type", kind, "--list", "--json", "lo0.rke2_hostprep") or "{}"))
        for name in names:
            page = documentation("--type", kind, name)
            failed = failed or page is None
            (pages / f"{kind}.{name}.txt").write_text(page or "", encoding="utf-8")
        print(f"{len(names)} of kind {kind}: {' '.join(names)}")
    print(f"Rendered to {pages}")
    return 1 if failed else 0


if __name__ == "__main__":
    run_tool(main)
