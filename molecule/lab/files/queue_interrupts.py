# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts of a NIC's queues by CPU: ``queue_interrupts.py DRIVER SECONDS`` prints {nic, node, queues: {name: {cpu: n}}}."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def nic_of(driver):
    names = [p.name for p in Path("/sys/class/net").iterdir() if (p / "device/driver").resolve().name == driver]
    if len(names) != 1:
        sys.exit("The driver {0} should have one NIC, it has {1}.".format(driver, names))
    return names[0]


def counts(nic):
    """Queue to the interrupts that each CPU has served."""
    with open("/proc/interrupts", encoding="utf-8") as table:
        cpus = [int(word[3:]) for word in table.readline().split()]
        rows = {}
        for line in table:
            words = line.split()
            if words[-1].startswith(nic + "-"):
                rows[words[-1]] = dict(zip(cpus, map(int, words[1 : 1 + len(cpus)])))
    return rows


def main(driver, seconds):
    nic = nic_of(driver)
    before = counts(nic)
    time.sleep(float(seconds))
    queues = {
        queue: {cpu: now - before[queue][cpu] for cpu, now in row.items() if now != before[queue][cpu]}
        for queue, row in counts(nic).items()
    }
    node = int(Path("/sys/class/net", nic, "device/numa_node").read_text())
    print(json.dumps({"nic": nic, "node": node, "queues": queues}))


if __name__ == "__main__":
    main(*sys.argv[1:])
