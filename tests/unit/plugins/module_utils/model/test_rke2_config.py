# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-ins: texts by version and node kind, every refusal of a combination that does not start, and what others' files may say."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess

import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import rke2_config as config, rke2_facts as facts
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.kubelet_state import quantity
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from hypothesis import given, strategies as st
from topologies import article, uniform

PLAN = json.loads(json.dumps(make_plan(article("alternate"), {})))
AGENT = {"kind": "agent", "version": "v1.34.4+rke2r1"}
SERVER = {"kind": "server", "version": "v1.34.4+rke2r1", "cni": "cilium", "disable_kube_proxy": True}
CONFIG = "/etc/rancher/rke2/config.yaml.d/90-hostprep.yaml"
KUBELET = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-hostprep.conf"
FOREIGN = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50-site.conf"
DEFAULTS = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/00-rke2-defaults.conf"


def document(path, values, keys=(), opaque=(), problem=None):
    return {
        "path": path,
        "keys": list(values) + list(keys),
        "values": values,
        "opaque": list(opaque),
        "problem": problem,
    }


def reading(config=(), kubelet=(), **changes):
    found = {
        "kind": None,
        "kind_from": None,
        "version": None,
        "version_from": None,
        "data_dir": None,
        "state_dir": "/var/lib/kubelet",
        "initialised": False,
        "units": ["server", "agent"],
        "config": list(config),
        "kubelet": list(kubelet),
    }
    return dict(found, **changes)


def plan(**changes):
    return dict(copy.deepcopy(PLAN), **changes)


def render(settings, seen=None, given=PLAN):
    return config.render(given, seen, settings)


def files(rendered):
    """The parsed drop-ins, without what belongs to systemd."""
    return {
        entry["path"]: yaml.safe_load(entry["content"])
        for entry in rendered["files"]
        if entry["path"].endswith((".yaml", "/90-hostprep.conf"))
    }


def refused(settings, seen=None, given=PLAN):
    with pytest.raises(HostprepError) as caught:
        render(settings, seen, given)
    assert caught.value.read and caught.value.allowed and caught.value.cure
    assert "\n" not in str(caught.value)
    return caught.value


def codes(rendered):
    return [entry["code"] for entry in rendered["warnings"]]


# -- texts -----------------------------------------------------------------------------------------------------------------


def test_an_agent_gets_the_kubelets_drop_in_and_nothing_of_servers():
    rendered = render(dict(AGENT, cni="cilium", disable_kube_proxy=True), reading())
    assert files(rendered) == {
        KUBELET: {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "reservedSystemCPUs": "0-1,32-33",
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "prefer-align-cpus-by-uncorecache": "true"},
            "topologyManagerPolicy": "best-effort",
            "topologyManagerScope": "container",
            "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        }
    }
    assert rendered["files"][0]["mode"] == "0600"
    assert (rendered["same"], rendered["units"], rendered["warnings"]) == ({}, [], [])
    assert render(dict(AGENT, cni="cilium", disable_kube_proxy=True), reading()) == rendered


def test_a_server_gets_its_keys_and_no_static_policy():
    rendered = render(SERVER, reading(), None)
    assert [entry["content"] for entry in rendered["files"]] == [
        "# Written by lo0.rke2_hostprep: a change here is undone by its next run.\ncni: cilium\ndisable-kube-proxy: true\n"
    ]
    assert rendered["kubelet"] == {}
    assert rendered["same"] == {
        "cluster-cidr": "10.42.0.0/16",
        "cluster-dns": "10.43.0.10",
        "cluster-domain": "cluster.local",
        "cni": "cilium",
        "disable-cloud-controller": False,
        "disable-kube-proxy": True,
        "egress-selector-mode": "agent",
        "service-cidr": "10.43.0.0/16",
    }
    assert render(SERVER, None, None)["same"] == {"disable-kube-proxy": True, "cni": "cilium"}


def test_a_server_that_is_told_to_gets_the_static_policy():
    rendered = render(dict(SERVER, kubelet={"static_policy": True}))
    assert files(rendered)[KUBELET]["cpuManagerPolicy"] == "static"


def test_an_agent_without_the_static_policy_needs_no_plan_and_gets_no_file():
    assert render(dict(AGENT, kubelet={"static_policy": False}), None, None)["files"] == []


@pytest.mark.parametrize(
    ("minor", "aligned"), [(31, False), (32, False), (33, False), (34, True), (35, True), (36, True)]
)
def test_versions(minor, aligned):
    rendered = render(dict(AGENT, version="v1.%d.3+rke2r1" % minor))
    assert ("prefer-align-cpus-by-uncorecache" in rendered["kubelet"]["cpuManagerPolicyOptions"]) is aligned
    found = files(rendered)
    if minor > 31:
        assert list(found) == [KUBELET]
        return
    assert found == {
        CONFIG: {
            "kubelet-arg+": [
                "reserved-cpus=0-1,32-33",
                "cpu-manager-policy=static",
                "cpu-manager-policy-options=full-pcpus-only=true",
                "topology-manager-policy=best-effort",
                "topology-manager-scope=container",
                "topology-manager-policy-options=prefer-closest-numa-nodes=true",
            ]
        }
    }


