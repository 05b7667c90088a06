# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel arguments that a host's boot loader files ask for, each with the file it came from. Reads only.

cpu_plan needs this and no more of boot loaders; which one a host has is in bootloader.py.
"""

from __future__ import annotations

from ..model import shell_values

ENTRY_FOLDERS = ("boot/loader/entries", "efi/loader/entries", "boot/efi/loader/entries")
GRUB_FOLDERS = ("boot/grub2", "boot/grub")
EFIVARS = "sys/firmware/efi/efivars"
_LOADER = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"  # systemd's vendor GUID, which GRUB uses too


def boot_args(tree, release):
    """{"source", "owned": [{"text", "owner"}] or None, "problems": [(path, sentence)]}.

    A Boot Loader Specification entry of the running kernel, else GRUB's defaults, else /etc/kernel/cmdline. Entries on the EFI system
    partition count where systemd-boot boots, or where GRUB has no defaults: a GRUB host may have some that nothing boots, and often
    only root may look. owned is None where there is none of all that, or where only root may read what is there.
    """
    defaults = grub_defaults(tree)
    folders = ENTRY_FOLDERS
    if defaults is not None and not (loader_variable(tree, "LoaderInfo") or "").startswith("systemd-boot"):
        folders = ENTRY_FOLDERS[:1]
    for folder in folders:
        names = entry_names(tree, folder)
        if names is None:
            return {"source": None, "owned": None, "problems": [(folder, tree.why(folder))]}
        for name in names:
            path = "%s/%s" % (folder, name)
            keys = _entry(tree.read(path) or "")
            kernel = keys.get("linux", "")
            if release and "options" in keys and release in (keys.get("version"), kernel.rpartition("vmlinuz-")[2]):
                owned = shell_values.tokens([(keys["options"], path)], environment(tree))
                return {"source": path, "owned": owned, "problems": []}
    if defaults is not None:
        pieces = defaults["values"].get("GRUB_CMDLINE_LINUX", []) + [(" ", None)]
        pieces = pieces + defaults["values"].get("GRUB_CMDLINE_LINUX_DEFAULT", [])
        owned = shell_values.tokens(pieces, environment(tree))
        return {"source": "etc/default/grub", "owned": owned, "problems": defaults["problems"]}
    path = "etc/kernel/cmdline"
    line = tree.read(path)
    if line is None:
        return {"source": None, "owned": None, "problems": []}
    line = "\n".join(part for part in line.split("\n") if not part.lstrip().startswith("#"))
    return {"source": path, "owned": shell_values.tokens([(line, path)]), "problems": []}


def entry_names(tree, folder):
    """Names of the Boot Loader Specification's entries in a folder, of which an editor's or a broken-off write's leftovers are none; [] where
    it is missing, None where it cannot be read."""
    names = tree.listdir(folder)
    if names is None:
        return [] if tree.why(folder) == "missing" else None
    return [name for name in names if name.endswith(".conf") and not name.startswith(".")]


def loader_variable(tree, name):
    """Text of one of the variables that boot loaders leave in the firmware: four bytes of attributes, then UTF-16; None for none."""
    data = tree.data("%s/%s-%s" % (EFIVARS, name, _LOADER))
    if data is None or len(data) < 6:
        return None
    body = data[4:]
    return (body + b"\0" * (len(body) % 2)).decode("utf-16-le", "replace").strip("\0 ")


def grub_files(tree):
    """[(path, text)] of GRUB's defaults in the order in which they are sourced; None where there are none."""
    text = tree.read("etc/default/grub")
    if text is None:
        return None
    files = [("etc/default/grub", text)]
    for name in tree.listdir("etc/default/grub.d") or []:
        path = "etc/default/grub.d/" + name
        if name.endswith(".cfg") and not name.startswith("."):  # what *.cfg stands for in a shell
            files.append((path, tree.read(path) or ""))
    return files


def grub_defaults(tree):
    """What model/shell_values.py makes of GRUB's defaults; None where there are none."""
    files = grub_files(tree)
    return None if files is None else shell_values.evaluate(files)


def _entry(text):
    """{key: value} of a Boot Loader Specification entry; several lines of options are one."""
    keys = {}
    for line in text.splitlines():
        parts = line.split(None, 1)
        if len(parts) == 2 and not parts[0].startswith("#"):
            more = parts[0] == "options" and "options" in keys
            keys[parts[0]] = keys["options"] + " " + parts[1] if more else parts[1]
    return keys


def grubenv(text):
    """{name: value} of GRUB's environment block: a first line, name=value lines, and # up to 1,024 bytes."""
    found = {}
    for line in (text or "").splitlines():
        name, equals, value = line.partition("=")
        if equals and name and not name.startswith("#"):
            found[name] = value.replace("\\\\", "\\")
    return found


def environment(tree):
    """{name: pieces} that GRUB puts in place of $name at boot: its environment block, and tuned's own file where its script is."""
    environment = {}
    if tree.exists("etc/grub.d/00_tuned"):
        path = "etc/tuned/bootcmdline"
        values = shell_values.evaluate([(path, tree.read(path) or "")])["values"]
        text = shell_values.flat(values.get("TUNED_BOOT_CMDLINE", []))[0]
        environment["tuned_params"] = [(text, "tuned (/%s)" % path)]
    for folder in GRUB_FOLDERS:
        path = folder + "/grubenv"
        for name, value in grubenv(tree.read(path)).items():
            owner = ("tuned (/%s)" if name == "tuned_params" else "%s") % path
            environment[name] = [(value, owner)]
    if "kernelopts" in environment:  # EL 8 keeps the whole command line there, with $tuned_params in it
        inner = {name: pieces for name, pieces in environment.items() if name != "kernelopts"}
        environment["kernelopts"] = shell_values.at_boot(environment["kernelopts"], inner)
    return environment
