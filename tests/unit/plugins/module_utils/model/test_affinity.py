# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where vectors belong: tables, and what holds for every plan and every machine."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import affinity, cpulist, irq_metrics
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from builder.trees import built
from hypothesis import given, strategies as st

ONLINE = set(range(64))


def plan(**changes):
    nic = {"name": "ens1", "pci": "0000:17:00.0", "queue_cpus": [0, 32], "ceq_cpus": [1, 33], "other_cpus": "0-1,32-33"}
    made = {"irq": "0-1,32-33", "isolated": "2-31,34-63", "reserved": "0-1,32-33", "online_after_boot": "0-63"}
    made["nics"] = [dict(nic, **changes.pop("nic", {}))]
    return dict(made, **changes)


def vector(irq, kind="queue", queue=0, affinity="0-63", **more):
    found = {"irq": irq, "kind": kind, "queue": queue, "name": "v%d" % irq, "managed": False, "affinity": affinity}
    return dict(dict(found, effective=None, shift=0, why=None, counts=None), **more)


def judge(vectors, online=None, strayed=None, **changes):
    return affinity.judge(affinity.checked(plan(**changes)), {"ens1": vectors}, online or ONLINE, strayed)


@pytest.mark.parametrize(
    ("kind", "queue", "more", "wanted"),
    [
        ("queue", 0, {}, "0"),
        ("rx", 1, {}, "32"),
        ("tx", 1, {}, "32"),
        ("queue", 2, {}, "0"),  # more queues than planned go round
        ("queue", 5, {}, "32"),
        ("ceq", 0, {}, "1"),
        ("ceq", 3, {}, "33"),
        ("misc", None, {}, "0-1,32-33"),
        ("aeq", None, {}, "0-1,32-33"),
        ("queue", 0, {"shift": 1}, "32"),  # a virtual function's first queue
    ],
)
def test_where_a_vector_belongs(kind, queue, more, wanted):
    (row,) = judge([vector(7, kind, queue, **more)])
    assert (row["wanted"], row["verdict"], row["exposed"]) == (wanted, "drift", True)


@pytest.mark.parametrize(
    ("mask", "wanted", "verdict"),
    [("32", "32", "ok"), ("0-1,32-33", "0-1,32-33", "ok"), ("4", "0-1,32-33", "drift"), ("0,4", "0-1,32-33", "drift")],
)
def test_a_vector_without_a_handler_stays_on_interrupt_cpus(mask, wanted, verdict):
    """While a link is down nothing says which queue a vector serves: it is not moved to and fro, only off isolated CPUs."""
    (row,) = judge([vector(7, "misc", None, mask, name=None)])
    assert (row["wanted"], row["verdict"]) == (wanted, verdict)


def test_queues_that_lost_their_number_get_those_that_are_left():
    rows = judge([vector(1, queue=None), vector(2, queue=0), vector(3, queue=None), vector(4, "tx", None)])
    assert [row["wanted"] for row in rows] == ["32", "0", "0", "32"]


@pytest.mark.parametrize(
    ("online", "queue", "wanted"),
    [
        (ONLINE - {0}, 0, "1"),  # the queue's CPU is offline: another that serves the NIC
        (ONLINE - {0}, 1, "32"),
        (ONLINE - {0, 1, 32, 33}, 0, None),  # never an isolated one
    ],
)
def test_offline_cpus(online, queue, wanted):
    (row,) = judge([vector(7, queue=queue)], online)
    assert row["wanted"] == wanted
    assert row["verdict"] == ("drift" if wanted else "unknown")


def test_cpus_of_another_node_where_the_nics_own_are_offline():
    rules = {"nic": {"queue_cpus": [32], "ceq_cpus": [], "other_cpus": "32-33"}}
    (row,) = judge([vector(7)], ONLINE - {32, 33}, **rules)
    assert row["wanted"] == "0"


