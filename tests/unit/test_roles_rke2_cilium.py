# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles rke2 and cilium as ansible-playbook runs them: how many modules run on a node, what is written, and what is refused.

The role rke2 works with its real modules below a folder. For the role cilium the modules of kubernetes.core answer from a table that
stands for an API server, and those of ours that would reach this machine write down how they were called.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_objects, cilium_values
from stub_collection import skeleton

TOP = Path(__file__).resolve().parents[2]
COUNT = """
def _count():
    import json, os
    with open(os.environ["ROLE_TEST"], "a") as stream:
        stream.write(json.dumps({"name": %r}) + "\\n")


"""
STUB = """
import json, os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={options!r}, supports_check_mode=True)
with open(os.environ["ROLE_WORLD"]) as stream:
    world = json.load(stream)
params = {{key: value for key, value in module.params.items() if value is not None}}
kind = params.get("kind")
this = ("{name}", kind, module.check_mode)
with open(os.environ["ROLE_TEST"]) as stream:
    before = [json.loads(line) for line in stream]
before = [call for call in before if (call["name"], call.get("params", {{}}).get("kind"), call.get("check")) == this]
with open(os.environ["ROLE_TEST"], "a") as stream:
    stream.write(json.dumps({{"name": "{name}", "params": params, "check": module.check_mode}}) + "\\n")
# by the module's name, else a kind that is read; "times": how often; "check": whether in check mode too
failing = world.get("fail", {{}})
failure = dict(failing.get("{name}") or ("{name}".endswith("_info") and failing.get(kind)) or {{}})
times, check = failure.pop("times", None), failure.pop("check", True)
if failure and (check or not module.check_mode) and (times is None or len(before) < times):
    module.fail_json(**failure)
{body}
"""
ANY = {"type": "raw"}
# What the API has once a manifest was written is "after"
INFO = """
with open(os.environ["ROLE_TEST"]) as stream:
    wrote = any(json.loads(line)["name"] == "host_files" for line in stream)
api = dict(world["api"], **(world.get("after", {}) if wrote else {}))
found = api.get(params["kind"], [])
if params.get("name"):
    found = [one for one in found if one.get("metadata", dict()).get("name", params["name"]) == params["name"]]
module.exit_json(changed=False, resources=found)
"""
GATES = {gate: {"eligible": True, "reasons": []} for gate in ("netkit", "big_tcp_ipv4", "big_tcp_ipv6")}
STUBS = {
    ("kubernetes", "core", "k8s_info"): (
        ("kubeconfig", "api_version", "kind", "name", "namespace", "field_selectors"),
        INFO,
    ),
    ("kubernetes", "core", "k8s"): (
        ("kubeconfig", "state", "apply", "resource_definition"),
        "module.exit_json(changed=world.get('applies', True))",
    ),
    ("kubernetes", "core", "k8s_json_patch"): (
        ("kubeconfig", "kind", "name", "patch"),
        "module.exit_json(changed=True)",
    ),
    ("kubernetes", "core", "helm_info"): (
        ("kubeconfig", "name", "namespace"),
        'module.exit_json(changed=False, status=world.get("release"))',
    ),
    ("kubernetes", "core", "helm"): (
        ("kubeconfig", "name", "namespace", "chart_ref", "chart_repo_url", "chart_version", "values", "atomic", "wait"),
        "module.exit_json(changed=True, status={})",
    ),
    ("lo0", "rke2_hostprep", "host_files"): (
        ("owner", "files", "units", "purge", "root"),
        "module.exit_json(changed=world.get('applies', True))",
    ),
    ("lo0", "rke2_hostprep", "dataplane_gate"): (
        ("policy", "cilium_version", "cilium_values"),
        'module.exit_json(changed=False, gates=world["gates"], dataplane=dict(memory_mib=262144, possible_cpus=64))',
    ),
}


