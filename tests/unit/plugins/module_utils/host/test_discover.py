# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole topology: its shape, what is unknown, what is read, and what no input can do to it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import discover as discovering, tree as trees
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import HealthCheck, given, settings, strategies as st
from nulls import unexplained

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[5] / "docs/schemas/topology.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FIRST = "pci0000:17/0000:17:01.0/0000:18:00.0"


def sound(topology):
    """A topology that is plain JSON of the documented shape and explains its nulls."""
    VALIDATOR.validate(topology)
    assert json.loads(json.dumps(topology)) == topology
    assert unexplained(topology) == []
    return topology


@pytest.fixture
def machine(host):
    """A small machine with a bit of everything."""
    host.cpus(8, threads=2, packages=2)
    cpu = "sys/devices/system/cpu/"
    host.add(
        {
            cpu + "possible": "0-7\n",
            cpu + "isolated": "\n",
            cpu + "nohz_full": "(null)\n",
            cpu + "smt/active": "1\n",
            cpu + "smt/control": "on\n",
        }
    )
    for number in range(8):
        node = number % 4 // 2
        group = "%d-%d,%d-%d\n" % (node * 2, node * 2 + 1, node * 2 + 4, node * 2 + 5)
        cache = "%scpu%d/cache/index3/" % (cpu, number)
        host.add(
            {
                cache + "level": "3\n",
                cache + "type": "Unified\n",
                cache + "shared_cpu_list": group,
                cache + "size": "32768K\n",
            }
        )
        host.add(
            {"%scpu%d/topology/die_cpus_list" % (cpu, number): group, "%scpu%d/topology/die_id" % (cpu, number): "0\n"}
        )
    for node in range(2):
        folder = "sys/devices/system/node/node%d/" % node
        host.add(
            {
                folder + "cpulist": "%d-%d,%d-%d\n" % (node * 2, node * 2 + 1, node * 2 + 4, node * 2 + 5),
                folder + "distance": "10 21\n",
            }
        )
        host.add({folder + "meminfo": "Node %d MemTotal: 1048576 kB\n" % node})
    ids = {
        "vendor": "0x15b3\n",
        "device": "0x1021\n",
        "class": "0x020000\n",
        "numa_node": "0\n",
        "local_cpulist": "0-1,4-5\n",
    }
    host.pci(FIRST, **ids).netdev(FIRST, "ens1f0", speed="400000\n", carrier="1\n", operstate="up\n")
    host.add(
        {
            "sys/devices/%s/driver" % FIRST: host.Link("../../../../bus/pci/drivers/mlx5_core"),
            "sys/devices/%s/msi_irqs/40" % FIRST: "msix\n",
        }
    )
    host.add({"sys/devices/%s/infiniband/mlx5_0/ports/1/rate" % FIRST: "400 Gb/sec (4X NDR)\n"})
    host.add({"sys/class/infiniband/mlx5_0": host.Link("../../devices/%s/infiniband/mlx5_0" % FIRST)})
    host.pci(
        "pci0000:85/0000:85:00.0",
        **{"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n", "numa_node": "1\n"},
    )
    host.netdev(None, "bond0", bonding__slaves="ens1f0\n", uevent="DEVTYPE=bond\n")
    host.add(
        {
            "proc/interrupts": "           CPU0       CPU1\n  40:          1          0  IR-PCI-MSI 1-edge      mlx5_comp0@pci:0000:18:00.0\nERR:          0\n"
        }
    )
    host.add(
        {
            "proc/irq/40/smp_affinity_list": "0-7\n",
            "proc/irq/40/effective_affinity_list": "0\n",
            "proc/irq/default_smp_affinity": "ff\n",
        }
    )
    host.add(
        {
            "proc/version": "Linux version 6.8.0 (x) #1 SMP PREEMPT\n",
            "proc/cmdline": "quiet\n",
            "boot/config-6.8.0": "CONFIG_NETKIT=y\n",
        }
    )
    host.add({"proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: lm\n"})
    host.add(
        {
            "proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\nbond0\t00000000\t0\t0003\t0\t0\t0\t00000000\n"
        }
    )
    return host


def test_a_machine(machine):
    found = sound(machine.discover())
    assert found["root"] == str(machine.top) and found["schema_version"] == 1
    assert [nic["name"] for nic in found["nics"]] == ["ens1f0"] and found["nics"][0]["default_route"] is True
    assert [gpu["pci"] for gpu in found["gpus"]] == ["0000:85:00.0"]
    assert [core["node"] for core in found["cpus"]["cores"]] == [0, 0, 1, 1]


