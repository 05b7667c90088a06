# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the programs of the cluster from their released Go modules, once.

Each module under go/ pins what it builds in its go.mod and go.sum. A program lies in
``CACHE/bin/NAME-VERSION-SOURCES-TOOLCHAIN``, so a new version, a changed dependency or another compiler makes a new one.
All are static (no C library), since the nodes run other releases of Debian than the machine that builds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .common import CACHE, HERE, ClusterError, Unavailable, run, say
from .disk import require_space, scratch

KUBERNETES = "k8s.io/kubernetes"
ETCD = "go.etcd.io/etcd/server/v3"
CONTAINERD = "github.com/containerd/containerd/v2"


@dataclass(frozen=True)
class Program:
    """What is built: the folder under go/ with its go.mod, the package, and whose pinned version it has."""

    name: str
    module: str
    package: str
    pinned: str | None = None
    tags: tuple[str, ...] = ()
    stamp: tuple[str, ...] = ()  # Go variables that carry the version

    @property
    def folder(self) -> Path:
        return HERE / "go" / self.module

    @property
    def go_mod(self) -> str:
        return (self.folder / "go.mod").read_text(encoding="utf-8")

    @property
    def version(self) -> str:
        """The pinned version ("v1.36.3") as go.mod states it."""
        return pinned_version(self.go_mod, self.pinned) if self.pinned else "v1"


def _kubernetes(name: str, package: str) -> Program:
    stamp = ("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion")
    return Program(name, "kubernetes", package, KUBERNETES, stamp=stamp)


def _containerd(name: str) -> Program:
    tags, stamp = ("no_btrfs", "no_devmapper", "no_zfs"), (f"{CONTAINERD}/version.Version",)
    return Program(name, "containerd", f"{CONTAINERD}/cmd/{name}", CONTAINERD, tags, stamp)


# MiB that a build from nothing takes: its scratch folder with the program, Go's cache, and Go's modules.
ROOM = {"kubernetes": (1000, 1500, 1000), "containerd": (500, 500, 300), "pause": (100, 100, 10)}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "pause")
HOLLOW = ("hollow",)
DEVICE_PLUGIN = ("deviceplugin",)
PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "kubernetes", ETCD, ETCD),
        *(_kubernetes(name, f"{KUBERNETES}/cmd/{name}") for name in (*CONTROL_PLANE[1:], "kubelet")),
        _kubernetes("hollow", "./hollow"),
        Program("deviceplugin", "kubernetes", "./deviceplugin", KUBERNETES),
        *map(_containerd, NODE[1:4]),
        Program("pause", "pause", "."),
    )
}


def pinned_version(go_mod: str, module: str) -> str:
    """The version of a required module in the text of a go.mod."""
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if not found:
        raise ClusterError(f"go.mod does not require {module}.")
    return found[1]


def wanted_go(go_mod: str) -> tuple[int, ...]:
    """The oldest Go that a go.mod accepts, as numbers."""
    found = re.search(r"^go (\d+(?:\.\d+)*)$", go_mod, re.MULTILINE)
    if not found:
        raise ClusterError("go.mod has no 'go' line.")
    return tuple(int(part) for part in found[1].split("."))


