# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drivers call their interrupts: which queue one serves, and whether the kernel manages its affinity.

One table per question, drawn from the drivers' own format strings and from captured /proc/interrupts. Kinds: ``queue`` (receive
and transmit, or completions of both), ``rx``, ``tx``, ``ceq`` (RDMA completions), ``aeq`` (asynchronous events), ``misc``.
"""

from __future__ import annotations

import re

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"

# (pattern, kind); the first match wins; the group, where there is one, is the queue number
_TABLE = (
    # Mellanox: mlx5 shares its completion vectors between Ethernet and RDMA
    (r"mlx5_(?:sf_)?comp(\d+)@", "queue"),
    (r"mlx5_combined(\d+)@", "queue"),
    (r"mlx5_(?:async|cmd_eq|pages_eq|sf_ctrl|ctrl)", "aeq"),
    (r"mlx4-(?:comp-)?(\d+)@", "queue"),
    (r"mlx4-ib-\d+-(\d+)@", "ceq"),
    (r"mlx4-async", "aeq"),
    # RDMA functions of Ethernet cards
    (r"irdma-.*-(?:AEQ)?CEQ-(\d+)\Z", "ceq"),
    (r"irdma-.*-AEQ\Z", "aeq"),
    (r"(?:AEQ)?CEQ\Z", "ceq"),  # irdma before 6.6, i40iw
    (r"bnxt_(?:re|qplib)[-_]nq-(\d+)", "ceq"),
    (r"bnxt_(?:re|qplib)[-_]creq", "aeq"),
    (r"hns-(?:%s-)?ceq-(\d+)\Z" % _ADDRESS, "ceq"),
    (r"hns-(?:%s-)?aeq-\d+\Z" % _ADDRESS, "aeq"),
    (r"hns-(?:%s-)?abn-\d+\Z" % _ADDRESS, "misc"),
    (r"erdma-ceq(\d+)@", "ceq"),
    (r"erdma-common@", "aeq"),
    (r"efa-comp(\d+)@", "ceq"),
    # control vectors whose names look like queues
    (r".*:fdir-TxRx-\d+\Z", "misc"),
    (r".*:ctrl-TxRx-\d+\Z", "misc"),
    (r".*[:-](?:misc|mbx|ll_ts|mgmnt|lsc|exn|err|notify|aux|FWeventq)(?:@.*|-%s)?\Z" % _ADDRESS, "misc"),
    (r".*-(?:event|Mailbox|sp)-\d+\Z", "misc"),
    # cards of clouds and hypervisors
    (r"gve-ntfy-blk(\d+)@", "queue"),
    (r".*-ntfy-block\.(\d+)\Z", "queue"),
    (r"mana_q(\d+)@", "queue"),
    (r"mana_hwc@", "misc"),
    (r"virtio\d+-input(?:\.(\d+))?\Z", "rx"),
    (r"virtio\d+-output(?:\.(\d+))?\Z", "tx"),
    (r".*-q(\d+)-rx\Z", "rx"),  # xen-netfront
    (r".*-q(\d+)-tx\Z", "tx"),
    # Omni-Path and QLogic InfiniBand
    (r"hfi\d+_\d+ (?:nd )?kctxt(\d+)\Z", "rx"),
    (r"hfi\d+_\d+ sdma(\d+)\Z", "tx"),
    (r"ib_qib\d+ \(kctx\)", "rx"),
    # Chelsio
    (r".* \(queue (\d+)\)\Z", "queue"),
    (r".*-Rx(\d+)\Z", "queue"),
    (r".*-rdma(?:-ciq)?(\d+)\Z", "ceq"),
    # what most drivers share: <device>-TxRx-<n>, -Tx-Rx-<n> (ena), -txrx-, -rxtx-, -fp-<n> (bnx2x, qede), -rx-<n>, -tx-<n>, -q<n>
    (r".*[-_:](?:[Tt]x-?[Rr]x|[Rr]x-?[Tt]x|fp|slice)[-_.]?(\d+)\Z", "queue"),
    (r".*[-_:](?:rx|Rx|RX)[-_.]?(\d+)\Z", "rx"),
    (r".*[-_:](?:tx|Tx|TX)[-_.]?(\d+)\Z", "tx"),
    (r".*-q(\d+)\Z", "queue"),  # be2net
)
_ANY = re.compile("|".join("(?P<row%d>%s)" % (row, pattern) for row, (pattern, _kind) in enumerate(_TABLE)), re.ASCII)
_ROWS = frozenset(_ANY.groupindex.values())
_CUT = re.compile(r"-(?:T|Tx|TxR|TxRx|TxRx-)\Z", re.ASCII)
_NUMBER = re.compile(r"-(\d+)\Z", re.ASCII)

# (pattern, managed): interrupts whose mask the kernel keeps and user space cannot write
_MANAGED = [
    (re.compile(pattern, re.ASCII), managed)
    for pattern, managed in (
        (r"nvme\d+q0\Z", False),  # the admin queue
        (r"nvme\d+q\d+\Z", True),
        (r"virtio\d+-req\.\d+\Z", True),  # virtio-blk
        (r"virtio\d+-(?:config|control|input|output|event|virtqueues)", False),
        (r"megasas\d+-msix\d+\Z", True),
        (r"mpt[23]sas\d+-msix\d+\Z", True),
        (r"mlx5_sf_", None),
    )
]


def kind_and_queue(action, netdev=None):
    """(kind, queue number or None) of an interrupt of a NIC; netdev: the name of its network device, where one is known.

    A bare device name is ``misc`` (the link or slow-path vector); that the only vector of a card also carries its data is for
    the caller to see.
    """
    match = _ANY.match(action)
    if match:
        row = match.lastgroup
        inner = _ANY.groupindex[row] + 1  # the number's group, if the row has one, is the next
        number = match.group(inner) if inner <= _ANY.groups and inner not in _ROWS else None
        return _TABLE[int(row[3:])][1], None if number is None else int(number[:9])
    if netdev and netdev in action:
        rest = action.partition(netdev)[2]
        match = _NUMBER.match(rest)  # tg3, bnx2, sfc, mlx4_en, cxgb4vf
        if match:
            return "queue", int(match.group(1)[:9])
        if _CUT.match(rest):  # the number did not fit
            return "queue", None
    return "misc", None


def managed(action, of_nic):
    """True, False, or None where neither the name nor the kind of device tells. of_nic: the interrupt belongs to a NIC."""
    for pattern, answer in _MANAGED:
        if pattern.match(action):
            return answer
    return False if of_nic else None
