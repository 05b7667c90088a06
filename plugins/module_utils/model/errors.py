# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one error that reaches a user: a sentence with what was read, what is allowed and what to do."""

from __future__ import annotations

import traceback

from .wording import plain


class HostprepError(ValueError):
    """A refused input.

    code     stable identifier, for example ``reserved_out_of_range``
    message  one sentence that says what is wrong
    read     what was read (str), allowed: what would be accepted (str), cure: what to do (str)

    ``str(error)`` joins them in that order; ``as_dict()`` is what modules return.
    """

    def __init__(self, code, message, read=None, allowed=None, cure=None):
        self.code = code
        self.message = message
        self.read = read
        self.allowed = allowed
        self.cure = cure
        super().__init__(self.sentence())

    def sentence(self):
        parts = [self.message.rstrip(".")]
        if self.read:
            parts.append("read: " + str(self.read))
        if self.allowed:
            parts.append("allowed: " + str(self.allowed))
        if self.cure:
            parts.append("what to do: " + str(self.cure))
        return plain("; ".join(parts) + ".")  # what was read may hold anything

    def as_dict(self):
        return {
            "code": self.code,
            "message": self.message and plain(self.message),
            "read": self.read and plain(self.read),
            "allowed": self.allowed and plain(self.allowed),
            "cure": self.cure and plain(self.cure),
        }


def finding(code, message, cure, read=None):
    """A warning or a reason of a plan: {code, message, cure, read}, the shape that every list of findings uses."""
    return {"code": code, "message": plain(message), "cure": cure and plain(cure), "read": read and plain(read)}


def unexpected(error):
    """The HostprepError that stands for an exception nobody foresaw, so that its sentence names the place and no traceback is shown."""
    frames = traceback.extract_tb(error.__traceback__)
    place = "%s line %s" % (frames[-1].filename.rpartition("/")[2], frames[-1].lineno) if frames else "an unknown place"
    return HostprepError(
        "unexpected",
        "an input was not foreseen",
        read="%s: %s at %s" % (type(error).__name__, error, place),
        cure="report this as a defect, with the captured sys/ and proc/",
    )
