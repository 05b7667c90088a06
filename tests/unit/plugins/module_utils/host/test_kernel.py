# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel: release, arguments, build options, preemption."""

from __future__ import annotations

import gzip

import pytest

BANNER = "Linux version 6.1.0-18-amd64 (builder@host) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)\n"
CONFIG = '#\n# Automatically generated file; DO NOT EDIT.\n#\nCONFIG_NO_HZ_FULL=y\nCONFIG_NETKIT=m\n# CONFIG_PREEMPT_RT is not set\nCONFIG_LOCALVERSION=""\n'
END = "# end of Kernel hacking\n"


def kernel(host):
    return host.discover()["kernel"]


def noted(host, what):
    return [note["why"] for note in host.discover()["unknown"] if note["what"] == what]


def test_release_and_version(host):
    facts = kernel(host.add({"proc/version": BANNER}))
    assert (facts["release"], facts["version"]) == (
        "6.1.0-18-amd64",
        "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)",
    )
    host.add({"proc/sys/kernel/osrelease": "6.8.0-31-generic\n", "proc/sys/kernel/version": "#31 SMP PREEMPT\n"})
    facts = kernel(host)
    assert (facts["release"], facts["version"]) == ("6.8.0-31-generic", "#31 SMP PREEMPT")


@pytest.mark.parametrize("banner", ["", "(null)", "Linux", "Linux version ../../etc/passwd (x) #1", "\x00\x01"])
def test_a_banner_that_makes_no_sense(host, banner):
    assert kernel(host.add({"proc/version": banner, "sys": None}))["release"] is None
    assert noted(host, "kernel.release") == ["not a release"]


def test_arguments_respect_quotes(host):
    facts = kernel(
        host.add({"proc/cmdline": 'root=/dev/sda1 isolcpus=managed_irq,2-7 dyndbg="file a.c +p" quiet\n\0\0'})
    )
    assert facts["args"] == ["root=/dev/sda1", "isolcpus=managed_irq,2-7", 'dyndbg="file a.c +p"', "quiet"]


def test_no_arguments_is_not_unknown_arguments(host):
    assert kernel(host.add({"proc/cmdline": "\n"}))["args"] == []
    (host.top / "proc/cmdline").unlink()
    assert kernel(host)["args"] is None
    assert noted(host, "kernel.args") == noted(host, "kernel.cmdline") == ["missing"]


@pytest.mark.parametrize(
    "path", ["boot/config-6.1.0-18-amd64", "lib/modules/6.1.0-18-amd64/config", "usr/lib/modules/6.1.0-18-amd64/config"]
)
def test_every_place_of_a_configuration(host, path):
    config = kernel(host.add({"proc/version": BANNER, path: CONFIG + END}))["config"]
    assert config == {
        "CONFIG_NETKIT": "m",
        "CONFIG_NO_HZ_FULL": "y",
        "CONFIG_CPU_ISOLATION": "n",
        "CONFIG_PREEMPT_DYNAMIC": "n",
        "CONFIG_RCU_NOCB_CPU": "n",
        "CONFIG_PREEMPT_RT": "n",
    }


def test_a_configuration_that_may_be_cut_short_says_nothing_of_what_it_lacks(host):
    config = kernel(host.add({"proc/version": BANNER, "boot/config-6.1.0-18-amd64": CONFIG}))["config"]
    assert (config["CONFIG_NETKIT"], config["CONFIG_PREEMPT_RT"], config["CONFIG_CPU_ISOLATION"]) == ("m", "n", None)
    assert noted(host, "kernel.config.CONFIG_CPU_ISOLATION") == ["no line for it, and the file may be cut short"]


def test_the_configuration_in_procfs(host):
    host.add({"proc/config.gz": gzip.compress((CONFIG + END).encode())})
    assert kernel(host)["config"]["CONFIG_NETKIT"] == "m"


@pytest.mark.parametrize(
    "data", [b"", b"not gzip", gzip.compress(b"no option", mtime=0), gzip.compress(CONFIG.encode(), mtime=0)[:20]]
)
def test_a_configuration_that_makes_no_sense(host, data):
    assert set(kernel(host.add({"proc/config.gz": data}))["config"].values()) == {None}


def test_a_configuration_of_another_kernel_is_not_used(host):
    host.add({"proc/version": BANNER, "boot/config-6.8.0": CONFIG + END})
    assert set(kernel(host)["config"].values()) == {None}


@pytest.mark.parametrize(
    "files, model",
    [
        ({"sys/kernel/debug/sched/preempt": "none voluntary (full)\n"}, "full"),
        ({"sys/kernel/debug/sched/preempt": "(none) voluntary full lazy\n"}, "none"),
        ({"sys/kernel/debug/sched/preempt": "none voluntary full (lazy)\n"}, "lazy"),
        ({"sys/kernel/debug/sched/preempt": "(undefined)\n"}, None),
        ({"sys/kernel/debug/sched/preempt": "none voluntary full\n"}, None),
        ({"sys/kernel/realtime": "1\n"}, "rt"),
        ({"sys/kernel/realtime": "0\n"}, None),
        ({"proc/sys/kernel/version": "#1 SMP PREEMPT_RT Debian\n"}, "rt"),
        ({"proc/sys/kernel/version": "#1 SMP PREEMPT RT Thu\n"}, "rt"),
        ({"proc/sys/kernel/version": "#1 SMP PREEMPT Thu\n"}, "full"),
        ({"proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Thu\n"}, None),
        (
            {
                "proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Thu\n",
                "sys/kernel/debug/sched/preempt": "none (voluntary) full\n",
            },
            "voluntary",
        ),
        ({"proc/sys/kernel/version": "#1 SMP Thu\n"}, None),
    ],
)
def test_preemption_as_it_runs(host, files, model):
    assert kernel(host.add(files).add({"sys": None}))["preempt"] == model
    assert bool(noted(host, "kernel.preempt")) == (model is None)
