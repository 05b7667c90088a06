# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tar archives as roots: every compression, odd names and members, truncation, and claims that are not believed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import archive as archives
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, settings, strategies as st

PACKERS = {"tar": bytes, "tar.gz": gzip.compress, "tar.xz": lzma.compress, "tar.bz2": bz2.compress}


def pack(members):
    """A tar of (name, content) where content is bytes, a str (target of a link), None (a folder) or a tarfile type."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            elif isinstance(content, tuple):
                member.type, member.linkname = content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return raw.getvalue()


def tree_of(tmp_path, data):
    path = tmp_path / "root.tar"
    path.write_bytes(data)
    return Tree(str(path))


def refusal(tmp_path, data):
    with pytest.raises(HostprepError) as caught:
        tree_of(tmp_path, data)
    assert "\n" not in str(caught.value)
    return caught.value.code


PLAIN = [("sys/a/file", b"text\n"), ("sys/link", "a/file"), ("sys/absolute", "/sys/a/file"), ("proc/empty", b"")]


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("prefix", ["", "./", "/", "node7/", "./node7/"])
def test_every_form(tmp_path, packer, prefix):
    tree = tree_of(tmp_path, PACKERS[packer](pack([(prefix + name, content) for name, content in PLAIN])))
    assert tree.read("sys/a/file") == tree.read("sys/link") == tree.read("sys/absolute") == "text"
    assert tree.read("proc/empty") == ""
    assert tree.listdir("sys") == ["a", "absolute", "link"]
    assert tree.listdir("sys/a/file") is None
    assert not tree.live


def test_members_that_are_no_files(tmp_path):
    tree = tree_of(
        tmp_path,
        pack(
            [
                ("sys/one", b"1"),
                ("sys/two", (tarfile.LNKTYPE, "sys/one")),
                ("sys/lost", (tarfile.LNKTYPE, "sys/nothing")),
                ("sys/fifo", (tarfile.FIFOTYPE, "")),
                ("sys/device", (tarfile.CHRTYPE, "")),
                ("sys/folder", None),
                ("../escape", b"x"),
                ("sys/../../escape", b"x"),
            ]
        ),
    )
    assert tree.read("sys/two") == "1"
    assert [tree.read("sys/" + name) for name in ("lost", "fifo", "device", "folder")] == [None] * 4
    assert tree.why("sys/fifo") == "not a regular file"
    assert tree.listdir("") == ["sys"]
    assert tree.listdir("sys/folder") == []


def test_a_member_below_a_file_or_a_link_does_not_confuse(tmp_path):
    tree = tree_of(
        tmp_path, pack([("sys/a", b"file"), ("sys/a/b", b"below"), ("sys/l", "a"), ("sys/l/c", b"below too")])
    )
    assert tree.read("sys/a/b") == "below"
    assert tree.read("sys/l/c") == "below too"


def test_a_member_that_claims_4_gib_is_not_read(tmp_path):
    member = tarfile.TarInfo("sys/huge")
    member.size = 4 << 30
    whole = pack([("sys/small", b"1\n")])
    cut = whole[: whole.index(b"ustar") + 1024 - 257]  # the first member without the end of the archive
    path = tmp_path / "root.tar"
    with open(path, "wb") as out:  # sparse: the claim is true, and still nothing of it is read
        out.write(cut + member.tobuf(tarfile.GNU_FORMAT))
        out.seek(4 << 30, 1)
        out.write(tarfile.TarInfo("sys/after").tobuf() + b"\0" * 1024)
    tree = Tree(str(path))
    assert tree.read("sys/small") == "1"
    assert tree.read("sys/after") == ""
    assert tree.read("sys/huge") is None
    assert tree.why("sys/huge") == "too large: 4294967296 bytes"


def test_an_archive_that_unpacks_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_STREAM", 1 << 20)
    data = pack([("sys/a", b"\0" * (2 << 20))])
    for packer in ("tar.gz", "tar.xz", "tar.bz2", "tar"):
        assert refusal(tmp_path, PACKERS[packer](data)) == "root_too_large"


def test_too_many_members_or_bytes(tmp_path, monkeypatch):
    data = pack([("sys/%d" % number, b"x") for number in range(20)])
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    assert refusal(tmp_path, data) == "root_too_large"
    monkeypatch.setattr(archives, "MAX_MEMBERS", 1000)
    monkeypatch.setattr(archives, "MAX_TOTAL", 10)
    assert refusal(tmp_path, data) == "root_too_large"


@pytest.mark.parametrize("packer", PACKERS)
def test_cut_short(tmp_path, packer):
    data = PACKERS[packer](pack([("sys/a", bytes(range(256)) * 40), ("sys/b", bytes(range(256)) * 40)]))
    for share in (0.1, 0.3, 0.5):
        assert refusal(tmp_path, data[: int(len(data) * share)]) in ("root_not_archive", "root_empty")


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\3\4 no tar", b"\0" * 100, b"\x1f\x8b garbage", b"\xfd7zXZ\0 garbage", b"BZh9 garbage", b"x" * 5000],
)
def test_no_archive(tmp_path, data):
    assert refusal(tmp_path, data) in ("root_not_archive", "root_empty")


def test_an_archive_without_a_host(tmp_path):
    assert refusal(tmp_path, pack([("home/me/file", b"x"), ("etc/passwd", b"x")])) == "root_empty"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_garbage_gets_past_the_refusal(tmp_path_factory, data):
    base = bytearray(PACKERS[data.draw(st.sampled_from(sorted(PACKERS)))](pack(PLAIN)))
    for _time in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(base) - 1))
        base[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "fuzzed.tar"
    path.write_bytes(bytes(base[: data.draw(st.integers(0, len(base)))]))
    try:
        tree = Tree(str(path))
    except HostprepError:
        return
    for name, _content in PLAIN:
        tree.read(name)
        tree.listdir(name)
