# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet: what every host's plan says, as one JSON document and as text for a terminal.

``report(entries)`` takes one entry per host and returns plain data (docs/schemas/report.schema.json)::

    entry   {"host": "gpu-01", "status": "planned", "plan": {...}, "error": None, "error_code": None}
            status is planned (with a plan), refused or unreachable (with an error sentence and, where one exists, its code)
    report  {"schema_version": 1, "collection_version": "0.2.0", "generated_at": "2026-12-01T02:00:00Z",
             "hosts": [entry, ...] in the order given,
             "summary": {"planned": 3, "refused": 1, "unreachable": 0, "reboot": 2, "warnings": {code: hosts that have it}}}

``rows(report)`` gives the figures of one line per host, ``table(report)`` the text (laid out by ``report_text``), ``encode(report)`` the JSON
text. The page is made by ``report_page``.
"""

from __future__ import annotations

import datetime
import json

from . import cpulist, report_text
from .errors import HostprepError
from .version import COLLECTION_VERSION
from .wording import plain

SCHEMA_VERSION = 1
STATUSES = report_text.STATUSES

# What a plan must hold for a report, with the type of each; the rest of its shape is the planner's business.
_NEEDED = {
    "mode": str,
    "reserved": str,
    "isolated": str,
    "irq": str,
    "online_after_boot": str,
    "policy": dict,
    "why": list,
    "numa": list,
    "nics": list,
    "vector_budget": dict,
    "kernel_args": list,
    "kubelet": dict,
    "transition": dict,
    "differences": list,
    "warnings": list,
    "what_if": list,
    "layout": dict,
}
_NEEDED_LAYOUT = {
    "machine": dict,
    "packages": list,
    "nodes": list,
    "llcs": list,
    "cores": list,
    "nics": list,
    "gpus": list,
}


def _refuse(
    message,
    read,
    allowed="what the cpu_plan module returned for each host",
    cure="pass the plans on as they came from cpu_plan",
):
    return HostprepError("plans_malformed", message, read=plain(read)[:200], allowed=allowed, cure=cure)


def parse(text):
    """The entries in a JSON text. Raises HostprepError plans_malformed."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise _refuse("plans is not JSON: %s" % error, text) from None


def report(entries, generated_at=None):
    """The fleet's report; ``generated_at`` is now unless given. Raises HostprepError plans_malformed."""
    if not isinstance(entries, (list, tuple)):
        raise _refuse(
            "the plans are not a list",
            type(entries).__name__,
            "a list with one {host, status, plan, error, error_code} per host",
        )
    hosts = []
    seen = set()
    for index, entry in enumerate(entries):
        host = _entry(index, entry)
        _try(host)
        if host["host"] in seen:
            raise _refuse("a host is in the plans twice", host["host"], "each host once", "remove one of the two")
        seen.add(host["host"])
        hosts.append(host)
    document = {
        "schema_version": SCHEMA_VERSION,
        "collection_version": COLLECTION_VERSION,
        "generated_at": generated_at or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hosts": hosts,
        "summary": None,
    }
    document["summary"] = _summary(rows(document))
    return document


def _entry(index, entry):
    if not isinstance(entry, dict):
        raise _refuse(
            "plan %d is not a mapping" % (index + 1), type(entry).__name__, "{host, status, plan, error, error_code}"
        )
    host = entry.get("host")
    if not isinstance(host, str) or not host:
        raise _refuse("plan %d does not say which host it is for" % (index + 1), repr(host), "host: a name")
    status = entry.get("status")
    if status not in STATUSES:
        raise _refuse("the status of host %s is none that exists" % plain(host), repr(status), ", ".join(STATUSES))
    plan = entry.get("plan") if status == "planned" else None
    if status == "planned":
        if not isinstance(plan, dict):
            raise _refuse("host %s is planned but has no plan" % plain(host), type(plan).__name__)
        wrong = [key for key, kind in _NEEDED.items() if not isinstance(plan.get(key), kind)]
        if "layout" not in wrong:
            wrong += [
                "layout." + key for key, kind in _NEEDED_LAYOUT.items() if not isinstance(plan["layout"].get(key), kind)
            ]
        if wrong:
            raise _refuse(
                "the plan of host %s is incomplete" % plain(host), "missing or of the wrong type: " + ", ".join(wrong)
            )
    error = entry.get("error")
    if status != "planned" and not (isinstance(error, str) and error):
        error = "no reason was given"
    code = entry.get("error_code")
    return {
        "host": host,
        "status": status,
        "plan": plan,
        "error": None if status == "planned" else error,
        "error_code": str(code) if code and status != "planned" else None,
    }


