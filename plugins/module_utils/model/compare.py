# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan would change: each planned value beside what is configured and what is live now, and the transition that follows.

``observed`` (from host/configured.py) is plain data::

    {"boot_args": {"source": path or None, "tokens": [str] or None},            what the boot loader's files ask for
     "kubelet_reserved": {"source": path or None, "value": str or None},        reserved-cpus in RKE2's or the kubelet's files
     "cpu_manager_state": {"path": str, "state": dict or None, "problem": str or None},
     "newer_kernel": {"release", "config_netkit"} of a kernel that is installed and not running, or None,
     "kept_plan": {"path": str, "plan": dict or None, "problem": str or None}}
"""

from __future__ import annotations

from . import cpulist, kernel_args
from .errors import HostprepError, finding
from .queues import label


def difference(what, planned, configured, live, same=None, note=None):
    """One row. The verdict looks at live where that is known, else at configured; `same` compares two values."""
    same = same or (lambda left, right: left == right)
    known = [value for value in (live, configured) if value is not _UNKNOWN]
    if not known:
        verdict = "unknown"
    else:
        verdict = "same" if all(same(planned, value) for value in known) else "differs"
    shown = [None if value is _UNKNOWN else ("" if value is None else value) for value in (configured, live)]
    return {
        "what": what,
        "planned": planned if planned is not None else "",
        "configured": shown[0],
        "live": shown[1],
        "verdict": verdict,
        "note": note,
    }


_UNKNOWN = object()


def _same_cpus(left, right):
    try:
        return cpulist.expand(left or "") == cpulist.expand(right or "")
    except HostprepError:
        return False


def differences(topology, observed, plan):
    """Rows for kernel arguments, live isolation, default affinity, kubelet reservation, NIC vectors and queue counts."""
    mode, isolated = plan["mode"], plan["isolated"]
    planned = kernel_args.owned(plan["kernel_args"])
    live = kernel_args.owned(topology["kernel"]["args"]) if topology["kernel"]["args"] is not None else None
    asked = observed["boot_args"]["tokens"]
    configured = kernel_args.owned(asked) if asked is not None else None
    rows = []
    for name in kernel_args.OWNED:
        row = [
            planned[name],
            _UNKNOWN if configured is None else configured[name],
            _UNKNOWN if live is None else live[name],
        ]
        if any(value is not None and value is not _UNKNOWN for value in row):
            row = ["present" if value == "" else value for value in row]  # a bare flag
            rows.append(difference(name, *row, same=lambda left, right, name=name: kernel_args.same(name, left, right)))
    isolated_now = topology["cpus"]["isolated"]
    rows.append(
        difference(
            "cpu/isolated",
            isolated if mode == "pinned" else "",
            _UNKNOWN,
            _UNKNOWN if isolated_now is None else isolated_now,
            _same_cpus,
            None if mode == "pinned" else "empty by design in mode " + mode,
        )
    )
    default = topology["default_smp_affinity"]
    rows.append(
        difference(
            "irq/default_smp_affinity",
            cpulist.union(plan["irq"], [plan["boot_cpu"]]),  # the kernel always adds the boot CPU
            _UNKNOWN,
            _UNKNOWN if default is None else cpulist.intersect(default, topology["cpus"]["online"]),
            _same_cpus,
        )
    )
    kubelet = observed["kubelet_reserved"]
    state = observed["cpu_manager_state"]["state"]
    rows.append(
        difference(
            "reservedSystemCPUs",
            plan["reserved"],
            kubelet["value"] if kubelet["source"] else _UNKNOWN,
            _UNKNOWN,
            _same_cpus,
            None
            if state is None
            else "kubelet state: policy %s, defaultCpuSet %s" % (state.get("policyName"), state.get("defaultCpuSet")),
        )
    )
    rows += _vector_rows(topology, plan["nics"], set(cpulist.expand(isolated)))
    return rows


def _vector_rows(topology, nics, isolated):
    affinity = {irq["irq"]: irq["affinity"] for irq in topology["irqs"]}
    by_name = {label(nic): nic for nic in topology["nics"]}
    rows, parsed = [], {}
    for entry in nics:
        nic = by_name[label(entry)]
        known = total = stray = 0
        for irq in nic["irqs"]:
            if irq["managed"]:
                continue
            total += 1
            mask = affinity.get(irq["irq"])
            if mask is None:
                continue
            known += 1
            if mask not in parsed:
                parsed[mask] = bool(isolated.intersection(cpulist.expand(mask)))
            stray += parsed[mask]
        if total:
            rows.append(
                difference(
                    "%s vectors on isolated CPUs" % label(entry),
                    "0",
                    _UNKNOWN,
                    str(stray) if known else _UNKNOWN,
                    note="of %d unmanaged vectors%s"
                    % (total, "" if known == total else ", %d with known affinity" % known),
                )
            )
        now = entry["queues_now"]
        rows.append(
            difference(
                "%s queues" % label(entry), str(entry["queues"]), _UNKNOWN, _UNKNOWN if now is None else str(now)
            )
        )
    return rows


def transition(rows, observed, reserved, online):
    """{"reboot", "drain", "kubelet_state_files", "reasons"}: what going from now to the plan takes."""
    reasons = []
    args = [row for row in rows if row["what"] in kernel_args.OWNED and row["verdict"] != "same"]
    pending = [row for row in args if row["verdict"] == "differs"]
    if args:
        reasons.append(
            finding(
                "kernel_args",
                "the kernel arguments %s are not those of the plan" % ", ".join(row["what"] for row in args)
                if pending
                else "whether the kernel arguments are those of the plan is unknown",
                "reboot with the planned arguments",
                "; ".join(
                    "%s live %s" % (row["what"], "unknown" if row["live"] is None else row["live"] or "absent")
                    for row in args
                ),
            )
        )
    kept = observed["cpu_manager_state"]
    files = []
    if kept["state"] is not None or kept["problem"]:
        from . import kubelet_state  # Ansible compiles what is imported anew on each host: what few need is left out

        wanted = {"cpuManagerPolicy": "static", "reservedSystemCPUs": reserved}
        found = kubelet_state.cpu(kept["state"], wanted, cpulist.expand(online))
        refused = kept["problem"] and "%s: %s" % (kept["path"], kept["problem"])
        refused = refused or "; ".join(entry["message"] for entry in found)
        if refused:
            files = [kept["path"]]
            reasons.append(
                finding(
                    "kubelet_state",
                    "the kubelet would refuse its CPU manager state with the new reservation",
                    kubelet_state.CURE,
                    refused,
                )
            )
    return {"reboot": bool(args), "drain": bool(args or files), "kubelet_state_files": files, "reasons": reasons}
