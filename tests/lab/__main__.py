# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 tests/lab COMMAND …``: the lab's program, run from its folder."""

from __future__ import annotations

import sys

try:
    from lab.cli import main
except ModuleNotFoundError as missing:
    if missing.name != "yaml":
        raise
    print("The lab needs PyYAML, which this Python does not have: apt-get install python3-yaml", file=sys.stderr)
    sys.exit(2)

sys.exit(main(sys.argv[1:]))
