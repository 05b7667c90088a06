# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the control plane of the test cluster is told, and that it listens nowhere but where it should."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from cluster import binaries, plane
from cluster.common import HERE, ClusterError
from cluster.fleet import hollow_names, readiness, why_not_ready
from cluster.pki import CLUSTER, Pki, settings

OPENSSL = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed.")


def test_flags():
    assert plane.flags({"a": True, "b": ["x", "y"], "c": 3, "d": Path("/e")}) == [
        "--a=true",
        "--b=x,y",
        "--c=3",
        "--d=/e",
    ]


def told(settings):
    programs = {name: Path("/p") / name for name in binaries.CONTROL_PLANE}
    return plane.commands(settings, Path("/s"), Pki(Path("/s/pki")), programs)


@pytest.mark.parametrize(("netns", "listens"), [(None, "127.0.0.1"), ("lab", "0.0.0.0")])
def test_only_the_api_server_is_reached_from_the_lab(netns, listens):
    commands = told(plane.Settings(netns=netns, address="192.0.2.1", port=40000))
    assert list(commands) == list(plane.ORDER)
    where = {}
    for name, argv in commands.items():
        text = " ".join(argv)
        where[name] = re.findall(r"--bind-address=(\S+)", text) + re.findall(r"--listen-\S+-urls=https://(\S+):", text)
    assert where.pop("kube-apiserver") == [listens]
    assert all(addresses and set(addresses) == {"127.0.0.1"} for addresses in where.values()) and len(where) == 3
    ports = re.findall(
        r"(?:--secure-port=|--listen-\w+-urls=https://127\.0\.0\.1:)(\d+)", " ".join(sum(commands.values(), []))
    )
    assert len(ports) == len(set(ports)) == 5


def test_access_is_as_on_a_real_cluster():
    commands = told(plane.Settings())
    apiserver = commands["kube-apiserver"]
    assert "--authorization-mode=Node,RBAC" in apiserver and "--enable-admission-plugins=NodeRestriction" in apiserver
    assert not any("http://" in flag for argv in commands.values() for flag in argv)
    assert "--client-cert-auth=true" in commands["etcd"]


def test_settings_name_their_namespace():
    assert plane.Settings().enter == []
    assert plane.Settings(netns="lab").enter == ["ip", "netns", "exec", "lab"]
    assert plane.Settings(port=1000).url("10.0.2.2") == "https://10.0.2.2:1000"


def test_kubeconfig_carries_its_certificates():
    read = json.loads(plane.kubeconfig("https://x:1", b"authority", b"certificate", b"key", "reader"))
    assert base64.b64decode(read["users"][0]["user"]["client-key-data"]) == b"key"
    assert base64.b64decode(read["clusters"][0]["cluster"]["certificate-authority-data"]) == b"authority"
    assert read["contexts"][0]["name"] == read["current-context"]


@OPENSSL
def test_files_with_keys_are_their_owners_alone(tmp_path):
    here = plane.Plane(tmp_path)
    here.pki.authority(CLUSTER)
    made = here.user("ci:reader", ("auditors",))
    assert made.stat().st_mode & 0o077 == 0
    assert here.pki.key(CLUSTER).stat().st_mode & 0o077 == 0


def test_a_port_that_is_taken_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(plane, "port_owner", lambda port, enter: "nginx, process 12" if port == 26444 else None)
    with pytest.raises(ClusterError, match="Port 26444, which etcd would listen on, is taken by nginx, process 12"):
        plane.Plane(tmp_path).check_ports()


def test_manifests_name_no_one_twice():
    yaml = pytest.importorskip("yaml", reason="the manifests are YAML")
    items = yaml.safe_load((HERE / "manifests" / "access.yaml").read_text(encoding="utf-8"))["items"]
    named = {(item["kind"], item["metadata"]["name"]) for item in items}
    assert len(named) == len(items) > 0


@pytest.mark.parametrize(
    ("conditions", "answer"),
    [
        ([], (False, "its kubelet has reported nothing yet")),
        (
            [{"type": "Ready", "status": "False", "message": "cni plugin not initialized"}],
            (False, "cni plugin not initialized"),
        ),
        ([{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}], (True, "")),
        (
            [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}],
            (False, "Kubelet stopped posting"),
        ),
    ],
)
def test_readiness(conditions, answer):
    assert readiness({"status": {"conditions": conditions}}) == answer