def test_no_alignment_when_it_is_not_wanted():
    rendered = render(dict(AGENT, kubelet={"align_by_uncorecache": False}))
    assert rendered["kubelet"]["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}


def test_paths_follow_the_data_dir():
    for settings, seen in ((dict(AGENT, data_dir="/srv/rke2"), None), (AGENT, reading(data_dir="/srv/rke2/"))):
        assert list(files(render(settings, seen))) == ["/srv/rke2/agent/etc/kubelet.conf.d/90-hostprep.conf"]
    assert codes(render(dict(AGENT, data_dir="/srv/rke2"), reading())) == ["rke2_data_dir_unconfirmed"]
    assert codes(render(dict(AGENT, data_dir="/srv/rke2"), reading(data_dir="/srv/rke2"))) == []


@pytest.mark.parametrize(
    ("cni", "written"),
    [
        ("cilium", "cilium"),
        ("none", "none"),
        (["cilium"], ["cilium"]),
        (["multus", "cilium"], ["multus", "cilium"]),
        ("multus,cilium", ["multus", "cilium"]),
        (["multus,cilium"], ["multus", "cilium"]),
    ],
)
def test_cni(cni, written):
    assert files(render(dict(SERVER, cni=cni)))[CONFIG]["cni"] == written


@pytest.mark.parametrize(
    "cni",
    ["weave", "", "multus", ["cilium", "multus"], ["cilium", "canal"], [], ["a", "b", "c"], 5, True, {}, "cilium,"],
)
def test_cni_refused(cni):
    assert refused(dict(SERVER, cni=cni)).code == "rke2_cni_invalid"


def test_further_keys_are_added_and_lists_get_a_plus():
    more = {
        "cluster-cidr": "10.0.0.0/9",
        "node-label": ["a=b"],
        "selinux": True,
        "lb-server-port": 6444,
        "tls-san": ["x"],
    }
    rendered = render(dict(SERVER, config=more))
    assert files(rendered)[CONFIG] == {
        "cni": "cilium",
        "disable-kube-proxy": True,
        "cluster-cidr": "10.0.0.0/9",
        "node-label+": ["a=b"],
        "selinux": True,
        "lb-server-port": 6444,
        "tls-san+": ["x"],
    }
    assert rendered["same"] == {"cluster-cidr": "10.0.0.0/9", "disable-kube-proxy": True, "cni": "cilium"}
    old = render({"kind": "agent", "version": "v1.31.9+rke2r1", "config": {"kubelet-arg": ["max-pods=50"]}})
    assert files(old)[CONFIG]["kubelet-arg+"][:2] == ["max-pods=50", "reserved-cpus=0-1,32-33"]


@pytest.mark.parametrize(
    ("minor", "serves"),
    [
        (32, "resource.k8s.io/v1beta1=true"),
        (33, "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"),
        (34, None),
        (36, None),
    ],
)
def test_dynamic_resource_allocation(minor, serves):
    gate = "feature-gates=DynamicResourceAllocation=true"
    version = "v1.%d.1+rke2r1" % minor
    server = files(render(dict(SERVER, version=version, kubelet={"dra": True}), None, None))
    agent = files(render({"kind": "agent", "version": version, "kubelet": {"dra": True}}))
    if serves is None:
        assert "featureGates" not in agent[KUBELET]
        assert set(server[CONFIG]) == {"cni", "disable-kube-proxy"}
        return
    assert agent[KUBELET]["featureGates"] == {"DynamicResourceAllocation": True}
    assert server[CONFIG]["kube-apiserver-arg+"] == [gate, "runtime-config=" + serves]
    assert server[CONFIG]["kube-scheduler-arg+"] == server[CONFIG]["kube-controller-manager-arg+"] == [gate]
    assert server[KUBELET]["featureGates"] == {"DynamicResourceAllocation": True}


# -- the kubelet's refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kubelet", "kind", "changes", "code"),
    [
        ({"strict_cpu_reservation": True, "shared_cpus": 4}, "server", {}, "kubelet_choice_conflict"),
        ({"strict_cpu_reservation": True, "shared_cpus": 4, "static_policy": True}, "server", {}, "kubelet_strict_refused"),
        ({"strict_cpu_reservation": True}, "agent", {}, "kubelet_strict_refused"),
        ({"strict_cpu_reservation": True, "shared_cpus": 0}, "agent", {}, "kubelet_strict_refused"),
        ({"strict_cpu_reservation": True, "shared_cpus": 60}, "agent", {}, "kubelet_strict_refused"),
        ({"strict_cpu_reservation": True, "shared_cpus": 4}, "agent", {"mode": "pinned"}, "kubelet_strict_refused"),
        (
            {"strict_cpu_reservation": True, "shared_cpus": 13},
            "agent",
            {"policy": {"pod_shapes": [{"name": "x", "cpus": 48.0}]}},
            "kubelet_strict_refused",
        ),
        ({"memory_manager_static": True, "static_policy": False}, "agent", {}, "kubelet_choice_conflict"),
        ({"memory_manager_static": True}, "agent", {}, "kubelet_reserved_memory"),
        ({"reserved_memory_mib": {"0": 5}}, "agent", {}, "kubelet_choice_conflict"),
        ({}, "agent", {"reserved": "0-3"}, "kubelet_reserved_differs"),
        ({}, "agent", {"online_after_boot": "0-31"}, "kubelet_reserved_not_online"),
        ({}, "agent", {"online_after_boot": "0-1,32-33"}, "kubelet_reserved_not_online"),
        ({}, "agent", {"kubelet": 5}, "plan_invalid"),
        ({}, "agent", {"numa": None}, "plan_invalid"),
        ({"topology_manager_scope": "node"}, "agent", {}, "rke2_setting_invalid"),
        ({"static_policy": "true"}, "agent", {}, "rke2_boolean_quoted"),
        ({"strict_cpu_reservation": "yes"}, "agent", {}, "rke2_boolean_quoted"),
        ({"shared_cpus": "4"}, "agent", {}, "rke2_setting_invalid"),
        ({"shared_cpus": True}, "agent", {}, "rke2_setting_invalid"),
        ({"shared_cpus": -1}, "agent", {}, "rke2_setting_invalid"),
        ({"strict_cpu_reservations": True}, "agent", {}, "kubelet_choice_unknown"),
        ([], "agent", {"kubelet": None}, "plan_invalid"),
        ("text", "agent", {}, "rke2_setting_invalid"),
    ],
)  # fmt: skip
def test_the_kubelet_would_refuse(kubelet, kind, changes, code):
    assert refused({"kind": kind, "version": "v1.34.4+rke2r1", "kubelet": kubelet}, None, plan(**changes)).code == code


