# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper: one pass, the loop with events that the test feeds, real inotify, and the program as it is installed."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import affinity, events, program, steering
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.keeper import Journal, Keeper, main, open_sources
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import boot_record
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan
from builder import build, named

NIC = "enp26s0np0"


class Fed:
    """A source whose events the test writes."""

    name = "fed"

    def __init__(self):
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)

    def say(self, text):
        os.write(self._write, text.encode() + b"\n")

    def fileno(self):
        return self._read

    def close(self):
        os.close(self._read)
        os.close(self._write)

    def events(self):
        return os.read(self._read, 4096).decode().split("\n")[:-1]


class Host:
    """A tree with its kept plan, and a keeper of it whose journal can be read."""

    def __init__(self, folder, name="article-alternate"):
        self.root = build(named(name), folder / "root")
        self.plan = make_plan(discover(Tree(str(self.root))), {})
        self.kept = self.root / affinity.PLAN_PATH
        self.kept.parent.mkdir(parents=True)
        self.keep(self.plan)
        self.journal = io.StringIO()
        self.metrics = folder / "metrics" / "irq.prom"
        self.keeper = Keeper(str(self.root), str(self.metrics), Journal(self.journal, True))

    def keep(self, plan):
        fresh = self.kept.with_name("fresh")
        fresh.write_text(json.dumps(plan))
        fresh.rename(self.kept)

    def place(self, irq, name="smp_affinity_list"):
        return self.root / "proc/irq" / str(irq) / name

    def mask(self, irq):
        return self.place(irq).read_text().strip()

    def lines(self):
        return self.journal.getvalue().splitlines()

    def sample(self, name):
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in self.metrics.read_text().splitlines()
            if line.startswith("rke2_hostprep_irq_" + name)
        }


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def wait(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# -- one pass ----------------------------------------------------------------------------------------------------------


def test_first_pass_second_pass_and_a_drift(host):
    host.keeper.look("at the start")
    assert host.mask(28) == "32"
    assert any("62 vectors put back" in line and line.startswith("<5>" + NIC) for line in host.lines())
    seen = len(host.lines())
    host.keeper.look("again")
    assert len(host.lines()) == seen, "nothing to tell"
    host.place(28).write_text("17\n")
    host.keeper.look("mask written: irq 28", host.keeper.clock() - 0.05)
    assert host.mask(28) == "32"
    (line,) = host.lines()[seen:]
    assert line.startswith("<5>%s: queue 2 (irq 28) was on CPU 17, now on 32; mask written: irq 28; " % NIC)
    assert 50 <= int(line.split()[-2]) < 5000
    assert host.sample("repairs_total") == {'rke2_hostprep_irq_repairs_total{nic="%s"}' % NIC: 63}
    assert sum(host.sample("drift").values()) == 0
    assert sum(host.sample("vectors").values()) == 64


def test_share_of_interrupts_elsewhere(host):
    host.keeper.look("at the start", count=True)
    table = host.root / "proc/interrupts"
    lines = table.read_text().split("\n")
    (at,) = [place for place, line in enumerate(lines) if line.strip().startswith("28:")]
    line = lines[at]
    width = line.index(":") + 1

    def fired(*more):
        counts = line[width:].split()[:64]
        for cpu, number in more:
            counts[cpu] = str(int(counts[cpu]) + number)
        tail = line[width + 11 * 64 :]
        lines[at] = line[:width] + "".join("%11s" % count for count in counts) + tail
        table.write_text("\n".join(lines))

    fired((32, 30), (9, 10))
    host.keeper.look("the backstop", count=True)
    assert host.sample("isolated_share") == {"rke2_hostprep_irq_isolated_share": 0.25}
    assert sum(host.sample("vector_space").values()) == 0, "it had just been moved"
    host.place(28, "effective_affinity_list").write_text("9\n")
    fired((32, 30), (9, 15))
    host.keeper.look("the backstop", count=True)
    assert sum(host.sample("vector_space").values()) == 1
    assert "5 interrupts fired on other CPUs although its mask is right" in host.lines()[-1]
    host.place(28, "effective_affinity_list").write_text("32\n")
    host.keeper.look("the backstop", count=True)
    assert "that is over (vector space)" in host.lines()[-1]


def test_nic_away_and_back(host):
    host.keeper.look("at the start")
    bus = host.root / "sys/bus/pci/devices/0000:1a:00.0"
    target = os.readlink(bus)
    bus.unlink()
    (host.root / "sys/class/net" / NIC).unlink()
    host.keeper.look("pci 0000:1a:00.0: remove")
    assert host.lines()[-1].startswith("<4>%s is not there" % NIC)
    assert list(host.sample("nic_present").values()) == [0]
    host.keeper.look("nothing")
    assert sum("is not there" in line for line in host.lines()) == 1, "said once"
    bus.symlink_to(target)
    host.place(28).write_text("0-63\n")
    host.keeper.look("pci 0000:1a:00.0: add")
    assert host.mask(28) == "32"
    assert any("is there again" in line for line in host.lines())


def test_a_cpu_goes_and_returns(host):
    host.keeper.look("at the start")
    online = host.root / "sys/devices/system/cpu/online"
    everything = online.read_text()
    online.write_text("0-31,33-63\n")
    host.place(28).write_text("0-63\n")  # the kernel breaks a mask that holds no online CPU
    host.keeper.look("cpu cpu32: offline")
    assert host.mask(28) in ("0", "2", "34")
    online.write_text(everything)
    host.keeper.look("cpu cpu32: online")
    assert host.mask(28) == "32"


def test_other_numbers_after_a_driver_was_bound_anew(host):
    """And channels taken away: what is not there is no drift."""
    host.keeper.look("at the start")
    (vectors,) = [folder for folder in (host.root / "sys/devices").rglob("msi_irqs") if (folder / "28").exists()]
    table = host.root / "proc/interrupts"
    (vectors / "28").rename(vectors / "128")
    host.place(28).parent.rename(host.place(128).parent)
    (vectors / "29").unlink()
    shutil.rmtree(host.place(29).parent)
    lines = table.read_text().replace("\n  28:", "\n 128:").splitlines()
    table.write_text("\n".join(line for line in lines if not line.startswith("  29:")) + "\n")
    host.place(128).write_text("0-63\n")
    host.keeper.look("pci 0000:1a:00.0: bind")
    assert host.mask(128) == "32"
    assert sum(host.sample("vectors").values()) == 63
    assert sum(host.sample("drift").values()) == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda plan: dict(plan, irq="0-63"), "isolated CPUs"),
        (lambda plan: dict(plan, online_after_boot="0-127", isolated=plan["isolated"] + ",64-127"), "another machine"),
        (lambda plan: {}, "cannot be used"),
    ],
)
def test_a_refused_plan_writes_nothing(host, change, code):
    host.keep(change(host.plan))
    before = {path: path.read_text() for path in host.root.glob("proc/irq/*/*")}
    assert host.keeper.look("at the start") is None
    assert host.keeper.look("again") is None
    assert before == {path: path.read_text() for path in before}
    (line,) = host.lines()[-1:] if len(host.lines()) == 1 else [line for line in host.lines() if line.startswith("<3>")]
    assert code in line and "what to do" in line
    assert list(host.sample("refused").values()) == [1]
    host.keep(host.plan)
    if code != "another machine":
        assert host.keeper.look("again")
        assert list(host.sample("refused").values()) == [0]


