# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a fleet as text: the fleet in one table, then a paragraph for each distinct plan. Reached through ``report.table``."""

from __future__ import annotations

from . import cpulist
from .wording import count, host_ranges, number, plain

WIDTH = 100
LEAST_WIDTH = 72
STATUSES = ("planned", "refused", "unreachable")
_LABEL = 11  # width of the labels in a paragraph


def table(document, found, width=None):
    """The text of a report and its rows."""
    width = max(LEAST_WIDTH, width or WIDTH)
    groups = {}
    for entry, row in zip(document["hosts"], found):
        groups.setdefault(row["group"], []).append((entry, row))
    lines = _head(document, found, width)
    lines += [""] + _fleet(groups.values(), width)
    for members in groups.values():
        lines += [""] + paragraph(members, width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(document, found, width):
    summary = document["summary"]
    needs = [(sum(1 for row in found if row.get(word)), word) for word in ("reboot", "drain")]
    parts = [", ".join("%d %s" % (summary[status], status) for status in STATUSES)]
    parts += ["%s %s a %s" % (count(hosts, "host"), "needs" if hosts == 1 else "need", word) for hosts, word in needs]
    distinct = len({row["group"] for row in found})
    if distinct < len(found):
        parts.append(count(distinct, "distinct plan"))
    title = (count(len(found), "host"), plain(document["collection_version"]), plain(document["generated_at"]))
    lines = _wrap("Host plan of %s, lo0.rke2_hostprep %s, %s" % title, width, "", "  ")
    lines += _wrap("; ".join(parts), width, "", "  ")
    if summary["warnings"]:
        codes = ", ".join(
            "%s %d" % (plain(code), hosts)
            for code, hosts in sorted(summary["warnings"].items(), key=lambda item: (-item[1], item[0]))
        )
        lines += _wrap("warnings, with the number of hosts: " + codes, width, "", "  ")
    return lines


_COLUMNS = ("HOSTS", "N", "MODE", "RESERVED", "ISOLATED", "NIC/Q", "Gb/s/CORE", "WARN", "DIFF", "CHANGE")
_RIGHT = {"N", "NIC/Q", "Gb/s/CORE", "WARN", "DIFF", "LOST", "QUEUES"}
_SHRINK = {"HOSTS": 12, "RESERVED": 11, "ISOLATED": 14}  # columns that give way on a narrow terminal, and down to what
_DROP = ("Gb/s/CORE", "DIFF", "MODE")  # left out, in this order, where that is not enough: the paragraphs have them
_LEGEND = {
    "NIC/Q": "NICs planned and their queues",
    "Gb/s/CORE": "of the busiest node",
    "DIFF": "settings that are not as planned",
}
_ROW_LINES = 3  # lines that a cell may fold into; the whole list is in the paragraph


def _fleet(groups, width):
    lines = [{name: name for name in _COLUMNS}]
    for members in groups:
        row = members[0][1]
        line = dict.fromkeys(_COLUMNS, "")
        line.update(
            {
                "HOSTS": plain(host_ranges([member["host"] for member, _row_ in members])),
                "N": str(len(members)),
                "RESERVED": row["status"],
            }
        )
        if row["status"] == "planned":
            line.update(
                {
                    "MODE": plain(row["mode"]),
                    "RESERVED": plain(row["reserved"]),
                    "ISOLATED": plain(row["isolated"]),
                    "NIC/Q": "%d/%d" % (row["nics"], row["queues"]),
                    "Gb/s/CORE": number(row["gbps_per_core"]) if row["nics"] else "-",
                    "WARN": str(len(row["warnings"])),
                    "DIFF": str(row["differs"]),
                    "CHANGE": "+".join(word for word in ("reboot", "drain") if row[word]) or "none",
                }
            )
        lines.append(line)
    widths = _widths(lines, width, _SHRINK, _DROP)
    text = _columns(lines, widths, _ROW_LINES)
    legend = " ".join("%s: %s." % (name, _LEGEND[name]) for name in widths if name in _LEGEND)
    return text + _wrap(legend, width, "", "")


def _columns(lines, widths, most=None):
    """Rows of cells in columns; a cell folds into as many lines as it needs, or into ``most`` with the rest cut off."""
    text = []
    for line in lines:
        folded = {
            name: _fold(line[name], room, ",.-" if name == "HOSTS" else ",", most) for name, room in widths.items()
        }
        for height in range(max(len(cell) for cell in folded.values())):
            parts = {name: cell[height] if height < len(cell) else "" for name, cell in folded.items()}
            cells = (
                part.rjust(widths[name]) if name in _RIGHT else part.ljust(widths[name]) for name, part in parts.items()
            )
            text.append("  ".join(cells).rstrip())
    return text


def _widths(lines, width, shrink, drop=()):
    """Columns that fit, with the width of each: those in ``shrink`` give way down to what it says, then those in ``drop`` go."""
    widths = {name: max(len(line[name]) for line in lines) for name in lines[0]}
    least = {name: min(room, shrink.get(name, room)) for name, room in widths.items()}
    for name in drop:
        if sum(least.values()) + 2 * (len(least) - 1) > width:
            del widths[name], least[name]
    for _step in range(sum(widths.values()) + 2 * (len(widths) - 1) - width):
        wide = [name for name in widths if widths[name] > least[name]]
        if wide:
            widths[max(wide, key=lambda name: widths[name])] -= 1
    return widths


def _fold(text, width, after, most):
    lines = _break(text, width, width, after)
    if most and len(lines) > most:
        lines = lines[:most]
        lines[-1] = lines[-1][: width - 1] + "…"
    return lines


def _break(text, first, rest, after=","):
    """Lines of at most ``first``, then ``rest`` columns, broken at blanks; a word that is too long breaks ``after`` one of these, else anywhere."""
    lines = [""]
    for word in text.split(" "):
        room = first if len(lines) == 1 else rest
        if lines[-1] and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += " " + word
            continue
        if lines[-1]:
            lines.append("")
            room = rest
        while len(word) > room:
            cut = max(word.rfind(char, 0, room) for char in after) + 1 or room
            lines[-1] = word[:cut]
            lines.append("")
            word = word[cut:]
            room = rest
        lines[-1] = word
    return lines


def _wrap(text, width, first, rest):
    lines = _break(text, width - len(first), width - len(rest))
    return [(rest if index else first) + line for index, line in enumerate(lines)]


def _item(label, text, width, indent=0):
    return _wrap(plain(text), width, " " * (2 + indent) + label.ljust(_LABEL), " " * (_LABEL + 2 + indent))


def paragraph(members, width):
    """The lines about one plan; ``members`` are the (entry, row) pairs of the hosts that share it."""
    entry = members[0][0]
    names = plain(host_ranges([member["host"] for member, _row_ in members]))
    if len(members) > 1:
        names += "  (%d hosts, one plan; figures of %s)" % (len(members), plain(entry["host"]))
    lines = _wrap(names, width, "", "    ")
    plan = entry["plan"]
    if plan is None:
        code = " (%s)" % entry["error_code"] if entry["error_code"] else ""
        return lines + _item("refused" if entry["status"] == "refused" else "no answer", entry["error"] + code, width)
    lines += _item("machine", machine_sentence(plan), width)
    lines += _lists(plan, width)
    for cpus, message in why_lines(plan["why"]):
        lines += _item("why", "%s: %s" % (cpus, message), width)
    for nic in plan["nics"]:
        lines += _item("nic", nic_sentence(nic), width)
    lines += _item("vectors", vector_sentence(plan["vector_budget"]), width)
    lines += _item("arguments", " ".join(plan["kernel_args"]) or "none", width)
    lines += _item("kubelet", kubelet_sentence(plan["kubelet"], plan["reserved"]), width)
    for shape in plan["kubelet"]["admission"]:
        lines += _item("pod", "%s: %s" % (shape_name(shape["shape"]), admission_sentence(shape["policies"])), width)
    lines += _differences(plan["differences"], width)
    lines += _transition(plan["transition"], width)
    lines += _what_if(plan["what_if"], width)
    for warning in plan["warnings"]:
        lines += _item("WARNING", "%s: %s" % (warning["code"], warning["message"]), width)
        lines += _item("  to do", warning["cure"] or "nothing", width)
    return lines


def _lists(plan, width):
    longest = max(len(plan[name]) for name in ("reserved", "isolated", "irq"))
    lines = []
    for name in ("reserved", "isolated", "irq"):
        if name == "irq" and plan["irq"] == plan["reserved"]:
            lines += _item(name, "as reserved", width)
            continue
        counted = "(%s)" % count(len(cpulist.expand(plan[name])), "CPU")
        room = width - _LABEL - 4 - len(counted)
        first = _item(name, plan[name], width)
        if longest <= room:
            first[0] = first[0].ljust(_LABEL + 4 + longest) + counted
        else:
            first[-1] += (
                "  " + counted if len(first[-1]) + 2 + len(counted) <= width else "\n" + " " * (_LABEL + 2) + counted
            )
        lines += first
    return lines


def why_lines(reasons):
    """[cpulist, sentence] pairs of a plan's ``why``, with the CPUs of equal sentences put together."""
    merged = {}
    for reason in reasons:
        merged.setdefault(reason["message"], []).append(reason["cpus"])
    return [(cpulist.union(*cpus), message) for message, cpus in merged.items()]


def machine_sentence(plan):
    layout = plan["layout"]
    machine = layout["machine"]
    nodes = [node for node in layout["nodes"] if node["id"] is not None]
    counts = (
        (layout["packages"], "socket"),
        (nodes, "NUMA node"),
        (layout["cores"], "core"),
        (cpulist.expand(plan["online_after_boot"]), "CPU"),
        (layout["gpus"], "GPU"),
    )
    parts = [machine.get("cpu_model") or machine.get("arch") or "unknown CPU"] + [
        count(len(things), noun) for things, noun in counts
    ]
    if machine.get("kernel"):
        parts.append("kernel " + machine["kernel"])
    if machine.get("hypervisor") not in (None, "none"):
        parts.append("virtual (%s)" % machine["hypervisor"])
    return ", ".join(parts)


def nic_label(nic):
    return nic.get("name") or nic.get("pci") or "unnamed"


def nic_sentence(nic):
    parts = [
        "%s%s" % (nic_label(nic), " (%s)" % nic["driver"] if nic["driver"] else ""),
        "node unknown" if nic["numa_node"] is None else "node %d" % nic["numa_node"],
        "speed unknown" if nic["gbps"] is None else "%s Gb/s" % number(nic["gbps"]),
        count(nic["queues"], "queue")
        + ("" if nic["queues_now"] in (None, nic["queues"]) else " (now %d)" % nic["queues_now"]),
    ]
    if nic["queue_cpus"]:
        parts[-1] += " on CPUs " + " ".join(str(cpu) for cpu in nic["queue_cpus"])
    if nic["ceqs"]:
        parts.append("%s on %s" % (count(nic["ceqs"], "completion vector"), cpulist.compress(nic["ceq_cpus"])))
    if nic["gbps_per_queue"] is not None:
        parts.append("%s Gb/s per queue" % number(nic["gbps_per_queue"]))
    return ", ".join(parts)


def vector_sentence(budget):
    if not budget["judged"]:
        return "not judged: " + (budget["why"] or "no reason was given")
    return "%s on %s; %s now (%s), %s as planned (%s); %d managed by the kernel" % (
        "room for %d" % budget["capacity"],
        count(budget["housekeeping_cpus"], "housekeeping CPU"),
        number(budget["unmanaged_now"]),
        _fits(budget["fits_now"]),
        number(budget["unmanaged_planned"]),
        _fits(budget["fits_planned"]),
        budget["managed"],
    )


def _fits(verdict):
    return {True: "fits", False: "does not fit"}.get(verdict, "not known whether it fits")


def kubelet_sentence(kubelet, reserved):
    cpus = "as reserved" if kubelet["reservedSystemCPUs"] == reserved else kubelet["reservedSystemCPUs"]
    return "reservedSystemCPUs %s, cpuManagerPolicy %s, topologyManagerPolicy %s, %s left for pods" % (
        cpus,
        kubelet["cpuManagerPolicy"],
        kubelet["topologyManagerPolicy"],
        count(kubelet["allocatable_cpus"], "CPU"),
    )


def shape_name(shape):
    parts = ["%s CPUs" % number(shape["cpus"])]
    if shape.get("gpus"):
        parts.append(count(shape["gpus"], "GPU"))
    if shape.get("memory_mib"):
        parts.append("%s GiB" % number(shape["memory_mib"] / 1024))
    return "%s (%s)" % (shape.get("name") or "pod", ", ".join(parts))


def admission_sentence(policies):
    admitted = [policy for policy, answer in policies.items() if answer["admitted"]]
    reasons = {}
    for policy, answer in policies.items():
        if not answer["admitted"]:
            reasons.setdefault(answer["reason"], []).append(policy)
    parts = ["admitted under " + ", ".join(admitted)] if admitted else []
    parts += ["refused under %s (%s)" % (", ".join(refusing), reason) for reason, refusing in reasons.items()]
    return "; ".join(parts)


def _differences(differences, width):
    if not differences:
        return _item("differs", "not compared", width)
    lines = []
    for item in differences:
        if item["verdict"] == "same":
            continue
        what = plain(item["what"] + (" (%s)" % item["note"] if item["note"] else ""))
        sides = [
            (side, "unknown" if item[side] is None else plain(item[side]) or "(none)")
            for side in ("planned", "configured", "live")
        ]
        if max(len(text) for _side, text in sides) <= 40:
            lines += _item(item["verdict"], "%s: %s" % (what, ", ".join("%s %s" % side for side in sides)), width)
        else:  # long lists below each other, so that they can be compared
            lines += _item(item["verdict"], what, width)
            for side, text in sides:
                lines += _item(side, text, width, indent=_LABEL)
    same = [item["what"] for item in differences if item["verdict"] == "same"]
    return lines + (_item("same", ", ".join(same), width) if same else [])


def _transition(transition, width):
    steps = [word for word in ("reboot", "drain") if transition[word]]
    text = ", ".join(steps) or "none needed"
    if transition["kubelet_state_files"]:
        text += "; kubelet state to remove: " + ", ".join(transition["kubelet_state_files"])
    lines = _item("change", text, width)
    for reason in transition["reasons"]:
        lines += _item("  because", "%s: %s" % (reason["code"], reason["message"]), width)
    return lines


def _what_if(variants, width):
    """Variants of the policy below each other; what is admitted is said where it is not what the first of them admits."""
    lines = [{name: name for name in ("WHAT IF", "LOST", "QUEUES", "Gb/s/CORE", "VECTORS", "RESERVED")}]
    more = []
    for variant in variants:
        label = plain(variant["label"])
        if variant["error"]:
            more += _item("what if", "%s: %s" % (label, variant["error"]), width)
            continue
        lines.append(
            {
                "WHAT IF": label,
                "LOST": str(variant["isolated_lost"]),
                "QUEUES": str(sum(variant["queues"].values())),
                "Gb/s/CORE": number(max(variant["gbps_per_core"].values(), default=None)),
                "VECTORS": {True: "fit", False: "do not fit"}.get(variant["vectors_fit"], "not judged"),
                "RESERVED": plain(variant["reserved"]),
            }
        )
        for name, policies in variant["shapes_admitted"].items():
            if policies != variants[0]["shapes_admitted"].get(name):
                more += _item(
                    "  pod", "%s: %s is admitted under %s" % (label, name, ", ".join(policies) or "no policy"), width
                )
    if len(lines) == 1:
        return more
    room = width - 2
    widths = _widths(lines, room, {"WHAT IF": 16, "RESERVED": 12})
    return ["  " + line for line in _columns(lines, widths)] + more