def test_no_plan():
    assert refused(AGENT, None, None).code == "plan_missing"


def test_strict_with_declared_shared_cpus_says_its_danger():
    settings = dict(AGENT, kubelet={"strict_cpu_reservation": True, "shared_cpus": 8})
    rendered = render(settings)
    assert rendered["kubelet"]["cpuManagerPolicyOptions"]["strict-cpu-reservation"] == "true"
    assert codes(rendered) == ["strict_cpu_reservation"]
    assert refused(dict(settings, version="v1.32.1+rke2r1")).code == "kubelet_version_lacks"


def test_more_than_eight_numa_nodes():
    many = json.loads(json.dumps(make_plan(uniform(12, 2), {})))
    options = render(AGENT, None, many)["kubelet"]["topologyManagerPolicyOptions"]
    assert options["max-allowable-numa-nodes"] == "12"
    del many["kubelet"]["topologyManagerPolicyOptions"]["max-allowable-numa-nodes"]
    assert refused(AGENT, None, many).code == "kubelet_numa_refused"
    many["kubelet"]["topologyManagerPolicy"] = "none"
    assert render(AGENT, None, many)["kubelet"]["topologyManagerPolicy"] == "none"


# -- memory ------------------------------------------------------------------------------------------------------------------

STATIC_MEMORY = {"memory_manager_static": True, "kube_reserved_memory_mib": 2048, "system_reserved_memory_mib": 1025}


def test_static_memory_adds_up_without_the_hundred_mebibytes_that_rke2_does_not_set():
    rendered = render(dict(AGENT, kubelet=STATIC_MEMORY))
    document = files(rendered)[KUBELET]
    assert document["reservedMemory"] == [
        {"numaNode": 0, "limits": {"memory": "1537Mi"}},
        {"numaNode": 1, "limits": {"memory": "1536Mi"}},
    ]
    assert document["kubeReserved"] == {"memory": "2048Mi"}
    assert "evictionHard" not in document
    assert codes(rendered) == ["memory_manager_static"]
    unit = "/etc/systemd/system/rke2-agent.service.d/50-hostprep-kubelet-state.conf"
    assert [(entry["path"], entry["mode"]) for entry in rendered["files"]] == [
        (KUBELET, "0600"),
        (config.SCRIPT, "0755"),
        (unit, "0644"),
    ]
    assert "ExecStartPre=-/bin/sh %s /var/lib/kubelet\n" % config.SCRIPT in rendered["files"][2]["content"]
    elsewhere = render(dict(AGENT, kubelet=STATIC_MEMORY), reading(state_dir="/srv/kubelet"))
    assert "%s /srv/kubelet\n" % config.SCRIPT in elsewhere["files"][2]["content"]


def test_an_eviction_threshold_is_part_of_the_sum_and_keeps_those_of_rke2():
    document = files(render(dict(AGENT, kubelet=dict(STATIC_MEMORY, eviction_memory_mib=100))))[KUBELET]
    assert document["evictionHard"] == {
        "imagefs.available": "5%",
        "nodefs.available": "5%",
        "memory.available": "100Mi",
    }
    assert sum(quantity(entry["limits"]["memory"]) for entry in document["reservedMemory"]) == (2048 + 1025 + 100) << 20


@pytest.mark.parametrize(
    ("values", "more", "read"),
    [
        ({"evictionHard": {"imagefs.available": "5%", "nodefs.available": "5%"}}, {}, None),
        ({"evictionHard": {"memory.available": "0%"}}, {}, None),
        ({"evictionHard": {"memory.available": "100Mi"}}, {}, "evictionHard memory.available 100Mi"),
        ({"evictionHard": {"memory.available": "100Mi"}}, {"eviction_memory_mib": 50}, None),  # ours is read later
        ({"systemReserved": {"memory": "1Gi"}}, {"system_reserved_memory_mib": None}, "systemReserved memory 1Gi"),
        ({"systemReserved": {"memory": "1Gi"}}, {}, None),
        ({"kubeReserved": {"ephemeral-storage": "1Gi"}}, {}, None),
        ({"evictionHard": "memory.available<100Mi"}, {}, "evictionHard memory.available<100Mi"),  # no mapping
        ({"systemReserved": 5}, {}, "systemReserved 5"),
    ],
)
def test_what_rke2_itself_sets_is_part_of_the_sum(values, more, read):
    settings = dict(AGENT, kubelet=dict(STATIC_MEMORY, **more))
    seen = reading([], [document(DEFAULTS, values)])
    if read is None:
        assert "reservedMemory" in files(render(settings, seen))[KUBELET]
        return
    error = refused(settings, seen)
    assert error.code == "kubelet_setting_foreign" and error.read.startswith("%s: %s" % (DEFAULTS, read))


@pytest.mark.parametrize("value", [5, "x", "", True, None, [], ["a"], {}, {"a": 1}, {"memory": ["a"]}])
@pytest.mark.parametrize("key", sorted(facts.READ_KUBELET))
@pytest.mark.parametrize("path", [FOREIGN, DEFAULTS])
def test_a_value_of_any_kind_is_taken_or_refused(path, key, value):
    state = {"policyName": "static", "defaultCpuSet": "0-7", "checksum": 1}
    states = {
        name: {"path": "/var/lib/kubelet/" + name, "problem": None, "state": found}
        for name, found in (("cpu_manager_state", state), ("memory_manager_state", None))
    }
    seen = reading([], [document(path, {key: value})], state=states, online="0-63", memory=None)
    for kubelet in ({}, {"static_policy": False}, dict(STATIC_MEMORY, eviction_memory_mib=50)):
        try:
            assert render(dict(AGENT, kubelet=kubelet), seen)["kind"] == "agent"
        except HostprepError as error:
            assert error.read and error.cure


