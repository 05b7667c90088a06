# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Debian tree with the packages of a machine, unpacked once for all machines that want the same ones.

Its content key covers this file, so that a change here makes new trees; a change elsewhere leaves them alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from . import packages
from .spec import Machine
from .tools import NICE, Waiting, last_line, run

FREE_MIB = 2500  # while it is made: the packages, the tree and its archive

_SOURCE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()  # read once: the file may change while this runs

# Documentation and translations are half of the files and none of the behaviour.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*")

# A small initial RAM disk with what the lab's disks need: unpacking one with every driver takes longer than the rest of
# an emulated boot, and loading btrfs, which times its checksums, takes seconds. It must be configured before the kernel
# package's scripts make it.
_INITRAMFS = r"""
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
printf 'MODULES=list\n' > "$1/etc/initramfs-tools/conf.d/lab"
printf '%s\n' {modules} > "$1/usr/share/initramfs-tools/modules.d/lab"
"""
_MODULES = ("virtio_pci", "virtio_blk", "nvme", "ext4")
_MODULES_OF_A_PACKAGE = {"btrfs-progs": "btrfs", "lvm2": "dm-mod"}


def key(machine: Machine) -> str:
    recipe = [machine.distribution, sorted(machine.packages), _SOURCE]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]


def archive(cache: Path, machine: Machine) -> Path:
    return cache / "rootfs" / f"{machine.distribution}-{key(machine)}.tar"


def build(cache: Path, machine: Machine, work: Path) -> Path:
    """The tree as a tar archive in the cache; made in the scratch folder ``work`` if it is not there yet."""
    done = archive(cache, machine)
    if done.exists():
        return done
    made, log = work / "rootfs.tar", work / "mmdebstrap.log"
    settings = [
        f"--aptopt={line}"
        for line in ('Acquire::Languages "none";', 'APT::Install-Recommends "0";', *packages.apt_settings())
    ]
    modules = [*_MODULES, *(m for package, m in _MODULES_OF_A_PACKAGE.items() if package in machine.packages)]
    command: list[str | Path] = [
        *NICE,
        # It ends with this program, whatever it starts ends with it, and nothing that it mounts is seen outside.
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"),
        *("mmdebstrap", "--mode=root", "--variant=apt", "--format=tar", f"--include={','.join(machine.packages)}"),
        *settings,
        "--dpkgopt=force-unsafe-io",  # a tree that is half made is thrown away
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        f"--essential-hook={_INITRAMFS.strip().format(modules=' '.join(modules))}",
        machine.distribution,
        made,
        packages.mirror(),
    ]
    with Waiting(
        f"{machine.name}: installing Debian {machine.distribution} with {len(machine.packages)} packages",
        lambda: last_line(log),
    ):
        environment = {"TMPDIR": str(work)}  # mmdebstrap's own tree is large, too
        run(
            ["env", *(f"{k}={v}" for k, v in environment.items()), *command],
            f"Installing Debian {machine.distribution}",
            log,
        )
    done.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, done)
    return done


def unpack(tar: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    run(
        [*NICE, "tar", "-x", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-C", folder, "-f", tar],
        f"Unpacking {tar.name}",
    )


def remove_tree(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
