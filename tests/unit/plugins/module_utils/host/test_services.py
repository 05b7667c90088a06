# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else works on a host's CPUs, from trees of Debian 12 and 13 and of EL 9 in the parts that are read."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import rke2
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.services import services, unit
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import isolation

V2 = {
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory pids\n",
    "sys/fs/cgroup/system.slice/cpuset.cpus": "0-1\n",
    "sys/fs/cgroup/system.slice/cpuset.cpus.effective": "0,1\n",
    "sys/fs/cgroup/user.slice/cpuset.cpus": "\n",
}


def read(host, files):
    tree = host.add({"sys": None, **files}).tree()
    return services(tree, rke2.node_kind(tree, rke2.documents(tree)))


def test_a_host_that_tells_nothing(host):
    found = read(host, {})
    assert found["cgroup"] == {
        "unified": False,
        "cpuset": False,
        "slices": {name: {"cpus": None, "effective": None} for name in isolation.SLICES},
    }
    assert found["irqbalance"] == {
        "installed": False,
        "enabled": False,
        "masked": False,
        "running": None,
        "config": None,
        "banned": {},
    }
    assert (found["tuned"]["installed"], found["tuned"]["profile"], found["tuned"]["base"]) == (False, None, False)
    assert (found["governor"], found["workqueue"], found["nics"]) == ({"current": {}, "available": []}, {}, [])
    assert found["preemption"] == {
        "model": None,
        "models": [],
        "why": "/sys/kernel/debug/sched/preempt is missing",
    }
    assert (found["systemd"], found["rke2"], found["runc"], found["owners"]) == (None, None, None, [])
    assert (found["container"], found["manager_cpus"], found["runtimes"]) == (None, None, [])
    assert found["ours"] == dict.fromkeys(isolation.WATCHED)


def test_cgroups_and_systemd(host):
    found = read(
        host,
        {
            **V2,
            "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so": "",
            "proc/1/status": "Name:\tsystemd\nCpus_allowed_list:\t0-1,4\n",
            "run/systemd/container": "systemd-nspawn\n",
        },
    )
    assert found["cgroup"] == {
        "unified": True,
        "cpuset": True,
        "slices": {
            "system.slice": {"cpus": "0-1", "effective": "0-1"},
            "user.slice": {"cpus": "", "effective": None},
            "init.scope": {"cpus": None, "effective": None},
        },
    }
    assert (found["systemd"], found["manager_cpus"], found["container"]) == (257, "0-1,4", "systemd-nspawn")


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("usr/lib/systemd/libsystemd-shared-252-46.el9_5.2.so", 252),
        ("lib/systemd/libsystemd-shared-249.so", 249),
        ("usr/lib/aarch64-linux-gnu/systemd/libsystemd-shared-252.so", 252),
        ("usr/lib/systemd/libsystemd-core-252.so", None),
    ],
)
def test_systemds_version(host, path, version):
    assert read(host, {path: ""})["systemd"] == version


UNIT = "usr/lib/systemd/system/x.service"
LINK = "etc/systemd/system/multi-user.target.wants/x.service"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (False, False, False, None)),
        ({UNIT: ""}, (True, False, False, None)),
        ({UNIT: "", LINK: "link"}, (True, True, False, None)),
        ({UNIT: "", LINK: "link", "etc/systemd/system/x.service": "null"}, (True, False, True, None)),
        ({UNIT: "", "run/systemd/system/x.service": "null"}, (True, False, True, None)),
        ({UNIT: "", "sys/fs/cgroup/system.slice": None}, (True, False, False, False)),
        ({UNIT: "", "sys/fs/cgroup/system.slice/x.service": None}, (True, False, False, True)),
        ({UNIT: "", "sys/fs/cgroup/systemd/system.slice/x.service": None}, (True, False, False, True)),
        (
            {"sys/fs/cgroup/systemd/system.slice/x.service": None, "sys/fs/cgroup/unified/system.slice": None},
            (False, False, False, True),
        ),
    ],
)
def test_units_without_asking_systemd(host, files, expected):
    links = {"link": host.Link("/" + UNIT), "null": host.Link("/dev/null")}
    tree = host.add({"sys": None, **{path: links.get(text, text) for path, text in files.items()}}).tree()
    found = unit(tree, "x.service")
    assert tuple(found[key] for key in ("installed", "enabled", "masked", "running")) == expected


@pytest.mark.parametrize("path", ["etc/default/irqbalance", "etc/sysconfig/irqbalance"])
def test_irqbalances_ban_lists(host, path):
    text = '#IRQBALANCE_BANNED_CPUS=\nIRQBALANCE_ARGS="--x"\nIRQBALANCE_BANNED_CPULIST="2-3"\n'
    found = read(host, {path: text})["irqbalance"]
    assert (found["config"], found["banned"]) == ("/" + path, {"IRQBALANCE_BANNED_CPULIST": "2-3"})


@pytest.mark.parametrize(
    ("base", "folder"),
    [
        ("usr/lib/tuned/network-latency", "/etc/tuned"),
        ("usr/lib/tuned/profiles/network-latency", "/etc/tuned/profiles"),
    ],
)
def test_where_tuned_looks_for_profiles(host, base, folder):
    found = read(
        host,
        {
            base + "/tuned.conf": "[sysctl]\nnet.core.busy_poll=50\n",
            "etc/tuned/active_profile": "network-latency\n",
            "etc/tuned/profile_mode": "auto\n",
            "lib/systemd/system/tuned.service": "",
        },
    )["tuned"]
    assert (found["folder"], found["base"], found["mode"], found["installed"]) == (folder, True, "auto", True)
    assert found["settings"]["sysctl"]["net.core.busy_poll"] == {"value": "50", "path": base + "/tuned.conf"}


