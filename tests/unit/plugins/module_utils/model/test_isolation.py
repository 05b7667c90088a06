# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written where, on which host: each switch, each refusal, each warning."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import isolation, owned
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

PLAN = {"reserved": "0-1", "isolated": "2-7", "online_after_boot": "0-7"}
OFF = {
    "system_slices": False,
    "irqbalance": "keep",
    "tuned": "keep",
    "governor": False,
    "workqueue": False,
}
UNIT = {"installed": True, "enabled": True, "masked": False, "running": True}
NO_UNIT = {"installed": False, "enabled": False, "masked": False, "running": False}
SERVICES = {
    "container": None,
    "systemd": 257,
    "cgroup": {
        "unified": True,
        "cpuset": True,
        "slices": {name: {"cpus": "", "effective": "0-7"} for name in isolation.SLICES},
    },
    "manager_cpus": "0-7",
    "irqbalance": {**UNIT, "enabled": False, "running": False, "config": "/etc/default/irqbalance", "banned": {}},
    "tuned": {
        **NO_UNIT,
        "profile": None,
        "arguments": {},
        "skips": False,
        "settings": {},
        "missing": [],
        "mode": None,
        "folder": "/etc/tuned",
        "base": False,
    },
    "governor": {"current": {}, "available": []},
    "preemption": {"model": "voluntary", "models": ["none", "voluntary", "full"], "why": None},
    "workqueue": {},
    "sysctl": {"net.core.busy_poll": 0, "net.core.busy_read": 0, "net.core.rps_sock_flow_entries": 0},
    "nics": [],
    "owners": [],
    "rke2": None,
    "runc": None,
    "runtimes": [],
    "ours": dict.fromkeys(isolation.WATCHED),
}
NIC = {"name": "ens1", "rps": {}, "flows": 0, "threaded": False, "defer": 0, "timeout": 0}


def host(**changes):
    """SERVICES with parts replaced; a mapping replaces keys of the part."""
    found = copy.deepcopy(SERVICES)
    for name, value in changes.items():
        found[name] = {**found[name], **value} if isinstance(value, dict) and isinstance(found[name], dict) else value
    return found


def made(services, **switches):
    return isolation.isolation_set(PLAN, services, {**OFF, **switches})


def contents(found):
    return {entry["path"]: entry["content"] for entry in found["files"]}


def codes(found):
    return [warning["code"] for warning in found["warnings"]]


def applied(services, found):
    """The host once host_files has written the set, its live values as they were."""
    return {**services, "ours": {**services["ours"], **contents(found)}}


# -- the system's own tasks


def test_slices_get_cpusets_and_pods_do_not():
    found = made(host(), system_slices=True)
    files = contents(found)
    assert set(files) == {isolation.drop_in(unit) for unit in ("system.slice", "user.slice", "init.scope")}
    assert files[isolation.drop_in("system.slice")].endswith("[Slice]\nAllowedCPUs=\nAllowedCPUs=0-1\n")
    assert files[isolation.drop_in("init.scope")].endswith("[Scope]\nAllowedCPUs=\nAllowedCPUs=0-1\n")
    assert [(command["argv"][0], command["before_units"]) for command in found["commands"]] == [("systemd-run", True)]
    assert set(found["commands"][0]["when_changed"]) == set(files)
    assert all(owned.is_unit_file(path) for path in files)  # so that host_files reloads systemd
    assert codes(found) == []


def test_a_slice_that_is_not_as_its_file_says_is_told():
    services = host()
    found = made(services, system_slices=True)
    again = made(applied(services, found), system_slices=True)
    assert codes(again) == ["live_value_differs"] * 3
    services["cgroup"]["slices"] = {name: {"cpus": "0-1", "effective": "0-1"} for name in isolation.SLICES}
    assert codes(made(applied(services, found), system_slices=True)) == []


def fallback(version, **changes):
    services = host(cgroup={"unified": True, "cpuset": False}, **changes)
    return services, made(services, system_slices=True, runc_version=version)


