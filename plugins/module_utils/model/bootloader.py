# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot loaders: which one a host has, whether it was ever booted with this collection, and how new arguments can be tried once.

``facts`` comes from host/bootloader.py and is plain data; nothing is read here.
"""

from __future__ import annotations

from .errors import HostprepError, finding

# What a backend changes, and on which machine of docs/lab.md it ran; where that is empty, it was only read in the sources named.
BACKENDS = {
    "debian": {
        "title": "Debian, Ubuntu (GRUB)",
        "writes": "/etc/default/grub.d/zz-lo0-rke2-hostprep.cfg; what grub-mkconfig prints becomes grub.cfg; the trial in custom.cfg",
        "ran_on": ("new", "old", "lvm", "btrfs"),
        "read_in": "grub-mkconfig of Debian 12, which was also run over the drop-in without booting",
    },
    "el": {
        "title": "RHEL, Rocky, AlmaLinux, Oracle Linux, Fedora (GRUB with Boot Loader Specification entries)",
        "writes": "entries in /boot/loader/entries: a clone for the trial, grubby for all of them",
        "ran_on": (),
        "read_in": "grubby(8) and the Boot Loader Specification",
    },
    "sles": {
        "title": "SLES, openSUSE Leap (GRUB)",
        "writes": "a marked block at the end of /etc/default/grub; what grub2-mkconfig prints becomes grub.cfg; the trial in custom.cfg",
        "ran_on": (),
        "read_in": "grub-mkconfig of GRUB 2.12",
    },
    "systemd-boot": {
        "title": "systemd-boot",
        "writes": "/etc/kernel/cmdline and the entries of installed kernels; a clone for the trial",
        "ran_on": ("sdboot",),
        "read_in": "kernel-install(8), systemd-boot(7), bootctl(1)",
    },
}

_EL = frozenset(("rhel", "centos", "rocky", "almalinux", "ol", "fedora", "amzn"))
_SUSE = frozenset(("sles", "sled", "suse", "opensuse", "opensuse-leap", "opensuse-tumbleweed"))
_SUSE_MICRO = frozenset(
    ("sl-micro", "sle-micro", "suse-microos", "opensuse-microos", "opensuse-leap-micro", "opensuse-aeon")
)


def choose(facts):
    """Name in BACKENDS for a host. Raises HostprepError: backend_ostree, backend_transactional, backend_uki, backend_unknown."""
    read = shown(facts)
    if facts["ostree"]:
        raise HostprepError(
            "backend_ostree",
            "the host is an ostree or bootc system, whose kernel arguments belong to its image",
            read=facts["ostree"],
            allowed=_allowed(),
            cure="set the plan's kernel_args with rpm-ostree kargs or in bootc's kargs.d",
        )
    names = [facts["os_id"] or "", *facts["os_like"]]
    if facts["transactional"] or _SUSE_MICRO.intersection(names):
        raise HostprepError(
            "backend_transactional",
            "the host is changed by transactional-update: a file written in the running system is lost with its snapshot",
            read=facts["transactional"] or "ID=%s" % facts["os_id"],
            allowed=_allowed(),
            cure="set the plan's kernel_args in one transactional-update call",
        )
    if facts["uki"]:
        raise HostprepError(
            "backend_uki",
            "the host boots a unified kernel image, in which the command line is signed",
            read=facts["uki"],
            allowed=_allowed(),
            cure="build the image with the plan's kernel_args, or boot through entries of the Boot Loader Specification",
        )
    if facts["systemd_boot"]:
        return "systemd-boot"
    grub_defaults = facts["default_grub"]
    if {"debian", "ubuntu"}.intersection(names) and grub_defaults and facts["grub_cfg"] == "boot/grub/grub.cfg":
        return "debian"
    if _EL.intersection(names) and facts["bls_entries"]:
        return "el"
    if (
        _SUSE.intersection(names)
        and grub_defaults
        and facts["grub_cfg"] == "boot/grub2/grub.cfg"
        and facts["bls_entries"] == []
    ):
        return "sles"
    raise HostprepError(
        "backend_unknown",
        "which boot loader the host has cannot be known",
        read=read,
        allowed=_allowed(),
        cure="run as root (entries may be closed to others), or set the plan's kernel_args with the host's own tool",
    )


def accept(backend, accept_untested=False):
    """The backend's row in BACKENDS. Raises HostprepError: backend_untested."""
    row = BACKENDS[backend]
    if not row["ran_on"] and not accept_untested:
        raise HostprepError(
            "backend_untested",
            "the boot loader backend %s was written from documentation and never booted" % backend,
            read="read in " + row["read_in"],
            allowed="backends that ran: %s"
            % (", ".join(name for name in BACKENDS if BACKENDS[name]["ran_on"]) or "none yet"),
            cure="try it on a host that you can lose, then set accept_untested_backend: true",
        )
    return row


