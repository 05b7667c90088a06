# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs at every boot: it compares the boot with what was asked for, keeps the outcome and says one line.

So a host that fell back to its old boot entry knows it, also when nobody looks. The module kernel_cmdline reports what is kept here.
"""

from __future__ import annotations

import json
import os
import sys

from ..model import boot_record, kernel_args
from ..model.errors import HostprepError
from . import atomic
from .atomic import HOME, TOKEN


def history(top=""):
    """What earlier runs kept, oldest first; an empty list where there is nothing to read."""
    try:
        with open(top + HOME + "/boot-outcome.json", "rb") as stream:
            kept = json.loads(stream.read().decode("utf-8"))["boots"]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return kept if isinstance(kept, list) else []


def now(top=""):
    """(record, outcome, id) of this boot. Raises HostprepError for a damaged record, OSError."""
    with open(top + HOME + "/boot.json", "rb") as stream:
        text = stream.read().decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    record = boot_record.check(document)
    with open(top + "/proc/cmdline", encoding="utf-8", errors="replace") as stream:
        tokens = kernel_args.split(stream.read())
    with open(top + "/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        boot_id = stream.read().strip()
    return record, boot_record.outcome(record, tokens, boot_id), boot_id


def state(top=""):
    """What this boot made of what was asked for, a word of boot_record.STATES; None where that cannot be known."""
    try:
        return now(top)[1]["state"]
    except FileNotFoundError:
        return None if os.path.exists(top + HOME + "/boot.json") else "none"
    except (HostprepError, OSError):  # the program below says why
        return None


def compare(top=""):
    """(record, outcome) of this boot, which is kept. Raises HostprepError for a damaged record, OSError."""
    record, found, boot_id = now(top)
    kept = {"schema_version": 1, "boots": boot_record.remembered(history(top), record, found, boot_id)}
    text = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    atomic.write_one(top + HOME + "/boot-outcome.json", text.encode("utf-8"), 0o600, TOKEN)
    return record, found


def main(top=""):
    """Exit status 0 also for a fallback: the host is up, and a failed unit would be someone else's alarm."""
    priority = bool(os.environ.get("JOURNAL_STREAM"))
    try:
        bad, said = boot_record.line(*compare(top))
        code = 0
    except (HostprepError, OSError) as error:
        bad, said, code = True, str(error), 1
    sys.stderr.write("%s%s\n" % ("<%d>" % (4 if bad else 6) if priority else "", said))
    return code
