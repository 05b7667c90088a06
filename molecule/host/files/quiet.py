# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is this host as quiet as its plan says? ``quiet.py PLAN.json`` prints {check: {"ok": bool, "read": …}}.

Reads what the kernel, GRUB and systemd have, with none of the collection's code. Every check fails on a host that was never touched.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

KEEPER = "rke2-hostprep-irq.service"
SLICES = ("system.slice", "user.slice", "init.scope")


def expand(cpus):
    """The numbers of a CPU list: "0-1,4" gives {0, 1, 4}."""
    found = set()
    for part in filter(None, cpus.strip().split(",")):
        first, _dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def text(path):
    return Path(path).read_text(encoding="utf-8", errors="replace").strip()


def said(*command):
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def arguments(plan):
    """The kernel has every planned argument, once, and took the lists."""
    live = text("/proc/cmdline").split()
    wrong = [token for token in plan["kernel_args"] if live.count(token) != 1]
    names = {token.partition("=")[0] for token in plan["kernel_args"]}
    wrong += [token for token in live if token.partition("=")[0] in names and token not in plan["kernel_args"]]
    complaints = [
        line for line in said("dmesg").splitlines() if re.search("Housekeeping:.*(incorrect|must|fail|invalid)", line)
    ]
    return not wrong and not complaints, {"wrong": wrong, "dmesg": complaints, "cmdline": " ".join(live)}


def next_boot(plan):
    """GRUB's first entry, which is booted unless told, has them too; and no trial waits to be booted."""
    entries = [line.split() for line in text("/boot/grub/grub.cfg").splitlines() if line.split()[:1] == ["linux"]]
    waiting = [
        line
        for line in said("grub-editenv", "list").splitlines()
        if line.partition("=")[::2][0] == "next_entry" and line.partition("=")[2]
    ]
    return set(plan["kernel_args"]) <= set(entries[0]) and not waiting, {
        "entry": " ".join(entries[0]),
        "waiting": waiting,
    }


def new_interrupts(plan):
    """What drivers get that ask for an interrupt from now on."""
    mask = text("/proc/irq/default_smp_affinity")
    bits = int(mask.replace(",", ""), 16)
    return {cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1} == expand(plan["irq"]), mask


def vectors(plan):
    """Every vector of every planned NIC may fire on interrupt CPUs of the plan only. Neither driver has managed ones."""
    found = {}
    for nic in plan["nics"]:
        device = Path("/sys/bus/pci/devices", nic["pci"])
        for entry in device.glob("msi_irqs/*"):
            mask = Path("/proc/irq", entry.name, "smp_affinity_list")
            if mask.exists():
                found[nic["pci"] + " " + entry.name] = text(mask)
    outside = {key: cpus for key, cpus in found.items() if not expand(cpus) <= expand(plan["irq"])}
    lone = [nic["pci"] for nic in plan["nics"] if not any(key.startswith(nic["pci"]) for key in found)]
    return bool(found) and not outside and not lone, {"outside": outside, "vectors": len(found), "without": lone}


def slices(plan):
    """What systemd runs may use housekeeping CPUs only, as the kernel's cgroups say."""
    found = {}
    for name in SLICES:
        path = Path("/sys/fs/cgroup", name, "cpuset.cpus.effective")
        found[name] = text(path) if path.exists() else None
    return all(cpus and expand(cpus) == expand(plan["reserved"]) for cpus in found.values()), found


def processes(plan):
    """No process outside the kernel may run on an isolated CPU (this one among them)."""
    isolated, loose = expand(plan["isolated"]), {}
    for folder in Path("/proc").iterdir():
        try:
            if not folder.name.isdigit() or not (folder / "cmdline").read_bytes():
                continue
            status = dict(line.partition(":")[::2] for line in text(folder / "status").splitlines())
        except OSError:  # it ended meanwhile
            continue
        if expand(status["Cpus_allowed_list"]) & isolated:
            loose[folder.name] = status["Name"].strip()
    return not loose, loose


def irqbalance(_plan):
    """It is masked, and no process has its name."""
    unit = Path("/etc/systemd/system/irqbalance.service")
    running = [
        path.parent.name for path in Path("/proc").glob("[0-9]*/comm") if path.exists() and text(path) == "irqbalance"
    ]
    masked = unit.is_symlink() and str(unit.readlink()) == "/dev/null"
    return masked and not running, {"masked": masked, "running": running}


def keeper(_plan):
    """It runs, and comes back with the next boot."""
    processes_of = Path("/sys/fs/cgroup/system.slice", KEEPER, "cgroup.procs")
    runs = processes_of.exists() and bool(text(processes_of))
    enabled = Path("/etc/systemd/system/multi-user.target.wants", KEEPER).exists()
    return runs and enabled, {"runs": runs, "enabled": enabled}


def units(_plan):
    """No unit failed; a host that has none of ours is not as planned either."""
    ours = [path.name for path in Path("/etc/systemd/system").glob("*hostprep*")]
    failed = said("systemctl", "--failed", "--plain", "--no-legend", "--no-pager")
    return bool(ours) and not failed, {"ours": ours, "failed": failed}


CHECKS = (arguments, next_boot, new_interrupts, vectors, slices, processes, irqbalance, keeper, units)

if __name__ == "__main__":
    planned = json.loads(sys.argv[1])
    results = {}
    for check in CHECKS:
        ok, read = check(planned)
        results[check.__name__] = {"ok": bool(ok), "read": read}
    print(json.dumps(results))
