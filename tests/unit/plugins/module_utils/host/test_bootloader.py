# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot loader a host has and what its files ask for, read below a root."""

from __future__ import annotations

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import boot_args, bootloader
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_text, bootloader as choice, cmdline
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError

GUID = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
RELEASE = "6.12.1-amd64"
DEBIAN = {
    "sys/firmware": None,
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\n',
    "etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="console=ttyS0"\n',
    "boot/grub/grub.cfg": "# generated\n",
}
UBUNTU = {
    **DEBIAN,
    "etc/os-release": "ID=ubuntu\nID_LIKE=debian\n",
    "etc/default/grub.d/50-cloudimg-settings.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\n',
}
EL9 = {
    "sys/firmware": None,
    "etc/os-release": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "etc/default/grub": 'GRUB_CMDLINE_LINUX="crashkernel=1G-4G:192M"\nGRUB_ENABLE_BLSCFG=true\n',
    "boot/grub2/grub.cfg": "blscfg\n",
    "boot/grub2/grubenv": "# GRUB Environment Block\nsaved_entry=a\ntuned_params=nohz=on isolcpus=2\n" + "#" * 40,
    "boot/loader/entries/a.conf": "title EL\nversion 5.14.0-1.el9\nlinux /vmlinuz-5.14.0-1.el9\noptions root=/dev/sda1 ro $tuned_params\n",
}
EL8 = {
    **EL9,
    "boot/grub2/grubenv": "# GRUB Environment Block\nkernelopts=root=/dev/sda1 ro nosmt $tuned_params\ntuned_params=nohz=on\n",
    "boot/loader/entries/a.conf": "title EL\nversion 5.14.0-1.el9\nlinux /vmlinuz-5.14.0-1.el9\noptions $kernelopts $tuned_missing\n",
}
SLES = {
    "sys/firmware": None,
    "etc/os-release": 'ID="sles"\nID_LIKE="suse"\n',
    "etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="splash=silent"\n',
    "boot/grub2/grub.cfg": "# generated\n",
}


def info(text):
    return b"\x06\0\0\0" + text.encode("utf-16-le") + b"\0\0"


SDBOOT = {
    "etc/os-release": "ID=debian\n",
    "etc/kernel/cmdline": "root=UUID=1 ro\n",
    "sys/firmware/efi/efivars/LoaderInfo-" + GUID: info("systemd-boot 257.8-1"),
    "efi/loader/loader.conf": "timeout 3\n",
    "efi/loader/entries/m-6.12.1-amd64.conf": "title Debian\nversion 6.12.1-amd64\nlinux /m/6.12.1-amd64/linux\noptions root=UUID=1 ro\n",
}


def backend(host, files):
    return choice.choose(bootloader.facts(host.add({"proc": None, **files}).tree()))


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (DEBIAN, "debian"),
        (UBUNTU, "debian"),
        (
            {**DEBIAN, "sys/firmware/efi/efivars/LoaderInfo-" + GUID: info("GRUB 2.12"), "efi/loader/loader.conf": ""},
            "debian",
        ),
        (EL9, "el"),
        (EL8, "el"),
        (SLES, "sles"),
        (SDBOOT, "systemd-boot"),
        ({**{name: text for name, text in SDBOOT.items() if "efivars" not in name}, "sys": None}, "systemd-boot"),
    ],
)
def test_the_backend_of_a_root(host, files, name):
    assert backend(host, files) == name


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({**EL9, "run/ostree-booted": ""}, "backend_ostree"),
        ({**EL9, "proc/cmdline": "root=1 ostree=/ostree/boot.1/x/0\n"}, "backend_ostree"),
        ({**SLES, "usr/sbin/transactional-update": "#!/bin/sh\n"}, "backend_transactional"),
        ({**SLES, "etc/os-release": "ID=sl-micro\n"}, "backend_transactional"),
        ({**SDBOOT, "sys/firmware/efi/efivars/StubInfo-" + GUID: info("systemd-stub 257")}, "backend_uki"),
        ({**SDBOOT, "etc/kernel/install.conf": "layout=uki\n"}, "backend_uki"),
        ({"sys": None, "etc/os-release": "ID=fedora\n", "boot/efi/EFI/Linux/fedora.EFI": b"MZ"}, "backend_uki"),
        ({**EL9, "etc/default/grub": "GRUB_ENABLE_BLSCFG=false\n"}, "backend_unknown"),
        ({"sys": None}, "backend_unknown"),
        ({"sys": None, "etc/os-release": b"\xff\0\xff='"}, "backend_unknown"),
    ],
)
def test_a_root_that_is_not_served_is_refused(host, files, code):
    with pytest.raises(HostprepError) as caught:
        backend(host, files)
    assert caught.value.code == code


