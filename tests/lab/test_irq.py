# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role nic_irq and the keeper on booted machines: converged by Ansible, then everything that moves interrupts is done to them.

After each fault no unmanaged vector of a planned NIC may be on an isolated CPU. That is judged by files/irq_judge.py, which has no
code of the collection. Nothing is timed but generously; what the keeper logs as event-to-write time is printed as a table at the end,
and kept in build/figures.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from test_lab import STATE, booted, inside, lab

pytestmark = [pytest.mark.lab, pytest.mark.qemu]

FOLDER = Path(__file__).resolve().parent
TOP = FOLDER.parents[1]
JUDGE = "/root/irq_judge.py"
UNIT = "rke2-hostprep-irq"
PROGRAM = "python3 -IB /usr/local/lib/lo0.rke2_hostprep/rke2_hostprep_irq.py"
PLAN = "/var/lib/lo0.rke2_hostprep/plan.json"
METRICS = "/var/lib/node_exporter/irq.prom"
PATIENCE = 150  # seconds; the backstop's period, on a machine that shares its cores
REPAIR = re.compile(r"; (?P<because>[^;]+(?:; [^;]+)*); (?P<ms>\d+) ms$")


class Machine:
    """A booted machine with its converged role: runs faults and remembers what the keeper said of them."""

    def __init__(self, name, policy, **variables):
        self.name = name
        self.variables = {"rke2_hostprep_policy": policy, **variables}
        self.rows = []
        self.figures = []
        inventory = STATE.folder / "irq.yml"
        inventory.write_text(lab("inventory", name).stdout, encoding="utf-8")
        self.command = ["ansible-playbook", "-i", str(inventory), "--diff", str(FOLDER / "nic_irq.yml")]
        text = base64.b64encode((FOLDER / "files/irq_judge.py").read_bytes()).decode()
        self.run(f"echo {text} | base64 -d > {JUDGE}; systemctl stop irqbalance")

    def play(self, *words, check=False, fails=False, **variables):
        """Runs the play; returns (changed tasks, output)."""
        extra = json.dumps(self.variables | variables)
        command = [*self.command, "--extra-vars", extra, *words, *(["--check"] if check else [])]
        environment = os.environ | {
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(TOP / "build/collections"),
            "ANSIBLE_HOST_KEY_CHECKING": "0",
            "ANSIBLE_NOCOLOR": "1",
        }
        done = subprocess.run(
            command, cwd=TOP, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return int(re.search(r"changed=(\d+)", done.stdout)[1]), done.stdout

    def run(self, script):
        """Runs a shell script on the machine; returns its output."""
        return inside(self.name, f"sh -c {shlex.quote('set -e; ' + script)}")

    def learn(self):
        """What the machine has been converged to."""
        plan = json.loads(self.run(f"cat {PLAN}"))
        self.plan = plan
        self.nics = [nic["pci"] for nic in plan["nics"]]
        self.isolated = f"{sum(1 << cpu for cpu in cpus(plan['isolated'])):x}"

    def judge(self, script="", vectors=None, wait=PATIENCE, nics=None):
        """Runs a script, then waits until the judge is content. Returns (what the judge says, lines of the keeper)."""
        words = " ".join([self.isolated, *(nics or self.nics), "--wait", str(wait)])
        words += "" if vectors is None else f" --vectors {vectors}"
        output = self.run(
            f"cursor=$(journalctl -u {UNIT} -n 0 --show-cursor | sed -n 's/^-- cursor: //p'); {script}\n"
            f"echo; echo @judge; python3 -S {JUDGE} {words}; echo @journal;"
            f' journalctl -u {UNIT} -o cat --no-pager --after-cursor "$cursor"'
        )
        before, _mark, rest = output.rpartition("@judge\n")
        judged, _mark, journal = rest.partition("@journal")
        return json.loads(judged), journal.strip().splitlines(), before

    def fault(self, name, script, vectors=None, repaired=True):
        """Does something to the machine; afterwards nothing may be exposed. ``repaired``: whether the keeper must have written."""
        judged, journal, _output = self.judge(script, vectors)
        assert judged["right"], (name, judged, journal)
        repairs = [match for match in map(REPAIR.search, journal) if match]
        assert repairs or not repaired, (name, judged, journal)
        slowest = max(repairs, key=lambda match: int(match["ms"]), default=None)
        self.rows.append(
            (
                name,
                f"{int(slowest['ms']) / 1000:.2f}" if slowest else "-",
                f"{judged['seconds']:.1f}",
                slowest["because"][:60] if slowest else "nothing had to be written",
            )
        )
        return judged, journal

    def settle(self):
        """Lets the keeper's second look after a burst pass, so that its lines are not taken for the next fault's."""
        self.run("sleep 3")

    def where(self):
        """{queue: mask as a number} of the first planned NIC, by the names in /proc/interrupts."""
        mine = set(self.run(f"ls /sys/bus/pci/devices/{self.nics[0]}/msi_irqs").split())
        text = self.run("cat /proc/interrupts; for n in /proc/irq/*/smp_affinity; do echo $n $(cat $n); done")
        masks = {
            number: int(mask.replace(",", ""), 16) for number, mask in re.findall(r"/irq/(\d+)/\S+ ([0-9a-f,]+)", text)
        }
        found = {}
        for number, queue in re.findall(r"^\s*(\d+):.*(?:-TxRx-|-input\.)(\d+)$", text, re.MULTILINE):
            if number in mine:
                found.setdefault(int(queue), masks[number])
        return found


def cpus(text):
    found = set()
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def report(machine, extra=()):
    widths = [max(len(row[place]) for row in machine.rows) for place in range(3)]
    lines = [
        "fault, seconds from the event to the last write (the keeper's log), seconds until the judge was content, told by"
    ]
    lines += ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]) for row in machine.rows]
    lines += extra
    folder = TOP / "build" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"irq-{machine.name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "\n".join(lines)


