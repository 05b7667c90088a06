# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The long-running programs of the cluster: started with a log, found again after a killed run, waited for, ended.

Every process carries ``HOSTPREP_CLUSTER_PROCESS=STATE:NAME`` in its environment, which is how it is recognised: no file
has to have survived, and a process id that was given to another program meanwhile is never signalled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .common import ClusterError, say

MARK = "HOSTPREP_CLUSTER_PROCESS"
LAST_LINES = 12


class Processes:
    """The processes whose state lies below one folder."""

    def __init__(self, state: Path, enter: Sequence[str] = ()):
        self.state = state
        self.enter = list(enter)  # the command that runs another in the network namespace of the cluster
        self.logs = state / "logs"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def last_lines(self, name: str) -> str:
        """The end of a log, for an error's text."""
        try:
            with open(self.log(name), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 16384))
                lines = log.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        except FileNotFoundError:
            lines = []
        return f"Last lines of {self.log(name)}:\n  " + "\n  ".join(line[:300] for line in lines or ["(empty)"])

    def running(self) -> dict[str, int]:
        """Name to process id of all that runs, whoever started it."""
        found = {}
        for pid, environment in _environments():
            value = environment.get(MARK.encode(), b"").decode(errors="replace")
            folder, _colon, name = value.rpartition(":")
            # A child that a program starts inherits the mark; the program itself leads its session.
            if folder == str(self.state) and _leads_session(pid):
                found[name] = pid
        return dict(sorted(found.items()))

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        inherit: Sequence[int] = (),
        outside: bool = False,
    ) -> subprocess.Popen:
        """Starts a program in the cluster's namespace, or outside; inherit: file descriptors that it is to have."""
        self.logs.mkdir(parents=True, exist_ok=True)
        variables = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        variables |= {MARK: f"{self.state}:{name}", **(environment or {})}
        with open(self.log(name), "wb") as log:
            command = [*(() if outside else self.enter), *map(str, argv)]
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
                pass_fds=inherit,
            )

    def stop(self, names: Sequence[str] | None = None, patience: float = 15) -> list[str]:
        """Ends the named processes (all by default) in reverse order of the list given; returns who had run."""
        running = self.running()
        wanted = [name for name in reversed(list(running if names is None else names)) if name in running]
        for name in wanted:
            _signal(running[name], signal.SIGTERM)
        deadline = time.monotonic() + patience
        while (left := [name for name in wanted if name in self.running()]) and time.monotonic() < deadline:
            time.sleep(0.1)
        for name in left:
            say(f"{name} (process {running[name]}) did not end in {patience:.0f} s and is killed.")
            _signal(running[name], signal.SIGKILL)
        return wanted

    def wait(
        self,
        what: str,
        probe: Callable[[], str | None],
        patience: float,
        process: tuple[str, subprocess.Popen] | None = None,
        interval: float = 0.5,
    ) -> float:
        """Waits until probe returns None; what it returns meanwhile is why it is not so yet. Returns the seconds taken."""
        begun = time.monotonic()
        told = 0.0
        while True:
            why = probe()
            waited = time.monotonic() - begun
            if why is None:
                return waited
            if process and process[1].poll() is not None:
                name, code = process[0], process[1].returncode
                raise ClusterError(f"{name} ended with {code} while waiting for {what}. {self.last_lines(name)}")
            if waited > patience:
                tail = f" {self.last_lines(process[0])}" if process else ""
                raise ClusterError(f"Waited {waited:.0f} s for {what}, in vain: {why}.{tail}")
            if waited - told >= 5:
                told = waited
                say(f"Waiting for {what} ({waited:.0f} s): {why}")
            time.sleep(interval)


def _environments() -> Iterator[tuple[int, dict[bytes, bytes]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                block = (entry / "environ").read_bytes()
            except OSError:  # gone meanwhile, or another user's
                continue
            pairs = (item.partition(b"=") for item in block.split(b"\0") if b"=" in item)
            yield int(entry.name), {key: value for key, _equals, value in pairs}


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _signal(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)  # each leads its own group
    except ProcessLookupError:
        pass


def resident_mib(pid: int) -> float:
    """The memory of a process (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def same_namespace(pid: int, place: Path) -> bool:
    """Whether a process is in the network namespace that is mounted there."""
    try:
        return os.path.samefile(f"/proc/{pid}/ns/net", place)
    except OSError:  # one of the two has gone
        return False


def listeners(table: str) -> dict[int, str]:
    """Port to inode of the listening sockets in the text of /proc/net/tcp or tcp6."""
    found = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def port_owner(port: int, enter: Sequence[str] = ()) -> str | None:
    """Who listens on a TCP port of the namespace ("nginx, process 12"), None where it is free."""
    command = [*enter, "cat", "/proc/net/tcp", "/proc/net/tcp6"]
    tables = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("  sl  ")
    inode = next((found[port] for table in tables if (found := listeners("  sl  " + table)) and port in found), None)
    if inode is None:
        return None
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if any(os.readlink(entry) == f"socket:[{inode}]" for entry in (folder / "fd").iterdir()):
                    return f"{(folder / 'comm').read_text(encoding='utf-8').strip()}, process {folder.name}"
            except OSError:
                continue
    return "a process that cannot be seen from here"