@pytest.mark.parametrize("version", [None, "", "1.1.14", "1.2.6", "1.3.0", "1.3.1-rc.1", "unknown"])
def test_without_cpusets_an_old_runcs_units_keep_all_cpus(version):
    _services, found = fallback(version, runtimes=["containerd.service"])
    files = contents(found)
    assert files.pop(isolation.MANAGER).endswith("[Manager]\nCPUAffinity=\nCPUAffinity=0-1\n")
    assert set(files) == {
        isolation.drop_in(unit) for unit in ("rke2-server.service", "rke2-agent.service", "containerd.service")
    }
    assert {text.partition("[Service]")[2] for text in files.values()} == {"\nCPUAffinity=\nCPUAffinity=0-7\n"}
    assert codes(found) == ["cgroup_without_cpuset", "runc_keeps_affinity"]


@pytest.mark.parametrize("version", ["1.2.7", "v1.2.8", "1.3.1", "1.3.3", "1.4.0", "1.4.0-rc.1", "2.0.0"])
def test_without_cpusets_a_new_runc_follows_systemd(version):
    services, found = fallback(version)
    assert set(contents(found)) == {isolation.MANAGER}
    again = made(applied(services, found), system_slices=True, runc_version=version)
    assert codes(again) == ["cgroup_without_cpuset", "live_value_differs"]
    assert [command["argv"][0] for command in found["commands"]] == ["systemctl", "/bin/sh"]


# -- irqbalance


def test_irqbalance_is_masked():
    assert made(host(), irqbalance="mask")["units"] == [
        {"name": "irqbalance.service", "masked": True, "state": "stopped"}
    ]


def test_irqbalance_gets_a_ban_list_of_its_own_file():
    found = made(host(), irqbalance="ban")
    files = contents(found)
    assert files[isolation.IRQBALANCE_ENVIRONMENT].endswith(
        "IRQBALANCE_BANNED_CPUS=000000fc\nIRQBALANCE_BANNED_CPULIST=2-7\n"
    )
    assert files[isolation.drop_in("irqbalance.service")].endswith(
        "EnvironmentFile=/etc/default/lo0-rke2-hostprep-irqbalance\n"
    )
    [unit] = found["units"]
    assert set(unit["restart_on"]) == set(files) and "masked" not in unit and "state" not in unit


@pytest.mark.parametrize(
    ("state", "expected"),
    [({"enabled": True}, ["irqbalance_kept"]), ({"running": True}, ["irqbalance_kept"]), ({}, []), (NO_UNIT, [])],
)
def test_irqbalance_that_is_kept(state, expected):
    found = made(host(irqbalance=state), irqbalance="keep")
    assert (codes(found), found["units"]) == (expected, [])


@pytest.mark.parametrize("switch", ["mask", "ban", "keep"])
def test_irqbalance_that_is_not_there(switch):
    found = made(host(irqbalance=NO_UNIT), irqbalance=switch)
    assert (found["units"], found["files"]) == ([], [])


# -- tuned


def setting(value, path="usr/lib/tuned/p/tuned.conf"):
    return {"value": value, "path": path}


NETWORK_LATENCY = {
    **UNIT,
    "base": True,
    "profile": "network-latency",
    "arguments": {"skew_tick": "usr/lib/tuned/network-latency/tuned.conf"},
    "settings": {
        "vm": {"transparent_hugepages": setting("never")},
        "sysctl": {"net.core.busy_poll": setting("50"), "kernel.timer_migration": setting("0")},
        "cpu": {"governor": setting("performance")},
    },
}
PARTITIONING = {
    **UNIT,
    "base": True,
    "profile": "cpu-partitioning",
    "arguments": {"nohz_full": "usr/lib/tuned/cpu-partitioning/tuned.conf"},
    "settings": {
        "irqbalance": {"banned_cpus": setting("2-7")},
        "scheduler": {"isolated_cores": setting("2-7"), "ps_blacklist": setting("x")},
        "sysfs": {"/sys/devices/virtual/workqueue/cpumask": setting("3"), "/sys/x/ignore_ce": setting("1")},
    },
}


@pytest.mark.parametrize("switch", ["auto", "profile"])
def test_our_profile_takes_the_place_of_network_latency(switch):
    found = made(host(tuned=NETWORK_LATENCY), tuned=switch)
    files = contents(found)
    profile = files.pop("/etc/tuned/lo0-rke2-hostprep/tuned.conf")
    assert files == {"/etc/tuned/active_profile": "lo0-rke2-hostprep\n", "/etc/tuned/profile_mode": "manual\n"}
    assert "include=network-latency\n" in profile and "skip_grub_config=True\n" in profile
    assert "drop=kernel.timer_migration,net.core.busy_poll,net.core.busy_read\n" in profile
    assert "drop=transparent_hugepages,transparent_hugepage\n" in profile
    [unit] = found["units"]
    assert len(unit["restart_on"]) == 3
    assert (unit.get("enabled"), unit.get("state")) == ((True, "started") if switch == "profile" else (None, None))
    assert codes(found) == ["tuned_arguments_dropped"]


