# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps what the roles' modules said, so that check mode can be compared with what was then done.

The first run of converge.yml in check mode is kept as would.json, the first without as done.json: one row for each task of a role
that ran on a machine, with what it changed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: recorder
type: notification
short_description: keeps what modules of the collection said
description: For this scenario only.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "recorder"

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.rows = []
        self.wanted = False
        self.check = bool(context.CLIARGS.get("check"))

    def v2_playbook_on_start(self, playbook):
        self.wanted = os.path.basename(playbook._file_name) == "converge.yml"

    def v2_runner_on_ok(self, result):
        task = result._task if hasattr(result, "_task") else result.task
        said = result._result if hasattr(result, "_result") else result.result
        host = result._host if hasattr(result, "_host") else result.host
        if not task.action.startswith("lo0.rke2_hostprep."):
            return
        self.rows.append(
            {
                "host": host.get_name(),
                "task": task.get_name(),
                "module": task.action.rpartition(".")[2],
                "changed": bool(said.get("changed")),
                "did": said.get("would") if self.check else said.get("done"),
                "diff": said.get("diff"),
                "reboot": said.get("pending_reboot"),
            }
        )

    def v2_playbook_on_stats(self, stats):
        place = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "."), "would.json" if self.check else "done.json")
        if self.wanted and not place.exists():
            place.write_text(json.dumps(self.rows, indent=1))