def collection(top, stubs):
    ours = skeleton(top)
    (ours / "roles").symlink_to(TOP / "roles")
    for (space, name, module), (options, body) in stubs.items():
        folder = top / "ansible_collections" / space / name / "plugins" / "modules"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / (module + ".py")).write_text(STUB.format(options=dict.fromkeys(options, ANY), name=module, body=body))
    for module in (TOP / "plugins" / "modules").glob("*.py"):
        target = ours / "plugins" / "modules" / module.name
        if module.stem != "__init__" and not target.exists():
            text = module.read_text(encoding="utf-8")
            assert "\ndef main():\n" in text
            target.write_text(text.replace("\ndef main():\n", COUNT % module.stem + "def main():\n    _count()\n"))
    return top


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """All modules of ours, each of which says that it ran."""
    return collection(tmp_path_factory.mktemp("real"), {})


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory):
    """With an API server that is a table, and a Python client that is a name."""
    top = tmp_path_factory.mktemp("stubbed")
    for name in ("kubernetes", "jsonpatch"):
        (top / "python" / name).mkdir(parents=True)
        (top / "python" / name / "__init__.py").write_text("")
    return collection(top, STUBS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """On a controller without kubernetes.core."""
    ours = {key: stub for key, stub in STUBS.items() if key[0] == "lo0"}
    return collection(tmp_path_factory.mktemp("alone"), ours)


def play(collections, folder, hosts, tasks, variables=None, world=None, arguments=(), groups=None, plays=({},)):
    """Runs tasks on hosts; (exit code, [calls], output). plays: what each play has that differs."""
    (folder / "ansible.cfg").write_text("[defaults]\nforks = 1\n")
    (folder / "world.json").write_text(json.dumps(world or {}))
    calls = folder / "calls"
    calls.write_text("")
    book = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "environment": {"ROLE_TEST": str(calls), "ROLE_WORLD": str(folder / "world.json")},
        "vars": {"ansible_python_interpreter": sys.executable, **(variables or {})},
        "tasks": tasks,
    }
    (folder / "play.yml").write_text(json.dumps([{**book, **more} for more in plays]))
    inventory = {
        "all": {
            "hosts": hosts,
            "children": {name: {"hosts": dict.fromkeys(each)} for name, each in (groups or {}).items()},
        }
    }
    (folder / "hosts.yml").write_text(json.dumps(inventory))
    paths = [str(collections / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "temporary"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    inventory_file, book_file = str(folder / "hosts.yml"), str(folder / "play.yml")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-v", "-i", inventory_file, *arguments, book_file],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in calls.read_text().splitlines()]
    return done.returncode, found, done.stdout + done.stderr


def names(calls):
    """Of all modules but those that an ordinary run has asked in check mode, which write nothing."""
    return [call["name"] for call in calls if not call.get("check")]


def role(name, **more):
    return {"ansible.builtin.include_role": {"name": "lo0.rke2_hostprep." + name, **more}}


# --- rke2 --------------------------------------------------------------------------------------------------------------------

PLAN = {
    "kubelet": {
        "reservedSystemCPUs": "0-1",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "topologyManagerPolicy": "best-effort",
        "topologyManagerPolicyOptions": {},
    },
    "reserved": "0-1",
    "online_after_boot": "0-7",
    "mode": "balanced",
    "numa": [{"id": 0, "memory_mib": 1024}],
    "policy": {},
}
KUBELET = "var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-hostprep.conf"
AGENT = {"rke2_node_kind": "agent", "rke2_version": "v1.34.4+rke2r1", "rke2_plan": PLAN}
SAY = {
    "ansible.builtin.debug": {
        "msg": "due: {{ [rke2_restart_required, rke2_transition_needed, rke2_rendered.in_place] | to_json }}"
    }
}


def bare(root):
    (root / "sys/devices/system/cpu").mkdir(parents=True)
    (root / "sys/devices/system/cpu/online").write_text("0-7\n")
    (root / "proc").mkdir()
    return root


@pytest.fixture
def machine(tmp_path):
    return bare(tmp_path / "machine")


def unchanged(output):
    return "changed=0" in output and "failed=0" in output


def test_rke2_writes_once_and_is_then_at_rest(real, tmp_path, machine):
    variables = dict(AGENT, rke2_root=str(machine))
    code, calls, output = play(real, tmp_path, {"a": {}}, [role("rke2"), SAY], variables, arguments=["--check"])
    assert (code, names(calls)) == (0, ["kubelet_checkpoint", "host_files"]), output
    assert not (machine / KUBELET).exists()
    code, calls, output = play(real, tmp_path, {"a": {}}, [role("rke2"), SAY], variables)
    assert (code, names(calls)) == (0, ["kubelet_checkpoint", "host_files"]), output
    assert yaml.safe_load((machine / KUBELET).read_text())["reservedSystemCPUs"] == "0-1"
    assert "due: [false, false, false]" in output
    code, calls, output = play(real, tmp_path, {"a": {}}, [role("rke2"), SAY], variables)
    rest = ["kubelet_checkpoint"] if os.getuid() == 0 else ["kubelet_checkpoint", "host_files"]
    assert (code, names(calls), unchanged(output)) == (0, rest, True), output
    (machine / KUBELET).write_text("someone's\n")
    code, calls, output = play(real, tmp_path, {"a": {}}, [role("rke2")], variables)
    assert names(calls) == ["kubelet_checkpoint", "host_files"], output


def test_rke2_needs_no_execution_where_the_host_was_read(real, tmp_path, machine):
    read = {
        "lo0.rke2_hostprep.kubelet_checkpoint": {
            "root": str(machine),
            "plan": PLAN,
            "node_kind": "agent",
            "rke2_version": "v1.34.4",
        },
        "register": "before",
    }
    variables = dict(AGENT, rke2_root=str(machine), rke2_reading="{{ before.rke2 }}")
    for expected in (["host_files"], [] if os.getuid() == 0 else ["host_files"]):
        code, calls, output = play(real, tmp_path, {"a": {}}, [read, role("rke2"), SAY], variables)
        assert (code, names(calls)[1:]) == (0, expected), output
    # what was read elsewhere is not believed
    elsewhere = dict(variables, rke2_data_dir="/srv/rke2")
    code, calls, output = play(real, tmp_path, {"a": {}}, [read, role("rke2")], elsewhere)
    assert (code, names(calls)[1:]) == (0, ["kubelet_checkpoint", "host_files"]), output


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"rke2_config": {"token": "hunter2"}}, "secrets do not belong into this file"),
        ({"rke2_config": {"tls-san": ["a"]}}, "an agent does not take a key of servers"),
        ({"rke2_version": "v1.99.1"}, "is not known"),
        (
            {"rke2_restart": True, "state": {"policyName": "none"}},
            "after a restart the kubelet would refuse its state files",
        ),
    ],
)
def test_rke2_refuses_in_one_sentence_and_writes_nothing(real, tmp_path, machine, variables, words):
    if "state" in variables:
        (machine / "var/lib/kubelet").mkdir(parents=True)
        (machine / "var/lib/kubelet/cpu_manager_state").write_text(json.dumps(variables["state"]))
    code, calls, output = play(
        real, tmp_path, {"a": {}}, [role("rke2")], dict(AGENT, rke2_root=str(machine), **variables)
    )
    assert (code, names(calls)) == (2, ["kubelet_checkpoint"])
    assert words in output and "hunter2" not in output and "Traceback" not in output, output
    assert not (machine / "etc").exists()


