# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the lab runs other programs and tells the user what it waits for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from .errors import LabError

# Others may work on this machine: what burns CPU for minutes steps back.
NICE = ("nice", "-n", os.environ.get("HOSTPREP_LAB_NICE", "15"))


def say(text: str) -> None:
    """A line for the user; standard output is kept for answers (inventory, status)."""
    print(text, file=sys.stderr, flush=True)


class Waiting:
    """Says what is waited for, how it stands every few seconds, and how long it took.

    ``detail`` gives the newest sign of life, such as the last line of a console.
    """

    def __init__(self, what: str, detail: Callable[[], str] = lambda: "", every: float = 15):
        self.what, self.detail, self.every = what, detail, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begin

    def __enter__(self) -> Waiting:
        self.begin = time.monotonic()
        say(f"{self.what} …")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            say(f"{self.what}: {self.elapsed:.0f} s")

    def _report(self) -> None:
        while not self._stop.wait(self.every):
            detail = self.detail()
            say(f"{self.what} … {self.elapsed:.0f} s" + (f": {detail}" if detail else ""))


@contextlib.contextmanager
def locked(path: Path, waiting: str, shared: bool = False) -> Iterator[None]:
    """Holds the lock of that file; the file stays, because another command may be waiting for this very one."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            with Waiting(f"{waiting}; waiting for it"):
                fcntl.flock(lock, how)
        yield


def write(path: Path, data: str | bytes) -> Path:
    """Writes a file. The system's own error does not name it when the disk is full; this one does."""
    try:
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    return path


def remove(path: Path) -> None:
    """Removes a file or a tree that may be there; what stays is an error, not left silently."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise LabError(
            f"{path} could not be removed ({error.filename}: {error.strerror}): end what uses it, then run `clean`."
        ) from None


def last_lines(path: Path, count: int) -> list[str]:
    """The end of a log, without the control characters that a console is full of."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 16384))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = (
        "".join(c for c in line if c.isprintable() or c == "\t").rstrip()
        for line in text.replace("\r", "\n").split("\n")
    )
    return [line for line in lines if line][-count:]


def last_line(path: Path) -> str:
    return "".join(last_lines(path, 1))[:100]


def run(
    argv: Sequence[str | Path],
    doing: str,
    log: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Runs a program to its end and returns its output; a failure is a LabError with the output's last lines."""
    command = [str(a) for a in argv]
    try:
        if log is None:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout, errors="replace"
            )
            output = done.stdout + done.stderr
        else:
            with open(log, "a", encoding="utf-8") as stream:
                done = subprocess.run(
                    command,
                    input=stdin,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                    timeout=timeout,
                )
            output = ""
    except FileNotFoundError:
        raise LabError(f"{doing} needs the program {command[0]}, which this machine does not have.") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{doing} did not end within {timeout:.0f} s and was stopped.") from None
    if done.returncode:
        tail = last_lines(log, 15) if log else output.strip().splitlines()[-15:]
        raise LabError("\n".join([f"{doing} failed: {command[0]} ended with {done.returncode}.", *tail]))
    return done.stdout or ""
