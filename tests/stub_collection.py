# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A collection for tests that run roles with modules of their own."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).resolve().parents[1]


def skeleton(top):
    """The folder of a collection lo0.rke2_hostprep below ``top``, with the checkout's filters and module_utils, without modules and roles."""
    ours = top / "ansible_collections" / "lo0" / "rke2_hostprep"
    (ours / "plugins" / "modules").mkdir(parents=True)
    for name in ("filter", "module_utils"):
        (ours / "plugins" / name).symlink_to(TOP / "plugins" / name)
    (ours / "meta").mkdir()
    (ours / "meta" / "runtime.yml").write_text('requires_ansible: ">=2.19.0"\n')
    return ours
