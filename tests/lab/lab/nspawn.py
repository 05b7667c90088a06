# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd-nspawn hosts: a second to boot, a reboot that works, this machine's kernel.

A host's tree is an overlay over the image, so that fifty hosts cost little more than one. Each has a network namespace and
a control group of its own; /proc/irq, /proc/sys and /sys are read-only inside, so that no test can harm this machine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from pathlib import Path

from . import guest, network
from .spec import Lab, Machine
from .state import CGROUPS, State, kill, remove_cgroup, unmount
from .tools import run, write

RUN = Path("/run/systemd/nspawn")
REBOOT = 133  # nspawn's exit status when the host asked for a reboot


def create(state: State, lab: Lab, machine: Machine, image: Path, public_key: str, cmdline: str | None) -> None:
    """The host's own layer, with its name and the ssh key."""
    folder = state.machine_folder(machine.name)
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    files = guest.identity_files(lab, machine, public_key)
    if cmdline is not None:
        files["/etc/lab/cmdline"] = guest.File(cmdline.strip() + "\n")
    run(
        ["tar", "-x", "-C", _mounted(state, machine, image), "-f", write(folder / "identity.tar", guest.tar(files))],
        "Writing the host's files",
    )


def start(state: State, lab: Lab, machine: Machine, image: Path) -> int:
    """Boots the host and returns the process that keeps it: it starts the host again as often as that reboots."""
    folder = state.machine_folder(machine.name)
    name = state.full_name(machine.name)
    root = _mounted(state, machine, image)
    if not network.exists(name):
        network.host(
            name,
            state.namespace,
            network.link(machine.name, "eth0"),
            machine.address,
            lab.gateway,
            lab.subnet.prefixlen,
        )
    command = [
        *(
            "systemd-nspawn",
            "--quiet",
            "--boot",
            f"--directory={root}",
            f"--machine={name}",
            "--register=no",
            "--keep-unit",
        ),
        *(
            f"--network-namespace-path={network.NAMESPACES / name}",
            "--capability=CAP_NET_ADMIN",
            "--console=pipe",
            "--resolv-conf=off",
        ),
    ]
    script = folder / "run.sh"
    groups = "".join(f"echo $$ > {shlex.quote(str(g / 'cgroup.procs'))}\n" for g in _cgroups(name))
    write(script, f"#!/bin/sh\n{groups}while :; do\n    {shlex.join(command)}\n    [ $? = {REBOOT} ] || exit\ndone\n")
    with open(folder / "console.log", "ab") as log:
        process = subprocess.Popen(
            ["sh", str(script), name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )
    return process.pid


def remove(state: State, name: str) -> None:
    """Takes away what the kernel and systemd-nspawn keep for a host that has ended."""
    with contextlib.suppress(OSError):
        root = os.stat(state.machine_folder(name) / "root")
        (RUN / "locks" / f"inode-{root.st_dev}:{root.st_ino}").unlink()
    for point in state.mounts():
        if point.startswith(f"{state.machine_folder(name)}/"):
            unmount(point)
    full = state.full_name(name)
    network.remove(full)
    with contextlib.suppress(OSError):
        (RUN / "propagate" / full).rmdir()
    for group in state.cgroups():
        if group.name == full:
            with contextlib.suppress(OSError, ValueError):
                kill([int(p) for p in (group / "cgroup.procs").read_text(encoding="utf-8").split()])
            remove_cgroup(group)


def _mounted(state: State, machine: Machine, image: Path) -> Path:
    folder = state.machine_folder(machine.name)
    root = folder / "root"
    if str(root) not in state.mounts():
        options = f"lowerdir={image / 'root'},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        run(
            ["mount", "-t", "overlay", "-o", options, state.full_name(machine.name), root],
            f"Mounting the tree of {machine.name}",
        )
    return root


def _cgroups(name: str) -> list[Path]:
    """A control group of that name in every hierarchy (one of them on a machine with cgroup v2 alone)."""
    tops = (
        [CGROUPS]
        if (CGROUPS / "cgroup.procs").exists()
        else [p for p in sorted(CGROUPS.iterdir()) if (p / "cgroup.procs").exists()]
    )
    made = []
    for top in {t.resolve(): t for t in tops}.values():
        group = top / name
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # empty at first in v1, where that means: takes no process
            own = group / setting
            if (
                (top / "cpuset.sched_load_balance").exists()
                and own.exists()
                and not own.read_text(encoding="utf-8").strip()
            ):
                own.write_text((top / setting).read_text(encoding="utf-8"), encoding="utf-8")
        made.append(group)
    return made
