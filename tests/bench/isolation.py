# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How quiet isolated CPUs are on a booted machine, state by state: what others do, and what this collection does.

Boots the lab's machine `new` (docs/lab.md), as root. The load is iperf3 over all eight queues of its NIC, with the server on
housekeeping CPUs in every state. The lists and the arguments are cpu_plan's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from on_machine import expand

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MACHINE = "new"
DATA_DRIVER = "igb"
SECONDS = 30
PATIENCE = "1200"  # seconds for a boot; this machine may be busy with others
PARTS = ("interrupts", "jitter", "threads")
THREADS = 6
# For six busy threads: six isolated CPUs, which leaves the other two for the system.
THREAD_POLICY = {"reserved_count": 2, "strategy": "pack"}
POLICY = {"reserved_cores_per_node": 1}
PROGRAM = "/root/on_machine.py"
# A GRUB entry of the bench's own making: the arguments are put behind those that the entries have.
ADD_ARGUMENTS = r"sed -i.bench -E 's#^(\s*linux\s.*)$#\1 %s#' /boot/grub/grub.cfg"
TAKE_ARGUMENTS = "mv /boot/grub/grub.cfg.bench /boot/grub/grub.cfg"


class Missing(Exception):
    """Why a part cannot run here; one sentence."""


class Machine:
    """The lab's machine, by the lab's own program."""

    def __init__(self, scratch):
        self.scratch = Path(scratch)
        self.inventory = self.scratch / "lab.yml"
        self.boots = 0
        self.ssh = []

    def lab(self, *words, **more):
        return subprocess.run([sys.executable, str(TOP / "tests/lab"), *words], check=True, **more)

    def up(self):
        """The machine as its image has it, booted."""
        self.lab("up", "--fresh", "--timeout", PATIENCE, MACHINE)
        self.boots += 1
        self.read_inventory()
        self.copy()
        self.settle()

    def read_inventory(self):
        text = self.lab("inventory", MACHINE, capture_output=True, text=True).stdout
        self.inventory.write_text(text)
        self.address = text.partition("lab_address:")[2].split()[0].split("/")[0]
        # One connection for all commands: under load an emulated machine takes longer to log in than a client waits.
        config = text.partition("ansible_ssh_common_args: -F ")[2].splitlines()[0]
        self.ssh = ["ssh", "-F", config, "-o", "ControlPath=%s" % (self.scratch / "ssh"), "-o", "ControlMaster=auto"]
        self.ssh += ["-o", "ControlPersist=yes", "-o", "ConnectTimeout=120", "-o", "ServerAliveCountMax=40", MACHINE]

    def hang_up(self):
        if self.ssh:
            subprocess.run([*self.ssh[:-1], "-O", "exit", MACHINE], check=False, capture_output=True)

    def copy(self):
        with open(HERE / "on_machine.py", encoding="utf-8") as program:
            subprocess.run([*self.ssh, "cat > %s" % PROGRAM], check=True, stdin=program)

    def run(self, command, check=True):
        """What a command prints. Raises Missing where it fails."""
        done = subprocess.run(
            [*self.ssh, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise Missing("`%s` ended with %d: %s" % (command, done.returncode, (done.stderr or done.stdout).strip()))
        return done.stdout.strip()

    def measure(self, *words, cpus):
        """What on_machine.py prints, run on those CPUs."""
        command = ["taskset", "--cpu-list", cpus, "python3", PROGRAM, *map(str, words)]
        found = json.loads(self.run(shlex.join(command)))
        say("%s: %s" % (" ".join(map(str, words)), found))
        return found

    def settle(self):
        """Until systemd has no job left, so that no boot is in the figures."""
        self.run("systemctl is-system-running --wait", check=False)

    def boot(self, arguments=""):
        """Once more, without waiting for a shutdown; with these arguments behind the machine's own."""
        if arguments:
            self.run(ADD_ARGUMENTS % arguments.replace("#", r"\#").replace("&", r"\&"))
        self.run("sync")
        self.hang_up()
        self.lab("reset", "--timeout", PATIENCE, MACHINE)
        self.boots += 1
        self.settle()
        live = self.run("cat /proc/cmdline").split()
        lost = [token for token in arguments.split() if token not in live]
        if lost:
            raise Missing("the machine booted without %s" % " ".join(lost))

    def ansible(self, *command):
        done = subprocess.run(
            [*command, "-i", str(self.inventory)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            cwd=TOP,
            env=dict(
                os.environ,
                ANSIBLE_NOCOLOR="1",
                ANSIBLE_CALLBACK_RESULT_FORMAT="json",
                ANSIBLE_TIMEOUT="60",
                ANSIBLE_PIPELINING="1",
            ),
        )
        if done.returncode:
            raise Missing("`%s` failed: %s" % (" ".join(command), (done.stdout + done.stderr)[-3000:]))
        return done.stdout

    def plan(self, policy):
        answer = self.ansible(
            "ansible", MACHINE, "-m", "lo0.rke2_hostprep.cpu_plan", "-a", json.dumps({"policy": policy})
        )
        return json.loads(answer.partition("=>")[2])["plan"]

    @contextlib.contextmanager
    def load(self, cpus):
        """Traffic over all queues, while the block runs: many small flows into a server on these CPUs."""
        self.run("systemctl stop bench-iperf3", check=False)
        # In a slice of its own: in every state it stands where it is told to.
        self.run(
            "systemd-run --quiet --collect --unit=bench-iperf3 --slice=bench.slice --property=AllowedCPUs=%s"
            " --property=CPUAffinity=%s iperf3 --server --bind %s" % (cpus, cpus, self.address)
        )
        self.run("until ss -Hltn 'sport = :5201' | grep -q .; do sleep 0.5; done")
        command = ["net", "iperf3", "--client", self.address, "--parallel", "48", "--bitrate", "400K", "--time", "3600"]
        sender = subprocess.Popen(
            [sys.executable, str(TOP / "tests/lab"), *command, "--forceflush", "--connect-timeout", "30000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said = ""
            for line in sender.stdout:
                said = line
                if "[SUM]" in line:
                    break
            else:
                raise Missing("iperf3 sent nothing: %s" % said.strip())
            yield
            if sender.poll() is not None:
                raise Missing("iperf3 ended while it was measured")
        finally:
            sender.terminate()
            sender.stdout.close()
            sender.wait()
            self.run("systemctl stop bench-iperf3", check=False)


class Bench:
    """One run: the states in an order that needs few boots, and the tables of what was seen."""

    def __init__(self, machine, parts):
        self.machine, self.parts = machine, parts
        self.shares, self.changes, self.noise, self.stacks = {}, {}, {}, {}
        self.notes, self.loads = [], []

    # -- what is measured ----------------------------------------------------------------------------------------------

    def traffic(self, state, change=False, jitter=False):
        """Under load: where interrupts go, the same after a change of the queue count, and the jitter of isolated CPUs."""
        if not ("interrupts" in self.parts or (jitter and "jitter" in self.parts)):
            return
        say("load in the state: %s" % state)
        with self.machine.load(self.reserved):
            if "interrupts" in self.parts:
                self.shares[state] = self.count()
                if change:
                    for queues in (4, 8):
                        self.machine.run("ethtool -L %s combined %d" % (self.nic, queues))
                    self.changes[state] = self.count()
            if jitter:
                self.jitter(state)

    def count(self):
        return self.machine.measure("interrupts", SECONDS, self.isolated, cpus=self.reserved)

    def jitter(self, state):
        if "jitter" in self.parts:
            self.loads.append(os.getloadavg()[0])
            self.noise[state] = self.machine.measure("jitter", SECONDS, self.watched, cpus=self.reserved)

    def threads(self, state, plan):
        if "threads" in self.parts:
            self.stacks[state] = self.machine.measure("threads", THREADS, 20, plan["isolated"], cpus=plan["reserved"])

    # -- the states ----------------------------------------------------------------------------------------------------

    def run(self):
        machine = self.machine
        machine.up()
        self.plans = {mode: machine.plan(dict(THREAD_POLICY, isolation_mode=mode)) for mode in self.modes()}
        plan = machine.plan(POLICY)
        self.take(plan)
        states = [self.stock]
        if "interrupts" in self.parts:
            states += [self.banned, self.tuned]
        if "threads" in self.parts:
            states += [self.each_mode]
        if "interrupts" in self.parts:
            states += [lambda: self.arguments(plan)]
        if {"interrupts", "jitter"} & self.parts:
            states += [self.ours]
        for state in states:
            try:
                state()
            except Missing as why:
                self.notes.append(str(why))
                say(why)

    def take(self, plan):
        """What all states have in common."""
        machine = self.machine
        self.reserved, self.isolated = plan["reserved"], plan["isolated"]
        # One on each node: a loop on every one would leave this machine's own cores no time for the load.
        isolated = expand(self.isolated)
        self.watched = ",".join(str(min(isolated & expand(node["cpus"]))) for node in plan["layout"]["nodes"])
        self.nic = next(nic["name"] for nic in plan["nics"] if nic["driver"] == DATA_DRIVER)
        self.kernel = machine.run("uname -r")
        self.tracers = machine.run(
            "grep -E 'CONFIG_(OSNOISE|TIMERLAT)_TRACER' /boot/config-$(uname -r) | paste -sd ';'"
        )

    def modes(self):
        return ("balanced", "quiet", "pinned") if "threads" in self.parts else ()

    def stock(self):
        self.jitter("stock, no load")
        for plan in list(self.plans.values())[:1]:
            self.threads("no arguments", plan)
        self.traffic("stock Debian", jitter=True)

    def banned(self):
        """irqbalance as its manual says it is kept off CPUs. It looks every ten seconds."""
        machine = self.machine
        machine.run("cp /etc/default/irqbalance /root/irqbalance.bench")
        machine.run("echo IRQBALANCE_BANNED_CPULIST=%s >> /etc/default/irqbalance" % self.isolated)
        try:
            machine.run("systemctl restart irqbalance")
            with machine.load(self.reserved):
                time.sleep(40)
            self.traffic("irqbalance, CPUs banned", change=True)
        finally:
            machine.run("mv /root/irqbalance.bench /etc/default/irqbalance; systemctl restart irqbalance")

    def each_mode(self):
        for mode, plan in self.plans.items():
            self.machine.boot(" ".join(plan["kernel_args"]))
            self.threads(mode, plan)
            self.machine.run(TAKE_ARGUMENTS)

    def arguments(self, plan):
        self.machine.boot(" ".join(plan["kernel_args"]))
        self.traffic("kernel arguments alone")
        self.machine.run(TAKE_ARGUMENTS)

    def tuned(self):
        """The profile with its own boot arguments, as its documentation has it: variables, profile, reboot. Then without it again."""
        machine = self.machine
        variables = "/etc/tuned/cpu-partitioning-variables.conf"
        machine.run("cp -a %s /root/tuned.bench && echo isolated_cores=%s > %s" % (variables, self.isolated, variables))
        machine.run("systemctl enable --now tuned && tuned-adm profile cpu-partitioning && update-grub")
        try:
            machine.boot()
            active = machine.run("tuned-adm active", check=False)
            self.notes.append(
                "tuned: %s; its boot arguments: %s"
                % (active.partition(":")[2].strip() or active, self.tuned_arguments() or "none came to the kernel")
            )
            self.traffic("tuned cpu-partitioning", jitter=True)
        finally:
            machine.run(
                "tuned-adm off; systemctl disable --now tuned; cp -a /root/tuned.bench %s; update-grub" % variables
            )

    def tuned_arguments(self):
        names = ("isolcpus", "nohz", "nohz_full", "rcu_nocbs", "tuned.non_isolcpus", "intel_pstate", "nosoftlockup")
        return " ".join(
            token for token in self.machine.run("cat /proc/cmdline").split() if token.partition("=")[0] in names
        )

    def ours(self):
        """The roles; cpu_isolation reboots the machine through its trial boot."""
        machine = self.machine
        self.machine.hang_up()
        machine.ansible("ansible-playbook", str(HERE / "isolation.yml"), "-e", json.dumps({"policy": POLICY}))
        machine.settle()
        self.traffic("this collection", change=True, jitter=True)

    # -- what is said --------------------------------------------------------------------------------------------------

    def report(self):
        lines = ["isolation: %s, kernel %s, %d boots" % (MACHINE, self.kernel, self.machine.boots)]
        lines += ["housekeeping %s, isolated %s" % (self.reserved, self.isolated)]
        if self.shares:
            row = "%-32s %12s %12s %12s %8s"
            lines += ["", "Share on isolated CPUs over %d s of traffic into housekeeping" % SECONDS]
            lines += [row % ("state", "interrupts", "NET_RX", "of seconds", "queues")]
            for state, found in self.shares.items():
                lines.append(row % (state, *shares(found)))
                if state in self.changes:
                    lines.append(row % ("  after ethtool -L 4, then 8", *shares(self.changes[state])))
            lines += [
                "of seconds: those in which a NIC interrupted an isolated CPU; queues: those of %s that fired"
                % self.nic
            ]
        if self.noise:
            row = "%-26s %8s %9s %9s %11s %9s %11s %9s"
            lines += [
                "",
                "Jitter on isolated CPUs %s (a loop that reads the clock), under the same load" % self.watched,
            ]
            lines += [
                row % ("state", "noise", "of stock", "longest", "device irq", "softirq", "timer, IPI", "switches")
            ]
            stock = self.noise.get("stock Debian", {}).get("noise")
            for state, found in self.noise.items():
                ratio = "%.2f" % (found["noise"] / stock) if stock else "-"
                counted = tuple("%.2f/s" % found[name] for name in ("device", "softirq", "own", "switch"))
                lines.append(
                    row % (state, "%.1f %%" % (found["noise"] * 100), ratio, "%.0f ms" % found["longest"], *counted)
                )
            lines += [
                "noise: share of the time that the loop did not have, longest: at a stretch. Under emulation both are this machine's",
                "own, as the line without load shows (load average here %s); what interrupted the CPU is counted, and is not."
                % " to ".join("%.0f" % load for load in (min(self.loads), max(self.loads))),
                self.tracers,
            ]
        if self.stacks:
            row = "%-32s %10s %10s  %s"
            lines += ["", "CPUs used at once by %d busy threads on the isolated CPUs" % THREADS]
            lines += [row % ("isolation_mode", "median", "most", "of")]
            for state, found in self.stacks.items():
                lines.append(row % (state, "%g" % found["cpus"], found["most"], found["allowed"]))
        return "\n".join([*lines, *([""] if self.notes else []), *self.notes])


def say(text):
    print("isolation %s: %s" % (time.strftime("%H:%M:%S"), text), file=sys.stderr, flush=True)


def shares(found):
    """Shares as text; a dash where nothing was counted, which is no zero."""
    cells = []
    for name in ("interrupts", "net_rx", "seconds"):
        part, total = found[name]
        cells.append("%.1f %%" % (part / total * 100) if total else "-")
    return *cells, str(found["queues"])


def run(scratch, chosen):
    """Runs the parts of `isolation` that are chosen (all of them: none named)."""
    if os.geteuid():
        print("isolation: skipped, it boots a machine and that needs root")
        return
    os.environ.setdefault("HOSTPREP_LAB", "bench")
    machine = Machine(scratch)
    bench = Bench(machine, set(chosen) or set(PARTS))
    try:
        bench.run()
    finally:
        machine.hang_up()
        machine.lab("down", MACHINE)
    text = bench.report()
    print(text)
    place = TOP / "build/bench-isolation.txt"
    place.parent.mkdir(exist_ok=True)
    place.write_text(text + "\n")
