# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel arguments before they are written, who owns them, and what a boot made of them."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cmdline, kernel_args
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st

GOOD = ["isolcpus=managed_irq,2-7", "irqaffinity=0-1"]
QUIET = [*GOOD, "nohz_full=2-7", "rcu_nocbs=2-7"]
YES = dict.fromkeys(("CONFIG_CPU_ISOLATION", "CONFIG_NO_HZ_FULL", "CONFIG_RCU_NOCB_CPU"), "y")


def facts(present="0-7", boot_cpu=0, config=None, others=0):
    return {"present": present, "boot_cpu": boot_cpu, "config": {**YES, **(config or {})}, "others": others}


def refused(tokens, **changes):
    with pytest.raises(HostprepError) as caught:
        cmdline.lint(tokens, facts(**changes))
    error = caught.value
    assert error.message and error.read and error.allowed and error.cure
    return error


@pytest.mark.parametrize("mode", ["balanced", "quiet", "pinned"])
@pytest.mark.parametrize("smt", [None, "nosmt"])
def test_what_the_planner_emits_passes(mode, smt):
    assert cmdline.lint(kernel_args.wanted(mode, "0-1", "2-7", smt), facts()) == []


def test_other_arguments_pass():
    assert (
        cmdline.lint(
            ["console=tty0", "console=ttyS0,115200n8", "transparent_hugepage=never", "audit=0", "nosmt"], facts()
        )
        == []
    )


@pytest.mark.parametrize(
    "token",
    [
        "a b",
        'a="b"',
        "a='b'",
        "a=$b",
        "a=`b`",
        "a;b",
        "a\\b",
        "a\nb",
        "",
        "=b",
        "a=é",
        None,
        7,
        "a=b c",
        "a#b",
        "a=#b",
        "a=\0",
        "a=b\n",
    ],
)
def test_characters_that_something_else_reads_are_refused(token):
    assert refused([token]).code == "kernel_arg_characters"


@pytest.mark.parametrize(
    "token", ["root=/dev/sda1", "init=/bin/sh", "ro", "initrd=/x", "rd.break", "rke2_hostprep.trial=1", "BOOT_IMAGE=x"]
)
def test_what_the_machine_boots_with_is_refused(token):
    assert refused([token]).code == "kernel_arg_foreign"


@pytest.mark.parametrize(
    ("tokens", "code"),
    [
        ([*GOOD, "isolcpus=managed_irq,2-6"], "kernel_arg_twice"),
        ([*GOOD, "irqaffinity=0-1"], "kernel_arg_twice"),
        (["nosmt", "nosmt=force"], "kernel_arg_twice"),
        (["a-b=1", "a_b=2"], "kernel_arg_twice"),
        (["isolcpus=managed_irq,"], "kernel_arg_list"),
        (["isolcpus"], "kernel_arg_list"),
        (["isolcpus=2-N"], "kernel_arg_list"),
        (["isolcpus=managedirq,2"], "kernel_arg_list"),
        (["nohz_full=all"], "kernel_arg_list"),
        (["rcu_nocbs=4-2"], "kernel_arg_list"),
        (["irqaffinity=0-7:2/4"], "kernel_arg_list"),
        (["isolcpus=managed_irq,2-5,4"], "kernel_arg_list_twice"),
        (["irqaffinity=0,0"], "kernel_arg_list_twice"),
        (["isolcpus=managed_irq,2-8"], "kernel_arg_cpus"),
        (["irqaffinity=0,9"], "kernel_arg_cpus"),
        (["isolcpus=0-7"], "kernel_arg_everything"),
        (["rcu_nocbs=0-7"], "kernel_arg_everything"),
        (["isolcpus=managed_irq,2-7", "nohz_full=3-7"], "kernel_args_disagree"),
        (["nohz_full=2-7", "rcu_nocbs=3-7"], "kernel_args_disagree"),
        (["isolcpus=managed_irq,2-7", "irqaffinity=0-2"], "kernel_args_disagree"),
        (["nohz_full=2-7", "irqaffinity=0-2"], "kernel_args_disagree"),
        (["nohz_full=0-3"], "boot_cpu_isolated"),
        (["isolcpus=0-3"], "boot_cpu_isolated"),
        (["isolcpus=domain,managed_irq,0-3"], "boot_cpu_isolated"),
    ],
)
def test_what_the_kernel_would_drop_is_refused(tokens, code):
    assert refused(tokens).code == code


