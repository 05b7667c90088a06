# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What files tell of systemd's units, and so which kind of RKE2 node a host is. Reads only, and runs no program."""

from __future__ import annotations

CGROUP = "sys/fs/cgroup"
_UNIT_FOLDERS = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)


def unit(tree, name):
    """{"installed", "enabled", "masked": bool, "running": bool or None where no control group tells}."""
    places = ["%s/%s" % (folder, name) for folder in _UNIT_FOLDERS]
    masked = any(tree.target(path) == "/dev/null" for path in places[:2])
    installed = any(tree.target(path) != "/dev/null" and tree.exists(path) for path in places)
    enabled = any(
        name in (tree.listdir("%s/%s" % (folder, wants)) or ())
        for folder in _UNIT_FOLDERS[:2]
        for wants in tree.listdir(folder) or ()
        if wants.endswith((".wants", ".requires"))
    )
    running = None
    for top in (CGROUP, CGROUP + "/systemd", CGROUP + "/unified"):
        if tree.exists(top + "/system.slice"):
            running = bool(running) or tree.exists("%s/system.slice/%s" % (top, name))
    return {"installed": installed, "enabled": enabled and not masked, "masked": masked, "running": running}


def rke2(tree):
    """ "server", "agent" or None: the unit that is enabled or runs; without one, a server's data makes a server.

    The installer puts both unit files on every host, so that a file alone tells nothing.
    """
    for kind in ("server", "agent"):
        state = unit(tree, "rke2-%s.service" % kind)
        if state["running"] or state["enabled"]:
            return kind
    return "server" if tree.exists("var/lib/rancher/rke2/server/db") else None
