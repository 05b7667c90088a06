# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster counts on of the lab beside it: addresses on one network, and a command that reaches a machine."""

from __future__ import annotations

import ipaddress
import sys
import types

import pytest
from cluster import machines
from cluster.common import ClusterError, lab_state, state_folder


def test_the_lab_says_where_its_machines_are(monkeypatch):
    pytest.importorskip("yaml", reason="the lab's machines are described in YAML")
    lab = machines.Lab()
    assert lab.namespace.endswith("-" + lab_state().lab)
    new, host = lab.address("new"), lab.address("host1")
    assert len({new, host, lab.gateway}) == 3
    assert len({ipaddress.ip_network(address + "/24", strict=False) for address in (new, host, lab.gateway)}) == 1
    assert lab.address("lvm") is None  # it has no NIC on the lab's network, so it cannot be a node
    assert not lab.is_nspawn("new") and lab.is_nspawn("host1")
    monkeypatch.setattr(lab.state, "read", lambda name: types.SimpleNamespace(running=name == "new"))
    reach = lab.reach("new").reach
    assert reach[:2] == ["ssh", "-F"] and reach[-1] == "new"
    with pytest.raises(ClusterError, match="host1 does not run: boot it first"):
        lab.reach("host1")
    with pytest.raises(ClusterError, match="no machine 'nwe'"):
        lab.is_nspawn("nwe")


def test_without_yaml_it_says_so(monkeypatch):
    for name in [name for name in sys.modules if name == "lab" or name.startswith("lab.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ClusterError, match="needs the Python package yaml"):
        machines.Lab()


@pytest.mark.parametrize("name", ["..", "a/b", "Bad_Name", "/etc", "1a"])
def test_a_name_that_is_no_name_never_becomes_a_path(monkeypatch, name):
    monkeypatch.setenv("HOSTPREP_LAB", name)
    with pytest.raises(ClusterError, match="^The lab's name is '.*'; use up to 12 lower-case letters and digits"):
        state_folder()
    pytest.importorskip("yaml", reason="the lab's machines are described in YAML")
    with pytest.raises(ClusterError, match="The lab's name is"):
        machines.Lab()


def test_what_the_lab_refuses_is_refused_here(monkeypatch, tmp_path):
    pytest.importorskip("yaml", reason="the lab's machines are described in YAML")
    monkeypatch.setenv("HOSTPREP_LAB_MACHINES", str(tmp_path / "none.yml"))
    with pytest.raises(ClusterError, match=r"none\.yml could not be read"):
        machines.Lab()
