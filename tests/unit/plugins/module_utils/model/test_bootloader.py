# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot loader a host has, and whether a trial is possible on it."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import bootloader
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError

BASE = {
    "os_id": "debian",
    "os_like": [],
    "ostree": None,
    "transactional": None,
    "uki": None,
    "systemd_boot": False,
    "default_grub": True,
    "grub_cfg": "boot/grub/grub.cfg",
    "bls_entries": [],
    "kernel_cmdline": False,
    "efivars": True,
    "sh": "dash",
}
EL = {
    "os_id": "rocky",
    "os_like": ["rhel", "centos", "fedora"],
    "grub_cfg": "boot/grub2/grub.cfg",
    "bls_entries": ["a.conf"],
}
SLES = {"os_id": "sles", "os_like": ["suse"], "grub_cfg": "boot/grub2/grub.cfg"}


@pytest.mark.parametrize(
    ("changes", "backend"),
    [
        ({}, "debian"),
        ({"os_id": "ubuntu", "os_like": ["debian"]}, "debian"),
        ({"os_id": "linuxmint", "os_like": ["ubuntu", "debian"]}, "debian"),
        ({"systemd_boot": True, "grub_cfg": None}, "systemd-boot"),
        (EL, "el"),
        ({**EL, "os_id": "rhel", "os_like": ["fedora"], "default_grub": False}, "el"),
        (SLES, "sles"),
        ({**SLES, "os_id": "opensuse-leap", "os_like": ["suse", "opensuse"]}, "sles"),
    ],
)
def test_the_backend_of_a_host(changes, backend):
    assert bootloader.choose({**BASE, **changes}) == backend


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ostree": "/run/ostree-booted"}, "backend_ostree"),
        ({**EL, "ostree": "/run/ostree-booted"}, "backend_ostree"),
        ({"os_id": "sl-micro", "os_like": ["suse"]}, "backend_transactional"),
        ({**SLES, "transactional": "/usr/sbin/transactional-update"}, "backend_transactional"),
        ({"uki": "StubInfo systemd-stub 257", "systemd_boot": True}, "backend_uki"),
        ({"default_grub": False}, "backend_unknown"),
        ({"grub_cfg": None}, "backend_unknown"),
        ({"os_id": None}, "backend_unknown"),
        ({"os_id": "arch"}, "backend_unknown"),
        ({**EL, "bls_entries": []}, "backend_unknown"),
        ({**EL, "bls_entries": None}, "backend_unknown"),
        ({**SLES, "bls_entries": ["a.conf"]}, "backend_unknown"),
        ({**SLES, "bls_entries": None}, "backend_unknown"),
    ],
)
def test_a_host_that_is_not_served_is_refused_by_name(changes, code):
    with pytest.raises(HostprepError) as caught:
        bootloader.choose({**BASE, **changes})
    assert caught.value.code == code
    assert caught.value.read and caught.value.allowed and caught.value.cure


def test_a_backend_that_never_booted_needs_a_yes(monkeypatch):
    for name, row in bootloader.BACKENDS.items():
        monkeypatch.setitem(bootloader.BACKENDS, name, {**row, "ran_on": ()})
        with pytest.raises(HostprepError) as caught:
            bootloader.accept(name)
        assert caught.value.code == "backend_untested"
        assert "accept_untested_backend" in caught.value.cure
        assert bootloader.accept(name, accept_untested=True) is bootloader.BACKENDS.get(name)
        monkeypatch.setitem(bootloader.BACKENDS, name, {**row, "ran_on": ("new",)})
        assert bootloader.accept(name)["ran_on"] == ("new",)


# -- trials ------------------------------------------------------------------------------------------------------------------

PROBE = {"abstraction": "", "fs": "ext2", "kind": "file", "size": 1024, "allocated": 4096}


@pytest.mark.parametrize("fs", ["ext2", "xfs", "fat", "ext2\n"])
def test_grub_clears_an_entry_where_it_can_write(fs):
    clears, why = bootloader.one_shot({**PROBE, "fs": fs})
    assert clears and why["code"] == "one_shot"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"abstraction": None}, "one_shot_unknown"),
        ({"fs": None}, "one_shot_unknown"),
        ({"abstraction": "lvm"}, "one_shot_abstraction"),
        ({"abstraction": "mdraid1x\n"}, "one_shot_abstraction"),
        ({"abstraction": "luks2 lvm"}, "one_shot_abstraction"),
        ({"abstraction": "diskfilter"}, "one_shot_abstraction"),
        ({"fs": "btrfs"}, "one_shot_file_system"),
        ({"fs": "zfs"}, "one_shot_file_system"),
        ({"fs": ""}, "one_shot_file_system"),
        ({"kind": "link"}, "one_shot_no_block"),
        ({"kind": "missing", "size": None}, "one_shot_no_block"),
        ({"size": 1023}, "one_shot_block_size"),
        ({"size": 4096}, "one_shot_block_size"),
        ({"size": None}, "one_shot_block_size"),
        ({"allocated": 0}, "one_shot_block_sparse"),
    ],
)
def test_where_grub_cannot_clear_an_entry_the_reason_is_given(changes, code):
    clears, why = bootloader.one_shot({**PROBE, **changes})
    assert (clears, why["code"]) == (False, code)
    assert why["cure"] and why["read"]


KEXEC = {
    "tool": "/usr/sbin/kexec",
    "built": True,
    "file_load": None,
    "load_disabled": "0",
    "lockdown": "[none] integrity confidentiality",
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, "kexec"),
        ({"lockdown": None, "load_disabled": None, "built": None}, "kexec"),
        ({"lockdown": "none [integrity] confidentiality"}, "kexec"),
        ({"lockdown": "none [integrity] confidentiality", "file_load": False}, "kexec_lockdown"),
        ({"file_load": False}, "kexec"),
        ({"tool": None}, "kexec_missing"),
        ({"load_disabled": "1\n"}, "kexec_disabled"),
        ({"built": False}, "kexec_not_built"),
    ],
)
def test_whether_kexec_can_be_used(changes, code):
    can, why = bootloader.kexec({**KEXEC, **changes})
    assert why["code"] == code
    assert can == (code == "kexec")


def test_the_first_way_that_is_open_is_taken():
    yes, no = bootloader.one_shot(PROBE), bootloader.one_shot({**PROBE, "fs": "btrfs"})
    can, cannot = bootloader.kexec(KEXEC), bootloader.kexec({**KEXEC, "tool": None})
    assert bootloader.trial_method("debian", yes, can)["method"] == "one_shot"
    assert bootloader.trial_method("debian", no, can)["method"] == "kexec"
    assert bootloader.trial_method("debian", no, cannot, accept_untried=True)["method"] == "untried"
    with pytest.raises(HostprepError) as caught:
        bootloader.trial_method("debian", no, cannot)
    assert caught.value.code == "trial_impossible"
    assert "btrfs" in caught.value.read


@pytest.mark.parametrize("efivars", [True, False])
def test_systemd_boot_clears_its_variable_itself(efivars):
    assert bootloader.efi_one_shot({**BASE, "efivars": efivars})[0] is efivars