@pytest.mark.parametrize(
    ("more", "strayed", "verdict"),
    [
        ({"affinity": "0"}, None, "ok"),
        ({"affinity": "0-1"}, None, "drift"),
        ({"affinity": "5", "managed": True}, None, "managed"),
        ({"affinity": None}, None, "unknown"),
        ({"affinity": "0", "effective": "9"}, None, "ok"),  # idle: the effective list lags
        ({"affinity": "0", "effective": "9"}, {7: 3}, "vector_space"),
        ({"affinity": "0", "effective": "0"}, {7: 3}, "ok"),  # it moved with its first interrupt
        ({"affinity": "0", "effective": None}, {7: 3}, "vector_space"),
        ({"affinity": "0", "managed": None}, None, "ok"),
    ],
)
def test_verdicts(more, strayed, verdict):
    (row,) = judge([vector(7, **more)], strayed=strayed)
    assert row["verdict"] == verdict
    assert (row["wanted"] is None) == (verdict == "managed")


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (None, "plan_invalid"),
        ({}, "plan_invalid"),
        ([], "plan_invalid"),
        (plan(irq="x"), "plan_invalid"),
        (plan(nics=[{"name": None, "pci": None}]), "plan_invalid"),
        (plan(nics=[{"name": "a"}]), "plan_invalid"),
        (plan(nic={"queue_cpus": ["x"]}), "plan_invalid"),
        (plan(nic={"name": None, "pci": ""}), "plan_invalid"),
        (plan(irq=""), "irq_on_isolated"),
        (plan(irq="0-2,32-33"), "irq_on_isolated"),
        (plan(nic={"queue_cpus": [0, 2]}), "irq_on_isolated"),
        (plan(nic={"ceq_cpus": [34]}), "irq_on_isolated"),
        (plan(nic={"other_cpus": "0-2"}), "irq_on_isolated"),
        (plan(isolated="", nic={"other_cpus": "0-2"}), "irq_on_isolated"),
    ],
)
def test_refused_plans(made, code):
    with pytest.raises(HostprepError) as refused:
        affinity.checked(made)
    assert refused.value.code == code
    assert refused.value.read and refused.value.allowed and refused.value.cure


@pytest.fixture(scope="module")
def topology():
    return discover(Tree(str(built("article-alternate")[1])))


def test_plan_of_this_machine_and_of_others(topology):
    made = make_plan(topology, {})
    affinity.check_machine(made, topology)
    with pytest.raises(HostprepError, match="another machine") as refused:
        affinity.check_machine(dict(made, fingerprint="0" * 64), topology)
    assert refused.value.code == "plan_other_machine"
    smaller = dict(topology, cpus=dict(topology["cpus"], online="0-31", offline=""))
    with pytest.raises(HostprepError, match="32-63, which are not there"):
        affinity.check_machine(made, smaller)
    with pytest.raises(HostprepError) as refused:
        affinity.check_machine(made, dict(topology, nics=[]))
    assert refused.value.code == "nic_gone"


def test_plan_while_a_cpu_is_offline(topology):
    """The fingerprint counts an offline CPU as other hardware; pinning must go on."""
    made = make_plan(topology, {})
    affinity.check_machine(made, dict(topology, cpus=dict(topology["cpus"], online="0-62", offline="63")))


def test_plan_of_cpus_and_nics(topology):
    made = affinity.from_cpus(topology, "0-3", ["enp26s0np0"])
    rules = affinity.checked(made)
    assert set(rules["nics"][0]["queue_cpus"]) == {0, 2}, "only the NIC's own node"
    for cpus, code in (("", "cpus_not_online"), ("0,99", "cpus_not_online"), ("x", "cpulist_invalid")):
        with pytest.raises(HostprepError) as refused:
            affinity.from_cpus(topology, cpus, ["enp26s0np0"])
        assert refused.value.code == code
    isolated = dict(topology, cpus=dict(topology["cpus"], isolated="2-31"))
    with pytest.raises(HostprepError) as refused:
        affinity.from_cpus(isolated, "0-2", ["enp26s0np0"])
    assert refused.value.code == "irq_on_isolated"
    for token in (
        "isolcpus=managed_irq,2-5",
        "nohz_full=2-5",
        "isolcpus=2-5",
    ):  # cpu/isolated is empty with the first two
        balanced = dict(topology, kernel=dict(topology["kernel"], args=["ro", token]))
        with pytest.raises(HostprepError) as caught:
            affinity.from_cpus(balanced, "0-2", ["enp26s0np0"])
        assert (caught.value.code, caught.value.read) == ("irq_on_isolated", "2")
        assert affinity.from_cpus(balanced, "0-1", ["enp26s0np0"])["isolated"] == "2-5"


# -- properties --------------------------------------------------------------------------------------------------------

SETS = st.sets(st.integers(0, 63), min_size=1, max_size=12)
VECTORS = st.lists(
    st.tuples(
        st.sampled_from(["queue", "rx", "tx", "ceq", "aeq", "misc"]),
        st.none() | st.integers(0, 300),
        st.none() | st.sets(st.integers(0, 63), min_size=1),
        st.sampled_from([True, False, None]),
        st.integers(0, 4),
    ),
    max_size=40,
)


