# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host tells of the files that ``host_files`` owns there, so that a role can know without it that nothing is to be done. Reads only."""

from __future__ import annotations

import hashlib
import os
import stat

from .atomic import HOME, RECORD
from .kept import parsed


def own_files(tree):
    """{path: {"owner", "settled": bool, "sha256", "mode", "uid", "gid"}} of the record; None where it cannot be read.

    The last four are those of the file that is there now, null where there is none. What is not settled has work left that follows it.
    """
    record, problem = parsed(tree, "%s/%s" % (HOME.strip("/"), RECORD))
    if problem:
        return None
    found = {}
    for path, entry in ((record or {}).get("files") or {}).items():
        now = {"sha256": None, "mode": None, "uid": None, "gid": None}
        data = tree.data(path.strip("/"))
        place = tree.place(path.strip("/"))
        if data is not None and place:
            try:
                state = os.lstat(place)
            except OSError:
                state = None
            # by its size a file that ends with NULs, which a Tree does not tell, is never taken for another
            if state is not None and stat.S_ISREG(state.st_mode) and state.st_size == len(data):
                now = {
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "mode": stat.S_IMODE(state.st_mode),
                    "uid": state.st_uid,
                    "gid": state.st_gid,
                }
        found[path] = dict(now, owner=entry.get("owner"), settled=not entry.get("unsettled"))
    return found
