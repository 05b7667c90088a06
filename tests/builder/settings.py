# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the system that plans read or change: boot loader defaults, RKE2's config, the kubelet's CPU manager state."""

from __future__ import annotations

import json

import yaml

from .spec import SpecError, read
from .tree import Link

KUBELET = {"policyName": (str, "static"), "defaultCpuSet": (str, ""), "entries": (dict, None)}


def emit(tree, machine):
    spec = machine.spec
    if spec.grub is not None:
        tree.text(
            "etc/default/grub",
            f'GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="{spec.grub}"\n',
        )
    for name, value in spec.grub_d.items():
        tree.text(f"etc/default/grub.d/{name}", f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {value}"\n')
    if spec.rke2 is not None:
        tree.text("etc/rancher/rke2/config.yaml", yaml.safe_dump(spec.rke2, sort_keys=True))
    for name, value in spec.rke2_d.items():
        tree.text(f"etc/rancher/rke2/config.yaml.d/{name}", yaml.safe_dump(value, sort_keys=True))
    if spec.kubelet is not None:
        want = read(spec.kubelet, "kubelet", KUBELET)
        state = {"policyName": want.policyName, "defaultCpuSet": want.defaultCpuSet}
        if want.entries:
            state["entries"] = want.entries
        state["checksum"] = 1
        tree.text("var/lib/kubelet/cpu_manager_state", json.dumps(state, separators=(",", ":")))


def overrides(tree, machine):
    """`files` and `without`, after all else."""
    for path, content in machine.spec.files.items():
        if path.startswith("/") or ".." in path.split("/"):
            raise SpecError(f"files: {path!r} leaves the tree: write a path relative to the machine's root")
        if isinstance(content, dict) and set(content) == {"link"}:
            tree.entries[path] = Link(content["link"])
        elif isinstance(content, str):
            tree.text(path, content)
        else:
            raise SpecError(f"files: {path} is {content!r}: write text, or a mapping with link")
    for pattern in machine.spec.without:
        if not tree.remove(str(pattern)):
            raise SpecError(f"without: nothing in the tree matches {pattern!r}")
