# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot loader a host has, what a trial on it needs, and what a boot is judged from. Reads only.

``facts`` is what model/bootloader.py chooses a backend from; ``tuned`` tells which arguments tuned's active profile claims, whether
or not it has written them yet.
"""

from __future__ import annotations

import os
import re
import stat

from ..model import kernel_args, shell_values
from .boot_args import EFIVARS, ENTRY_FOLDERS, GRUB_FOLDERS, entry_names, grub_defaults, loader_variable

_TUNED_FOLDERS = ("etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned")
_PROFILE = re.compile(r"[A-Za-z0-9_.-]+\Z", re.ASCII)
_TRUE = ("true", "1", "yes", "on")


# -- tuned -------------------------------------------------------------------------------------------------------------------


def tuned(tree):
    """What tuned's active profile and all that it includes come to, merged by tuned's rules; None without a profile.

    {"profile": names, "arguments": {kernel argument: path of the file that claims it}, "skips": whether boot arguments are left alone,
    "settings": {section: {option: {"value", "path"}}} without switched off sections, "missing": [profiles that are not there]}.
    """
    active = (tree.read("etc/tuned/active_profile") or "").split()
    if not active:
        return None
    sections, missing = {}, []
    _load(tree, active + (tree.read("etc/tuned/post_loaded_profile") or "").split(), sections, missing, set())
    settings = {
        name: options
        for name, options in sections.items()
        if options.get("enabled", {"value": "true"})["value"].lower() in _TRUE and name not in ("main", "variables")
    }
    boot = settings.get("bootloader", {})
    skips = boot.get("skip_grub_config", {"value": ""})["value"].lower() in _TRUE
    arguments = {}
    for key, option in boot.items():
        if key.startswith("cmdline") and not skips:
            for token in kernel_args.split(option["value"].strip("\"'")):
                arguments.setdefault(kernel_args.name_of(token.lstrip("+-")), option["path"])
    return {
        "profile": " ".join(active),
        "arguments": arguments,
        "skips": skips,
        "settings": settings,
        "missing": missing,
    }


def _load(tree, names, sections, missing, seen):
    """Merges profiles, what they include first; a name with a leading - may be missing."""
    for given in names:
        name = given[1:] if given.startswith("-") else given
        if not _PROFILE.match(name):
            missing.append(given)
            continue
        paths = ["%s/%s/tuned.conf" % (folder, name) for folder in _TUNED_FOLDERS]
        path = next((path for path in paths if path not in seen and tree.read(path) is not None), None)
        if path is None:
            if given == name and not seen.intersection(paths):
                missing.append(given)
            continue
        if len(seen) >= 50:
            return
        seen.add(path)
        profile = _sections(path, tree.read(path))
        include = profile.get("main", {}).get("include", {"value": ""})["value"]
        _load(tree, include.replace(",", " ").replace(";", " ").split(), sections, missing, seen)
        for section, options in profile.items():
            known = sections.setdefault(section, {})
            if options.pop("replace", {"value": ""})["value"].lower() in _TRUE:
                known.clear()
            for dropped in re.split(r"\s*[,;]\s*", options.pop("drop", {"value": ""})["value"]):
                known.pop(dropped, None)
            known.update(options)


def _sections(path, text):
    found, section = {}, None
    for line in text.splitlines():
        line = re.split(r"(?:^|\s)[#;]", line, maxsplit=1)[0].strip()
        if line.startswith("[") and line.endswith("]"):
            section = found.setdefault(line[1:-1].strip(), {})
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if equals and section is not None:
            section[key] = {"value": value.lstrip(">").strip(), "path": path}
    return found


# -- which boot loader it is -------------------------------------------------------------------------------------------------


def facts(tree):
    """What model/bootloader.choose looks at."""
    release = {}
    for path in ("etc/os-release", "usr/lib/os-release"):
        text = tree.read(path)
        if text is not None:
            values = shell_values.evaluate([(path, text)])["values"]
            release = {name: shell_values.flat(values.get(name, []))[0] for name in ("ID", "ID_LIKE")}
            break
    entries = entry_names(tree, "boot/loader/entries")
    grub_cfg = next((path for path in ("boot/grub/grub.cfg", "boot/grub2/grub.cfg") if tree.exists(path)), None)
    defaults = grub_defaults(tree)
    bls = shell_values.flat((defaults or {"values": {}})["values"].get("GRUB_ENABLE_BLSCFG", []))[0]
    loader = loader_variable(tree, "LoaderInfo")
    on_esp = [folder for folder in ENTRY_FOLDERS if tree.exists(folder[: -len("entries")] + "loader.conf")]
    if loader is not None:
        systemd_boot = loader.startswith("systemd-boot")
    else:
        systemd_boot = bool(on_esp) and grub_cfg is None
    return {
        "os_id": release.get("ID") or None,
        "os_like": (release.get("ID_LIKE") or "").split(),
        "ostree": _ostree(tree),
        "transactional": next(
            (
                "/" + path
                for path in ("usr/sbin/transactional-update", "sbin/transactional-update")
                if tree.exists(path)
            ),
            None,
        ),
        "uki": _uki(tree, entries, grub_cfg, on_esp),
        "systemd_boot": systemd_boot,
        "default_grub": defaults is not None,
        "grub_cfg": grub_cfg,
        "bls_entries": [] if bls.lower() == "false" else entries,
        "kernel_cmdline": tree.exists("etc/kernel/cmdline"),
        "efivars": bool(tree.listdir(EFIVARS)),
        "sh": _shell(tree),
    }


def _ostree(tree):
    if tree.exists("run/ostree-booted"):
        return "/run/ostree-booted"
    token = next((one for one in kernel_args.split(tree.read("proc/cmdline") or "") if one.startswith("ostree=")), None)
    return token and "/proc/cmdline: " + token


def _uki(tree, entries, grub_cfg, on_esp):
    """The evidence that a unified kernel image is booted, or None."""
    stub = loader_variable(tree, "StubInfo")
    if stub:
        return "StubInfo " + stub
    for line in (tree.read("etc/kernel/install.conf") or "").splitlines():
        if line.replace(" ", "").partition("#")[0] == "layout=uki":
            return "/etc/kernel/install.conf: layout=uki"
    typed = entries or any(entry_names(tree, folder) for folder in ENTRY_FOLDERS if folder in on_esp)
    for folder in ("efi/EFI/Linux", "boot/efi/EFI/Linux", "boot/EFI/Linux"):
        images = [name for name in tree.listdir(folder) or [] if name.lower().endswith(".efi")]
        if images and not typed and grub_cfg is None:
            return "/%s/%s and no other entry" % (folder, images[0])
    return None


def _shell(tree):
    """What /bin/sh is called: dash, bash or another word; None where that cannot be seen."""
    for path in ("usr/bin/sh", "bin/sh"):
        target = tree.target(path)
        if target:
            return target.rpartition("/")[2]
    return None


# -- what a trial needs, and what a boot is judged from ----------------------------------------------------------------------


def environment_block(root="/"):
    """{"path", "kind", "size", "allocated"} of GRUB's environment block on this machine; model/bootloader.one_shot takes the last three."""
    for folder in GRUB_FOLDERS:
        path = os.path.join(root, folder, "grubenv")
        try:
            found = os.lstat(path)
        except OSError:
            continue
        kind = next(
            (
                word
                for word, matches in (("file", stat.S_ISREG), ("link", stat.S_ISLNK), ("folder", stat.S_ISDIR))
                if matches(found.st_mode)
            ),
            "no file",
        )
        return {"path": path, "kind": kind, "size": found.st_size, "allocated": found.st_blocks * 512}
    return {"path": None, "kind": "missing", "size": None, "allocated": None}


