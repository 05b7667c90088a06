# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job: plans the example hosts and this machine, or the hosts of $INVENTORY, and says where the report lies.

``$REPORT`` is the folder of the report (default: build/report). Exits with ansible-playbook's code: not 0 if a host was
refused or could not be reached.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from workspace import BUILD, TOP, WorkspaceError, environment, run_tool


def inventories(variables: dict[str, str]) -> list[str]:
    """The user's inventory, or the examples, whose machines are built first, with the machine this runs on."""
    own = os.environ.get("INVENTORY")
    if own:
        if not Path(own).exists() and "," not in own:
            raise WorkspaceError(f"INVENTORY names {own}, which does not exist: name an inventory file or folder.")
        return [own]
    subprocess.run(
        ["python", TOP / "examples/build_trees.py", BUILD / "examples"], env=variables, check=True, stdout=sys.stderr
    )
    return [str(TOP / "examples/inventory"), str(TOP / "examples/this_machine.yml")]


def main(arguments: list[str]) -> int:
    """``arguments`` are handed to ansible-playbook."""
    variables = environment("plan")
    report = Path(os.environ.get("REPORT") or BUILD / "report").absolute()
    command = [
        "ansible-playbook",
        str(TOP / "playbooks/plan.yml"),
        "--extra-vars",
        json.dumps({"rke2_hostprep_report_dir": str(report)}),
    ]
    for inventory in inventories(variables):
        command += ["--inventory", inventory]
    files = [report / name for name in ("plan.txt", "plan.json", "plan.html")]
    for path in files:
        path.unlink(missing_ok=True)
    code = subprocess.run([*command, *arguments], env=variables, check=False).returncode
    written = [str(path) for path in files if path.exists()]
    print("\n".join(written) or "No report was written: no host was planned or refused.")
    return code or (0 if written else 1)


if __name__ == "__main__":
    run_tool(main)
