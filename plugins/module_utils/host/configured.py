# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is configured to: boot loader arguments, the kubelet's reservation and state file, and the plan it keeps. Reads only.

``observe(tree, release)`` returns the ``observed`` dict of model/compare.py. A file that is absent is None; one that is there
and cannot be read is reported by its ``problem``.
"""

from __future__ import annotations

import json
import re

from .boot_args import boot_args

PLAN_PATH = "var/lib/lo0.rke2_hostprep/plan.json"
STATE_PATH = "var/lib/kubelet/cpu_manager_state"
_RESERVED = re.compile(r"""^[^#]*?(?:reserved-cpus=|reservedSystemCPUs["']?\s*:)\s*["']?([0-9,\- ]*)""")


def observe(tree, release):
    return {
        "boot_args": _boot_args(tree, release),
        "kubelet_reserved": _kubelet_reserved(tree),
        "cpu_manager_state": _state(tree),
        "kept_plan": _kept(tree),
    }


def _boot_args(tree, release):
    """{"source", "tokens"} of what host/boot_args.py reads."""
    found = boot_args(tree, release)
    owned = found["owned"]
    return {"source": found["source"], "tokens": None if owned is None else [token["text"] for token in owned]}


def _kubelet_reserved(tree):
    """The reservation in RKE2's config files or the kubelet's drop-ins, the last one wins; source None where neither exists."""
    source = value = None
    paths = ["etc/rancher/rke2/config.yaml"]
    for folder in ("etc/rancher/rke2/config.yaml.d", "var/lib/rancher/rke2/agent/etc/kubelet.conf.d"):
        paths += [
            "%s/%s" % (folder, name) for name in tree.listdir(folder) or [] if name.endswith((".yaml", ".yml", ".conf"))
        ]
    for path in paths:
        text = tree.read(path)
        if text is None:
            if tree.why(path) != "missing":
                return {"source": None, "value": None}
            continue
        source = source or path
        for line in text.splitlines():
            found = _RESERVED.match(line)
            if found:
                source, value = path, found.group(1).strip(" ,").replace(" ", "")
    return {"source": source, "value": value}


def _json(tree, path):
    """(parsed mapping or None, problem or None)"""
    text = tree.read(path)
    if text is None:
        why = tree.why(path)
        return None, None if why == "missing" else "%s is %s" % (path, why)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None, "%s is not JSON" % path
    return (parsed, None) if isinstance(parsed, dict) else (None, "%s holds no JSON object" % path)


def _state(tree):
    state, problem = _json(tree, STATE_PATH)
    return {"path": "/" + STATE_PATH, "state": state, "problem": problem}


def kept_plan(tree):
    """(the plan that the host keeps or None, why it cannot be read or None)"""
    return _json(tree, PLAN_PATH)


def _kept(tree):
    plan, problem = kept_plan(tree)
    return {"path": "/" + PLAN_PATH, "plan": plan, "problem": problem}
