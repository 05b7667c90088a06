# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks a report against the trees that it was planned from, with nothing of the collection: recompute.py TREES REPORT SCHEMAS.

For every host: reserved and isolated are together the CPUs that the tree has online, share none and split no siblings; the
lowest online CPU is reserved; queues stay on the interrupt CPUs of their NIC's node, if it has any.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import referencing


def cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1)) if part else set()
    return found


def read(path: Path) -> set[int]:
    return cpus(path.read_text(encoding="ascii"))


def check(tree: Path, plan: dict) -> None:
    system = tree / "sys/devices/system"
    online = read(system / "cpu/online")
    reserved, isolated, irq = (cpus(plan[name]) for name in ("reserved", "isolated", "irq"))
    assert reserved and isolated and not reserved & isolated
    assert reserved | isolated == online == cpus(plan["online_after_boot"])
    assert irq and irq <= reserved
    assert min(online) in reserved
    for cpu in online:
        siblings = read(system / f"cpu/cpu{cpu}/topology/thread_siblings_list") & online
        assert siblings <= reserved or siblings <= isolated, f"core {sorted(siblings)} is split"
    nodes = {int(path.parent.name[4:]): read(path) & online for path in system.glob("node/node*/cpulist")}
    assert {node["id"]: cpus(node["cpus"]) for node in plan["numa"]} == {
        node: members for node, members in nodes.items() if members
    }
    assert plan["nics"], "no NIC is planned"
    for nic in plan["nics"]:
        device = tree / "sys/bus/pci/devices" / nic["pci"]
        assert nic["numa_node"] == int((device / "numa_node").read_text(encoding="ascii"))
        assert len(nic["queue_cpus"]) == nic["queues"] > 0
        assert set(nic["queue_cpus"]) | set(nic["ceq_cpus"]) <= irq
        local = irq & nodes[nic["numa_node"]]
        assert not local or set(nic["queue_cpus"]) <= local, f"{nic['name']} leaves its node"


def main() -> None:
    trees, report_file, schemas = map(Path, sys.argv[1:])
    report = json.loads(report_file.read_text(encoding="utf-8"))
    documents = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in schemas.glob("*.schema.json")}
    registry = referencing.Registry().with_contents(documents.items())
    jsonschema.Draft202012Validator(documents["report.schema.json"], registry=registry).validate(report)
    for host in report["hosts"]:
        print(f"checking {host['host']}", flush=True)
        check(trees / host["host"], host["plan"])
    print(f"{len(report['hosts'])} hosts agree with their trees")


if __name__ == "__main__":
    main()
