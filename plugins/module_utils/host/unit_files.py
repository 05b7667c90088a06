# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What files and control groups tell of systemd's units. Reads only, and runs no program."""

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