def test_a_report_from_before_the_restart_does_not_count(monkeypatch, tmp_path):
    def told(time):
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": time}
        node = {"metadata": {"name": "new"}, "status": {"conditions": [ready]}}
        monkeypatch.setattr(plane.Plane, "get", lambda *_words, **_more: {"items": [node]})
        return why_not_ready(plane.Plane(tmp_path), "new", since="2026-11-30T12:00:00Z")

    for old in (None, "2026-11-30T11:59:59Z", "2026-11-30T12:00:00Z"):
        assert "has not reported since it was started" in told(old)
    assert told("2026-11-30T12:00:01Z") is None


@pytest.mark.parametrize("text", ["0", "65532", "70000", "-1", "abc", "", "1e3", "\u0663"])
def test_ports_that_are_none(text, monkeypatch):
    with pytest.raises(ValueError, match="allowed are 1 to 65531"):
        plane.port_number(text)
    monkeypatch.setenv(plane.PORT_VARIABLE, text)
    if text:
        with pytest.raises(ClusterError, match="^HOSTPREP_CLUSTER_PORT: .* is no port .*allowed are"):
            plane.default_port("lab")


def test_every_lab_has_a_port_of_its_own(monkeypatch):
    monkeypatch.delenv(plane.PORT_VARIABLE, raising=False)
    assert plane.default_port("lab") == 26443
    assert plane.default_port("gate") == plane.default_port("gate")
    ports = {plane.default_port(name) for name in ("lab", "gate", "labtest", "clustertest", "mine")}
    assert len(ports) == 5 and min(ports) > 10250  # a kubelet's
    assert all(abs(a - b) >= 200 for a in ports for b in ports if a != b)  # no two meet with their hollow nodes
    monkeypatch.setenv(plane.PORT_VARIABLE, "31000")
    assert plane.default_port("lab") == plane.default_port("gate") == 31000


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """A control plane whose programs only sleep and are ready at once; no port is looked at."""
    here = plane.Plane(tmp_path / "state")
    monkeypatch.setattr(plane.binaries, "need", lambda names: dict.fromkeys(names, Path("/p")))
    monkeypatch.setattr(plane, "commands", lambda *_words: dict.fromkeys(plane.ORDER, ["sleep", "60"]))
    monkeypatch.setattr(plane.Plane, "kubectl", lambda *_words, **_more: "")
    monkeypatch.setattr(plane.Plane, "apply_crds", lambda _self: None)
    for name in ("check_ports", "certificates"):
        monkeypatch.setattr(plane.Plane, name, lambda _self: None)
    for name in ("unready", "no_service_account", "deaf_scheduler"):
        monkeypatch.setattr(plane.Plane, name, lambda *_words: None)
    yield here
    here.stop()


LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="Processes are looked for in /proc.")


@LINUX
def test_only_a_whole_control_plane_is_up(pretended):
    pretended.up(plane.Settings())
    assert pretended.is_up() and pretended.up(plane.Settings()) == {}
    pretended.complete.unlink()  # as where the run was killed before its end
    with pytest.raises(ClusterError, match="not running, or not whole: start it first with the command up"):
        pretended.require_up()
    before = pretended.processes.running()
    assert pretended.up(plane.Settings()) and pretended.is_up()
    assert not set(sum(before.values(), [])) & set(sum(pretended.processes.running().values(), []))


@LINUX
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), OSError(28, "No space left on device")])
def test_what_is_stopped_or_fails_leaves_nothing_running(pretended, monkeypatch, error):
    def fail(*_words, **_more):
        assert set(pretended.processes.running()) == set(plane.ORDER)
        raise error

    monkeypatch.setattr(plane.Plane, "kubectl", fail)
    with pytest.raises(type(error)):
        pretended.up(plane.Settings())
    assert pretended.processes.running() == {} and not pretended.complete.exists()