SERVERS = {"rke2_node_kind": "server", "rke2_version": "v1.34.4+rke2r1", "rke2_plan": None}


@pytest.mark.parametrize("more", [{}, {"serial": 1}])
def test_servers_that_differ_are_changed_all_or_none(real, tmp_path, more):
    tops = [bare(tmp_path / name) for name in ("s1", "s2")]
    hosts = {top.name: {"rke2_root": str(top)} for top in tops}
    hosts["s2"]["rke2_disable_kube_proxy"] = False
    code, calls, output = play(real, tmp_path, hosts, [role("rke2")], SERVERS, plays=[more])
    assert (code, "host_files" in names(calls)) == (2, False), output
    assert ("were not judged" if more else "every server must have the same value") in output, output
    assert not any((top / "etc").exists() for top in tops)


def test_servers_are_changed_one_by_one_where_all_were_judged(real, tmp_path):
    hosts = {name: {"rke2_root": str(bare(tmp_path / name))} for name in ("s1", "s2")}
    plays = [{"tasks": [role("rke2", tasks_from="wanted")]}, {"serial": 1}]
    code, calls, output = play(real, tmp_path, hosts, [role("rke2")], SERVERS, plays=plays)
    assert code == 0, output
    assert names(calls) == ["kubelet_checkpoint"] * 2 + ["kubelet_checkpoint", "host_files"] * 2
    written = [
        (tmp_path / name / "etc/rancher/rke2/config.yaml.d/90-hostprep.yaml").read_text() for name in ("s1", "s2")
    ]
    assert written[0] == written[1] and "disable-kube-proxy: true" in written[0]


# As another role writes it from a template: lists in Python's notation, a token, keys of ours with the same value
CONFIG_YAML = """\
token: hunter2
data-dir: /var/lib/rancher/rke2
cni: ['%s']
tls-san:
  - cluster.local
  - 192.0.2.10
snapshotter: overlayfs
node-name: s1
cluster-cidr: "10.42.0.0/16"
service-cidr: "10.43.0.0/16"
ingress-controller: "ingress-nginx"
"""


@pytest.mark.parametrize(("cni", "told"), [("cilium", None), ("canal", "config.yaml: cni canal, wanted cilium")])
def test_a_config_that_another_role_writes_stays_as_it_is(real, tmp_path, machine, cni, told):
    config = machine / "etc/rancher/rke2/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG_YAML % cni)
    variables = dict(SERVERS, rke2_root=str(machine), rke2_cni=["cilium"])
    code, calls, output = play(real, tmp_path, {"s1": {}}, [role("rke2")], variables, arguments=["--diff"])
    assert config.read_text() == CONFIG_YAML % cni and "hunter2" not in output
    if told:
        assert (code, "host_files" in names(calls)) == (2, False) and told in output, output
    else:
        assert (code, "host_files" in names(calls)) == (0, True), output


# --- cilium --------------------------------------------------------------------------------------------------------------------

