# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images made here, as archives that ``ctr -n k8s.io images import`` reads (an OCI image layout in a tar).

Two are needed: the pause image that holds a pod's namespaces, and a small busybox for the pods of the tests. The same
input gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from .common import CACHE, ClusterError, Unavailable, run, say
from .disk import require_space, scratch

PAUSE = "lab.test/pause:1"
BUSYBOX = "lab.test/busybox:1"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MIB = 20  # busybox, its package unpacked, and both images


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def layer(files: Mapping[str, bytes | str]) -> bytes:
    """A tar of programs (bytes) and symbolic links (str: their target), with the folders above them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folders = sorted({str(above) for name in files for above in Path(name).parents if str(above) != "."})
        for folder in folders:
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size, info.mode = len(content), 0o755
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def archive(name: str, files: Mapping[str, bytes | str], entrypoint: list[str], architecture: str = "amd64") -> bytes:
    """An image of one layer as an OCI layout in a tar; ``name`` is the reference that it gets at import."""
    plain = layer(files)
    packed = gzip.compress(plain, compresslevel=6, mtime=0)
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin:/usr/bin:/sbin:/usr/sbin"]},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + _digest(plain)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": "sha256:" + _digest(config), "size": len(config)},
            "layers": [{"mediaType": LAYER, "digest": "sha256:" + _digest(packed), "size": len(packed)}],
        }
    )
    index = _json(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [
                {
                    "mediaType": MANIFEST,
                    "digest": "sha256:" + _digest(manifest),
                    "size": len(manifest),
                    "platform": {"architecture": architecture, "os": "linux"},
                    "annotations": {
                        "io.containerd.image.name": name,
                        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
                    },
                }
            ],
        }
    )
    members = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": index}
    members |= {f"blobs/sha256/{_digest(blob)}": blob for blob in (config, manifest, packed)}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, blob in members.items():
            info = tarfile.TarInfo(member)
            info.size, info.mode = len(blob), 0o644
            tar.addfile(info, io.BytesIO(blob))
    return out.getvalue()


def _static_busybox() -> Path:
    """Debian's static busybox, unpacked from its package and not installed."""
    kept = CACHE / "images" / "busybox"
    if kept.exists():
        return kept
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable(
            "The busybox image is made from Debian's busybox-static, and this machine has no apt-get and dpkg-deb."
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    say("Fetching Debian's busybox-static for the test pods' image …")
    with scratch() as work:
        work.chmod(0o755)  # apt's own user writes there
        download = ["apt-get", "-q", "download", "busybox-static"]
        if subprocess.run(download, cwd=work, capture_output=True, check=False).returncode:
            run(["apt-get", "-q", "update"], what="The package lists cannot be read")
            run(download, what="Debian's busybox-static cannot be fetched", cwd=work)
        package = next(work.glob("busybox-static_*.deb"))
        run(["dpkg-deb", "-x", package, work / "root"], what="busybox-static cannot be unpacked")
        found = next(
            (path for place in ("usr/bin", "bin") if (path := work / "root" / place / "busybox").exists()), None
        )
        if not found:
            raise ClusterError(f"{package.name} has no busybox in bin or usr/bin.")
        found.rename(kept)
    return kept


def make(pause: Path) -> Path:
    """One file with both images; ``pause`` is the program built from go/pause."""
    require_space({CACHE: MIB}, "the container images", "XDG_CACHE_HOME")
    busybox = _static_busybox()
    target = (
        CACHE
        / "images"
        / f"images-{_digest(pause.read_bytes() + busybox.read_bytes() + Path(__file__).read_bytes())[:12]}.tar"
    )
    if target.exists():
        return target
    applets = run([busybox, "--list"], what="The applets of busybox cannot be listed").split()
    files: dict[str, bytes | str] = {f"bin/{applet}": "busybox" for applet in applets}
    files["bin/busybox"] = busybox.read_bytes()
    with scratch() as work:
        with tarfile.open(work / target.name, "w") as tar:
            for name, content in (
                ("pause.tar", archive(PAUSE, {"pause": pause.read_bytes()}, ["/pause"])),
                ("busybox.tar", archive(BUSYBOX, files, ["/bin/sh"])),
            ):
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o644
                tar.addfile(info, io.BytesIO(content))
        (work / target.name).rename(target)
    return target
