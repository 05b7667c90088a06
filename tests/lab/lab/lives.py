# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of machines: up, off, on again, gone; and the leftovers of a run that was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import guest, images, leftovers, network, nspawn, packages, qemu, ssh
from .errors import LabError
from .qmp import Qmp
from .spec import Lab, Machine, mac
from .state import (
    OFF,
    RUNNING,
    STARTING,
    Process,
    Record,
    State,
    children,
    images_in_use,
    kill,
    this_process,
    unmount,
)
from .tools import NICE, Waiting, last_line, last_lines, remove, run, say, write

FREE_MIB = 1500  # what one machine may write
SPARE_MIB = 300  # of memory beside the machines'
MEMORY_OF_A_HOST = 100
UNPLUG_LIMIT = 60
SSH = 22


class Lives:
    def __init__(self, lab: Lab, state: State):
        self.lab, self.state = lab, state

    # -- what there is ------------------------------------------------------------------------------------------------

    def record(self, name: str) -> Record:
        """The record of a machine that exists, brought up to date when the machine has ended by itself."""
        self.lab.machine(name)
        record = self.state.read(name)
        if record is None:
            raise LabError(f"{name} does not exist yet: `up {name}` makes it.")
        if record.phase == RUNNING and not record.running:
            record.phase = OFF
        return record

    def running(self, name: str) -> Record:
        record = self.record(name)
        if record.phase != RUNNING:
            raise LabError(f"{name} is not running (it is {record.phase}): `up {name}` starts it.")
        return record

    def records(self) -> list[Record]:
        return [self.record(name) for name in self.state.names() if name in self.lab.machines and self.state.read(name)]

    # -- up -----------------------------------------------------------------------------------------------------------

    def up(
        self,
        names: Sequence[str],
        fresh: bool = False,
        ssh_port: int = 0,
        limit: float | None = None,
        cmdline: str | None = None,
    ) -> None:
        """Makes and boots machines, together, and returns when all of them answer; on a failure those it made are gone."""
        machines = [self.lab.machine(name) for name in dict.fromkeys(names)]
        if ssh_port and len(machines) > 1:
            raise LabError("A port for ssh can be given for one machine at a time.")
        if cmdline is not None and any(m.kind == "qemu" for m in machines):
            raise LabError("--cmdline is for nspawn hosts; a QEMU machine gets its arguments from its boot loader.")
        packages.require_debian({m.kind for m in machines})
        require_root()
        packages.ensure({m.kind for m in machines})
        with self.state.locked():
            self.remove_leftovers()
            if fresh:
                self._down([m.name for m in machines])
            todo = []
            for machine in machines:
                record = self.state.read(machine.name)
                if record and self.record(machine.name).phase == RUNNING:
                    say(f"{machine.name} is running already.")
                else:
                    todo.append(machine)
            if not todo:
                return
            for machine in todo:
                images.require_room(machine)
            made = [m.name for m in todo if self.state.read(m.name) is None]
            try:
                with images.using():
                    found = {m.name: images.ensure(m) for m in todo}
                    self._require_memory(todo)
                    images.require_space(self.state.folder, FREE_MIB * len(todo), " and ".join(m.name for m in todo))
                    for machine in todo:
                        self._start(machine, found[machine.name], ssh_port, cmdline)
                self._wait_all(todo, limit)
            except BaseException:
                self._undo(made, [m.name for m in todo if m.name not in made])
                raise

    def _undo(self, made: Sequence[str], started: Sequence[str]) -> None:
        """After a failure, which must not be hidden by what cannot be taken back either: that is said beside it."""
        steps: list[Callable[[], None]] = [partial(self._down, [name]) for name in made]
        steps += [partial(self._off, name) for name in started]
        for step in [*steps, self.write_ssh_config, self._remove_idle_network]:
            try:
                step()
            except LabError as error:
                say(str(error))
            except OSError as error:
                say(f"{error.filename or self.state.folder}: {error.strerror}.")

    def _start(self, machine: Machine, image: images.Image, ssh_port: int = 0, cmdline: str | None = None) -> None:
        """Powers a machine on, made first if it does not exist."""
        name, folder = machine.name, self.state.machine_folder(machine.name)
        old = self.state.read(name)
        if old:
            self._end(old)  # a machine that ended by itself leaves its forwards, which hold its ports
        port = network.free_port(ssh_port or (old.ssh_port if old else 0))
        record = old or Record(name, machine.kind, STARTING, this_process(), str(image.folder), port)
        if Path(record.image) != image.folder:
            raise LabError(
                f"The disk of {name} was made from an older image than machines.yml describes now: `up --fresh {name}` makes it anew."
            )
        record.phase, record.owner, record.ssh_port, record.hot_nics = STARTING, this_process(), port, {}
        key = ssh.public_key(self.state.folder)
        self.state.write(record)
        network.ensure(self.state.namespace, self.lab.subnet)
        (folder / "console.log").touch()
        if machine.kind == "nspawn":
            if old is None:
                nspawn.create(self.state, self.lab, machine, image.folder, key, cmdline)
            pid = nspawn.start(self.state, self.lab, machine, image.folder)
        else:
            if old is None:
                self._create_disks(machine, image)
                write(folder / "identity.tar", guest.tar(guest.identity_files(self.lab, machine, key)))
            pid = self._start_qemu(machine, record)
        record.process = this_process(pid)
        self.state.write(record)
        if machine.kind == "nspawn":
            record.helpers = [self._forward(machine, inner, outer) for inner, outer in self._forwards(record).items()]
            self.state.write(record)
        self.write_ssh_config()

    def _forwards(self, record: Record) -> dict[int, int]:
        """{port inside: port on 127.0.0.1}"""
        return {SSH: record.ssh_port, **{int(inner): outer for inner, outer in record.forwards.items()}}

    def _create_disks(self, machine: Machine, image: images.Image) -> None:
        folder = self.state.machine_folder(machine.name)
        run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", image.disk, folder / "disk0.qcow2"],
            f"Making the disk of {machine.name}",
        )
        for index, disk in enumerate(machine.disks[1:], 1):
            run(
                ["qemu-img", "create", "-q", "-f", "qcow2", folder / f"disk{index}.qcow2", f"{disk.gib}G"],
                f"Making a disk of {machine.name}",
            )
        if image.firmware_variables:
            shutil.copyfile(image.firmware_variables, folder / "vars.fd")

    def _start_qemu(self, machine: Machine, record: Record) -> int:
        folder = self.state.machine_folder(machine.name)
        taps: dict[str, list[int]] = {}
        try:
            for nic in machine.nics:
                if nic.net == "lab":
                    queues = (
                        nic.queues if nic.model == "virtio-net-pci" else 1
                    )  # the others spread over their queues themselves
                    taps[nic.name] = network.taps(self.state.namespace, network.link(machine.name, nic.name), queues)
            command = qemu.command(
                machine,
                name=self.state.full_name(machine.name),
                overlay=folder / "disk0.qcow2",
                extra_disks=[folder / f"disk{index}.qcow2" for index in range(1, len(machine.disks))],
                identity=folder / "identity.tar",
                console=folder / "console.sock",
                console_log=folder / "console.log",
                qmp=folder / "qmp.sock",
                forwards={outer: inner for inner, outer in self._forwards(record).items()},
                taps=taps,
                firmware_variables=folder / "vars.fd" if machine.boot == "systemd-boot" else None,
            )
            with open(folder / "qemu.log", "wb") as log:
                process = subprocess.Popen(
                    [*NICE, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd="/",
                    pass_fds=[d for descriptors in taps.values() for d in descriptors],
                )
        finally:
            for descriptors in taps.values():
                network.close(descriptors)
        # Until the control socket answers, QEMU may still find something that it does not like.
        for _try in range(200):
            if process.poll() is not None:
                raise LabError(
                    "\n".join([f"QEMU did not start {machine.name}; it said:", *last_lines(folder / "qemu.log", 10)])
                )
            with contextlib.suppress(LabError), Qmp(folder / "qmp.sock"):
                return process.pid
            time.sleep(0.1)
        kill([process.pid])
        raise LabError(f"QEMU started {machine.name} but does not answer on its control socket.")

    def _forward(self, machine: Machine, inner: int, outer: int) -> Process:
        with network.listener(outer) as listening:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("forward.py")), str(listening.fileno()), self.state.namespace, machine.address, str(inner),
                 self.state.full_name(machine.name)],
                pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
            )  # fmt: skip
        return this_process(process.pid)

    def _wait_all(self, machines: Sequence[Machine], limit: float | None) -> None:
        begin = time.monotonic()
        for machine in machines:
            left = (limit or machine.timeout) - (time.monotonic() - begin)
            self.wait(machine.name, max(left, 1), begin)

    def wait(self, name: str, limit: float, begin: float | None = None, other_than: str = "") -> None:
        """Returns when a machine answers ssh, in another boot than that one; its time and its phase are kept."""
        record = self.state.read(name)
        assert record and record.process
        begin = time.monotonic() if begin is None else begin
        log = self.state.machine_folder(name) / "console.log"
        process = record.process
        with Waiting(
            f"{name}: booting, until ssh answers on 127.0.0.1:{record.ssh_port} (at most {limit:.0f} s)",
            lambda: last_line(log),
        ):
            if not ssh.wait(self.state.folder, name, limit, lambda: process.alive, other_than):
                if process.alive:
                    what = f"did not answer within {limit:.0f} s; the last lines of its console:"
                else:
                    what = "ended before it answered; the last lines of its console, and of what QEMU said:"
                said = [] if process.alive else last_lines(log.with_name("qemu.log"), 10)
                raise LabError("\n".join([f"{name} {what}", *last_lines(log, 30), *said]))
        record.boot_seconds = round(time.monotonic() - begin, 1)
        record.phase = RUNNING
        self.state.write(record)

    def _require_memory(self, machines: Iterable[Machine]) -> None:
        need = SPARE_MIB + sum(sum(m.memory_mib) if m.kind == "qemu" else MEMORY_OF_A_HOST for m in machines)
        with open("/proc/meminfo", encoding="utf-8") as info:
            free = next(int(line.split()[1]) // 1024 for line in info if line.startswith("MemAvailable:"))
        if free < need:
            raise LabError(
                f"There is not enough memory: {free} MiB are free, and {' and '.join(m.name for m in machines)} may take {need} MiB."
            )

    # -- off and on -----------------------------------------------------------------------------------------------------

    def power_cut(self, name: str) -> None:
        """The machine loses its power at once; its disk stays as it is."""
        require_root()
        with self.state.locked():
            self.running(name)
            self._off(name)

    def power_on(self, name: str, limit: float | None = None) -> None:
        """Starts a machine that is off, with the disk that it has."""
        require_root()
        with self.state.locked():
            self.remove_leftovers()
            record = self.record(name)
            if record.phase == RUNNING:
                raise LabError(f"{name} is running already.")
            machine = self.lab.machine(name)
            # The image that its disk was made from, whatever machines.yml says by now.
            image = images.read(Path(record.image))
            if image is None:
                raise LabError(f"The image of {name} is not in the cache any more: `up --fresh {name}` makes it anew.")
            try:
                self._start(machine, image)
                self._wait_all([machine], limit)
            except BaseException:
                self._undo([], [name])
                raise

    def reset(self, name: str, limit: float | None = None) -> None:
        """The reset button: a QEMU machine boots again at once, without its power being cut."""
        require_root()
        with self.state.locked():
            record = self.running(name)
            if record.kind != "qemu":
                raise LabError(f"{name} is an nspawn host, which has no reset button: use power-cycle.")
            before = ssh.boot_id(self.state.folder, name)  # empty where it hangs, which is what the button is for
            with self.qmp(name) as control:
                control.execute("system_reset")
            self.wait(name, limit or self.lab.machine(name).timeout, other_than=before)

    def reboot(self, name: str, limit: float | None = None) -> None:
        """Asks the machine to boot again, and waits until it has."""
        require_root()
        with self.state.locked():
            self.running(name)
            before = ssh.boot_id(self.state.folder, name)
            if not before:
                raise LabError(f"{name} does not answer, so it cannot be asked to reboot: use reset or power-cycle.")
            subprocess.run(
                ssh.command(self.state.folder, name, ["systemctl", "reboot"]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            self.wait(name, limit or self.lab.machine(name).timeout, other_than=before)

    def _off(self, name: str) -> None:
        """Ends a machine that keeps its disk."""
        record = self.state.read(name)
        if record:
            self._end(record)
            record.phase, record.process, record.helpers = OFF, None, []
            self.state.write(record)

    def _end(self, record: Record) -> None:
        """Ends every process of a machine, those that its record does not name too."""
        # The loop around nspawn first: it must not start the host again.
        pids = children(record.process.pid) if record.running and record.process else []
        kill([*pids, *(h.pid for h in record.helpers if h.alive)])
        self._end_others(record.name)

    def _end_others(self, name: str) -> None:
        kill([pid for pid, machine in self.state.processes().items() if machine == name])

    def down(self, names: Sequence[str]) -> None:
        """Ends machines and removes all that they had."""
        require_root()
        for name in names:
            self.lab.machine(name)
        with self.state.locked():
            self._down(names)
            self.write_ssh_config()
            self._remove_idle_network()

    def _down(self, names: Iterable[str]) -> None:
        for name in names:
            record = self.state.read(name)
            if record:
                self._end(record)
            else:
                self._end_others(name)
            nspawn.remove(self.state, name)
            remove(self.state.machine_folder(name))

    def _remove_idle_network(self) -> None:
        if not self.state.names():
            network.remove(self.state.namespace)

    # -- cards and ports ------------------------------------------------------------------------------------------------

    def qmp(self, name: str) -> Qmp:
        return Qmp(self.state.machine_folder(name) / "qmp.sock")

    def _qemu_running(self, name: str) -> tuple[Record, Machine]:
        machine = self.lab.machine(name)
        if machine.kind != "qemu":
            raise LabError(f"{name} is an nspawn host; only QEMU machines have cards.")
        return self.running(name), machine

    def nic_add(self, name: str, nic: str, model: str, net: str) -> str:
        """Plugs a card into the first free port and returns that port's name."""
        require_root()
        with self.state.locked():
            record, machine = self._qemu_running(name)
            if nic in record.hot_nics or any(n.name == nic for n in machine.nics):
                raise LabError(f"{name} has a NIC named {nic!r} already.")
            ports = [
                qemu.spare_port(i)
                for i in range(len(machine.spare_ports))
                if qemu.spare_port(i) not in record.hot_nics.values()
            ]
            if not ports:
                raise LabError(
                    f"{name} has no free port left: it has {len(machine.spare_ports)} (spare_ports in machines.yml)."
                )
            with self.qmp(name) as control:
                backend: dict[str, Any] = {"type": "user", "id": nic, "restrict": True, "net": "10.0.3.0/24"}
                if net == "lab":
                    taps = network.taps(self.state.namespace, network.link(name, nic), 1)
                    try:
                        control.execute("getfd", {"fdname": f"fd-{nic}"}, taps[0])
                    finally:
                        network.close(taps)
                    backend = {"type": "tap", "id": nic, "fd": f"fd-{nic}"}
                control.execute("netdev_add", backend)
                try:
                    control.execute(
                        "device_add",
                        {
                            "driver": model,
                            "id": nic,
                            "netdev": nic,
                            "bus": ports[0],
                            "mac": mac(name, nic),
                            "romfile": "",
                        },
                    )
                except LabError:
                    control.execute("netdev_del", {"id": nic})
                    raise
            record.hot_nics[nic] = ports[0]
            self.state.write(record)
            return ports[0]

    def nic_remove(self, name: str, nic: str) -> None:
        """Unplugs a card and waits until the machine has let go of it."""
        require_root()
        with self.state.locked():
            record, machine = self._qemu_running(name)
            known = [*record.hot_nics, *(n.name for n in machine.nics if n.root != "0")]
            if nic not in known:
                raise LabError(f"{name} has no NIC {nic!r} in a hot-plug port: it has {', '.join(known) or 'none'}.")
            with Waiting(f"{name}: unplugging {nic}"), self.qmp(name) as control:
                control.execute("device_del", {"id": nic})
                if not control.wait_event("DEVICE_DELETED", {"device": nic}, UNPLUG_LIMIT):
                    raise LabError(f"{name} did not let go of {nic} within {UNPLUG_LIMIT} s.")
                control.execute("netdev_del", {"id": nic})
            record.hot_nics.pop(nic, None)
            self.state.write(record)

    def forward(self, name: str, inner: int, outer: int) -> int:
        """Forwards a port of 127.0.0.1 (any free one for 0) to a port of a machine; returns it."""
        require_root()
        with self.state.locked():
            record = self.running(name)
            if inner == SSH:
                return record.ssh_port
            if str(inner) in record.forwards:
                return record.forwards[str(inner)]
            outer = network.free_port(outer)
            if record.kind == "nspawn":
                record.helpers.append(self._forward(self.lab.machine(name), inner, outer))
            else:
                machine = self.lab.machine(name)
                with self.qmp(name) as control:
                    inside = str(machine.nics[0].address).partition("/")[0]
                    line = f"hostfwd_add {machine.nics[0].name} tcp:127.0.0.1:{outer}-{inside}:{inner}"
                    answer = control.execute("human-monitor-command", {"command-line": line})
                    if answer:
                        raise LabError(f"QEMU refused to forward port {outer}: {answer.strip()}")
            record.forwards[str(inner)] = outer
            self.state.write(record)
            return outer

    # -- ssh --------------------------------------------------------------------------------------------------------------

    def write_ssh_config(self) -> None:
        ports = {r.name: r.ssh_port for r in (self.state.read(n) for n in self.state.names()) if r}
        if self.state.folder.is_dir():
            write(ssh.config_file(self.state.folder), ssh.config(self.state.folder, ports))

    # -- leftovers ----------------------------------------------------------------------------------------------------------

    def remove_leftovers(self) -> None:
        """Finds and removes them, and says so; call it with the lock held."""
        found = self._found_leftovers()
        if found:
            for name in sorted({f.off for f in found if f.off}):
                self._off(name)
            self._remove(found)
            self.write_ssh_config()
            self._remove_idle_network()

    def _found_leftovers(self) -> list[leftovers.Leftover]:
        found = leftovers.find(self.state)
        if found:
            say(f"Leftovers of a run that was killed: {'; '.join(f.what for f in found)}. Removing them.")
        return found

    def _remove(self, found: Sequence[leftovers.Leftover]) -> None:
        self._down(sorted({f.machine for f in found if f.machine}))
        for each in found:
            if each.folder:
                remove(each.folder)

    def clean(self) -> None:
        """Ends and removes every machine, all leftovers and the lab's state. It writes nothing: the disk may be full."""
        require_root()
        with self.state.locked():
            self._remove(self._found_leftovers())
            self._down(self.state.names())
            network.remove(self.state.namespace)
            for point in self.state.mounts():
                unmount(point)
            remove(self.state.folder)

    def remove_images(self, wanted: Container[Path]) -> None:
        """Removes what lies in the cache, but for these and for what machines of any lab stand on."""
        require_root()
        with images.removing():
            used = images_in_use()
            for path in images.present():
                if path in wanted:
                    continue
                if path in used:
                    say(f"Keeping {path}, which machines stand on (lab/machine): {', '.join(used[path])}.")
                else:
                    say(f"Removing {path}.")
                    if path.is_dir():
                        remove(path / "image.json")  # first, so that one whose removal is cut short counts as none
                    remove(path)


def require_root() -> None:
    if os.geteuid():
        raise LabError("The lab needs root: it makes network namespaces, taps, mounts and file trees with owners.")