HOSTS = {"s1": {}, "s2": {}, "n1": {}}
GROUPS = {"rke2_servers": ["s1", "s2"]}
MANIFEST = "/var/lib/rancher/rke2/server/manifests/rke2-hostprep-cilium.yaml"
OPTIONS = {"auto_direct_node_routes": True, "devices": ["bond0"]}
NEW = {"cilium_options": OPTIONS, "cilium_version": "1.19.601", "cilium_new_cluster": True}


def live(tmp_path, config, tree=None, nodes=(), **more):
    (tmp_path / "kubeconfig").write_text("{}")
    text = None if tree is None else yaml.safe_dump(tree)
    annotations = {"meta.helm.sh/release-name": "rke2-cilium"}
    agents = {
        "metadata": {"name": "cilium", "annotations": annotations},
        "spec": {
            "updateStrategy": {"type": more.get("strategy", "RollingUpdate")},
            "template": {"spec": {"containers": [{"name": "cilium-agent", "image": "x/cilium:v1.19.6"}]}},
        },
        "status": {"desiredNumberScheduled": 3, "updatedNumberScheduled": 3},
    }
    return {
        "gates": GATES,
        "fail": more.get("fail", {}),
        "api": {
            "DaemonSet": [more.get("agents", agents)],
            "ConfigMap": [{"data": config}],
            "HelmChartConfig": [] if text is None else [{"metadata": {}, "spec": {"valuesContent": text}}],
            "Node": list(nodes),
            "Pod": more.get("pods", []),
        },
    }


def written(calls):
    """[(path of the first file, values)] of what was written."""
    found = []
    for call in calls:
        if call["name"] == "host_files":
            first = call["params"]["files"][0]
            spec = yaml.safe_load(first["content"])["spec"]
            found.append((first["path"], yaml.safe_load(spec["valuesContent"])))
    return found


NODE_LABEL = {
    "ansible.builtin.debug": {"msg": "registers: {{ inventory_hostname }} {{ cilium_node.node_label | length }}"}
}


@pytest.fixture(scope="module")
def new_cluster(alone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("new")
    return play(alone, folder, HOSTS, [role("cilium"), NODE_LABEL], NEW, {"gates": GATES}, groups=GROUPS)


def test_cilium_on_a_new_cluster_writes_the_same_on_every_server(new_cluster):
    code, calls, output = new_cluster
    assert code == 0, output
    assert sorted(names(calls)) == ["dataplane_gate"] * 3 + ["host_files"] * 2
    one, other = (call["params"]["files"] for call in calls if call["name"] == "host_files")
    assert one == other
    assert [file["path"].rpartition("/")[2] for file in one] == [
        "rke2-hostprep-cilium.yaml",
        "rke2-hostprep-netkit.yaml",
        "rke2-hostprep-big-tcp-ipv4.yaml",
        "rke2-hostprep-big-tcp-ipv6.yaml",
    ]
    assert "no longer apply to it" in output, "the bypass of the host's netfilter is said"
    assert "MiB of the node's 262144 MiB" in output
    # what the first agents cannot know yet
    assert all("registers: " + text in output for text in ("s1 0", "s2 0", "n1 3")), output
    assert "the node registers without them" in output and "ciliumnodeconfigs` lists them" in output


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (dict(NEW, cilium_node_configs_by="api"), "read: cilium_new_cluster: true, cilium_node_configs_by: api;"),
        (
            dict(NEW, cilium_owner="helm", cilium_node_configs_by="manifest"),
            "read: cilium_owner: helm, cilium_node_configs_by: manifest;",
        ),
    ],
)
def test_cilium_lets_no_per_node_configuration_go_nowhere(alone, tmp_path, variables, words):
    code, calls, output = play(alone, tmp_path, HOSTS, [role("cilium")], variables, {"gates": GATES}, groups=GROUPS)
    assert (code, calls) == (2, []) and words in output, output


def test_cilium_says_that_helm_needs_an_api(alone, tmp_path):
    variables = dict(NEW, cilium_owner="helm")
    tasks = [role("cilium"), NODE_LABEL]
    code, calls, output = play(alone, tmp_path, HOSTS, tasks, variables, {"gates": GATES}, groups=GROUPS)
    assert (code, names(calls)) == (0, ["dataplane_gate"] * 3), output
    assert "nothing is written for a cluster that does not exist yet" in output
    assert all("registers: %s 0" % host in output for host in HOSTS), output


def reading(calls):
    """What a later look at a server finds."""
    files = next(call for call in calls if call["name"] == "host_files")["params"]["files"]
    return {
        "own_files": {
            file["path"]: {
                "owner": "cilium",
                "settled": True,
                "sha256": hashlib.sha256(file["content"].encode()).hexdigest(),
                "mode": 0o600,
                "uid": 0,
                "gid": 0,
            }
            for file in files
        }
    }


