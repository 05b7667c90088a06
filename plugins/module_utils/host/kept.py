# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan that a host keeps, and how a JSON file of a host is read. Reads only."""

from __future__ import annotations

import json

from .atomic import HOME

PLAN_PATH = HOME.strip("/") + "/plan.json"


def parsed(tree, path, most=None):
    """(parsed mapping or None, problem or None) of a JSON file; both None where there is none. most: bytes to read at most."""
    text = tree.read(path, most) if most else tree.read(path)
    if text is None:
        why = tree.why(path)
        return None, None if why == "missing" else why
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None, "it is not JSON"
    return (found, None) if isinstance(found, dict) else (None, "it holds no JSON object")


def kept_plan(tree):
    """(the plan that the host keeps or None, why it cannot be read or None)"""
    return parsed(tree, PLAN_PATH)