def shown(facts):
    """One line with what the choice was made from."""
    parts = ["ID=%s" % (facts["os_id"] or "unknown")]
    if facts["os_like"]:
        parts.append("ID_LIKE=" + " ".join(facts["os_like"]))
    for name, what in (("default_grub", "/etc/default/grub"), ("kernel_cmdline", "/etc/kernel/cmdline")):
        parts.append("%s %s" % ("with" if facts[name] else "no", what))
    parts.append("/" + facts["grub_cfg"] if facts["grub_cfg"] else "no grub.cfg")
    entries = facts["bls_entries"]
    parts.append(
        "boot entries unreadable"
        if entries is None
        else "%d boot entries" % len(entries)
        if entries
        else "no boot entries"
    )
    return ", ".join(parts)


def _allowed():
    return "; ".join(row["title"] for row in BACKENDS.values())


# -- trying arguments once ---------------------------------------------------------------------------------------------------

BLOCK_SIZE = 1024  # of grubenv; GRUB rewrites it in place, block by block, and never more or less
_WRITABLE = ("ext2", "ext3", "ext4", "xfs", "fat", "vfat", "msdos")  # grub-probe calls all ext file systems ext2


def one_shot(probe):
    """(True or False, finding): whether GRUB clears a one-shot entry before it boots it.

    probe: {"abstraction": grub-probe's answer for the folder of grubenv or None, "fs": the same, "kind": "file", "link", "missing" or
    another word, "size": bytes or None, "allocated": bytes on the disk or None}. Where GRUB cannot write, `grub-reboot` exits 0 all
    the same and the trial boots for ever.
    """
    cure = "a kexec trial, or accept_untried_arguments: true"
    if probe["abstraction"] is None or probe["fs"] is None:
        return False, finding(
            "one_shot_unknown", "grub-probe did not say where GRUB's environment block lies", cure, "no answer"
        )
    layers = probe["abstraction"].split()
    if layers:
        return False, finding(
            "one_shot_abstraction",
            "GRUB only reads through %s: a one-shot entry would boot for ever" % ", ".join(layers),
            cure,
            "grub-probe --target=abstraction: %s" % " ".join(layers),
        )
    if probe["fs"].strip() not in _WRITABLE:
        return False, finding(
            "one_shot_file_system",
            "GRUB does not write to this file system: a one-shot entry would boot for ever",
            cure,
            "grub-probe --target=fs: %s" % (probe["fs"].strip() or "nothing"),
        )
    if probe["kind"] != "file":
        return False, finding(
            "one_shot_no_block",
            "GRUB's environment block is no regular file",
            "grub-editenv create, or " + cure,
            "grubenv is %s" % probe["kind"],
        )
    if probe["size"] != BLOCK_SIZE:
        return False, finding(
            "one_shot_block_size",
            "GRUB's environment block does not have its %d bytes, so GRUB does not write it" % BLOCK_SIZE,
            "move grubenv aside and run grub-editenv create, or " + cure,
            "grubenv has %s bytes" % probe["size"],
        )
    if probe["allocated"] is not None and probe["allocated"] < BLOCK_SIZE:
        return False, finding(
            "one_shot_block_sparse",
            "GRUB's environment block does not lie in blocks of its own on the disk, and GRUB writes only to such",
            "move grubenv aside and run grub-editenv create, or " + cure,
            "%d bytes of grubenv are on the disk" % probe["allocated"],
        )
    return True, finding(
        "one_shot",
        "GRUB clears the one-shot entry before it boots it",
        None,
        "%s, %d bytes" % (probe["fs"].strip(), probe["size"]),
    )


