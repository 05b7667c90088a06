# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NIC drivers: PCI ids, default queues, and the names their interrupts carry in /proc/interrupts.

A layout gives the vectors in the order of the device's table. Handlers for queues are requested when the interface opens,
save by drivers marked `probe`, so an interface that is down has vectors without handlers. `spread` drivers set the affinity
of their queue vectors themselves, over the CPUs near the device first; the others' start at default_smp_affinity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .pci import Vector


@dataclasses.dataclass(frozen=True)
class Driver:
    """ids is "vendor:device"; queues maps the number of online CPUs to the default; `tx` is the number of transmit queues, None as receive."""

    ids: str
    speed: int
    queues: Callable[[int], int]
    layout: Callable
    probe: bool = False
    spread: bool = False
    tx: int | None = None
    hca: str | None = None
    pci_class: str = "020000"
    parent: str | None = None
    vf: str | None = None
    pci: bool = True


def _numbered(names, kind, start=0, first=0):
    """Vectors from table index `start`, for queues from `first`."""
    return [Vector(start + place, name, kind, first + place) for place, name in enumerate(names)]


def _first_misc(misc, name, kind="misc"):
    """The one for events first, then one vector per queue."""

    def layout(nic):
        return [
            Vector(0, misc.format(n=nic), kind),
            *_numbered([name.format(n=nic, q=q) for q in range(nic.queues)], "queue", 1),
        ]

    return layout


def _ice(nic):
    out = [
        Vector(0, f"ice-{nic.address}:misc"),
        *_numbered([f"ice-{nic.name}-TxRx-{q}" for q in range(nic.queues)], "queue", 1),
    ]
    if nic.kernel.at_least(6, 7):
        out.append(Vector(len(out), f"ice-{nic.address}:ll_ts"))
    return out + _irdma(nic, len(out))


def _i40e(nic):
    out = [
        Vector(0, f"i40e-{nic.address}:misc"),
        *_numbered([f"i40e-{nic.name}-TxRx-{q}" for q in range(nic.queues)], "queue", 1),
    ]
    out.append(Vector(len(out), f"i40e-{nic.address}:fdir-TxRx-0"))
    return out + _irdma(nic, len(out))


def _irdma(nic, start):
    if not nic.ceqs:
        return []
    names = [f"irdma-{nic.address}-CEQ-{q}" for q in range(nic.ceqs)]
    return [Vector(start, f"irdma-{nic.address}-AEQ", "aeq"), *_numbered(names, "ceq", start + 1)]


def _last_misc(name, misc):
    def layout(nic):
        queues = _numbered([name.format(n=nic, q=q) for q in range(nic.queues)], "queue")
        return [*queues, Vector(len(queues), misc.format(n=nic))]

    return layout


def _e1000e(nic):
    return [Vector(0, f"{nic.name}-rx-0", "rx", 0), Vector(1, f"{nic.name}-tx-0", "tx", 0), Vector(2, nic.name)]


def _tg3(nic):
    """The first vector carries the link and the transmit queue; the driver numbers receive queues from 1."""
    names = [f"{nic.name}-rx-{q + 1}" for q in range(nic.queues)]
    return [Vector(0, f"{nic.name}-tx-0", "tx", 0), *_numbered(names, "rx", 1, 1)]


def _bnxt(nic):
    """The driver keeps 17 characters of a name, so long interface names lose the queue's number."""
    return _numbered([f"{nic.name}-TxRx-{q}"[:17] for q in range(nic.queues)], "queue")


def _gve(nic):
    """Notification blocks, transmit first, then receive, then management; names are cut at 31 characters."""
    names = [f"gve-ntfy-blk{block}@pci:{nic.address}"[:31] for block in range(nic.queues * 2)]
    blocks = _numbered(names[: nic.queues], "tx") + _numbered(names[nic.queues :], "rx", nic.queues)
    return [*blocks, Vector(len(blocks), f"gve-mgmnt@pci:{nic.address}"[:31])]


def _virtio(nic):
    out = [Vector(0, f"virtio{nic.virtio}-config")]
    for queue in range(nic.queues):
        out.append(Vector(len(out), f"virtio{nic.virtio}-input.{queue}", "rx", queue))
        out.append(Vector(len(out), f"virtio{nic.virtio}-output.{queue}", "tx", queue))
    return out


def _qib(nic):
    """An InfiniBand HCA whose receive contexts all carry one name, with a space in it."""
    names = ["", " (buf avail)", " (sdma 0)", " (sdmaI 0)", " (sdmaP 0)", " (sdmaC 0)"]
    out = [Vector(place, f"ib_{nic.hca_name}{name}") for place, name in enumerate(names)]
    return out + [Vector(len(out) + queue, f"ib_{nic.hca_name} (kctx)", "rx") for queue in range(nic.queues)]


def _none(nic):
    return []


def _up_to(most):
    return lambda cpus: min(most, cpus)


DRIVERS = {
    "mlx5_core": Driver(
        "15b3:1021",
        400000,
        _up_to(63),
        _first_misc("mlx5_async0@pci:{n.address}", "mlx5_comp{q}@pci:{n.address}", "aeq"),
        probe=True,
        spread=True,
        hca="mlx5_",
        vf="mlx5_core",
    ),
    "ice": Driver("8086:1592", 100000, _up_to(256), _ice, spread=True, vf="iavf"),
    "i40e": Driver("8086:1583", 40000, _up_to(256), _i40e, spread=True, vf="iavf"),
    "iavf": Driver(
        "8086:1889", 25000, _up_to(16), _first_misc("iavf-{n.address}:mbx", "iavf-{n.name}-TxRx-{q}"), spread=True
    ),
    "ixgbe": Driver(
        "8086:10fb", 10000, _up_to(63), _last_misc("{n.name}-TxRx-{q}", "{n.name}"), spread=True, vf="ixgbevf"
    ),
    "ixgbevf": Driver("8086:10ed", 10000, _up_to(2), _last_misc("{n.name}-TxRx-{q}", "{n.name}")),
    "igb": Driver("8086:1521", 1000, _up_to(8), _first_misc("{n.name}", "{n.name}-TxRx-{q}"), vf="igbvf"),
    "e1000e": Driver("8086:10d3", 1000, _up_to(1), _e1000e),
    "tg3": Driver("14e4:165f", 1000, _up_to(4), _tg3, tx=1),
    "bnxt_en": Driver("14e4:1750", 25000, _up_to(8), _bnxt, spread=True, vf="bnxt_en"),
    "ena": Driver(
        "1d0f:ec20", 0, _up_to(32), _first_misc("ena-mgmnt@pci:{n.address}", "{n.name}-Tx-Rx-{q}"), spread=True
    ),
    "gve": Driver("1ae0:0042", 100000, _up_to(16), _gve, spread=True),
    "virtio_net": Driver("1af4:1041", 0, _up_to(1), _virtio, probe=True, spread=True, parent="virtio"),
    "hns3": Driver(
        "19e5:a222", 100000, _up_to(64), _first_misc("hclge-misc-{n.address}", "hns3-{n.address}-TxRx-{q}"), spread=True
    ),
    "qib": Driver("1077:7322", 40000, _up_to(1), _qib, probe=True, hca="qib", pci_class="0c0600"),
    "vfio-pci": Driver("15b3:101e", 0, _up_to(0), _none),
    "none": Driver("8086:1521", 0, _up_to(0), _none),
    "hv_netvsc": Driver("", 50000, _up_to(8), _none, pci=False),
    "qeth": Driver("", 10000, _up_to(1), _none, pci=False),
    "stmmaceth": Driver("", 1000, _up_to(1), _none, pci=False),
}
