# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot made of the planned arguments."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_judge, kernel_args
from hypothesis import given, strategies as st

LOG = """[    0.000000] Linux version 6.12.1-amd64 (builder) #1 SMP
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=1 isolcpus=managed_irq,2-3
"""
MANAGED = {"irq": 40, "affinity": "0-3", "effective": "1", "moved": True}


def plan(mode="balanced"):
    return {
        "mode": mode,
        "kernel_args": kernel_args.wanted(mode, "0-1", "2-3"),
        "irq": "0-1",
        "isolated": "2-3",
        "boot_cpu": 0,
    }


def seen(mode="balanced", **changes):
    return {
        "cmdline": "BOOT_IMAGE=/vmlinuz root=1 " + " ".join(plan(mode)["kernel_args"]),
        "online": "0-3",
        "default_smp_affinity": "3",
        "kernel_log": LOG,
        "nohz_full": "2-3\n" if mode == "quiet" else "(null)\n",
        "isolated": "2-3\n" if mode == "pinned" else "\n",
        "managed": [MANAGED],
        **changes,
    }


def verdicts(mode="balanced", **changes):
    return {entry["name"]: entry["verdict"] for entry in boot_judge.judge(plan(mode), seen(mode, **changes))}


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("balanced", {"kernel_arguments", "default_smp_affinity", "kernel_log", "managed_vectors", "isolated"}),
        (
            "quiet",
            {"kernel_arguments", "default_smp_affinity", "kernel_log", "managed_vectors", "isolated", "nohz_full"},
        ),
        ("pinned", {"kernel_arguments", "default_smp_affinity", "kernel_log", "managed_vectors", "isolated"}),
    ],
)
def test_a_boot_as_planned(mode, names):
    checks = boot_judge.judge(plan(mode), seen(mode))
    assert {entry["name"] for entry in checks} == names
    assert {entry["verdict"] for entry in checks} == {"ok"}
    assert {entry["cure"] for entry in checks} == {None}
    assert boot_judge.worst(checks) == "ok"


@pytest.mark.parametrize(
    ("mode", "changes", "name"),
    [
        ("balanced", {"cmdline": "root=1 irqaffinity=0-1"}, "kernel_arguments"),
        ("balanced", {"cmdline": "root=1 irqaffinity=0-1 isolcpus=managed_irq,2"}, "kernel_arguments"),
        ("balanced", {"cmdline": "isolcpus=2-3 irqaffinity=0-1 isolcpus=managed_irq,2-3"}, "kernel_arguments"),
        ("balanced", {"default_smp_affinity": "f"}, "default_smp_affinity"),
        ("balanced", {"default_smp_affinity": "7"}, "default_smp_affinity"),
        ("balanced", {"isolated": "2-3"}, "isolated"),
        ("balanced", {"managed": [{**MANAGED, "effective": "2"}]}, "managed_vectors"),
        ("quiet", {"nohz_full": "(null)"}, "nohz_full"),
        ("quiet", {"nohz_full": "3"}, "nohz_full"),
        ("pinned", {"isolated": ""}, "isolated"),
        ("pinned", {"isolated": "2-4"}, "isolated"),
    ],
)
def test_a_boot_that_is_not_as_planned(mode, changes, name):
    found = verdicts(mode, **changes)
    assert found.pop(name) == "fail"
    assert set(found.values()) == {"ok"}


@pytest.mark.parametrize(
    "line",
    [
        "[    0.000000] Housekeeping: nohz_full= or isolcpus= incorrect CPU range",
        "[    0.000000] Housekeeping: nohz_full= must match isolcpus=",
        "[    0.000000] Housekeeping: must include one present CPU, using boot CPU:0",
        "[    0.000000] isolcpus: Skipped unknown flag managedirq",
        "[    0.000000] isolcpus: Invalid flag managedirq",
        '[    0.1] Unknown kernel command line parameters "splash isolcpus=managed_irq,2-3", will be passed to user space.',
        '[    0.1] Unknown kernel command line parameters "irqaffinity=0-1", will be passed to user space.',
    ],
)
def test_the_kernels_own_complaint_is_a_failure(line):
    checks = {entry["name"]: entry for entry in boot_judge.judge(plan(), seen(kernel_log=LOG + line + "\n"))}
    assert checks["kernel_log"]["verdict"] == "fail"
    assert line in checks["kernel_log"]["read"]


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        (
            LOG
            + '[ 0.1] Unknown kernel command line parameters "splash BOOT_IMAGE=/vmlinuz", will be passed to user space.',
            "ok",
        ),
        ("[   99.0] device eth0 entered promiscuous mode\n", "not_judged"),
        ("[   99.0] Housekeeping: nohz_full= must match isolcpus=\n", "fail"),
        ("", "not_judged"),
    ],
)
def test_a_log_about_others_or_without_its_beginning(log, verdict):
    assert verdicts(kernel_log=log)["kernel_log"] == verdict


@pytest.mark.parametrize(
    "vectors",
    [
        [],
        [{**MANAGED, "affinity": "2", "effective": "2"}],
        [{**MANAGED, "affinity": "0-1"}],
        [{**MANAGED, "effective": "2", "moved": False}],
        [{**MANAGED, "affinity": None}],
        [{**MANAGED, "effective": None}],
        [{**MANAGED, "affinity": "1-9", "effective": ""}],
    ],
)
def test_managed_vectors_that_say_nothing_are_not_judged(vectors):
    assert verdicts(managed=vectors)["managed_vectors"] == "not_judged"


def test_the_kernel_adds_the_boot_cpu_to_the_default_affinity():
    other = {**plan(), "irq": "1", "kernel_args": kernel_args.wanted("balanced", "1", "2-3")}
    found = boot_judge.judge(other, seen(cmdline=" ".join(other["kernel_args"]), default_smp_affinity="3"))
    assert boot_judge.worst(found) == "ok"


def test_bits_of_cpus_that_are_not_there_do_not_matter():
    assert verdicts(default_smp_affinity="ffffff03", online="0-3")["default_smp_affinity"] == "ok"


def test_what_cannot_be_read_is_not_judged():
    nothing = dict.fromkeys(seen(), None)
    for mode in ("balanced", "quiet", "pinned"):
        checks = boot_judge.judge(plan(mode), nothing)
        assert {entry["verdict"] for entry in checks} == {"not_judged"}
        assert all(entry["cure"] for entry in checks)
        assert boot_judge.worst(checks) == "not_judged"


def test_the_worst_of_several():
    assert boot_judge.worst([]) == "ok"
    for verdict in ("warn", "fail"):
        entry = boot_judge.check("x", verdict, "y", "z")
        assert boot_judge.worst([boot_judge.check("a", "not_judged", "b", "c"), entry]) == verdict


@given(st.text(), st.text(max_size=9), st.text(max_size=9))
def test_any_text_is_judged_without_a_traceback(log, mask, listed):
    boot_judge.judge(
        plan("quiet"), seen(kernel_log=log, cmdline=log, default_smp_affinity=mask, nohz_full=listed, isolated=listed)
    )
