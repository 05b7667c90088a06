# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NICs, their network devices, and what is stacked on them."""

from __future__ import annotations

import os
import shutil

import pytest

MLX = {"vendor": "0x15b3\n", "device": "0x1021\n", "class": "0x020000\n", "numa_node": "0\n", "local_cpulist": "0-31\n"}
FIRST = "pci0000:17/0000:17:01.0/0000:18:00.0"
SECOND = "pci0000:17/0000:17:01.0/0000:18:00.1"


def by_name(topology):
    return {nic["name"] or nic["pci"]: nic for nic in topology["nics"]}


def netdevs(topology):
    return {device["name"]: device for device in topology["netdevs"]}


def test_a_port(host):
    host.pci(FIRST, **MLX)
    host.add({"sys/devices/%s/driver" % FIRST: host.Link("../../../../bus/pci/drivers/mlx5_core")})
    host.netdev(FIRST, "ens1f0", speed="400000\n", carrier="1\n", operstate="up\n", queues__rx_0="", ifindex="2\n")
    for number in range(4):
        host.add({"sys/devices/%s/net/ens1f0/queues/%s-%d" % (FIRST, way, number): None for way in ("rx", "tx")})
    found = host.discover()
    nic = found["nics"][0]
    expected = {
        "name": "ens1f0",
        "netdevs": ["ens1f0"],
        "pci": "0000:18:00.0",
        "class": "0x020000",
        "vendor": "0x15b3",
        "device": "0x1021",
        "driver": "mlx5_core",
        "numa_node": 0,
        "numa_source": "numa_node",
        "local_cpulist": "0-31",
        "pcie_root": "pci0000:17",
        "bridges": ["0000:17:01.0"],
        "speed_mbps": 400000,
        "carrier": True,
        "up": True,
        "operstate": "up",
        "rx_queues": 4,
        "tx_queues": 4,
        "function": None,
        "physfn": None,
        "vfs": [],
        "uppers": [],
        "tso_max_size": None,
        "channels": None,
    }
    assert {key: nic[key] for key in expected} == expected
    assert netdevs(found)["ens1f0"]["kind"] == "physical"
    assert netdevs(found)["ens1f0"]["nics"] == ["ens1f0"]


def test_a_nic_that_sits_in_a_pods_namespace(host):
    """Its function stays on the bus when its device leaves sys/class/net."""
    host.pci(FIRST, **MLX).add({"sys/class/net": None})
    found = host.discover()
    assert [(nic["name"], nic["pci"], nic["up"], nic["speed_mbps"]) for nic in found["nics"]] == [
        (None, "0000:18:00.0", None, None)
    ]
    assert {
        "what": "nics.0000:18:00.0.up",
        "path": "sys/class/net",
        "why": "no network device of this NIC is seen",
    } in found["unknown"]


def test_a_capture_without_sys_class_net(host):
    host.pci(FIRST, **MLX).add({"sys/devices/%s/net/ens1f0/speed" % FIRST: "100000\n"})
    host.pci(SECOND, **MLX).add({"sys/devices/%s/virtio3/net/eth9" % SECOND: None})
    assert [nic["name"] for nic in host.discover()["nics"]] == ["ens1f0", "eth9"]


@pytest.mark.parametrize(
    "speed, value",
    [("-1\n", None), ("65535\n", None), ("4294967295\n", None), ("0\n", None), ("25000\n", 25000), ("fast", None)],
)
def test_speeds(host, speed, value):
    host.pci(FIRST, **MLX).netdev(FIRST, "ens1f0", speed=speed)
    found = host.discover()
    assert found["nics"][0]["speed_mbps"] == value
    assert any(note["what"] == "nics.ens1f0.speed_mbps" for note in found["unknown"]) == (value is None)