def test_governors_preemption_and_workqueues(host):
    cpu = "sys/devices/system/cpu/cpu%d/cpufreq/"
    files = {
        (cpu % number) + "scaling_governor": "performance\n" if number else "powersave\n" for number in (0, 1, 2, 10)
    }
    files.update({(cpu % number) + "scaling_available_governors": "performance powersave\n" for number in (0, 1, 2)})
    files[cpu % 10 + "scaling_available_governors"] = "performance userspace \n"
    files["sys/devices/system/cpu/cpufreq/policy0"] = None
    files["sys/kernel/debug/sched/preempt"] = "none voluntary full (lazy) \n"
    files["sys/devices/virtual/workqueue/cpumask"] = "ff,00000003\n"
    files["sys/devices/virtual/workqueue/cpumask_requested"] = "ff\n"
    files["sys/devices/virtual/workqueue/writeback/cpumask"] = "3\n"
    files["sys/devices/virtual/workqueue/power"] = None
    found = read(host, files)
    assert found["governor"] == {
        "current": {"performance": "1-2,10", "powersave": "0"},
        "available": ["performance"],
    }
    assert found["preemption"] == {"model": "lazy", "models": ["none", "voluntary", "full", "lazy"], "why": None}
    assert found["workqueue"] == {
        "/sys/devices/virtual/workqueue/cpumask": "0-1,32-39",
        "/sys/devices/virtual/workqueue/writeback/cpumask": "0-1",
    }


def test_receive_steering(host):
    found = read(
        host,
        {
            "sys/class/net/ens1/device": None,
            "sys/class/net/ens1/threaded": "1\n",
            "sys/class/net/ens1/napi_defer_hard_irqs": "2\n",
            "sys/class/net/ens1/gro_flush_timeout": "20000\n",
            "sys/class/net/ens1/queues/rx-0/rps_cpus": "0000000c\n",
            "sys/class/net/ens1/queues/rx-0/rps_flow_cnt": "2048\n",
            "sys/class/net/ens1/queues/rx-1/rps_cpus": "00000000\n",
            "sys/class/net/ens1/queues/rx-1/rps_flow_cnt": "2048\n",
            "sys/class/net/ens1/queues/tx-0/xps_cpus": "3\n",
            "sys/class/net/lo/threaded": "1\n",
            "proc/sys/net/core/busy_poll": "50\n",
            "proc/sys/net/core/rps_sock_flow_entries": "32768\n",
        },
    )
    assert found["nics"] == [
        {"name": "ens1", "rps": {"0": "2-3"}, "flows": 4096, "threaded": True, "defer": 2, "timeout": 20000}
    ]
    assert found["sysctl"] == {
        "net.core.busy_poll": 50,
        "net.core.busy_read": None,
        "net.core.rps_sock_flow_entries": 32768,
    }


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"etc/infiniband/openib.conf": "RUN_AFFINITY_TUNER=yes\n"}, ["openibd's affinity tuner"]),
        ({"etc/infiniband/openib.conf": 'RUN_AFFINITY_TUNER="no"\nRUN_MLNX_TUNE=yes\n'}, ["mlnx_tune"]),
        ({"etc/systemd/network/10-a.link": "[Link]\nIRQAffinityPolicy=spread\n"}, ["a systemd .link file"]),
        ({"usr/lib/systemd/network/99-default.link.d/b.conf": "[Link]\nIRQAffinity=0-3\n"}, ["a systemd .link file"]),
        ({"usr/lib/systemd/network/99-default.link": "[Link]\nNamePolicy=path\n"}, []),
        ({"var/lib/katalyst/plugin-socks": None}, ["katalyst"]),
        ({"opt/nri/plugins/10-balloons": ""}, ["an NRI plugin"]),
        ({"etc/nri/conf.d/20-logger.conf": ""}, []),
        ({"etc/systemd/system/multi-user.target.wants/mlnx_affinity.service": ""}, ["mlnx_affinity.service"]),
    ],
)
def test_other_owners(host, files, names):
    assert [owner["name"] for owner in read(host, files)["owners"]] == names


BOTH = {"usr/local/lib/systemd/system/rke2-%s.service" % kind: "" for kind in ("server", "agent")}


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (BOTH, None),
        ({**BOTH, "etc/systemd/system/multi-user.target.wants/rke2-agent.service": ""}, "agent"),
        ({**BOTH, "etc/systemd/system/multi-user.target.wants/rke2-server.service": ""}, "server"),
        ({**BOTH, "sys/fs/cgroup/system.slice/rke2-server.service": None}, "server"),
        ({"var/lib/rancher/rke2/server/db/etcd": None}, "server"),
    ],
)
def test_which_kind_of_node(host, files, kind):
    assert read(host, files)["rke2"] == kind


def test_runtimes_and_our_own_files(host):
    found = read(host, {"lib/systemd/system/containerd.service": "", isolation.TMPFILES[1:]: "w x\n"})
    assert found["runtimes"] == ["containerd.service"]
    assert found["ours"][isolation.TMPFILES] == "w x\n"
