# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run systemctl and other programs: argument lists, C locale, a time limit, and the last lines of what they printed.

What a program leaves running keeps neither this process waiting nor its output open: output goes to memory, not through a pipe.
"""

from __future__ import annotations

import os
import signal
import subprocess

from ..model.errors import HostprepError

LAST_LINES = 12
LAST_BYTES = 4096
PROPERTIES = ("LoadState", "UnitFileState", "ActiveState", "FragmentPath")
LOOK_TIMEOUT = 30


def run(argv, timeout):
    """(exit code, output). Code None where it did not end in time or could not be started; then the output says so."""
    environment = dict(
        os.environ, LC_ALL="C", LANG="C", SYSTEMD_COLORS="0", SYSTEMD_PAGER="", SYSTEMD_LESS="", PAGER="cat"
    )
    paths = environment.get("PATH", "").split(":")
    environment["PATH"] = ":".join(
        [path for path in paths if path]
        + [path for path in ("/usr/sbin", "/usr/bin", "/sbin", "/bin") if path not in paths]
    )
    output = os.memfd_create("output")
    try:
        try:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function  # nothing here may need Ansible
                _found(argv, environment["PATH"]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return None, "could not be started: %s" % (getattr(error, "strerror", None) or error)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                _kill(process)
        size = os.fstat(output).st_size
        text = os.pread(output, 1024 * 1024, max(0, size - 1024 * 1024)).decode("utf-8", "replace")
        return code, text if code is not None else text + "\nstopped: it had not ended after %d seconds" % timeout
    finally:
        os.close(output)


def _found(argv, path):
    """The program looked for in our PATH, which has the sbin folders that a login without root may lack."""
    if "/" not in argv[0]:
        for folder in path.split(":"):
            place = os.path.join(folder, argv[0])
            if os.access(place, os.X_OK) and os.path.isfile(place):
                return [place] + argv[1:]
    return argv


def _kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()


def last(output):
    """The last lines of an output, for an error."""
    return [line for line in output[-LAST_BYTES:].splitlines() if line.strip()][-LAST_LINES:]


def show(names):
    """{name: {"load", "enabled", "active", "fragment"}}; refuses where systemd does not answer."""
    if not names:
        return {}
    argv = ["systemctl", "show", "--no-pager"] + ["--property=" + name for name in PROPERTIES] + ["--"] + list(names)
    code, output = run(argv, LOOK_TIMEOUT)
    blocks, block = [], {}
    for line in output.splitlines() + [""]:
        key, equals, value = line.partition("=")
        if equals and key in PROPERTIES:
            block[key] = value
        elif not line and block:
            blocks.append(block)
            block = {}
    if code != 0 or len(blocks) != len(names) or any("ActiveState" not in block for block in blocks):
        raise HostprepError(
            "systemd_unavailable",
            "systemd does not tell the state of units",
            read="systemctl show: %s" % (" | ".join(last(output)) or "no output"),
            allowed="a host that was booted with systemd",
            cure="repair systemd, or leave units out of the set",
        )
    return {
        name: {
            "load": block.get("LoadState", ""),
            "enabled": block.get("UnitFileState", ""),
            "active": block["ActiveState"],
            "fragment": block.get("FragmentPath", ""),
        }
        for name, block in zip(names, blocks)
    }


def argv(step):
    """The command of one action of ``owned.decide``."""
    if step["action"] == "run":
        return step["argv"]
    words = ["systemctl", "--no-ask-password", "--no-pager", step["action"]]
    if step.get("runtime"):
        words.append("--runtime")
    return words + (["--", step["unit"]] if "unit" in step else [])


def carry_out(step, timeout):
    """Runs one action; returns None, or the HostprepError and the last lines of its output."""
    code, output = run(argv(step), timeout)
    if code == 0:
        return None
    lines = last(output)
    ended = "no exit code" if code is None else "exit code %d" % code
    if "unit" in step:
        if step["action"] in ("start", "restart", "reload"):
            status = ["systemctl", "status", "--no-pager", "--full", "--lines=8", "--", step["unit"]]
            lines += last(run(status, LOOK_TIMEOUT)[1])
        error = HostprepError(
            "unit_failed",
            "systemctl could not %s %s" % (step["action"], step["unit"]),
            read="%s: %s" % (ended, " | ".join(lines)),
            cure="repair the unit (journalctl -u %s) and run again: what is still missing is then done" % step["unit"],
        )
    else:
        error = HostprepError(
            "command_failed",
            "a command that follows the changed files failed",
            read="%s: %s: %s" % (" ".join(argv(step)), ended, " | ".join(lines)),
            cure="repair what it complains about and run again: what is still missing is then done",
        )
    return error, lines
