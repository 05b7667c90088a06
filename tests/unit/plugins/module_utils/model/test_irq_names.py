# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What drivers call their interrupts."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import irq_names

KINDS = [
    # mlx5, mlx4
    ("mlx5_comp0@pci:0000:ca:00.0", None, "queue", 0),
    ("mlx5_comp63@pci:0000:ca:00.0", None, "queue", 63),
    ("mlx5_sf_comp4@pci:0000:ca:00.0", None, "queue", 4),
    ("mlx5_combined0@pci:0000:ca:00.0", None, "queue", 0),
    ("mlx5_async0@pci:0000:ca:00.0", None, "aeq", None),
    ("mlx5_async@pci:0000:19:00.0", None, "aeq", None),
    ("mlx5_pages_eq@pci:0000:01:00.0", None, "aeq", None),
    ("mlx5_cmd_eq@pci:0000:01:00.0", None, "aeq", None),
    ("mlx5_sf_ctrl0@pci:0000:ca:00.0", None, "aeq", None),
    ("mlx4-1@0000:82:00.0", None, "queue", 1),
    ("mlx4-comp-3@pci:0000:82:00.0", None, "queue", 3),
    ("mlx4-ib-1-7@0000:82:00.0", None, "ceq", 7),
    ("mlx4-async@pci:0000:82:00.0", None, "aeq", None),
    # Intel
    ("ice-ens1f0-TxRx-12", "ens1f0", "queue", 12),
    ("ice-0000:4b:00.0:misc", "ens1f0", "misc", None),
    ("ice-0000:4b:00.0:ll_ts", "ens1f0", "misc", None),
    ("ice-0000:4b:00.0:ctrl-TxRx-0", "ens1f0", "misc", None),
    ("irdma-0000:4b:00.0-CEQ-3", "ens1f0", "ceq", 3),
    ("irdma-0000:4b:00.0-AEQCEQ-0", "ens1f0", "ceq", 0),
    ("irdma-0000:4b:00.0-AEQ", "ens1f0", "aeq", None),
    ("irdma-ens1f0-CEQ-10", "ens1f0", "ceq", 10),
    ("CEQ", None, "ceq", None),
    ("i40e-eno1-TxRx-79", "eno1", "queue", 79),
    ("i40e-0000:86:00.0:misc", "eno1", "misc", None),
    ("i40e-0000:86:00.0:fdir-TxRx-0", "eno1", "misc", None),
    ("iavf-ens1-TxRx-0", "ens1", "queue", 0),
    ("iavf-0000:3b:02.0:mbx", "ens1", "misc", None),
    ("idpf-ens2-TxRx-5", "ens2", "queue", 5),
    ("idpf-Mailbox-0", "ens2", "misc", None),
    ("eth0-TxRx-7", "eth0", "queue", 7),
    ("eth0", "eth0", "misc", None),
    ("eth0-rx-0", "eth0", "rx", 0),
    ("eth0-tx-3", "eth0", "tx", 3),
    # Broadcom
    ("eno1-0", "eno1", "queue", 0),
    ("eno1-txrx-2", "eno1", "queue", 2),
    ("eno1-tx-0", "eno1", "tx", 0),
    ("eno1-rx-1", "eno1", "rx", 1),
    ("eth3-fp-2", "eth3", "queue", 2),
    ("enp129s0f0np0-TxRx-0", "enp129s0f0np0", "queue", 0),
    ("bnxt_en-eth0-TxRx-5", "eth0", "queue", 5),
    ("enp129s0f0np0-TxR", "enp129s0f0np0", "queue", None),
    ("bnxt_re-nq-2@pci:0000:81:00.0", None, "ceq", 2),
    ("bnxt_qplib_nq-1", None, "ceq", 1),
    ("bnxt_re-creq@pci:0000:81:00.0", None, "aeq", None),
    # clouds
    ("ens5-Tx-Rx-0", "ens5", "queue", 0),
    ("ena-mgmnt@pci:0000:00:05.0", "ens5", "misc", None),
    ("efa-comp3@pci:0000:00:06.0", None, "ceq", 3),
    ("efa-mgmnt@pci:0000:00:06.0", None, "misc", None),
    ("gve-ntfy-blk7@pci:0000:00:04.0", "ens4", "queue", 7),
    ("gve-mgmnt@pci:0000:00:04.0", "ens4", "misc", None),
    ("eth0-ntfy-block.3", "eth0", "queue", 3),
    ("eth0-mgmnt", "eth0", "misc", None),
    ("mana_q3@pci:7870:00:00.0", None, "queue", 3),
    ("mana_hwc@pci:7870:00:00.0", None, "misc", None),
    ("virtio1-input.0", "eth0", "rx", 0),
    ("virtio1-output.11", "eth0", "tx", 11),
    ("virtio5-input", "eth0", "rx", None),
    ("virtio1-config", "eth0", "misc", None),
    ("virtio1-control", "eth0", "misc", None),
    ("eth0-q2-rx", "eth0", "rx", 2),
    ("eth0-q2-tx", "eth0", "tx", 2),
    ("eth0-rxtx-1", "eth0", "queue", 1),
    ("eth0-event-4", "eth0", "misc", None),
    ("erdma-ceq5@pci:0000:00:07.0", None, "ceq", 5),
    ("erdma-common@pci:0000:00:07.0", None, "aeq", None),
    # others
    ("hns3-0000:bd:00.0-TxRx-0", "enp189s0f0", "queue", 0),
    ("hns3-0000:bd:00.0-Rx-4", "enp189s0f0", "rx", 4),
    ("hclge-misc-0000:bd:00.0", "enp189s0f0", "misc", None),
    ("hclgevf-misc-0000:bd:01.0", "enp189s0f0", "misc", None),
    ("hns-0000:bd:00.0-ceq-12", None, "ceq", 12),
    ("hns-0000:bd:00.0-aeq-0", None, "aeq", None),
    ("hns-0000:bd:00.0-abn-0", None, "misc", None),
    ("hfi1_0 kctxt3", None, "rx", 3),
    ("hfi1_0 nd kctxt11", None, "rx", 11),
    ("hfi1_0 sdma15", None, "tx", 15),
    ("hfi1_0", None, "misc", None),
    ("ib_qib0 (kctx)", None, "rx", None),
    ("ib_qib0", None, "misc", None),
    ("eth2-Rx5", "eth2", "queue", 5),
    ("ext0 (queue 12)", "ext0", "queue", 12),
    ("eth2-FWeventq", "eth2", "misc", None),
    ("eth2-rdma-ciq3", "eth2", "ceq", 3),
    ("LiquidIO0-pf0-rxtx-3", "eth0", "queue", 3),
    ("LiquidIO0-pf0-aux", "eth0", "misc", None),
    ("eth7-3", "eth7", "queue", 3),
    ("eth7-err", "eth7", "misc", None),
    ("eth7-notify", "eth7", "misc", None),
    ("eth0-q3", "eth0", "queue", 3),
    ("eth0:slice-2", "eth0", "queue", 2),
    ("eth0:rx-3", "eth0", "rx", 3),
    ("eth0-TxRx-%s" % ("9" * 30), "eth0", "queue", 999999999),
    ("", "eth0", "misc", None),
]


@pytest.mark.parametrize("action, netdev, kind, queue", KINDS, ids=[row[0][:40] or "empty" for row in KINDS])
def test_kinds(action, netdev, kind, queue):
    assert irq_names.kind_and_queue(action, netdev) == (kind, queue)


@pytest.mark.parametrize(
    "action, of_nic, managed",
    [
        ("nvme0q0", False, False),
        ("nvme0q1", False, True),
        ("nvme12q64", False, True),
        ("megasas1-msix5", False, True),
        ("mpt3sas0-msix3", False, True),
        ("virtio3-req.0", False, True),
        ("virtio3-config", False, False),
        ("virtio1-input.0", True, False),
        ("virtio2-request", False, None),
        ("megasas", False, None),
        ("ahci[0000:00:1f.2]", False, None),
        ("eth0-TxRx-0", True, False),
        ("mlx5_comp0@pci:0000:ca:00.0", True, False),
        ("mlx5_sf_comp0@pci:0000:ca:00.0", True, None),
    ],
)
def test_managed(action, of_nic, managed):
    assert irq_names.managed(action, of_nic) is managed