@pytest.mark.parametrize("more", [{"problem": "line 3 is no top-level key"}, {"opaque": ["evictionHard"]}])
def test_where_what_rke2_sets_cannot_be_read_the_sum_is_not_known(more):
    seen = reading([], [document(DEFAULTS, {}, **more)])
    assert render(AGENT, seen)["warnings"] == []
    assert refused(dict(AGENT, kubelet=STATIC_MEMORY), seen).code == "rke2_config_unreadable"


def test_static_memory_as_flags():
    arguments = files(
        render({"kind": "agent", "version": "v1.31.1+rke2r1", "kubelet": dict(STATIC_MEMORY, eviction_memory_mib=1)})
    )
    assert arguments[CONFIG]["kubelet-arg+"][-5:] == [
        "kube-reserved=memory=2048Mi",
        "system-reserved=memory=1025Mi",
        "eviction-hard=imagefs.available<5%,memory.available<1Mi,nodefs.available<5%",
        "memory-manager-policy=Static",
        "reserved-memory=0:memory=1537Mi;1:memory=1537Mi",
    ]


@pytest.mark.parametrize(
    "split",
    [
        {"0": 3073, "1": 100},
        {"0": 3072},
        {"0": 3073, "1": 0},
        {"7": 3073},
        {"0": "3073"},
        {"0": 3073.0},
        {"0": True, "1": 3072},
    ],
)
def test_a_split_that_does_not_add_up_is_refused(split):
    error = refused(dict(AGENT, kubelet=dict(STATIC_MEMORY, reserved_memory_mib=split)))
    assert error.code == "kubelet_reserved_memory"


def test_more_than_a_node_has_is_refused():
    kubelet = {
        "memory_manager_static": True,
        "kube_reserved_memory_mib": 1 << 30,
        "reserved_memory_mib": {"0": 1 << 30},
    }
    assert "has not so much" in refused(dict(AGENT, kubelet=kubelet)).message


@given(st.integers(0, 9999), st.integers(0, 9999), st.integers(0, 999), st.integers(1, 8))
def test_what_is_split_evenly_is_exactly_the_sum(kube, system, eviction, nodes):
    wide = plan(numa=[dict(PLAN["numa"][0], id=node, memory_mib=1 << 20) for node in range(nodes)])
    kubelet = {
        "memory_manager_static": True,
        "kube_reserved_memory_mib": kube,
        "system_reserved_memory_mib": system,
        "eviction_memory_mib": eviction,
    }
    try:
        wanted = render(dict(AGENT, kubelet=kubelet), None, wide)["kubelet"]
    except HostprepError as error:
        assert error.code == "kubelet_reserved_memory"
        assert kube + system + eviction < nodes  # the kubelet takes no reservation of 0
        return
    amounts = [quantity(entry["limits"]["memory"]) for entry in wanted["reservedMemory"]]
    assert len(amounts) == nodes
    assert min(amounts) > 0
    assert sum(amounts) == (kube + system + eviction) << 20


def test_the_script_moves_files_of_another_boot_only(tmp_path):
    script = tmp_path / "script"
    script.write_text(render(dict(AGENT, kubelet=STATIC_MEMORY))["files"][1]["content"])
    state = tmp_path / "kubelet"

    def run():
        done = subprocess.run(["/bin/sh", str(script), str(state)], check=True, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("", "")
        return sorted(entry.name for entry in state.iterdir())

    assert run() == ["hostprep-boot-id"]  # before the first start of RKE2 there is no folder
    (state / "memory_manager_state").write_text("zero")
    (state / "hostprep-boot-id").write_text("another\n")
    assert run() == ["hostprep-boot-id", "memory_manager_state.previous-boot"]
    (state / "hostprep-boot-id").unlink()
    (state / "memory_manager_state.previous-boot").unlink()
    (state / "memory_manager_state").write_text("one")
    assert run() == ["hostprep-boot-id", "memory_manager_state"]  # it may be of a kubelet of this boot
    assert run() == ["hostprep-boot-id", "memory_manager_state"]
    (state / "hostprep-boot-id").write_text("another\n")
    assert run() == ["hostprep-boot-id", "memory_manager_state.previous-boot"]
    (state / "memory_manager_state").write_text("two")
    (state / "cpu_manager_state").write_text("two")
    assert "memory_manager_state" in run()
    (state / "hostprep-boot-id").write_text("another\n")
    assert run() == ["cpu_manager_state.previous-boot", "hostprep-boot-id", "memory_manager_state.previous-boot"]
    assert (state / "memory_manager_state.previous-boot").read_text() == "two"


# -- settings and keys -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"version": None}, "rke2_version_unknown"),
        ({"version": "v1.30.4+rke2r1"}, "rke2_version_unknown"),
        ({"version": "v1.99.0+rke2r1"}, "rke2_version_unknown"),
        ({"version": "latest"}, "rke2_version_unknown"),
        ({"version": "v2.34.1"}, "rke2_version_unknown"),
        ({"kind": None}, "rke2_kind_unknown"),
        ({"kind": "master"}, "rke2_setting_invalid"),
        ({"data_dir": "relative"}, "rke2_setting_invalid"),
        ({"data_dir": "/with space"}, "rke2_setting_invalid"),
        ({"colour": 1}, "rke2_setting_unknown"),
        ({"disable_kube_proxy": "true"}, "rke2_boolean_quoted"),
        ({"disable_kube_proxy": "maybe"}, "rke2_setting_invalid"),
        ({"disable_kube_proxy": 1}, "rke2_setting_invalid"),
        ({"config": []}, None),
        ({"config": "text"}, "rke2_setting_invalid"),
        ({"config": {"clustercidr": "x"}}, "rke2_key_unknown"),
        ({"config": {"kubelet_arg": ["x"]}}, "rke2_key_unknown"),
        ({"config": {"token": "hunter2"}}, "rke2_key_secret"),
        ({"config": {"agent-token": "hunter2"}}, "rke2_key_secret"),
        ({"config": {"cni": "canal"}}, "rke2_key_twice"),
        ({"config": {"disable-cloud-controller": "true"}}, "rke2_boolean_quoted"),
        ({"config": {"node-label": "a=b"}}, "rke2_setting_invalid"),
        ({"config": {"node-label": [5]}}, "rke2_setting_invalid"),
        ({"config": {"profile": None}}, "rke2_setting_invalid"),
        ({"config": {"kubelet-arg": ["--reserved-cpus=0-3"]}}, "rke2_key_twice"),
        ({"config": {"kubelet-arg": ["config=/etc/x"]}}, "rke2_key_twice"),
        ({"config": {"kubelet-arg": ["kube-reserved-cgroup=/x"]}}, "rke2_key_twice"),
        ({"version": "v1.33.1", "kubelet": {"dra": True}, "config": {"kube-apiserver-arg": ["feature-gates=A=true"]}}, "rke2_key_twice"),
        ({"version": "v1.31.1", "kubelet": {"dra": True}}, "kubelet_version_lacks"),
        ({"config": {"etcd-extra-env": ["AWS_SECRET_ACCESS_KEY=hunter2"]}}, "rke2_key_secret"),
        ({"config": {"kube-apiserver-extra-env": ["HTTPS_PROXY=http://site:hunter2@proxy:3128"]}}, "rke2_key_secret"),
        ({"config": {"kube-apiserver-arg": ["tls-private-key-file=/etc/x.key"], "etcd-extra-env": ["HTTPS_PROXY=http://proxy:3128"]}}, None),
        ({"restart": "true"}, "rke2_boolean_quoted"),
        ({"cluster_change": "yes"}, "rke2_boolean_quoted"),
    ],
)  # fmt: skip
def test_settings(settings, code):
    given = dict(SERVER, **settings)
    if code is None:
        assert render(given)["kind"] == "server"
        return
    error = refused(given)
    assert error.code == code
    assert "hunter2" not in str(error)