def test_an_empty_host(host):
    found = sound(host.add({"proc": None}).discover())
    assert (
        found["cpus"]["online"] is None and found["nics"] == found["gpus"] == found["irqs"] == found["numa_nodes"] == []
    )


def test_this_machine():
    if not os.path.isdir("/sys/devices/system/cpu"):
        pytest.skip("No /sys here.")
    found = sound(discovering.discover(trees.Tree("/")))
    assert found["cpus"]["online"]


def test_every_file_is_opened_once_and_no_program_is_run(machine, monkeypatch):
    opened = []
    real = os.open

    def record(path, flags, *more, **keywords):
        opened.append(path)
        return real(path, flags, *more, **keywords)

    def refuse(*_args, **_keywords):
        pytest.fail("a program was started")

    monkeypatch.setattr(trees.os, "open", record)
    for name in ("Popen", "run", "call", "check_output"):
        monkeypatch.setattr(subprocess, name, refuse)
    monkeypatch.setattr(os, "system", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    machine.discover()
    assert len(opened) > 50
    assert sorted(opened) == sorted(set(opened))
    assert all(path.startswith(str(machine.top) + "/") for path in opened)


def test_a_defect_is_one_sentence_that_names_the_file(machine, monkeypatch):
    def fail(reader, online):
        reader.tree.read("sys/devices/system/node/online")
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(discovering.nodes, "numa_nodes", fail)
    with pytest.raises(HostprepError) as caught:
        machine.discover()
    assert caught.value.code == "unexpected"
    assert "ZeroDivisionError" in str(caught.value) and "sys/devices/system/node/online" in str(caught.value)
    assert "\n" not in str(caught.value)


def _spoil(path, how, content):
    if how == "fifo":
        os.mkfifo(path)
    elif how == "loop":
        os.symlink(path.name, path)
    elif how == "folder":
        path.mkdir()
    elif how == "sparse":
        with open(path, "wb") as sparse:
            sparse.truncate(4 << 30)
    elif how == "outside":
        os.symlink("/proc/self/environ", path)
    elif how != "absent":
        forms = {
            "empty": b"",
            "half": content[: len(content) // 2],
            "null": b"(null)\n",
            "binary": bytes(range(256)),
            "huge": b"9" * 5000,
        }
        path.write_bytes(forms[how])


@pytest.mark.parametrize(
    "how", ["absent", "empty", "half", "null", "binary", "huge", "fifo", "loop", "folder", "sparse", "outside"]
)
def test_every_file_spoiled_in_turn(machine, tmp_path, how):
    """Whatever becomes of one file, the rest is still read, and what is lost is listed."""
    paths = [Path(folder) / name for folder, folders, names in os.walk(machine.top) for name in names + folders]
    paths = [path for path in paths if path.is_symlink() or path.is_file()]
    assert len(paths) > 80
    kept = tmp_path / "kept"
    for path in paths:
        path.rename(kept)
        _spoil(path, how, b"" if kept.is_symlink() else kept.read_bytes())
        found = machine.discover()
        VALIDATOR.validate(found)
        assert unexplained(found) == [], path
        if how == "folder":
            path.rmdir()
        elif how != "absent":
            path.unlink()
        kept.rename(path)


TOKENS = st.one_of(
    st.sampled_from(
        [
            "0",
            "-1",
            "0-7",
            "0-3,8",
            "(null)",
            "ff",
            "0x020000",
            "0x030200",
            "65535",
            "4294967295",
            "Unified",
            "1-edge",
            "0-",
            ":",
            "\n",
            "\0",
            " ",
        ]
    ),
    st.text(max_size=6),
    st.integers(-2, 2**70).map(str),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_content_of_any_files(machine, data):
    paths = sorted(
        str(path.relative_to(machine.top))
        for path in machine.top.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    spoiled = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=8, unique=True))
    tree = machine.tree()
    contents = {
        path: "".join(data.draw(st.lists(TOKENS, max_size=12))).encode("utf-8", "surrogatepass") for path in spoiled
    }
    real = tree._store.read
    tree._store.read = lambda path, limit: contents[path] if path in contents else real(path, limit)
    found = discovering.discover(tree)
    VALIDATOR.validate(found)
    assert unexplained(found) == []
