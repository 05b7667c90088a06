# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is configured to: boot loader arguments, the kubelet's reservation and state file, and the plan it keeps. Reads only.

``observe`` returns the ``observed`` dict of model/compare.py. A file that is absent is None; one that is there
and cannot be read is reported by its ``problem``.
"""

from __future__ import annotations

from ..model import rke2_facts as facts
from . import kubelet, rke2
from .boot_args import boot_args
from .kept import PLAN_PATH, kept_plan
from .kernel import newer
from .reader import Reader


def observe(tree, release, found=None):
    """found: of host/rke2.py's ``documents`` or ``read``, where they were read before."""
    found = found or rke2.documents(tree)
    states = found["state"] if "state" in found else kubelet.states(tree, found["state_dir"])
    plan, problem = kept_plan(tree)
    return {
        "boot_args": _boot_args(tree, release),
        "kubelet_reserved": _kubelet_reserved(found),
        "cpu_manager_state": states[kubelet.NAMES[0]],
        "newer_kernel": newer(Reader(tree), release),
        "kept_plan": {"path": "/" + PLAN_PATH, "plan": plan, "problem": problem},
    }


def _boot_args(tree, release):
    """{"source", "tokens"} of what host/boot_args.py reads."""
    found = boot_args(tree, release)
    owned = found["owned"]
    return {"source": found["source"], "tokens": None if owned is None else [token["text"] for token in owned]}


def _kubelet_reserved(found):
    """{"source", "value"}: the list of the kubelet's drop-ins or, before them, RKE2's flags. Without one the first file that was read.

    source is None where no file is there or one cannot be read: then nothing is known.
    """
    documents = found["kubelet"] + found["config"]
    if any(document["problem"] for document in documents):
        return {"source": None, "value": None}
    said = [entry for entry in facts.said_to_kubelet(found) if entry[1] == "reservedSystemCPUs"]
    if said:
        return {"source": said[-1][0], "value": str(said[-1][2]).replace(" ", "")}
    first = (found["config"] + found["kubelet"])[:1]
    return {"source": first[0]["path"] if first else None, "value": None}
