# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has of RKE2: kinds of installations, the files and their order, and that no secret is read."""

from __future__ import annotations

import json

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import rke2, units

ETC = "etc/rancher/rke2/"
DATA = "var/lib/rancher/rke2/"
UNITS = "usr/local/lib/systemd/system/rke2-%s.service"
WANTS = "etc/systemd/system/multi-user.target.wants/rke2-%s.service"
BASE = {"proc": None, "sys": None}


def read(host, files, **options):
    return rke2.read(host.add(dict(BASE, **files)).tree(), **options)


def test_a_host_without_rke2(host):
    assert read(host, {}) == {
        "kind": None,
        "kind_from": None,
        "version": None,
        "version_from": None,
        "data_dir": None,
        "state_dir": "/var/lib/kubelet",
        "initialised": False,
        "units": [],
        "config": [],
        "kubelet": [],
        "root": str(host.top),
        "base": "/var/lib/rancher/rke2",
        "state": {
            name: {"path": "/var/lib/kubelet/" + name, "state": None, "problem": None}
            for name in ("cpu_manager_state", "memory_manager_state")
        },
        "memory": None,
        "online": None,
        "running": False,
        "restart_pending": [],
        "own_files": {},
    }


def test_what_is_read_is_json_that_comes_back_the_same(host):
    found = read(
        host,
        {
            "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       65536 kB\n",
            "var/lib/kubelet/cpu_manager_state": '{"policyName":"none"}',
            "proc/7/comm": "kubelet\n",
        },
    )
    assert json.loads(json.dumps(found)) == found
    assert (found["running"], found["memory"]) == (True, {"0": {"memory": 65536 << 10}})


def test_files_are_read_in_the_order_of_rke2_and_of_the_kubelet(host):
    found = read(
        host,
        {
            ETC + "config.yaml.d/99-b.yaml": "cni: cilium\n",
            ETC + "config.yaml.d/10-a.yaml": "cni: canal\n",
            ETC + "config.yaml.d/notes.txt": "x",
            ETC + "config.yaml": "node-name: a\n",
            DATA + "agent/etc/kubelet.conf.d/90-hostprep.conf": "maxPods: 5\n",
            DATA + "agent/etc/kubelet.conf.d/20-cli-config-dir/x.conf": "cpuManagerPolicy: none\n",
            DATA + "agent/etc/kubelet.conf.d/00-rke2-defaults.conf": "evictionHard:\n  nodefs.available: 5%\n",
            DATA + "agent/etc/kubelet.conf.d/readme.md": "x",
        },
    )
    assert [entry["path"] for entry in found["config"]] == [
        "/" + ETC + name for name in ("config.yaml", "config.yaml.d/10-a.yaml", "config.yaml.d/99-b.yaml")
    ]
    assert [entry["path"].rpartition("/")[2] for entry in found["kubelet"]] == [
        "00-rke2-defaults.conf",
        "x.conf",
        "90-hostprep.conf",
    ]
    assert found["kubelet"][1] == {
        "path": "/" + DATA + "agent/etc/kubelet.conf.d/20-cli-config-dir/x.conf",
        "keys": ["cpuManagerPolicy"],
        "values": {"cpuManagerPolicy": "none"},
        "opaque": [],
        "problem": None,
    }


def test_no_secret_leaves_the_files(host):
    found = read(
        host,
        {
            ETC + "config.yaml": "token: hunter2\nagent-token: |\n  hunter2\netcd-s3-secret-key: 'hunter2'\n"
            "datastore-endpoint: postgres://u:hunter2@db\nkubelet-arg:\n  - a=hunter2\n  - reserved-cpus=0-1\nnode-name: hunter2\n",
            ETC + "config.yaml.d/10-broken.yaml": "cni: cilium\nhunter2 is no key\n",
            ETC + "config.yaml.d/20-broken.yaml": '{"token": "hunter2"',
            DATA + "agent/etc/kubelet.conf.d/50-x.conf": "secret: hunter2\n",
        },
    )
    assert "hunter2" not in json.dumps(found)
    main, broken, unclosed = found["config"]
    assert main["keys"] == [
        "token",
        "agent-token",
        "etcd-s3-secret-key",
        "datastore-endpoint",
        "kubelet-arg",
        "node-name",
    ]
    assert main["values"] == {"kubelet-arg": ["reserved-cpus=0-1"]}
    assert main["opaque"] == ["agent-token"]
    assert (broken["problem"], unclosed["problem"]) == ("line 2 is no top-level key", "no JSON")


@pytest.mark.parametrize(
    ("files", "kind", "units"),
    [
        ({UNITS % "server": "", UNITS % "agent": ""}, None, ["server", "agent"]),
        ({UNITS % "agent": ""}, "agent", ["agent"]),
        ({"usr/lib/systemd/system/rke2-server.service": ""}, "server", ["server"]),
        ({UNITS % "server": "", UNITS % "agent": "", DATA + "server/db": None}, "server", ["server", "agent"]),
        (
            {UNITS % "server": "", UNITS % "agent": "", DATA + "agent/kubelet.kubeconfig": ""},
            "agent",
            ["server", "agent"],
        ),
        ({DATA + "server/db": None, DATA + "agent/kubelet.kubeconfig": ""}, "server", []),
    ],
)
def test_kind(host, files, kind, units):
    found = read(host, files)
    assert (found["kind"], found["units"]) == (kind, units)
    assert bool(found["kind_from"]) is (kind is not None)


