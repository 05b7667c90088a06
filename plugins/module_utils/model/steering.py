# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many queues a planned NIC shall have, and which CPUs send by which of them. Plain data in, plain data out."""

from __future__ import annotations


def channels(queues, now):
    """{"combined": n}, {"rx": n, "tx": n} or part of it: what has to be set so that a NIC has the planned queues; {} for nothing.

    queues: the plan's number. now: {"combined", "combined_max", "rx", "rx_max", "tx", "tx_max"}: int, or None for what the driver has
    not. Drivers have combined channels, or those of each direction alone; no count goes above what the driver says it can.
    """
    kinds = ("combined",) if now.get("combined_max") else ("rx", "tx")
    wanted = {kind: min(queues, now[kind + "_max"]) for kind in kinds if now.get(kind + "_max")}
    return {kind: number for kind, number in wanted.items() if number > 0 and number != now.get(kind)}


def transmit(queue_cpus, queues, cpus):
    """[set of CPU ids] for each transmit queue (XPS), so that every CPU sends by one.

    A CPU that serves a queue sends by its own, and where it serves several by all of them. The others, isolated ones among them, are
    dealt out in turn: each queue's completions fire on the CPU that serves it, near the NIC, whoever sends.

    queue_cpus: the plan's CPUs of the queues. queues: transmit queues that the device has. cpus: ids of the CPUs that are online.
    """
    found = [set() for _queue in range(queues)]
    if not queues or not queue_cpus:
        return found
    for queue in range(queues):
        cpu = queue_cpus[queue % len(queue_cpus)]
        if cpu in cpus:
            found[queue].add(cpu)
    for place, cpu in enumerate(sorted(set(cpus).difference(*found))):
        found[place % queues].add(cpu)
    return found
