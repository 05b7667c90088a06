# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images: made once, kept in the user's cache under a name that follows from what they are made of, never written to again.

A QEMU image is a folder with ``disk.img`` (sparse), for UEFI ``vars.fd``, and ``image.json``; an nspawn image is a folder
with the tree. Partitions are filled by mke2fs and mkfs.btrfs at their offset, so that no loop device and no mount is
needed; what needs a running machine (grub-install, LVM, bootctl) is done by the image's first boot.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import guest, qemu, rootfs
from .errors import LabError
from .spec import Machine
from .state import Process, this_process
from .tools import NICE, Waiting, last_line, last_lines, locked, remove, run, say, write

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lo0.rke2_hostprep" / "lab"
FREE_MIB = {"qemu": 3000, "nspawn": 1200}  # while it is made, beside what its tree needs
FIRST_BOOT_LIMIT = 600
_SOURCE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()  # read once: the file may change while this runs


@dataclass(frozen=True)
class Image:
    folder: Path
    kernel: str  # the release; empty for nspawn

    @property
    def disk(self) -> Path:
        return self.folder / "disk.img"

    @property
    def firmware_variables(self) -> Path | None:
        path = self.folder / "vars.fd"
        return path if path.exists() else None


def key(machine: Machine) -> str:
    if machine.kind == "nspawn":
        parts = [asdict(f) | {"path": p} for p, f in guest.host_files(machine).items()]
    else:
        parts = [asdict(f) | {"path": p} for p, f in guest.image_files(machine).items()]
        parts += [
            asdict(guest.layout(machine)),
            asdict(machine.disks[0]),
            {"kernel": machine.kernel, "boot": machine.boot},
        ]
    recipe = [
        rootfs.key(machine),
        sorted(machine.disabled),
        parts,
        _SOURCE,
    ]
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def place(machine: Machine) -> Path:
    return CACHE / machine.kind / f"{machine.distribution}-{machine.boot or 'host'}-{key(machine)}"


def find(machine: Machine) -> Image | None:
    return read(place(machine))


