# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what was asked of a host's boot, and what a boot made of it. Plain data; host/boot_change.py writes it.

{"schema_version": 1, "backend": name,
 "committed": {"args": [str], "id": str, "boot_id": str, "extras": [str]} or None     arguments that every boot gets
 "trial": {"args", "id", "boot_id", "kernel", "method", "extras": [str], "plan": {...} or None, "seen": [str] or None} or None
 "going": None, "trial", "commit", "present" or "absent"             a change that was begun and not ended
 "new_cmdline": whether /etc/kernel/cmdline was made by us
 "folders": [path without a leading slash] that were made for files of ours}

``boot_id`` is of the boot in which it was written, ``extras`` what the trial entry alone carries (a commit keeps them: they are in the
command line until the next boot), ``seen`` the tokens of /proc/cmdline of the trial that is being committed. The record is written
before the boot loader's files: whatever a power cut leaves is in it.
"""

from __future__ import annotations

from . import cmdline
from .errors import HostprepError

VERSION = 1
GOING = (None, "trial", "commit", "present", "absent")
STATES = ("none", "pending", "trial", "as_planned", "fallback")
HISTORY = 20  # boots that are remembered


def empty():
    return {
        "schema_version": VERSION,
        "backend": None,
        "committed": None,
        "trial": None,
        "going": None,
        "new_cmdline": False,
        "folders": [],
    }


def check(document):
    """The same document; refuses what is none. Raises HostprepError: boot_record_damaged, boot_record_newer."""
    try:
        version = document["schema_version"]
        if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
            raise HostprepError(
                "boot_record_newer",
                "the record of this host's boot was written by a newer version of this collection",
                read="schema_version %d" % version,
                allowed="at most %d" % VERSION,
                cure="use the collection's newer version",
            )
        whole = version == VERSION and document["going"] in GOING and isinstance(document["new_cmdline"], bool)
        whole = whole and all(isinstance(path, str) for path in document["folders"])
        for slot, keys in (("committed", ()), ("trial", ("kernel", "method"))):
            entry = document[slot]
            if entry is not None:
                whole = whole and all(isinstance(entry[key], str) for key in ("id", "boot_id", *keys))
                whole = whole and all(isinstance(token, str) for token in entry["args"])
        if document["trial"] is not None:
            whole = (
                whole and isinstance(document["trial"]["extras"], list) and {"seen", "plan"} <= set(document["trial"])
            )
    except (LookupError, TypeError):
        whole = False
    if not whole:
        raise HostprepError(
            "boot_record_damaged",
            "the record of this host's boot is damaged",
            read="no record of version %d" % VERSION,
            allowed="the file as this module wrote it",
            cure="restore it from a backup, or undo the boot loader's files by hand (docs/kernel_cmdline.md) and move it away",
        )
    return document


def ours(record):
    """Tokens that may stand in files of others as ours: of the last commit, and of one that was broken off."""
    tokens = list((record["committed"] or {"args": []})["args"])
    if record["going"] in ("commit", "present", "absent") and record["trial"]:
        tokens += [token for token in record["trial"]["args"] if token not in tokens]
    return tokens


def outcome(record, tokens, boot_id):
    """What cmdline.outcome says of this boot, of the slot that counts."""
    trial, committed = record["trial"], record["committed"]
    if trial is None:
        return cmdline.outcome(committed and dict(committed, state="committed"), tokens, boot_id)
    marked = "%s=%s" % (cmdline.TRIAL_MARK, trial["id"]) in tokens
    if (
        record["going"] in ("commit", "present") and not marked
    ):  # broken off: they are there for good, or the old ones are
        return cmdline.outcome(dict(trial, state="committed"), tokens, boot_id)
    found = cmdline.outcome(dict(trial, state="trial"), tokens, boot_id)
    if record["going"] == "trial" and found["state"] == "fallback" and not marked:
        return dict(found, state="none", read="a trial was begun and never set; " + found["read"])
    return found


def remembered(history, record, found, boot_id):
    """[{"boot_id", "id", "state", "missing", "extra", "read"}] with this boot at its end, each boot once.

    history: the list that was kept, or anything else that a damaged file held.
    """
    last = record["trial"] or record["committed"] or {"id": None}
    entry = dict(found, boot_id=boot_id, id=last["id"])
    kept = (
        [one for one in history if isinstance(one, dict) and one.get("boot_id") != boot_id]
        if isinstance(history, list)
        else []
    )
    return (kept + [entry])[-HISTORY:]


def line(record, found):
    """(whether it is bad, one line for the journal)."""
    last = record["trial"] or record["committed"] or {"args": []}
    asked = " ".join(last["args"])
    if found["state"] == "fallback":
        missing = " ".join(found["missing"]) or "none, but more was there: " + " ".join(found["extra"])
        return True, "fallback: the old boot entry was booted; asked for %s; missing: %s" % (asked, missing)
    return False, {
        "none": "no kernel arguments were asked for",
        "pending": "not rebooted since kernel arguments were asked for: %s" % asked,
        "trial": "this boot tries kernel arguments once: %s" % asked,
        "as_planned": "booted with the kernel arguments that were asked for: %s" % asked,
    }[found["state"]]
