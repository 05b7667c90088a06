# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written into a machine's files: pure text, no I/O.

One image serves every machine of the same shape, so nothing in it names a machine: the name, the addresses and the ssh
key come at boot, as a tar archive that QEMU hands over (fw_cfg) and lab-identity.service unpacks.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from . import clock
from .spec import Lab, Machine

IDENTITY = "opt/lo0.rke2_hostprep/identity"
FINISHED = "HOSTPREP-LAB: the image is finished"
FIRST_BOOT = "/usr/local/sbin/lab-first-boot"
ROOT_LABEL = "hp-root"
VOLUME_GROUP = "hostprep"
ALIGN_MIB = 1  # where the first partition begins; GRUB's core image lies before it
BOOT_MIB = 1024  # the physical volume of a /boot on LVM
ESP_MIB = 512


@dataclass(frozen=True)
class Layout:
    """How the boot disk is divided: sfdisk's script, and the partition that holds the tree."""

    sfdisk: str
    number: int
    begin_mib: int
    size_mib: int
    filesystem: str


def layout(machine: Machine) -> Layout:
    disk = machine.disks[0].gib * 1024
    if machine.boot == "grub-lvm":
        root = disk - ALIGN_MIB - BOOT_MIB
        script = f"label: dos\nstart={ALIGN_MIB}MiB, size={root}MiB, type=83, bootable\nstart={ALIGN_MIB + root}MiB, type=8e\n"
        return Layout(script, 1, ALIGN_MIB, root, "ext4")
    if machine.boot == "systemd-boot":
        begin = ALIGN_MIB + ESP_MIB
        root = disk - begin - ALIGN_MIB  # the copy of the GPT is at the end
        script = f"label: gpt\nstart={ALIGN_MIB}MiB, size={ESP_MIB}MiB, type=uefi\nstart={begin}MiB, size={root}MiB, type=linux\n"
        return Layout(script, 2, begin, root, "ext4")
    script = f"label: dos\nstart={ALIGN_MIB}MiB, type=83, bootable\n"
    return Layout(script, 1, ALIGN_MIB, disk - ALIGN_MIB, "btrfs" if machine.boot == "grub-btrfs" else "ext4")


def boot_disk(machine: Machine) -> tuple[str, str]:
    """The boot disk as the machine names it, and what stands between that and a partition's number."""
    return ("/dev/nvme0n1", "p") if machine.disks[0].model == "nvme" else ("/dev/vda", "")


@dataclass(frozen=True)
class File:
    text: str
    mode: int = 0o644


def kernel_args(machine: Machine) -> list[str]:
    """Arguments of every boot of a QEMU machine."""
    return [*machine.kernel_args, *clock.kernel_args()]


def image_files(machine: Machine) -> dict[str, File]:
    """The files that make a Debian tree the root of a QEMU machine: {path: file}."""
    arguments = " ".join(kernel_args(machine))
    fstab = [f"LABEL={ROOT_LABEL} / {layout(machine).filesystem} defaults 0 {0 if machine.boot == 'grub-btrfs' else 1}"]
    if machine.boot == "grub-lvm":
        fstab.append(f"/dev/{VOLUME_GROUP}/boot /boot ext4 defaults 0 2")
    if machine.boot == "systemd-boot":
        disk, part = boot_disk(machine)
        fstab.append(f"{disk}{part}1 /boot/efi vfat umask=0077 0 2")
    files = {
        "/etc/hostname": File("lab\n"),
        "/etc/hosts": File("127.0.0.1 localhost\n"),
        "/etc/fstab": File("\n".join(fstab) + "\n"),
        # No name server: a lookup that cannot be answered fails at once instead of after its time-out.
        "/etc/resolv.conf": File(""),
        "/etc/systemd/system/lab-identity.service": File(_IDENTITY_UNIT),
        "/usr/local/sbin/lab-identity": File(_IDENTITY_SCRIPT, 0o755),
        "/etc/systemd/system/serial-getty@ttyS0.service.d/lab.conf": File(_CONSOLE_UNIT),
        "/usr/local/sbin/lab-console": File(_CONSOLE_SCRIPT, 0o755),
        "/etc/modprobe.d/lab.conf": File("".join(f"blacklist {module}\n" for module in _UNUSED_MODULES)),
        "/var/log/journal/.lab": File(""),  # the journal of a boot outlives it
        FIRST_BOOT: File(first_boot(machine), 0o755),
    }
    if machine.boot == "systemd-boot":
        files["/etc/kernel/cmdline"] = File(f"root=LABEL={ROOT_LABEL} ro {arguments}\n")
        files["/etc/kernel/install.conf"] = File("layout=bls\n")
    else:
        files["/etc/default/grub.d/10-lab.cfg"] = File(_GRUB.format(arguments=arguments))
    return files


