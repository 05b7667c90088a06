# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a fleet report in one folder: what is there now, and all of them replaced or none.

``texts`` is a dict of file name to text everywhere. Errors are HostprepError with the codes ``dest_not_absolute``, ``dest_not_a_folder``,
``dest_unwritable`` and ``report_not_written``.
"""

from __future__ import annotations

import json
import os

from ..model.errors import HostprepError
from . import atomic

MODE = 0o644


def check_folder(folder, names):
    """Refuses a folder that the files cannot be written to; looks only, so that check mode refuses what a run would refuse."""
    if not os.path.isabs(folder):
        raise HostprepError(
            "dest_not_absolute",
            "the folder for the report is not an absolute path",
            read=folder,
            allowed="a path that begins with /",
            cure="correct dest",
        )
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise HostprepError(
            "dest_not_a_folder",
            "the report needs a folder, and something else is in its place",
            read=there,
            allowed="a folder, or a path that does not exist yet",
            cure="choose another dest, or move that away",
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise HostprepError(
            "dest_unwritable",
            "the folder for the report cannot be written to",
            read=there,
            allowed="a folder that the user who runs this may write to",
            cure="choose another dest, or give the user the right",
        )
    for name in names:
        path = os.path.join(folder, name)
        if os.path.lexists(path) and not os.path.isfile(path):
            raise HostprepError(
                "dest_not_a_folder",
                "a file of the report cannot replace what is in its place",
                read=path,
                allowed="a file, or nothing",
                cure="move it away",
            )


def read(folder, name):
    """The text of a file of an earlier report; None where there is none that could be ours."""
    try:
        with open(os.path.join(folder, name), "rb") as handle:
            return handle.read().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def generated_at(folder, name):
    """The time in an earlier report's JSON file, or None."""
    try:
        document = json.loads(read(folder, name) or "null")
    except ValueError:
        return None
    time = document.get("generated_at") if isinstance(document, dict) else None
    return time if isinstance(time, str) else None


def write(folder, texts):
    """All files are replaced or none, and whoever reads meanwhile sees whole files."""
    changes = []
    try:
        os.makedirs(folder, exist_ok=True)
        for name, text in texts.items():
            path = os.path.join(folder, name)
            new = {"data": text.encode("utf-8"), "mode": MODE}
            old = atomic.read(path)
            if old is not None:
                old["uid"] = None  # who runs this may not give files to others
            changes.append({"path": path, "old": old, "new": new})
        atomic.replace(changes, os.urandom(4).hex())  # two runs may write at once
    except OSError as error:
        raise HostprepError(
            "report_not_written",
            "the report could not be written",
            read="%s: %s" % (folder, error.strerror or error),
            allowed="a folder with room and the right to write",
            cure="free space or choose another dest",
        ) from error