def cpus_of(mask):
    return {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}


def diff_of(output):
    """The lines of an output's diff, without the times of files."""
    return [line for line in output.splitlines() if line[:1] in "+-" and not line.startswith(("+++", "---"))]


def processor_seconds(machine):
    fields = machine.run(f"cat /proc/$(systemctl show -p MainPID --value {UNIT})/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.fixture(scope="class")
def new():
    """`new` with a second igb, which the plan names too."""
    with booted("new"):
        lab("nic-add", "new", "hot0")
        card = "/sys/bus/pci/drivers/igb/0000:8*"
        inside("new", f"timeout 60 sh -c 'until [ $(ls -d {card} | wc -l) = 2 ]; do sleep 1; done'")
        inside("new", f"mkdir -p {Path(METRICS).parent}; mount -t tmpfs irq {Path(METRICS).parent}")
        inside("new", "for link in /sys/class/net/en*; do ip link set ${link##*/} up; done")
        addresses = [Path(line).name for line in inside("new", f"ls -d {card}").split()]
        yield Machine("new", {"reserved_cores_per_node": 1, "nics": addresses}, nic_irq_metrics_file=METRICS)


IRQS = "$(ls /sys/bus/pci/devices/0000:81:00.0/msi_irqs)"


@pytest.mark.usefixtures("new")
class TestIgb:
    def test_the_role_does_what_check_mode_says_and_then_nothing(self, new):
        changed, said = new.play(check=True)
        assert changed == 1
        assert not new.run(f"ls {PLAN} /etc/systemd/system/{UNIT}* 2>/dev/null || true")
        changed, done = new.play()
        assert changed == 1 and diff_of(said) == diff_of(done)
        assert new.play()[0] == 0
        new.learn()
        judged, _journal, _output = new.judge()
        assert judged["right"] and len(judged["masks"]) == 18
        assert {queue: cpus_of(mask) for queue, mask in new.where().items()} == {
            queue: {new.plan["nics"][0]["queue_cpus"][queue % 2]} for queue in range(8)
        }

    def test_the_units_are_confined_and_still_hear_the_host(self, new):
        text = new.run(f"systemd-analyze --no-pager security {UNIT} {UNIT}-pin")
        scores = [float(number) for number in re.findall(r"\.service\s+([0-9.]+)", text)]
        assert len(scores) == 2 and max(scores) <= 2.0
        samples = new.run(f"cat {METRICS}")
        assert set(re.findall(r'source_up{source="(\w+)"} 1', samples)) == {
            "uevents",
            "links",
            "ethtool",
            "devlink",
            "masks",
            "signals",
        }
        assert "rke2_hostprep_irq_refused 0" in samples

    def test_written_by_hand(self, new):
        judged, journal = new.fault(
            "an affinity written by hand", f"for i in {IRQS}; do echo 6 > /proc/irq/$i/smp_affinity_list; done"
        )
        assert any("mask written" in line for line in journal), journal

    def test_channels(self, new):
        new.settle()
        new.fault("ethtool -L 4", "ethtool -L ens1 combined 4", vectors=18)
        new.settle()
        new.fault("ethtool -L 8", "ethtool -L ens1 combined 8", vectors=18)

    def test_driver_bound_anew(self, new):
        new.settle()
        new.fault(
            "driver unbound and bound",
            "cd /sys/bus/pci/drivers/igb; echo 0000:81:00.0 > unbind; sleep 1; echo 0000:81:00.0 > bind; sleep 1; ip link set ens1 up",
            vectors=18,
        )
        assert len(new.where()) == 8

    def test_a_cpu_goes_and_returns(self, new):
        new.settle()
        before = new.where()
        new.fault("CPU offline", "echo 0 > /sys/devices/system/cpu/cpu5/online", vectors=18)
        new.settle()
        new.fault("CPU online", "echo 1 > /sys/devices/system/cpu/cpu5/online; sleep 4", vectors=18)
        assert new.where() == before

    def test_virtual_functions(self, new):
        new.settle()
        new.fault(
            "VFs made",
            "modprobe igbvf; echo 2 > /sys/bus/pci/devices/0000:81:00.0/sriov_numvfs; sleep 2;"
            " for link in /sys/class/net/en*; do ip link set ${link##*/} up; done; sleep 1",
        )
        judged, _journal, _output = new.judge()
        assert len(judged["masks"]) >= 9 + 2 * 3, judged
        new.settle()
        new.fault("VFs removed", "echo 0 > /sys/bus/pci/devices/0000:81:00.0/sriov_numvfs", vectors=18)

    def test_renamed(self, new):
        new.settle()
        new.fault(
            "renamed",
            "ip link set ens1 down; ip link set ens1 name up0; ip link set up0 up; sleep 1; ethtool -L up0 combined 4; ethtool -L up0 combined 8",
            vectors=18,
        )
        new.settle()
        new.fault(
            "renamed back",
            "ip link set up0 down; ip link set up0 name ens1; ip link set ens1 up",
            vectors=18,
            repaired=False,
        )

    def test_in_another_network_namespace_and_back(self, new):
        new.settle()
        new.fault(
            "in another network namespace",
            "ip netns add apart; ip link set ens1 netns apart; ip -n apart link set ens1 up;"
            " ip netns exec apart ethtool -L ens1 combined 4; ip netns exec apart ethtool -L ens1 combined 8",
            vectors=18,
        )
        new.settle()
        new.fault("and back", "ip netns del apart; sleep 2; ip link set ens1 up", vectors=18, repaired=False)

    def test_plugged_in_and_pulled_out(self, new):
        lab("nic-add", "new", "hot1")  # no plan names it: it is left to the kernel
        lab("nic-remove", "new", "hot0")
        judged, journal = new.fault("planned NIC pulled out", "true", vectors=9, repaired=False)
        new.run(f"timeout {PATIENCE} sh -c 'until grep -q nic_present.*0$ {METRICS}; do sleep 1; done'")
        lab("nic-add", "new", "hot0")
        new.fault(
            "planned NIC plugged in",
            "for link in /sys/class/net/en*; do ip link set ${link##*/} up; done",
            vectors=18,
            repaired=False,
        )
        new.run(f"timeout {PATIENCE} sh -c 'while grep -q nic_present.*0$ {METRICS}; do sleep 1; done'")
        lab("nic-remove", "new", "hot1")

    def test_irqbalance(self, new):
        """Its unit has a /proc of its own on Debian 13, so its writes are no event: the backstop finds them, and says who runs.

        All CPUs but an isolated one are banned, so that what it writes is wrong whatever it makes of the load.
        """
        new.settle()
        [victim, *_others] = cpus(new.plan["isolated"])
        banned = ",".join(str(cpu) for cpu in sorted(cpus(new.plan["online_after_boot"]) - {victim}))
        new.run(
            "mkdir -p /run/systemd/system/irqbalance.service.d;"
            f" printf '[Service]\\nEnvironment=IRQBALANCE_BANNED_CPULIST={banned}\\n'"
            " > /run/systemd/system/irqbalance.service.d/banned.conf; systemctl daemon-reload"
        )
        _judged, journal = new.fault(
            "irqbalance started",
            f"systemctl start irqbalance; timeout {PATIENCE} sh -c"
            f' \'until journalctl -u {UNIT} -o cat --after-cursor "$0" | grep -q put.back; do sleep 1; done\' "$cursor";'
            " systemctl stop irqbalance",
        )
        assert any("irqbalance" in line or "mask written" in line for line in journal), journal

    @pytest.mark.parametrize("profile", ["latency-performance", "cpu-partitioning"])
    def test_tuned(self, new, profile):
        """The second takes the very CPUs that interrupts are planned on for isolated ones."""
        new.settle()
        new.run(
            "mkdir -p /run/systemd/system/tuned.service.d;"
            " printf '[Service]\\nTimeoutStartSec=600\\n' > /run/systemd/system/tuned.service.d/patient.conf;"
            " systemctl daemon-reload; echo isolated_cores=4-5 > /etc/tuned/cpu-partitioning-variables.conf"
        )
        new.fault(
            f"tuned: {profile}",
            f"systemctl start tuned; timeout 300 tuned-adm profile {profile}; sleep 2",
            repaired=False,  # whether tuned moves an interrupt is its own affair; that none is exposed is judged
        )
        new.run("tuned-adm off; systemctl stop tuned irqbalance")

    def test_the_keeper_killed(self, new):
        new.settle()
        before = new.run(f"systemctl show -p MainPID --value {UNIT}")
        new.fault(
            "the keeper killed",
            f"kill -9 {before}; for i in {IRQS}; do echo 6 > /proc/irq/$i/smp_affinity_list; done",
        )
        assert new.run(f"systemctl show -p MainPID --value {UNIT}") not in (before, "0")

    def test_two_runs_at_once(self, new):
        """One writes at a time: a run waits for the lock, and a second keeper is refused."""
        new.settle()
        lock = "/run/lo0.rke2_hostprep/irq.lock"
        script = f"for i in {IRQS}; do echo 6 > /proc/irq/$i/smp_affinity_list; done"
        _judged, journal = new.fault(
            "two runs at once, while the lock is held",
            f"flock {lock} sh -c '{script}; sleep 5' & sleep 6; {PROGRAM} --once & {PROGRAM} --once; wait",
        )
        assert all("Traceback" not in line for line in journal)
        refused = new.run(f"{PROGRAM} 2>&1 && echo it ran || true")
        assert "another run is moving interrupts on this host" in refused and "it ran" not in refused

    def test_metrics_that_cannot_be_written(self, new):
        folder = Path(METRICS).parent
        new.settle()
        _judged, journal = new.fault(
            "metrics read-only",
            f"mount -o remount,ro {folder}; for i in {IRQS}; do echo 6 > /proc/irq/$i/smp_affinity_list; done",
        )
        _judged, journal, _output = new.judge(
            f"mount -o remount,rw {folder}; touch {folder}/seen; systemctl reload {UNIT}; sleep 5"
        )
        assert new.run(f"[ {METRICS} -nt {folder}/seen ] && echo fresh") == "fresh"
        journal = new.run(f"journalctl -u {UNIT} -o cat --no-pager")
        assert journal.count("the metrics are not written") == 1, journal

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ("plan['online_after_boot'] = '0-127'; plan['isolated'] += ',8-127'", "another machine"),
            ("plan['irq'] = '0-7'; plan['nics'][0]['queue_cpus'] = [6]", "isolated CPUs"),
            ("del plan['nics']", "cannot be used"),
        ],
    )
    def test_a_plan_that_is_refused(self, new, change, sentence):
        """The program as the unit starts it, before its first write; and the keeper that runs goes on with the plan before."""
        change = f"import json; plan = json.load(open('{PLAN}')); {change}; open('{PLAN}', 'w').write(json.dumps(plan))"
        output = new.run(
            f"cp -p {PLAN} /root/plan.json; systemctl stop {UNIT}; for i in {IRQS}; do echo 6 > /proc/irq/$i/smp_affinity_list; done;"
            f' python3 -c "{change}"; systemctl restart {UNIT}-pin && echo it ran || true;'
            f" journalctl -u {UNIT}-pin -o cat --no-pager -n 12; cat $(printf '/proc/irq/%s/smp_affinity_list ' {IRQS}) | sort -u"
        )
        assert sentence in output and "what to do" in output and "it ran" not in output and "Traceback" not in output
        assert output.split()[-1] == "6", output
        judged, _journal, _output = new.judge(f"mv /root/plan.json {PLAN}; systemctl start {UNIT}-pin {UNIT}")
        assert judged["right"], judged

    def test_what_it_costs(self, new):
        """Processor time of a look without anything to write, and memory. Emulated: a real CPU takes a tenth or less."""
        new.settle()
        start, looks = processor_seconds(new), 5
        new.run(f"for look in $(seq {looks}); do systemctl reload {UNIT}; sleep 2; done")
        each = (processor_seconds(new) - start) / looks
        memory = int(
            new.run(
                f"sed -n 's/VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$(systemctl show -p MainPID --value {UNIT})/status"
            )
        )
        start = processor_seconds(new)
        new.run("sleep 30")
        idle = processor_seconds(new) - start
        assert memory < 64 * 1024
        new.figures = [
            f"keeper: {memory / 1024:.1f} MiB resident; {each:.2f} s of emulated processor a look, {each * 60:.0f} s an hour of 60 looks;"
            f" {idle:.2f} s in 30 s without a look or with one"
        ]

    def test_after_a_boot(self, new):
        """Pinned before RKE2 would start; then the keeper runs."""
        lab("reboot", "new")
        new.run(f"mount -t tmpfs irq {Path(METRICS).parent}")
        judged, _journal, _output = new.judge("systemctl stop irqbalance")
        assert judged["right"], judged
        text = new.run(
            f"systemctl show -p ActiveState,SubState,Result {UNIT} {UNIT}-pin; journalctl -b -u {UNIT}-pin -o cat --no-pager"
        )
        assert text.count("ActiveState=active") == 2 and "pinned once" in text, text

    def test_queues_and_steering_when_asked_for(self, new):
        """Not on ens1, which has the default route; on the other card."""
        other = new.run(f"basename /sys/bus/pci/devices/{new.nics[1]}/net/*")
        new.run(f"ip link set {other} up")  # igb shows its queues in sysfs as they are once it is open
        assert new.play(nic_irq_queues=True, nic_irq_steering=True)[0] == 1
        judged, _journal, _output = new.judge("sleep 5")
        assert judged["right"], judged
        counts = {
            name: new.run(f"ethtool -l {name} | sed -n '/Current/,$ s/Combined:[^0-9]*//p'") for name in ("ens1", other)
        }
        assert counts == {"ens1": "8", other: "2"}
        assert "it carries the connection" in new.run(f"journalctl -u {UNIT}-pin -o cat --no-pager")
        masks = new.run(
            f"grep -H . /sys/class/net/{other}/queues/tx-*/xps_cpus /sys/class/net/ens1/queues/tx-*/xps_cpus"
        )
        found = [int(line.rpartition(":")[2].replace(",", ""), 16) for line in masks.splitlines()]
        assert len(found) == 10 and found[0] | found[1] == 0xFF and not found[0] & found[1]
        for mask, cpu in zip(found, new.plan["nics"][1]["queue_cpus"]):
            assert mask >> cpu & 1, "who serves a queue sends by it"
        new.fault(
            "RPS and queues changed by hand",
            f"echo ff > /sys/class/net/{other}/queues/rx-0/rps_cpus; ethtool -L {other} combined 4",
        )
        assert int(new.run(f"sleep 5; cat /sys/class/net/{other}/queues/rx-0/rps_cpus"), 16) == 0

    def test_everything_is_given_back(self, new, capsys):
        assert new.play(nic_irq_state="absent", check=True)[0] == 1
        assert new.play(nic_irq_state="absent")[0] == 1
        left = new.run(
            "ls -d /var/lib/lo0.rke2_hostprep /usr/local/lib/lo0.rke2_hostprep /etc/systemd/system/rke2-hostprep*"
            " /etc/systemd/system/*/rke2-hostprep* 2>/dev/null || true; cat /proc/irq/default_smp_affinity;"
            f" cat $(printf '/proc/irq/%s/smp_affinity ' {IRQS}) | sort -u"
        )
        default, *masks = left.split()
        assert masks == [default], left
        assert new.play(nic_irq_state="absent")[0] == 0
        with capsys.disabled():
            print("\n" + report(new, new.figures))