def go_numbers(text: str) -> tuple[int, ...] | None:
    """ "go1.26.8" as numbers, None for what is not a release."""
    found = re.fullmatch(r"go(\d+(?:\.\d+)*).*", text.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else None


def link_flags(program: Program) -> str:
    """The linker's flags: no symbols, and the version where the program looks for its own."""
    version = program.version
    flags = ["-s", "-w"]
    for variable in program.stamp:
        package, _dot, name = variable.rpartition(".")
        flags += ["-X", f"{variable}={version if name == 'gitVersion' else version.removeprefix('v')}"]
        if name == "gitVersion":
            major, minor = version.removeprefix("v").split(".")[:2]
            numbers = ["-X", f"{package}.gitMajor={major}", "-X", f"{package}.gitMinor={minor}"]
            flags += [*numbers, "-X", f"{package}.gitTreeState=clean"]
    return " ".join(flags)


def sources(program: Program) -> str:
    """A hash of everything but the compiler that decides what comes out."""
    digest = hashlib.sha256(" ".join((program.package, link_flags(program), *program.tags)).encode())
    own = (program.folder / program.package).glob("*.go") if program.package.startswith(".") else ()
    built = (path for path in own if not path.name.endswith("_test.go"))
    for path in (program.folder / "go.mod", program.folder / "go.sum", *sorted(built)):
        if path.exists():  # a module without dependencies has no go.sum
            digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def toolchain() -> str | None:
    """The Go that is on this machine ("go1.26.8"), None if there is none."""
    if not shutil.which("go"):
        return None
    answer = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd=HERE.parent)
    return answer.stdout.strip() or None


def _place(program: Program, go: str | None) -> Path:
    """Where the program lies; without a Go, any earlier build of the same sources."""
    stem = f"{program.name}-{program.version}-{sources(program)}-"
    if go:
        return CACHE / "bin" / (stem + go)
    for kept in sorted((CACHE / "bin").glob(stem + "*")):
        return kept
    raise Unavailable(
        f"{program.name} {program.version} is built with Go, and this machine has neither Go nor an earlier build in"
        f" {CACHE / 'bin'}: install Go, or run where it is."
    )


def _build(program: Program, target: Path, go: str) -> None:
    needed, have = wanted_go(program.go_mod), go_numbers(go)
    if have is None or have < needed:
        raise Unavailable(
            f"{program.name} {program.version} needs Go {'.'.join(map(str, needed))} or newer, and this machine has {go}."
        )
    places = (
        CACHE,
        *map(Path, run(["go", "env", "GOCACHE", "GOMODCACHE"], what="Go's folders are unknown").splitlines()),
    )
    require_space(
        dict(zip(places, ROOM[program.module])),
        f"building {program.name}",
        "XDG_CACHE_HOME, GOCACHE or GOMODCACHE",
    )
    say(f"Building {program.name} {program.version} with {go} (once; kept in {target.parent}) …")
    begun = time.monotonic()
    with scratch() as work:
        fresh = work / program.name
        # It ends with this process, however that ends.
        command = ["setpriv", "--pdeathsig", "KILL", "go", "build", "-trimpath", "-buildvcs=false"]
        command += ["-ldflags", link_flags(program), "-o", str(fresh)]
        command += ["-tags", ",".join(program.tags)] if program.tags else []
        environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "", "GOTMPDIR": str(work)}
        command.append(program.package)
        done = subprocess.run(command, cwd=program.folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(
                f"go could not build {program.name} {program.version} (its last words: {done.stderr.strip()[-1500:]}):"
                " check that this machine reaches its Go module proxy."
            )
        fresh.rename(target)
    say(f"Built {program.name}: {time.monotonic() - begun:.0f} s, {target.stat().st_size / 2**20:.0f} MiB.")


def need(names: Sequence[str]) -> dict[str, Path]:
    """The paths of the named programs, each built if it is not in the cache."""
    unknown = sorted(set(names) - set(PROGRAMS))
    if unknown:
        raise ClusterError(f"Nothing under {HERE / 'go'} builds {', '.join(unknown)}; it builds {', '.join(PROGRAMS)}.")
    go = toolchain()
    paths = {}
    for program in (PROGRAMS[name] for name in names):
        path = paths[program.name] = _place(program, go)
        if path.exists():
            continue
        assert go, "a place was chosen without a Go although nothing is there"
        locks = CACHE / "locks"
        for folder in (path.parent, locks):
            folder.mkdir(parents=True, exist_ok=True)
        with open(locks / path.name, "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():  # while this one waited, another may have built it
                _build(program, path, go)
    return paths
