# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sysfs builder: same bytes each time, one sentence for a wrong description, and trees that hwloc and lscpu read as described."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import tarfile
from xml.etree import ElementTree

import pytest

hypothesis = pytest.importorskip("hypothesis")
yaml = pytest.importorskip("yaml")

import hypothesis.strategies as st  # noqa: E402  (these need what importorskip found)
from builder import Machine, SpecError, build, lists, named, names  # noqa: E402
from builder.tree import Link  # noqa: E402
from builder.trees import built  # noqa: E402

WITHOUT_CPU_LISTS = ("no-topology", "bare-capture")


def files(folder):
    """{path: content, or target of a link}"""
    found = {}
    for place, folders, names_here in os.walk(folder):
        for name in [*folders, *names_here]:
            path = os.path.join(place, name)
            if os.path.islink(path):
                found[os.path.relpath(path, folder)] = os.readlink(path)
            elif name not in folders:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = file.read()
    return found


# --- the description -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"cpu": {}}, "did you mean cpus"),
        ({"cpus": {"core": 4}}, "did you mean cores"),
        ({"cpus": {"cores": "four"}}, "write a whole number from 1 to 1024 or a list"),
        ({"cpus": {"threads": 9}}, "a whole number from 1 to 8"),
        ({"cpus": {"packages": 2, "cores": [4]}}, "lists 1 packages"),
        ({"cpus": {"numbering": "zigzag"}}, "one of adjacent, alternate, block"),
        ({"cpus": {"numbering": [["0,2", "2,3"]]}}, "one id to two CPUs"),
        ({"cpus": {"offline": "0-7"}}, "at least one must run"),
        ({"cpus": {"offline": "8"}}, "names CPUs 8, and the machine has 0-7"),
        ({"cpus": {"offline": "1-"}}, "write a CPU list"),
        ({"cpus": {"dies": 5}}, "use fewer dies"),
        ({"cpus": {"ids": "0-3"}}, "names 4 CPUs, and the counts give 8"),
        ({"cpus": {"present": "0-3"}}, "present must hold every CPU"),
        ({"cpus": {"packages": 1024, "cores": 1024}}, "a kernel has room for 8192"),
        ({"memory": {"nodes_per_package": 5}}, "use fewer nodes"),
        ({"memory": {"cpuless": [{"near": 7}]}}, "node 7 is named"),
        ({"memory": {"distances": [[10, 20]]}}, "1 rows of 1 numbers"),
        ({"roots": {"17": 3}}, "node 3 is named, and the machine has nodes 0"),
        ({"pci": [{"kind": "h100", "at": "17.01:0"}]}, "write PCI addresses"),
        ({"pci": [{"kind": "toaster", "at": "17:01.0/18:00.0"}]}, "write one of"),
        ({"pci": [{"kind": "bmc", "at": ["17:01.0/18:00.0", "17:01.0/18:00.0"]}]}, "described twice"),
        ({"nics": [{"driver": "igb"}]}, "driver igb needs at, and not dev"),
        ({"nics": [{"driver": "qeth", "at": "17:01.0/18:00.0", "name": "enc1"}]}, "driver qeth needs dev, and not at"),
        ({"nics": [{"driver": "igb", "at": 1020.0}]}, "at is 1020.0: write text"),
        ({"nics": [{"driver": "igb", "at": "17:01.0/18:00.0", "name": "a/b"}]}, "no interface name"),
        ({"nics": [{"driver": "tg3", "at": "17:01.0/18:00.0", "vfs": {"count": 2}}]}, "has no virtual functions"),
        ({"netdevs": [{"name": "bond0", "kind": "bond", "lower": ["eth9"]}]}, "describe that netdev before"),
        ({"default_route": "eth9"}, "the machine has netdevs lo"),
        ({"kernel": "new"}, "write a release"),
        ({"files": {"../etc/passwd": "x"}}, "leaves the tree"),
        ({"without": ["sys/nothing"]}, "nothing in the tree matches"),
        ("cpus: [", "is not YAML"),
    ],
)
def test_a_wrong_description_is_refused_in_one_sentence(spec, words, tmp_path):
    with pytest.raises(SpecError) as error:
        build(spec + "\n" if isinstance(spec, str) else spec, tmp_path / "out")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 1 << 40),
    st.floats(allow_nan=False),
    st.text(max_size=9),
    st.just("0-"),
    st.just([]),
    st.just({}),
    st.lists(st.integers(0, 9) | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=2),
)
FUZZED = [named(name) for name in ("stacked", "sriov-host", "s390-books", "pmem-snc", "hyperv", "hybrid", "cgroup-v1")]


