# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding vectors and writing masks on built trees, and what a kernel answers that refuses."""

from __future__ import annotations

import errno
import os
import shutil

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import affinity
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import affinity as model, cpulist
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from builder import build, named


class Machine:
    """A tree that may be written to, and its plan."""

    def __init__(self, folder, spec, policy=None):
        self.root = build(spec, folder / "root")
        self.plan = make_plan(discover(Tree(str(self.root))), policy or {})
        self.rules = model.checked(self.plan)

    def pin(self, **more):
        return affinity.pin(str(self.root), self.rules, **more)[0]

    def mask(self, irq):
        return (self.root / "proc/irq" / str(irq) / "smp_affinity_list").read_text().strip()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path, named("article-alternate"))


def results(rows):
    return model.counted(rows)


@pytest.mark.parametrize(
    "name",
    ["article-alternate", "ice-448", "sriov-host", "sriov-guest", "ena-arm", "gve-cut", "bnxt-cut", "ena-arm-new"],
)
def test_every_vector_is_put_in_place_and_stays(tmp_path, name):
    made = Machine(tmp_path, named(name))
    rows = made.pin()
    isolated = set(cpulist.expand(made.plan["isolated"]))
    assert set(results(rows)) <= {"ok", "written", "managed", "unknown"}
    for row in rows:
        if row["result"] in ("ok", "written"):
            assert made.mask(row["irq"]) == row["wanted"] == row["after"]
            assert not isolated & set(cpulist.expand(row["after"]))
    times = {path: path.stat().st_mtime_ns for path in (made.root / "proc/irq").rglob("smp_affinity_list")}
    assert set(results(made.pin())) <= {"ok", "managed", "unknown"}
    assert times == {path: path.stat().st_mtime_ns for path in times}, "the second run writes nothing"


def test_rdma_control_and_virtual_functions_belong_to_the_nic(tmp_path):
    made = Machine(tmp_path / "a", named("ice-448"))
    kinds = {row["kind"] for row in made.pin() if row["nic"] == "ens1f0"}
    assert kinds == {"queue", "ceq", "aeq", "misc"}
    names = [nic["name"] for nic in named("sriov-host")["nics"]]
    made = Machine(tmp_path / "b", named("sriov-host"), {"nics": names})
    functions = {
        row["name"].split("-")[1] for row in made.pin() if row["nic"] == "ens1f0" and "-TxRx-" in (row["name"] or "")
    }
    assert len(functions) > 1, "queues of the virtual functions too"


def test_a_nic_in_another_network_namespace(machine):
    """sys/class/net and the function's net/ folder do not show it; its vectors are there all the same."""
    (machine.root / "sys/class/net/enp26s0np0").unlink()
    shutil.rmtree(next((machine.root / "sys/devices").rglob("net/enp26s0np0")).parent)
    assert results(machine.pin())["written"] == 62


def test_names_where_the_kernel_lists_no_vectors(machine):
    for folder in (machine.root / "sys/devices").rglob("msi_irqs"):
        shutil.rmtree(folder)
    assert results(machine.pin())["written"] == 62


def test_check_mode_says_the_same_and_writes_nothing(machine):
    before = {path: path.read_bytes() for path in (machine.root / "proc/irq").rglob("smp_affinity_list")}
    told = machine.pin(check=True)
    assert before == {path: path.read_bytes() for path in before}
    done = machine.pin()
    assert [(row["irq"], row["before"], row["after"]) for row in told] == [
        (row["irq"], row["before"], row["after"]) for row in done
    ]
    assert results(told)["would_write"] == results(done)["written"]


def test_a_managed_vector_is_listed_and_never_written(machine, monkeypatch):
    debug = machine.root / "sys/kernel/debug/irq/irqs"
    debug.mkdir(parents=True, exist_ok=True)
    (debug / "30").write_text("dstate: 0x19409200\n            IRQD_AFFINITY_MANAGED\n")
    written = []
    write = affinity._write
    monkeypatch.setattr(affinity, "_write", lambda place, *more: written.append(place) or write(place, *more))
    (row,) = [row for row in machine.pin() if row["result"] == "managed"]
    assert (row["irq"], row["wanted"]) == (30, None)
    assert written and not any("/30/" in place for place in written)


