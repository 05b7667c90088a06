# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which programs of the test cluster are built, from what, and where they are kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from cluster import binaries, disk
from cluster.common import ClusterError, Unavailable
from lab.state import this_process

PROGRAMS = binaries.PROGRAMS


def test_versions_are_read_from_go_mod():
    text = "module x\n\ngo 1.26.0\n\nrequire (\n\ta.test/b v0.1.0\n\ta.test/c v1.2.3 // indirect\n)\nrequire a.test/d/v2 v2.0.1\n"
    assert binaries.pinned_version(text, "a.test/c") == "v1.2.3"
    assert binaries.pinned_version(text, "a.test/d/v2") == "v2.0.1"
    assert binaries.wanted_go(text) == (1, 26, 0)
    with pytest.raises(ClusterError, match="does not require a.test/e"):
        binaries.pinned_version(text, "a.test/e")


@pytest.mark.parametrize(("text", "numbers"), [("go1.26.8", (1, 26, 8)), ("go1.27rc1", (1, 27)), ("devel +abc", None)])
def test_go_versions(text, numbers):
    assert binaries.go_numbers(text) == numbers


def test_staging_modules_follow_the_release():
    """k8s.io/api and its siblings have the numbers of k8s.io/kubernetes with a leading 0 for the 1."""
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (v\S+)$", PROGRAMS["kubelet"].go_mod, re.MULTILINE)
    assert len(replaced) > 30
    wanted = "v0" + PROGRAMS["kubelet"].version.removeprefix("v1")
    assert {(old == new, version) for old, new, version in replaced} == {(True, wanted)}


@pytest.mark.parametrize("module", ["kubernetes", "containerd"])
def test_every_program_of_others_is_a_tool_of_its_module(module):
    """So that go mod tidy keeps what the programs need in go.sum."""
    text = (binaries.HERE / "go" / module / "go.mod").read_text(encoding="utf-8")
    tools = text[text.index("tool (") : text.index(")", text.index("tool ("))].split()[2:]
    packages = [program.package for program in PROGRAMS.values() if program.module == module]
    assert sorted(tools) == sorted(package for package in packages if not package.startswith("."))


def test_programs_are_told_their_version():
    version = PROGRAMS["kubelet"].version
    flags = binaries.link_flags(PROGRAMS["kubelet"])
    assert "-X k8s.io/component-base/version.gitVersion={0} ".format(version) in flags
    assert "-X k8s.io/component-base/version.gitMinor={0} ".format(version.split(".")[1]) in flags
    assert "/version.Version=2." in binaries.link_flags(PROGRAMS["ctr"])
    assert PROGRAMS["etcd"].version.startswith("v3.")


@pytest.fixture
def builds(monkeypatch, tmp_path):
    """Builds are pretended; the list says which happened."""
    done = []

    def build(program, target, go):
        done.append((program.name, go))
        target.write_bytes(b"program")

    monkeypatch.setattr(binaries, "CACHE", tmp_path)
    monkeypatch.setattr(binaries, "_build", build)
    monkeypatch.setattr(binaries, "toolchain", lambda: "go1.26.8")
    return done


def test_what_was_built_is_not_built_again(builds, monkeypatch):
    first = binaries.need(("etcd", "ctr"))
    assert sorted(builds) == [("ctr", "go1.26.8"), ("etcd", "go1.26.8")]
    assert binaries.need(("etcd",)) == {"etcd": first["etcd"]} and len(builds) == 2
    monkeypatch.setattr(binaries, "toolchain", lambda: "go1.27.0")
    assert binaries.need(("etcd",)) != {"etcd": first["etcd"]} and len(builds) == 3


def test_a_changed_dependency_is_built_again(builds, monkeypatch, tmp_path):
    before = binaries.need(("pause",))["pause"]
    changed = tmp_path / "go" / "pause"
    changed.mkdir(parents=True)
    (changed / "go.mod").write_text("module x\ngo 1.25\n", encoding="utf-8")
    monkeypatch.setattr(binaries, "HERE", tmp_path)
    assert binaries.need(("pause",))["pause"] != before


