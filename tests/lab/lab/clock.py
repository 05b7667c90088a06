# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast the time stamp counter of emulated machines counts, which is this machine's own (QEMU hands it through).

A kernel measures its counter against the PIT while it boots. On a machine that shares its cores that measurement goes wrong by a factor
of up to thirty; then the guest's clock, all its time limits and RCU are wrong by as much, and it looks as if it hung. So it is told.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import time

SECONDS = 0.2
STEP_KHZ = 10_000  # half of it is 0.2 % of what counters count; the kernel refines what is within 1 %
RDTSC = b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3"  # rdtsc; shl rdx, 32; or rax, rdx; ret


@functools.cache
def kernel_args() -> tuple[str, ...]:
    """The kernel argument that says it; none on a processor without that counter."""
    if platform.machine() != "x86_64":
        return ()
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(RDTSC)
        place = ctypes.c_char.from_buffer(page)
        counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(place))
        begin, since = counter(), time.monotonic_ns()
        time.sleep(SECONDS)
        end, until = counter(), time.monotonic_ns()
        del place, counter
    khz = (end - begin) * 1_000_000 / (until - since)
    return (f"tsc_early_khz={round(khz / STEP_KHZ) * STEP_KHZ}",)
