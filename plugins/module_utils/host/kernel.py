# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The running kernel: release, boot arguments, the build options that this collection asks about, preemption as it runs.

Source: proc/version, proc/sys/kernel, proc/cmdline; the configuration from /boot or from where distributions keep it;
sys/kernel/debug/sched/preempt (kernel/sched/debug.c: the active model stands in parentheses).
"""

from __future__ import annotations

import re
import zlib

from ..model import kernel_args
from .reader import Reader
from .tree import LARGE

OPTIONS = (
    "CONFIG_NETKIT",
    "CONFIG_NO_HZ_FULL",
    "CONFIG_CPU_ISOLATION",
    "CONFIG_PREEMPT_DYNAMIC",
    "CONFIG_RCU_NOCB_CPU",
    "CONFIG_PREEMPT_RT",
)
_BANNER = re.compile(r"Linux version (\S+) ", re.ASCII)
_RELEASE = re.compile(r"[0-9A-Za-z][\w.+~-]{0,127}\Z", re.ASCII)
_SET = re.compile(r"^(CONFIG_\w+)=([ymn])$", re.MULTILINE | re.ASCII)
_NOT_SET = re.compile(r"^# (CONFIG_\w+) is not set$", re.MULTILINE | re.ASCII)
_LAST_SECTION = "# end of Kernel hacking"  # closes every configuration since 5.5; a file without it may be cut short
_MODELS = {"none", "voluntary", "full", "lazy"}
_IMAGE = "vmlinuz-"
_MARKED = re.compile(r"\((\w+)\)", re.ASCII)


def kernel(reader):
    """The topology's ``kernel`` object."""
    banner = reader.text("proc/version")
    release = _release(reader, banner)
    version = _version(reader, banner)
    cmdline = reader.large("proc/cmdline", "kernel.cmdline")
    if cmdline is None:
        reader.note("kernel.args", "proc/cmdline", reader.tree.why("proc/cmdline"))
    return {
        "release": release,
        "version": version,
        "cmdline": cmdline,
        "args": None if cmdline is None else kernel_args.split(cmdline),
        "config": config(reader, release),
        "preempt": _preempt(reader, version),
    }


def _release(reader, banner):
    path = "proc/sys/kernel/osrelease"
    found = reader.text(path)
    if found is None and banner is not None:
        match = _BANNER.match(banner)
        path, found = "proc/version", match.group(1) if match else ""
    if found is not None and _RELEASE.match(found):
        return found
    reader.note("kernel.release", path, reader.tree.why(path) if found is None else "not a release")
    return None


def _version(reader, banner):
    found = reader.text("proc/sys/kernel/version")
    if not found and banner:
        found = "#" + banner.rpartition(" #")[2] if " #" in banner else None
    if not found:
        reader.note(
            "kernel.version", "proc/version", reader.tree.why("proc/version") if banner is None else "no build number"
        )
    return found or None


def config(reader, release, running=True):
    """{option: "y", "m", "n" or None} of a kernel; what /proc tells is the running one's."""
    places = ["proc/config.gz"] if running else []
    if release:
        places = [
            "boot/config-" + release,
            "lib/modules/%s/config" % release,
            "usr/lib/modules/%s/config" % release,
        ] + places
    for path in places:
        text = _config_text(reader, path)
        if text is not None:
            break
    else:
        for option in OPTIONS:
            reader.note("kernel.config." + option, places[0], "no kernel configuration in %s" % ", ".join(places))
        return dict.fromkeys(OPTIONS)
    values = dict(_SET.findall(text))
    values.update((option, "n") for option in _NOT_SET.findall(text))
    if _LAST_SECTION in text:  # whole: an option without a line is one that this kernel cannot have
        return {option: values.get(option, "n") for option in OPTIONS}
    for option in OPTIONS:
        if option not in values:
            reader.note("kernel.config." + option, path, "no line for it, and the file may be cut short")
    return {option: values.get(option) for option in OPTIONS}


def newer(reader, running):
    """{"release", "config_netkit"} of the newest kernel in /boot, where that is not the running one: the next boot may start it. Else None."""
    installed = [name[len(_IMAGE) :] for name in reader.tree.listdir("boot") or () if name.startswith(_IMAGE)]
    installed = [release for release in installed if release[:1].isdigit()]  # no rescue image
    newest = max(installed, key=_order, default=None)
    if not newest or not running or _order(newest) <= _order(running):
        return None
    # apart: what it lacks is no gap in what is known of the running kernel
    return {"release": newest, "config_netkit": config(Reader(reader.tree), newest, running=False)["CONFIG_NETKIT"]}


def _order(release):
    """What is compared: the numbers of a release, in order."""
    return [int(number) for number in re.findall(r"\d{1,9}", release)]


def _config_text(reader, path):
    data = reader.tree.data(path, LARGE)
    if data is not None and path.endswith(".gz"):
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, LARGE)
        except zlib.error:
            return None
    text = None if data is None else data.decode("utf-8", "replace")
    return text if text is not None and "CONFIG_" in text else None


def _preempt(reader, version):
    marked = reader.text("sys/kernel/debug/sched/preempt")
    if reader.text("sys/kernel/realtime") == "1" or "PREEMPT_RT" in (version or "") or "PREEMPT RT" in (version or ""):
        return "rt"
    match = _MARKED.search(marked or "")
    if match and match.group(1) in _MODELS:
        return match.group(1)
    if "PREEMPT" in (version or "").split():  # built for it, and not switchable
        return "full"
    reader.note(
        "kernel.preempt",
        "sys/kernel/debug/sched/preempt",
        "%s, and the version does not tell"
        % ("makes no sense" if marked else reader.tree.why("sys/kernel/debug/sched/preempt")),
    )
    return None
