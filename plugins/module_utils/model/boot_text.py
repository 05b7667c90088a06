# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts of boot loader files with our arguments in them, and without: old text in, new text out, and back byte for byte.

Three shapes. A file that is ours as a whole (Debian's drop-in). A marked block at the end of a file that is not ours
(/etc/default/grub). Tokens at the end of a line in which every word goes to the kernel, so that no mark can stand there
(/etc/kernel/cmdline, ``options`` of an entry): there the tokens that were added are recorded, and those are taken out again.
"""

from __future__ import annotations

import fnmatch
import re

from . import shell_values
from .cmdline import TRIAL_MARK
from .errors import HostprepError, finding

# grub-mkconfig sources /etc/default/grub.d/*.cfg in the shell's order. Cloud images bring 50-cloudimg-settings.cfg, which assigns
# anew, and packages bring names without a number (kdump-tools.cfg), which sort after every number. A name with zz sorts after both.
DROP_IN = "etc/default/grub.d/zz-lo0-rke2-hostprep.cfg"
_DEFAULTS = "etc/default/grub"
_CMDLINE = "etc/kernel/cmdline"
_ENTRIES = "boot/loader/entries/"
_VARIABLE = "GRUB_CMDLINE_LINUX_DEFAULT"  # not in recovery entries, which stay as they are
_HEAD = "# Kernel arguments of lo0.rke2_hostprep. Written by its module kernel_cmdline, which also removes it."
_BEGIN = "# BEGIN lo0.rke2_hostprep kernel arguments"
_CUT = " (the line before had no end)"
_END = "# END lo0.rke2_hostprep kernel arguments"
_BLOCK = re.compile("(\n?)" + re.escape(_BEGIN) + "(" + re.escape(_CUT) + ")?\n[^\n]*\n" + re.escape(_END) + "\n")


def assignment(tokens):
    """One line of shell that adds tokens to what the variable holds, and removes nothing from it."""
    return '%s="${%s:+$%s }%s"\n' % (_VARIABLE, _VARIABLE, _VARIABLE, " ".join(tokens))


def drop_in(tokens):
    """Text of Debian's drop-in; None, which means no file, for no tokens."""
    return "%s\n%s" % (_HEAD, assignment(tokens)) if tokens else None


def refuse_defaults(result, shell=None):
    """Refuses GRUB's defaults that grub-mkconfig would stop at: grub_defaults_broken, grub_defaults_append.

    result: of shell_values.evaluate; shell: what /bin/sh is called. Returns findings on what cannot be known without running them.
    """
    if result["broken"]:
        path, sentence = next(entry for entry in result["problems"] if entry[0] == result["broken"][0])
        raise HostprepError(
            "grub_defaults_broken",
            "a file of GRUB's defaults is no complete shell, so that GRUB's configuration cannot be generated",
            read="/%s: %s" % (path, sentence),
            allowed="shell assignments",
            cure="correct the file",
        )
    if result["appended"] and shell == "dash":
        raise HostprepError(
            "grub_defaults_append",
            "a file of GRUB's defaults uses +=, which dash takes for a command that does not exist",
            read="/%s, with dash as /bin/sh" % result["appended"][0],
            allowed='%s="$%s more"' % (_VARIABLE, _VARIABLE),
            cure="correct the file",
        )
    return [
        finding(
            "grub_defaults_unclear",
            "what a file of GRUB's defaults sets depends on what it runs",
            "compare /proc/cmdline after the boot",
            "/%s: %s" % (path, sentence),
        )
        for path, sentence in result["problems"]
    ] + [
        finding(
            "grub_defaults_unclear",
            "%s depends on what a command says" % name,
            "compare /proc/cmdline after the boot",
            "/" + path,
        )
        for name, path in sorted(result["unknown"].items())
        if name in ("GRUB_CMDLINE_LINUX", _VARIABLE)
    ]


def refuse_discarded(files, tokens):
    """Refuses a drop-in that would be written in vain, since a file that is sourced later assigns anew: drop_in_discarded.

    files: [(path, text)] in their order, with or without the drop-in.
    """
    others = [entry for entry in files if entry[0] != DROP_IN]
    ordered = others[:1] + sorted([*others[1:], (DROP_IN, drop_in(tokens) or "")])
    for number in range(1, len(ordered) + 1):
        left = shell_values.evaluate(ordered[:number])["values"].get(_VARIABLE, [])
        there = [token["text"] for token in shell_values.tokens(left) if token["owner"] == DROP_IN]
        if (DROP_IN in [path for path, _text in ordered[:number]]) and there != list(tokens):
            raise HostprepError(
                "drop_in_discarded",
                "a file that is sourced after ours assigns %s anew, and our arguments would be lost" % _VARIABLE,
                read="/" + ordered[number - 1][0],
                allowed='%s="$%s more" in files after /%s' % (_VARIABLE, _VARIABLE, DROP_IN),
                cure="correct that file, or give it a name that sorts before ours",
            )


# -- a marked block ----------------------------------------------------------------------------------------------------------


def with_block(text, tokens):
    """A GRUB defaults file with our block at its end, in place of one that is there. No tokens: without it."""
    text = without_block(text)
    if not tokens:
        return text
    cut = bool(text) and not text.endswith("\n")
    return "%s%s%s%s\n%s%s\n" % (text, "\n" if cut else "", _BEGIN, _CUT if cut else "", assignment(tokens), _END)


def without_block(text):
    """The same file as it was before the block. Raises HostprepError: owned_block_damaged."""
    marks = text.count(_BEGIN), text.count(_END)
    if marks == (0, 0):
        return text
    found = list(_BLOCK.finditer(text))
    if marks != (1, 1) or len(found) != 1:
        raise HostprepError(
            "owned_block_damaged",
            "the block of this collection in a boot loader file was changed by hand",
            read="%d lines that begin it and %d that end it, with %d whole blocks" % (marks[0], marks[1], len(found)),
            allowed="one block of three lines, or none",
            cure="remove its lines by hand",
        )
    block = found[0]
    start = block.start() if block.group(2) else block.start() + len(block.group(1))
    return text[:start] + text[block.end() :]


# -- tokens at the end of a line ---------------------------------------------------------------------------------------------


def with_tokens(text, tokens, added=()):
    """A /etc/kernel/cmdline with tokens at the end of its last line, after those in `added` (recorded before) were taken out."""
    return _with(text, tokens, added, "", lambda line: bool(line.strip()) and not line.lstrip().startswith("#"))


def entry_with_tokens(text, tokens, added=()):
    """A Boot Loader Specification entry with tokens at the end of its last ``options``."""
    return _with(text, tokens, added, "options ", lambda line: bool(_OPTIONS.match(line)))


def entry_tokens(text, environment=None):
    """Tokens that an entry gives to its kernel. environment: {name: pieces} of what GRUB puts in place of $name."""
    options = " ".join(value for key, value in entry(text) if key == "options")
    return [token["text"] for token in shell_values.tokens([(options, None)], environment)]


_OPTIONS = re.compile(r"options[ \t]+\S")
MACHINE_ID = "systemd.machine_id="
_MACHINE_ID = re.compile(r"[ \t]+systemd\.machine_id=\S+\Z")  # kernel-install puts it behind all of /etc/kernel/cmdline


def _with(text, tokens, added, prefix, target):
    lines = text.split("\n")
    if added:
        lines = _without(lines, added, prefix, target)
    if not tokens:
        return "\n".join(lines)
    run = " ".join(tokens)
    for index in range(len(lines) - 1, -1, -1):
        if target(lines[index]):
            body = lines[index].rstrip()
            kept = _MACHINE_ID.search(body) if prefix else None
            end = kept.start() if kept else len(body)
            lines[index] = body[:end] + " " + run + body[end:] + lines[index][len(body) :]
            return "\n".join(lines)
    if lines[-1]:
        lines.append(prefix + run)  # the file had no end of line, and gets none
    else:
        lines.insert(len(lines) - 1, prefix + run)
    return "\n".join(lines)


def _without(lines, added, prefix, target):
    """Lines without the last mention of each recorded token; a line that held nothing else goes with them."""
    lines = list(lines)
    whole = prefix + " ".join(added)
    if whole in lines:
        del lines[len(lines) - 1 - lines[::-1].index(whole)]
        return lines
    for token in reversed(added):
        pattern = re.compile(r"(?:(?<=\s)|^)" + re.escape(token) + r"(?=\s|\Z)")
        for index in range(len(lines) - 1, -1, -1):
            if not target(lines[index]):
                continue
            found = list(pattern.finditer(lines[index]))
            if found:
                start, end = found[-1].span()
                if start and lines[index][start - 1] in " \t":
                    start -= 1
                elif lines[index][end : end + 1] in (" ", "\t"):
                    end += 1
                lines[index] = lines[index][:start] + lines[index][end:]
                break
    return lines


def new_cmdline(base, tokens):
    """Text of a /etc/kernel/cmdline where there was none: what the booted entry had, and ours. Undoing it removes the file.

    Without that file kernel-install copies /proc/cmdline, so a kernel package that comes in during a trial would keep the trial's.
    """
    return " ".join([*base, *tokens]) + "\n"


# -- entries of the Boot Loader Specification --------------------------------------------------------------------------------


def entry(text):
    """[(key, value)] of an entry; comments and blank lines are left out."""
    found = []
    for line in text.split("\n"):
        parts = line.strip().split(None, 1)
        if parts and not parts[0].startswith("#"):
            found.append((parts[0], parts[1] if len(parts) == 2 else ""))
    return found


def release_of(text):
    """Kernel release of an entry: its version, else what its kernel's file is called; None where neither is there."""
    keys = dict(entry(text))
    kernel = keys.get("linux", "").rpartition("/")[2]
    return keys.get("version") or (kernel.partition("vmlinuz-")[2] if kernel.startswith("vmlinuz-") else None) or None


def running_entry(entries, release):
    """Name of the entry that boots this kernel release. entries: {file name: text}. Raises HostprepError: entry_unknown."""
    found = []
    for name in sorted(entries):
        keys = dict(entry(entries[name]))
        linux = keys.get("linux", "")
        same = release in (
            keys.get("version"),
            linux.rpartition("vmlinuz-")[2],
            linux.rpartition("/")[0].rpartition("/")[2],
        )
        if release and same and "options" in keys and not trial_name(name) and "rescue" not in name:
            found.append(name)
    if len(found) != 1:
        raise HostprepError(
            "entry_unknown",
            "which boot entry the running kernel was booted from cannot be known",
            read="kernel %s; entries that name it: %s" % (release, ", ".join(found) or "none"),
            allowed="one entry of the running kernel",
            cure="remove entries that are left over, or install the running kernel again",
        )
    return found[0]


def pending_entry(entries, release, chosen=()):
    """Release of the entry that is booted unless told, where that is not the running one; None where it is, or is unknown.

    entries: {file name: text}. chosen: ids and patterns by which the boot loader chooses, the first that fits; without any it takes the
    newest version (grub2's blscfg and systemd-boot sort alike there).
    """
    known = {name[: -len(".conf")]: release_of(text) for name, text in entries.items() if not trial_name(name)}
    known = {name: found for name, found in known.items() if found and "rescue" not in name}
    for pattern in chosen or ("*",):
        pattern = pattern[: -len(".conf")] if pattern.endswith(".conf") else pattern
        fitting = [found for name, found in known.items() if fnmatch.fnmatchcase(name, pattern)]
        if fitting:
            newest = max(fitting, key=_version)
            return newest if newest != release else None
    return None


def _version(release):
    """Numbers compare as numbers, and are newer than words."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"[0-9]+|[a-z]+", release)]


_TRIAL_SUFFIX = (
    "~hostprep-trial"  # in a version ~ sorts before its absence: the clone comes after the entry it was made from
)


def trial_name(name):
    return name.endswith(_TRIAL_SUFFIX + ".conf")


LONGEST_TRIAL = 24 * 60  # minutes, and of seconds before a panic reboots an hour


def check_limits(minutes, panic):
    """Refuses limits with which a trial would not end by itself: panic=0 waits for ever, and systemd drops a timer without a time."""
    for name, value, most in (("trial_minutes", minutes, LONGEST_TRIAL), ("panic_seconds", panic, 3600)):
        if not 1 <= value <= most:
            raise HostprepError(
                "trial_limit_invalid",
                "a trial with that limit would not end by itself, or not within a day",
                read="%s: %d" % (name, value),
                allowed="1 to %d" % most,
                cure="correct %s" % name,
            )


def extras(trial_id, panic=60, more=()):
    """What a trial's entry alone carries: a panic reboots, and the mark by which the guard and everyone else knows the trial."""
    return ["panic=%d" % panic, "%s=%s" % (TRIAL_MARK, trial_id), *more]


def trial_entry(name, text, tokens, alone, added=()):
    """{"name", "id", "text"}: a clone of an entry that carries tokens, and ``alone`` (of ``extras``) beside them.

    name and text: the entry of the kernel to try. added: tokens of ours that it already has. id is what grub2-reboot or
    bootctl set-oneshot takes. The entry it was made from is not touched.
    """
    stem = name[: -len(".conf")] if name.endswith(".conf") else name
    stem = re.sub(r"\+[0-9]+(?:-[0-9]+)?\Z", "", stem)  # a boot counter is not part of the id
    clone = stem + _TRIAL_SUFFIX
    lines = []
    for line in entry_with_tokens(text, [*tokens, *alone], added).split("\n"):
        key = line.split(None, 1)[:1]
        if key == ["title"]:
            line = line.rstrip() + " (trial of kernel arguments)"
        elif key == ["id"]:
            line = "id " + clone
        lines.append(line)
    return {"name": clone + ".conf", "id": clone, "text": "\n".join(lines)}


def el_commit(entries, tokens, added=()):
    """{"commands": [argv], "expected": {file name: text}}: our arguments in every entry but rescue and trial ones.

    grubby is asked, since it also knows kernelopts in grubenv (EL 8), /etc/default/grub and /etc/kernel/cmdline, from which the next
    kernel takes its arguments. What it must lead to is in `expected`, to be compared token by token: its exit status alone proves
    nothing. Only tokens that were recorded as ours are removed.
    """
    commands, expected = [], {}
    for name in sorted(entries):
        if trial_name(name):
            continue
        if "rescue" not in name:
            expected[name] = entry_with_tokens(entries[name], tokens, added)
    gone = [token for token in added if token not in tokens]
    new = [token for token in tokens if token not in added]
    if gone or new:
        argv = ["grubby", "--update-kernel=ALL"]
        if gone:
            argv.append("--remove-args=" + " ".join(gone))
        if new:
            argv.append("--args=" + " ".join(new))
        commands.append(argv)
    return {"commands": commands, "expected": expected}


# -- entries of grub.cfg -----------------------------------------------------------------------------------------------------

TRIAL_ID = "lo0-rke2-hostprep-trial"
_MENU = re.compile(r"^(?P<indent>[ \t]*)menuentry[ \t]", re.M)
_QUOTED_TITLE = re.compile(r"menuentry[ \t]+(?:'[^']*'|\"[^\"]*\")")
# Without it a GRUB with superusers asks for a password at the trial's entry, and waits at the console for ever.
_ACCESS = re.compile(r"[ \t]--unrestricted\b|[ \t]--users(?:=|[ \t]+)(?:'[^']*'|\"[^\"]*\"|[^\s'\"{]+)")
_LINUX = re.compile(r"^([ \t]*linux(?:16|efi)?[ \t]+(\S+)[^\n]*?)[ \t]*$", re.M)
_SET = re.compile(r"^[ \t]*set (\w+)=(\"[^\"\n$]*\"|'[^'\n]*'|[^\s\"'$]*)[ \t]*$", re.M)
_SHELL_BEGIN = "### BEGIN lo0.rke2_hostprep trial ###\n"
_MADE = "# There was no custom.cfg before.\n"
_SHELL_END = "### END lo0.rke2_hostprep trial ###\n"
_SHELL_BLOCK = re.compile(re.escape(_SHELL_BEGIN) + ".*?" + re.escape(_SHELL_END), re.S)


_WAITS = re.compile(r"^[ \t]*(?:set timeout=-[0-9]+|timeout[ \t]+menu-force)[ \t]*$", re.M)


def waits(text):
    """The line of a grub.cfg or a loader.conf by which the menu waits for a key, at every boot or after one that failed; None for none."""
    found = _WAITS.search(text)
    return found.group(0).strip() if found else None


def menu_entries(grub_cfg):
    """[{"kernel": path or None, "args": text, "body": [line], "recovery": bool, "access": text}] of every menuentry, submenus' own too.

    access: who may boot it where GRUB has a password, " --unrestricted" or " --users NAMES"; "" where the entry does not say.
    """
    found = []
    lines = grub_cfg.split("\n")
    index = 0
    while index < len(lines):
        if not _MENU.match(lines[index]):
            index += 1
            continue
        indent = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
        access = "".join(_ACCESS.findall(_QUOTED_TITLE.sub("", lines[index], count=1)))
        body = []
        index += 1
        while index < len(lines) and lines[index] != indent + "}":
            if _MENU.match(lines[index]):
                break
            body.append(lines[index])
            index += 1
        linux = next((line for line in body if _LINUX.match(line)), None)
        words = linux.split(None, 2) if linux else []
        args = words[2].rstrip() if len(words) == 3 else ""
        found.append(
            {
                "kernel": words[1] if words else None,
                "args": args,
                "body": body,
                "recovery": bool({"single", "recovery"}.intersection(args.split())),
                "access": access,
            }
        )
    return found


def pending_kernel(grub_cfg, release):
    """Release of the kernel that the first entry boots, where that is not the running one; None where it is, or is unknown."""
    first = next((one["kernel"] for one in menu_entries(grub_cfg) if one["kernel"]), None)
    name = (first or "").rpartition("/")[2].partition("vmlinuz-")[2]
    return name if name and name != release else None


def menu_tokens(grub_cfg, release, environment):
    """[[token]] that the entries of this kernel, or of every kernel for None, give to it, recovery entries left out, in their order.

    environment: {name: pieces} of GRUB's environment block. What grub.cfg itself sets counts too.
    """
    known = dict(environment)
    for name, value in _SET.findall(grub_cfg):
        known[name] = [(value.strip("\"'"), None)]
    return [
        [token["text"] for token in shell_values.tokens([(one["args"], None)], known)]
        for one in menu_entries(grub_cfg)
        if one["kernel"]
        and not one["recovery"]
        and (release is None or one["kernel"].rpartition("/")[2] == "vmlinuz-%s" % release)
    ]


def trial_menu(grub_cfg, release, tokens, alone, added=()):
    """{"id", "text"}: a menuentry for custom.cfg that boots this kernel as grub.cfg does, with tokens and ``alone`` (of ``extras``).

    custom.cfg is sourced by the menu of grub-mkconfig, so grub.cfg is not generated anew for a trial and a kernel package that comes
    in meanwhile changes nothing. Raises HostprepError: entry_unknown.
    """
    wanted = "vmlinuz-%s" % release
    entries = [one for one in menu_entries(grub_cfg) if one["kernel"] and one["kernel"].rpartition("/")[2] == wanted]
    chosen = next((one for one in entries if not one["recovery"]), None)
    if not release or chosen is None:
        raise HostprepError(
            "entry_unknown",
            "which boot entry the running kernel was booted from cannot be known",
            read="kernel %s; %d entries of grub.cfg name it" % (release, len(entries)),
            allowed="an entry of the running kernel that is not a recovery entry",
            cure="run update-grub, or install the running kernel again",
        )
    body = []
    for line in chosen["body"]:
        if _LINUX.match(line):
            line = _without([line], added, "", bool)[0] if added else line
            line = line.rstrip() + " " + " ".join([*tokens, *alone])
        body.append("\t" + line.strip())
    text = "menuentry 'Trial of kernel arguments (lo0.rke2_hostprep)'%s --id %s {\n%s\n}\n" % (
        chosen["access"],
        TRIAL_ID,
        "\n".join(body),
    )
    return {"id": TRIAL_ID, "text": text}


def with_trial_menu(custom, menu):
    """custom.cfg (None where there is none) with a trial's menuentry before what is there; menu None: as it was, None for no file.

    The entry is there in the boot that was told to take it, and in no other: a default that counts entries (GRUB_DEFAULT=2) would else
    be another entry than before, or the trial itself, again and again.
    """
    block = _SHELL_BLOCK.search(custom or "")
    made = custom is None or (block is not None and _MADE in block.group(0))
    rest = _SHELL_BLOCK.sub("", custom or "", count=1)
    if menu is None:
        return None if made and not rest else rest
    chosen = 'if [ "${default}" = "%s" ]; then\n%sfi\n' % (TRIAL_ID, menu)
    return _SHELL_BEGIN + (_MADE if made else "") + chosen + _SHELL_END + rest


# -- GRUB's environment block ------------------------------------------------------------------------------------------------

_BLOCK_HEAD = b"# GRUB Environment Block\n"
_BLOCK_SIZE = 1024
ONE_SHOT = "next_entry"


def block_entries(block):
    """[(name, value)] of GRUB's environment block as it stands."""
    lines = block[len(_BLOCK_HEAD) :].decode("utf-8", "surrogateescape").split("\n")
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


def with_entry(block, name, value):
    """The block with one variable set, or without it for None; the same 1,024 bytes long. Raises HostprepError: grubenv_invalid.

    Written over the old one in place, as GRUB does: no moment in which it has another size, and it stays in its blocks on the disk.
    """
    entries = [entry for entry in block_entries(block) if entry[0] != name] + (
        [(name, value)] if value is not None else []
    )
    data = _BLOCK_HEAD + "".join("%s=%s\n" % entry for entry in entries).encode("utf-8", "surrogateescape")
    if not block.startswith(_BLOCK_HEAD) or len(block) != _BLOCK_SIZE or len(data) > _BLOCK_SIZE:
        raise HostprepError(
            "grubenv_invalid",
            "GRUB's environment block is damaged, or full",
            read="%d bytes, of which %d would be used" % (len(block), len(data)),
            allowed="%d bytes that begin with %s" % (_BLOCK_SIZE, _BLOCK_HEAD.decode().strip()),
            cure="move grubenv aside and run grub-editenv create",
        )
    return data + b"#" * (_BLOCK_SIZE - len(data))


# -- all that a change writes ------------------------------------------------------------------------------------------------


def changes(backend, files, tokens, added=(), base=(), kernels=()):
    """{"files": [{"path", "before", "after"}], "commands": [argv], "undo": [argv], "generate": argv or None} that make `tokens` the
    host's own; [] takes them out.

    files: {path: text or None} of the backend's files: the drop-in, /etc/default/grub, /etc/kernel/cmdline, entries. added: tokens that
    were recorded as ours. base: tokens of the booted entry, for a new /etc/kernel/cmdline. kernels: releases that are installed.
    None after means no file. ``generate`` prints a grub.cfg. On EL the commands write, and "files" is what they must lead to.
    Nothing is to be done where "files" is empty.
    """
    commands, undo, generate = [], [], None
    if backend == "debian":
        wanted = {DROP_IN: drop_in(tokens)}
        generate = ["grub-mkconfig"]
    elif backend == "sles":
        wanted = {_DEFAULTS: with_block(files.get(_DEFAULTS) or "", tokens)}
        generate = ["grub2-mkconfig"]
    elif backend == "systemd-boot":
        wanted = {
            path: entry_with_tokens(text, tokens, added)
            for path, text in files.items()
            if path != _CMDLINE and not trial_name(path) and release_of(text) in kernels
        }
        text = files.get(_CMDLINE)
        if text is None:
            wanted[_CMDLINE] = new_cmdline(base, tokens) if tokens else None
        else:
            wanted[_CMDLINE] = with_tokens(text, tokens, added)
    else:
        names = {path.rpartition("/")[2]: path for path in files if path.startswith(_ENTRIES)}
        plan = el_commit({name: files[path] for name, path in names.items()}, tokens, added)
        wanted = {names[name]: text for name, text in plan["expected"].items()}
        commands = plan["commands"]
        undo = el_commit(plan["expected"], added, tokens)["commands"]
    changed = [
        {"path": path, "before": files.get(path), "after": wanted[path]}
        for path in sorted(wanted)
        if wanted[path] != files.get(path)
    ]
    if not changed:
        return {"files": [], "commands": [], "undo": [], "generate": None}
    return {"files": changed, "commands": commands, "undo": undo, "generate": generate}