def test_cilium_runs_no_module_on_nodes_that_are_as_planned(alone, tmp_path, new_cluster):
    plan = {"gates": GATES, "dataplane": {"memory_mib": 1024, "possible_cpus": 4}, "irq": "0-1"}
    variables = dict(
        NEW,
        cilium_reading=reading(new_cluster[1]),
        host_plan_result={"plan": plan},
    )
    code, calls, output = play(alone, tmp_path, HOSTS, [role("cilium")], variables, {"gates": GATES}, groups=GROUPS)
    assert (code, names(calls), unchanged(output)) == (0, [], True), output


def test_cilium_writes_where_the_role_rke2_has_rkes_data_dir(alone, tmp_path):
    rendered = {"data_dir": "/srv/rke2", "same": {"cni": "cilium", "disable-kube-proxy": True}}
    tasks = [{"ansible.builtin.set_fact": {"rke2_rendered": rendered}}, role("cilium")]
    for more, folder in (
        ({}, "/srv/rke2"),
        ({"cilium_reading": {"base": "/var/lib/rancher/rke2", "own_files": {}}}, "/srv/rke2"),
        ({"rke2_hostprep_data_dir": "/opt/rke2"}, "/opt/rke2"),
    ):
        variables = dict(NEW, **more)
        code, calls, output = play(alone, tmp_path, HOSTS, tasks, variables, {"gates": GATES}, groups=GROUPS)
        assert code == 0, output
        assert {path for path, _values in written(calls)} == {folder + "/server/manifests/rke2-hostprep-cilium.yaml"}


def test_cilium_shows_the_devices_to_set_where_the_plans_know_the_uplinks(alone, tmp_path):
    plan = {
        "gates": GATES,
        "dataplane": {"memory_mib": 1024, "possible_cpus": 4, "uplinks": [{"name": "bond0", "nics": []}]},
    }
    tasks = [
        {"ansible.builtin.set_fact": {"host_plan_result": {"plan": plan}}, "when": "inventory_hostname in planned"},
        role("cilium"),
    ]
    for planned, words in (
        (list(HOSTS), "set devices: [bond0] in rke2_hostprep_cilium"),
        (["n1"], "name the uplinks in devices"),
    ):
        variables = dict(NEW, cilium_options={"auto_direct_node_routes": True}, planned=planned)
        code, _calls, output = play(alone, tmp_path, HOSTS, tasks, variables, {"gates": GATES}, groups=GROUPS)
        assert code == 0 and words in output, output


# cilium-config and the values with which nothing is left to do for the cluster
VALUES = {
    "routing-mode": "native",
    "auto-direct-node-routes": "true",
    "ipv4-native-routing-cidr": "10.42.0.0/16",
    "kube-proxy-replacement": "true",
    "enable-bpf-masquerade": "true",
    "enable-bpf-clock-probe": "true",
    "devices": "bond0",
}
PROFILE = cilium_values.profile(OPTIONS)
DEFAULTS = {"routing-mode": "tunnel", "kube-proxy-replacement": "false", "enable-ipv4": "true", "ipam": "kubernetes"}


def on_cluster(stubbed, tmp_path, world, arguments=(), tasks=None, **variables):
    given = {
        "cilium_options": OPTIONS,
        "cilium_kubeconfig": str(tmp_path / "kubeconfig"),
        "cilium_api_delay": 0,
        "cilium_api_timeout": 600,
        **variables,
    }
    return play(stubbed, tmp_path, HOSTS, tasks or [role("cilium")], given, world, arguments, GROUPS)


def test_cilium_refuses_a_change_of_the_whole_cluster_and_then_does_it_in_two_phases(stubbed, tmp_path):
    world = live(tmp_path, DEFAULTS, {"hubble": {"enabled": True, "tls": {"ca": {"key": "hunter2"}}}})
    code, calls, output = on_cluster(stubbed, tmp_path, world)
    assert code == 2 and "cilium_cluster_change: true" in output, output
    assert set(names(calls)) == {"k8s_info"}
    world["after"] = live(tmp_path, VALUES, strategy="OnDelete")["api"]
    code, calls, output = on_cluster(stubbed, tmp_path, world, cilium_cluster_change=True)
    assert code == 0, output
    phases = written(calls)
    assert [path for path, _values in phases] == [MANIFEST] * 4
    first, second = phases[0][1], phases[2][1]
    assert first == {
        "hubble": world_values(world)["hubble"],
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
    }
    assert second["routingMode"] == "native" and second["updateStrategy"]["type"] == "OnDelete"
    assert phases[1][1] == first and phases[3][1] == second
    assert "hunter2" not in output, "someone's secret is in no output"
    gates = [call["params"] for call in calls if call["name"] == "dataplane_gate"]
    assert len(gates) == len(HOSTS) and "hunter2" not in json.dumps(gates), (
        "nor in a node's log, by a module's arguments"
    )
    assert names(calls).count("k8s") == 1
    api_calls = [name for name in names(calls) if name.startswith("k8s")]
    assert len(api_calls) == 7, "four that read, two that wait, one that applies"


