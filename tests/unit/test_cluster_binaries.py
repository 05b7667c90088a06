# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which programs of the test cluster are built, from what, and where they are kept."""

from __future__ import annotations

import re

import pytest
from cluster import binaries
from cluster.common import ClusterError, Unavailable

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


def test_unknown_program(builds):
    with pytest.raises(ClusterError, match="builds kubelt; it builds etcd"):
        binaries.need(("kubelt",))
