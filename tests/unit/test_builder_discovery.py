# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovery gives back what the builder was told, on every named machine: the builder knows nothing of the collection's own code."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import discover, tree

pytest.importorskip("yaml")

from builder import build, lists, named, names  # noqa: E402
from builder.trees import built  # noqa: E402

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "topology.schema.json"
ACCELERATORS = {"h100", "h200", "a100", "l40s", "b200", "gb10", "geforce", "mi300x", "mi210", "gaudi2", "flex170"}


@functools.cache
def discovered(name):
    """(Machine, topology) of a named machine."""
    machine, folder = built(name)
    return machine, discover.discover(tree.Tree(str(folder)))


@pytest.mark.parametrize("name", names())
def test_discovery_follows_the_schema(name):
    jsonschema = pytest.importorskip("jsonschema")
    _machine, topology = discovered(name)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    errors = [
        f"{list(error.absolute_path)}: {error.message[:200]}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(topology)
    ]
    assert errors == []


@pytest.mark.parametrize("name", names())
def test_discovery_finds_the_cpus(name):
    machine, topology = discovered(name)
    cpus, found = machine.cpus, topology["cpus"]
    text = lists.compress
    assert (found["possible"], found["present"], found["online"]) == (
        text(cpus.possible),
        text(cpus.present),
        text(cpus.online),
    )
    assert found["offline"] == text(set(cpus.present) - set(cpus.online))
    assert found["isolated"] == text(machine.kernel.isolated)
    assert found["siblings"] == (cpus.siblings() if cpus.want.topology else None)
    if not cpus.want.topology:
        assert (found["packages"], found["cores"]) == (None, [])
        return
    assert [package["cpus"] for package in found["package_cpus"]] == cpus.packages()
    assert found["packages"] == len(cpus.packages())
    by_core = {text(ids): next(cpu for cpu in cpus.all if cpu.id == ids[0]) for ids in cpus.groups("core").values()}
    assert [core["type"] for core in found["cores"] if core["cpus"] in by_core and by_core[core["cpus"]].kind] == [
        by_core[core["cpus"]].kind for core in found["cores"] if by_core[core["cpus"]].kind
    ]
    if machine.nodes.exist:
        assert [core["node"] for core in found["cores"]] == [by_core[core["cpus"]].node for core in found["cores"]]
    if cpus.want.caches:
        assert [llc["cpus"] for llc in found["llcs"]] == [text(ids) for ids in sorted(cpus.groups("llc").values())]


@pytest.mark.parametrize("name", names())
def test_discovery_finds_the_nodes(name):
    machine, topology = discovered(name)
    if not machine.nodes.exist:
        assert topology["numa_nodes"] == []
        return
    want = [
        {
            "id": node.id,
            "cpus": lists.compress(machine.nodes.online_cpus(node.id, machine.cpus)),
            "memory_mib": node.mib,
            "has_memory": node.mib > 0,
            "distances": {str(other): value for other, value in zip(machine.nodes.ids, row)},
        }
        for node, row in zip(machine.nodes.all, machine.nodes.distances)
    ]
    assert [{key: node[key] for key in want[0]} for node in topology["numa_nodes"]] == want


@pytest.mark.parametrize("name", names())
def test_discovery_finds_the_nics(name):
    machine, topology = discovered(name)
    found = {nic["pci"] or nic["name"]: nic for nic in topology["nics"]}
    assert sorted(found) == sorted(nic.address if nic.function else nic.name for nic in machine.nics)
    for nic in machine.nics:
        one = found[nic.address if nic.function else nic.name]
        assert one["name"] == (nic.names[0] if nic.names else None)
        assert one["driver"] == (
            None if nic.driver_name == "none" else nic.driver_name if nic.virtio is None else one["driver"]
        )
        if not nic.function:
            continue
        node = nic.function.node if nic.function.node >= 0 else nic.physical.function.node if nic.physical else -1
        assert one["numa_node"] == (node if node >= 0 and machine.nodes.exist else None)
        assert (one["pcie_root"], one["bridges"]) == (nic.function.root, nic.function.above)
        assert one["vfs"] == [vf.address for vf in nic.virtuals]
        assert one["physfn"] == (nic.physical.address if nic.physical else None)
        assert [entry["irq"] for entry in one["irqs"]] == [vector.irq for vector in nic.function.vectors]
        if name == "bare-capture":
            continue
        assert [hca["name"] for hca in one["infiniband"]] == ([nic.hca_name] if nic.hca_name else [])
        if nic.names:
            assert (one["rx_queues"], one["tx_queues"]) == (nic.queues, nic.tx_queues)
            assert one["speed_mbps"] == (nic.speed or None if nic.state == "up" else None)
            assert (one["up"], one["carrier"]) == (
                nic.state != "down",
                {"up": True, "nolink": False, "down": None}[nic.state],
            )
        for entry, vector in zip(one["irqs"], nic.function.vectors):
            assert entry["name"] == vector.name
            if vector.name is not None and nic.driver_name not in ("gve", "bnxt_en"):
                assert (entry["kind"], entry["queue"]) == (vector.kind, vector.queue), vector


