# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot made of the planned arguments: checks {name, verdict, read, cure}, by isolation mode.

/proc/cmdline alone proves little: the kernel drops a list with one bad number and says so only in its log. In `balanced` the file
cpu/isolated is empty by design, so it is no evidence there.
"""

from __future__ import annotations

import re

from . import cpulist, kernel_args
from .errors import HostprepError

_COMPLAINT = re.compile(
    r"Housekeeping: |isolcpus: (?:Invalid|Skipped unknown) flag|Unknown kernel command line parameters|"
    r"Malformed early option '(?:isolcpus|nohz_full|irqaffinity|rcu_nocbs)'"
)
_FIRST = re.compile(r"\bLinux version \d|\bCommand line: |\bKernel command line: ")


def check(name, verdict, read, cure=None):
    return {"name": name, "verdict": verdict, "read": read, "cure": None if verdict == "ok" else cure}


def judge(plan, seen):
    """List of checks.

    plan: {"mode", "kernel_args": [str], "irq": cpulist, "isolated": cpulist, "boot_cpu": int}; or what ``planned`` makes of arguments alone
    seen: {"cmdline": text, "online": cpulist, "default_smp_affinity": mask, "kernel_log": text, "nohz_full": text, "isolated": text,
    "managed": [{"irq", "affinity": cpulist, "effective": cpulist, "moved": whether its count grew}]}; None for what could not be read.
    """
    checks = [_arguments(plan["kernel_args"], seen["cmdline"]), _complaints(plan["kernel_args"], seen["kernel_log"])]
    if plan["irq"] is not None:
        checks.insert(1, _default_affinity(plan, seen))
    if plan["mode"] is None:
        return checks
    checks.append(_managed(plan, seen))
    if plan["mode"] == "quiet":
        checks.append(_list("nohz_full", plan["isolated"], seen["nohz_full"]))
    checks.append(_list("isolated", plan["isolated"] if plan["mode"] == "pinned" else "", seen["isolated"]))
    return checks


def planned(args, boot_cpu):
    """What arguments ask for by themselves, without a plan: ``mode`` and ``isolated`` None without isolcpus, ``irq`` without irqaffinity."""
    values = kernel_args.owned(args)
    mode = isolated = None
    if values["isolcpus"] is not None:
        flags, isolated = kernel_args.cpus_of(values["isolcpus"])
        mode = (
            "pinned" if not flags or "domain" in flags else "quiet" if values["nohz_full"] is not None else "balanced"
        )
    return {
        "mode": mode,
        "kernel_args": list(args),
        "irq": values["irqaffinity"],
        "isolated": isolated,
        "boot_cpu": boot_cpu,
    }


def begins(log):
    """Whether a kernel log still holds the beginning of its boot."""
    return bool(_FIRST.search(log))


def worst(checks):
    """fail, warn, not_judged or ok: the verdict of a list of checks."""
    verdicts = {entry["verdict"] for entry in checks}
    return next((verdict for verdict in ("fail", "warn", "not_judged") if verdict in verdicts), "ok")


def _arguments(wanted, cmdline):
    name, cure = (
        "kernel_arguments",
        "boot the entry with the planned arguments; after a trial that fell back, read its log first",
    )
    if cmdline is None:
        return check(name, "not_judged", "/proc/cmdline cannot be read", "run as root on the host")
    tokens = kernel_args.split(cmdline)
    names = {kernel_args.name_of(token) for token in wanted}
    there = [token for token in tokens if kernel_args.name_of(token) in names]
    missing = [token for token in wanted if token not in tokens]
    if missing:
        return check(
            name, "fail", "not in /proc/cmdline: %s; there: %s" % (" ".join(missing), " ".join(there) or "none"), cure
        )
    if sorted(there) != sorted(wanted):
        return check(name, "fail", "given more than once: " + " ".join(there), "leave each argument to one owner")
    return check(name, "ok", " ".join(there))


def _default_affinity(plan, seen):
    name = "default_smp_affinity"
    if seen["default_smp_affinity"] is None or seen["online"] is None:
        return check(name, "not_judged", "/proc/irq/default_smp_affinity cannot be read", "run as root on the host")
    try:
        now = cpulist.intersect(cpulist.from_mask(seen["default_smp_affinity"]), seen["online"])
        asked = cpulist.intersect(
            cpulist.union(plan["irq"], [plan["boot_cpu"]]), seen["online"]
        )  # the kernel adds the boot CPU
    except HostprepError as error:
        return check(name, "not_judged", str(error), "report this as a defect")
    if now == asked:
        return check(name, "ok", now)
    return check(
        name,
        "fail",
        "%s, planned %s" % (now or "none", asked),
        "boot with irqaffinity=%s; a program may also have written the file since (irqbalance does not, tuned does)"
        % plan["irq"],
    )


def _complaints(wanted, log):
    name = "kernel_log"
    if log is None:
        return check(name, "not_judged", "the kernel log cannot be read", "run as root on the host")
    names = [kernel_args.name_of(token) for token in wanted]
    lines = []
    for line in log.splitlines():
        if not _COMPLAINT.search(line):
            continue
        if "Unknown kernel command line" in line and not any(
            re.search(r"[\s\"]%s\b" % re.escape(one), line) for one in names
        ):
            continue  # about someone else's argument
        lines.append(line.strip())
    if lines:
        return check(
            name,
            "fail",
            "; ".join(lines[:3]),
            "the kernel dropped an argument: correct the lists, or boot a kernel that is built for them",
        )
    if not _FIRST.search(log):
        return check(
            name,
            "not_judged",
            "the log no longer holds the beginning of the boot",
            "read it from the journal (journalctl -k)",
        )
    return check(name, "ok", "no complaint")


def _managed(plan, seen):
    name = "managed_vectors"
    if seen["managed"] is None or seen["online"] is None:
        return check(name, "not_judged", "the interrupts cannot be read", "run as root on the host")
    isolated = set(cpulist.expand(plan["isolated"]))
    online = set(cpulist.expand(seen["online"]))
    stray, judged = [], 0
    for vector in seen["managed"]:
        if vector["affinity"] is None or not vector["effective"]:
            continue
        mask = set(cpulist.expand(vector["affinity"])) & online
        if not mask & isolated or not mask - isolated:
            continue  # a mask of isolated CPUs alone stays where it is: managed_irq only chooses within a mask
        if not vector["moved"]:
            continue  # the effective list of an idle interrupt lags
        judged += 1
        if isolated.intersection(cpulist.expand(vector["effective"])):
            stray.append("%s on %s" % (vector["irq"], vector["effective"]))
    if stray:
        return check(
            name,
            "fail",
            "%d of %d: %s" % (len(stray), judged, ", ".join(stray[:5])),
            "boot with isolcpus=managed_irq,%s" % plan["isolated"],
        )
    if not judged:
        return check(
            name,
            "not_judged",
            "%d managed vectors, none of them busy and free to choose between isolated and other CPUs"
            % len(seen["managed"]),
            "nothing where there are none; else look again under load",
        )
    return check(name, "ok", "%d on housekeeping CPUs" % judged)


def _list(name, planned, text):
    """cpu/isolated or cpu/nohz_full: the kernel prints "(null)" for none in some versions."""
    if text is None:
        return check(name, "not_judged", "cpu/%s cannot be read" % name, "run as root on the host")
    text = text.strip()
    text = "" if text == "(null)" else text
    try:
        same = cpulist.compress(text) == cpulist.compress(planned)
    except HostprepError:
        same = False
    if same:
        return check(name, "ok", text or "empty")
    return check(
        name,
        "fail",
        "%s, planned %s" % (text or "empty", planned or "empty"),
        "see the kernel log for the reason, and leave each argument to one owner",
    )