def test_cilium_says_what_rke2_did_not_apply(stubbed, tmp_path):
    world = live(tmp_path, dict(VALUES, devices="bond9"), PROFILE)
    code, calls, output = on_cluster(stubbed, tmp_path, world, cilium_apply_timeout=10)
    assert (code, names(calls).count("host_files"), names(calls).count("k8s")) == (2, 2, 0), output
    assert "RKE2 did not apply the manifest of the phase values" in output and "devices: bond9, wanted bond0" in output


def world_values(world):
    return yaml.safe_load(world["api"]["HelmChartConfig"][0]["spec"]["valuesContent"])


def test_cilium_says_in_check_mode_what_it_would_do(stubbed, tmp_path):
    world = live(tmp_path, DEFAULTS)
    code, calls, output = on_cluster(stubbed, tmp_path, world, ["--check"], cilium_cluster_change=True)
    assert code == 0, output
    assert all(call["check"] for call in calls)
    assert len(written(calls)) == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agents": {"metadata": {"name": "rke2-canal"}}}, "the cluster runs another network plugin"),
        ({"fail": {"DaemonSet": {"msg": "Failed", "status": 403, "reason": "Forbidden"}}}, "has no right to that"),
        ({"fail": {"ConfigMap": {"msg": "HTTPSConnectionPool: Max retries exceeded, Bearer hunter2"}}}, "cannot be reached"),
        ({"fail": {"HelmChartConfig": {"msg": "Failed to retrieve: 401 Unauthorized token: hunter2"}}}, "credentials"),
        ({"fail": {"Node": {"msg": "etcdserver: request timed out", "status": 500}}}, "failed"),
    ],
)  # fmt: skip
def test_cilium_stops_in_one_sentence_before_anything_is_written(stubbed, tmp_path, changes, words):
    code, calls, output = on_cluster(stubbed, tmp_path, live(tmp_path, DEFAULTS, **changes), cilium_api_retries=1)
    assert code == 2 and set(names(calls)) == {"k8s_info"}
    fatal = [line for line in output.splitlines() if line.startswith("fatal:")]
    assert words in fatal[-1] and "what to do" in fatal[-1] and "Traceback" not in output, output


@pytest.mark.parametrize(
    ("variables", "arguments", "words"),
    [
        ({"cilium_kubeconfig": ""}, [], "no kubeconfig is given"),
        ({"cilium_kubeconfig": "/nonexistent"}, [], "cannot be read on the controller"),
        ({"cilium_server_group": "mispelt"}, [], "group mispelt with no host"),
        ({}, ["--limit", "s1,n1"], "in this play s1"),
    ],
)
def test_cilium_asks_for_what_it_needs_first(stubbed, tmp_path, variables, arguments, words):
    code, calls, output = on_cluster(stubbed, tmp_path, live(tmp_path, DEFAULTS), arguments, **variables)
    assert (code, calls) == (2, []) and words in output, output


def test_cilium_writes_on_no_server_where_one_cannot_get_it(stubbed, tmp_path):
    settings = "{{ {'nic': 1} if inventory_hostname == 's2' else {} }}"
    code, calls, output = on_cluster(
        stubbed, tmp_path, live(tmp_path, VALUES), cilium_node_settings=settings, cilium_cluster_change=True
    )
    assert code == 2 and "a node class has no such setting" in output and "in this play s1" in output, output
    assert set(names(calls)) == {"k8s_info", "dataplane_gate"}, "nothing is written"


def test_cilium_applies_the_per_node_configuration_after_helm_has_brought_its_kind(stubbed, tmp_path):
    early = {"metadata": {"name": "n1", "labels": {"rke2-hostprep.lo0/netkit": "true"}}}
    world = live(tmp_path, {}, agents={"metadata": {"name": "kube-proxy"}}, nodes=[early])
    code, calls, output = on_cluster(
        stubbed, tmp_path, world, tasks=[role("cilium"), NODE_LABEL], cilium_owner="helm", cilium_version="1.19.6"
    )
    assert code == 0, output
    wrote = [call["name"] for call in calls if call["name"] in ("helm", "k8s") and not call["check"]]
    assert wrote == ["helm", "k8s"]
    assert all("registers: %s 0" % host in output for host in HOSTS), output
    assert "the node registers without them" in output
    assert "nodes have labels of the data path already" in output and "read: n1;" in output