def test_versions_are_read_as_rke2_writes_them():
    for text in ("v1.34.4+rke2r1", "1.34", "v1.34.0-rc1+rke2r1", "v1.34.10"):
        assert config.minor_of(text) == 34


def test_a_misspelt_name_is_guessed():
    assert "cluster-cidr" in refused(dict(SERVER, config={"clustercidr": "x"})).cure
    assert "strict_cpu_reservation" in refused(dict(AGENT, kubelet={"strict_cpu_reservations": True})).cure


@pytest.mark.parametrize("key", ["cni", "disable-kube-proxy", "tls-san", "cluster-cidr", "kube-apiserver-arg"])
def test_an_agent_takes_no_keys_of_servers(key):
    assert refused(dict(AGENT, config={key: ["x"]})).code == "rke2_key_of_servers"


def test_kind_and_version_of_the_host():
    seen = reading(kind="agent", kind_from="/x", version="v1.33.2+rke2r1")
    assert (render({}, seen)["kind"], render({}, seen)["minor"]) == ("agent", 33)
    assert render({"version": "v1.34.1"}, seen)["minor"] == 34
    assert refused({"kind": "server"}, seen).code == "rke2_kind_differs"
    assert refused(dict(AGENT, data_dir="/a"), reading(data_dir="/b")).code == "rke2_data_dir_differs"


def test_facts_are_those_of_the_reference(shared):
    known = json.loads((shared / "rke2" / "config_keys.json").read_text(encoding="utf-8"))
    for kind in ("server", "agent"):
        # what the program takes and the pages leave out
        more = {"disable-apiserver", "disable-controller-manager", "disable-etcd", "helm-job-image"}
        more = {"airgap-extra-registry"} | (more if kind == "server" else set())
        assert facts.KEYS[kind] == set(known[kind]["keys"]) | more
    same = set(known["server"]["identical_on_all_servers"])
    assert set(facts.SAME_ON_SERVERS) | {"agent-token"} == same
    assert facts.SECRET <= facts.KEYS["server"]
    assert facts.LISTS <= facts.KEYS["server"]
    assert not facts.READ & facts.SECRET


# -- files of others -----------------------------------------------------------------------------------------------------------

MAIN = "/etc/rancher/rke2/config.yaml"
LATER = "/etc/rancher/rke2/config.yaml.d/99-site.yaml"


