# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's QEMU command line, the files it writes into machines, and where it finds packages."""

from __future__ import annotations

import io
import platform
import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("The lab's program is for Python 3.11 and newer.", allow_module_level=True)
pytest.importorskip("yaml")

LAB = Path(__file__).resolve().parents[1] / "lab"
sys.path.insert(0, str(LAB))

from lab import clock, guest, images, network, packages, qemu, rootfs, spec, ssh, state, tools  # noqa: E402  (found by the path above)
from lab.errors import LabError  # noqa: E402


@pytest.fixture(scope="module")
def lab():
    return spec.load(LAB / "machines.yml")


def command(machine, taps=None, forwards=None, **more):
    paths = {k: Path("/x") / k for k in ("overlay", "identity", "console", "console_log", "qmp")}
    return qemu.command(
        machine,
        name=f"hp-t-{machine.name}",
        extra_disks=[],
        forwards=forwards or {2222: 22},
        taps=taps or {},
        **paths,
        **more,
    )


def values(words, option):
    return [words[i + 1] for i, word in enumerate(words) if word == option]


class TestCommandLine:
    def test_it_never_uses_kvm_and_shows_smt(self, lab):
        words = command(lab.machine("new"), {"data": [9]})
        assert values(words, "-accel")[0].startswith("tcg,")
        assert values(words, "-cpu") == ["max,vendor=GenuineIntel"]
        assert values(words, "-smp") == ["8,sockets=2,cores=2,threads=2"]

    def test_nodes_share_the_cpus_and_have_their_memory(self, lab):
        words = command(lab.machine("new"), {"data": [9]})
        assert values(words, "-m") == ["4096"]
        assert values(words, "-numa") == [
            "node,nodeid=0,memdev=mem0,cpus=0-3",
            "node,nodeid=1,memdev=mem1,cpus=4-7",
            "dist,src=0,dst=1,val=21",
        ]
        assert values(words, "-object") == [
            "memory-backend-ram,id=mem0,size=2048M",
            "memory-backend-ram,id=mem1,size=2048M",
        ]

    def test_the_card_sits_behind_the_expander_of_its_node(self, lab):
        devices = values(command(lab.machine("new"), {"data": [9]}), "-device")
        assert "pxb-pcie,id=root80,bus_nr=128,numa_node=1,bus=pcie.0" in devices
        port = next(d for d in devices if d.startswith("pcie-root-port,id=port-data,"))
        card = next(d for d in devices if d.startswith("igb,"))
        assert "bus=root80" in port
        assert "bus=port-data" in card
        assert devices.index(port) < devices.index(card)

    def test_every_device_names_its_bus_and_slots_are_unique(self, lab):
        for machine in lab.machines.values():
            if machine.kind == "qemu":
                devices = values(command(machine, {n.name: [5] * n.queues for n in machine.nics}), "-device")
                assert all("bus=" in d for d in devices), devices
                slots = re.findall(r",slot=(\d+)", " ".join(devices))
                assert len(slots) == len(set(slots))

    def test_a_tap_comes_as_descriptors_one_a_queue_pair(self, lab):
        words = command(lab.machine("old"), {"data": [7, 8, 9, 10]})
        assert "tap,id=data,fds=7:8:9:10" in values(words, "-netdev")
        card = next(d for d in values(words, "-device") if "id=data" in d and d.startswith("virtio-net-pci"))
        assert "mq=on" in card and "vectors=10" in card
        assert "tap,id=data,fd=7" in values(command(lab.machine("new"), {"data": [7]}), "-netdev")

    def test_forwards_listen_on_loopback_only_and_nothing_gets_out(self, lab):
        (user,) = [
            v
            for v in values(command(lab.machine("lvm"), forwards={2222: 22, 6443: 6443}), "-netdev")
            if v.startswith("user")
        ]
        assert (
            user
            == "user,id=mgmt,restrict=on,hostfwd=tcp:127.0.0.1:2222-10.0.2.15:22,hostfwd=tcp:127.0.0.1:6443-10.0.2.15:6443"
        )

    def test_a_machines_disk_is_flushed_but_the_first_boots_is_not(self, lab):
        assert "cache=writeback" in values(command(lab.machine("lvm")), "-drive")[0]
        first = qemu.first_boot(lab.machine("lvm"), Path("/i/disk.img"), Path("/k"), Path("/r"), Path("/c"))
        assert "cache=unsafe" in values(first, "-drive")[0]
        assert "init=/usr/local/sbin/lab-first-boot" in values(first, "-append")[0]
        assert "-no-reboot" in first

    def test_uefi_has_variables_of_its_own(self, lab):
        drives = values(command(lab.machine("sdboot"), firmware_variables=Path("/x/vars.fd")), "-drive")
        assert [d for d in drives if "pflash" in d][1] == "if=pflash,format=raw,file=/x/vars.fd"

    def test_nvme_disks(self, lab):
        machine = replace(lab.machine("lvm"), disks=(spec.Disk(6, "nvme"),))
        assert any(d.startswith("nvme,drive=disk0") for d in values(command(machine), "-device"))
        assert guest.boot_disk(machine) == ("/dev/nvme0n1", "p")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="this processor has no time stamp counter")