def test_the_refusal_of_a_list_names_the_cpus_that_are_not_there():
    error = refused(["isolcpus=managed_irq,2-9,12"], present="0-7,16")
    assert "8-9,12" in error.read
    assert error.allowed == "0-7,16"


@pytest.mark.parametrize(
    ("tokens", "option"),
    [(GOOD, "CONFIG_CPU_ISOLATION"), (QUIET, "CONFIG_NO_HZ_FULL"), (QUIET, "CONFIG_RCU_NOCB_CPU")],
)
def test_a_kernel_without_the_option_is_refused_and_an_unknown_one_is_not(tokens, option):
    assert refused(tokens, config={option: "n"}).code == "kernel_without_option"
    assert cmdline.lint(tokens, facts(config={option: None})) == []


def test_more_rcu_callbacks_offloaded_than_quiet_cpus_is_allowed():
    assert cmdline.lint(["nohz_full=4-7", "rcu_nocbs=2-7"], facts()) == []
    assert cmdline.lint(["irqaffinity=0-7"], facts()) == []


def test_a_boot_cpu_that_is_left_out_is_a_warning_where_the_kernel_copes():
    assert [entry["code"] for entry in cmdline.lint(["isolcpus=managed_irq,0-3", "irqaffinity=4-7"], facts())] == [
        "boot_cpu_isolated",
        "irqaffinity_boot_cpu",
    ]


def test_the_command_line_has_an_end():
    used = sum(len(token) + 1 for token in GOOD)
    cmdline.lint(GOOD, facts(others=2047 - used))
    error = refused(GOOD, others=2048 - used)
    assert error.code == "kernel_cmdline_long"
    assert error.read.startswith("2048 characters")


@given(
    st.lists(
        st.one_of(
            st.text(max_size=20), st.from_regex(r"(isolcpus|nohz_full|irqaffinity)=[a-z0-9,-]{0,8}", fullmatch=True)
        ),
        max_size=4,
    )
)
def test_any_tokens_pass_or_are_refused_with_a_sentence(tokens):
    try:
        cmdline.lint(tokens, facts())
    except HostprepError as error:
        assert error.code and error.cure


# -- owners ------------------------------------------------------------------------------------------------------------------

CONFIGURED = [
    {"text": "quiet", "owner": "etc/default/grub"},
    {"text": "isolcpus=4-7", "owner": "etc/default/grub.d/20-site.cfg"},
    {"text": "nohz-full=4-7", "owner": "tuned (/etc/tuned/bootcmdline)"},
    {"text": "irqaffinity=0-1", "owner": "etc/default/grub.d/zz-lo0-rke2-hostprep.cfg"},
]
NONE = {"paths": [], "tokens": []}
OURS = {"paths": ["etc/default/grub.d/zz-lo0-rke2-hostprep.cfg"], "tokens": []}


def test_every_wanted_argument_has_its_owner():
    found = cmdline.owners(QUIET, CONFIGURED, OURS)
    assert [(entry["name"], entry["owner"], entry["ours"]) for entry in found] == [
        ("isolcpus", "etc/default/grub.d/20-site.cfg", False),
        ("nohz_full", "tuned (/etc/tuned/bootcmdline)", False),
        ("irqaffinity", "etc/default/grub.d/zz-lo0-rke2-hostprep.cfg", True),
    ]


def test_an_argument_of_another_file_is_refused_with_the_file():
    with pytest.raises(HostprepError) as caught:
        cmdline.refuse_foreign(GOOD, CONFIGURED, OURS)
    assert caught.value.code == "kernel_arg_owned"
    assert "isolcpus=4-7 in /etc/default/grub.d/20-site.cfg" in caught.value.read
    assert "/etc/default/grub.d/20-site.cfg" in caught.value.cure
    cmdline.refuse_foreign(["irqaffinity=0-3", "nosmt"], CONFIGURED, OURS)
    with pytest.raises(HostprepError):
        cmdline.refuse_foreign(["irqaffinity=0-3"], CONFIGURED, NONE)


def test_the_same_value_in_another_file_has_two_owners_too():
    with pytest.raises(HostprepError):
        cmdline.refuse_foreign(["isolcpus=4-7"], CONFIGURED, OURS)


