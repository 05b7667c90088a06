# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""QEMU's control socket (QMP): one command at a time, with its answer or the event that it causes."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from .errors import LabError


class Qmp:
    def __init__(self, path: Path, timeout: float = 20):
        self.path = path
        self._events: list[dict[str, Any]] = []
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
            self._read()  # the greeting
            self.execute("qmp_capabilities")
        except OSError as error:
            self._socket.close()
            raise LabError(f"QEMU does not answer on {path} ({_reason(error)}).") from None
        except LabError:
            self._socket.close()
            raise

    def __enter__(self) -> Qmp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def execute(self, command: str, arguments: dict[str, Any] | None = None, descriptor: int | None = None) -> Any:
        """The command's return value; ``descriptor`` goes along with it, for getfd."""
        message = json.dumps({"execute": command, **({"arguments": arguments} if arguments else {})}).encode()
        try:
            if descriptor is None:
                self._socket.sendall(message)
            else:
                socket.send_fds(self._socket, [message], [descriptor])
            return self._answer(command)
        except OSError as error:
            raise LabError(
                f"QEMU did not carry out {command} ({self.path}: {_reason(error)}): `status` shows whether the machine"
                " still runs, and `power-cycle` starts it anew."
            ) from None

    def _answer(self, command: str) -> Any:
        while True:
            answer = self._read()
            if "event" in answer:
                self._events.append(answer)
            elif "error" in answer:
                raise LabError(f"QEMU refused {command}: {answer['error'].get('desc', answer['error'])}.")
            elif "return" in answer:
                return answer["return"]

    def wait_event(self, name: str, match: dict[str, Any], timeout: float) -> bool:
        """Whether the event with these data came, or comes within that time."""
        end = time.monotonic() + timeout
        patience = self._socket.gettimeout()
        try:
            return self._event(name, match, end)
        except OSError as error:
            raise LabError(f"QEMU did not say {name} ({self.path}: {_reason(error)}).") from None
        finally:
            self._socket.settimeout(patience)

    def _event(self, name: str, match: dict[str, Any], end: float) -> bool:
        while True:
            for event in self._events:
                if event["event"] == name and match.items() <= event.get("data", {}).items():
                    return True
            self._events.clear()
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._socket.settimeout(left)
            try:
                self._events.append(self._read())
            except TimeoutError:
                return False

    def _read(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            data = self._socket.recv(65536)
            if not data:
                raise LabError(f"QEMU closed {self.path}: the machine has ended.")
            self._buffer += data
        line, _newline, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise LabError(f"What answers on {self.path} is not QEMU: it said {line[:80]!r}.")
        return answer


def _reason(error: OSError) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