def test_virtio(host):
    host.pci("pci0000:00/0000:00:03.0", **dict(MLX, vendor="0x1af4", device="0x1041", numa_node="-1"))
    host.netdev("pci0000:00/0000:00:03.0/virtio2", "eth0")
    nic = host.discover()["nics"][0]
    assert (nic["name"], nic["pci"], nic["numa_node"], nic["numa_source"]) == ("eth0", "0000:00:03.0", None, None)


def test_hardware_without_pci(host):
    vmbus = "LNXSYSTM:00/LNXSYBUS:00/VMBUS:00/f8615163-0000-1000-2000-00155d3a0a01"
    host.netdev(vmbus, "eth0").add(
        {"sys/devices/%s/driver" % vmbus: host.Link("../../../../bus/vmbus/drivers/hv_netvsc")}
    )
    host.netdev("qeth/0.0.f500", "encf500")
    host.pci("pci0000:00/0000:00:14.0", **{"class": "0x0c0330", "vendor": "0x8086"})
    host.netdev("pci0000:00/0000:00:14.0/usb1/1-3/1-3:1.0", "enx001122334455")
    found = host.discover()
    assert [(nic["name"], nic["pci"], nic["driver"]) for nic in found["nics"]] == [
        ("encf500", None, None),
        ("enx001122334455", None, None),
        ("eth0", None, "hv_netvsc"),
    ]
    assert {device["kind"] for device in found["netdevs"]} == {"physical"}


def test_two_ports_on_one_function(host):
    host.pci(FIRST, **MLX)
    host.netdev(FIRST, "eth9", dev_port="0\n").netdev(FIRST, "eth2", dev_port="1\n")
    nic = host.discover()["nics"][0]
    assert (nic["name"], nic["netdevs"]) == ("eth9", ["eth9", "eth2"])


def test_representors_are_no_nics(host):
    host.pci(FIRST, **MLX)
    host.netdev(FIRST, "eth0", phys_port_name="pf0vf0\n").netdev(FIRST, "eth1", phys_port_name="c1pf0sf88\n")
    host.netdev(FIRST, "ens1f0np0", phys_port_name="p0\n")
    found = host.discover()
    assert [(nic["name"], nic["netdevs"]) for nic in found["nics"]] == [("ens1f0np0", ["ens1f0np0"])]
    assert {name: device["kind"] for name, device in netdevs(found).items()} == {
        "eth0": "virtual",
        "eth1": "virtual",
        "ens1f0np0": "physical",
    }


def test_a_representor_whose_port_has_left_does_not_become_the_port(host):
    host.pci(FIRST, **MLX).netdev(FIRST, "eth0", phys_port_name="pf0vf0\n")
    assert host.discover()["nics"][0]["netdevs"] == []
    shutil.rmtree(host.top / "sys/class")
    host.add({"sys/devices/%s/net/ens1f0np0/phys_port_name" % FIRST: "p0\n"})
    assert host.discover()["nics"][0]["netdevs"] == ["ens1f0np0"]


def test_a_sub_function_belongs_to_its_nic_and_is_none(host):
    host.pci(FIRST, **MLX).netdev(FIRST, "ens1f0").netdev(FIRST + "/mlx5_core.sf.4", "ens1f0s4")
    found = host.discover()
    assert [nic["netdevs"] for nic in found["nics"]] == [["ens1f0"]]
    assert netdevs(found)["ens1f0s4"]["nics"] == ["ens1f0"]