@pytest.fixture(scope="class")
def old():
    with booted("old"):
        card = inside("old", "ls -d /sys/devices/pci0000:40/*/0000:*/virtio*/net/*")
        machine = Machine("old", {"reserved_cores_per_node": 1, "nics": [Path(card).name]})
        machine.nic, machine.virtio = Path(card).name, Path(card).parents[1].name
        yield machine


@pytest.mark.usefixtures("old")
class TestOld:
    """Kernel 6.1, Python 3.11, systemd 252, virtio-net."""

    def test_converged(self, old):
        assert old.play()[0] == 1
        old.learn()
        judged, _journal, _output = old.judge()
        assert judged["right"] and len(judged["masks"]) == 9, judged
        text = old.run(f"systemd-analyze --no-pager security {UNIT} {UNIT}-pin")
        scores = [float(number) for number in re.findall(r"\.service\s+([0-9.]+)", text)]
        assert len(scores) == 2 and max(scores) <= 2.0

    def test_faults(self, old):
        irqs = f"$(ls /sys/bus/pci/devices/{old.nics[0]}/msi_irqs)"
        hand = f"for i in {irqs}; do echo 3 > /proc/irq/$i/smp_affinity_list; done"
        old.settle()
        old.fault("an affinity written by hand", hand)
        old.settle()
        old.fault("ethtool -L 2 and 4", f"ethtool -L {old.nic} combined 2; sleep 3; ethtool -L {old.nic} combined 4", 9)
        old.settle()
        drivers = "/sys/bus/virtio/drivers/virtio_net"
        old.fault(
            "driver unbound and bound",
            f"echo {old.virtio} > {drivers}/unbind; sleep 1; echo {old.virtio} > {drivers}/bind; sleep 2; ip link set {old.nic} up",
            9,
        )
        old.settle()
        before = old.where()
        cpu = min(cpus(old.plan["irq"]) - {0})
        old.fault("CPU offline", f"echo 0 > /sys/devices/system/cpu/cpu{cpu}/online", 9, repaired=False)
        old.settle()
        old.fault("CPU online", f"echo 1 > /sys/devices/system/cpu/cpu{cpu}/online; sleep 4", 9, repaired=False)
        assert old.where() == before
        old.settle()
        old.fault("the keeper killed", f"kill -9 $(systemctl show -p MainPID --value {UNIT}); {hand}")

    def test_given_back(self, old, capsys):
        assert old.play(nic_irq_state="absent")[0] == 1
        assert not old.run("ls -d /var/lib/lo0.rke2_hostprep /etc/systemd/system/rke2-hostprep* 2>/dev/null || true")
        with capsys.disabled():
            print("\n" + report(old))


