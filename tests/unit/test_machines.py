# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Captured machines against independent ground truth: every field of their index, read from the tar and from a folder."""

from __future__ import annotations

import copy
import json
import tarfile
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist
from hypothesis import HealthCheck, given, settings, strategies as st
from nulls import unexplained

TOP = Path(__file__).resolve().parents[2]
NAMES = (
    "cnto-bm-worker1 cnto-bm-worker2 cnto-pao-bm-worker1 cnto-pao-vm-worker2 cnto-sno-vm crirm-2s-snc2-irregular crirm-2s-snc2-pmem crirm-4s-144 "
    "crirm-desktop-20 ghw-offline-cpus ghw-ryzen-1600 ghw-vm-nvidia-gpu ghw-xeon-l5640 hwloc-2s-mlx4-mic hwloc-4s-pci-conflicts "
    "hwloc-bulldozer-cgroup1 hwloc-bulldozer-cgroup2 hwloc-haswell-cod-buggy hwloc-i7-1370p-hybrid hwloc-magnycours-sparse "
    "hwloc-offline-cpu0-node0 hwloc-power7-256 hwloc-qemu-cpuless-initiators hwloc-superdome-ia64-17n hwloc-x3950m2-16pkg node-exporter-sys "
    "nri-hybrid-sample1 ul-arm-x3-a715 ul-epyc-7451-2s ul-power7-64 ul-rv64-pioneer ul-s390-lpar-drawer ul-s390-zvm ul-vbox"
).split()
SMALL = ("ghw-ryzen-1600", "hwloc-qemu-cpuless-initiators", "node-exporter-sys", "ul-s390-lpar-drawer", "cnto-sno-vm")


@pytest.fixture(scope="module")
def machines(shared):
    index = json.loads((shared / "machines" / "index.json").read_text(encoding="utf-8"))
    return {machine["name"]: machine for machine in index}


@pytest.fixture(scope="module")
def topologies(shared):
    """Each machine is read once, from its tar."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = discover(Tree(str(shared / "machines" / (name + ".tar.xz"))))
        return found[name]

    return of


@pytest.fixture(scope="module")
def validator():
    return jsonschema.Draft202012Validator(
        json.loads((TOP / "docs/schemas/topology.schema.json").read_text(encoding="utf-8"))
    )


def test_every_captured_machine_is_tested(machines):
    assert sorted(machines) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_shape(name, machines, topologies, validator):
    topology = topologies(name)
    assert [error.message for error in validator.iter_errors(topology)] == []
    assert unexplained(topology) == []


@pytest.mark.parametrize("name", NAMES)
def test_cpus(name, machines, topologies):
    truth = machines[name]["ground_truth"]
    cpus = topologies(name)["cpus"]
    assert cpus["online"] == truth["online"]
    assert cpus["offline"] == truth["offline"]
    assert cpus["boot"] == cpulist.expand(truth["online"])[0]
    for field in ("possible", "present"):
        assert cpus[field] == machines[name][field]
    assert cpus["isolated"] == machines[name]["isolated_file"]
    expected = truth["siblings"]
    assert cpus["siblings"] == (None if expected is None else [cpulist.compress(core) for core in expected])
    assert cpus["packages"] == truth["sockets"]
    per_package = truth["cores_per_socket"]
    assert cpus["cores_per_package"] == (None if isinstance(per_package, list) else per_package)
    if isinstance(per_package, list):
        counts = [sum(core["package"] == place for core in cpus["cores"]) for place in range(len(cpus["package_cpus"]))]
        assert sorted(counts) == sorted(per_package)
    assert cpus["threads_per_core"] == truth["threads_per_core"]
    assert cpus["threads_per_core_min"] == truth["threads_per_core_min"]


@pytest.mark.parametrize("name", NAMES)
def test_numa_nodes(name, machines, topologies):
    truth = machines[name]["ground_truth"]
    nodes = topologies(name)["numa_nodes"]
    assert {str(node["id"]): node["cpus"] for node in nodes} == {
        number: cpulist.intersect(cpus, truth["online"]) for number, cpus in truth["numa"].items()
    }
    assert {str(node["id"]): node["cpus_raw"] for node in nodes} == truth["numa"]


@pytest.mark.parametrize("name", NAMES)
def test_nics_displays_and_devices(name, machines, topologies):
    machine = machines[name]
    topology = topologies(name)
    nics = {nic["pci"]: nic for nic in topology["nics"] if nic["pci"]}
    assert len(nics) == len(topology["nics"])
    assert sorted(nics) == sorted(nic["pci"] for nic in machine["nics"])
    for expected in machine["nics"]:
        nic = nics[expected["pci"]]
        assert {field: nic[field] for field in ("vendor", "device", "class", "driver")} == {
            field: expected.get(field) for field in ("vendor", "device", "class", "driver")
        }
        assert nic["numa_node"] == (None if expected.get("numa_node") in ("-1", None) else int(expected["numa_node"]))
        local = expected.get("local_cpulist")
        assert nic["local_cpulist"] == (None if local is None else cpulist.compress(local))
        assert nic["pcie_root"].startswith("pci0000:")
    assert topology["display"] == sorted(gpu["pci"] for gpu in machine["gpus"])
    assert [device["name"] for device in topology["netdevs"]] == [
        device for device in machine["class_net"] or () if device != "bonding_masters"
    ]
    assert [device["name"] for device in topology["netdevs"] if device["kind"] == "bond"] == (machine["bonds"] or [])
    noted = {note["path"].rpartition("/")[2] for note in topology["unknown"] if note["what"] == "nics.*.infiniband"}
    seen = {port["name"] for nic in topology["nics"] for port in nic["infiniband"]}
    assert seen | noted == set(machine["infiniband"] or ())


@pytest.mark.parametrize("name", NAMES)
def test_architecture(name, machines, topologies):
    topology = topologies(name)
    assert topology["arch"] == machines[name]["arch"]
    if machines[name]["cpu_model"]:
        assert topology["cpu_model"] == machines[name]["cpu_model"]


@pytest.mark.parametrize("name", NAMES)
def test_interrupt_columns_are_the_online_cpus(name, machines, topologies):
    """What the index calls a confirmation of online: the header of the same snapshot's interrupts."""
    columns = topologies(name)["irq_columns"]
    if columns is not None:
        assert cpulist.compress(columns) == machines[name]["ground_truth"]["online"]