def kexec_state(tree, release):
    """What model/bootloader.kexec looks at."""
    tool = next(("/" + path for path in ("usr/sbin/kexec", "sbin/kexec", "usr/bin/kexec") if tree.exists(path)), None)
    built = tree.exists("sys/kernel/kexec_loaded") if tree.exists("sys/kernel") else None
    file_load = None
    for path in ("boot/config-%s" % release, "lib/modules/%s/config" % release):
        text = tree.read(path)
        if text is not None:
            file_load = "\nCONFIG_KEXEC_FILE=y" in "\n" + text
            break
    return {
        "tool": tool,
        "built": built,
        "file_load": file_load,
        "load_disabled": tree.read("proc/sys/kernel/kexec_load_disabled"),
        "lockdown": tree.read("sys/kernel/security/lockdown"),
    }


def seen(tree):
    """The part of model/boot_judge.judge's `seen` that lies in files, and the boot's id; the caller adds kernel_log and managed."""
    cpu = "sys/devices/system/cpu/"
    return {
        "cmdline": tree.read("proc/cmdline"),
        "online": tree.read(cpu + "online"),
        "default_smp_affinity": tree.read("proc/irq/default_smp_affinity"),
        "nohz_full": tree.read(cpu + "nohz_full"),
        "isolated": tree.read(cpu + "isolated"),
        "boot_id": tree.read("proc/sys/kernel/random/boot_id"),
    }