def test_busy_polling_stays_where_it_is_asked_for():
    text = contents(made(host(tuned=NETWORK_LATENCY), tuned="auto", busy_poll=True))
    assert "drop=kernel.timer_migration\n" in text["/etc/tuned/lo0-rke2-hostprep/tuned.conf"]


@pytest.mark.parametrize(
    "state",
    [{}, {"installed": True, "base": True}, {**UNIT, "base": False}, {**UNIT, "base": True, "masked": True}],
)
def test_tuned_that_does_not_run_is_left_alone(state):
    found = made(host(tuned=state), tuned="auto")
    assert (found["files"], found["units"], codes(found)) == ([], [], [])


@pytest.mark.parametrize("state", [{}, {"installed": True, "base": False}])
def test_tuned_that_is_asked_for_must_be_there(state):
    with pytest.raises(HostprepError) as caught:
        made(host(tuned=state), tuned="profile")
    assert caught.value.code == "tuned_missing"


def test_a_masked_tuned_is_unmasked_where_it_is_asked_for():
    state = {"installed": True, "base": True, "masked": True}
    assert made(host(tuned=state), tuned="profile")["units"][0]["masked"] is False


@pytest.mark.parametrize("switch", ["auto", "profile"])
def test_a_profile_that_owns_arguments_or_interrupts_is_not_replaced_unasked(switch):
    services = host(tuned=PARTITIONING)
    with pytest.raises(HostprepError) as caught:
        made(services, tuned=switch)
    assert caught.value.code == "tuned_profile_owns"
    for words in (
        "nohz_full in",
        "[irqbalance] banned_cpus in",
        "[scheduler] isolated_cores in",
        "workqueue/cpumask in",
    ):
        assert words in caught.value.read
    assert "ps_blacklist" not in caught.value.read and "ignore_ce" not in caught.value.read
    found = made(services, tuned=switch, tuned_replace=True)
    assert "/etc/tuned/active_profile" in contents(found)
    assert found["files_first"] and not made(host())["files_first"]  # it owns nohz_full until tuned has ours


def test_a_profile_that_is_kept_is_named():
    found = made(host(tuned=PARTITIONING), tuned="keep")
    assert (found["files"], codes(found)) == ([], ["tuned_profile_owns"])
    found = made(host(tuned=NETWORK_LATENCY), tuned="keep")
    assert codes(found) == ["tuned_harms"]
    read = found["warnings"][0]["read"]
    for words in ("transparent_hugepages=never", "kernel.timer_migration=0", "net.core.busy_poll=50"):
        assert words in read


def test_a_profile_of_a_tuned_that_is_off_claims_nothing():
    state = {**PARTITIONING, "enabled": False, "running": False}
    assert codes(made(host(tuned=state), tuned="keep")) == []
    assert codes(made(host(tuned=state), tuned="profile")) == []


# -- governor, workqueues, preemption

FREQUENCIES = {"current": {"powersave": "0-6", "performance": "7"}, "available": ["performance", "powersave"]}
QUEUES = {
    "/sys/devices/virtual/workqueue/cpumask": "0-7",
    "/sys/devices/virtual/workqueue/nvme-wq/cpumask": "0-7",
    "/sys/devices/virtual/workqueue/writeback/cpumask": "0-7",
}
LINES = [
    "w /sys/devices/virtual/workqueue/*/cpumask - - - - 00000003",
    "w /sys/devices/virtual/workqueue/cpumask - - - - 00000003",
    "w /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor - - - - performance",
]


def test_live_values_are_set_by_tmpfiles():
    services = host(governor=FREQUENCIES, workqueue=QUEUES)
    found = made(services, governor=True, workqueue=True)
    lines = contents(found)[isolation.TMPFILES].splitlines()[1:]
    assert sorted(lines) == sorted(LINES)
    assert found["commands"] == [
        {"argv": ["systemd-tmpfiles", "--create", "--prefix=/sys/devices"], "when_changed": [isolation.TMPFILES]}
    ]
    assert codes(found) == []


