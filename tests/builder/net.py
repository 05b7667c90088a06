# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Netdevs in sysfs: those of NICs, RDMA devices beside them, and bonds, VLANs, bridges and other virtual ones above; routes of /proc/net."""

from __future__ import annotations

import dataclasses

from . import lists
from .spec import SpecError, interface_name, read

KINDS = {"bond", "vlan", "bridge", "team", "veth", "netkit", "dummy"}
FIELDS = {
    "name": (str, None),
    "kind": (KINDS, "dummy"),
    "lower": ((str, [str]), []),
    "id": (range(0, 4095), None),
    "state": ({"up", "nolink", "down"}, "up"),
}
UP, BROADCAST, LOOPBACK, MASTER, SLAVE, MULTICAST = 0x1, 0x2, 0x8, 0x400, 0x800, 0x1000
RATES = {
    400: "400 Gb/sec (4X NDR)",
    200: "200 Gb/sec (4X HDR)",
    100: "100 Gb/sec (4X EDR)",
    56: "56 Gb/sec (4X FDR)",
    40: "40 Gb/sec (4X QDR)",
    25: "25 Gb/sec (1X EDR)",
    10: "10 Gb/sec (1X QDR)",
}


@dataclasses.dataclass
class Netdev:
    """One interface; folder is its real place below the root, nic the function it belongs to."""

    name: str
    folder: str
    state: str
    speed: int | None
    mtu: int = 1500
    nic: object = None
    kind: str = "physical"
    lower: list = dataclasses.field(default_factory=list)
    vlan: int | None = None
    queues: tuple = (1, 1)
    dev_port: int = 0
    representor: str | None = None
    index: int = 0


def collect(machine):
    """All netdevs by name, in the order of their ifindex."""
    devs = {"lo": Netdev("lo", "sys/devices/virtual/net/lo", "up", None, 65536, kind="loopback")}

    def put(dev, where):
        if dev.name in devs:
            raise SpecError(f"{where}: two netdevs are called {dev.name}")
        dev.index = len(devs) + 1
        devs[dev.name] = dev

    devs["lo"].index = 1
    for nic in machine.nics:
        for port, name in enumerate(nic.names):
            put(
                Netdev(
                    name,
                    f"{nic.parent}/net/{name}",
                    nic.state,
                    nic.speed,
                    nic.mtu,
                    nic,
                    queues=(nic.queues, nic.tx_queues),
                    dev_port=port,
                ),
                "nics",
            )
        for number in range(nic.representors):
            name = f"{nic.name[:9]}r{number}"
            put(
                Netdev(
                    name,
                    f"{nic.parent}/net/{name}",
                    "up",
                    nic.speed,
                    nic.mtu,
                    nic,
                    kind="representor",
                    representor=f"pf0vf{number}",
                ),
                "nics",
            )
    for place, entry in enumerate(machine.spec.netdevs):
        where = f"netdevs[{place}]"
        want = read(entry, where, FIELDS)
        lower = [want.lower] if isinstance(want.lower, str) else want.lower
        for name in lower:
            if name not in devs:
                raise SpecError(f"{where}: lower names {name!r}: describe that netdev before")
        if want.name is None or (want.kind == "vlan" and (want.id is None or len(lower) != 1)):
            raise SpecError(f"{where} needs name, and a VLAN needs id and one lower netdev")
        interface_name(want.name, where)
        speeds = [devs[name].speed for name in lower if devs[name].speed]
        put(
            Netdev(
                want.name,
                f"sys/devices/virtual/net/{want.name}",
                want.state,
                sum(speeds) or None,
                kind=want.kind,
                lower=lower,
                vlan=want.id,
            ),
            where,
        )
    return devs


