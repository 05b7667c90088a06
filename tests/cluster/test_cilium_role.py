# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role cilium with a Helm release of one's own, as ansible-playbook runs it with the real modules, a real Helm and a real API server.

The chart is a small one of the tests: it writes every value that the role compares into cilium-config, as Cilium's does, and its agents
run on no node. The tests build on each other, as runs on one cluster do.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import binaries, common, plane as control_plane
from cluster.command import Command

TOP = common.TOP
sys.path.insert(0, str(TOP / "tools"))

import workspace  # noqa: E402 - tools/ is on the path now

sys.path.insert(0, str(workspace.link()))

cilium_change = importlib.import_module(
    "ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.cilium_change"
)

cluster = Command("ciliumtest")
STATE = common.STATES / cluster.lab
pytestmark = pytest.mark.cluster

SECRET = "hunter2-of-hubble"
# Values in the order of Cilium's own chart and of cilium-config; the table of what is compared with what is the model's
CHART = """\
apiVersion: v2
name: cilium
version: %s
"""
CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: cilium-config, namespace: {{ .Release.Namespace }}}
data:
"""
AGENTS = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  updateStrategy: {{ .Values.updateStrategy | toJson }}
  template:
    metadata:
      labels: {k8s-app: cilium}
      annotations: {of-values: {{ .Values.podAnnotations | toJson | quote }}}
    spec:
      nodeSelector: {no-node: has-this}
      containers:
        - {name: cilium-agent, image: "cilium/cilium:v{{ .Chart.Version }}"}
---
apiVersion: v1
kind: Secret
metadata: {name: hubble-server-certs, namespace: {{ .Release.Namespace }}}
stringData: {tls.key: {{ .Values.hubble.tls.server.key | quote }}}
"""
# What a chart can do wrong: its template ends in words, and what it renders is not taken
WRONG = """\
{{- if eq .Values.labTest "template" }}{{ fail (printf "no server takes the key %s" .Values.hubble.tls.server.key) }}{{ end }}
{{- if eq .Values.labTest "object" }}
apiVersion: v1
kind: Service
metadata: {name: refused, namespace: {{ .Release.Namespace }}}
spec: {ports: [{name: {{ .Values.hubble.tls.server.key | quote }}, port: 99999}]}
{{- end }}
"""
DEFAULTS = """\
updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}
podAnnotations: {}
hubble: {tls: {server: {key: ""}}}
labTest: ""
"""


def make_chart(folder, version):
    templates = folder / "templates"
    templates.mkdir(parents=True)
    (folder / "Chart.yaml").write_text(CHART % version)
    (folder / "values.yaml").write_text(DEFAULTS)
    lines = []
    for path, (key, absent, _scope) in cilium_change.CONFIG.items():
        steps = " ".join(f'"{step}"' for step in path.split("."))
        value = f'(dig {steps} "{absent}" $values)'
        text = f'{value} | join " "' if path == "devices" else f"{value} | toString"
        lines.append(f"  {key}: {{{{ {text} | quote }}}}\n")
    start = "{{- $values := .Values | toJson | fromJson }}\n"
    (templates / "config.yaml").write_text(start + CONFIG_MAP + "".join(lines))
    (templates / "agents.yaml").write_text(AGENTS)
    (templates / "wrong.yaml").write_text(WRONG)
    return folder