def test_a_changed_source_is_built_again_and_a_test_is_not(monkeypatch, tmp_path):
    shutil.copytree(binaries.HERE / "go" / "kubernetes", tmp_path / "go" / "kubernetes")
    monkeypatch.setattr(binaries, "HERE", tmp_path)
    plugin, before = PROGRAMS["deviceplugin"], binaries.sources(PROGRAMS["deviceplugin"])
    with open(plugin.folder / "deviceplugin" / "main_test.go", "a", encoding="utf-8") as test:
        test.write("// more\n")
    assert binaries.sources(plugin) == before
    with open(plugin.folder / "deviceplugin" / "main.go", "a", encoding="utf-8") as source:
        source.write("// more\n")
    assert binaries.sources(plugin) != before


def test_without_go_an_earlier_build_serves(builds, monkeypatch):
    kept = binaries.need(("ctr",))
    monkeypatch.setattr(binaries, "toolchain", lambda: None)
    assert binaries.need(("ctr",)) == {"ctr": kept["ctr"]}
    with pytest.raises(Unavailable, match="neither Go nor an earlier build"):
        binaries.need(("etcd",))


def test_an_old_go_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(binaries, "CACHE", tmp_path)
    monkeypatch.setattr(binaries, "toolchain", lambda: "go1.19.8")
    with pytest.raises(Unavailable, match=r"needs Go 1\.26\.0 or newer, and this machine has go1\.19\.8"):
        binaries.need(("kubelet",))


@pytest.fixture
def tools(monkeypatch, tmp_path):
    """A cache of its own, and a Go that is a shell script; returns a function that writes the script."""
    for module in (binaries, disk):
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", "{0}:{1}".format(tmp_path, os.environ["PATH"]))
    (tmp_path / "cache" / "bin").mkdir(parents=True)

    def write(build):
        answer = 'case "$1 $2" in "env GOVERSION") echo go1.26.8; exit;; "env GOCACHE") echo "$HOME/a"; echo "$HOME/b"; exit;; esac'
        (tmp_path / "go").write_text("#!/bin/sh\n{0}\n{1}\n".format(answer, build), encoding="utf-8")
        (tmp_path / "go").chmod(0o755)

    return write


def test_a_build_leaves_only_the_program(tools, tmp_path):
    tools('while [ "$1" != -o ]; do shift; done; test -d "$GOTMPDIR" && echo program > "$2"')
    path = binaries.need(("pause",))["pause"]
    assert path.read_text(encoding="utf-8") == "program\n" and list(path.parent.iterdir()) == [path]
    assert list((tmp_path / "cache" / "tmp").iterdir()) == []
    path.unlink()
    tools("echo no such package >&2; exit 1")
    with pytest.raises(ClusterError, match=r"go could not build pause v1 \(its last words: no such package\)"):
        binaries.need(("pause",))
    assert list((tmp_path / "cache" / "tmp").iterdir()) == []


def test_a_build_needs_room(tools, monkeypatch):
    tools("exit 1")
    monkeypatch.setattr(disk, "free_mib", lambda folder: 7)
    with pytest.raises(
        ClusterError, match=r"no room for building pause: .* 7 MiB free, and \d+ MiB are needed: make room"
    ):
        binaries.need(("pause",))


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed.")
def test_a_killed_build_ends_and_its_scratch_is_found(tools, tmp_path, monkeypatch, capsys):
    tools('echo $$ > "{0}/pid"; exec sleep 60'.format(tmp_path))
    script = "from cluster import binaries; binaries.need(('pause',))"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(binaries.HERE.parent)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + 20
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text(encoding="utf-8").strip():
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        monkeypatch.setattr(disk, "CACHE", tmp_path / "lo0.rke2_hostprep" / "cluster")
        assert disk.abandoned() == []  # it runs
        run.kill()
    go = this_process(int((tmp_path / "pid").read_text(encoding="utf-8")))
    while go.alive:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (left,) = disk.abandoned()
    disk.remove_abandoned()
    assert "Removing {0}, which a killed run has left.".format(left) in capsys.readouterr().err
    assert not left.exists()


def test_a_disk_that_two_folders_share_has_to_hold_both(monkeypatch, tmp_path):
    monkeypatch.setattr(disk, "free_mib", lambda folder: 100)
    disk.require_space({tmp_path / "a" / "b": 60, tmp_path: 40}, "it", "X")
    with pytest.raises(ClusterError, match="together have 100 MiB free, and 110 MiB are needed"):
        disk.require_space({tmp_path / "a" / "b": 60, tmp_path: 50}, "it", "X")


def test_unknown_program(builds):
    with pytest.raises(ClusterError, match="builds kubelt; it builds etcd"):
        binaries.need(("kubelt",))
