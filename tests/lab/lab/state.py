# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this lab runs, kept in files, and what the kernel says of it: processes, mounts, namespaces.

A lab has a name (HOSTPREP_LAB, ``lab`` by default), so that a test run has machines of its own beside a person's. All that
it makes carries that name: the state folder, the network namespaces, the processes' arguments.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .errors import LabError
from .network import NAMESPACES, PREFIX
from .tools import locked, run, write

STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "lo0.rke2_hostprep" / "lab"
LOCKS = STATE.with_name("locks")  # beside the labs' folders: `clean` removes those while others wait for a lock
DEFAULT_LAB = "lab"
CGROUPS = Path("/sys/fs/cgroup")
STARTING, RUNNING, OFF = "starting", "running", "off"


@dataclass
class Process:
    """A process that is told from a later one with the same number by its start time."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


@dataclass
class Record:
    """One machine's state.json."""

    name: str
    kind: str
    phase: str  # starting, running, off
    owner: Process  # who starts it; a machine that is starting without an owner is a leftover
    image: str
    ssh_port: int
    process: Process | None = None
    helpers: list[Process] = field(default_factory=list)  # forwards
    forwards: dict[str, int] = field(default_factory=dict)  # port inside: port on 127.0.0.1
    boot_seconds: float | None = None
    hot_nics: dict[str, str] = field(default_factory=dict)  # NICs that were plugged in: their port

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits any more for what is starting."""
        return self.phase == STARTING and not self.owner.alive

    @property
    def half_made(self) -> bool:
        """Whether that is a machine which never came up, so that there is nothing of worth on its disk."""
        return self.abandoned and self.boot_seconds is None


class State:
    def __init__(self, lab: str | None = None):
        self.lab = lab or os.environ.get("HOSTPREP_LAB") or DEFAULT_LAB
        if not re.fullmatch(r"[a-z][a-z0-9]{0,11}", self.lab):
            raise LabError(
                f"The lab's name is {self.lab!r}; use up to 12 lower-case letters and digits, a letter first."
            )
        self.folder = STATE / self.lab
        self.namespace = f"{PREFIX}{self.lab}"

    def machine_folder(self, name: str) -> Path:
        return self.folder / "machines" / name

    def full_name(self, name: str) -> str:
        """What a machine is called in process arguments, namespaces and control groups."""
        return f"{PREFIX}{self.lab}-{name}"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One change at a time."""
        with locked(LOCKS / f"lab-{self.lab}", f"Another command changes the lab {self.lab}"):
            yield

    def names(self) -> list[str]:
        return sorted(p.name for p in (self.folder / "machines").glob("*") if p.is_dir())

    def read(self, name: str) -> Record | None:
        try:
            data = json.loads((self.machine_folder(name) / "state.json").read_text(encoding="utf-8"))
            data["owner"] = Process(**data["owner"])
            data["process"] = data["process"] and Process(**data["process"])
            data["helpers"] = [Process(**p) for p in data["helpers"]]
            return Record(**data)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, record: Record) -> None:
        path = self.machine_folder(record.name) / "state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        os.replace(write(new, json.dumps(asdict(record), indent=1)), path)

    def processes(self) -> dict[int, str]:
        """Every process that this lab started for a machine, told by its arguments: {pid: machine}."""
        # A machine's folder or full name stands in the arguments of QEMU, nspawn, the loop around it and the forwards.
        pattern = re.compile(
            rf"{re.escape(str(self.folder))}/machines/([a-z0-9]+)/|\b{re.escape(self.full_name(''))}([a-z0-9]+)\b"
        )
        program = re.compile(
            r"(?:\S*/)?(?:qemu-system-x86_64|systemd-nspawn|sh \S+/run\.sh|python\S* \S+/forward\.py) "
        )
        found = {}
        for pid, arguments in all_processes():
            match = program.match(arguments) and pattern.search(arguments)
            if match:
                found[pid] = match[1] or match[2]
        return found

    def namespaces(self) -> list[str]:
        """The network namespaces of this lab's machines, without the lab's own."""
        return sorted(p.name for p in NAMESPACES.glob(self.full_name("*"))) if NAMESPACES.is_dir() else []

    def mounts(self) -> list[str]:
        """Mount points of this lab's machines, the innermost first."""
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as table:
            points = [line.split()[1].encode().decode("unicode_escape") for line in table]
        return sorted((p for p in points if p.startswith(f"{self.folder}/machines/")), key=len, reverse=True)

    def cgroups(self) -> list[Path]:
        """Control groups of this lab's nspawn hosts, in every hierarchy that is mounted."""
        return sorted(
            p
            for pattern in (self.full_name("*"), "*/" + self.full_name("*"))
            for p in CGROUPS.glob(pattern)
            if p.is_dir()
        )


def images_in_use() -> dict[Path, list[str]]:
    """The images that machines of any lab stand on: {image: [LAB/MACHINE, …]}."""
    used: dict[Path, list[str]] = {}
    for lab in sorted(STATE.glob("*")):
        with contextlib.suppress(LabError):  # a folder that is no lab's
            state = State(lab.name)
            for record in filter(None, map(state.read, state.names())):
                used.setdefault(Path(record.image), []).append(f"{lab.name}/{record.name}")
    return used


def all_processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")


def start_time(pid: int) -> int | None:
    """In clock ticks since the boot; None for a process that is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else int(words[19])


def this_process(pid: int | None = None) -> Process:
    pid = pid or os.getpid()
    return Process(pid, start_time(pid) or 0)


def children(pid: int) -> list[int]:
    """A process and all that it started, parents first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                parents.setdefault(int(words[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        todo += parents.get(current, [])
    return found


def memory(pid: int) -> int:
    """Resident memory of a process and all that it started, in MiB."""
    total = 0
    for each in children(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{each}/status").read_text(encoding="utf-8", errors="replace")
            total += sum(int(line.split()[1]) for line in fields.splitlines() if line.startswith("VmRSS:"))
    return total // 1024


def kill(pids: list[int], wait: float = 10) -> None:
    """Ends processes at once and waits until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + wait
    for pid in pids:
        while start_time(pid) is not None and time.monotonic() < end:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)


def unmount(point: str) -> None:
    run(["umount", "--lazy", point], f"Unmounting {point}")


def remove_cgroup(group: Path) -> None:
    for folder, _folders, _files in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