def fail(monkeypatch, irq, *numbers, then=None):
    """Lets writes to one interrupt fail with these errors in turn (the last for ever); returns what was tried."""
    tried = []
    write = affinity._write

    def failing(place, cpus, live):
        if "/%d/" % irq not in place:
            return write(place, cpus, live)
        tried.append(cpus)
        number = numbers[min(len(tried), len(numbers)) - 1]
        if then:
            then()
        return write(place, cpus, live) if number is None else number

    monkeypatch.setattr(affinity, "_write", failing)
    return tried


@pytest.mark.parametrize("number", [errno.EIO, errno.EPERM])
def test_refused_as_managed(machine, monkeypatch, number):
    tried = fail(monkeypatch, 28, number)
    learned = {}
    rows = machine.pin(learned=learned)
    (row,) = [row for row in rows if row["result"] == "managed"]
    assert (row["irq"], row["after"]) == (28, "4")
    assert errno.errorcode[number] in row["why"]
    assert results(machine.pin(learned=learned))["managed"] == 1
    assert len(tried) == 1, "not tried again"


def test_no_vector_left(machine, monkeypatch):
    tried = fail(monkeypatch, 28, errno.ENOSPC, None)
    (row,) = [row for row in machine.pin() if row["result"] == "vector_space"]
    assert tried == ["32", "0,2,32,34"], "then the widest mask of housekeeping CPUs"
    assert (row["before"], row["after"], row["exposed"]) == ("4", "0,2,32,34", False)
    tried[:] = []
    fail(monkeypatch, 28, errno.ENOSPC)
    (row,) = [row for row in machine.pin() if row["result"] == "vector_space"]
    assert row["before"] == row["after"] == "0,2,32,34", "the second run changes nothing"


def test_no_vector_left_on_interrupt_cpus_goes_to_another_housekeeping_cpu(machine, monkeypatch):
    """Better a CPU that the plan gives to other things than one that is isolated."""
    nics = [dict(nic, queue_cpus=[32], other_cpus="32") for nic in machine.plan["nics"]]
    machine.rules = model.checked(dict(machine.plan, irq="32", nics=nics))
    tried = fail(monkeypatch, 28, errno.ENOSPC, None)
    (row,) = [row for row in machine.pin() if row["result"] == "vector_space"]
    assert tried == ["32", "0-2,32-34"]
    assert (row["after"], row["exposed"]) == ("0-2,32-34", True), "it is outside the interrupt CPUs, and that is said"


def test_no_vector_left_anywhere(machine, monkeypatch):
    fail(monkeypatch, 28, errno.ENOSPC)
    (row,) = [row for row in machine.pin() if row["result"] == "vector_space"]
    assert (row["after"], row["exposed"]) == ("4", True)
    assert "no interrupt vector is left" in row["why"]


def test_vanishes_and_is_found_anew(machine, monkeypatch):
    """Its number changes between the look and the write."""

    def move():
        for folder, old, new in (("proc/irq", "28", "128"),):
            (machine.root / folder / old).rename(machine.root / folder / new)
        (msi,) = (machine.root / "sys/devices").rglob("msi_irqs/28")
        msi.rename(msi.with_name("128"))
        table = machine.root / "proc/interrupts"
        table.write_text("\n".join(table.read_text().splitlines()).replace("\n  28:", "\n 128:") + "\n")

    fail(monkeypatch, 28, errno.ENOENT, then=move)
    rows = machine.pin()
    assert results(rows) == {"ok": 2, "written": 62}
    assert machine.mask(128) == "32"
    assert 28 not in {row["irq"] for row in rows}


