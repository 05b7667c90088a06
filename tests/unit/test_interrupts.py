# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real /proc/interrupts files: every line is understood, and every NIC queue finds its device."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist, irq_names, irqs

# folder: NIC queues per device as the drivers of the sample name them
QUEUES = {
    "netutils-1xE3-1271-I217_and_X710-L2_mixed-masterconf": {"eth0": 4, "eth2": 1, "eth3": 4},
    "netutils-2xE5-2640-i350_and_82599ES-l2_mixed-masterconf": {
        "eth0": 8,
        "eth1": 8,
        "eth2": 32,
        "eth3": 32,
        "eth4": 32,
        "eth5": 32,
    },
    "netutils-2xL5520-1x82576-L2_mixed-manual": {"em1": 8, "em2": 8},
}
# folder of a sample that is part of a captured machine, and that machine
MACHINES = {
    "x86-80cpu-i40e-igb-isolcpus": "cnto-bm-worker1",
    "x86-32cpu-ixgbe-igb-i40e-smtoff": "cnto-bm-worker2",
    "x86-12cpu-kvm-virtio": "cnto-sno-vm",
    "x86-80cpu-mlx5-sriov-isolcpus": "cnto-pao-bm-worker1",
    "x86-24cpu-kvm-virtio": "cnto-pao-vm-worker2",
}


@pytest.fixture(scope="module")
def samples(shared):
    folder = shared / "interrupts"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return {
        sample["name"]: (sample, next(folder.joinpath(sample["name"]).glob("interrupts*")).read_bytes())
        for sample in index
        if sample["interrupts"]
    }


def test_every_line_is_understood(samples):
    assert len(samples) == 16
    for name, (sample, data) in samples.items():
        table = irqs.parse(data, counts=True)
        truth = sample["interrupts"]
        lines = [line for line in data.splitlines() if line.strip()]
        assert table.bad == [], name
        assert (table.columns is not None) + len(table.irqs) + len(table.sums) == len(lines), name
        assert len(table.irqs) == truth["numbered_irqs"], name
        assert (len(table.columns) if table.columns else None) == truth["cpu_columns"], name
        for row in table.irqs:
            assert row.chip and (not table.columns or len(row.counts) == len(table.columns)), (name, row.number)


def test_names_are_the_same_without_counts(samples):
    for _sample, data in samples.values():
        forms = [
            [(row.number, row.chip, row.hwirq, row.flow, row.actions) for row in irqs.parse(data, counts).irqs]
            for counts in (False, True)
        ]
        assert forms[0] == forms[1]


def test_chips_are_those_of_the_index(samples):
    for name, (sample, data) in samples.items():
        found = {}
        for row in irqs.parse(data).irqs:
            chip = re.sub(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z", "<BDF>", row.chip)
            if row.hwirq is None and row.flow:  # the index names old chips with their flow handler
                chip += "-" + row.flow
            found[chip] = found.get(chip, 0) + 1
        assert found == sample["interrupts"]["chips"], name


def test_the_address_in_hwirq_is_the_one_in_the_name(samples):
    """On kernels before 6.2 the number alone tells the function: 320 mlx5 vectors of 18 functions say so twice."""
    rows = irqs.parse(samples["x86-80cpu-mlx5-sriov-isolcpus"][1]).irqs
    both = [
        (irqs.encoded_address(row), irqs.address(row)) for row in rows if row.chip == "IR-PCI-MSI" and irqs.address(row)
    ]
    assert len(both) == 322 and all(encoded == named for encoded, named in both)
    assert len({named for _encoded, named in both}) == 20
    router = irqs.parse(samples["x86-8cpu-ixgbe-bnx2x-router"][1]).irqs
    assert {irqs.encoded_address(row) for row in router if row.actions[0].startswith("eth2")} == {"0000:03:02.0"}
    assert {irqs.encoded_address(row) for row in router if row.actions[0].startswith("eth3")} == {"0000:03:00.0"}


def test_kinds_of_excerpts(samples):
    def kinds(name, device=None):
        rows = irqs.parse(samples[name][1]).irqs
        return [irq_names.kind_and_queue(row.actions[0], device or irqs.netdev(row, ("eth2", "eth3"))) for row in rows]

    assert kinds("aws-c4-ixgbevf-4cpu", "ens3") == [("queue", 0), ("queue", 1), ("misc", None)]
    assert kinds("x86-8cpu-ixgbe-bnx2x-router") == [("queue", number) for number in (4, 5, 6, 7)] + [
        ("misc", None)
    ] * 2 + [("queue", number) for number in (0, 1, 2)]
    assert sorted(kinds("mlx5-12cpu-full-nic"), key=str) == sorted(
        [("aeq", None)] * 2 + [("queue", number) for number in range(12)] + [("queue", 0)], key=str
    )


def _ethtool(path):
    return {
        key.strip(): value.strip()
        for key, _colon, value in (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines())
    }


@pytest.mark.parametrize("name", QUEUES)
def test_each_queue_belongs_to_the_function_that_ethtool_names(name, shared, tmp_path):
    folder = shared / "interrupts" / name
    truth = {path.name: _ethtool(path) for path in (folder / "ethtool-i").iterdir()}
    truth = {
        device: facts["bus-info"]
        for device, facts in truth.items()
        if re.match(r"[0-9a-f]{4}:", facts.get("bus-info", ""))
    }
    listed = [
        line
        for line in (folder / "lspci.txt").read_text(encoding="utf-8").splitlines()
        if "Ethernet controller" in line
    ]
    assert {"0000:" + line.split()[0] for line in listed} >= set(truth.values())
    for device, address in truth.items():
        home = tmp_path / "sys/devices/pci0000:00" / address
        (home / "net" / device).mkdir(parents=True)
        (home / "class").write_text("0x020000\n", encoding="utf-8")
        (home / "net" / device / "flags").write_text("0x1003\n", encoding="utf-8")
        for link, target in (("bus/pci/devices/" + address, home), ("class/net/" + device, home / "net" / device)):
            (tmp_path / "sys" / link).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "sys" / link).symlink_to("/" + str(target.relative_to(tmp_path)))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/interrupts").write_bytes((folder / "interrupts").read_bytes())
    topology = discover(Tree(str(tmp_path)))
    queues = {}
    for nic in topology["nics"]:
        assert nic["pci"] == truth[nic["name"]]
        numbers = sorted(entry["queue"] for entry in nic["irqs"] if entry["kind"] == "queue")
        if numbers:
            assert numbers == list(range(len(numbers)))
            queues[nic["name"]] = len(numbers)
    assert queues == QUEUES[name]
    device_of = {row["irq"]: row["device"] for row in topology["irqs"]}
    for row in irqs.parse((folder / "interrupts").read_bytes()).irqs:
        named = irqs.netdev(row, truth)
        if named:
            assert device_of[row.number] == truth[named]