def test_cilium_says_what_the_gate_answers(stubbed, tmp_path):
    young = {"code": "kernel_below_rule", "message": "m", "cure": "c", "read": "kernel 6.1.0, kernel_min 6.8"}
    world = live(tmp_path, VALUES, PROFILE)
    world["gates"] = dict(GATES, netkit={"eligible": False, "reasons": [young]})
    code, _calls, output = on_cluster(stubbed, tmp_path, world)
    assert code == 0 and "netkit: no; kernel_below_rule (kernel 6.1.0, kernel_min 6.8)" in output, output
    assert "big_tcp_ipv4: yes" in output


def test_the_kubeconfig_of_the_inventory_reaches_every_call(stubbed, tmp_path):
    world = live(tmp_path, VALUES, PROFILE, nodes=[CORDONED])
    kubeconfig = str(tmp_path / "kubeconfig")
    hosts = {host: {"rke2_hostprep_kubeconfig": kubeconfig} for host in HOSTS}
    code, calls, output = play(
        stubbed, tmp_path, hosts, LABEL, {"cilium_options": OPTIONS}, world, ["--limit", "n1"], GROUPS
    )
    assert code == 0, output
    api_calls = [call["params"] for call in calls if call["name"].startswith("k8s")]
    assert {call["name"] for call in calls} >= {"k8s_info", "k8s", "k8s_json_patch"}
    assert {params.get("kubeconfig") for params in api_calls} == {kubeconfig}


def tasks_of(tasks, above=None):
    """[(module, its arguments, the task with what its blocks give it)]."""
    for task in tasks:
        whole = {**(above or {}), **task}
        for part in ("block", "rescue", "always"):
            inherited = {key: value for key, value in whole.items() if key in ("delegate_to", "become")}
            yield from tasks_of(task.get(part) or [], inherited)
        for module, arguments in task.items():
            if module.startswith("kubernetes."):
                yield module, arguments, whole


@pytest.mark.parametrize("file", sorted(path.name for path in (TOP / "roles/cilium/tasks").glob("*.yml")))
def test_every_call_of_the_api_is_made_on_the_controller(file):
    text = (TOP / "roles/cilium/tasks" / file).read_text(encoding="utf-8")
    found = list(tasks_of(yaml.safe_load(text)))
    assert len(found) == text.count("kubernetes.core."), "none is missed"
    for module, arguments, task in found:
        assert task.get("delegate_to") == "localhost" and task.get("become") is False, (module, task["name"])
        assert arguments["kubeconfig"] == "{{ cilium_kubeconfig }}", (module, task["name"])


LABEL = [role("cilium"), role("cilium", tasks_from="label")]
CORDONED = {"metadata": {"name": "n1", "labels": {}}, "spec": {"unschedulable": True}}
POD = {"metadata": {"name": "p", "namespace": "default"}, "status": {"phase": "Running"}, "spec": {}}


@pytest.mark.parametrize(
    ("node", "pods", "refused"),
    [
        (CORDONED, [], None),
        (CORDONED, [POD], "it is not drained"),
        (dict(CORDONED, spec={}), [], "it is not drained"),
    ],
)
def test_cilium_labels_a_drained_node_alone(stubbed, tmp_path, node, pods, refused):
    world = live(tmp_path, VALUES, PROFILE, nodes=[node], pods=pods)
    code, calls, output = on_cluster(stubbed, tmp_path, world, ["--limit", "n1"], LABEL)
    patches = [call["params"] for call in calls if call["name"] == "k8s_json_patch"]
    assert "another data path or other settings" in output, "a node whose labels are to change is reported"
    if refused:
        assert code == 2 and refused in output and not patches, output
    else:
        assert code == 0, output
        (patch,) = patches
        assert patch["name"] == "n1" and {step["op"] for step in patch["patch"]} == {"add"}
        assert len(patch["patch"]) == 3


@pytest.mark.parametrize("open_gates", [True, False])
def test_a_new_node_brings_its_labels_along(stubbed, tmp_path, machine, open_gates):
    """As docs/cilium.md has it: RKE2 registers the node with the labels that the gate allows, and with no other."""
    gates = {gate: {"eligible": open_gates, "reasons": []} for gate in GATES}
    world = dict(live(tmp_path, VALUES, PROFILE, strategy="OnDelete"), gates=gates)
    rke2 = {**role("rke2"), "vars": {"rke2_config": {"node-label": "{{ cilium_node.node_label }}"}}}
    variables = dict(AGENT, rke2_root=str(machine), cilium_version="1.19.601")
    code, calls, output = on_cluster(stubbed, tmp_path, world, ("--limit", "n1"), [role("cilium"), rke2], **variables)
    assert code == 0, output
    files = [call["params"]["files"] for call in calls if call["name"] == "host_files"][-1]
    (config,) = [file["content"] for file in files if file["path"].endswith("/90-hostprep.yaml")]
    wanted = sorted("%s=true" % label for label in cilium_objects.GATE_LABELS.values()) if open_gates else []
    assert sorted(yaml.safe_load(config)["node-label+"]) == wanted