def test_llcs_and_types_that_the_notes_tell(topologies):
    assert len(topologies("ul-epyc-7451-2s")["cpus"]["llcs"]) == 16
    assert [llc["cpus"] for llc in topologies("ghw-ryzen-1600")["cpus"]["llcs"]] == ["0-2,6-8", "3-5,9-11"]
    hybrid = topologies("nri-hybrid-sample1")["cpus"]["cores"]
    assert [core["cpus"] for core in hybrid if core["type"] == "P"] == ["0-1", "2-3", "4-5", "6-7"]
    assert [core["cpus"] for core in hybrid if core["type"] == "E"] == [str(cpu) for cpu in range(8, 16)]
    assert topologies("hwloc-haswell-cod-buggy")["cpus"]["package_cpus"] == [
        {"id": 0, "cpus": "0-13"},
        {"id": 1, "cpus": "14-27"},
    ]
    assert topologies("ghw-vm-nvidia-gpu")["gpus"][0]["pci"] == "0000:06:00.0"


def test_nodes_that_are_not_ordinary(topologies):
    pmem = topologies("crirm-2s-snc2-pmem")["numa_nodes"]
    assert [node["id"] for node in pmem if not node["cpus"]] == [4, 5]
    assert all(node["has_memory"] and node["memory_mib"] for node in pmem)
    assert len(topologies("hwloc-qemu-cpuless-initiators")["numa_nodes"]) == 11


def test_vectors_of_a_machine_without_an_interrupts_file(topologies):
    nics = {nic["name"]: nic for nic in topologies("hwloc-2s-mlx4-mic")["nics"]}
    assert {name: len(nic["irqs"]) for name, nic in nics.items()} == {"eth0": 9, "eth1": 9, "ib0": 128}
    assert nics["ib0"]["infiniband"][0]["name"] == "mlx4_0" and nics["ib0"]["irq_source"] == "msi_irqs"


@pytest.mark.parametrize("name", SMALL)
def test_a_folder_reads_as_its_tar(name, shared, topologies, tmp_path):
    with tarfile.open(shared / "machines" / (name + ".tar.xz")) as tar:
        if hasattr(tarfile, "fully_trusted_filter"):
            tar.extraction_filter = tarfile.fully_trusted_filter
        tar.extractall(tmp_path / name)
    folder = discover(Tree(str(tmp_path / name)))
    assert dict(folder, root=None) == dict(topologies(name), root=None)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SMALL])
def test_every_folder_reads_as_its_tar(name, shared, topologies, tmp_path):
    test_a_folder_reads_as_its_tar(name, shared, topologies, tmp_path)


MUTATIONS = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"",
            b"(null)\n",
            b"-1\n",
            b"0-\n",
            b"0-65535\n",
            b"4294967295\n",
            b"\0" * 4096,
            b"9" * 4000,
            b"ffffffff," * 200 + b"f\n",
        ]
    ),
    st.integers(-(2**40), 2**70).map(lambda number: b"%d\n" % number),
)


@pytest.fixture(scope="module")
def base(shared):
    return Tree(str(shared / "machines" / "ghw-ryzen-1600.tar.xz"))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_mutated_machine_is_read_or_is_unknown(base, validator, data):
    files = sorted(
        path
        for path, node in base._store._nodes.items()
        if isinstance(node, bytes) and path.startswith(("sys/devices", "proc"))
    )
    chosen = data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=30, unique=True))
    changes = {path: data.draw(MUTATIONS) for path in chosen}
    tree = copy.copy(base)
    tree.__dict__.update(_store=_Changed(base._store, changes), _plain=set(), _real={}, _data={}, _why={})
    found = discover(tree)
    assert [error.message for error in validator.iter_errors(found)] == []
    assert unexplained(found) == []


class _Changed:
    """A store some of whose files hold something else."""

    def __init__(self, store, changes):
        self.entries = store.entries
        self.link = store.link
        self._store = store
        self._changes = changes

    def read(self, path, limit):
        return self._changes[path] if path in self._changes else self._store.read(path, limit)