def test_tokens_that_were_recorded_are_ours():
    cmdline.refuse_foreign(["isolcpus=2"], CONFIGURED, {"paths": [], "tokens": ["isolcpus=4-7"]})


def test_an_argument_of_tuned_is_refused_with_its_cure():
    with pytest.raises(HostprepError) as caught:
        cmdline.refuse_foreign(QUIET, CONFIGURED, OURS)
    assert caught.value.code == "kernel_arg_tuned"
    assert "skip_grub_config" in caught.value.cure
    profile = {"profile": "cpu-partitioning", "arguments": {"nohz_full": "usr/lib/tuned/cpu-partitioning/tuned.conf"}}
    with pytest.raises(HostprepError) as caught:
        cmdline.refuse_foreign(["nohz_full=2"], [], OURS, profile)
    assert caught.value.code == "kernel_arg_tuned"
    assert "cpu-partitioning" in caught.value.read
    cmdline.refuse_foreign(GOOD, [], OURS, profile)


# -- after a boot ------------------------------------------------------------------------------------------------------------

TRIAL = ["BOOT_IMAGE=/vmlinuz-6.12", "root=1", "ro", *GOOD, "panic=60", "rke2_hostprep.trial=7f"]
EXTRAS = ["panic=60", "rke2_hostprep.trial=7f"]


def test_the_committed_boot_has_the_trials_arguments():
    found = cmdline.same_boot(TRIAL, ["BOOT_IMAGE=/boot/vmlinuz-6.12", "root=1", "ro", *GOOD], EXTRAS)
    assert found == {"same": True, "missing": [], "extra": [], "order": False}


@pytest.mark.parametrize(
    ("committed", "missing", "extra", "order"),
    [
        (["root=1", "ro", GOOD[0]], [GOOD[1]], [], False),
        (["root=1", "ro", *GOOD, "quiet"], [], ["quiet"], False),
        (["root=1", "ro", *GOOD[::-1]], [], [], True),
        (["root=1", "ro", *GOOD, GOOD[0]], [], [GOOD[0]], False),
        (["root=1", "ro", *GOOD, "panic=60"], [], ["panic=60"], False),
    ],
)
def test_a_committed_boot_with_other_arguments(committed, missing, extra, order):
    assert cmdline.same_boot(TRIAL, committed, EXTRAS) == {
        "same": False,
        "missing": missing,
        "extra": extra,
        "order": order,
    }


def test_a_panic_of_the_hosts_own_is_kept():
    trial = ["root=1", "panic=60", *GOOD, "panic=60", "rke2_hostprep.trial=7f"]
    assert cmdline.same_boot(trial, ["root=1", "panic=60", *GOOD], EXTRAS)["same"]


def record(state="trial", args=None, boot_id="first"):
    return {"state": state, "id": "7f", "args": args or GOOD, "boot_id": boot_id}


@pytest.mark.parametrize(
    ("asked", "tokens", "boot_id", "state"),
    [
        (None, TRIAL, "first", "none"),
        (record(), ["root=1"], "first", "pending"),
        (record(), TRIAL, "second", "trial"),
        (record(), ["root=1"], "second", "fallback"),
        (record(), [*GOOD, "rke2_hostprep.trial=older"], "second", "fallback"),
        (record(), [token for token in TRIAL if token != GOOD[0]], "second", "fallback"),
        (record("committed"), TRIAL, "second", "as_planned"),
        (record("committed"), ["root=1", *GOOD], "third", "as_planned"),
        (record("committed"), ["root=1", "isolcpus=4"], "third", "fallback"),
        (record("committed"), ["root=1"], "first", "pending"),
        (record("committed"), [*GOOD, "isolcpus=4"], "third", "fallback"),
    ],
)
def test_the_boot_against_what_was_asked_for(asked, tokens, boot_id, state):
    assert cmdline.outcome(asked, tokens, boot_id)["state"] == state


def test_a_fallback_says_what_was_read():
    found = cmdline.outcome(record(), ["root=1", "isolcpus=4"], "second")
    assert found["missing"] == GOOD
    assert found["extra"] == ["isolcpus=4"]
    assert found["read"] == "in /proc/cmdline: isolcpus=4"