def emit(tree, machine):
    devs = machine.netdevs
    master = {name: dev for dev in devs.values() if dev.kind in ("bond", "bridge", "team") for name in dev.lower}
    for dev in devs.values():
        _one(tree, dev, master.get(dev.name), lists.mask([], machine.cpus.bits))
        for name in dev.lower:
            tree.link(f"{dev.folder}/lower_{name}", devs[name].folder)
            tree.link(f"{devs[name].folder}/upper_{dev.name}", dev.folder)
    bonds = [dev for dev in devs.values() if dev.kind == "bond"]
    if bonds:
        tree.line("sys/class/net/bonding_masters", " ".join(dev.name for dev in bonds))
    for dev in bonds:
        _bond(tree, dev, devs)
    for dev in devs.values():
        if dev.kind == "bridge":
            tree.line(f"{dev.folder}/bridge/stp_state", 0)
            for name in dev.lower:
                tree.line(f"{devs[name].folder}/brport/state", 3)
                tree.link(f"{devs[name].folder}/brport/bridge", dev.folder)
                tree.link(f"{dev.folder}/brif/{name}", f"{devs[name].folder}/brport")
    for nic in machine.nics:
        _device(tree, nic)
        if nic.hca_name:
            _hca(tree, nic)
    vlans = [dev for dev in devs.values() if dev.kind == "vlan"]
    if vlans:
        rows = ["VLAN Dev name    | VLAN ID", "Name-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD"]
        rows += [f"{dev.name:<15}| {dev.vlan}  | {dev.lower[0]}" for dev in vlans]
        tree.text("proc/net/vlan/config", "\n".join(rows) + "\n")
    _routes(tree, machine)


def _one(tree, dev, master, no_cpus):
    top = dev.folder
    up = dev.state != "down"
    infiniband = dev.nic is not None and dev.nic.link == "infiniband"
    flags = BROADCAST | MULTICAST
    if dev.kind == "loopback":
        flags = LOOPBACK
    if up:
        flags |= UP
    if master is not None and master.kind == "bond":
        flags |= SLAVE
    if dev.kind == "bond":
        flags |= MASTER
    files = {
        "flags": f"0x{flags:x}",
        "type": 772 if dev.kind == "loopback" else 32 if infiniband else 1,
        "mtu": dev.mtu,
        "ifindex": dev.index,
        "address": "00:00:00:00:00:00"
        if dev.kind == "loopback"
        else f"02:00:00:00:{dev.index >> 8:02x}:{dev.index & 255:02x}",
        "dev_port": dev.dev_port,
        "dev_id": "0x0",
        "tx_queue_len": 1000,
        "addr_assign_type": 0,
        "operstate": "unknown" if dev.kind == "loopback" else "up" if dev.state == "up" else "down",
    }
    if up:  # while an interface is down the kernel answers a read of these with an error
        files["carrier"] = int(dev.state == "up")
        if dev.speed is not None:
            files["speed"] = dev.speed if dev.state == "up" and dev.speed else -1
            files["duplex"] = "full" if dev.state == "up" else "unknown"
    if dev.representor:
        files["phys_port_name"], files["phys_switch_id"] = dev.representor, "0200000000000001"
    for name, value in files.items():
        tree.line(f"{top}/{name}", value)
    kind = f"DEVTYPE={dev.kind}\n" if dev.kind in ("bond", "vlan", "bridge") else ""
    tree.text(f"{top}/uevent", f"{kind}INTERFACE={dev.name}\nIFINDEX={dev.index}\n")
    for count, side, name in ((dev.queues[0], "rx", "rps_cpus"), (dev.queues[1], "tx", "xps_cpus")):
        for queue in range(count):
            tree.line(f"{top}/queues/{side}-{queue}/{name}", no_cpus)
    if dev.nic is not None:
        tree.link(f"{top}/device", dev.nic.parent)
    if master is not None:
        tree.link(f"{top}/master", master.folder)
    tree.folder("sys/class/net")
    tree.link(f"{top}/subsystem", "sys/class/net")
    tree.link(f"sys/class/net/{dev.name}", top)