def test_virtual_functions(host):
    vf = "pci0000:17/0000:17:01.0/0000:18:02.0"
    host.pci(FIRST, **dict(MLX, numa_node="1\n")).netdev(FIRST, "ens1f0")
    host.add({"sys/devices/%s/sriov_totalvfs" % FIRST: "8\n"})
    host.add(
        {
            "sys/devices/%s/virtfn%d" % (FIRST, number): host.Link("../0000:18:%02x.%d" % (2 + number // 8, number % 8))
            for number in range(11)
        }
    )
    host.pci(vf, **dict(MLX, numa_node="-1\n")).add({"sys/devices/%s/physfn" % vf: host.Link("../0000:18:00.0")})
    found = by_name(host.discover())
    pf = found["ens1f0"]
    assert (pf["function"], pf["sriov_total"], len(pf["vfs"])) == ("pf", 8, 11)
    assert pf["vfs"][0] == "0000:18:02.0" and pf["vfs"][10] == "0000:18:03.2", "by number, not by name"
    assert {key: found["0000:18:02.0"][key] for key in ("function", "physfn", "numa_node", "numa_source")} == {
        "function": "vf",
        "physfn": "0000:18:00.0",
        "numa_node": 1,
        "numa_source": "physfn",
    }


def test_a_virtual_function_in_a_guest_knows_no_node(host):
    host.pci(FIRST, **dict(MLX, numa_node="-1\n")).add({"sys/devices/%s/physfn" % FIRST: host.Link("../0000:99:00.0")})
    found = host.discover()
    assert (found["nics"][0]["numa_node"], found["nics"][0]["numa_source"]) == (None, None)
    assert [note["why"] for note in found["unknown"] if note["what"].endswith(".numa_node")] == [
        "-1: the firmware does not say"
    ]


def test_numa_node_garbage_is_unknown(host):
    host.pci(FIRST, **dict(MLX, numa_node="(null)\n"))
    found = host.discover()
    assert found["nics"][0]["numa_node"] is None
    assert [note["why"] for note in found["unknown"] if note["what"].endswith(".numa_node")] == [
        "makes no sense: '(null)'"
    ]


def stack(host):
    """ens1f0 and ens1f1 under bond0, a VLAN on it, a bridge over the VLAN; a macvlan on ens1f1."""
    host.pci(FIRST, **MLX).netdev(FIRST, "ens1f0", upper_bond0="").pci(SECOND, **MLX).netdev(
        SECOND, "ens1f1", upper_bond0=""
    )
    host.netdev(None, "bond0", bonding__slaves="ens1f0 ens1f1\n", uevent="DEVTYPE=bond\n")
    host.netdev(None, "bond0.10", uevent="DEVTYPE=vlan\nINTERFACE=bond0.10\n", lower_bond0="")
    host.netdev(None, "br0", bridge__stp_state="0\n")
    host.add({"sys/devices/virtual/net/br0/brif/bond0.10": host.Link("../../bond0.10/brport")})
    host.netdev(None, "macvlan0", lower_ens1f1="", uevent="INTERFACE=macvlan0\n")
    host.netdev(None, "lo", flags="0x9\n")
    return host


def test_stacks_are_resolved_to_their_nics(host):
    found = netdevs(stack(host).discover())
    assert {name: (device["kind"], device["nics"]) for name, device in found.items()} == {
        "bond0": ("bond", ["ens1f0", "ens1f1"]),
        "bond0.10": ("vlan", ["ens1f0", "ens1f1"]),
        "br0": ("bridge", ["ens1f0", "ens1f1"]),
        "ens1f0": ("physical", ["ens1f0"]),
        "ens1f1": ("physical", ["ens1f1"]),
        "lo": ("virtual", []),
        "macvlan0": ("virtual", ["ens1f1"]),
    }
    assert found["bond0.10"]["lower"] == ["bond0"] and found["br0"]["lower"] == ["bond0.10"]


def test_uppers_are_what_is_stacked_directly_on_a_nic(host):
    found = by_name(stack(host).discover())
    assert found["ens1f0"]["uppers"] == ["bond0"]
    assert found["ens1f1"]["uppers"] == ["bond0", "macvlan0"]


def test_a_vlan_that_only_procfs_tells(host):
    host.pci(FIRST, **MLX).netdev(FIRST, "eth0").netdev(None, "storage")
    host.add(
        {
            "proc/net/vlan/config": "VLAN Dev name | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\nstorage   | 10  | eth0\n"
        }
    )
    device = netdevs(host.discover())["storage"]
    assert (device["kind"], device["lower"], device["nics"]) == ("vlan", ["eth0"], ["eth0"])


def test_a_bond_that_only_procfs_tells(host):
    host.pci(FIRST, **MLX).netdev(FIRST, "eth0").netdev(None, "bond7", bonding__mode="802.3ad 4\n")
    host.add(
        {
            "proc/net/bonding/bond7": "Ethernet Channel Bonding Driver\n\nSlave Interface: eth0\nMII Status: up\nSlave Interface: eth1\n"
        }
    )
    assert netdevs(host.discover())["bond7"]["lower"] == ["eth0", "eth1"]


def test_a_team(host):
    host.pci(FIRST, **MLX).netdev(FIRST, "eth0").netdev(None, "team0", lower_eth0="")
    assert netdevs(host.discover())["team0"]["kind"] == "team"


def test_stacks_that_bite_their_tail_end(host):
    host.netdev(None, "a", lower_b="").netdev(None, "b", lower_c="").netdev(None, "c", lower_a="", lower_c="")
    assert all(device["nics"] == [] for device in host.discover()["netdevs"])


ROUTE = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def test_the_default_route_through_a_stack(host):
    stack(host).add({"proc/net/route": ROUTE + "br0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"})
    found = host.discover()
    assert {nic["name"]: nic["default_route"] for nic in found["nics"]} == {"ens1f0": True, "ens1f1": True}
    assert [name for name, device in netdevs(found).items() if device["default_route"]] == ["br0"]


def test_no_default_route_is_not_an_unknown_one(host):
    stack(host).add({"proc/net/route": ROUTE + "br0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"})
    found = host.discover()
    assert {nic["default_route"] for nic in found["nics"]} == {False}


def test_no_routing_table_is_unknown(host):
    found = stack(host).discover()
    assert {nic["default_route"] for nic in found["nics"]} == {None}
    assert any(note["what"] == "nics.*.default_route" for note in found["unknown"])


def test_procfs_of_a_live_kernel_is_read_through_self(host):
    stack(host).add({"proc/net": host.Link("self/net"), "proc/self": host.Link("4711")})
    host.add({"proc/4711/net/route": ROUTE + "ens1f0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"})
    assert by_name(host.discover())["ens1f0"]["default_route"] is True


def test_a_dangling_device_is_listed_with_what_its_link_tells(host):
    host.add(
        {"sys/class/net/br7": host.Link("../../devices/virtual/net/br7"), "sys/class/net/bonding_masters": "bond0\n"}
    )
    host.add({"sys/class/net/eth7": host.Link("../../devices/pci0000:00/0000:00:07.0/net/eth7")})
    found = host.discover()
    assert {name: (device["kind"], device["up"]) for name, device in netdevs(found).items()} == {
        "br7": ("virtual", None),
        "eth7": ("physical", None),
    }
    assert found["nics"] == []
    notes = [(note["what"], note["why"]) for note in found["unknown"]]
    assert ("netdevs.br7.up", "dangling link") in notes
    assert ("nics", "nothing of the PCI function of eth7 can be read") in notes


def test_a_capture_that_copied_folders_in_place_of_links(host):
    host.pci(FIRST, **MLX)
    host.add(
        {"sys/class/net/eth0/flags": "0x1003\n", "sys/class/net/eth0/device": host.Link("../../../devices/" + FIRST)}
    )
    host.add({"sys/class/net/dummy0/flags": "0x1003\n"})
    found = host.discover()
    assert [(nic["name"], nic["up"]) for nic in found["nics"]] == [("eth0", True)]
    assert netdevs(found)["dummy0"]["kind"] == "virtual"


def test_a_device_of_a_function_that_is_no_nic(host):
    """A coprocessor's host interface is a network device on no NIC."""
    host.pci(FIRST, **dict(MLX, **{"class": "0x0b4000"})).netdev(FIRST, "mic0")
    found = host.discover()
    assert found["nics"] == []
    assert netdevs(found)["mic0"]["kind"] == "physical" and netdevs(found)["mic0"]["nics"] == []


def ports(host, hca, device, **of):
    for number, (layer, rate, state) in of.items():
        folder = "sys/devices/%s/infiniband/%s/ports/%s/" % (device, hca, number.strip("p"))
        host.add({folder + "link_layer": layer, folder + "rate": rate, folder + "state": state})
    host.add({"sys/class/infiniband/" + hca: host.Link("../../devices/%s/infiniband/%s" % (device, hca))})


def test_an_hca_with_and_one_without_a_network_device(host):
    host.pci(FIRST, **MLX).netdev(FIRST, "ens1f0np0").pci(SECOND, **dict(MLX, **{"class": "0x0c0600"}))
    ports(host, "mlx5_0", FIRST, p1=("Ethernet\n", "400 Gb/sec (4X NDR)\n", "4: ACTIVE\n"))
    ports(
        host,
        "qib0",
        SECOND,
        p1=("InfiniBand\n", "40 Gb/sec (4X QDR)\n", "1: DOWN\n"),
        p2=("InfiniBand\n", "2.5 Gb/sec (1X SDR)\n", "2: INIT\n"),
    )
    found = by_name(host.discover())
    assert found["ens1f0np0"]["infiniband"] == [
        {"name": "mlx5_0", "port": 1, "link_layer": "Ethernet", "rate_gbps": 400, "state": "ACTIVE"}
    ]
    assert [(port["port"], port["rate_gbps"], port["state"]) for port in found["0000:18:00.1"]["infiniband"]] == [
        (1, 40, "DOWN"),
        (2, 2.5, "INIT"),
    ]


def test_an_hca_makes_a_nic_of_any_function(host):
    host.pci(FIRST, **dict(MLX, **{"class": "0x088000"}))
    ports(host, "efa_0", FIRST, p1=("Unspecified\n", "100 Gb/sec (4X EDR)\n", "4: ACTIVE\n"))
    assert [nic["pci"] for nic in host.discover()["nics"]] == ["0000:18:00.0"]


def test_an_hca_without_sys_class_or_with_garbage(host):
    host.pci(FIRST, **MLX).add({"sys/devices/%s/infiniband/mlx5_0/ports/1/rate" % FIRST: "(null)\n"})
    found = host.discover()
    assert found["nics"][0]["infiniband"] == [
        {"name": "mlx5_0", "port": 1, "link_layer": None, "rate_gbps": None, "state": None}
    ]
    assert len([note for note in found["unknown"] if note["what"] == "nics.*.infiniband.mlx5_0"]) == 3


def test_software_rdma_is_no_nic_and_a_lost_hca_is_noted(host):
    host.add(
        {
            "sys/class/infiniband/rxe0": host.Link("../../devices/virtual/infiniband/rxe0"),
            "sys/devices/virtual/infiniband/rxe0/fw_ver": "x",
        }
    )
    host.add({"sys/class/infiniband/scif0": host.Link("../../devices/scif_dma_0/infiniband/scif0")})
    found = host.discover()
    assert found["nics"] == []
    assert [note["path"] for note in found["unknown"] if note["what"] == "nics.*.infiniband"] == [
        "sys/class/infiniband/scif0"
    ]


def test_names_with_shell_characters_and_bytes_that_are_no_text(host):
    host.pci(FIRST, **MLX).netdev(FIRST, "$(reboot)").netdev(None, "a;b 'c'")
    os.symlink("../../devices/virtual/net/x", os.fsencode(str(host.top)) + b"/sys/class/net/eth\xff")
    found = host.discover()
    assert sorted(netdevs(found)) == ["$(reboot)", "a;b 'c'", "eth\\udcff"]
    assert found["nics"][0]["name"] == "$(reboot)"


def test_a_function_with_two_ports_is_up_if_one_is():
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import nics

    assert [nics._any(answers) for answers in ([False, True], [False, False], [None, False], [None, True])] == [
        True,
        False,
        None,
        True,
    ]
    assert [nics._sum(speeds) for speeds in ([10000, None], [10000, 10000], [None, None])] == [10000, 20000, None]
