# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container images that the tests make are what containerd expects: an OCI layout whose digests are right."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile

from cluster import images

FILES = {"bin/busybox": b"\x7fELF...", "bin/sh": "busybox", "pause": b"p"}


def unpacked(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}


def test_layout():
    members = unpacked(images.archive("lab.test/x:1", FILES, ["/bin/sh"]))
    for name, blob in members.items():
        if name.startswith("blobs/"):
            assert name == "blobs/sha256/" + hashlib.sha256(blob).hexdigest()
    (described,) = json.loads(members["index.json"])["manifests"]
    assert described["annotations"]["io.containerd.image.name"] == "lab.test/x:1"

    def blob(descriptor):
        found = members["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(found) == descriptor["size"]
        return found

    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    plain = gzip.decompress(blob(manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(plain).hexdigest()]
    assert config["config"]["Entrypoint"] == ["/bin/sh"]
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        assert tar.getmember("bin").isdir()
        assert tar.getmember("bin/sh").linkname == "busybox"
        assert tar.getmember("bin/busybox").mode == 0o755
        assert tar.extractfile("bin/sh").read() == FILES["bin/busybox"]


def test_the_same_input_gives_the_same_bytes():
    again = dict(reversed(list(FILES.items())))
    assert images.archive("lab.test/x:1", FILES, ["/bin/sh"]) == images.archive("lab.test/x:1", again, ["/bin/sh"])
    assert images.archive("lab.test/x:1", FILES, ["/bin/sh"]) != images.archive("lab.test/x:2", FILES, ["/bin/sh"])
