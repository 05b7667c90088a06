# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has on its disk that a role could have left: ``snapshot.py`` prints {path: what is there} as JSON.

All of /etc and of the places where the collection puts things, byte for byte; GRUB's configuration token for token, since it is
generated anew; which services run. Links and masks of units are files in /etc.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

TREES = ("/etc", "/usr/local", "/var/lib/lo0.rke2_hostprep", "/boot/loader", "/run/systemd/system")
# Written by the system itself while it runs.
NOT = ("/etc/.pwd.lock", "/etc/adjtime")


def seen(path):
    mode = path.lstat()
    what = "%o %d:%d " % (mode.st_mode, mode.st_uid, mode.st_gid)
    if stat.S_ISLNK(mode.st_mode):
        return what + os.readlink(path)
    return what + (hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode.st_mode) else "")


def tree(top):
    for folder, folders, files in os.walk(top):
        for name in files + folders + ["."]:
            path = Path(folder, name)
            if str(path) not in NOT:
                yield str(path), seen(path)


def services():
    """Which of the services that the roles stop, start or make have processes."""
    names = ("irqbalance.service", "tuned.service", "rke2-hostprep")
    running = [
        path.parent.name for path in Path("/sys/fs/cgroup").glob("*.slice/*.service/cgroup.procs") if path.read_text()
    ]
    return sorted(name for name in running if name.startswith(names))


if __name__ == "__main__":
    found = {path: what for top in TREES for path, what in tree(top)}
    for path in ("/boot/grub/grub.cfg", "/boot/grub/custom.cfg"):
        found[path] = Path(path).read_text(encoding="utf-8").split() if Path(path).exists() else None
    found["services"] = services()
    print(json.dumps(found))