class Site:
    """A cluster with a node, Helm, and a folder with the chart and an inventory."""

    def __init__(self, folder, environment):
        self.folder, self.environment = folder, environment
        self.helm = Path(cluster("helm").stdout.strip())
        self.access = cluster("kubeconfig").stdout.strip()
        self.command = [binaries.need(("kubectl",))["kubectl"], f"--kubeconfig={self.access}"]
        self.chart = make_chart(folder / "chart", "1.19.6")
        self.options, self.values = {"auto_direct_node_routes": True, "devices": ["bond0", "bond1"]}, {}
        self.audit = STATE / "logs" / "audit.log"
        hosts = {"hollow-001": {}}
        (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
        book = {
            "hosts": "all",
            "connection": "local",
            "gather_facts": False,
            "tasks": [{"ansible.builtin.include_role": {"name": "lo0.rke2_hostprep.cilium"}}],
        }
        (folder / "play.yml").write_text(json.dumps([book]))

    def ansible(self, *arguments, environment=None, **variables):
        """Runs the role; (exit code, output). The gate judges nothing: that is of other tests."""
        given = {
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "cilium_owner": "helm",
            "cilium_helm_chart": str(self.chart),
            "cilium_kubeconfig": self.access,
            "cilium_options": self.options,
            "cilium_values": self.values,
            "cilium_extra_keys": ["labTest"],
            "cilium_api_delay": 1,
            "cilium_api_timeout": 600,  # on a busy machine
            "host_plan_result": {"plan": {"gates": {}, "dataplane": {}}},
            **variables,
        }
        (self.folder / "variables.json").write_text(json.dumps(given))
        words = ["ansible-playbook", "-i", self.folder / "hosts.yml", "-e", f"@{self.folder / 'variables.json'}"]
        path = f"{self.helm.parent}{os.pathsep}{self.environment['PATH']}"
        done = subprocess.run(
            [*words, *arguments, self.folder / "play.yml"],
            env={**self.environment, "PATH": path, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        assert SECRET not in output, "a secret is in the output"
        return done.returncode, output

    def run(self, *arguments, **variables):
        code, output = self.ansible(*arguments, **variables)
        assert code == 0, output
        return output

    def refused(self, *words, arguments=(), **more):
        """A run that must fail on one sentence, with these words in it, and write nothing; the output."""
        before, revisions = self.writes(), self.revisions()
        code, output = self.ansible(*arguments, **more)
        output = " ".join(output.split())  # Ansible breaks long lines
        assert code == 2 and all(word in output for word in words), output
        assert "Traceback" not in output, output
        assert (self.writes(), self.revisions()) == (before, revisions), "it wrote"
        return output

    def writes(self):
        """How many writes of a person the API server has taken so far; dry runs are none."""
        found = 0
        for line in self.audit.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["verb"] in ("create", "update", "patch", "delete") and "dryRun=All" not in event["requestURI"]:
                found += event.get("responseStatus", {}).get("code", 0) < 300
        return found

    def releases(self):
        """What Helm keeps of each revision, oldest first: [(Secret, release)]."""
        kept = self.get("secrets", "--namespace=kube-system", "--selector=owner=helm,name=cilium")["items"]
        found = []
        for secret in kept:
            packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
            found.append((secret, json.loads(gzip.decompress(packed))))
        return sorted(found, key=lambda one: one[1]["version"])

    def revisions(self):
        """[(status, values)] of each revision."""
        return [(one["info"]["status"], one.get("config") or {}) for _secret, one in self.releases()]

    def kubectl(self, *words):
        return common.run([*self.command, *words], what="The test's own call")

    def get(self, *words):
        return json.loads(self.kubectl("get", "--output=json", *words))

    def config(self):
        return self.get("configmap", "cilium-config", "--namespace=kube-system")["data"]

    def agents(self):
        return self.get("daemonset", "cilium", "--namespace=kube-system")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not (common.SHARED / "crds").is_dir():
        pytest.skip(f"Cilium's kinds are not at {common.SHARED}/crds (HOSTPREP_SHARED says where they are).")
    environment = workspace.environment(workspace.test_environment())
    cluster("build", *control_plane.ORDER, "kubectl", "hollow")
    cluster("clean")
    cluster("up")
    cluster("hollow", "1")
    yield Site(tmp_path_factory.mktemp("site"), environment)
    cluster("clean")


def unchanged(output):
    return "changed=0" in output and "failed=0" in output


VERSION = {"cilium_version": "1.19.6"}
CONFIGS = ["rke2-hostprep-big-tcp-ipv4", "rke2-hostprep-big-tcp-ipv6", "rke2-hostprep-netkit"]
ON_DELETE = {"type": "OnDelete"}
KEY = {"hubble": {"tls": {"server": {"key": SECRET}}}}  # someone's own value that is a secret


def test_without_helm_nothing_is_written(site):
    folder = site.environment["PATH"].split(os.pathsep)[0]
    site.refused(
        "there is no Helm on the controller's PATH", environment={"PATH": f"{folder}:/usr/bin:/bin"}, **VERSION
    )


def test_without_the_collection_nothing_is_written(site):
    alone = {"ANSIBLE_COLLECTIONS_PATH": str(workspace.link())}
    output = site.refused("need kubernetes.core on the controller", environment=alone, **VERSION)
    assert "could not" not in output.lower() and "couldn't" not in output


def test_what_is_no_chart(site):
    site.refused("reading the chart /no/chart failed", cilium_helm_chart="/no/chart", **VERSION)
    assert site.revisions() == []


def test_a_reader_is_refused_first(site):
    reader = cluster("kubeconfig", "--user", "reader").stdout.strip()
    site.refused("no right to that", 'cannot list resource "secrets"', cilium_kubeconfig=reader, **VERSION)


def test_check_mode_installs_nothing(site):
    # as on a new cluster, where Cilium's operator has not made them yet
    kinds = site.get("customresourcedefinition", "ciliumnodeconfigs.cilium.io")
    site.kubectl("delete", "customresourcedefinition", "ciliumnodeconfigs.cilium.io")
    written = site.writes()
    try:
        output = site.run("--check", "--diff", **VERSION)
        assert "TASK [lo0.rke2_hostprep.cilium : Upgrade the Helm release]" in output and "changed=0" not in output
        assert (site.revisions(), site.writes()) == ([], written)
    finally:
        del kinds["status"], kinds["metadata"]
        kinds["metadata"] = {"name": "ciliumnodeconfigs.cilium.io"}
        (site.folder / "kinds.json").write_text(json.dumps(kinds))
        site.kubectl("apply", "--server-side", "--filename", str(site.folder / "kinds.json"))
        cluster(
            "kubectl", "wait", "--for=condition=Established", "customresourcedefinition/ciliumnodeconfigs.cilium.io"
        )


def test_it_is_installed_once(site):
    site.run(**VERSION)
    ((status, values),) = site.revisions()
    assert status == "deployed" and values["devices"] == ["bond0", "bond1"]
    assert site.config()["routing-mode"] == "native" and site.config()["devices"] == "bond0 bond1"
    configs = site.get("ciliumnodeconfigs", "--namespace=kube-system")["items"]
    assert sorted(one["metadata"]["name"] for one in configs) == CONFIGS
    written = site.writes()
    output = site.run()
    assert unchanged(output) and site.writes() == written and len(site.revisions()) == 1, output


def test_what_rke2_installs_is_refused_beside_it_and_the_other_way_round(site):
    (site.folder / "servers.yml").write_text(json.dumps({"rke2_servers": {"hosts": {"hollow-001": {}}}}))
    site.refused(
        "Cilium was installed by another Helm release",
        "release cilium in namespace kube-system",
        "set cilium_owner: helm",
        arguments=("-i", str(site.folder / "servers.yml")),
        cilium_owner="rke2",
    )
    annotate = ("annotate", "--overwrite", "--namespace=kube-system", "daemonset", "cilium")
    site.kubectl(*annotate, "meta.helm.sh/release-name=rke2-cilium")
    site.refused("release rke2-cilium in namespace kube-system", "set cilium_owner: rke2")
    site.kubectl(*annotate, "meta.helm.sh/release-name=cilium")


def test_what_a_node_takes_at_its_agents_own_restart_needs_no_permission(site):
    options = {"auto_direct_node_routes": True, "devices": ["bond0"]}
    output = site.run(cilium_options=options)
    assert "devices: bond0 bond1, wanted bond0 (each agent takes it at its own restart)" in output
    assert len(site.revisions()) == 2 and site.config()["devices"] == "bond0"
    assert site.agents()["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    site.options = options


def test_a_change_of_the_whole_cluster_goes_in_two_phases(site):
    change = {"cilium_values": {"MTU": 8950, "podAnnotations": {"a": "b"}, **KEY}}
    site.refused(
        *("MTU: 0, wanted 8950", "podAnnotations.a: not set, wanted b", "cilium_cluster_change: true"),
        arguments=("-vvv", "--diff"),
        **change,
    )
    before = site.revisions()[-1][1]
    generation = site.agents()["metadata"]["generation"]
    output = site.run("-vvv", "--diff", cilium_cluster_change=True, **change)
    assert "hubble.tls.server.key: not set, wanted (left out)" in output
    first, second = site.revisions()[-2:]
    strategy = first[1].pop("updateStrategy")
    assert first == ("superseded", before) and strategy["type"] == "OnDelete", "the first phase keeps the values"
    assert second[0] == "deployed" and second[1]["MTU"] == 8950 and second[1]["updateStrategy"] == strategy
    assert site.config()["mtu"] == "8950" and len(site.revisions()) == 4
    agents = site.agents()
    assert agents["spec"]["updateStrategy"] == ON_DELETE and agents["metadata"]["generation"] == generation + 2
    site.values = change["cilium_values"]


def test_on_delete_goes_once_all_agents_are_new(site):
    output = site.run()
    assert "updateStrategy" in output and len(site.revisions()) == 5
    assert site.agents()["spec"]["updateStrategy"]["type"] == "RollingUpdate"


def test_who_may_not_bring_the_per_node_configuration_is_refused_before_helm(site):
    everything_else = [
        {"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["cilium.io"], "resources": ["*"], "verbs": ["get", "list"]},
    ]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "lab:helmsman"}}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "helmsman"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lab:helmsman"}
    items = [
        {**kind, "kind": "ClusterRole", "rules": everything_else},
        {**kind, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [user]},
    ]
    (site.folder / "rights.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    site.kubectl("apply", "--filename", str(site.folder / "rights.json"))
    site.kubectl("delete", "ciliumnodeconfigs", "--namespace=kube-system", "--all")
    site.refused(
        *("applying the CiliumNodeConfig objects failed", "no right to that"),
        cilium_kubeconfig=cluster("kubeconfig", "--user", "helmsman").stdout.strip(),
        cilium_options={**site.options, "devices": ["bond2"]},
    )


def test_another_chart_is_a_change_of_the_whole_cluster(site):
    newer = make_chart(site.folder / "newer", "1.20.0")
    told = "cilium_helm_chart: cilium-1.19.6, wanted another chart"
    site.refused(told, "cilium_cluster_change: true", cilium_helm_chart=str(newer))


def test_a_chart_that_does_not_render_changes_nothing(site):
    wrong = {"cilium_values": {**site.values, "labTest": "template"}, "cilium_cluster_change": True}
    before = site.config(), site.agents()["spec"]["template"], site.revisions()
    code, output = site.ansible("-vvv", "--diff", **wrong)
    output = " ".join(output.split())
    assert code == 2 and "upgrading the Helm release cilium failed: the chart does not render" in output, output
    assert "no server takes the key (left out)" in output and output.count("[ERROR]") == 1, output
    assert (site.config(), site.agents()["spec"]["template"]) == before[:2]
    # the first phase was written, which no agent feels
    assert [status for status, _values in site.revisions()[len(before[2]) :]] == ["deployed"]


def test_what_a_refused_object_leaves_needs_permission(site):
    wrong = {"cilium_values": {**site.values, "labTest": "object"}, "cilium_cluster_change": True}
    code, output = site.ansible("-vvv", "--diff", **wrong)
    output = " ".join(output.split())
    assert code == 2 and "upgrading the Helm release cilium failed: the API server does not accept" in output, output
    assert 'Service "refused" is invalid' in output and output.count("[ERROR]") == 1, output
    assert site.revisions()[-1][0] == "failed" and site.agents()["spec"]["updateStrategy"] == ON_DELETE
    site.refused("Helm release: failed, wanted deployed", "cilium_cluster_change: true")
    site.run(cilium_cluster_change=True)
    assert site.revisions()[-1] == ("deployed", {**site.revisions()[-1][1], **KEY})
    assert site.agents()["spec"]["updateStrategy"] == ON_DELETE


def test_an_upgrade_that_was_ended_in_the_middle(site):
    secret, release = site.releases()[-1]
    release["info"]["status"] = secret["metadata"]["labels"]["status"] = "pending-upgrade"
    packed = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    secret["data"]["release"] = base64.b64encode(packed).decode()
    (site.folder / "pending.json").write_text(json.dumps(secret))
    site.kubectl("replace", "--filename", str(site.folder / "pending.json"))
    site.refused("another run of Helm changes the release now, or was ended in the middle", cilium_cluster_change=True)