def test_vanishes_again_and_again(machine, monkeypatch):
    tried = fail(monkeypatch, 28, errno.ENOENT)
    assert results(machine.pin()) == {"ok": 2, "written": 61, "vanished": 1}
    assert len(tried) == affinity.LOOKS


def test_folder_gone_between_look_and_write(machine):
    tree = Tree(str(machine.root))
    look = affinity.Look(tree, machine.rules)
    rows = model.judge(machine.rules, look.vectors, look.online)
    shutil.rmtree(machine.root / "proc/irq/28")
    affinity.put_back(tree, rows)
    assert results(rows)["vanished"] == 1


def test_driver_that_overrules(machine, monkeypatch):
    monkeypatch.setattr(affinity, "_write", lambda *_all: None)
    rows = machine.pin()
    assert results(rows) == {"ok": 2, "not_kept": 62}
    assert all(row["exposed"] for row in rows if row["after"] == "4")


def test_other_errors_are_said(machine, monkeypatch):
    fail(monkeypatch, 28, errno.EINVAL)
    (row,) = [row for row in machine.pin() if row["result"] == "refused"]
    assert "Invalid argument" in row["why"]


def test_a_link_is_not_followed(machine, tmp_path):
    other = tmp_path / "other"
    other.write_text("keep")
    place = machine.root / "proc/irq/28/smp_affinity_list"
    place.unlink()
    place.symlink_to(other)
    machine.pin()
    assert other.read_text() == "keep"


def test_no_folder_in_proc_irq_yet(machine):
    shutil.rmtree(machine.root / "proc/irq/28")
    (row,) = [row for row in machine.pin() if row["result"] == "unknown"]
    assert (row["irq"], row["why"]) == (28, "no driver has requested it")


def test_an_archive_is_read_in_check_mode_and_never_written(tmp_path):
    root = build(named("article-alternate"), tmp_path / "machine.tar")
    rules = model.checked(make_plan(discover(Tree(str(root))), {}))
    assert results(affinity.pin(str(root), rules, check=True)[0])["would_write"] == 62
    with pytest.raises(HostprepError) as refused:
        affinity.pin(str(root), rules)
    assert refused.value.code == "irq_not_permitted"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_the_right_to_write(machine):
    (machine.root / "proc/irq/28/smp_affinity_list").chmod(0o444)
    with pytest.raises(HostprepError) as refused:
        machine.pin()
    assert refused.value.code == "irq_not_permitted"


def test_read_only_proc(machine, monkeypatch):
    fail(monkeypatch, 27, errno.EROFS)
    fail(monkeypatch, 28, errno.EROFS)
    with pytest.raises(HostprepError) as refused:
        machine.pin()
    assert refused.value.code == "irq_not_permitted" and "Read-only" in refused.value.read
    monkeypatch.setattr(os, "access", lambda place, _mode: "irq" not in str(place))
    with pytest.raises(HostprepError) as foretold:
        machine.pin(check=True)
    assert foretold.value.code == "irq_not_permitted"


def test_one_at_a_time(machine):
    place = affinity.lock_place(str(machine.root))
    with affinity.alone(place, 0):
        with pytest.raises(HostprepError) as refused, affinity.alone(place, 0):
            pass
        assert refused.value.code == "irq_busy"
        with affinity.alone(affinity.lock_place(str(machine.root), "keeper"), 0):
            pass
    with affinity.alone(place, 0):
        pass
    assert affinity.lock_place("/") == "/run/lo0.rke2_hostprep/irq.lock"


@pytest.mark.parametrize(
    ("text", "code"), [(None, "plan_missing"), ("{", "plan_unreadable"), ("[]", "plan_unreadable")]
)
def test_kept_plan(machine, text, code):
    if text is not None:
        (machine.root / "var/lib/lo0.rke2_hostprep").mkdir(parents=True)
        (machine.root / affinity.PLAN_PATH).write_text(text)
    with pytest.raises(HostprepError) as refused:
        affinity.read_plan(Tree(str(machine.root)))
    assert refused.value.code == code
