# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transition of the kubelet's state files: see whether anything still depends on them, and move them aside.

A file that is moved aside keeps its name with ``.hostprep-<time>-<boot>`` after it, in the same folder. All are moved or none.
"""

from __future__ import annotations

import os
import re
import time

from ..model.errors import HostprepError
from ..model.owned import ACTIVE
from . import units
from .atomic import sync_folder
from .kubelet import NAMES, kubelets, running_pods
from .tree import reason

UNITS = ("rke2-server.service", "rke2-agent.service", "kubelet.service")
_ASIDE = re.compile(r"\.hostprep-\d{8}T\d{6}Z-[0-9a-z]+(?:-\d+)?\Z", re.ASCII)


def check_still(tree, drained, leftovers, own):
    """Refuses unless nothing depends on the state files: drained, kubelet and RKE2 stopped, no pods with processes.

    leftovers   "refuse", or "without_exclusive": pods that have no CPUs or memory of their own may still run (of DaemonSets)
    own         UIDs of the pods that have
    """
    if drained is not True:
        raise HostprepError(
            "checkpoint_not_drained",
            "the node must be drained before its kubelet's state files are moved",
            read="drained: %s" % str(drained).lower(),
            allowed="drained: true, said by who drained it through the API",
            cure="cordon and drain the node, stop RKE2, then run again with drained: true",
        )
    processes = kubelets(tree)
    if processes:
        raise HostprepError(
            "checkpoint_kubelet_running",
            "the kubelet runs, and would write its state files again",
            read="process %s" % ", ".join(map(str, processes)),
            allowed="no process named kubelet",
            cure="stop RKE2 (systemctl stop rke2-agent, on servers rke2-server)",
        )
    if tree.live:
        now = units.show(UNITS)
        active = ["%s is %s" % (name, now[name]["active"]) for name in UNITS if now[name]["active"] in ACTIVE]
        if active:
            raise HostprepError(
                "checkpoint_unit_running",
                "a unit runs that starts the kubelet",
                read=", ".join(active),
                allowed="stopped units",
                cure="stop it, and run again",
            )
    pods = running_pods(tree)
    if leftovers == "without_exclusive":
        pods = {uid: path for uid, path in pods.items() if uid in own}
    if pods:
        raise HostprepError(
            "checkpoint_pods_running",
            "pods still have processes, and the kubelet would give their CPUs away again",
            read="%d pods, such as %s in %s" % (len(pods), sorted(pods)[0], pods[sorted(pods)[0]]),
            allowed="no processes below kubepods",
            cure="end them with rke2-killall.sh or by a reboot without RKE2; pods of DaemonSets may stay with"
            " leftover_pods: without_exclusive",
        )


def aside(tree, paths, boot_id, now=None):
    """[{"from", "to"}] for paths below the root; nothing is moved yet."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    boot = re.sub("[^0-9a-z]", "", boot_id or "")[:8] or "unknown"
    steps = []
    for path in paths:
        target = "%s.hostprep-%s-%s" % (path, stamp, boot)
        number = 1
        while tree.exists(target.strip("/") + ("-%d" % number if number > 1 else "")):
            number += 1
        steps.append({"from": path, "to": target + ("-%d" % number if number > 1 else "")})
    return steps


def move(tree, steps):
    """Carries out ``aside``: all of it or nothing."""
    done = []
    try:
        for step in steps:
            source, target = (tree.place(step[key].strip("/")) for key in ("from", "to"))
            if source is None or target is None:
                raise OSError(0, "the root is an archive")
            os.rename(source, target)
            done.append((source, target))
        for folder in sorted({os.path.dirname(target) for _source, target in done}):
            sync_folder(folder)
    except OSError as error:
        stuck = []
        for source, target in reversed(done):
            try:
                os.rename(target, source)
            except OSError:
                stuck.append(target)
        raise HostprepError(
            "checkpoint_not_moved",
            "a state file could not be moved"
            + (", and another could not be put back" if stuck else "; all are where they were"),
            read="%s: %s"
            % (
                steps[len(done)]["from"] if len(done) < len(steps) else steps[-1]["from"],
                error.strerror or reason(error),
            ),
            allowed="a writable folder",
            cure="put %s back by hand" % ", ".join(stuck) if stuck else "make the folder writable, and run again",
        ) from None


def surplus(tree, state_dir, keep, steps):
    """Paths of the old files, of each name all but the newest ``keep``, as it will be after ``steps``."""
    folder = state_dir.strip("/")
    names = set(tree.listdir(folder) or []) | {step["to"].rpartition("/")[2] for step in steps}
    found = []
    for name in NAMES:
        old = sorted(other for other in names if other.startswith(name + ".") and _ASIDE.match(other[len(name) :]))
        found += ["/%s/%s" % (folder, other) for other in old[: max(0, len(old) - keep)]]
    return found


def remove(tree, paths):
    for path in paths:
        place = tree.place(path.strip("/"))
        try:
            if place:
                os.unlink(place)
        except OSError:
            pass  # an old file that stays does no harm
