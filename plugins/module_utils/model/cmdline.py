# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel arguments that are to be booted: what the kernel would refuse or drop, who owns an argument, and what a boot made of them.

What an argument means is in kernel_args.py; here is what is done before one is written and after one was booted.
"""

from __future__ import annotations

import re

from . import cpulist, kernel_args
from .errors import HostprepError, finding

COMMAND_LINE_SIZE = 2048  # x86 and arm64, with the NUL at its end
TRIAL_MARK = "rke2_hostprep.trial"  # a name with a dot is a module's parameter to the kernel: nobody complains about it

_TOKEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:=[A-Za-z0-9_.,:=+/@%^~-]*)?\Z", re.ASCII)
# Given more than once on purpose, and some of them in an order.
_REPEATED = frozenset(
    ("console", "earlycon", "earlyprintk", "hugepagesz", "hugepages", "memmap", "memblock", "ip", "modprobe.blacklist")
)
# The boot loader's and the initramfs's own: a wrong one leaves a machine that does not come up.
_FOREIGN = frozenset(
    ("BOOT_IMAGE", "root", "rootflags", "rootfstype", "initrd", "init", "rdinit", "ro", "rw", "resume", TRIAL_MARK)
)
_LISTS = ("isolcpus", "irqaffinity", "nohz_full", "rcu_nocbs")
_OPTIONS = {
    "isolcpus": "CONFIG_CPU_ISOLATION",
    "nohz_full": "CONFIG_NO_HZ_FULL",
    "rcu_nocbs": "CONFIG_RCU_NOCB_CPU",
}


# -- before anything is written ----------------------------------------------------------------------------------------------


def lint(tokens, facts):
    """Warnings (findings) on tokens. Raises HostprepError for the first one that the kernel would drop or that cannot be written.

    facts: {"present": cpulist of the CPUs after the boot, "boot_cpu": int, "config": {CONFIG_X: y, m, n or None},
    "others": length of the rest of the command line, as far as it is known}
    """
    values = _each(tokens)
    present = set(cpulist.expand(facts["present"]))
    sets = {}
    warnings = []
    for name in _LISTS:
        if name in values:
            sets[name] = _list(name, values[name], present)
    for name, option in _OPTIONS.items():
        if name in values and facts["config"].get(option) == "n":
            raise HostprepError(
                "kernel_without_option",
                "the kernel is built without %s, so it ignores %s" % (option, name),
                read="%s is not set" % option,
                allowed="a kernel with %s=y" % option,
                cure="boot a kernel with it, or choose another isolation_mode",
            )
    warnings += _agree(values, sets, facts["boot_cpu"])
    length = sum(len(token) + 1 for token in tokens) + facts["others"]
    if length > COMMAND_LINE_SIZE - 1:
        raise HostprepError(
            "kernel_cmdline_long",
            "the command line would be longer than a kernel takes, which cuts off its end without a word",
            read="%d characters, of which %d are not ours" % (length, facts["others"]),
            allowed="%d" % (COMMAND_LINE_SIZE - 1),
            cure="choose a policy whose lists compress better, or remove other arguments",
        )
    return warnings


def _each(tokens):
    """{name: value}, each token looked at."""
    values = {}
    for token in tokens:
        if not isinstance(token, str) or not _TOKEN.match(token):
            raise HostprepError(
                "kernel_arg_characters",
                "a kernel argument has a character that a shell, GRUB or the kernel reads in its own way",
                read=repr(token)[:80],
                allowed="name or name=value of letters, digits and _.,:=+/@%^~-, without white space and quotes, no - first",
                cure="correct args",
            )
        name = kernel_args.name_of(token)
        if token.partition("=")[0] in _FOREIGN or name.startswith("rd."):
            raise HostprepError(
                "kernel_arg_foreign",
                "%s belongs to the boot loader or the initramfs" % name,
                read=token,
                allowed="arguments that only tune the kernel",
                cure="remove it from args",
            )
        value = token.partition("=")[2]
        if name in values and name not in _REPEATED:
            raise HostprepError(
                "kernel_arg_twice",
                "%s is given twice, and the kernel keeps one of them or drops both" % name,
                read="%s and %s" % (values[name] or "bare", value or "bare"),
                allowed="one value",
                cure="keep one",
            )
        values[name] = value
    return values


def _list(name, value, present):
    """(flags, set of CPUs) of one of the arguments that hold a CPU list."""
    if name == "isolcpus":
        flags, cpus = kernel_args.cpus_of(value)
        listed = value.split(",", len(flags))[-1] if flags else value
    else:
        flags, listed = [], value
        try:
            cpus = cpulist.compress(value)
        except HostprepError:
            cpus = None
    if not cpus:
        raise HostprepError(
            "kernel_arg_list",
            "%s holds no CPU list" % name,
            read="%s=%s" % (name, value),
            allowed="ids and ranges such as 2-15,18-31%s"
            % (", after the flags domain, managed_irq and nohz" if name == "isolcpus" else ""),
            cure="correct the list",
        )
    ids = set(cpulist.expand(cpus))
    if sum(_items(item) for item in listed.split(",")) != len(ids):
        raise HostprepError(
            "kernel_arg_list_twice",
            "%s names a CPU twice" % name,
            read=listed,
            allowed="each CPU once: %s" % cpus,
            cure="correct the list",
        )
    beyond = ids - present
    if beyond:
        raise HostprepError(
            "kernel_arg_cpus",
            "%s names CPUs that are not there after the boot, and the kernel drops the whole argument for one bad number"
            % name,
            read="%s; not there: %s" % (listed, cpulist.compress(beyond)),
            allowed=cpulist.compress(present),
            cure="plan again on this host",
        )
    if name != "irqaffinity" and ids == present:
        raise HostprepError(
            "kernel_arg_everything",
            "%s takes every CPU, and none is left for the system" % name,
            read=listed,
            allowed="fewer than " + cpulist.compress(present),
            cure="reserve a core",
        )
    return flags, ids


def _items(item):
    first, _dash, last = item.partition("-")
    return int(last or first) - int(first) + 1


def _agree(values, sets, boot_cpu):
    flags, isolated = sets.get("isolcpus", ([], set()))
    nohz = sets.get("nohz_full", ([], set()))[1]
    offloaded = sets.get("rcu_nocbs", ([], set()))[1]
    interrupts = sets.get("irqaffinity", ([], set()))[1]
    balanced = flags == ["managed_irq"]  # the scheduler and the tick stay as they are
    if isolated and nohz and isolated != nohz:
        raise HostprepError(
            "kernel_args_disagree",
            "isolcpus and nohz_full name other CPUs, and the kernel drops one of them (Housekeeping: nohz_full= must match isolcpus=)",
            read="isolcpus=%s nohz_full=%s" % (values["isolcpus"], values["nohz_full"]),
            allowed="the same list in both",
            cure="plan again, or correct args",
        )
    if nohz and offloaded and not nohz <= offloaded:
        raise HostprepError(
            "kernel_args_disagree",
            "nohz_full names CPUs that rcu_nocbs does not",
            read="nohz_full=%s rcu_nocbs=%s" % (values["nohz_full"], values["rcu_nocbs"]),
            allowed="rcu_nocbs with at least the CPUs of nohz_full",
            cure="plan again, or correct args",
        )
    both = interrupts & (isolated | nohz)
    if both:
        raise HostprepError(
            "kernel_args_disagree",
            "irqaffinity names CPUs that are isolated",
            read="irqaffinity=%s, of which %s are isolated" % (values["irqaffinity"], cpulist.compress(both)),
            allowed="housekeeping CPUs only",
            cure="plan again, or correct args",
        )
    if boot_cpu in nohz or (boot_cpu in isolated and not balanced):
        raise HostprepError(
            "boot_cpu_isolated",
            "the boot CPU would be isolated, and nohz_full over it crashed kernels",
            read="boot CPU %d" % boot_cpu,
            allowed="the boot CPU among the housekeeping CPUs",
            cure="add its core to reserved_cpus",
        )
    warnings = []
    if boot_cpu in isolated:
        warnings.append(
            finding(
                "boot_cpu_isolated",
                "the boot CPU is isolated, and the kernel serves interrupts on it anyway",
                "add its core to reserved_cpus",
                "isolcpus=" + values["isolcpus"],
            )
        )
    if interrupts and boot_cpu not in interrupts:
        warnings.append(
            finding(
                "irqaffinity_boot_cpu",
                "irqaffinity leaves the boot CPU out, and the kernel adds it",
                "add it, or expect default_smp_affinity with it",
                "irqaffinity=%s, boot CPU %d" % (values["irqaffinity"], boot_cpu),
            )
        )
    return warnings


# -- one owner per argument --------------------------------------------------------------------------------------------------


def owners(wanted, configured, ours, tuned=None):
    """[{"name", "token", "owner", "ours"}] of every configured argument whose name is wanted, in order.

    wanted: tokens or names. configured: [{"text", "owner"}]. ours: paths that this collection owns as a whole, or tokens that it
    recorded as its own in files that it shares. tuned: {"profile", "arguments": {name: path}} or None.
    """
    names = {kernel_args.name_of(token) for token in wanted}
    found = []
    for token in configured:
        name = kernel_args.name_of(token["text"])
        if name in names:
            mine = token["owner"] in ours["paths"] or token["text"] in ours["tokens"]
            found.append({"name": name, "token": token["text"], "owner": token["owner"], "ours": mine})
    for name, path in sorted((tuned or {"arguments": {}})["arguments"].items()):
        if name in names:
            owner = "tuned's active profile %s (/%s)" % (tuned["profile"], path)
            found.append({"name": name, "token": None, "owner": owner, "ours": False})
    return found


def refuse_foreign(wanted, configured, ours, tuned=None):
    """Raises HostprepError where an argument that is wanted has another owner: kernel_arg_owned, kernel_arg_tuned."""
    foreign = [entry for entry in owners(wanted, configured, ours, tuned) if not entry["ours"]]
    if not foreign:
        return
    first = next((entry for entry in foreign if "tuned" in entry["owner"]), foreign[0])
    read = "; ".join("%s in %s" % (entry["token"] or entry["name"], _where(entry["owner"])) for entry in foreign)
    if "tuned" in first["owner"]:
        raise HostprepError(
            "kernel_arg_tuned",
            "%s belongs to tuned, and of two lists the kernel drops one" % first["name"],
            read=read,
            allowed="one owner per argument",
            cure="choose a tuned profile without boot arguments, or set skip_grub_config=True in its [bootloader] section",
        )
    raise HostprepError(
        "kernel_arg_owned",
        "%s is set in another file, and of two lists the kernel drops one" % first["name"],
        read=read,
        allowed="one owner per argument",
        cure="remove it from %s, or from the plan" % _where(first["owner"]),
    )


def refuse_ended(booted, where):
    """Refuses a command line to which nothing can be added at its end: behind -- the kernel parses no more, and hands it to init.

    booted: tokens of the entry to which ours are added; where: its path. Raises HostprepError: kernel_args_ended.
    """
    if "--" in booted:
        raise HostprepError(
            "kernel_args_ended",
            "the command line has a --, behind which the kernel reads no argument, the trial's panic= neither",
            read="%s in %s" % (" ".join(booted[booted.index("--") :]), _where(where)),
            allowed="a command line without --",
            cure="give init what it needs in another way, and remove the -- and what follows",
        )


def _where(owner):
    return owner if owner.startswith("tuned") else "/" + owner


# -- after a boot ------------------------------------------------------------------------------------------------------------


def booted(tokens):
    """Tokens of /proc/cmdline without what the boot loader, the trial or the firmware's stub add to one boot."""
    return [
        token
        for token in tokens
        if token.partition("=")[0] not in ("BOOT_IMAGE", "initrd", TRIAL_MARK, "kexec_jump_back_entry")
    ]