def test_every_boot_is_told_how_fast_its_counter_counts(lab):
    [argument] = clock.kernel_args()
    assert re.fullmatch(r"tsc_early_khz=[1-9]\d{5,6}", argument)
    for name in ("new", "sdboot"):
        assert any(
            f" {argument} " in f" {file.text}".replace('"', " ").replace("\n", " ")
            for file in guest.image_files(lab.machine(name)).values()
        )
    first = qemu.first_boot(lab.machine("new"), Path("/d"), Path("/k"), Path("/r"), Path("/c"))
    assert argument in first[first.index("-append") + 1].split()


def test_an_iommu_comes_before_the_devices_that_it_is_for(lab):
    with_one = command(replace(lab.machine("new"), iommu=True))
    assert with_one.index("intel-iommu,intremap=on") < with_one.index(
        "pxb-pcie,id=root80,bus_nr=128,numa_node=1,bus=pcie.0"
    )
    assert not any("iommu" in word for word in command(lab.machine("new")))


class TestImageKeys:
    def test_machines_of_one_shape_share_an_image_whatever_their_name_cpus_and_cards(self, lab):
        new = lab.machine("new")
        assert images.key(new) == images.key(
            replace(new, name="other", cpus=spec.Cpus(1, 1, 1), nics=(), memory_mib=(512,))
        )

    @pytest.mark.parametrize(
        "change",
        [
            {"packages": ("udev",)},
            {"disabled": ()},
            {"boot": "grub-btrfs"},
            {"kernel": "6.13"},
            {"kernel_args": ("quiet",)},
            {"disks": (spec.Disk(7, "virtio-blk-pci"),)},
            {"distribution": "sid"},
        ],
    )
    def test_what_an_image_is_made_of_is_in_its_key(self, lab, change):
        assert images.key(lab.machine("new")) != images.key(replace(lab.machine("new"), **change))

    def test_the_tree_is_shared_by_boot_layouts_with_the_same_packages(self, lab):
        assert rootfs.key(lab.machine("new")) == rootfs.key(
            replace(lab.machine("new"), boot="grub-btrfs", kernel_args=())
        )
        assert rootfs.key(lab.machine("new")) != rootfs.key(lab.machine("lvm"))


class TestLayouts:
    @pytest.mark.parametrize("name", ["new", "lvm", "btrfs", "sdboot"])
    def test_partitions_fit_on_the_disk(self, lab, name):
        machine = lab.machine(name)
        layout = guest.layout(machine)
        assert layout.begin_mib >= 1
        assert layout.begin_mib + layout.size_mib <= machine.disks[0].gib * 1024
        sizes = [int(s) for s in re.findall(r"size=(\d+)MiB", layout.sfdisk)]
        assert sum(sizes) < machine.disks[0].gib * 1024

    def test_what_each_boots_from(self, lab):
        assert guest.layout(lab.machine("btrfs")).filesystem == "btrfs"
        assert "type=8e" in guest.layout(lab.machine("lvm")).sfdisk
        assert guest.layout(lab.machine("sdboot")).sfdisk.startswith("label: gpt")
        assert "bootctl install" in guest.first_boot(lab.machine("sdboot"))
        assert "grub-install" not in guest.first_boot(lab.machine("sdboot"))
        assert "/boot ext4" in guest.image_files(lab.machine("lvm"))["/etc/fstab"].text

    def test_the_first_boot_says_which_step_failed_and_only_then_that_it_is_finished(self, lab):
        for name in ("new", "lvm", "btrfs", "sdboot"):
            script = guest.first_boot(lab.machine(name))
            assert script.index("grub-install" if name != "sdboot" else "bootctl") < script.index(guest.FINISHED)
            assert "HOSTPREP-LAB: failed:" in script