@pytest.mark.parametrize("sample", MACHINES)
def test_masks_of_a_captured_machine(sample, shared):
    """smp_affinity_list and effective_affinity_list of every interrupt, as another program extracted them."""
    topology = discover(Tree(str(shared / "machines" / (MACHINES[sample] + ".tar.xz"))))
    text = (shared / "interrupts" / sample / "irq_affinity.tsv").read_text(encoding="utf-8")
    default = re.match(r"# default_smp_affinity (\S+)", text).group(1)
    assert topology["default_smp_affinity"] == cpulist.from_mask(default)
    rows = {row["irq"]: row for row in topology["irqs"]}
    compared = 0
    for line in text.splitlines()[2:]:
        number, affinity, effective = line.split("\t")[:3]
        if int(number) in rows:
            row = rows[int(number)]
            assert (row["affinity"] or "", row["effective"] or "") == (
                cpulist.compress(affinity),
                cpulist.compress(effective),
            )
            compared += 1
    assert compared == len(rows) > 20


def test_nic_queues_of_captured_machines(shared):
    def queues(name):
        nics = discover(Tree(str(shared / "machines" / (name + ".tar.xz"))))["nics"]
        return {
            nic["pci"]: (
                len([entry for entry in nic["irqs"] if entry["kind"] == "queue"]),
                len(nic["irqs"]),
                nic["irq_source"],
            )
            for nic in nics
        }

    assert queues("cnto-bm-worker1") == {
        "0000:01:00.0": (8, 9, "interrupts"),
        "0000:01:00.1": (8, 9, "interrupts"),
        "0000:19:00.0": (80, 82, "interrupts"),
        "0000:19:00.1": (80, 82, "interrupts"),
        "0000:86:00.0": (80, 82, "interrupts"),
        "0000:86:00.1": (80, 82, "interrupts"),
    }
    assert set(queues("cnto-bm-worker2").values()) == {
        (32, 33, "interrupts"),
        (8, 9, "interrupts"),
        (32, 34, "interrupts"),
    }
    assert queues("cnto-pao-bm-worker1") == {}


def test_vectors_whose_function_is_only_a_dangling_link(shared):
    topology = discover(Tree(str(shared / "machines" / "cnto-pao-bm-worker1.tar.xz")))
    owners = {row["device"] for row in topology["irqs"] if any(action.startswith("mlx5") for action in row["actions"])}
    assert len(owners) == 18 and "0000:19:00.0" in owners


@pytest.mark.parametrize("name, kind", [("netutils-rss-igb-E5606", "rx"), ("netutils-rss-mlx5-Q6700", "queue")])
def test_queues_are_those_that_another_tool_found(name, kind, shared):
    folder = shared / "interrupts" / name
    rows = {row.number: row for row in irqs.parse((folder / "interrupts").read_bytes()).irqs}
    spread = re.findall(
        r"queue (\S+) \(irq (\d+)\) bound to CPU(\d+)",
        (folder / "upstream_expected_irq_spread.txt").read_text(encoding="utf-8"),
    )
    assert spread
    for action, number, _cpu in spread:
        assert rows[int(number)].actions == [action]
        found_kind, queue = irq_names.kind_and_queue(action, "eth0")
        assert found_kind == ("tx" if "-tx-" in action else kind)
        assert queue == int(re.search(r"(?:comp|-)(\d+)(?:@|\Z)", action).group(1))