def owned(host, files, release=RELEASE):
    found = boot_args.boot_args(host.add({"sys": None, **files}).tree(), release)
    return [(token["text"], token["owner"]) for token in found["owned"]]


def test_debian_names_the_file_of_each_argument(host):
    assert owned(host, UBUNTU) == [
        ("console=ttyS0", "etc/default/grub"),
        ("console=tty1", "etc/default/grub.d/50-cloudimg-settings.cfg"),
        ("console=ttyS0", "etc/default/grub.d/50-cloudimg-settings.cfg"),
    ]


def test_appending_is_read_as_a_shell_does(host):
    files = {
        **DEBIAN,
        "etc/default/grub.d/60-a.cfg": 'GRUB_CMDLINE_LINUX+=" isolcpus=2"\n',
        "etc/default/grub.d/.b.cfg": "GRUB_CMDLINE_LINUX=x\n",
    }
    assert owned(host, files) == [
        ("console=ttyS0", "etc/default/grub"),
        ("isolcpus=2", "etc/default/grub.d/60-a.cfg"),
        ("quiet", "etc/default/grub"),
    ]


def test_tuned_on_debian_owns_what_its_script_puts_in(host):
    line = 'GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }\\$tuned_params"\n'
    files = {
        **DEBIAN,
        "etc/default/grub": DEBIAN["etc/default/grub"] + line,
        "etc/grub.d/00_tuned": "#!/bin/sh\n",
        "etc/tuned/bootcmdline": '# written by tuned\nTUNED_BOOT_CMDLINE="nohz=on isolcpus=2-3"\nTUNED_BOOT_INITRD_ADD=""\n',
    }
    assert owned(host, files)[2:] == [
        ("nohz=on", "tuned (/etc/tuned/bootcmdline)"),
        ("isolcpus=2-3", "tuned (/etc/tuned/bootcmdline)"),
    ]


def test_el_9_has_its_arguments_in_the_entry_and_tuneds_in_grubenv(host):
    assert owned(host, EL9, "5.14.0-1.el9") == [
        ("root=/dev/sda1", "boot/loader/entries/a.conf"),
        ("ro", "boot/loader/entries/a.conf"),
        ("nohz=on", "tuned (/boot/grub2/grubenv)"),
        ("isolcpus=2", "tuned (/boot/grub2/grubenv)"),
    ]


def test_el_8_has_its_arguments_in_grubenv(host):
    assert owned(host, EL8, "5.14.0-1.el9") == [
        ("root=/dev/sda1", "boot/grub2/grubenv"),
        ("ro", "boot/grub2/grubenv"),
        ("nosmt", "boot/grub2/grubenv"),
        ("nohz=on", "tuned (/boot/grub2/grubenv)"),
    ]


def test_systemd_boots_entry_on_the_esp_is_what_boots(host):
    assert owned(host, SDBOOT) == [(text, "efi/loader/entries/m-6.12.1-amd64.conf") for text in ("root=UUID=1", "ro")]