@pytest.mark.parametrize(
    ("settings", "seen", "code"),
    [
        (SERVER, [document(MAIN, {"cni": "canal"})], "rke2_key_foreign"),
        (SERVER, [document(LATER, {"cni": ["multus", "cilium"]})], "rke2_key_foreign"),
        (SERVER, [document(MAIN, {"disable-kube-proxy": False})], "rke2_key_foreign"),
        (SERVER, [document(MAIN, {"disable-kube-proxy": "false"})], "rke2_key_foreign"),
        (dict(SERVER, config={"selinux": True}), [document(MAIN, {}, keys=["selinux"])], "rke2_key_foreign"),
        (SERVER, [document(MAIN, {}, keys=["cni"], opaque=["cni"])], "rke2_config_unreadable"),
        (SERVER, [document(MAIN, {}, problem="line 3 is no top-level key")], "rke2_config_unreadable"),
        (SERVER, [document(MAIN, {"cni": ["cilium"]}), document(LATER, {"cni": "cilium"})], None),
        (SERVER, [document(MAIN, {"disable-kube-proxy": True}, keys=["token"])], None),
        (SERVER, [document(MAIN, {}, keys=["tls-san"], opaque=["tls-san"])], None),
        (SERVER, [document(CONFIG, {"cni": "canal"})], None),  # ours
        (dict(SERVER, config={"node-label": ["a=b"]}), [document(LATER, {}, keys=["node-label"])], "rke2_key_overwritten"),
        (dict(SERVER, config={"node-label": ["a=b"]}), [document(LATER, {}, keys=["node-label+"])], None),
        (dict(SERVER, config={"node-label": ["a=b"]}), [document(MAIN, {}, keys=["node-label"])], None),
        (AGENT, [document(MAIN, {"kubelet-arg": ["reserved-cpus=0-3"]})], "kubelet_reserved_differs"),
        (AGENT, [document(MAIN, {"kubelet-arg": ["--reserved-cpus=x"]})], "kubelet_reserved_differs"),
        (AGENT, [document(MAIN, {"kubelet-arg": ["reserved-cpus=0,1,32,33"]})], "warns"),
        (AGENT, [document(MAIN, {"kubelet-arg+": ["cpu-manager-policy=none"]})], "kubelet_setting_foreign"),
        (AGENT, [document(MAIN, {"kubelet-arg": ["cpu-manager-policy=static"]})], "warns"),
        (AGENT, [document(MAIN, {"kubelet-arg": "topology-manager-policy=single-numa-node"})], "kubelet_setting_foreign"),
        (AGENT, [document(MAIN, {"kubelet-arg": ["system-reserved-cgroup=/system"]})], "kubelet_reserved_cgroup"),
        (AGENT, [document(MAIN, {"kubelet-arg": ["kube-reserved=cpu=1"]})], None),
        (AGENT, [document(MAIN, {"kubelet-arg": ["cpu-manager-policy-options=prefer-align-cpus-by-uncorecache=true,full-pcpus-only=true"]})], "warns"),
        (AGENT, [document(MAIN, {"kubelet-arg": ["cpu-manager-policy-options=full-pcpus-only=true"]})], "kubelet_setting_foreign"),  # a flag replaces
        (dict(AGENT, kubelet=STATIC_MEMORY), [document(MAIN, {"kubelet-arg": ["eviction-hard=memory.available<100Mi"]})], "kubelet_setting_foreign"),
        (dict(AGENT, kubelet=STATIC_MEMORY), [document(MAIN, {"kubelet-arg": ["kube-reserved=memory=1Gi"]})], "kubelet_setting_foreign"),
        (dict(AGENT, version="v1.31.1"), [document(LATER, {"kubelet-arg": ["max-pods=9"]})], "rke2_key_overwritten"),
        (AGENT, [document(MAIN, {"cni": "cilium"})], "warns"),
        (SERVER, [document(MAIN, {"kubelet-arg": ["reserved-cpus=0-3"]})], None),  # a server has no reservation of ours
    ],
)  # fmt: skip
def test_files_of_rke2(settings, seen, code):
    if code in (None, "warns"):
        assert bool(render(settings, reading(seen))["warnings"]) is (code == "warns")
        return
    assert refused(settings, reading(seen)).code == code


