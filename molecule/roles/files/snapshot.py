# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's settings as JSON: every file, folder and link of /etc with mode, owner and content, the record of owned files, some units."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess

UNITS = ("irqbalance.service", "tuned.service", "rke2-agent.service")


def main():
    found = {}
    for top in ("/etc", "/boot/grub", "/var/lib/lo0.rke2_hostprep"):
        for folder, folders, files in os.walk(top):
            for name in [*folders, *files, "."]:
                path = os.path.normpath(os.path.join(folder, name))
                one = os.lstat(path)
                content = None
                if stat.S_ISREG(one.st_mode):
                    with open(path, "rb") as stream:
                        content = hashlib.sha256(stream.read()).hexdigest()
                elif stat.S_ISLNK(one.st_mode):
                    content = os.readlink(path)
                found[path] = [oct(one.st_mode), one.st_uid, one.st_gid, content]
    for unit in UNITS:
        shown = subprocess.run(
            ["systemctl", "show", "--property=UnitFileState,ActiveState", unit],
            check=True,
            capture_output=True,
            text=True,
        )
        found[unit] = shown.stdout.split()
    print(json.dumps(found, sort_keys=True, indent=0))


if __name__ == "__main__":
    main()