CARDS = 10  # with seven virtual functions of three vectors each; a CPU has about 200 vectors


@pytest.fixture(scope="class")
def crowded(tmp_path_factory):
    """`new` with more igb functions than a CPU has vectors for."""
    with contextlib.ExitStack() as life:
        described = yaml.safe_load((FOLDER / "machines.yml").read_text(encoding="utf-8"))
        described["machines"]["new"].update(spare_ports=["80"] * (CARDS - 1), iommu=True)
        place = tmp_path_factory.mktemp("crowded") / "machines.yml"
        place.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
        life.enter_context(pytest.MonkeyPatch.context()).setenv("HOSTPREP_LAB_MACHINES", str(place))
        life.enter_context(booted("new"))
        for number in range(CARDS - 1):
            lab("nic-add", "new", f"hot{number}")
        cards = "/sys/bus/pci/drivers/igb/0000:8*"
        inside("new", f"timeout 300 sh -c 'until [ $(ls -d {cards} | wc -l) = {CARDS} ]; do sleep 1; done'")
        addresses = [Path(line).name for line in inside("new", f"ls -d {cards}").split()]
        policy = {"reserved_cores_per_node": 1, "nics": addresses, "irq_cpus": "4"}
        yield Machine("new", policy, nic_irq_metrics_file="/var/lib/node_exporter/irq.prom")


@pytest.mark.usefixtures("crowded")
class TestVectorSpace:
    def test_more_vectors_than_a_cpu_holds_are_said_and_stay_off_isolated_cpus(self, crowded):
        crowded.run("mkdir -p /var/lib/node_exporter")
        crowded.play()
        crowded.learn()
        judged, _journal, _output = crowded.judge(
            "modprobe igbvf; for card in /sys/bus/pci/drivers/igb/0000:8*; do echo 7 > $card/sriov_numvfs; done;"
            " for link in /sys/class/net/en*; do ip link set ${link##*/} up; done; sleep 60",
            wait=600,
        )
        assert judged["right"], judged
        assert len(judged["masks"]) > 200
        crowded.run(
            "timeout 300 sh -c 'until grep -qE \"^[^#]*vector_space.* [1-9]\" /var/lib/node_exporter/irq.prom; do sleep 2; done'"
        )
        assert "no interrupt vector is left" in crowded.run(f"journalctl -u {UNIT} -o cat --no-pager")
