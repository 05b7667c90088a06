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
import shlex

from ..model import kernel_args

PLAN_PATH = "var/lib/lo0.rke2_hostprep/plan.json"
STATE_PATH = "var/lib/kubelet/cpu_manager_state"
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.S)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_RESERVED = re.compile(r"""^[^#]*?(?:reserved-cpus=|reservedSystemCPUs["']?\s*:)\s*["']?([0-9,\- ]*)""")


def observe(tree, release):
    return {
        "boot_args": _boot_args(tree, release),
        "kubelet_reserved": _kubelet_reserved(tree),
        "cpu_manager_state": _state(tree),
        "kept_plan": _kept(tree),
    }


def _assignments(text, values):
    """Shell assignments of a GRUB defaults file, with variables expanded from `values`; that is all that such a file may hold."""
    for line in text.replace("\\\n", "").splitlines():
        found = _ASSIGNMENT.match(line)
        if not found:
            continue
        try:
            words = shlex.split(found.group(2), comments=True)
        except ValueError:
            continue
        value = words[0] if words else ""
        values[found.group(1)] = _VARIABLE.sub(lambda name: values.get(name.group(1) or name.group(2), ""), value)


def _boot_args(tree, release):
    """{"source", "tokens"}: a Boot Loader Specification entry of the running kernel, else GRUB's defaults, else /etc/kernel/cmdline."""
    environment = {}
    for path in ("boot/grub2/grubenv", "boot/grub/grubenv"):
        _assignments(
            "\n".join(
                '%s="%s"' % tuple(line.split("=", 1))
                for line in (tree.read(path) or "").splitlines()
                if "=" in line and not line.startswith("#") and '"' not in line
            ),
            environment,
        )
    entries = tree.listdir("boot/loader/entries")
    if entries is None and tree.why("boot/loader/entries") != "missing":
        return {"source": None, "tokens": None}  # what boots is there, and only root may read it
    for name in entries or []:
        entry = dict(
            line.split(None, 1)
            for line in (tree.read("boot/loader/entries/" + name) or "").splitlines()
            if len(line.split(None, 1)) == 2
        )
        if (
            release
            and release in (entry.get("version", ""), entry.get("linux", "").rpartition("vmlinuz-")[2])
            and "options" in entry
        ):
            options = _VARIABLE.sub(
                lambda found: environment.get(found.group(1) or found.group(2), ""), entry["options"]
            )
            return {"source": "boot/loader/entries/" + name, "tokens": kernel_args.split(options)}
    defaults = tree.read("etc/default/grub")
    if defaults is not None:
        values = {}
        _assignments(defaults, values)
        for name in tree.listdir("etc/default/grub.d") or []:
            if name.endswith(".cfg"):
                _assignments(tree.read("etc/default/grub.d/" + name) or "", values)
        line = values.get("GRUB_CMDLINE_LINUX", "") + " " + values.get("GRUB_CMDLINE_LINUX_DEFAULT", "")
        return {"source": "etc/default/grub", "tokens": kernel_args.split(line)}
    line = tree.read("etc/kernel/cmdline")
    return (
        {"source": None, "tokens": None}
        if line is None
        else {"source": "etc/kernel/cmdline", "tokens": kernel_args.split(line)}
    )


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


def _kept(tree):
    plan, problem = _json(tree, PLAN_PATH)
    return {"path": "/" + PLAN_PATH, "plan": plan, "problem": problem}