def _try(entry):
    """Shows a host once to nobody, so that a malformed plan is refused here and with one sentence, wherever it is malformed."""
    try:
        row = _row(entry)
        _sameness(entry)
        report_text.paragraph([(entry, row)], report_text.WIDTH)
        if entry["plan"] and not all(
            isinstance(core, list) and len(core) == 6 for core in entry["plan"]["layout"]["cores"]
        ):
            raise ValueError("layout.cores")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # a HostprepError is a ValueError
        raise _refuse(
            "the plan of host %s is malformed" % plain(entry["host"]), "%s: %s" % (type(error).__name__, error)
        ) from None


def rows(document):
    """One flat dict per host, in order: what the fleet table shows. ``group`` numbers the distinct plans (same number, same plan)."""
    groups = {}
    found = []
    for entry in document["hosts"]:
        row = _row(entry)
        row["group"] = groups.setdefault(json.dumps(_sameness(entry), sort_keys=True), len(groups))
        found.append(row)
    return found


def _row(entry):
    plan = entry["plan"]
    row = {"host": entry["host"], "status": entry["status"]}
    if plan is None:
        return row
    loads = [node["gbps_per_core"] for node in plan["numa"] if node.get("gbps_per_core") is not None]
    row.update(
        {
            "model": plan["layout"]["machine"].get("cpu_model"),
            "cpus": len(cpulist.expand(plan["online_after_boot"])),
            "mode": plan["mode"],
            "reserved": plan["reserved"],
            "isolated": plan["isolated"],
            "irq": plan["irq"],
            "nics": len(plan["nics"]),
            "queues": sum(nic["queues"] for nic in plan["nics"]),
            "gbps_per_core": max(loads) if loads else None,
            "warnings": [warning["code"] for warning in plan["warnings"]],
            "reboot": bool(plan["transition"]["reboot"]),
            "drain": bool(plan["transition"]["drain"]),
            "differs": sum(1 for item in plan["differences"] if item["verdict"] == "differs"),
        }
    )
    return row


def _sameness(entry):
    """What two hosts must share to be shown as one: every decision and every finding's code, not memory sizes or sentences with figures."""
    plan = entry["plan"]
    if plan is None:
        return [entry["status"], entry["error_code"], entry["error"]]
    machine = plan["layout"]["machine"]
    return [
        plan["mode"],
        plan["online_after_boot"],
        plan["reserved"],
        plan["isolated"],
        plan["irq"],
        plan["kernel_args"],
        plan["policy"],
        machine.get("cpu_model"),
        machine.get("kernel"),
        plan["kubelet"].get("reservedSystemCPUs"),
        [
            [nic["name"], nic["pci"], nic["numa_node"], nic["queue_cpus"], nic["ceq_cpus"], nic["other_cpus"]]
            for nic in plan["nics"]
        ],
        [[node["id"], node["cpus"], node["nics"], node["gpus"], node["gbps_per_core"]] for node in plan["numa"]],
        [
            [item["what"], item["planned"], item["configured"], item["live"], item["verdict"]]
            for item in plan["differences"]
        ],
        [warning["code"] for warning in plan["warnings"]],
        plan["transition"]["reboot"],
        plan["transition"]["drain"],
        [reason["code"] for reason in plan["transition"]["reasons"]],
        [
            [shape["shape"].get("name"), {policy: answer["admitted"] for policy, answer in shape["policies"].items()}]
            for shape in plan["kubelet"]["admission"]
        ],
    ]


def _summary(found):
    warnings = {}
    for row in found:
        for code in set(row.get("warnings", ())):
            warnings[code] = warnings.get(code, 0) + 1
    summary = {status: sum(1 for row in found if row["status"] == status) for status in STATUSES}
    summary["warnings"] = {code: warnings[code] for code in sorted(warnings)}
    summary["reboot"] = sum(1 for row in found if row.get("reboot"))
    return summary


def encode(document):
    """The report as JSON text: one host per line, so that grep and diff stay useful on a fleet."""
    head = {key: value for key, value in document.items() if key != "hosts"}
    lines = ["%s: %s" % (json.dumps(key), json.dumps(value)) for key, value in head.items()]
    hosts = ",\n".join(json.dumps(host, separators=(",", ":")) for host in document["hosts"])
    return "{\n" + ",\n".join(lines) + ',\n"hosts": [\n' + hosts + "\n]\n}\n"


def table(document, width=None):
    """The report as text for a terminal of ``width`` columns: 100 unless given, at least 72."""
    return report_text.table(document, rows(document), width)