def read(folder: Path) -> Image | None:
    """The image in that folder of the cache; None if there is none."""
    try:
        return Image(folder, json.loads((folder / "image.json").read_text(encoding="utf-8"))["kernel"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def using() -> contextlib.AbstractContextManager[None]:
    """While it is held nothing is taken from the cache: from finding an image until a machine's state names it."""
    return locked(CACHE / "locks" / "cache", "Another command removes images", shared=True)


def removing() -> contextlib.AbstractContextManager[None]:
    return locked(CACHE / "locks" / "cache", "Another command makes images, or machines from them")


def ensure(machine: Machine) -> Image:
    """The machine's image, made if the cache does not have it; two that want the same one make it once."""
    found = find(machine)
    if found:
        return found
    require_room(machine)  # before anything is written: a full disk takes no lock file either
    with using():
        # Trees first: what waits for one finds it in the cache.
        for name in (f"rootfs-{rootfs.key(machine)}", f"image-{key(machine)}"):
            with locked(CACHE / "locks" / name, f"Another run makes {name}"), scratch() as work:
                require_room(machine)  # other builds may have taken it meanwhile
                if name.startswith("rootfs"):
                    rootfs.build(CACHE, machine, work)
                elif not find(machine):
                    begin = time.monotonic()
                    kernel = (_host if machine.kind == "nspawn" else _disk)(machine, work)
                    facts = {"kernel": kernel, "machine": machine.name, "seconds": round(time.monotonic() - begin)}
                    write(work / "image" / "image.json", json.dumps(facts))
                    place(machine).parent.mkdir(parents=True, exist_ok=True)
                    remove(place(machine))  # the rest of one whose removal was cut short
                    os.replace(work / "image", place(machine))
        image = find(machine)
        assert image, place(machine)
        return image


def require_room(machine: Machine) -> None:
    """For what of the machine's image is not in the cache yet."""
    if not find(machine):
        tree = 0 if rootfs.archive(CACHE, machine).exists() else rootfs.FREE_MIB
        require_space(CACHE, tree + FREE_MIB[machine.kind], f"an image of {machine.name}")


def require_space(folder: Path, mib: int, what: str) -> None:
    """Makes nothing: the folder need not be there yet."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free // 2**20
    if free < mib:
        raise LabError(f"There is no room for {what}: {folder} has {free} MiB free, and it needs {mib} MiB.")


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one build, named after the process that it belongs to."""
    (CACHE / "tmp").mkdir(parents=True, exist_ok=True)
    me = this_process()
    folder = Path(tempfile.mkdtemp(prefix=f"build-{me.pid}-{me.started}-", dir=CACHE / "tmp"))
    try:
        yield folder
    finally:
        rootfs.remove_tree(folder)


def abandoned() -> list[Path]:
    """The scratch folders of builds that were killed."""
    found = []
    for folder in (CACHE / "tmp").glob("build-*"):
        named = re.match(r"build-(\d+)-(\d+)-", folder.name)
        if named and not Process(int(named[1]), int(named[2])).alive:
            found.append(folder)
    return found


def _tree(machine: Machine, files: dict[str, guest.File], root: Path) -> None:
    """Unpacks the machine's tree and writes the lab's files into it."""
    tar = rootfs.archive(CACHE, machine)
    with Waiting(f"{machine.name}: unpacking {tar.name}"):
        rootfs.unpack(tar, root)
    (root / "etc/resolv.conf").unlink(missing_ok=True)  # may be a link to a service's file
    for path, file in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, file.text)
        target.chmod(file.mode)
    for unit in machine.disabled:
        run(["chroot", root, "sh", "-c", "systemctl -q list-unit-files --no-legend \"$1\" | grep -q . && systemctl -q disable \"$1\" 2>/dev/null; exit 0",
             "sh", unit if "." in unit else f"{unit}.service"], f"Disabling {unit}")  # fmt: skip


def _enable(root: Path, *units: str) -> None:
    run(["chroot", root, "systemctl", "-q", "enable", *units], f"Enabling {', '.join(units)}")


def _host(machine: Machine, work: Path) -> str:
    root = work / "image" / "root"
    _tree(machine, guest.host_files(machine), root)
    _enable(root, "lab-fakes.service", "ssh.service")
    run(["chroot", root, "dpkg-divert", "--quiet", "--local", "--rename", "--divert", "/usr/sbin/grub-probe.real", "--add", "/usr/sbin/grub-probe"],
        "Diverting grub-probe")  # fmt: skip
    (root / "usr/sbin/grub-probe").symlink_to("/usr/local/sbin/lab-grub-probe")
    return ""


def _disk(machine: Machine, work: Path) -> str:
    (work / "image").mkdir()
    root, disk = work / "root", work / "image" / "disk.img"
    _tree(machine, guest.image_files(machine), root)
    _enable(root, "systemd-networkd.service", "lab-identity.service", "ssh.service", "serial-getty@ttyS0.service")
    kernels = [p.name.removeprefix("vmlinuz-") for p in (root / "boot").glob("vmlinuz-*")]
    if len(kernels) != 1 or not kernels[0].startswith(machine.kernel + "."):
        raise LabError(
            f"Debian {machine.distribution} brought kernel {' and '.join(kernels) or '(none)'}, and {machine.name} is to have {machine.kernel}."
        )
    layout = guest.layout(machine)
    with Waiting(f"{machine.name}: making the {machine.disks[0].gib} GiB disk ({machine.boot})"):
        with open(disk, "wb") as file:
            file.truncate(machine.disks[0].gib * 2**30)
        run(["sfdisk", "--quiet", disk], "Partitioning the disk", stdin=layout.sfdisk)
        if layout.filesystem == "ext4":
            run([*NICE, "mke2fs", "-q", "-F", "-t", "ext4", "-L", guest.ROOT_LABEL, "-d", root, "-E", f"offset={layout.begin_mib * 2**20}",
                 disk, f"{layout.size_mib * 1024}k"], "Making the file system")  # fmt: skip
        else:
            part = work / "part.img"
            with open(part, "wb") as file:
                file.truncate(layout.size_mib * 2**20)
            run([*NICE, "mkfs.btrfs", "-q", "-L", guest.ROOT_LABEL, "--rootdir", root, part], "Making the file system")
            copy_sparse(part, disk, layout.begin_mib * 2**20)
            part.unlink()
    if machine.boot == "systemd-boot":
        shutil.copyfile(qemu.OVMF_VARIABLES, work / "image" / "vars.fd")
    console = work / "first-boot.log"
    command = qemu.first_boot(
        machine, disk, root / f"boot/vmlinuz-{kernels[0]}", root / f"boot/initrd.img-{kernels[0]}", console
    )
    _first_boot(machine, command, console)
    if guest.FINISHED not in "\n".join(last_lines(console, 30)):
        raise LabError(
            "\n".join(
                [
                    f"The boot loader of {machine.name} could not be installed; its console ended with:",
                    *last_lines(console, 30),
                ]
            )
        )
    os.chmod(disk, 0o444)
    say(f"{machine.name}: image with kernel {kernels[0]} is ready")
    return kernels[0]


def _first_boot(machine: Machine, command: Sequence[str], console: Path) -> None:
    with Waiting(
        f"{machine.name}: first boot, which installs the boot loader ({machine.boot})", lambda: last_line(console)
    ):
        try:
            run(
                [*NICE, "setpriv", "--pdeathsig", "KILL", *command],
                f"The first boot of {machine.name}",
                timeout=FIRST_BOOT_LIMIT,
            )
        except LabError as error:  # the console's log goes with the scratch folder
            said = last_lines(console, 30)
            raise LabError("\n".join([str(error), "Its console ended with:", *(said or ["(nothing)"])])) from None


def copy_sparse(source: Path, target: Path, offset: int) -> None:
    """Copies the data of ``source`` to ``offset`` in ``target``, leaving holes as holes."""
    with open(source, "rb") as a, open(target, "r+b") as b:
        end = os.fstat(a.fileno()).st_size
        position = 0
        while position < end:
            try:
                position = os.lseek(a.fileno(), position, os.SEEK_DATA)
            except OSError:  # nothing but a hole up to the end
                break
            stop = os.lseek(a.fileno(), position, os.SEEK_HOLE)
            a.seek(position)
            b.seek(offset + position)
            while position < stop:
                data = a.read(min(2**22, stop - position))
                b.write(data)
                position += len(data)


def present() -> list[Path]:
    """The images and the trees that lie in the cache."""
    return sorted(p for kind in ("qemu", "nspawn", "rootfs") for p in (CACHE / kind).glob("*"))