# Drivers of things that QEMU's chipset has and no test uses; each costs an emulated boot its time.
_UNUSED_MODULES = ("ahci", "floppy", "kvm_amd", "kvm_intel", "pcspkr", "psmouse")

_IDENTITY_UNIT = """[Unit]
Description=Name, addresses and ssh key of this lab machine
DefaultDependencies=no
After=systemd-remount-fs.service
Before=systemd-networkd.service ssh.service network-pre.target sysinit.target
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/lab-identity

[Install]
WantedBy=sysinit.target
"""

# Unpacked when it is new: what a test writes over these files stays.
_IDENTITY_SCRIPT = f"""#!/bin/sh
set -e
modprobe qemu_fw_cfg
raw=/sys/firmware/qemu_fw_cfg/by_name/{IDENTITY}/raw
mark=/var/lib/lab-identity
sum=$(sha256sum < "$raw")
[ "$sum" = "$(cat "$mark" 2>/dev/null)" ] && exit 0
tar -x -C / -f "$raw"
hostname -F /etc/hostname
echo "$sum" > "$mark"
"""

# Root's shell, without the login package, which a small tree has not.
_CONSOLE_UNIT = """[Service]
ExecStart=
ExecStart=-/sbin/agetty --skip-login --login-program /usr/local/sbin/lab-console --noclear --keep-baud 115200 %I vt220
"""

_CONSOLE_SCRIPT = """#!/bin/sh
export HOME=/root
cd
exec bash --login
"""

_GRUB = """# What the lab wants of GRUB: no delay, everything on the serial console.
GRUB_TIMEOUT=0
GRUB_TERMINAL=serial
GRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"
GRUB_DISABLE_OS_PROBER=true
GRUB_CMDLINE_LINUX_DEFAULT=""
GRUB_CMDLINE_LINUX="{arguments}"
"""


def first_boot(machine: Machine) -> str:
    """The script that runs as the first process of the first boot, puts the boot loader in place and powers off."""
    disk, part = boot_disk(machine)
    steps = {
        "grub": f"step grub-install {disk}\nstep update-grub\n",
        "grub-btrfs": f"step grub-install {disk}\nstep update-grub\n",
        "grub-lvm": f"""step pvcreate -q {disk}{part}2
step vgcreate -q {VOLUME_GROUP} {disk}{part}2
step lvcreate -q -y -l 100%FREE -n boot {VOLUME_GROUP}
step mkfs.ext4 -q -L hp-boot /dev/{VOLUME_GROUP}/boot
step mount /dev/{VOLUME_GROUP}/boot /mnt
step cp -a /boot/. /mnt/
step umount /mnt
find /boot -mindepth 1 -delete
step mount /dev/{VOLUME_GROUP}/boot /boot
step grub-install {disk}
step update-grub
step umount /boot
step vgchange -q -a n {VOLUME_GROUP}
""",
        "systemd-boot": f"""mkdir -p /boot/efi
step mkfs.vfat -n HP-ESP {disk}{part}1
step mount {disk}{part}1 /boot/efi
step mount -t efivarfs efivarfs /sys/firmware/efi/efivars
step systemd-machine-id-setup
step bootctl install
version=$(ls /usr/lib/modules)
step kernel-install add "$version" "/boot/vmlinuz-$version" "/boot/initrd.img-$version"
step umount /boot/efi
""",
    }[machine.boot]
    return f"""#!/bin/sh
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
step() {{
    echo "HOSTPREP-LAB: $*"
    "$@" </dev/null && return
    echo "HOSTPREP-LAB: failed: $*"
    sync
    poweroff -f
}}
mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sysfs /sys
mountpoint -q /run || mount -t tmpfs tmpfs /run
# From a copy elsewhere, so that this file can be removed before the disk is made read-only.
if [ "$0" != /run/lab-first-boot ]; then
    cp "$0" /run/lab-first-boot
    exec sh /run/lab-first-boot
fi
step mount -o remount,rw /
udevadm --version >/dev/null && /usr/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add --subsystem-match=block
udevadm settle --timeout=60
{steps}udevadm control --exit
rm -f {FIRST_BOOT}
# The caches that the first start of systemd would make anew are those of the packages.
touch /etc/.updated /var/.updated
sync
step mount -o remount,ro /
echo "{FINISHED}"
poweroff -f
"""


