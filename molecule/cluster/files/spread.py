# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the two busy tasks of a pod run on two CPUs: ``spread.py UID …`` looks 40 times and prints {"apart", "together", "cpus"}."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def running(marks):
    """The CPU of each running task of the pods (field 39 of its stat)."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if any(mark in (folder / "cgroup").read_text() for mark in marks):
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    if fields[0] == "R":
                        yield int(fields[36])
            except OSError:
                continue


if __name__ == "__main__":
    marks = ["pod" + uid.replace("-", "_") + ".slice/" for uid in sys.argv[1:]]
    until = time.monotonic() + 60
    while len(list(running(marks))) < 2 and time.monotonic() < until:
        time.sleep(0.5)
    time.sleep(2)  # both have just been made, on the CPU of the task that made them
    looks = []
    for _look in range(40):
        looks.append(sorted(running(marks)))
        time.sleep(0.25)
    pairs = [look for look in looks if len(look) == 2]
    apart = sum(look[0] != look[1] for look in pairs)
    seen = sorted({cpu for look in pairs for cpu in look})
    print(json.dumps({"apart": apart, "together": len(pairs) - apart, "cpus": seen}))
