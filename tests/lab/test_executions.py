# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many modules the roles rke2 and cilium run on a node, by the node's own journal: what is promised, and that none is missed.

The counting is that of `bench executions`, which prints the same as figures.
"""

from __future__ import annotations

import sys

import pytest
from test_lab import PROGRAM, lab

sys.path.insert(0, str(PROGRAM.parent / "bench"))

import executions  # noqa: E402  (found by the path above)
from executions import DROP_IN, KUBELET, MANIFEST, OURS, PLAIN  # noqa: E402

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    found = executions.Nodes(tmp_path_factory.mktemp("nodes"), lambda *words: lab(*words).stdout)
    found.up()
    return found


@pytest.fixture(scope="module")
def counted(nodes):
    return executions.both(nodes)


def ping(nodes, host):
    return nodes.run([host], "ansible", host, "-m", "ansible.builtin.ping")


def test_a_module_that_runs_is_counted_and_one_that_leaves_no_line_is_noticed(nodes, monkeypatch):
    host = OURS["agent"]
    assert ping(nodes, host).modules(host) == ["ping"]
    monkeypatch.setenv("ANSIBLE_NO_TARGET_SYSLOG", "1")
    with pytest.raises(executions.Failed, match=r"sent \['ping'\], and the journals have \[\]"):
        ping(nodes, host)


def test_a_node_that_changes_costs_two_executions_and_the_transition_at_most(counted):
    ours, _plain, files = counted
    run = ours["changes"]
    assert run.changed[OURS["agent"]] and run.changed[OURS["server"]]
    assert run.parts(OURS["agent"]) == (1, 1, 1)  # host_plan's read, the kubelet's transition, and the roles' own
    assert run.parts(OURS["server"]) == (1, 0, 2)
    assert {DROP_IN, KUBELET} <= files[OURS["agent"]].keys()
    assert {DROP_IN, MANIFEST} <= files[OURS["server"]].keys()


def test_a_node_that_is_as_planned_costs_none_beside_the_one_read(counted):
    run = counted[0]["as planned"]
    assert run.changed == dict.fromkeys(OURS.values(), 0)
    for host in OURS.values():
        assert run.modules(host) == ["cpu_plan"]


def test_the_plain_playbook_does_as_much_and_costs_more(counted):
    ours, plain, files = counted
    for kind in OURS:
        assert files[PLAIN[kind]] == files[OURS[kind]]
        assert plain["changes"].changed[PLAIN[kind]] and not plain["as planned"].changed[PLAIN[kind]]
        for name in executions.RUNS:
            assert len(plain[name].executions[PLAIN[kind]]) > len(ours[name].executions[OURS[kind]])