@LINUX
def test_a_second_request_to_stop_waits_for_the_first(pretended, monkeypatch):
    stop = plane.Plane.stop

    def stop_when_asked_again(self):
        # To this thread, the program's only one; another of the test runner's would take what is sent to the process.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        stop(self)

    def fail(*_words, **_more):
        monkeypatch.setattr(plane.Plane, "stop", stop_when_asked_again)
        raise SystemExit(143)

    monkeypatch.setattr(plane.Plane, "kubectl", fail)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            pretended.up(plane.Settings())
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(plane.Plane, "stop", stop)
    assert pretended.processes.running() == {}


@LINUX
@pytest.mark.parametrize("name", plane.ORDER)
def test_every_program_has_to_live(pretended, monkeypatch, name):
    argvs = dict.fromkeys(plane.ORDER, ["sleep", "60"]) | {name: ["sh", "-c", "sleep 0.2; echo no; exit 5"]}
    monkeypatch.setattr(plane, "commands", lambda *_words: argvs)
    monkeypatch.setattr(plane.Plane, "deaf_scheduler", lambda _self: "it does not listen yet")
    with pytest.raises(ClusterError, match=f"(?s)^{name} ended with 5 while .*\n  no$"):
        pretended.up(plane.Settings())
    assert pretended.processes.running() == {}


def test_hollow_nodes_among_processes():
    assert hollow_names(["etcd", "hollow-001", "kube-apiserver"]) == ["hollow-001"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            'Error: an error on the server ("[+]ping ok\\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld")',
            "not done yet: poststarthook/rbac/bootstrap-roles",
        ),
        ("E1129 memcache\nThe connection to the server was refused", "The connection to the server was refused"),
        ("", "no answer"),
    ],
)
def test_why_the_api_server_is_not_ready(answer, told):
    assert plane.not_ok(answer) == told


def test_settings_survive_a_half_written_file(tmp_path):
    (tmp_path / "settings.json").write_text('{"netns": "la', encoding="utf-8")
    assert plane.Plane(tmp_path).settings == plane.Settings()
    (tmp_path / "settings.json").write_text('{"netns": "lab", "of another version": 1}', encoding="utf-8")
    assert plane.Plane(tmp_path).settings == plane.Settings(netns="lab")


def test_certificate_settings():
    text = settings("system:node:n1", ("system:nodes", "a:b"), ("clientAuth",), ("n1", "10.0.2.15", "fd00::1"))
    assert "0.O = system:nodes\n1.O = a:b\nCN = system:node:n1\n" in text
    assert "subjectAltName = DNS:n1, IP:10.0.2.15, IP:fd00::1" in text
    assert "CA:TRUE" not in text and "CA:TRUE" in settings("ca", (), (), (), authority=True)


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@OPENSSL
def test_certificates(tmp_path):
    pki = Pki(tmp_path)
    pki.authority(CLUSTER)
    pki.issue("server", CLUSTER, "kube-apiserver", uses=("serverAuth",), names=("localhost", "127.0.0.1"))
    pki.issue("late", CLUSTER, "late", groups=("g",), days=-1)
    trust = ("-CAfile", pki.certificate(CLUSTER))
    assert (
        openssl("verify", *trust, "-purpose", "sslserver", "-verify_ip", "127.0.0.1", pki.certificate("server"))[0] == 0
    )
    assert openssl("verify", *trust, "-purpose", "sslclient", pki.certificate("server"))[0] != 0
    code, words = openssl("verify", *trust, pki.certificate("late"))
    assert code != 0 and "expired" in words
    kept = pki.certificate("server").read_bytes()
    pki.issue("server", CLUSTER, "kube-apiserver", uses=("serverAuth",))
    assert pki.certificate("server").read_bytes() == kept
    pki.issue("server", CLUSTER, "kube-apiserver", uses=("serverAuth",), again=True)
    assert pki.certificate("server").read_bytes() != kept


@OPENSSL
def test_openssls_complaint_is_passed_on(tmp_path):
    with pytest.raises(ClusterError, match="(?s)The certificate x cannot be made: openssl ended with 1"):
        Pki(tmp_path).issue("x", "no-such-authority", "x")
