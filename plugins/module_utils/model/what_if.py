# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variants of a policy planned beside it: what each would cost in isolated CPUs, queues, vectors and admitted pods."""

from __future__ import annotations

from . import cpulist, queues
from .errors import HostprepError


def side_by_side(plan, variants, planned_with):
    """The plan's ``what_if``: the figures of the plan itself and of each variant; a variant that is refused shows why.

    variants: [{"label", option: value, ...}]; planned_with(changes) gives (lists, admission) under the changed policy, or raises
    HostprepError. Raises HostprepError where the variants themselves make no sense.
    """
    if not isinstance(variants, (list, tuple)):
        raise HostprepError(
            "what_if_invalid",
            "what_if is not a list",
            read=repr(variants)[:80],
            allowed="a list of {label: text, option: value, ...}",
            cure="correct what_if",
        )
    result = [_figures("as planned", plan["policy"], plan, plan["kubelet"]["admission"])]
    for index, variant in enumerate(variants):
        if not isinstance(variant, dict):
            raise HostprepError(
                "what_if_invalid",
                "a what_if entry is not a mapping",
                read=repr(variant)[:80],
                allowed="{label: text, option: value, ...}",
                cure="correct what_if",
            )
        changes = {key: value for key, value in variant.items() if key != "label"}
        name = str(
            variant.get("label")
            or ", ".join("%s %s" % item for item in sorted(changes.items()))
            or "variant %d" % (index + 1)
        )
        try:
            result.append(_figures(name, changes, *planned_with(changes)))
        except HostprepError as error:
            result.append(
                {
                    "label": name,
                    "policy": changes,
                    "reserved": None,
                    "isolated": None,
                    "isolated_lost": None,
                    "queues": {},
                    "gbps_per_core": {},
                    "vectors_fit": None,
                    "shapes_admitted": {},
                    "error": str(error),
                }
            )
    most = len(cpulist.expand(plan["isolated"]))
    for entry in result:
        if entry["isolated"] is not None:
            entry["isolated_lost"] = most - len(cpulist.expand(entry["isolated"]))
    return result


def _figures(name, changes, plan, admission):
    return {
        "label": name,
        "policy": {key: value for key, value in changes.items() if value is not None},
        "reserved": plan["reserved"],
        "isolated": plan["isolated"],
        "isolated_lost": 0,
        "queues": {queues.label(entry): entry["queues"] for entry in plan["nics"]},
        "gbps_per_core": {str(node["id"]): node["gbps_per_core"] for node in plan["numa"] if node["gbps_per_core"]},
        "vectors_fit": plan["vector_budget"]["fits_now"],
        "shapes_admitted": {
            entry["shape"]["name"]: [name for name, verdict in entry["policies"].items() if verdict["admitted"]]
            for entry in admission
        },
        "error": None,
    }
