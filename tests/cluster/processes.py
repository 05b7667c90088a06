# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The long-running programs of the cluster: started with a log, found again after a killed run, waited for, ended.

Every process carries ``HOSTPREP_CLUSTER_PROCESS=STATE:NAME`` in its environment, which is how it is recognised: no file
has to have survived, and a process id that was given to another program meanwhile is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lab.state import Process, this_process

from .common import ClusterError, say

MARK = "HOSTPREP_CLUSTER_PROCESS"
KILLED_PATIENCE = 15  # seconds until a killed process has to be gone
LAST_LINES = 12


class Processes:
    """The processes whose state lies below one folder."""

    def __init__(self, state: Path, enter: Sequence[str] = ()):
        self.state = state
        self.enter = list(enter)  # the command that runs another in the network namespace of the cluster
        self.logs = state / "logs"
        self.started: list[tuple[str, subprocess.Popen]] = []  # by this run, and not ended by it

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

    def running(self) -> dict[str, list[int]]:
        """Name to process ids of all that runs, whoever started it; more than one where runs were killed."""
        found: dict[str, list[int]] = {}
        for pid, environment in _environments():
            value = environment.get(MARK.encode(), b"").decode(errors="replace")
            folder, _colon, name = value.rpartition(":")
            # A child that a program starts inherits the mark; the program itself leads its session.
            if folder == str(self.state) and _leads_session(pid):
                found.setdefault(name, []).append(pid)
        return {name: sorted(pids) for name, pids in sorted(found.items())}

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
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
                pass_fds=inherit,
            )
        self.started.append((name, child))
        return child

    def stop(self, names: Sequence[str] | None = None, patience: float = 15) -> list[str]:
        """Ends the named processes (all by default) in reverse order of the list given; returns who had run."""
        running = self.running()
        wanted = [name for name in reversed(list(running if names is None else names)) if name in running]
        left = [(name, this_process(pid)) for name in wanted for pid in running[name]]
        for _name, process in left:
            _signal(process.pid, signal.SIGTERM)
        left = self._outlived(left, patience)
        for name, process in left:
            say(f"{name} (process {process.pid}) did not end in {patience:.0f} s and is killed.")
            _signal(process.pid, signal.SIGKILL)
        left = self._outlived(left, KILLED_PATIENCE)
        if left:
            names_left = ", ".join(f"{name} (process {process.pid})" for name, process in left)
            raise ClusterError(
                f"{names_left} did not end within {KILLED_PATIENCE} s of being killed: the kernel holds it, so see"
                " whether its disk answers, and try again."
            )
        self.started = [(name, child) for name, child in self.started if name not in wanted]
        return wanted

    def _outlived(self, processes: list[tuple[str, Process]], patience: float) -> list[tuple[str, Process]]:
        """Which of them have not ended after so many seconds."""
        deadline = time.monotonic() + patience
        while (left := [each for each in processes if each[1].alive]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def check(self, what: str) -> None:
        """Refuses when a program that this run started has ended, with its last words."""
        for name, child in self.started:
            code = child.poll()
            if code is not None:
                how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
                raise ClusterError(f"{name} {how} while {what}. {self.last_lines(name)}")

    @contextlib.contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """What fails inside is told by the program that ended, if one did: that one knows why."""
        try:
            yield
        except ClusterError:
            self.check(what)
            raise
        self.check(what)

    def wait(
        self,
        what: str,
        probe: Callable[[], str | None],
        patience: float,
        interval: float = 0.5,
        log: str | None = None,
    ) -> float:
        """Waits until probe returns None; what it returns meanwhile is why it is not so yet. Returns the seconds taken.

        Everything that this run started has to live on; log: whose last lines are shown when patience ends.
        """
        begun = time.monotonic()
        told = 0.0
        while True:
            with self.watched(f"waiting for {what}"):
                why = probe()
            waited = time.monotonic() - begun
            if why is None:
                return waited
            if waited > patience:
                tail = f" {self.last_lines(log)}" if log else ""
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


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Requests to stop wait until the block has ended: for what ends other processes, which is soon done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def resident_mib(pid: int) -> float:
    """The memory of a process (VmRSS)."""
    with contextlib.suppress(OSError):  # gone meanwhile
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