@pytest.mark.parametrize(
    ("path", "values", "code"),
    [
        (FOREIGN, {"reservedSystemCPUs": "0-3"}, "kubelet_reserved_differs"),
        (FOREIGN, {"reservedSystemCPUs": "33,32,0-1"}, "warns"),
        (FOREIGN, {"systemReservedCgroup": "/system.slice"}, "kubelet_reserved_cgroup"),
        (FOREIGN, {"kubeReservedCgroup": ""}, None),
        (FOREIGN, {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}, "kubelet_setting_foreign"),
        (FOREIGN, {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, "warns"),  # maps of files are joined
        (FOREIGN, {"cpuManagerPolicyOptions": {"full-pcpus-only": "false"}}, "kubelet_setting_foreign"),
        (FOREIGN, {"cpuManagerPolicy": "none"}, "kubelet_setting_foreign"),
        (FOREIGN, {"memoryManagerPolicy": "Static"}, None),
        (FOREIGN, {"maxPods": 50}, None),
        (DEFAULTS, {"evictionHard": {"nodefs.available": "5%"}}, None),
        (KUBELET, {"reservedSystemCPUs": "0-3"}, None),  # ours
    ],
)
def test_files_of_the_kubelet(path, values, code):
    seen = reading([], [document(path, values)])
    if code in (None, "warns"):
        assert bool(render(AGENT, seen)["warnings"]) is (code == "warns")
        return
    assert refused(AGENT, seen).code == code


def test_an_unreadable_drop_in_is_refused_unless_it_is_rke2s_own():
    assert refused(AGENT, reading([], [document(FOREIGN, {}, problem="no JSON")])).code == "rke2_config_unreadable"
    assert (
        refused(AGENT, reading([], [document(FOREIGN, {}, opaque=["cpuManagerPolicyOptions"])])).code
        == "rke2_config_unreadable"
    )
    memory = dict(AGENT, kubelet=STATIC_MEMORY)
    assert (
        refused(memory, reading([], [document(FOREIGN, {}, opaque=["evictionHard"])])).code == "rke2_config_unreadable"
    )
    own = document(DEFAULTS, {}, problem="line 3 is no top-level key")
    assert render(AGENT, reading([], [own]))["warnings"] == []


def test_gates_of_several_files_are_joined_but_not_contradicted():
    settings = {"kind": "agent", "version": "v1.33.1", "kubelet": {"dra": True}}
    assert render(settings, reading([], [document(FOREIGN, {"featureGates": {"Other": True}})]))["warnings"] == []
    seen = reading([], [document(FOREIGN, {"featureGates": {"DynamicResourceAllocation": False}})])
    assert refused(settings, seen).code == "kubelet_setting_foreign"


@pytest.mark.parametrize(
    ("settings", "seen", "code"),
    [
        ({}, [], "rke2_live_differs"),  # no key: the live cluster has canal
        ({"cni": "canal"}, [], "rke2_cluster_change"),  # kube-proxy runs
        ({"cni": "canal", "cluster_change": True}, [], None),
        ({"cni": "canal", "disable_kube_proxy": False}, [], None),
        ({}, [document(MAIN, {"cni": "cilium", "disable-kube-proxy": True})], None),
        ({}, [document(CONFIG, {"cni": "cilium", "disable-kube-proxy": True})], None),
        ({}, [document(CONFIG, {"cni": "canal", "disable-kube-proxy": True})], "rke2_live_differs"),
        ({"config": {"cluster-cidr": "10.42.0.0/16"}}, [document(CONFIG, {"cni": "cilium", "disable-kube-proxy": True})], None),
        ({"config": {"cluster-cidr": "10.0.0.0/9"}, "cluster_change": True}, [document(CONFIG, {"cni": "cilium"})], "rke2_live_differs"),
        ({"config": {"disable-cloud-controller": True}}, [document(CONFIG, {"cni": "cilium", "disable-kube-proxy": True})], "rke2_cluster_change"),
        ({"cni": None, "disable_kube_proxy": None}, [], None),
        # what our own file says goes with it: RKE2 would take Cilium away at its next start
        ({"cni": None}, [document(CONFIG, {"cni": "cilium", "disable-kube-proxy": True})], "rke2_live_differs"),
        ({"cni": None}, [document(MAIN, {"cni": "cilium"}), document(CONFIG, {"cni": "cilium", "disable-kube-proxy": True})], None),
        ({"disable_kube_proxy": None}, [document(CONFIG, {"cni": "cilium", "disable-kube-proxy": True})], "rke2_cluster_change"),
        ({"config": {}}, [document(CONFIG, {"cni": "cilium", "disable-kube-proxy": True, "cluster-cidr": "10.0.0.0/9"})], "rke2_live_differs"),
    ],
)  # fmt: skip
def test_a_server_that_was_started(settings, seen, code):
    given = dict(SERVER, **settings)
    if code is None:
        assert render(given, reading(seen, initialised=True))["kind"] == "server"
        return
    assert refused(given, reading(seen, initialised=True)).code == code
    if not seen:
        assert render(given, reading(seen))["kind"] == "server"  # before the first start nothing is fixed


@pytest.mark.parametrize(
    ("key", "version", "allowed"),
    [
        ("etcd-s3-retention", "v1.31.11+rke2r1", "v1.31.12 or newer"),
        ("etcd-s3-retention", "v1.31.12+rke2r1", None),
        ("etcd-s3-retention", "v1.33.4", None),
        ("etcd-s3-retention", "v1.34.1+rke2r1", None),
        ("etcd-s3-retention", "1.31", None),
        ("helm-controller-arg", "v1.33.13+rke2r2", "a newer minor version"),
        ("helm-controller-arg", "1.33", "a newer minor version"),
        ("helm-controller-arg", "v1.36.2+rke2r1", "v1.36.3 or newer"),
        ("helm-controller-arg", "v1.36.3-rc1+rke2r1", None),
        ("disable-etcd", "v1.31.1+rke2r1", None),
    ],
)
def test_keys_that_came_later(key, version, allowed):
    value = ["--a"] if key in facts.LISTS else True if key == "disable-etcd" else 5
    given = dict(SERVER, version=version, config={key: value})
    if allowed is None:
        assert key.rstrip("+") in render(given)["files"][0]["content"]
    else:
        error = refused(given)
        assert (error.code, error.allowed) == ("rke2_key_newer", allowed)


def test_the_table_of_later_keys_names_real_keys_and_versions():
    assert set(facts.SINCE) <= facts.KEYS[facts.SERVER]
    assert {minor for table in facts.SINCE.values() for minor in table} <= set(facts.MINORS)


def test_servers_must_agree():
    one, other = render(SERVER), render(dict(SERVER, disable_kube_proxy=False))
    config.check_servers(one, {"b": render(SERVER), "agent": render(AGENT)})
    config.check_servers(render(AGENT), {"b": other})
    with pytest.raises(HostprepError) as caught:
        config.check_servers(one, {"b": other})
    assert (caught.value.code, caught.value.read) == ("rke2_servers_differ", "false on b, true here")


@pytest.mark.parametrize(
    ("mine", "theirs", "read"),
    [
        ({}, {"cluster-cidr": "10.42.0.0/16", "cluster-dns": "10.43.0.10", "egress-selector-mode": "agent"}, None),
        ({"service-cidr": "10.9.0.0/16,fd09::/112"}, {"service-cidr": "10.9.0.0/16,fd09::/112", "cluster-dns": "10.9.0.10,fd09::a"}, None),
        ({"cluster-cidr": "10.42.0.0/16,fd42::/56"}, {"cluster-cidr": ["10.42.0.0/16", "fd42::/56"]}, None),
        ({}, {"cluster-cidr": "10.0.0.0/9"}, "10.0.0.0/9 on b, 10.42.0.0/16 here"),
        ({"cluster-domain": "a.example"}, {}, "cluster.local on b, a.example here"),
        ({}, {"service-cidr": "10.9.0.0/16", "cluster-dns": "10.43.0.10"}, "10.9.0.0/16 on b, 10.43.0.0/16 here"),
        ({}, {"disable-cloud-controller": True}, "true on b, false here"),
    ],
)  # fmt: skip
def test_servers_must_agree_in_what_others_wrote_too(mine, theirs, read):
    """RKE2 does not start a server whose values differ from those of the cluster, whoever wrote them."""
    here, there = (render(SERVER, reading([document(MAIN, values)])) for values in (mine, theirs))
    if read is None:
        config.check_servers(here, {"b": there})
        return
    with pytest.raises(HostprepError) as caught:
        config.check_servers(here, {"b": there})
    assert (caught.value.code, caught.value.read) == ("rke2_servers_differ", read)


def test_a_service_network_that_is_none_is_left_to_rke2():
    assert facts.cluster_dns("nonsense") is None
    assert facts.cluster_dns("10.0.0.0/30") is None


STATES = {
    "cpu_manager_state": {"path": "/k/cpu_manager_state", "state": {"policyName": "none"}, "problem": None},
    "memory_manager_state": {"path": "/k/memory_manager_state", "state": None, "problem": None},
}
RUNNING = {"state": STATES, "memory": None, "online": "0-63", "running": True, "restart_pending": [KUBELET]}


def test_state_files_that_the_kubelet_would_refuse():
    rendered = render(AGENT, reading(**RUNNING))
    assert (rendered["transition_needed"], [one["code"] for one in rendered["why"]]) == (True, ["checkpoint_policy"])
    assert rendered["why"][0]["file"] == "/k/cpu_manager_state"
    assert (rendered["running"], rendered["restart_pending"]) == (True, [KUBELET])
    assert codes(rendered) == ["rke2_transition_pending"]
    assert refused(dict(AGENT, restart=True), reading(**RUNNING)).code == "rke2_restart_refused"
    server = render(SERVER, reading(**RUNNING), None)
    assert (server["transition_needed"], server["why"]) == (False, [])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"online": None}, "online_unknown"),
        ({"state": dict(STATES, cpu_manager_state={"path": "/k/c", "state": None, "problem": "Permission denied"})}, "checkpoint_unreadable"),
    ],
)  # fmt: skip
def test_state_files_that_cannot_be_judged(changes, code):
    assert refused(dict(SERVER), reading(**dict(RUNNING, **changes)), None).code == code


