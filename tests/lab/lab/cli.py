# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's commands. Answers go to standard output, what is being done to standard error; a refusal ends with 2."""

from __future__ import annotations

import argparse
import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from . import images, leftovers, network, packages, rootfs, spec, ssh
from .errors import LabError, Unsuitable
from .lives import Lives, require_root
from .state import RUNNING, STATE, State, memory
from .tools import last_lines, say

MACHINES = Path(__file__).resolve().parents[1] / "machines.yml"
LEAVE = b"\x1d"  # Ctrl-]
UNSUITABLE = 77  # the exit status of a test that could not be run


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half made is removed
    try:
        lab = spec.load(Path(os.environ.get("HOSTPREP_LAB_MACHINES") or MACHINES))
        return int(options.run(Lives(lab, State(options.lab)), options) or 0)
    except Unsuitable as error:
        print(error, file=sys.stderr)
        return UNSUITABLE
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # of standard output (sockets raise LabError): whoever read the answer has seen enough
        _drop_output()
        return 141
    except OSError as error:
        print(_sentence(error, options.command), file=sys.stderr)
        return 2


def _answer(text: str, end: str = "\n") -> None:
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        raise LabError(f"The answer could not be written to standard output ({error.strerror}).") from None


def _drop_output() -> None:
    """What could not be written is not tried again at the interpreter's end, which would say so in its own words."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: OSError, command: str) -> str:
    """What the system refused: what was being done, to which file, why, and what helps."""
    reason, todo = error.strerror or str(error), "put that right"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        todo = "make room there"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        todo = "the lab must be able to write there: be root, or move it (XDG_CACHE_HOME, XDG_STATE_HOME)"
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC and not where:
        free = ((path, next(p for p in (path, *path.parents) if p.exists())) for path in (images.CACHE, STATE))
        reason += "; " + ", ".join(f"{path} has {shutil.disk_usage(there).free // 2**20} MiB" for path, there in free)
    return f"`{command}` could not be finished ({where}{reason}): {todo}, and run it again."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 tests/lab", description="Machines for the tests: see docs/lab.md.")
    parser.add_argument(
        "--lab", help="the lab's name, for machines of one's own beside another run's ($HOSTPREP_LAB, or lab)"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[Lives, argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    def machine(command: argparse.ArgumentParser, count: str | None = None) -> argparse.ArgumentParser:
        command.add_argument("names" if count else "name", metavar="NAME", nargs=count)
        return command

    def patient(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
        command.add_argument("--timeout", type=float, metavar="SECONDS", help="until ssh answers (machines.yml's)")
        return command

    words: dict[str, Any] = {"metavar": "COMMAND", "nargs": argparse.REMAINDER}

    listing = add("list", _list, "the machines that machines.yml describes")
    machine(add("image", _image, "make the images of machines, if the cache does not have them"), "+")
    up = patient(machine(add("up", _up, "boot machines, made first where needed, until ssh answers"), "+"))
    up.add_argument("--fresh", action="store_true", help="from a clean image, whatever was there")
    up.add_argument("--ssh-port", type=_port, default=0, metavar="PORT", help="of 127.0.0.1, for ssh (any free one)")
    up.add_argument("--cmdline", metavar="ARGUMENTS", help="what an nspawn host shows in /proc/cmdline")
    machine(add("down", _down, "end machines and remove their disks"), "+")
    status = add("status", _status, "what runs: process, ssh port, time to ssh, memory")
    machine(add("ssh", _ssh, "a shell on a machine, or one command")).add_argument("words", **words)
    console = machine(add("console", _console, "a machine's serial console; Ctrl-] leaves it"))
    console.add_argument("--log", type=int, nargs="?", const=50, metavar="LINES", help="only its last lines (50)")
    machine(add("power-cut", _power_cut, "take a machine's power away; its disk stays"))
    patient(machine(add("power-on", _power_on, "start a machine that is off")))
    patient(machine(add("power-cycle", _power_cycle, "power-cut and power-on")))
    patient(machine(add("reset", _reset, "press a QEMU machine's reset button")))
    patient(machine(add("reboot", _reboot, "ask a machine to boot again, and wait until it has")))
    wait = patient(machine(add("wait", _wait, "wait until a machine answers ssh")))
    wait.add_argument("--boot-id", default="", metavar="ID", help="not satisfied by an answer from that boot")
    plug = machine(add("nic-add", _nic_add, "plug a NIC into a free port of a running QEMU machine"))
    plug.add_argument("nic", metavar="NIC", nargs="?", default="hot0")
    plug.add_argument("--model", choices=spec.NIC_MODELS, default="igb")
    plug.add_argument("--net", choices=spec.NETS, default="lab")
    unplug = machine(add("nic-remove", _nic_remove, "unplug a NIC"))
    unplug.add_argument("nic", metavar="NIC", nargs="?", default="hot0")
    forward = machine(add("forward", _forward, "forward a port of 127.0.0.1 to a machine's; prints it"))
    forward.add_argument("inside", type=_port, metavar="PORT")
    forward.add_argument("outside", type=_port, metavar="PORT-HERE", nargs="?", default=0)
    add("net", _net, "run a command in the lab's own network namespace").add_argument("words", **words)
    machine(add("inventory", _inventory, "an Ansible inventory of the running machines, as YAML"), "*")
    clean = add("clean", _clean, "end and remove every machine of this lab, and all leftovers")
    clean.add_argument(
        "--cache", action="store_true", help="the images too, but for those that machines of other labs stand on"
    )
    clean.add_argument("--stale", action="store_true", help="the images that no machine is made from any more")
    for command in (listing, status):
        command.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: allowed are 1 to 65535")
    return int(text)


def _list(lives: Lives, options: argparse.Namespace) -> None:
    rows = [
        {
            "name": m.name,
            "kind": m.kind,
            "distribution": m.distribution,
            "cpus": m.cpus.total or None,
            "memory_mib": sum(m.memory_mib) or None,
            "boot": m.boot or None,
            "image": "cached" if images.find(m) else "to be made",
            "summary": m.summary,
        }
        for m in lives.lab.machines.values()
    ]
    _show(rows, options.json)


def _image(lives: Lives, options: argparse.Namespace) -> None:
    machines = [lives.lab.machine(name) for name in options.names]
    packages.require_debian({m.kind for m in machines})
    require_root()
    packages.ensure({m.kind for m in machines})
    for machine in machines:
        images.require_room(machine)
    with lives.state.locked():
        lives.remove_leftovers()
    for machine in machines:
        _answer(str(images.ensure(machine).folder))


def _up(lives: Lives, options: argparse.Namespace) -> None:
    lives.up(options.names, options.fresh, options.ssh_port, options.timeout, options.cmdline)


def _down(lives: Lives, options: argparse.Namespace) -> None:
    lives.down(options.names)


def _status(lives: Lives, options: argparse.Namespace) -> None:
    rows = []
    for record in lives.records():
        pid = record.process.pid if record.process and record.phase == RUNNING else None
        rows.append(
            {
                "name": record.name,
                "kind": record.kind,
                "phase": record.phase,
                "pid": pid,
                "ssh_port": record.ssh_port,
                "forwards": record.forwards,
                "boot_seconds": record.boot_seconds,
                "memory_mib": memory(pid) if pid else None,
                "hot_nics": record.hot_nics,
                "folder": str(lives.state.machine_folder(record.name)),
            }
        )
    if not rows and not options.json:
        say(f"Nothing runs in the lab {lives.state.lab}.")
    _show(rows, options.json)
    if not os.geteuid():
        for lost in leftovers.find(lives.state):
            say(f"Left over from a run that was killed: {lost.what} (`clean` removes it).")


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _answer(json.dumps(rows, indent=1))
    elif rows:
        table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            _answer("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}:{each}" for key, each in value.items()) or "-"
    return "-" if value is None else str(value)


def _ssh(lives: Lives, options: argparse.Namespace) -> int:
    lives.running(options.name)
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    return subprocess.run(ssh.command(lives.state.folder, options.name, words), check=False).returncode


def _console(lives: Lives, options: argparse.Namespace) -> None:
    folder = lives.state.machine_folder(lives.record(options.name).name)
    log = folder / "console.log"
    if options.log is not None:
        _answer("\n".join(last_lines(log, options.log)))
        return
    lives.running(options.name)
    if not (folder / "console.sock").exists():
        raise LabError(
            f"{options.name} is an nspawn host, whose console only writes: `console --log {options.name}` shows it."
        )
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(folder / "console.sock"))
        except OSError as error:
            raise LabError(
                f"The console of {options.name} does not answer ({error.strerror}): `console --log {options.name}` shows what it said."
            ) from None
        terminal = sys.stdin.isatty()
        say(f"Console of {options.name}; Ctrl-] leaves it.")
        saved = termios.tcgetattr(0) if terminal else None
        try:
            if terminal:
                tty.setraw(0)
            while True:
                for ready in select.select([line.fileno(), 0], [], [])[0]:
                    try:
                        data = os.read(ready, 4096)
                        if ready == 0 and data and LEAVE not in data:
                            line.sendall(data)
                    except ConnectionError:  # the machine has ended
                        return
                    if not data or (ready == 0 and LEAVE in data):
                        return
                    if ready:
                        os.write(1, data)
        finally:
            if saved:
                termios.tcsetattr(0, termios.TCSADRAIN, saved)


def _power_cut(lives: Lives, options: argparse.Namespace) -> None:
    lives.power_cut(options.name)


def _power_on(lives: Lives, options: argparse.Namespace) -> None:
    lives.power_on(options.name, options.timeout)


def _power_cycle(lives: Lives, options: argparse.Namespace) -> None:
    lives.power_cut(options.name)
    lives.power_on(options.name, options.timeout)


def _reset(lives: Lives, options: argparse.Namespace) -> None:
    lives.reset(options.name, options.timeout)


def _nic_add(lives: Lives, options: argparse.Namespace) -> None:
    _answer(lives.nic_add(options.name, options.nic, options.model, options.net))


def _nic_remove(lives: Lives, options: argparse.Namespace) -> None:
    lives.nic_remove(options.name, options.nic)


def _forward(lives: Lives, options: argparse.Namespace) -> None:
    _answer(str(lives.forward(options.name, options.inside, options.outside)))


def _net(lives: Lives, options: argparse.Namespace) -> int:
    require_root()
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise LabError("Say what to run in the lab's network, as in: net -- ip address")
    if not network.exists(lives.state.namespace):
        raise LabError("The lab's network is there only while a machine is: `up` makes it.")
    return subprocess.run(["ip", "netns", "exec", lives.state.namespace, *words], check=False).returncode


def _inventory(lives: Lives, options: argparse.Namespace) -> None:
    _answer(inventory(lives, options.names), end="")


def inventory(lives: Lives, names: Sequence[str]) -> str:
    """YAML with one group a kind (lab_qemu, lab_nspawn); without names, every machine that runs."""
    records = [lives.running(name) for name in names] or [r for r in lives.records() if r.phase == RUNNING]
    groups: dict[str, Any] = {}
    for record in records:
        groups.setdefault(f"lab_{record.kind}", {"hosts": {}})["hosts"][record.name] = {
            "ansible_host": "127.0.0.1",
            "ansible_port": record.ssh_port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(lives.state.folder / "id_ed25519"),
            "ansible_ssh_common_args": f"-F {ssh.config_file(lives.state.folder)}",
            "ansible_python_interpreter": "/usr/bin/python3",
            "lab_address": lives.lab.hosts.get(record.name),
        }
    return yaml.safe_dump({"all": {"children": groups}}, sort_keys=False)


def _reboot(lives: Lives, options: argparse.Namespace) -> None:
    lives.reboot(options.name, options.timeout)


def _wait(lives: Lives, options: argparse.Namespace) -> None:
    with lives.state.locked():
        lives.running(options.name)
        limit = options.timeout or lives.lab.machine(options.name).timeout
        lives.wait(options.name, limit, other_than=options.boot_id)


def _clean(lives: Lives, options: argparse.Namespace) -> None:
    lives.clean()
    if options.cache:
        lives.remove_images(())
    elif options.stale:
        wanted = {
            path for m in lives.lab.machines.values() for path in (images.place(m), rootfs.archive(images.CACHE, m))
        }
        lives.remove_images(wanted)
    say(f"The lab {lives.state.lab} is clean.")