def test_the_enabled_unit_tells_the_kind(host):
    link = host.Link("/usr/local/lib/systemd/system/rke2-agent.service")
    found = read(host, {WANTS % "agent": link, UNITS % "server": "", DATA + "server/db": None})
    assert (found["kind"], found["kind_from"]) == ("agent", "rke2-agent.service is enabled")


def test_the_running_unit_tells_more_than_the_enabled_one(host):
    link = host.Link("/usr/local/lib/systemd/system/rke2-agent.service")
    running = "sys/fs/cgroup/system.slice/rke2-server.service"
    found = read(host, {WANTS % "agent": link, UNITS % "server": "", UNITS % "agent": "", running: None})
    assert (found["kind"], found["kind_from"]) == ("server", "rke2-server.service runs")
    tree = host.tree()
    assert rke2.node_kind(tree, rke2.documents(tree)) == "server"


def test_a_masked_unit_tells_nothing(host):
    link = host.Link("/usr/local/lib/systemd/system/rke2-server.service")
    masked = {"etc/systemd/system/rke2-server.service": host.Link("/dev/null"), WANTS % "server": link}
    found = read(host, {**masked, UNITS % "server": "", UNITS % "agent": "", DATA + "agent/kubelet.kubeconfig": ""})
    assert (found["kind"], found["units"]) == ("agent", ["server", "agent"])


def test_the_kind_of_a_node_with_a_data_dir_of_its_own(host):
    host.add({**BASE, ETC + "config.yaml": "data-dir: /srv/rke2\n", "srv/rke2/server/db": None})
    tree = host.tree()
    assert rke2.node_kind(tree, rke2.documents(tree)) == "server"


@pytest.mark.parametrize("path", [DATA + "server/db", DATA + "server/token"])
def test_a_server_that_was_started(host, path):
    assert read(host, {path: None})["initialised"] is True


@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("/var/lib/rancher/rke2/data/v1.34.4-rke2r1-0d52262ea640/bin", "v1.34.4+rke2r1"),
        ("data/v1.36.0-rc1-rke2r1-0d52262ea640/bin", "v1.36.0-rc1+rke2r1"),
        ("/opt/bin", None),
    ],
)
def test_version_of_what_ran_last(host, target, version):
    assert read(host, {DATA + "bin": host.Link(target)})["version"] == version


def test_data_dir_state_dir_and_further_files_of_the_kubelet(host):
    found = read(
        host,
        {
            ETC
            + "config.yaml": "data-dir: /srv/rke2\nkubelet-arg:\n- config=/etc/kubelet.yaml\n- config-dir=/etc/kubelet.d\n",
            ETC + "config.yaml.d/50.yaml": 'kubelet-arg+: ["root-dir=/srv/kubelet"]\n',
            "etc/kubelet.yaml": "reservedSystemCPUs: 0-3\n",
            "etc/kubelet.d/x.conf": "maxPods: 1\n",
            "srv/rke2/agent/etc/kubelet.conf.d/a.conf": "cpuManagerPolicy: static\n",
            "srv/rke2/server/db": None,
        },
    )
    assert (found["data_dir"], found["state_dir"], found["initialised"], found["kind"]) == (
        "/srv/rke2",
        "/srv/kubelet",
        True,
        "server",
    )
    assert [entry["path"] for entry in found["kubelet"]] == [
        "/srv/rke2/agent/etc/kubelet.conf.d/a.conf",
        "/etc/kubelet.yaml",
        "/etc/kubelet.d/x.conf",
    ]
    assert read(host, {}, data_dir="/elsewhere")["data_dir"] == "/srv/rke2"


def test_a_data_dir_that_is_given(host):
    found = read(host, {"srv/x/server/db": None}, data_dir="/srv/x")
    assert (found["data_dir"], found["initialised"]) == (None, True)


def test_a_file_that_cannot_be_read(host):
    host.add(dict(BASE, **{ETC + "config.yaml.d/10-folder.yaml": None}))
    (found,) = rke2.read(host.tree())["config"]
    assert found["problem"]


def test_suffixes_and_depth_that_rke2_takes(host):
    host.add(
        dict(
            BASE,
            **{
                ETC + "config.yaml.d/20-B.YAML": "cni: cilium\n",
                ETC + "config.yaml.d/10-a.yml": '{"a": ' + "[" * 100_000,
            },
        )
    )
    first, second = rke2.read(host.tree())["config"]
    assert first["problem"] and first["values"] == {}
    assert second["values"] == {"cni": "cilium"}


def test_the_installed_program_says_its_version(host, monkeypatch):
    host.add(dict(BASE, **{"usr/local/bin/rke2": "", DATA + "bin": host.Link("/x/data/v1.33.1-rke2r1-0123/bin")}))
    tree = host.tree()
    assert rke2.read(tree)["version"] == "v1.33.1+rke2r1"  # programs of a copy are not run
    tree = host.tree()
    tree.live = True
    monkeypatch.setattr(
        units, "run", lambda argv, timeout: (0, "rke2 version v1.34.4+rke2r1 (0d52262ea640)\ngo version go1.24\n")
    )
    found = rke2.read(tree)
    assert (found["version"], found["version_from"]) == ("v1.34.4+rke2r1", "/usr/local/bin/rke2 --version")
    monkeypatch.setattr(units, "run", lambda argv, timeout: (None, "could not be started"))
    assert rke2.read(host.tree())["version"] == "v1.33.1+rke2r1"