def failing(status, **more):
    """As kubernetes.core tells of a call; with a secret in it."""
    reason = {409: "Conflict", 429: "Too Many Requests", 500: "InternalError", 503: "ServiceUnavailable"}[status]
    body = '{"kind":"Status","message":"said Bearer hunter2 by the API server","code":%d}' % status
    return {
        "msg": "Exception '%d\nReason: %s\nHTTP response body: b'%s'" % (status, reason, body),
        "status": status,
        **more,
    }


# Where a call fails: how it is set up, the call, and what was written before
PLACES = {
    "read": ({"Node": {}}, ("k8s_info", "Node"), "nothing;"),
    "asked": ({"k8s": {}}, ("k8s", None), "nothing;"),
    "apply": (
        {"k8s": {"check": False}},
        ("k8s", None),
        "the values, on s1, s2, and it may be some of these objects;",
    ),
    "patch": (
        {"k8s_json_patch": {}},
        ("k8s_json_patch", "Node"),
        "the values and the CiliumNodeConfig objects; the node's labels are as they were;",
    ),
}


def failed(stubbed, tmp_path, place, status, **more):
    """(calls that failed, output); one value differs, in the way that nodes take for themselves."""
    where, (name, kind), _words = PLACES[place]
    world = live(
        tmp_path,
        dict(VALUES, devices="bond9"),
        dict(PROFILE, devices=["bond9"]),
        nodes=[dict(CORDONED, metadata={"name": each, "labels": {}}) for each in HOSTS],
        fail={key: failing(status, **each, **more) for key, each in where.items()},
    )
    world["api"]["HelmChartConfig"][0]["metadata"]["annotations"] = {
        "rke2-hostprep.lo0/owned-values": json.dumps([path for path, _value in cilium_values.leaves(PROFILE)])
    }
    world["after"] = {"ConfigMap": [{"data": VALUES}]}
    tasks = LABEL if place == "patch" else None
    code, calls, output = on_cluster(stubbed, tmp_path, world, tasks=tasks, cilium_api_retries=2)
    tried = [call for call in calls if (call["name"], call["params"].get("kind")) == (name, kind)]
    return code, [call for call in tried if where.get("k8s", {}).get("check", True) or not call["check"]], output


@pytest.mark.parametrize("status", [409, 429, 503])
@pytest.mark.parametrize("place", PLACES)
def test_cilium_tries_again_and_says_what_it_has_written(stubbed, tmp_path, place, status):
    code, tried, output = failed(stubbed, tmp_path, place, status)
    hosts = len(HOSTS) if place == "patch" else 1
    assert code == 2 and len(tried) == 3 * hosts, output
    fatal = [line for line in output.splitlines() if line.startswith("fatal:")]
    assert "written before: " + PLACES[place][2] in fatal[-1] and "what to do: " in fatal[-1], output
    assert {409: "someone else changed", 429: "too busy", 503: "is not ready"}[status] in fatal[-1]
    assert "hunter2" not in fatal[-1] and "Traceback" not in output


@pytest.mark.parametrize("place", PLACES)
def test_cilium_goes_on_where_trying_again_helps(stubbed, tmp_path, place):
    code, tried, output = failed(stubbed, tmp_path, place, 503, times=1)
    assert code == 0 and len(tried) > 1, output


@pytest.mark.parametrize("place", PLACES)
def test_cilium_does_not_repeat_what_the_api_does_not_ask_for(stubbed, tmp_path, place):
    code, tried, output = failed(stubbed, tmp_path, place, 500)
    assert code == 2 and len(tried) == (len(HOSTS) if place == "patch" else 1), output


def test_what_was_there_before_is_not_said_to_be_written(stubbed, tmp_path):
    nodes = [dict(CORDONED, metadata={"name": each, "labels": {}}) for each in HOSTS]
    world = live(tmp_path, VALUES, PROFILE, nodes, strategy="OnDelete", fail={"k8s_json_patch": failing(500)})
    world["applies"] = False
    world["api"]["HelmChartConfig"][0]["metadata"]["annotations"] = {
        "rke2-hostprep.lo0/owned-values": json.dumps([path for path, _value in cilium_values.leaves(PROFILE)])
    }
    code, calls, output = on_cluster(stubbed, tmp_path, world, tasks=LABEL)
    assert code == 2 and "k8s_json_patch" in names(calls), output
    fatal = [line for line in output.splitlines() if line.startswith("fatal:")]
    assert "written before: nothing; the node's labels are as they were;" in fatal[-1], output
