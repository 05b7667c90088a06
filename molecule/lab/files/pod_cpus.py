# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the processes of pods may run, as the kernel has it: ``pod_cpus.py UID …`` prints {UID: {cpus, nodes, command}}."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def processes(uid):
    """The folders in /proc of a pod's processes, less those of its pause container."""
    mark = "pod" + uid.replace("-", "_") + ".slice/"  # as the systemd cgroup driver writes it
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark in (folder / "cgroup").read_text() and (folder / "comm").read_text().strip() != "pause":
                    yield folder
            except OSError:
                continue


def where(folder):
    status = dict(line.partition(":")[::2] for line in (folder / "status").read_text().splitlines())
    return {
        "cpus": status["Cpus_allowed_list"].strip(),
        "nodes": status["Mems_allowed_list"].strip(),
        "command": (folder / "cmdline").read_text().replace("\0", " ").strip(),
    }


if __name__ == "__main__":
    found = {uid: [where(folder) for folder in processes(uid)] for uid in sys.argv[1:]}
    alone = {uid: places[0] for uid, places in found.items() if len(places) == 1}
    if len(alone) != len(found):
        sys.exit("Each pod should have one process: " + json.dumps(found))
    print(json.dumps(alone))
