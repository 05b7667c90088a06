# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ssh into the lab's machines: one key a lab, and a configuration file that Ansible uses too.

Host keys are not checked, for these hosts only: every image of a shape has the same ones and they are reached over
127.0.0.1.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import LabError
from .tools import run


def public_key(folder: Path) -> str:
    """The lab's public key, made with its private half on first use."""
    private = folder / "id_ed25519"
    if not private.exists():
        folder.mkdir(parents=True, exist_ok=True)
        run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lo0.rke2_hostprep lab", "-f", private],
            "Making the lab's ssh key",
        )
    return private.with_suffix(".pub").read_text(encoding="utf-8").strip()


def config_file(folder: Path) -> Path:
    return folder / "ssh_config"


def config(folder: Path, ports: Mapping[str, int]) -> str:
    """The text of the configuration file for these machines: {name: port on 127.0.0.1}."""
    hosts = "".join(f"Host {name}\n    Port {port}\n\n" for name, port in sorted(ports.items()))
    return hosts + (
        "Host *\n"
        "    HostName 127.0.0.1\n"
        "    User root\n"
        f'    IdentityFile "{folder / "id_ed25519"}"\n'
        "    IdentitiesOnly yes\n"
        "    StrictHostKeyChecking no\n"
        "    UserKnownHostsFile /dev/null\n"
        "    LogLevel ERROR\n"
        "    ConnectTimeout 10\n"
        "    ServerAliveInterval 15\n"
        "    ServerAliveCountMax 8\n"
    )


def command(folder: Path, name: str, words: Sequence[str] = ()) -> list[str]:
    return ["ssh", "-F", str(config_file(folder)), name, *words]


def boot_id(folder: Path, name: str) -> str:
    """The machine's boot, as the kernel numbers them; empty while no command runs there.

    QEMU accepts a connection long before the machine does, so each try is limited.
    """
    command = ["ssh", "-F", str(config_file(folder)), "-o", "ConnectTimeout=5", "-o", "BatchMode=yes", name]
    try:
        done = subprocess.run(
            [*command, "cat /proc/sys/kernel/random/boot_id"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except subprocess.TimeoutExpired:
        return ""
    except FileNotFoundError:
        raise LabError("The lab needs the program ssh, which this machine does not have.") from None
    return done.stdout.strip() if done.returncode == 0 else ""


def wait(folder: Path, name: str, limit: float, alive: Callable[[], bool], other_than: str = "") -> bool:
    """True when the machine answers, in another boot than that one; False when it has ended or ``limit`` seconds are over."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if not alive():
            return False
        if boot_id(folder, name) not in ("", other_than):
            return True
        time.sleep(1)
    return False