def places(value, path=()):
    """Paths of everything inside a description."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_a_value_that_makes_no_sense_is_refused_in_one_sentence(data):
    spec = copy.deepcopy(data.draw(st.sampled_from(FUZZED)))
    path = data.draw(st.sampled_from(sorted(places(spec), key=str)))
    inner = spec
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(JUNK)
    try:
        Machine(spec).tree()
    except SpecError as error:
        assert "\n" not in str(error)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(SpecError, match="is not an empty folder"):
        build({}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_text_a_path_and_a_mapping_say_the_same(tmp_path):
    spec = {"cpus": {"packages": 2, "cores": 2}}
    (tmp_path / "machine.yml").write_text(yaml.safe_dump(spec))
    trees = [Machine(source).tree().entries for source in (spec, yaml.safe_dump(spec) + "\n", tmp_path / "machine.yml")]
    assert trees[0] == trees[1] == trees[2]


# --- numbering ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cpus, siblings, packages",
    [
        ({"packages": 2, "cores": 2}, ["0,4", "1,5", "2,6", "3,7"], ["0-1,4-5", "2-3,6-7"]),
        ({"packages": 2, "cores": 2, "numbering": "adjacent"}, ["0-1", "2-3", "4-5", "6-7"], ["0-3", "4-7"]),
        ({"packages": 2, "cores": 2, "numbering": "alternate"}, ["0,4", "1,5", "2,6", "3,7"], ["0,2,4,6", "1,3,5,7"]),
        ({"packages": 2, "cores": [1, 2]}, ["0,3", "1,4", "2,5"], ["0,3", "1-2,4-5"]),
        ({"numbering": [["0,9", "4"], ["1-3"]]}, ["0,9", "1-3", "4"], ["0,4,9", "1-3"]),
        ({"cores": 2, "ids": "0,4,8,12"}, ["0,8", "4,12"], ["0,4,8,12"]),
        ({"cores": 2, "ecores": 2, "numbering": "adjacent"}, ["0-1", "2-3", "4", "5"], ["0-5"]),
        ({"cores": 2, "smt": "off"}, ["0", "1"], ["0-1"]),
        ({"cores": 2, "offline": "3"}, ["0,2", "1"], ["0-2"]),
    ],
)
def test_numbering_schemes(cpus, siblings, packages):
    machine = Machine({"cpus": cpus})
    assert machine.cpus.siblings() == siblings
    assert machine.cpus.packages() == packages


def test_an_offline_cpu_has_no_topology_and_leaves_its_node():
    tree = Machine({"cpus": {"cores": 2, "offline": "3"}}).tree().entries
    top = "sys/devices/system/cpu/"
    assert tree[top + "cpu3/online"] == "0\n"
    assert not [path for path in tree if path.startswith((top + "cpu3/topology", top + "cpu3/cache"))]
    assert tree["sys/devices/system/node/node0/cpulist"] == "0-2\n"
    assert tree["proc/interrupts"].splitlines()[0].split() == ["CPU0", "CPU1", "CPU2"]


@pytest.mark.parametrize("release, empty", [("6.8.0", "  (null)"), ("6.18.0", "")])
def test_an_unset_nohz_mask_is_printed_as_the_release_does(release, empty):
    assert Machine({"kernel": release}).tree().entries["sys/devices/system/cpu/nohz_full"] == empty + "\n"


def test_boot_arguments_reach_sysfs():
    args = "ro isolcpus=managed_irq,2-3,6-7 nohz_full=3,7 irqaffinity=1,5"
    tree = Machine({"cmdline": args}).tree().entries
    top = "sys/devices/system/cpu/"
    assert (tree[top + "isolated"], tree[top + "nohz_full"]) == ("\n", "3,7\n")
    assert tree["proc/irq/default_smp_affinity"] == "23\n"  # the boot CPU is always added
    assert Machine({"cmdline": "isolcpus=2-3"}).tree().entries[top + "isolated"] == "2-3\n"
    assert (
        Machine({"cmdline": "isolcpus=2-99"}).tree().entries[top + "isolated"] == "\n"
    )  # one bad id drops the whole list


def test_interrupt_lines_follow_the_release():
    nic = [{"driver": "igb", "at": "17:01.0/18:00.0", "name": "eno1", "queues": 1}]
    last = {}
    for release in ("5.15.0", "6.8.0", "6.18.0"):
        tree = Machine({"kernel": release, "nics": nic, "cpus": {"cores": 1}}).tree().entries
        last[release] = next(line for line in tree["proc/interrupts"].splitlines() if line.endswith("eno1-TxRx-0"))
    assert last["5.15.0"].split()[3:] == ["IR-PCI-MSI", str((0x18 << 8) << 11 | 1) + "-edge", "eno1-TxRx-0"]
    assert last["6.8.0"].split()[3:] == ["IR-PCI-MSIX-0000:18:00.0", "1-edge", "eno1-TxRx-0"]
    assert (
        last["6.8.0"].index("IR-PCI") == last["6.18.0"].index("IR-PCI") + 1
    )  # 6.14 dropped the blank after each count


@pytest.mark.parametrize(
    "name, chip, ending",
    [
        ("ice-448", "IR-PCI-MSIX-0000:17:00.0", "ice-ens1f0-TxRx-0"),
        ("qib", "IR-PCI-MSI", "ib_qib0 (kctx)"),
        ("ena-arm", "ITS-MSI", "ens5-Tx-Rx-0"),
        ("ena-arm-new", "ITS-PCI-MSIX-0000:00:05.0", "ens5-Tx-Rx-0"),
        ("hyperv", "Hyper-V PCIe MSI", "mlx5_comp0@pci:a1b2:00:02.0"),
        ("no-topology", "xen-pirq", "ens3-TxRx-0"),
        ("pci-domains", "VMD-MSI", "mlx5_comp0@pci:10000:82:00.0"),
        ("sparse-power", "XIVE-IRQ", "enP4p1s0f0-rx-1"),
    ],
)
def test_interrupt_chips_are_named_as_kernels_name_them(name, chip, ending):
    machine, folder = built(name)
    line = next(line for line in (folder / "proc/interrupts").read_text().splitlines() if line.endswith("  " + ending))
    assert chip in line
    assert (
        line.split()[1 : len(machine.cpus.online) + 1].count("0") == len(machine.cpus.online) - 1
    )  # it fired on one CPU


# --- every named machine -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_the_same_description_gives_the_same_bytes(name):
    machine, _folder = built(name)
    assert Machine(named(name)).tree().entries == machine.tree().entries


@pytest.mark.parametrize("name", ["stacked", "ena-arm", "s390-books"])
def test_the_folder_holds_what_the_tree_says(name):
    machine, folder = built(name)
    entries = machine.tree().entries
    assert files(folder) == {
        path: str(content) if isinstance(content, Link) else content.encode()
        for path, content in entries.items()
        if not isinstance(content, type)
    }
    assert all((folder / path).is_dir() for path, content in entries.items() if isinstance(content, type))


def test_a_tar_holds_what_the_folder_holds(tmp_path):
    _machine, folder = built("bare-capture")
    for suffix in (".tar", ".tar.xz"):
        one, two = (
            build(named("bare-capture"), tmp_path / f"a{suffix}"),
            build(named("bare-capture"), tmp_path / f"b{suffix}"),
        )
        assert one.read_bytes() == two.read_bytes()
        with tarfile.open(one) as archive:
            inside = {
                member.name: member.linkname if member.issym() else archive.extractfile(member).read()
                for member in archive
                if member.issym() or member.isfile()
            }
        assert inside == files(folder)


def test_shared_files_hold_the_same(tmp_path):
    plain, shared = (
        build(named("article-block"), tmp_path / "plain"),
        build(named("article-block"), tmp_path / "shared", share=True),
    )
    assert files(plain) == files(shared)
    inodes = {path.stat().st_ino for path in shared.rglob("*") if path.is_file() and not path.is_symlink()}
    assert len(inodes) < len(files(shared)) / 3


@pytest.mark.parametrize("name", names())
def test_every_link_leads_somewhere(name):
    if name == "bare-capture":
        pytest.skip("it lacks what its links lead to")
    _machine, folder = built(name)
    assert [str(path) for path in folder.rglob("*") if path.is_symlink() and not path.exists()] == []


@pytest.mark.skipif(
    not shutil.which("lstopo-no-graphics"),
    reason="lstopo-no-graphics is absent: install hwloc-nox to compare with hwloc",
)
@pytest.mark.parametrize("name", [name for name in names() if name not in WITHOUT_CPU_LISTS])
def test_hwloc_sees_the_machine_described(name):
    machine, folder = built(name)
    run = subprocess.run(
        ["lstopo-no-graphics", "-i", str(folder), "--of", "xml", "--disallowed"],
        capture_output=True,
        text=True,
        check=True,
    )
    if name != "pci-domains":  # of domains over 16 bits hwloc says that it ignores them
        assert run.stderr == ""
    objects = list(ElementTree.fromstring(run.stdout).iter("object"))
    units = {
        kind: [
            {int(unit.get("os_index")) for unit in one.iter("object") if unit.get("type") == "PU"}
            for one in objects
            if one.get("type") == kind
        ]
        for kind in ("Core", "Package")
    }
    nodes = {
        int(one.get("os_index")): lists.compress(_bits(one.get("cpuset")))
        for one in objects
        if one.get("type") == "NUMANode"
    }
    assert sorted(lists.compress(unit) for unit in units["Core"]) == sorted(machine.cpus.siblings())
    assert sorted(lists.compress(unit) for unit in units["Package"]) == sorted(machine.cpus.packages())
    if machine.nodes.exist:
        local = {
            node.id: lists.compress(machine.nodes.online_cpus(node.id, machine.cpus)) for node in machine.nodes.all
        }
        assert set(nodes) == set(local)
        assert {number: nodes[number] for number in local if local[number]} == {
            number: ids for number, ids in local.items() if ids
        }


def _bits(text):
    """CPU ids of hwloc's mask: groups of 32 bits, those of zero left empty."""
    value = 0
    for group in text.split(","):
        value = value << 32 | int(group or "0", 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


@pytest.mark.skipif(not shutil.which("lscpu"), reason="lscpu is absent: install util-linux to compare with it")
@pytest.mark.parametrize("name", [name for name in names() if name not in WITHOUT_CPU_LISTS])
def test_lscpu_sees_the_machine_described(name):
    machine, folder = built(name)
    run = subprocess.run(
        ["lscpu", "--sysroot", str(folder), "--parse=CPU,CORE,SOCKET,NODE"], capture_output=True, text=True, check=True
    )
    rows = [line.split(",") for line in run.stdout.splitlines() if not line.startswith("#")]
    cores, sockets, nodes = {}, {}, {}
    for cpu, core, socket, node in rows:
        cores.setdefault(core, []).append(int(cpu))
        sockets.setdefault(socket, []).append(int(cpu))
        nodes.setdefault(node, []).append(int(cpu))
    assert sorted(map(lists.compress, cores.values())) == sorted(machine.cpus.siblings())
    assert sorted(map(lists.compress, sockets.values())) == sorted(machine.cpus.packages())
    if machine.nodes.exist:
        local = [lists.compress(machine.nodes.online_cpus(node.id, machine.cpus)) for node in machine.nodes.all]
        assert sorted(map(lists.compress, nodes.values())) == sorted(ids for ids in local if ids)
