# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the lab reads machines.yml, and what it refuses."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("The lab's program is for Python 3.11 and newer.", allow_module_level=True)
pytest.importorskip("yaml")

LAB = Path(__file__).resolve().parents[1] / "lab"
sys.path.insert(0, str(LAB))

from lab import spec  # noqa: E402  (found by the path above)
from lab.errors import LabError  # noqa: E402

SMALL = {
    "network": {"subnet": "10.88.0.0/24"},
    "package_sets": {"system": ["udev", "dbus"]},
    "defaults": {
        "qemu": {"disks": [{"gib": 4}], "timeout": 60, "kernel_args": ["console=ttyS0"]},
        "nspawn": {"timeout": 5, "distribution": "bookworm"},
    },
    "machines": {
        "one": {
            "kind": "qemu",
            "distribution": "trixie",
            "kernel": "6.12",
            "boot": "grub",
            "packages": ["system", "tuned", "udev"],
            "cpus": {"sockets": 2, "cores": 2, "threads": 2},
            "memory_mib": [512, 256],
            "roots": {"80": 1},
            "nics": {
                "mgmt": {"model": "virtio-net-pci", "net": "user"},
                "data": {"model": "igb", "net": "lab", "root": "80", "queues": 8},
            },
            "spare_ports": ["80", "0"],
        },
        "host": {"kind": "nspawn", "count": 2, "packages": ["system"]},
    },
}


def changed(path, value):
    """SMALL with one key set (or taken away, for None)."""
    data = copy.deepcopy(SMALL)
    *parents, last = path.split(".")
    place = data
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


def test_a_machine_is_read_whole():
    one = spec.parse(SMALL).machines["one"]
    assert one.packages == ("udev", "dbus", "tuned")  # a set's name stands for its packages, once each
    assert one.cpus.total == 8
    assert one.node_cpus == [range(0, 4), range(4, 8)]
    assert one.roots == (("80", 1),)
    assert [(n.name, n.root, n.queues, n.address) for n in one.nics] == [
        ("mgmt", "0", 1, "10.0.2.15/24"),
        ("data", "80", 8, "10.88.0.10/24"),
    ]
    assert one.spare_ports == ("80", "0")
    assert one.disks == (spec.Disk(4, "virtio-blk-pci"),)
    assert (one.timeout, one.kernel_args) == (60, ("console=ttyS0",))  # from the defaults


def test_count_makes_numbered_hosts_with_addresses_of_their_own():
    lab = spec.parse(SMALL)
    assert list(lab.machines) == ["one", "host1", "host2"]
    assert lab.hosts == {"one": "10.88.0.10", "host1": "10.88.0.11", "host2": "10.88.0.12"}
    assert lab.gateway == "10.88.0.1"
    assert lab.machines["host1"].cpus.total == 0


def test_a_machine_without_a_card_on_the_labs_network_has_no_address_there():
    lab = spec.parse(changed("machines.one.nics", {"mgmt": {"model": "virtio-net-pci", "net": "user"}}))
    assert "one" not in lab.hosts


