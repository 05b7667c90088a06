# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `bench isolation` measures inside a machine, printed as JSON. Reads the kernel's own counters and none of our code.

python3 on_machine.py interrupts SECONDS CPUS | jitter SECONDS CPUS | threads COUNT SECONDS CPUS | busy COUNT | spin SECONDS CPU
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path


def expand(cpus):
    """ "0-1,4" gives {0, 1, 4}."""
    found = set()
    for part in filter(None, cpus.split(",")):
        first, _dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def nic_vectors():
    """Interrupt numbers of all PCI network functions (class 02), by what the device itself lists."""
    numbers = set()
    for device in Path("/sys/bus/pci/devices").iterdir():
        if (device / "class").read_text().startswith("0x02"):
            numbers |= {int(entry.name) for entry in device.glob("msi_irqs/*")}
    return numbers


def table(path):
    """{row: {cpu: count}} and {row: its last word} of /proc/interrupts or /proc/softirqs."""
    rows, names = {}, {}
    with open(path, encoding="utf-8") as lines:
        cpus = [int(word[3:]) for word in next(lines).split()]
        for line in lines:
            words = line.split()
            if len(words) > len(cpus):
                row = words[0].rstrip(":")
                rows[row] = dict(zip(cpus, map(int, words[1 : 1 + len(cpus)])))
                names[row] = words[-1]
    return rows, names


def counts():
    """{name: {cpu: interrupts}} of the NICs' vectors, and {cpu: NET_RX softirqs}. By name: a number may come back as another."""
    rows, names = table("/proc/interrupts")
    numbers = nic_vectors()
    vectors = {(row, names[row]): rows[row] for row in rows if row.isdigit() and int(row) in numbers}
    return vectors, table("/proc/softirqs")[0]["NET_RX"]


def interrupts(seconds, cpus):
    """Interrupts of all NICs and NET_RX softirqs, on the CPUs and in all; in how many of the seconds any NIC interrupted them."""
    isolated = expand(cpus)
    totals = {"interrupts": [0, 0], "net_rx": [0, 0]}
    busy, touched = set(), 0
    vectors, softirqs = counts()
    for _second in range(int(seconds)):
        time.sleep(1)
        vectors_now, softirqs_now = counts()
        here = 0
        for key, row in vectors_now.items():
            before = vectors.get(key, {})
            more = {cpu: number - before.get(cpu, 0) for cpu, number in row.items()}
            here += sum(number for cpu, number in more.items() if cpu in isolated)
            totals["interrupts"][1] += sum(more.values())
            if sum(more.values()) and "-TxRx-" in key[1]:
                busy.add(key[1])
        more = {cpu: number - softirqs[cpu] for cpu, number in softirqs_now.items()}
        totals["interrupts"][0] += here
        totals["net_rx"][0] += sum(number for cpu, number in more.items() if cpu in isolated)
        totals["net_rx"][1] += sum(more.values())
        touched += bool(here)
        vectors, softirqs = vectors_now, softirqs_now
    return dict(totals, queues=len(busy), seconds=[touched, int(seconds)])


def spin(seconds, cpu):
    """A loop that only reads the clock, on one CPU: how long it did not run, and what the kernel did there meanwhile."""
    cpu = int(cpu)
    os.sched_setaffinity(0, {cpu})
    clock = time.perf_counter_ns
    gaps = sorted(-clock() + clock() for _try in range(2000))
    usual = gaps[len(gaps) // 2]
    limit = 10 * usual
    before = on_cpu(cpu)
    start = last = clock()
    end = start + int(float(seconds) * 1e9)
    lost, longest, times = 0, 0, 0
    while last < end:
        now = clock()
        if now - last > limit:
            gap = now - last
            lost += gap
            times += 1
            longest = max(longest, gap)
        last = now
    after = on_cpu(cpu)
    took = (last - start) / 1e9
    print(
        json.dumps(
            dict(
                {name: (after[name] - before[name]) / took for name in after},
                noise=lost / 1e9 / took,
                gaps=times / took,
                longest=longest / 1e6,
                usual=usual / 1e3,
            )
        )
    )


def on_cpu(cpu):
    """What the kernel counted on a CPU until now: interrupts of devices, of timer and other CPUs, softirqs; and own switches."""
    rows, _names = table("/proc/interrupts")
    status = Path("/proc/self/status").read_text()
    return {
        "device": sum(row[cpu] for name, row in rows.items() if name.isdigit()),
        "own": sum(row[cpu] for name, row in rows.items() if not name.isdigit() and cpu in row),
        "softirq": sum(row[cpu] for row in table("/proc/softirqs")[0].values()),
        "switch": int(status.rpartition("nonvoluntary_ctxt_switches:")[2].split()[0]),
    }


def jitter(seconds, cpus):
    """The clock loop on each of the CPUs at once, in a cgroup of its own as a pod has it; the mean of what they saw."""
    command = ["systemd-run", "--quiet", "--collect", "--pipe", "--wait", "--slice", "bench.slice"]
    runs = [
        subprocess.Popen(
            [*command, "--property", "AllowedCPUs=" + cpus, sys.executable, os.path.abspath(__file__)]
            + ["spin", seconds, str(cpu)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for cpu in sorted(expand(cpus))
    ]
    rows = [json.loads(run.communicate()[0]) for run in runs]
    return {name: statistics.mean(row[name] for row in rows) for name in rows[0]}


def busy(count):
    """Threads that compute without Python's lock, in one process as a model server has them."""
    threads = [
        threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"busy", b"thread", 2**31 - 1), daemon=True)
        for _number in range(int(count))
    ]
    for thread in threads:
        thread.start()
    threads[0].join()


def threads(count, seconds, cpus):
    """On how many CPUs such threads stand in a cgroup with these CPUs, at the median moment of the seconds after the first five."""
    unit = "bench-threads"
    command = ["systemd-run", "--quiet", "--collect", "--unit", unit, "--slice", "bench.slice"]
    command += ["--property", "AllowedCPUs=" + cpus, sys.executable, os.path.abspath(__file__), "busy", count]
    subprocess.run(command, check=True)
    try:
        time.sleep(5)
        main = subprocess.run(
            ["systemctl", "show", "--property=MainPID", "--value", unit], check=True, capture_output=True, text=True
        ).stdout.strip()
        moments, seen = [], set()
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            standing = set()
            for task in Path("/proc", main, "task").iterdir():
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                if task.name != main:  # which waits for them
                    standing.add(int(fields[36]))
            moments.append(len(standing))
            seen |= standing
            time.sleep(0.2)
        allowed = [
            line for line in Path("/proc", main, "status").read_text().splitlines() if "Cpus_allowed_list" in line
        ]
    finally:
        subprocess.run(["systemctl", "stop", unit], check=True)
    return {"cpus": statistics.median(moments), "seen": sorted(seen), "allowed": allowed[0].split()[1]}


if __name__ == "__main__":
    if sys.argv[1] in ("busy", "spin"):
        {"busy": busy, "spin": spin}[sys.argv[1]](*sys.argv[2:])
    else:
        found = {"interrupts": interrupts, "jitter": jitter, "threads": threads}[sys.argv[1]](*sys.argv[2:])
        print(json.dumps(found))