@pytest.mark.parametrize(
    ("loader", "source"),
    [("GRUB 2.12", "etc/default/grub"), ("systemd-boot 257", "efi/loader/entries/m-6.12.1-amd64.conf")],
)
def test_entries_on_the_esp_of_a_grub_host_are_not_what_boots(host, loader, source):
    files = {**SDBOOT, **DEBIAN, "sys/firmware/efi/efivars/LoaderInfo-" + GUID: info(loader)}
    del files["sys/firmware"]
    assert boot_args.boot_args(host.add(files).tree(), RELEASE)["source"] == source


def test_kernel_cmdline_without_its_comments(host):
    assert owned(host, {"etc/kernel/cmdline": "# isolcpus=1\nroot=1\n  # note\nro\n"}) == [
        ("root=1", "etc/kernel/cmdline"),
        ("ro", "etc/kernel/cmdline"),
    ]


def test_our_own_drop_in_is_ours_in_a_root(host):
    tokens = ["isolcpus=managed_irq,2-3", "irqaffinity=0-1"]
    files = {
        **UBUNTU,
        "etc/default/grub.d/kdump-tools.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=1G"\n',
    }
    host.add({"sys": None, **files, boot_text.DROP_IN: boot_text.drop_in(tokens)})
    found = boot_args.boot_args(host.tree(), RELEASE)["owned"]
    assert [token["text"] for token in found if token["owner"] == boot_text.DROP_IN] == tokens
    assert [token["text"] for token in found][-3:] == ["crashkernel=1G", *tokens]
    cmdline.refuse_foreign(tokens, found, {"paths": [boot_text.DROP_IN], "tokens": []})
    boot_text.refuse_discarded(boot_args.grub_files(host.tree()), tokens)


PROFILES = {
    "sys": None,
    "etc/tuned/active_profile": "site\n",
    "etc/tuned/site/tuned.conf": "[main]\nsummary=x\ninclude=cpu-partitioning, missing ../../etc\n[bootloader]\ncmdline_site=+audit=0\n",
    "usr/lib/tuned/profiles/cpu-partitioning/tuned.conf": "[main]\ninclude=site\n[variables]\nisolcpus=x\n[bootloader]\n"
    "# cmdline_no=nosmt\ncmdline_cpu_part=+nohz=on${cmd_isolcpus} nohz_full=${isolated_cores} rcu_nocbs=${isolated_cores}\n",
}


def test_tuneds_active_profile_claims_arguments_before_it_writes_them(host):
    found = bootloader.tuned(host.add(PROFILES).tree())
    assert {key: found[key] for key in ("profile", "arguments", "skips", "missing")} == {
        "profile": "site",
        "arguments": {
            "audit": "etc/tuned/site/tuned.conf",
            "nohz": "usr/lib/tuned/profiles/cpu-partitioning/tuned.conf",
            "nohz_full": "usr/lib/tuned/profiles/cpu-partitioning/tuned.conf",
            "rcu_nocbs": "usr/lib/tuned/profiles/cpu-partitioning/tuned.conf",
        },
        "skips": False,
        "missing": ["missing", "../../etc"],
    }


MERGED = {
    "sys": None,
    "etc/tuned/active_profile": "child\n",
    "etc/tuned/post_loaded_profile": "late\n",
    "etc/tuned/profiles/child/tuned.conf": "[main]\ninclude=parent; -optional\n[sysctl]\ndrop=a.b,c.d\ne.f=2 # why\n"
    "[vm]\nreplace=1\nx=1\n[scheduler]\nenabled=false\n[bootloader]\nenabled=false\n",
    "usr/lib/tuned/parent/tuned.conf": "[sysctl]\na.b=1\nc.d = 1\ne.f=1\ng.h=>1\n[vm]\ny=1\n[scheduler]\nisolated_cores=1\n"
    "[bootloader]\ncmdline=nosmt\n[cpu]\ngovernor=performance\n",
    "etc/tuned/late/tuned.conf": "[sysctl]\ng.h=3\n",
}