def test_mac_addresses_are_stable_local_and_distinct():
    addresses = {spec.mac(m, n) for m in ("new", "old", "lvm") for n in ("mgmt", "data", "hot0")}
    assert len(addresses) == 9
    assert spec.mac("new", "data") == spec.mac("new", "data")
    assert all(int(a[:2], 16) & 3 == 2 for a in addresses)  # locally administered, unicast


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("machines.one.kind", "docker", ["one.kind", "'docker'", "qemu, nspawn"]),
        ("machines.one.kernl", "6.1", ["one", "'kernl'", "kernel"]),
        ("machines.one.kernel", 6.12, ["one.kernel", "in quotes"]),
        ("machines.one.distribution", "jammy", ["one.distribution", "'jammy'", "trixie"]),
        ("machines.one.boot", "lilo", ["one.boot", "grub-lvm"]),
        ("machines.one.cpus", {"sockets": 0}, ["one.cpus.sockets", "0", "1 to 64"]),
        ("machines.one.cpus", {"hyper": 2}, ["one.cpus", "'hyper'"]),
        ("machines.one.memory_mib", [512, 512, 512], ["8 CPUs", "3 NUMA nodes"]),
        ("machines.one.memory_mib", 512, ["one.memory_mib", "list"]),
        ("machines.one.memory_mib", [True, 512], ["one.memory_mib", "True"]),
        ("machines.one.roots", {"80": 2}, ["one.roots.80", "2", "0 to 1"]),
        ("machines.one.roots", {"zz": 1}, ["one.roots", "'zz'"]),
        ("machines.one.roots", {80: 1}, ["one.roots", "80", "quotes"]),
        ("machines.one.spare_ports", ["40"], ["one.spare_ports", "'40'", "roots"]),
        ("machines.one.spare_ports", "80", ["one.spare_ports", "list"]),
        (
            "machines.one.nics.more",
            {"model": "igb", "net": "lab"},
            ["one.nics", "data and more", "net: lab", "one address"],
        ),
        ("machines.one.nics.data.root", "40", ["one.nics.data.root", "'40'"]),
        ("machines.one.nics.data.model", "mlx5", ["one.nics.data.model", "'mlx5'", "igb"]),
        ("machines.one.nics.data.net", "user", ["one.nics", "exactly one NIC"]),
        ("machines.one.nics.mgmt", None, ["one.nics.data", "first NIC"]),
        ("machines.one.disks", [], ["one.disks", "boot disk first"]),
        ("machines.one.disks", [{"gib": 4, "model": "floppy"}], ["one.disks.model", "'floppy'", "nvme"]),
        ("machines.one.packages", ["a b"], ["one.packages", "list of words"]),
        ("machines.host.timeout", "soon", ["host1.timeout", "'soon'"]),
        ("machines.host.count", 0, ["host.count", "0"]),
        ("machines.host.boot", "grub", ["host", "'boot'"]),
        ("machines.Bad-Name", {"kind": "qemu"}, ["'Bad-Name'", "lower-case"]),
        ("machines.host1", {"kind": "nspawn", "packages": []}, ["'host1'", "twice"]),
        ("machines", ["one"], ["machines", "mapping"]),
        ("network.subnet", "10.88.0.1/33", ["network.subnet"]),
        ("network.subnet", "8.8.8.0/24", ["network.subnet", "private"]),
        ("network.subnet", "10.88.0.0/29", ["no address left"]),
        ("extra", 1, ["the file", "'extra'"]),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_sentence_that_names_the_key(path, value, words):
    with pytest.raises(LabError) as refusal:
        spec.parse(changed(path, value))
    text = str(refusal.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


def test_the_documentation_has_every_key():
    text = (LAB.parents[1] / "docs" / "lab.md").read_text(encoding="utf-8")
    keys = {"network", "package_sets", "defaults", "machines"} | spec._QEMU_KEYS | spec._NSPAWN_KEYS
    assert {key for key in keys if f"`{key}`" not in text} == set()


def paths(data, above=()):
    for key, value in data.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


@pytest.mark.parametrize(
    "value", [None, [], {}, "", "x", 0, -1, 1.5, True, [None], [[]], [{}], {"x": None}, {1: 2}, {None: []}]
)
def test_no_value_of_any_key_is_a_traceback(value):
    for path in paths(SMALL):
        data = copy.deepcopy(SMALL)
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        try:
            spec.parse(data)
        except LabError as refusal:
            assert "\n" not in str(refusal)


def test_the_file_that_ships_is_valid_and_has_the_machines_that_the_tests_name():
    lab = spec.load(LAB / "machines.yml")
    assert {"new", "old", "lvm", "btrfs", "sdboot", "host1", "host2"} <= set(lab.machines)
    boots = {lab.machines[name].boot for name in ("new", "lvm", "btrfs", "sdboot")}
    assert boots == set(spec.BOOTS)


def test_a_file_that_is_missing_or_no_yaml_is_said_plainly(tmp_path):
    with pytest.raises(LabError, match="could not be read"):
        spec.load(tmp_path / "none.yml")
    broken = tmp_path / "broken.yml"
    broken.write_text("machines: [", encoding="utf-8")
    with pytest.raises(LabError, match="is not YAML"):
        spec.load(broken)
    broken.write_bytes(b"machines: \xff\xfe")
    with pytest.raises(LabError, match="is not text in UTF-8"):
        spec.load(broken)
    broken.write_text("machines: {x: {kind: vm}}", encoding="utf-8")
    with pytest.raises(LabError, match=r"broken\.yml: x\.kind"):
        spec.load(broken)


def test_an_unknown_machine_is_answered_with_the_ones_there_are():
    with pytest.raises(LabError, match="no machine 'two'.*one, host1, host2"):
        spec.parse(SMALL).machine("two")