def _bond(tree, dev, devs):
    top = f"{dev.folder}/bonding"
    tree.line(f"{top}/slaves", " ".join(dev.lower))
    tree.line(f"{top}/mode", "802.3ad 4")
    tree.line(f"{top}/mii_status", "up" if dev.state == "up" else "down")
    rows = [
        "Ethernet Channel Bonding Driver: v6.8.0",
        "",
        "Bonding Mode: IEEE 802.3ad Dynamic link aggregation",
        "MII Status: up",
        "",
    ]
    for name in dev.lower:
        tree.line(f"{devs[name].folder}/bonding_slave/state", "active")
        rows += [
            f"Slave Interface: {name}",
            "MII Status: " + ("up" if devs[name].state == "up" else "down"),
            f"Speed: {devs[name].speed or 'Unknown'}" + (" Mbps" if devs[name].speed else ""),
            "",
        ]
    tree.text(f"proc/net/bonding/{dev.name}", "\n".join(rows))


def _device(tree, nic):
    """What is between a netdev and a PCI function, or in its place where there is none."""
    if nic.virtio is not None:
        tree.folder("sys/bus/virtio/drivers/virtio_net")
        tree.link(f"{nic.parent}/driver", "sys/bus/virtio/drivers/virtio_net")
        tree.folder("sys/bus/virtio/devices")
        tree.link(f"{nic.parent}/subsystem", "sys/bus/virtio")
    elif nic.function is None:
        bus = nic.bus or "platform"
        tree.folder(f"sys/bus/{bus}/drivers/{nic.driver_name}")
        tree.link(f"{nic.folder}/driver", f"sys/bus/{bus}/drivers/{nic.driver_name}")
        tree.link(f"{nic.folder}/subsystem", f"sys/bus/{bus}")


def _hca(tree, nic):
    top = f"{nic.folder}/infiniband/{nic.hca_name}"
    active = nic.state == "up"
    gbps = nic.speed // 1000
    tree.line(f"{top}/node_type", "1: CA")
    tree.line(f"{top}/node_guid", "0200:0000:0000:0001")
    tree.link(f"{top}/device", nic.folder)
    tree.link(f"{top}/subsystem", "sys/class/infiniband")
    tree.line(
        f"{top}/ports/1/link_layer",
        "InfiniBand" if nic.link == "infiniband" or nic.driver_name == "qib" else "Ethernet",
    )
    tree.line(f"{top}/ports/1/state", "4: ACTIVE" if active else "1: DOWN")
    tree.line(f"{top}/ports/1/phys_state", "5: LinkUp" if active else "3: Disabled")
    tree.line(f"{top}/ports/1/rate", RATES.get(gbps, f"{gbps} Gb/sec") if active else "10 Gb/sec (4X SDR)")
    if nic.names:
        tree.line(f"{top}/ports/1/gid_attrs/ndevs/0", nic.names[0])
    tree.folder("sys/class/infiniband")
    tree.link(f"sys/class/infiniband/{nic.hca_name}", top)


def _routes(tree, machine):
    """Rows as the kernel pads them: 127 characters for IPv4. Addresses are of documentation networks (192.0.2.0/24, 2001:db8::/32)."""
    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"
    rows = [head]
    for metric, name in enumerate(machine.routes):
        rows.append(f"{name}\t00000000\t010200C0\t0003\t0\t0\t{100 + metric}\t00000000\t0\t0\t0")
        rows.append(f"{name}\t000200C0\t00000000\t0001\t0\t0\t{100 + metric}\t00FFFFFF\t0\t0\t0")
    tree.text("proc/net/route", "".join(f"{row:<127}\n" for row in rows))
    zero, gateway = "0" * 32, "20010db8" + "0" * 23 + "1"
    rows = [f"{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00000003 {name:>8}" for name in machine.routes6]
    rows.append(f"{zero[:-1]}1 80 {zero} 00 {zero} 00000000 00000002 00000000 80200001 {'lo':>8}")
    tree.text("proc/net/ipv6_route", "\n".join(rows) + "\n")