def without(tokens, extras):
    """Tokens without the last mention of each of ``extras``: an argument that the trial's entry carries may be asked for as well."""
    left = list(reversed(tokens))
    for extra in extras:
        if extra in left:
            left.remove(extra)
    left.reverse()
    return left


def same_boot(trial, committed, extras=()):
    """{"same", "missing", "extra", "order"}: whether the committed boot has the trial's arguments, token for token.

    trial and committed: tokens of /proc/cmdline; extras: tokens that only the trial entry carries, such as panic=60.
    """
    left = booted(without(trial, extras))
    right = booted(committed)
    missing, extra = list(left), []
    for token in right:
        if token in missing:
            missing.remove(token)
        else:
            extra.append(token)
    return {
        "same": left == right,
        "missing": missing,
        "extra": extra,
        "order": not missing and not extra and left != right,
    }


def outcome(record, tokens, boot_id):
    """{"state", "missing", "extra", "read"} of this boot against the record of what was asked for.

    record: {"state": "trial" or "committed", "id": str, "args": [str], "boot_id": of the boot in which it was written, "extras": what the
    trial's entry alone carries} or None.
    state: "none", "pending" (not rebooted since), "trial" (the trial is running), "as_planned", "fallback" (another boot without the
    trial's arguments, or without the committed ones: the old entry was booted).
    """
    if record is None:
        return {"state": "none", "missing": [], "extra": [], "read": "no record"}
    marked = "%s=%s" % (TRIAL_MARK, record["id"]) in tokens
    if marked:
        tokens = without(tokens, record.get("extras", ()))
    names = {kernel_args.name_of(token) for token in record["args"]}
    missing = [token for token in record["args"] if token not in tokens]
    extra = [token for token in tokens if kernel_args.name_of(token) in names and token not in record["args"]]
    read = "in /proc/cmdline: " + (
        " ".join(token for token in tokens if kernel_args.name_of(token) in names) or "none of them"
    )
    if marked and record["state"] == "trial":
        state = "trial" if not missing and not extra else "fallback"
    elif record["state"] == "committed" and not missing and not extra:
        state = "as_planned"
    elif record["boot_id"] == boot_id:
        state = "pending"
    else:
        state = "fallback"
    return {"state": state, "missing": missing, "extra": extra, "read": read}