def kexec(state):
    """(True or False, finding): whether the kernel can be replaced without the boot loader.

    state: {"tool": path or None, "built": whether the running kernel has kexec, "file_load": whether it checks signatures itself,
    "load_disabled": text of kernel.kexec_load_disabled, "lockdown": text of the lockdown file}; None for unknown. A kernel that is not
    taken after all is refused when it is loaded, before anything is shut down.
    """
    cure = "a reboot through the boot loader with accept_untried_arguments: true"
    if not state["tool"]:
        return False, finding("kexec_missing", "kexec is not installed", "install kexec-tools, or " + cure, "no kexec")
    if state["built"] is False:
        return False, finding(
            "kexec_not_built", "the kernel is built without kexec", cure, "no /sys/kernel/kexec_loaded"
        )
    if (state["load_disabled"] or "0").strip() != "0":
        return False, finding(
            "kexec_disabled",
            "kexec is switched off until the next boot",
            cure,
            "kernel.kexec_load_disabled is " + state["load_disabled"].strip(),
        )
    lockdown = state["lockdown"] or ""
    active = lockdown[lockdown.find("[") + 1 : lockdown.find("]")] if "[" in lockdown else "none"
    if active != "none" and state["file_load"] is False:
        return False, finding(
            "kexec_lockdown", "the kernel is locked down and takes no unsigned kernel", cure, lockdown.strip()
        )
    return True, finding(
        "kexec", "the trial is booted by kexec and nothing is written to the boot loader", None, state["tool"]
    )


def trial_method(backend, clears, can_kexec, accept_untried=False):
    """{"method": "one_shot", "kexec" or "untried", "reasons": [finding]} of the first way that is open. Raises HostprepError: trial_impossible.

    clears and can_kexec are what `one_shot` and `kexec` returned. systemd-boot clears its one-shot variable in the firmware itself, so
    it needs no environment block: pass (True, finding) from `efi_one_shot`.
    """
    if clears[0]:
        return {"method": "one_shot", "reasons": [clears[1]]}
    if can_kexec[0]:
        return {"method": "kexec", "reasons": [clears[1], can_kexec[1]]}
    if accept_untried:
        return {"method": "untried", "reasons": [clears[1], can_kexec[1]]}
    raise HostprepError(
        "trial_impossible",
        "new arguments cannot be tried once on this host (%s): %s; %s"
        % (backend, clears[1]["message"], can_kexec[1]["message"]),
        read="; ".join(str(reason["read"]) for reason in (clears[1], can_kexec[1])),
        allowed="a boot loader that clears a one-shot entry, or kexec",
        cure="install kexec-tools, or stand at the console and set accept_untried_arguments: true",
    )


def efi_one_shot(facts):
    """(True or False, finding) for systemd-boot, which deletes LoaderEntryOneShot before it boots the entry."""
    if facts["efivars"]:
        return True, finding(
            "one_shot", "systemd-boot deletes the one-shot variable before it boots the entry", None, "efivars"
        )
    return False, finding(
        "one_shot_no_efivars",
        "the firmware's variables cannot be written, so no one-shot entry can be set",
        "mount efivarfs, or a kexec trial",
        "no efivars",
    )