class TestIdentity:
    def test_it_names_the_machine_its_addresses_and_the_others(self, lab):
        files = guest.identity_files(lab, lab.machine("new"), "ssh-ed25519 AAAA")
        assert files["/etc/hostname"].text == "new\n"
        assert "10.88.0.10 new" in files["/etc/hosts"].text and "10.88.0.11 old" in files["/etc/hosts"].text
        data = files["/etc/systemd/network/11-data.network"].text
        assert "Address=10.88.0.10/24" in data and "Gateway=10.88.0.1" in data and spec.mac("new", "data") in data
        assert "Gateway" not in files["/etc/systemd/network/10-mgmt.network"].text

    def test_a_machine_off_the_labs_network_still_resolves_its_own_name(self, lab):
        assert "127.0.1.1 lvm" in guest.identity_files(lab, lab.machine("lvm"), "k")["/etc/hosts"].text

    def test_the_archive_is_small_stable_and_keeps_the_key_private(self, lab):
        files = guest.identity_files(lab, lab.machine("new"), "k")
        data = guest.tar(files)
        assert data == guest.tar(files)
        assert len(data) < 65536
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            modes = {m.name: m.mode for m in archive}
        assert modes["root/.ssh"] == 0o700 and modes["root/.ssh/authorized_keys"] == 0o600


class TestNames:
    def test_link_names_fit_the_kernels_limit_and_differ(self):
        names = {
            network.link(m, n) for m in ("new", "averylongnam", "averylongnbm") for n in ("data", "managmnt", "eth0")
        }
        assert len(names) == 9
        assert all(len(n) <= 15 and n.startswith("hp-") for n in names)

    @pytest.mark.parametrize("name", ["../x", "A", "toolongalabname", "1a", "a b"])
    def test_a_labs_name_is_checked_before_it_becomes_a_path(self, name):
        with pytest.raises(LabError, match="lower-case letters and digits"):
            state.State(name)

    def test_ssh_configuration(self):
        text = ssh.config(Path("/s"), {"new": 2222})
        assert text.startswith("Host new\n    Port 2222\n")
        assert "HostName 127.0.0.1" in text and 'IdentityFile "/s/id_ed25519"' in text


class TestPackages:
    def test_sources_of_both_kinds_are_read(self):
        stanzas = "Types: deb deb-src\n# a remark\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n"
        other = "\nTypes: deb\nEnabled: no\nURIs: http://off.example\nSuites: bookworm\nComponents: main\n"
        assert list(packages.parse_sources(stanzas + other, True)) == [
            packages.Source(("http://m.example/debian",), ("bookworm", "bookworm-updates"), ("main",), "/k.gpg")
        ]
        lines = "# deb http://no.example x main\ndeb [arch=amd64 signed-by=/k.asc] http://l.example/debian bookworm main contrib # tail\n"
        assert list(packages.parse_sources(lines, False)) == [
            packages.Source(("http://l.example/debian",), ("bookworm",), ("main", "contrib"), "/k.asc")
        ]

    def test_the_mirror_is_the_one_of_the_machines_own_release(self):
        security = packages.Source(("http://s.example",), ("bookworm-security",), ("main",), "")
        foreign = packages.Source(("http://f.example",), ("stable",), ("main",), "")
        own = packages.Source(("http://m.example",), ("bookworm",), ("main",), "")
        assert packages.main_source([security, foreign, own], "bookworm") == own
        assert packages.main_source([security, foreign], "bookworm") is None
        assert packages.main_source([own], "") is None

    def test_without_root_the_line_to_run_is_named(self, monkeypatch):
        monkeypatch.setattr(packages, "missing", lambda kinds: ["mmdebstrap", "qemu-system-x86"])
        monkeypatch.setattr(packages.os, "geteuid", lambda: 1000)
        with pytest.raises(LabError, match=r"apt-get install mmdebstrap qemu-system-x86 .*backports"):
            packages.ensure(["qemu"])

    def test_the_mirror_can_be_named(self, monkeypatch):
        monkeypatch.setenv(packages.MIRROR_VARIABLE, "http://mine.example/debian")
        assert packages.mirror() == "http://mine.example/debian"


class TestTools:
    def test_last_lines_are_those_of_a_console_without_its_control_characters(self, tmp_path):
        log = tmp_path / "console.log"
        log.write_bytes(b"one\r\n\x1b[0mtwo\r\n\r\nthree\r\n")
        assert tools.last_lines(log, 2) == ["[0mtwo", "three"]
        assert tools.last_lines(tmp_path / "none", 2) == []

    def test_a_failed_program_is_reported_with_its_last_words(self):
        with pytest.raises(LabError, match="(?s)Doing it failed: sh ended with 3.*because"):
            tools.run(["sh", "-c", "echo because >&2; exit 3"], "Doing it")
        with pytest.raises(LabError, match="needs the program no-such-program"):
            tools.run(["no-such-program"], "Doing it")

    def test_holes_stay_holes(self, tmp_path):
        source, target = tmp_path / "a", tmp_path / "b"
        with open(source, "wb") as file:
            file.seek(2**22)
            file.write(b"data")
            file.truncate(2**23)
        with open(target, "wb") as file:
            file.truncate(2**24)
        images.copy_sparse(source, target, 2**20)
        with open(target, "rb") as file:
            file.seek(2**20 + 2**22)
            assert file.read(4) == b"data"
        assert target.stat().st_blocks * 512 < 2**20