def identity_files(lab: Lab, machine: Machine, public_key: str) -> dict[str, File]:
    """What makes a copy of an image this machine, and no other: {path: file}."""
    hosts = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in lab.hosts.items())]
    if machine.name not in lab.hosts:
        hosts.append(f"127.0.1.1 {machine.name}")
    files = {
        "/etc/hostname": File(f"{machine.name}\n"),
        "/etc/hosts": File("\n".join(hosts) + "\n"),
        "/root/.ssh/authorized_keys": File(public_key.strip() + "\n", 0o600),
    }
    gateway = f"Gateway={lab.gateway}\n"
    for index, nic in enumerate(machine.nics):
        lines = f"[Match]\nMACAddress={nic.mac}\n\n[Network]\nAddress={nic.address}\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
        if nic.net == "lab":
            lines += gateway
            gateway = ""  # the first one on the lab's network carries the default route
        files[f"/etc/systemd/network/{10 + index}-{nic.name}.network"] = File(lines)
    return files


def tar(files: Mapping[str, File]) -> bytes:
    """An archive with the files and their folders, the same bytes for the same files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, file in sorted(files.items()):
            if posixpath.dirname(path) == "/root/.ssh":
                folder = tarfile.TarInfo("root/.ssh")
                folder.type, folder.mode = tarfile.DIRTYPE, 0o700
                archive.addfile(folder)
            data = file.text.encode()
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mode = len(data), file.mode
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def host_files(machine: Machine) -> dict[str, File]:
    """The files that make a Debian tree the root of an nspawn host, which has no kernel and no boot loader of its own."""
    release = "6.1.0-lab-amd64"
    return {
        "/etc/resolv.conf": File(""),
        "/etc/fstab": File(""),
        "/etc/systemd/system/lab-fakes.service": File(_FAKES_UNIT),
        "/usr/local/sbin/lab-fakes": File(_FAKES_SCRIPT, 0o755),
        # grub-probe finds no device below a container's root; this answers as for one ext4 disk.
        "/usr/local/sbin/lab-grub-probe": File(_GRUB_PROBE, 0o755),
        # Something for update-grub to make an entry of.
        f"/boot/vmlinuz-{release}": File("The lab's nspawn hosts boot no kernel of their own.\n"),
        f"/boot/initrd.img-{release}": File("none\n"),
        "/boot/grub/.lab": File(""),
        "/etc/default/grub.d/10-lab.cfg": File(
            'GRUB_TIMEOUT=0\nGRUB_DISABLE_OS_PROBER=true\nGRUB_CMDLINE_LINUX_DEFAULT=""\nGRUB_CMDLINE_LINUX="console=ttyS0"\n'
        ),
    }


_FAKES_UNIT = """[Unit]
Description=Files of another machine over this host's own
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/lab-fakes

[Install]
WantedBy=sysinit.target
"""

# A changed boot entry shows in /proc/cmdline after a reboot, as on a machine with a boot loader: the arguments come from
# /etc/lab/cmdline if there is one, else from the first entry of grub.cfg. /etc/lab/proc-irq and /etc/lab/sys-cpu are
# folders to show in place of the real ones.
_FAKES_SCRIPT = """#!/bin/sh
fake=/run/lab-cmdline
if [ -f /etc/lab/cmdline ]; then
    cp /etc/lab/cmdline "$fake"
elif [ -f /boot/grub/grub.cfg ]; then
    sed -n 's/^[[:space:]]*linux[[:space:]]\\{1,\\}\\(.*\\)$/BOOT_IMAGE=\\1/p' /boot/grub/grub.cfg | head -n 1 > "$fake"
fi
[ -s "$fake" ] && mount --bind "$fake" /proc/cmdline
[ -d /etc/lab/proc-irq ] && mount --bind /etc/lab/proc-irq /proc/irq
[ -d /etc/lab/sys-cpu ] && mount --bind /etc/lab/sys-cpu /sys/devices/system/cpu
exit 0
"""

_GRUB_PROBE = """#!/bin/sh
case " $* " in
*" --target=device "* | *" -t device "*) echo /dev/vda1 ;;
*" --target=fs "* | *" -t fs "*) echo ext2 ;;
*" --target=fs_uuid "* | *" -t fs_uuid "*) echo 11111111-2222-3333-4444-555555555555 ;;
*" --target=partuuid "* | *" -t partuuid "*) echo 11111111-01 ;;
*" --target=partmap "* | *" -t partmap "*) echo msdos ;;
*" --target=drive "* | *" -t drive "*) echo '(hd0,msdos1)' ;;
*" --target=disk "* | *" -t disk "*) echo /dev/vda ;;
*" --target=compatibility_hint "*) echo hd0,msdos1 ;;
*" --target=hints_string "*) echo '--hint-bios=hd0,msdos1' ;;
*" --target=abstraction "* | *" -t abstraction "*) ;;
*) ;;
esac
"""