def test_live_values_that_differ_are_told_only_where_the_file_is_in_place():
    services = host(
        governor=FREQUENCIES, workqueue={**QUEUES, "/sys/devices/virtual/workqueue/writeback/cpumask": "0-1"}
    )
    found = made(services, governor=True, workqueue=True)
    again = made(applied(services, found), governor=True, workqueue=True)
    assert codes(again) == ["live_value_differs"] * 3
    assert [warning["read"] for warning in again["warnings"]] == [
        "0-7, wanted 0-1",
        "0-7, wanted 0-1",
        "powersave, wanted performance",
    ]


@pytest.mark.parametrize(
    ("changes", "switches", "lines", "expected"),
    [
        ({"governor": {"current": {"x": "0-7"}, "available": ["x"]}}, {}, 0, ["governor_unavailable"]),
        ({"governor": FREQUENCIES, "tuned": NETWORK_LATENCY}, {"tuned": "auto"}, 0, ["tuned_arguments_dropped"]),
        ({"governor": FREQUENCIES, "tuned": NETWORK_LATENCY}, {}, 0, ["tuned_harms"]),
        (
            {
                "governor": FREQUENCIES,
                "tuned": {**UNIT, "profile": "b", "settings": {"cpu": {"governor": setting("schedutil|ondemand")}}},
            },
            {},
            0,
            ["governor_owned"],
        ),
        ({"workqueue": QUEUES, "tuned": PARTITIONING}, {}, 0, ["tuned_profile_owns"]),
        ({"workqueue": QUEUES, "container": "systemd-nspawn"}, {}, 0, ["container"]),
        ({"container": "systemd-nspawn"}, {}, 0, []),
        ({}, {}, 0, []),
        ({"governor": FREQUENCIES}, {"governor": False}, 0, []),
        ({"governor": FREQUENCIES}, {}, 1, []),
    ],
)
def test_who_sets_live_values(changes, switches, lines, expected):
    found = made(host(**changes), **{"governor": True, "workqueue": True, **switches})
    text = contents(found).get(isolation.TMPFILES, "")
    assert (len(text.splitlines()[1:]), codes(found)) == (lines, expected)


def test_the_preemption_model_is_set_by_a_unit():
    services = host()
    found = made(services, preemption="full")
    [(path, text)] = contents(found).items()
    assert path == "/etc/systemd/system/lo0-rke2-hostprep-preemption.service"
    assert "echo full >/sys/kernel/debug/sched/preempt" in text
    assert found["units"] == [
        {"name": isolation.PREEMPTION_UNIT, "enabled": True, "state": "started", "restart_on": [path]}
    ]
    assert codes(made(applied(services, found), preemption="full")) == ["live_value_differs"]
    services["preemption"]["model"] = "full"
    assert codes(made(applied(services, found), preemption="full")) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"preemption": {"models": ["full", "lazy"], "model": "lazy"}}, "preemption_not_offered"),
        ({"preemption": {"models": [], "model": None, "why": "x is missing"}}, "preemption_unreadable"),
        ({"container": "systemd-nspawn"}, "preemption_unreadable"),
    ],
)
def test_models_that_the_kernel_does_not_list(changes, code):
    with pytest.raises(HostprepError) as caught:
        made(host(**changes), preemption="none")
    assert caught.value.code == code


# -- receive work and other owners


@pytest.mark.parametrize(
    ("nic", "sysctl", "expected"),
    [
        ({}, {}, []),
        ({"rps": {"0": "0-1"}}, {}, []),
        ({"rps": {"0": "1-2", "10": "3"}}, {}, ["rps_on_isolated"]),
        ({"flows": 4096}, {}, []),
        ({"flows": 4096}, {"net.core.rps_sock_flow_entries": 1024}, ["rfs_to_isolated"]),
        ({}, {"net.core.rps_sock_flow_entries": 1024}, []),
        ({"threaded": True}, {}, ["napi_threaded"]),
        ({"defer": 2}, {}, []),
        ({"defer": 2, "timeout": 20000}, {}, ["busy_polling"]),
        ({}, {"net.core.busy_read": 50}, ["busy_polling"]),
        ({}, {"net.core.busy_read": None}, []),
    ],
)
def test_receive_work_that_reaches_isolated_cpus(nic, sysctl, expected):
    assert codes(made(host(nics=[{**NIC, **nic}], sysctl=sysctl))) == expected


