# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links, limits and odd files below a root."""

from __future__ import annotations

import os

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import tree as trees
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError


def refusal(root):
    with pytest.raises(HostprepError) as caught:
        Tree(root)
    assert str(caught.value).count("\n") == 0
    assert caught.value.read and caught.value.cure
    return caught.value.code


def test_a_root_that_is_none(tmp_path):
    assert refusal(str(tmp_path / "absent")) == "root_missing"
    assert refusal("") == "root_missing"
    assert refusal("a\0b") == "root_missing"
    assert refusal(None) == "root_missing"
    assert refusal(str(tmp_path)) == "root_empty"
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert refusal(str(tmp_path)) == "root_empty"


def test_a_root_that_is_a_device():
    assert refusal(os.devnull) == "root_not_archive"


def test_an_unreadable_root(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "sys").mkdir()
    monkeypatch.setattr(trees.os, "scandir", refuse)
    assert refusal(str(tmp_path)) == "root_unreadable"


def test_a_name_longer_than_the_kernel_takes():
    assert refusal("/" + "x" * 5000) == "root_unreadable"


def test_the_single_top_folder_of_an_archiver(host):
    host.add({"node7/sys/kernel/x": "1\n", "node7/proc/y": host.Link("/sys/kernel/x"), "README": "text"})
    tree = host.tree()
    assert tree.read("sys/kernel/x") == "1"
    assert tree.read("proc/y") == "1", "an absolute link starts at the top folder"


def test_text_is_stripped_of_white_space_and_padding(host):
    host.add({"sys/a": b"0-3\n" + b"\0" * 4092, "sys/b": b"\0\n", "sys/c": b"caf\xe9\n", "sys/d": b""})
    tree = host.tree()
    assert [tree.read("sys/" + name) for name in "abcd"] == ["0-3", "", "caf\ufffd", ""]


def test_links_stay_inside(host):
    outside = host.top.parent / "secret"
    outside.write_text("secret", encoding="utf-8")
    host.add(
        {
            "sys/real/file": "inside\n",
            "sys/absolute": host.Link("/sys/real/file"),
            "sys/folder": host.Link("real"),
            "sys/up": host.Link("../../../../../../sys/real/file"),
            "sys/out": host.Link("../../secret"),
            "sys/host": host.Link(str(outside)),
            "sys/dangling": host.Link("nowhere"),
        }
    )
    tree = host.tree()
    for path in ("sys/real/file", "sys/absolute", "sys/folder/file", "sys/up", "sys/folder/../real/file"):
        assert tree.read(path) == "inside", path
        assert tree.real(path) == "sys/real/file"
    for path in ("sys/out", "sys/host", "sys/dangling"):
        assert tree.read(path) is None, path
        assert tree.why(path) == "dangling link"
        assert not tree.exists(path)


def test_dots_apply_to_where_a_link_leads(host):
    host.add({"sys/a/b/c/file": "here\n", "sys/short": host.Link("a/b/c"), "sys/x": host.Link("short/../c/file")})
    assert host.tree().read("sys/x") == "here"


def test_loops_lead_nowhere(host):
    host.add(
        {
            "sys/a": host.Link("b"),
            "sys/b": host.Link("a"),
            "sys/self": host.Link("self"),
            "sys/deep": host.Link("deep/deep/deep"),
        }
    )
    tree = host.tree()
    for name in ("a", "b", "self", "deep"):
        assert tree.read("sys/" + name) is None
        assert tree.why("sys/" + name) == "link loop"
        assert tree.listdir("sys/" + name) is None


def test_a_chain_of_links_as_long_as_the_kernel_allows(host):
    host.add({"sys/end": "reached\n"})
    host.add({"sys/l%d" % number: host.Link("l%d" % (number - 1) if number else "end") for number in range(60)})
    assert host.tree().read("sys/l39") == "reached"
    assert host.tree().read("sys/l40") is None


def test_targets_are_told_unresolved(host):
    host.add({"sys/device/driver": host.Link("../../bus/pci/drivers/mlx5_core"), "sys/device/file": "x"})
    tree = host.tree()
    assert tree.target("sys/device/driver") == "../../bus/pci/drivers/mlx5_core"
    assert tree.target("sys/device/file") is None
    assert tree.target("sys/device/absent") is None
    assert tree.target("sys/absent/driver") is None


def test_odd_files_neither_block_nor_are_read(host):
    host.add({"sys/folder": None})
    os.mkfifo(host.top / "sys" / "fifo")
    with open(host.top / "sys" / "sparse", "wb") as sparse:
        sparse.truncate(4 << 30)
    tree = host.tree()
    assert tree.read("sys/fifo") is None and tree.why("sys/fifo") == "not a regular file"
    assert tree.read("sys/folder") is None and tree.why("sys/folder") == "not a regular file"
    assert tree.read("sys/sparse") is None and tree.why("sys/sparse").startswith("too large: 4294967296 bytes")


def test_a_file_that_grows_beyond_what_it_says(host, monkeypatch):
    """procfs says 0 bytes whatever a file holds, so the limit is kept while reading too."""
    host.add({"proc/x": "y" * 100000})
    monkeypatch.setattr(trees.os, "fstat", lambda handle: os.stat_result((0o100644, 0, 0, 1, 0, 0, 0, 0, 0, 0)))
    tree = host.tree()
    assert tree.read("proc/x", 200000) == "y" * 100000
    assert host.tree().read("proc/x", 99999) is None
    assert len(host.tree().read("proc/x", 100000)) == 100000


def test_an_unreadable_file_says_why(host, monkeypatch):
    host.add({"sys/speed": "1000\n"})

    def refuse(handle, size):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(trees.os, "read", refuse)
    tree = host.tree()
    assert tree.read("sys/speed") is None
    assert tree.why("sys/speed") == "unreadable: Invalid argument"


def test_impossible_paths_are_missing(host):
    host.add({"sys/file": "x"})
    tree = host.tree()
    for path in ("sys/file/below", "sys/a\0b", "sys/" + "x" * 300, "", "/", "..", "../.."):
        assert tree.read(path) is None, path
    assert tree.listdir("sys/file") is None
    assert tree.listdir("") == ["sys"]


def test_a_file_is_opened_once(host, monkeypatch):
    host.add({"sys/file": "x", "sys/link": host.Link("file")})
    opened = []
    real = os.open
    monkeypatch.setattr(trees.os, "open", lambda path, flags: opened.append(path) or real(path, flags))
    tree = host.tree()
    assert tree.read("sys/file") == tree.read("sys/file") == "x"
    assert tree.read("sys/absent") is tree.read("sys/absent") is None
    assert len(opened) == 2


def test_only_the_real_root_is_live(host):
    host.add({"sys": None})
    assert not host.tree().live
    assert Tree("/").live
    assert Tree("//").live


def test_where_a_writer_finds_a_file(host, tmp_path):
    host.add({"sys/real/file": "x\n", "sys/link": host.Link("/sys/real"), "sys/out": host.Link("/../../etc")})
    tree = host.tree()
    assert tree.writable
    assert tree.place("sys/link/file") == str(host.top / "sys/real/file")
    assert tree.place("sys/link/new") == str(host.top / "sys/real/new")
    assert tree.place("sys/absent/file") is None
    assert tree.place("sys/out/passwd") is None, "links stay inside"
    assert Tree("/").place("proc/version") == "/proc/version"