def test_profiles_are_merged_by_tuneds_rules(host):
    found = bootloader.tuned(host.add(MERGED).tree())
    assert found["settings"].pop("cpu") == {
        "governor": {"value": "performance", "path": "usr/lib/tuned/parent/tuned.conf"}
    }
    assert {
        name: {key: one["value"] for key, one in options.items()} for name, options in found["settings"].items()
    } == {
        "sysctl": {"e.f": "2", "g.h": "3"},
        "vm": {"x": "1"},
    }
    assert (found["profile"], found["arguments"], found["missing"]) == ("child", {}, [])


def test_a_profile_that_skips_the_boot_loader_claims_nothing(host):
    files = {
        **PROFILES,
        "etc/tuned/site/tuned.conf": "[main]\ninclude=cpu-partitioning\n[bootloader]\nskip_grub_config=True\n",
    }
    found = bootloader.tuned(host.add(files).tree())
    assert (found["profile"], found["arguments"], found["skips"]) == ("site", {}, True)


@pytest.mark.parametrize("files", [{}, {"etc/tuned/active_profile": "\n"}])
def test_no_tuned(host, files):
    assert bootloader.tuned(host.add({"sys": None, **files}).tree()) is None


def test_the_shell_behind_sh(host):
    assert bootloader.facts(host.add({"sys": None, "bin/sh": host.Link("dash")}).tree())["sh"] == "dash"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {"tool": None, "built": False, "file_load": None, "load_disabled": None, "lockdown": None}),
        (
            {
                "usr/sbin/kexec": "",
                "sys/kernel/kexec_loaded": "0\n",
                "proc/sys/kernel/kexec_load_disabled": "0\n",
                "sys/kernel/security/lockdown": "[none] integrity\n",
                "boot/config-6.12": "CONFIG_KEXEC=y\n# CONFIG_KEXEC_FILE is not set\n",
                "proc/sys/kernel/osrelease": "6.12\n",
            },
            {
                "tool": "/usr/sbin/kexec",
                "built": True,
                "file_load": False,
                "load_disabled": "0",
                "lockdown": "[none] integrity",
            },
        ),
    ],
)
def test_what_kexec_needs(host, files, expected):
    assert bootloader.kexec_state(host.add({"sys/kernel": None, **files}).tree(), "6.12") == expected


def test_the_environment_block(tmp_path):
    assert bootloader.environment_block(str(tmp_path)) == {
        "path": None,
        "kind": "missing",
        "size": None,
        "allocated": None,
    }
    block = tmp_path / "boot" / "grub" / "grubenv"
    block.parent.mkdir(parents=True)
    block.write_bytes(b"#" * 1024)
    found = bootloader.environment_block(str(tmp_path))
    assert (found["path"], found["kind"], found["size"]) == (str(block), "file", 1024)
    assert found["allocated"] is not None
    block.rename(tmp_path / "elsewhere")
    block.symlink_to(tmp_path / "elsewhere")
    assert bootloader.environment_block(str(tmp_path))["kind"] == "link"
    block.unlink()
    block.mkdir()
    assert bootloader.environment_block(str(tmp_path))["kind"] == "folder"


def test_what_a_boot_is_judged_from(host):
    files = {
        "proc/cmdline": "root=1 isolcpus=managed_irq,2-3\n",
        "proc/irq/default_smp_affinity": "3\n",
        "sys/devices/system/cpu/online": "0-3\n",
        "sys/devices/system/cpu/isolated": "\n",
        "proc/sys/kernel/random/boot_id": "1f2e\n",
    }
    assert bootloader.seen(host.add(files).tree()) == {
        "cmdline": "root=1 isolcpus=managed_irq,2-3",
        "online": "0-3",
        "default_smp_affinity": "3",
        "nohz_full": None,
        "isolated": "",
        "boot_id": "1f2e",
    }