@pytest.mark.parametrize("name, driver", [("gve-cut", "gve"), ("bnxt-cut", "bnxt_en")])
def test_discovery_knows_queues_whose_names_were_cut(name, driver):
    machine, topology = discovered(name)
    for nic in topology["nics"]:
        vectors = next(one for one in machine.nics if one.address == nic["pci"]).function.vectors
        serving = {vector.irq for vector in vectors if vector.kind != "misc"}
        assert {entry["irq"] for entry in nic["irqs"] if entry["kind"] in ("queue", "rx", "tx")} == serving
        for entry in nic["irqs"]:  # a number that the name lost is unknown, not 0
            lost = entry["name"].endswith("-TxR")
            assert not lost or entry["queue"] is None


@pytest.mark.parametrize("name", names())
def test_discovery_tells_accelerators_from_other_displays(name):
    machine, topology = discovered(name)
    wanted = [
        one
        for one in machine.bus.functions.values()
        if one.kind in ACCELERATORS or (one.kind == "igpu" and not one.boot_vga)
    ]
    assert {gpu["pci"]: (gpu["numa_node"], gpu["pcie_root"], gpu["bridges"]) for gpu in topology["gpus"]} == {
        one.address: (one.node if one.node >= 0 else None, one.root, one.above) for one in wanted
    }
    assert topology["display"] == sorted(
        one.address for one in machine.bus.functions.values() if one.pci_class.startswith("03")
    )


@pytest.mark.parametrize("name", [name for name in names() if name != "bare-capture"])
def test_discovery_finds_the_interrupts(name):
    machine, topology = discovered(name)
    found = {irq["irq"]: irq for irq in topology["irqs"]}
    assert topology["irq_columns"] == machine.cpus.online
    for function, vector in machine.vectors():
        one = found[vector.irq]
        assert one["device"] == function.address
        if vector.name is None:
            assert (one["actions"], one["affinity"]) == ([], None)
            continue
        assert one["actions"] == [vector.name]
        assert (one["affinity"], one["effective"]) == (lists.compress(vector.mask), str(vector.effective))
        if vector.managed:
            assert one["managed"] is True
        elif function.kind == "nic":
            assert one["managed"] is False


@pytest.mark.parametrize(
    "name",
    ["ice-448", "sriov-host", "sriov-guest", "ena-arm", "ena-arm-new", "gve-cut", "bnxt-cut", "kunpeng", "hyperv"],
)
def test_discovery_attributes_interrupts_without_msi_irqs(name, tmp_path):
    """A capture without the msi_irqs folders: chip, encoded address and handler names must tell the same."""
    machine, whole = discovered(name)
    build({**named(name), "without": ["**/msi_irqs"]}, tmp_path / "root.tar")
    topology = discover.discover(tree.Tree(str(tmp_path / "root.tar")))
    for one, other in zip(topology["nics"], whole["nics"]):
        served = [entry for entry in other["irqs"] if entry["name"]]
        assert one["irqs"] == served
        assert one["irq_source"] == ("interrupts" if served else None)


def test_discovery_follows_bonds_to_both_sockets():
    _machine, topology = discovered("stacked")
    devs = {dev["name"]: dev for dev in topology["netdevs"]}
    assert devs["br0"]["nics"] == devs["bond0.100"]["nics"] == devs["bond0"]["nics"] == ["ens1np0", "ens2np0"]
    assert [devs[name]["kind"] for name in ("bond0", "bond0.100", "br0", "cilium_host", "ens1np0")] == [
        "bond",
        "vlan",
        "bridge",
        "virtual",
        "physical",
    ]
    assert {nic["name"]: nic["default_route"] for nic in topology["nics"]} == {
        "ens1np0": True,
        "ens2np0": True,
        "eth;$(id)&": False,
    }


@pytest.mark.parametrize(
    "name, facts",
    [
        ("gb10", {"arch": "aarch64", "cpu_vendor": "arm"}),
        ("s390-zvm", {"arch": "s390x", "hypervisor": "zvm"}),
        ("package-minus-one", {"arch": "ppc64le", "hypervisor": "powervm"}),
        ("hyperv", {"hypervisor": "microsoft"}),
        ("ena-arm", {"hypervisor": "amazon"}),
        ("no-topology", {"hypervisor": "xen"}),
        ("epyc-480", {"cpu_vendor": "amd", "hypervisor": "none"}),
    ],
)
def test_discovery_knows_the_kind_of_machine(name, facts):
    _machine, topology = discovered(name)
    assert {key: topology[key] for key in facts} == facts


@pytest.mark.parametrize("name, preempt", [("realtime", "rt"), ("stacked", "voluntary"), ("qib", "voluntary")])
def test_discovery_knows_preemption_and_options(name, preempt):
    machine, topology = discovered(name)
    assert topology["kernel"]["preempt"] == preempt
    assert topology["kernel"]["release"] == machine.kernel.release
    assert topology["kernel"]["config"]["CONFIG_NETKIT"] == machine.kernel.config.get("CONFIG_NETKIT", "n")
