# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forwards one port of 127.0.0.1 to an address in a network namespace: a program of its own, one a forward.

``python3 forward.py LISTENING-DESCRIPTOR NAMESPACE ADDRESS PORT NAME``; the name only tells whose it is. The listening
socket was opened by the caller in its own namespace; this process then goes to the other one and connects from there.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:  # the other side went away, as machines do here
        writer.close()


async def _serve(listening: socket.socket, address: str, port: int) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.wait_for(asyncio.open_connection(address, port), 10)
        except (OSError, asyncio.TimeoutError):
            writer.close()
            return
        await asyncio.gather(_copy(reader, forth), _copy(back, writer))
        forth.close()
        writer.close()

    server = await asyncio.start_server(accept, sock=listening)
    await server.serve_forever()


def main() -> None:
    descriptor, namespace, address, port, _name = sys.argv[1:]
    listening = socket.socket(fileno=int(descriptor))
    other = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(other, 0):
        sys.exit(f"The namespace {namespace} cannot be entered ({os.strerror(ctypes.get_errno())}).")
    asyncio.run(_serve(listening, address, int(port)))


if __name__ == "__main__":
    main()