def test_other_owners_are_named():
    found = made(host(owners=[{"name": "katalyst", "path": "/var/lib/katalyst", "read": "its folder is there"}]))
    assert codes(found) == ["other_owner"]
    assert found["warnings"][0]["message"].startswith("katalyst places")


# -- control planes, bad input, and what always holds


def test_a_control_plane_is_left_unless_told():
    found = isolation.isolation_set(PLAN, host(rke2="server"), {})
    assert (found["applies"], found["files"], found["units"], codes(found)) == (False, [], [], ["control_plane_left"])
    found = isolation.isolation_set(PLAN, host(rke2="server"), {"control_plane": True})
    assert found["applies"] and found["files"]


@pytest.mark.parametrize(
    ("plan", "services", "switches", "code"),
    [
        ({}, host(), {}, "plan_invalid"),
        ("text", host(), {}, "plan_invalid"),
        ({**PLAN, "reserved": ""}, host(), {}, "plan_invalid"),
        ({**PLAN, "reserved": ["0", "1"]}, host(), {}, "plan_invalid"),
        ({**PLAN, "reserved": "0-1\nExecStart=/bin/x"}, host(), {}, "plan_invalid"),
        ({**PLAN, "isolated": "all"}, host(), {}, "plan_invalid"),
        ({**PLAN, "online_after_boot": "0-7 %n"}, host(), {}, "plan_invalid"),
        (PLAN, {}, {}, "services_missing"),
        (PLAN, None, {}, "services_missing"),
        (PLAN, host(), {"tune": "keep"}, "isolation_switch_unknown"),
        (PLAN, host(), {"tuned": "off"}, "isolation_switch_invalid"),
        (PLAN, host(), {"governor": "yes"}, "isolation_switch_invalid"),
        (PLAN, host(), ["governor"], "isolation_switch_invalid"),
        (PLAN, host(), {"preemption": 1}, "isolation_switch_invalid"),
    ],
)
def test_bad_input(plan, services, switches, code):
    with pytest.raises(HostprepError) as caught:
        isolation.isolation_set(plan, services, switches)
    assert caught.value.code == code


def test_a_plan_of_another_host():
    assert isolation.isolation_set({**PLAN, "host": "a"}, host(), {}, "a")["files"]
    assert isolation.isolation_set({**PLAN, "host": None}, host(), {}, "a")["files"]
    with pytest.raises(HostprepError) as caught:
        isolation.isolation_set({**PLAN, "host": "b"}, host(), {}, "a")
    assert caught.value.code == "plan_other_machine"


SERVICE = st.sampled_from([NO_UNIT, UNIT, {**UNIT, "running": None}, {**UNIT, "masked": True, "enabled": False}])
HOSTS = st.builds(
    lambda irqbalance, tuned, cpuset, queues, governor, container: host(
        irqbalance=irqbalance,
        tuned=tuned,
        cgroup={"cpuset": cpuset},
        workqueue=queues,
        governor=governor,
        container=container,
    ),
    SERVICE,
    st.sampled_from([{}, {**UNIT, "base": True}, NETWORK_LATENCY]),
    st.booleans(),
    st.sampled_from([{}, QUEUES]),
    st.sampled_from([{"current": {}, "available": []}, FREQUENCIES]),
    st.sampled_from([None, "lxc"]),
)
CHOICES = st.fixed_dictionaries(
    {
        name: st.booleans() if kind is bool else st.sampled_from(kind)
        for name, (_default, kind) in isolation.SWITCHES.items()
        if kind is not str and (name != "tuned")
    }
)


@given(HOSTS, CHOICES)
def test_a_set_is_one_that_host_files_takes_and_does_not_depend_on_itself(services, switches):
    found = isolation.isolation_set(PLAN, services, switches)
    wanted = owned.normalise({"owner": "cpu_isolation", **{key: found[key] for key in ("files", "units", "commands")}})
    assert all(path.startswith("/etc/") for path in contents(found))
    assert not [path for path in contents(found) if "kubepods" in path or "/-.slice" in path]
    assert len(wanted["files"]) == len(found["files"])
    again = isolation.isolation_set(PLAN, applied(services, found), switches)
    assert (again["files"], again["units"], again["commands"]) == (found["files"], found["units"], found["commands"])