@st.composite
def situations(draw):
    irq = draw(SETS)
    near = draw(st.sets(st.sampled_from(sorted(irq)), min_size=1))
    cpus = st.lists(st.sampled_from(sorted(near)), max_size=6)
    made = plan(
        irq=cpulist.compress(irq),
        reserved=cpulist.compress(irq),
        isolated=cpulist.compress(ONLINE - irq),
        nic={"queue_cpus": draw(cpus), "ceq_cpus": draw(cpus), "other_cpus": cpulist.compress(near)},
    )
    vectors = [
        vector(100 + place, kind, queue, mask and cpulist.compress(mask), managed=managed, shift=shift)
        for place, (kind, queue, mask, managed, shift) in enumerate(draw(VECTORS))
    ]
    return affinity.checked(made), vectors, draw(st.sets(st.integers(0, 63))), irq


@given(situations())
def test_never_an_isolated_or_offline_cpu_and_the_second_run_writes_nothing(situation):
    rules, vectors, online, irq = situation
    rows = affinity.judge(rules, {"ens1": vectors}, online)
    assert [row["irq"] for row in rows] == [one["irq"] for one in vectors]
    for row, one in zip(rows, vectors):
        for cpus in [row["wanted"], *row["spare"]]:
            assert cpus is None or set(cpulist.expand(cpus)) <= irq & online
        if one["managed"]:
            assert (row["verdict"], row["wanted"]) == ("managed", None)
        if row["verdict"] == "drift":
            assert row["wanted"]
            one["affinity"] = row["wanted"]
    again = affinity.judge(rules, {"ens1": vectors}, online)
    assert "drift" not in {row["verdict"] for row in again}
    assert not any(row["exposed"] for row in again if row["verdict"] == "ok")


@given(situations())
def test_metrics_and_lines_of_anything(situation):
    rules, vectors, online, _irq = situation
    rows = affinity.judge(rules, {"ens1": vectors}, online)
    for row in rows:
        row.update(
            result="written" if row["verdict"] == "drift" else row["verdict"], after=row["wanted"] or row["before"]
        )
    samples = irq_metrics.per_nic(rows)
    assert sum(samples["vectors"].values()) == len(rows)
    text = irq_metrics.text(samples)
    assert all(line.startswith(("# ", irq_metrics.PREFIX)) for line in text.splitlines() if line)
    assert not any("\n" in line for line in irq_metrics.repairs(rows, "because\nof", 12.3))


# -- counts ------------------------------------------------------------------------------------------------------------


def test_deltas():
    before = {1: ("a", [5, 5, 5]), 2: ("b", [9, 9, 9]), 3: ("c", [1, 1, 1])}
    after = {1: ("a", [7, 5, 6]), 2: ("other", [9, 9, 10]), 3: ("c", [0, 0, 0]), 4: ("new", [1, 1, 1])}
    assert affinity.deltas([0, 1, 2], before, after, {0, 1}) == {1: (3, 1)}
    assert affinity.deltas(None, before, after, {0}) == {1: (3, 0)}


def test_lines_for_a_person():
    rows = judge([vector(7, queue=1, affinity="17"), vector(8, "ceq", 0, "20"), vector(9, "misc", None, "0-63")])
    for row in rows:
        row.update(result="written", after=row["wanted"])
    assert irq_metrics.repairs(rows, "ethtool: channels changed", 143) == [
        "ens1: queue 1 (irq 7) was on CPU 17, now on 32; ethtool: channels changed; 143 ms",
        "ens1: RDMA completion vector 0 (irq 8) was on CPU 20, now on 1; ethtool: channels changed; 143 ms",
        "ens1: v9 (irq 9) was on CPU 0-63, now on 0-1,32-33; ethtool: channels changed; 143 ms",
    ]
    many = judge([vector(number, queue=number) for number in range(10)])
    for row in many:
        row.update(result="written", after=row["wanted"])
    assert irq_metrics.repairs(many, "x", 1) == [
        "ens1: 10 vectors put back, irq 0-9: were on CPUs 0-63, now on 0,32; x; 1 ms"
    ]
    rows[0].update(result="vector_space", why="no interrupt vector is left on CPU 32")
    [line] = list(irq_metrics.complaints(rows).values())
    assert line.startswith("ens1: no interrupt vector is left where queue 1 (irq 7) belong")


def test_textfile_escapes_names():
    text = irq_metrics.text({"nic_present": {(("nic", 'a"b\\c\nd'),): 1}, "isolated_share": {(): None}})
    assert 'nic="a\\"b\\\\c\\x0ad"' in text or "\\n" in text
    assert "isolated_share" not in text
