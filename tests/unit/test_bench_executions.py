# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `bench executions` counts: an execution that is not seen, or taken for another's, would be a figure too good to be true."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("The bench is for Python 3.11 and newer.", allow_module_level=True)
pytest.importorskip("yaml")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import executions  # noqa: E402  (found by the path above)


def journal(*entries):
    return "\n".join(json.dumps({"SYSLOG_IDENTIFIER": name, "MESSAGE": text}) for name, text in entries)


def test_a_module_counts_once_whatever_its_name_and_its_arguments():
    found = executions.invocations(
        journal(
            ("ansible-lo0.rke2_hostprep.host_files", "Invoked with owner=rke2"),
            ("ansible-ansible.legacy.copy", list("Invoked with content=\x01 ö".encode())),
            ("ansible-ping", "Invoked"),
            ("ansible-ping", "said by the module itself"),
            ("sshd", "Invoked with no module"),
            (None, "Invoked"),
            ("ansible-ping", None),
        )
    )
    assert [module for module, _invoked in found] == ["host_files", "copy", "ping"]
    assert found[1][1] == "Invoked with content=\x01 ö"


@pytest.mark.parametrize(
    ("module", "invoked", "expected"),
    [
        ("cpu_plan", "Invoked with node=True", "read"),
        ("kubelet_checkpoint", "Invoked with state=transitioned drained=True", "transition"),
        ("kubelet_checkpoint", "Invoked with drained=True state=transitioned", "transition"),
        ("kubelet_checkpoint", "Invoked with state=judged drained=False", "own"),
        ("host_files", "Invoked with state=transitioned", "own"),
        ("dataplane_gate", "Invoked with policy={}", "own"),
        ("ping", "Invoked with data=pong", "own"),
    ],
)
def test_what_is_not_known_to_be_for_something_else_is_the_roles_own(module, invoked, expected):
    assert executions.part((module, invoked)) == expected
