# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab says when it cannot do what was asked."""

from __future__ import annotations


class LabError(Exception):
    """Something that the user can put right; the text is one plain sentence, further lines are evidence (a log's end)."""


class Unsuitable(LabError):
    """This machine cannot run the lab, whatever the user does; what needs the lab is skipped here."""
