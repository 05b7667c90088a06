# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab and its cluster left behind: ``left.py NAME`` prints a line for each. Asks the kernel, not the programs that ended it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path


def main(name):
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "lo0.rke2_hostprep"
    mark = re.compile(rf"hp-{re.escape(name)}\b|{re.escape(str(state))}/(lab|cluster)/{re.escape(name)}\b")
    for folder in Path("/proc").iterdir():
        try:
            command = (
                (folder / "cmdline").read_text(errors="replace").replace("\0", " ") if folder.name.isdigit() else ""
            )
        except OSError:  # it ended meanwhile
            continue
        if mark.search(command):
            print("process", folder.name, command)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if mark.search(line):
            print("mount", line)
    for namespace in Path("/run/netns").glob(f"hp-{name}*"):
        print("network namespace", namespace)
    for kind in ("lab", "cluster"):
        if (state / kind / name).exists():
            print("state", state / kind / name)


if __name__ == "__main__":
    main(sys.argv[1])