def test_a_new_plan_is_taken_and_a_bad_one_is_not(host):
    host.keeper.look("at the start")
    nic = dict(host.plan["nics"][0], queue_cpus=[0])
    host.keep(dict(host.plan, nics=[nic]))
    host.keeper.look("again")
    assert host.mask(28) == "0"
    host.keep(dict(host.plan, irq="0-63"))
    host.keeper.look("again")
    assert host.mask(28) == "0"
    assert "the one before it holds" in host.lines()[-1]
    host.kept.unlink()
    assert host.keeper.look("again"), "what the plan said holds"


def test_what_this_boot_made_of_its_arguments_is_a_metric(host):
    def state():
        host.keeper.look("test")
        lines = [line for line in host.metrics.read_text().splitlines() if "boot_state{" in line]
        return [line.split('"')[1] for line in lines if line.endswith(" 1")] if lines else None

    assert state() == ["none"]
    trial = {"args": ["nosmt"], "id": "t", "boot_id": "a", "kernel": "6", "method": "kexec", "extras": []}
    record = host.root / "var/lib/lo0.rke2_hostprep/boot.json"
    record.write_text(json.dumps(dict(boot_record.empty(), trial=dict(trial, plan=None, seen=None))))
    (host.root / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (host.root / "proc/sys/kernel/random/boot_id").write_text("b\n")
    (host.root / "proc/cmdline").write_text("ro\n")
    assert state() == ["fallback"]
    (host.root / "proc/cmdline").write_text("ro nosmt rke2_hostprep.trial=t\n")
    assert state() == ["trial"]
    record.write_text("{")
    assert state() is None and not [line for line in host.lines() if "boot" in line]


def test_metrics_that_cannot_be_written(host, tmp_path):
    (tmp_path / "file").write_text("")
    host.keeper.metrics = str(tmp_path / "file" / "irq.prom")
    assert host.keeper.look("at the start")
    assert host.keeper.look("again")
    assert sum("the metrics are not written" in line for line in host.lines()) == 1


def test_an_exception_becomes_a_line(host, monkeypatch):
    monkeypatch.setattr(affinity, "Look", lambda *_all: 1 / 0)
    assert host.keeper.look("at the start") is None
    assert "not foreseen" in host.lines()[-1] and "Traceback" not in host.journal.getvalue()


def test_waits_for_another_run(host, monkeypatch):
    alone = affinity.alone
    monkeypatch.setattr(affinity, "alone", lambda place, seconds=0: alone(place, 0))
    with alone(affinity.lock_place(str(host.root)), 0):
        assert host.keeper.look("at the start") is None
    assert "another run is moving interrupts" in host.lines()[-1]
    assert host.keeper.look("again")


# -- the loop ----------------------------------------------------------------------------------------------------------


class Running:
    """The loop in a thread."""

    def __init__(self, host, *sources, **more):
        self.stop = Fed()
        self.stopped = False
        self.host = host
        self.thread = threading.Thread(
            target=host.keeper.run, args=([*sources, self.stop], lambda: self.stopped), kwargs=more, daemon=True
        )

    def __enter__(self):
        self.thread.start()
        wait(lambda: self.host.mask(28) == "32")
        return self

    def __exit__(self, *_all):
        self.stopped = True
        self.stop.say("stop")
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.stop.close()


def test_an_event_is_answered(host):
    fed = Fed()
    with Running(host, fed):
        host.place(28).write_text("40\n")
        fed.say("ethtool: channels changed")
        wait(lambda: host.mask(28) == "32")
        wait(lambda: "ethtool: channels changed" in host.journal.getvalue())
    fed.close()


def test_a_burst_is_one_look(host, monkeypatch):
    fed = Fed()
    looks = []
    look = host.keeper.look
    monkeypatch.setattr(
        host.keeper, "look", lambda because, *more, **named: looks.append(because) or look(because, *more, **named)
    )
    with Running(host, fed, again=30, settle=0.5, latest=30):
        wait(lambda: looks)
        for number in range(20):
            fed.say("link %s: up %d" % (NIC, number % 3))
            time.sleep(0.002)
        wait(lambda: len(looks) == 2)
        time.sleep(0.6)
        assert len(looks) == 2
    fed.close()


def test_events_that_never_end_do_not_hold_it_off(host):
    fed = Fed()
    with Running(host, fed, latest=0.3):
        host.place(28).write_text("40\n")
        end = time.monotonic() + 5
        while host.mask(28) != "32":
            assert time.monotonic() < end
            fed.say("link eth9: up")
            time.sleep(0.02)
    fed.close()


def test_the_backstop_finds_what_no_event_told(host):
    """And says which programs run that are known to move interrupts: in a unit with a /proc of its own they send no event."""
    (host.root / "proc/4711").mkdir()
    (host.root / "proc/4711/comm").write_text("irqbalance\n")
    with Running(host, period=0.3, again=30):
        host.place(28).write_text("40\n")
        wait(lambda: host.mask(28) == "32")
        wait(lambda: "no event told of it, irqbalance runs; " in host.journal.getvalue())


def test_a_second_look_after_events(host):
    fed = Fed()
    with Running(host, fed, again=2):
        fed.say("auxiliary irdma: bind")
        time.sleep(0.5)
        host.place(28).write_text("40\n")
        wait(lambda: host.mask(28) == "32")
        wait(lambda: "after an event" in host.journal.getvalue())
    fed.close()


def test_lost_events_and_a_source_that_ends(host):
    class Broken(Fed):
        name = "broken"
        error = OSError(105, "No buffer space available")

        def events(self):
            super().events()
            raise self.error

    broken = Broken()
    with Running(host, broken, again=30):
        host.place(28).write_text("40\n")
        broken.say("x")
        wait(lambda: host.mask(28) == "32")
        wait(lambda: "broken: some were lost" in host.journal.getvalue())
        broken.error = OSError(9, "Bad file descriptor")
        host.place(28).write_text("40\n")
        broken.say("x")
        wait(lambda: host.mask(28) == "32")
        wait(lambda: "broken are not heard any more" in host.journal.getvalue())
    assert host.sample("source_up")['rke2_hostprep_irq_source_up{source="broken"}'] == 0
    broken.close()


def test_an_affinity_written_by_hand_is_seen(host):
    """Real inotify, on the files of the tree."""
    masks = events.Masks()
    with Running(host, masks, again=30):
        wait(lambda: masks._watched)
        time.sleep(0.3)  # its own writes are events too, and end by themselves
        seen = len(host.lines())
        host.place(28).write_text("40\n")
        wait(lambda: host.mask(28) == "32")
        wait(lambda: len(host.lines()) > seen)
        assert "mask written: irq 28" in host.lines()[-1]
    masks.close()


def test_a_fight_slows_down(host, monkeypatch):
    """Another program that writes at once after each repair is answered, ever more slowly."""
    masks = events.Masks()
    with Running(host, masks, again=30):
        wait(lambda: masks._watched)
        time.sleep(0.3)
        looks = []
        look = host.keeper.look

        def fought(because, *more, **named):
            rows = look(because, *more, **named)
            looks.append(time.monotonic())
            host.place(28).write_text("40\n")
            return rows

        monkeypatch.setattr(host.keeper, "look", fought)
        host.place(28).write_text("40\n")
        wait(lambda: len(looks) == 5)
        gaps = [after - before for before, after in zip(looks, looks[1:])]
        assert gaps[-1] > 2 * gaps[0]
        monkeypatch.setattr(host.keeper, "look", look)
    masks.close()


# -- sources -----------------------------------------------------------------------------------------------------------


def test_masks_of_a_folder_that_was_made_again(tmp_path):
    masks = events.Masks()
    path = tmp_path / "mask"
    path.write_text("0")
    masks.watch([(7, str(path)), (8, str(tmp_path / "absent"))])
    assert (masks.events(), masks.missed) == ([], 0)
    path.write_text("1")
    assert masks.events() == ["mask written: irq 7"]
    path.unlink()
    assert masks.events() == ["mask written: irq 7"]
    path.write_text("2")
    assert masks.events() == []
    masks.watch([(9, str(path))])
    path.write_text("3")
    assert masks.events() == ["mask written: irq 9"]
    masks.watch([])
    path.write_text("4")
    assert masks.events() == []
    masks.close()


UEVENT = "{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM={subsystem}\0{more}"


@pytest.mark.parametrize(
    ("subsystem", "path", "action", "more", "text"),
    [
        ("net", "/devices/pci0000:17/0000:17:00.0/net/ens1", "add", "INTERFACE=ens1\0", ["net ens1: add"]),
        ("net", "/devices/virtual/net/lxc1", "add", "INTERFACE=lxc1\0", []),
        ("pci", "/devices/pci0000:17/0000:17:00.0", "bind", "PCI_SLOT_NAME=0000:17:00.0\0", ["pci 0000:17:00.0: bind"]),
        ("cpu", "/devices/system/cpu/cpu3", "offline", "", ["cpu cpu3: offline"]),
        ("block", "/devices/x", "add", "", []),
    ],
)
def test_uevents(subsystem, path, action, more, text):
    data = UEVENT.format(subsystem=subsystem, path=path, action=action, more=more).encode()
    assert events.Uevents.parse(data) == text
    for end in range(len(data)):
        events.Uevents.parse(data[:end])
    assert events.Uevents.parse(b"libudev\0\xfe\xed\xca\xfe") == []


def test_refused_sources_are_said_once_and_the_backstop_stays(host):
    class Refused:
        name = "refused"

        def __init__(self):
            raise PermissionError(1, "Operation not permitted")

    assert open_sources(host.keeper, (Refused,)) == []
    assert host.lines() == ["<4>no refused events: Operation not permitted; what they would tell is found within 60 s"]
    with Running(host, period=0.2):
        host.place(28).write_text("40\n")
        wait(lambda: host.mask(28) == "32")


@pytest.mark.parametrize("kind", events.SOURCES, ids=lambda kind: kind.name)
def test_this_kernels_sources_open(kind):
    try:
        source = kind()
    except OSError as error:
        pytest.skip("this kernel gives no %s: %s" % (kind.name, error))
    assert isinstance(source.events(), list)
    source.close()


def test_a_link_event_of_this_kernel():
    """A physical device cannot be made here; a dummy one is, and is no event, as those of pods are not."""
    if os.geteuid() or subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs root and network namespaces")
    code = (
        "import sys; sys.path.insert(0, %r); import conftest, subprocess\n"
        "from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import events\n"
        "links = events.Links()\n"
        "made = subprocess.run(['ip', 'link', 'add', 'x0', 'type', 'dummy'], capture_output=True).returncode\n"
        "subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
        "print(made, links.events())\n" % os.path.join(str(program.TOP), "..", "..", "tests", "unit")
    )
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(None, 1)[1].strip() == "['link lo: up']"


# -- the program -------------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path):
    """The program as the role installs it: its own files and no others."""
    for path, text in program.files().items():
        place = tmp_path / "lib" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return [sys.executable, "-IB", str(tmp_path / "lib" / program.SCRIPT)]


def test_the_program_is_what_the_keeper_imports_and_no_more():
    names = set(program.files())
    assert {"hostprep/" + name for name in ("host/keeper.py", "host/genl.py", "model/affinity.py")} <= names
    assert not {"hostprep/" + name for name in ("model/report.py", "host/discover.py", "host/compile_once.py")} & names


def test_once(host, installed):
    done = subprocess.run([*installed, "--once", "--root", str(host.root)], check=False, capture_output=True, text=True)
    assert (done.returncode, host.mask(28)) == (0, "32")
    assert "62 vectors put back" in done.stderr
    host.kept.unlink()
    done = subprocess.run([*installed, "--once", "--root", str(host.root)], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "this host keeps no plan" in done.stderr and "Traceback" not in done.stderr


def test_runs_is_ready_refuses_a_second_and_stops(host, installed, tmp_path):
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(tmp_path / "notify"))
    listening.settimeout(20)
    command = [*installed, "--root", str(host.root), "--metrics", str(host.metrics)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=dict(os.environ, NOTIFY_SOCKET=str(tmp_path / "notify"))
    )
    try:
        assert listening.recv(256).startswith(b"READY=1")
        assert host.mask(28) == "32"
        second = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
        assert second.returncode == 1 and "another run" in second.stderr
        host.place(28).write_text("40\n")
        wait(lambda: host.mask(28) == "32")
    finally:
        process.send_signal(signal.SIGTERM)
        _out, text = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "mask written: irq 28" in text and "stopped; interrupts stay where they are" in text
    assert "Traceback" not in text
    listening.close()


@pytest.mark.parametrize("enabled", [True, False])
def test_stopped_for_good_it_gives_the_interrupts_back(host, installed, enabled):
    """systemctl disable --now: no unit of that name would start at the next boot. A restart and a shutdown keep them."""
    wants = host.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    if enabled:
        (wants / "irq.service").symlink_to("/etc/systemd/system/irq.service")
    (host.root / "proc/irq/default_smp_affinity").write_text("00000000,0000ffff\n")
    process = subprocess.Popen(
        [*installed, "--root", str(host.root), "--unit=irq.service"], stderr=subprocess.PIPE, text=True
    )
    try:
        wait(lambda: host.mask(28) == "32")
        time.sleep(0.3)  # its first look is over, and it listens to signals
    finally:
        process.send_signal(signal.SIGTERM)
        _out, text = process.communicate(timeout=20)
    assert process.returncode == 0 and "Traceback" not in text
    assert host.mask(28) == ("32" if enabled else "0-15")
    assert ("stay where they are" if enabled else "64 vectors given back to the kernel's choice, CPUs 0-15") in text


def test_queues_and_steering_are_the_keepers_too(host, monkeypatch):
    done = []
    monkeypatch.setattr(steering, "carrying", lambda _tree, addresses: set(addresses))
    monkeypatch.setattr(
        steering, "plan_queues", lambda entries, names, kept: done.append((names, kept)) or [("notice", "queues set")]
    )
    monkeypatch.setattr(steering, "steer", lambda *_all, **_named: [("warning", "steering cannot be written")])
    host.keeper.set_queues(["192.0.2.1"])
    host.keeper.set_queues(["192.0.2.1"], everywhere=True)
    assert done == [({NIC: [NIC]}, {"192.0.2.1"}), ({NIC: [NIC]}, None)]
    host.keeper.steering = True
    host.keeper.look("at the start")
    host.keeper.look("again")
    lines = host.lines()
    assert lines.count("<5>queues set") == 2
    assert lines.count("<4>steering cannot be written") == 1, "said once"


def test_main_takes_no_traceback(host, monkeypatch, capsys):
    monkeypatch.setattr(affinity, "lock_place", lambda *_all: 1 / 0)
    assert main(["--root", str(host.root)]) == 1
    assert "not foreseen" in capsys.readouterr().err
