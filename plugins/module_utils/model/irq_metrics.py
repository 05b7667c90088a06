# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the keeper of interrupts tells people and machines: lines of its journal, and metrics in Prometheus' text format."""

from __future__ import annotations

from . import cpulist
from .wording import count, plain

PREFIX = "rke2_hostprep_irq_"
_SHOWN = 6  # moved interrupts of a NIC that get a line each; more are summed up

# name: (kind, help); the order of the file
METRICS = {
    "vectors": ("gauge", "Interrupt vectors of a planned NIC and its virtual functions."),
    "drift": ("gauge", "Vectors that were found elsewhere than planned at the last look and could not be put back."),
    "exposed": (
        "gauge",
        "Unmanaged vectors whose mask holds a CPU outside the plan's interrupt CPUs, after the last look.",
    ),
    "managed": ("gauge", "Vectors whose CPUs the kernel keeps itself."),
    "unknown": ("gauge", "Vectors that no driver has requested."),
    "vector_space": ("gauge", "Vectors for which the kernel has no room on the CPUs they belong to."),
    "nic_present": ("gauge", "1 if the planned NIC is there."),
    "repairs_total": ("counter", "Vectors put back since the keeper started."),
    "isolated_share": (
        "gauge",
        "Share of the interrupts of planned NICs that fired outside the plan's interrupt CPUs between the last two counts.",
    ),
    "interrupts": ("gauge", "Interrupts of planned NICs between the last two counts."),
    "event_to_write_seconds": ("gauge", "From the last event that needed a repair to its last write."),
    "source_up": ("gauge", "1 if the kernel's events of that kind are heard."),
    "last_look_timestamp_seconds": ("gauge", "When the keeper looked last."),
    "boot_state": (
        "gauge",
        "1 for what this boot made of the kernel arguments that were asked for, 0 for the other states.",
    ),
    "refused": ("gauge", "1 if the keeper refuses to work with the plan it finds."),
}


def text(samples):
    """The textfile. samples: {metric of METRICS: {label values as ((name, value), …): number}}; what is None is left out."""
    lines = []
    for name, (kind, meaning) in METRICS.items():
        values = {labels: value for labels, value in samples.get(name, {}).items() if value is not None}
        if values:
            lines += ["# HELP %s%s %s" % (PREFIX, name, meaning), "# TYPE %s%s %s" % (PREFIX, name, kind)]
            for labels, value in sorted(values.items()):
                shown = ",".join('%s="%s"' % (key, _escape(what)) for key, what in labels)
                lines.append(
                    "%s%s%s %s"
                    % (PREFIX, name, "{%s}" % shown if shown else "", ("%.6f" % value).rstrip("0").rstrip("."))
                )
    return "\n".join(lines) + "\n"


def _escape(value):
    return plain(str(value).replace("\\", "\\\\")).replace('"', '\\"')


def per_nic(rows):
    """Samples of the metrics that are counted for each NIC."""
    found = {name: {} for name in ("vectors", "drift", "exposed", "managed", "unknown", "vector_space")}
    for row in rows:
        labels = (("nic", row["nic"]),)
        for values in found.values():
            values.setdefault(labels, 0)
        found["vectors"][labels] += 1
        result = row["result"]
        if result in ("managed", "unknown", "vector_space"):
            found[result][labels] += 1
        elif result not in ("ok", "written"):
            found["drift"][labels] += 1
        if still_exposed(row):
            found["exposed"][labels] += 1
    return found


def still_exposed(row):
    """Whether an unmanaged vector may still fire outside the plan's interrupt CPUs."""
    return bool(row["exposed"]) and row["result"] != "managed"


def vector(row):
    """How a person is told of a vector: "queue 3 (irq 131)"."""
    if row["queue"] is None:
        what = row["name"] or "a vector without a handler"
    else:
        what = "%s %d" % (
            {"ceq": "RDMA completion vector", "rx": "receive queue", "tx": "transmit queue"}.get(row["kind"], "queue"),
            row["queue"],
        )
    return "%s (irq %d)" % (plain(what), row["irq"])


def repairs(rows, because, milliseconds):
    """Lines for what was put back."""
    lines = []
    for nic, own in _by_nic(row for row in rows if row["result"] == "written"):
        tail = "; %s; %d ms" % (plain(because), milliseconds)
        if len(own) <= _SHOWN:
            lines += [
                "%s: %s was on CPU %s, now on %s%s" % (plain(nic), vector(row), row["before"], row["after"], tail)
                for row in own
            ]
            continue
        was = cpulist.union(*(row["before"] for row in own))
        now = cpulist.union(*(row["after"] for row in own))
        lines.append(
            "%s: %s put back, irq %s: were on CPUs %s, now on %s%s"
            % (plain(nic), count(len(own), "vector"), cpulist.compress(row["irq"] for row in own), was, now, tail)
        )
    return lines


def complaints(rows):
    """{key: line} for what cannot be put back, the same key and line as long as nothing changes."""
    found = {}
    for result, sentence in (
        (
            "vector_space",
            "%s: no interrupt vector is left where %s belong: %s; plan fewer queues or more housekeeping CPUs",
        ),
        ("not_kept", "%s: %s do not stay where they are put: %s"),
        ("refused", "%s: %s cannot be put back: %s"),
        ("vanished", "%s: %s vanish as they are written: %s"),
    ):
        for nic, own in _by_nic(row for row in rows if row["result"] == result):
            shown = ", ".join(vector(row) for row in own[:_SHOWN])
            if len(own) > _SHOWN:
                shown += " and %d more" % (len(own) - _SHOWN)
            found[(result, nic)] = sentence % (plain(nic), shown, plain(own[0]["why"]))
    return found


def _by_nic(rows):
    found = {}
    for row in rows:
        found.setdefault(row["nic"], []).append(row)
    return list(found.items())
