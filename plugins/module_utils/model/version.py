# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's version, as galaxy.yml has it; it stands in every plan and report."""

from __future__ import annotations

COLLECTION_VERSION = "0.2.0"