def test_files_that_are_there_already_need_no_execution():
    first = render(AGENT, reading())
    assert first["in_place"] is False
    (file,) = first["files"]
    there = {
        file["path"]: {
            "owner": "rke2",
            "settled": True,
            "sha256": hashlib.sha256(file["content"].encode()).hexdigest(),
            "mode": 0o600,
            "uid": 0,
            "gid": 0,
        }
    }
    assert render(AGENT, reading(own_files=there))["in_place"] is True
    left = dict(there, **{CONFIG: dict(there[file["path"]])})
    assert render(AGENT, reading(own_files=left))["in_place"] is False  # one that is no longer wanted
    assert render(AGENT, reading(own_files=None))["in_place"] is False
    assert render(AGENT)["in_place"] is False


def test_restart():
    seen = reading(units=["agent"])
    rendered = render(dict(AGENT, restart=True), seen)
    assert rendered["units"] == [{"name": "rke2-agent.service", "restart_on": [KUBELET]}]
    assert render(dict(AGENT, restart=True), reading(units=[]))["units"] == []


@pytest.mark.parametrize(
    ("given", "found", "differs"),
    [
        ("v1.34.4+rke2r1", "v1.34.4+rke2r1", False),
        ("1.34", "v1.34.4+rke2r1", False),
        ("v1.34.5+rke2r1", "v1.34.4+rke2r1", True),
        ("v1.34.4+rke2r1", "v1.31.9+rke2r1", True),
        ("v1.34.4+rke2r1", None, False),
    ],
)
def test_another_release_than_the_one_on_the_host_is_said(given, found, differs):
    rendered = render(dict(AGENT, version=given), reading(version=found))
    assert ("rke2_version_differs" in codes(rendered)) is differs


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": 0}, None),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "cpuManagerPolicyOptions": {config.STRICT: True}}, "checkpoint_strict"),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": 64}, "kubelet_reserved_not_online"),
        ({"cpuManagerPolicy": "Static"}, "kubelet_wanted_invalid"),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": [0]}, "kubelet_wanted_invalid"),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": True}, "kubelet_wanted_invalid"),
        ({"cpuManagerPolicyOptions": "strict-cpu-reservation=true"}, "kubelet_wanted_invalid"),
        ({"memoryManagerPolicy": "static"}, "kubelet_wanted_invalid"),
        ({"memoryManagerPolicy": "Static", "reservedMemory": "0:memory=1Gi"}, "kubelet_wanted_invalid"),
        ({"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1 Gi"}}]}, "kubelet_wanted_invalid"),
        ({"reservedSystemCPU": "0"}, "kubelet_wanted_invalid"),
    ],
)  # fmt: skip
def test_a_wanted_reservation_is_what_a_kubelet_takes(wanted, code):
    state = {"policyName": "static", "defaultCpuSet": "0-63", "entries": {}, "checksum": 0}
    states = dict(STATES, cpu_manager_state=dict(STATES["cpu_manager_state"], state=state))
    try:
        found = [
            one["code"]
            for one in config.refused_states(dict(reading(**RUNNING), state=states), config.given_wanted(wanted))
        ]
    except HostprepError as error:
        assert error.read and error.allowed and error.cure
        found = [error.code]
    assert found[:1] == ([code] if code else [])


def test_what_the_role_writes_is_a_wanted_reservation():
    wanted = render(AGENT, reading())["kubelet"]
    assert config.given_wanted(wanted) == wanted


def test_the_memory_of_someone_elses_static_manager_is_not_known():
    """reservedMemory is a list of mappings, which is not read of others' files: then only the policy is judged."""
    state = {"policyName": "Static", "machineState": {"0": {}}, "entries": {}, "checksum": 0}
    states = dict(STATES, memory_manager_state=dict(STATES["memory_manager_state"], state=state))
    states["cpu_manager_state"] = dict(STATES["cpu_manager_state"], state=None)
    foreign = document(FOREIGN, {"memoryManagerPolicy": "Static"}, ["reservedMemory"], ["reservedMemory"])
    seen = dict(reading([], [foreign], **RUNNING), state=states, memory={"0": {"memory": 1 << 36}})
    rendered = render(AGENT, seen)
    assert (rendered["transition_needed"], codes(rendered)) == (False, [])


def test_what_others_say_of_the_cpu_manager_is_what_the_kubelet_starts_with():
    seen = reading(
        [
            document(
                MAIN,
                {
                    "kubelet-arg": [
                        "cpu-manager-policy=static",
                        "cpu-manager-policy-options=a=true,b=false",
                        "reserved-cpus=0-3",
                    ]
                },
            )
        ],
        [document(FOREIGN, {"cpuManagerPolicy": "none", "memoryManagerPolicy": "Static"})],
    )
    found = config.configured_kubelet(seen, {"reservedSystemCPUs": "0"}, (CONFIG, KUBELET))
    assert found == {
        "cpuManagerPolicy": "static",  # a flag wins over a file
        "cpuManagerPolicyOptions": {"a": "true", "b": "false"},
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": "0",
    }
