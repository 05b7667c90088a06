# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab shows what machines.yml says: each machine is booted and asked, each refusal is provoked.

The machines are of a lab of their own, so that a person's run beside. Images come from the user's cache or are made; one
QEMU machine runs at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import images, network, spec, state

pytestmark = pytest.mark.lab

PROGRAM = Path(__file__).resolve().parent
MACHINES = spec.load(PROGRAM / "machines.yml")
STATE = state.State(os.environ.get("HOSTPREP_LAB") or "labtest")


def lab(*words, check=True, prefix=(), **environment):
    """Runs the lab's program as a user does; returns the finished process."""
    command = [*prefix, sys.executable, str(PROGRAM), "--lab", STATE.lab, *words]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if check:
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def refused(*words, **more):
    """A call that must be refused; returns what it said, whose first line is one sentence."""
    done = lab(*words, check=False, **more)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def inside(name, command):
    return lab("ssh", name, command).stdout.strip()


def ask(name, **questions):
    """Many questions in one connection, which costs a second under emulation: {key: (exit status, output)}."""
    script = "".join(f"echo '@@{key}'; ( {command} ) 2>&1; echo \"@@=$?\"\n" for key, command in questions.items())
    answers = {}
    for key, text, code in re.findall(
        r"@@(\w+)\n(.*?)@@=(\d+)", inside(name, f"sh -c {shlex.quote(script)}"), re.DOTALL
    ):
        answers[key] = (int(code), text.strip())
    assert answers.keys() == questions.keys()
    return answers


def said(answer):
    assert answer[0] == 0, answer
    return answer[1]


def left():
    """All that this lab has in the kernel's tables and on the disk, beside the images."""
    with open("/proc/self/mounts", encoding="utf-8") as table:
        mounts = [line for line in table if f"/{STATE.lab}/" in line or STATE.namespace in line]
    loops = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "BACK-FILE"], capture_output=True, text=True, check=True
    )
    own = (str(STATE.folder), str(images.CACHE))
    return {
        "processes": STATE.processes(),
        "namespaces": STATE.namespaces() + [STATE.namespace] * network.exists(STATE.namespace),
        "links": [p.name for p in Path("/sys/class/net").glob(f"{network.PREFIX}*")],
        "mounts": mounts,
        "loops": [line for line in loops.stdout.split() if line.startswith(own)],
        "cgroups": STATE.cgroups(),
        "nspawn": list(Path("/run/systemd/nspawn").rglob(f"{STATE.namespace}*")),
        "scratch": images.abandoned(),
        "state": [STATE.folder] * STATE.folder.exists(),
    }


def gone(process):
    for _try in range(300):
        if state.start_time(process) is None:
            return
        time.sleep(0.1)
    pytest.fail(f"Process {process} did not end.")


@contextlib.contextmanager
def small(folder, size, inodes=0):
    """A file system in memory, of that size and (for another number than 0) with so many files at most."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes}", "hp-small", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def booted(*names, **options):
    lab("up", *names, *(w for key, value in options.items() for w in (f"--{key}", value)))
    try:
        yield
    finally:
        lab("down", *names)


BOOTED_BY_GRUB = {
    "cmdline": "cat /proc/cmdline",
    "editenv": "grub-editenv list",
    "kernel": "uname -r",
    "failed": "systemctl --failed --no-legend",
}


def came_by_grub(answers, name):
    assert "BOOT_IMAGE=" in said(answers["cmdline"])
    assert said(answers["kernel"]).startswith(MACHINES.machine(name).kernel + ".")
    said(answers["editenv"])
    assert said(answers["failed"]) == ""


@pytest.fixture(scope="class")
def new():
    with booted("new"):
        yield


@pytest.fixture(scope="class")
def facts(new):
    return ask(
        "new",
        **BOOTED_BY_GRUB,
        lscpu="lscpu -J",
        memory="cat /sys/devices/system/node/node*/meminfo | grep MemTotal",
        card="readlink -f /sys/bus/pci/drivers/igb/0000:*",
        node="cat /sys/bus/pci/drivers/igb/0000:*/numa_node",
        queues="ls -d /sys/bus/pci/drivers/igb/0000:*/net/*/queues/rx-* | wc -l",
        vectors="ls /sys/bus/pci/drivers/igb/0000:*/msi_irqs | wc -l",
        interrupts="cat /proc/interrupts",
        address="ip -json address",
        hostname="hostname",
    )


@pytest.mark.qemu
@pytest.mark.usefixtures("new")
class TestNew:
    def test_kernel_and_boot_loader(self, facts):
        came_by_grub(facts, "new")
        assert said(facts["hostname"]) == "new"

    def test_sockets_smt_and_nodes_are_those_of_machines_yml(self, facts):
        rows = {}
        todo = json.loads(said(facts["lscpu"]))["lscpu"]
        while todo:
            row = todo.pop()
            rows[row["field"].rstrip(":")] = row["data"]
            todo += row.get("children", [])
        cpus = MACHINES.machine("new").cpus
        assert int(rows["Socket(s)"]) == cpus.sockets == 2
        assert int(rows["Core(s) per socket"]) == cpus.cores
        assert int(rows["Thread(s) per core"]) == cpus.threads == 2
        assert int(rows["NUMA node(s)"]) == 2
        assert (rows["NUMA node0 CPU(s)"], rows["NUMA node1 CPU(s)"]) == ("0-3", "4-7")
        sizes = [int(kib) // 1024 for kib in re.findall(r"MemTotal:\s+(\d+) kB", said(facts["memory"]))]
        assert len(sizes) == 2 and all(1700 < size <= 2048 for size in sizes)

    def test_igb_has_eight_queues_and_nine_vectors_on_node_1_behind_the_expander(self, facts):
        assert said(facts["card"]).startswith("/sys/devices/pci0000:80/")
        assert said(facts["node"]) == "1"
        assert said(facts["queues"]) == str(MACHINES.machine("new").nics[1].queues) == "8"
        assert said(facts["vectors"]) == "9"
        assert sorted(re.findall(r"-TxRx-(\d)$", said(facts["interrupts"]), re.MULTILINE)) == list("01234567")
        addresses = {a["local"] for link in json.loads(said(facts["address"])) for a in link["addr_info"]}
        assert MACHINES.machine("new").address in addresses

    def test_traffic_over_the_tap_reaches_every_queue(self):
        counts = "awk '/-TxRx-/ { n = 0; for (i = 2; i <= 9; i++) n += $i; print $NF, n }' /proc/interrupts"

        def read():
            return {line.split()[0]: int(line.split()[1]) for line in inside("new", counts).splitlines()}

        inside("new", "iperf3 --server --daemon --one-off")
        before = read()
        load = lab(
            "net",
            "--",
            "iperf3",
            "--client",
            MACHINES.machine("new").address,
            "--parallel",
            "8",
            "--time",
            "10",
            "--json",
        )
        assert json.loads(load.stdout)["end"]["sum_received"]["bytes"] > 1_000_000
        after = read()
        # Which flow meets which queue is a matter of their ports: most queues, in every run.
        assert len(before) == 8
        assert sum(after[queue] > before[queue] for queue in before) >= 6

    def test_a_card_is_plugged_in_and_pulled_out(self):
        cards = "ls -d /sys/bus/pci/drivers/igb/0000:* | wc -l; for d in /sys/bus/pci/drivers/igb/0000:*; do cat $d/numa_node; done"

        def seen(count):
            for _try in range(30):
                answer = inside("new", cards).split()
                if answer[0] == str(count):
                    return answer[1:]
                time.sleep(1)
            pytest.fail(f"{count} cards were not seen; the last answer was {answer}")

        assert seen(1) == ["1"]
        lab("nic-add", "new")
        assert seen(2) == ["1", "1"]
        assert "already" in refused("nic-add", "new")
        lab("nic-remove", "new")
        assert seen(1) == ["1"]
        assert "no NIC 'hot0'" in refused("nic-remove", "new")

    def test_the_serial_console_shows_the_boot_and_takes_a_line(self):
        folder = STATE.machine_folder("new")
        assert (
            "GNU GRUB" in (log := (folder / "console.log").read_text(encoding="utf-8", errors="replace"))
            or "Loading Linux" in log
        )
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(folder / "console.sock"))
            line.settimeout(60)
            line.sendall(b"\necho answer-$((6 * 7))\n")
            seen = b""
            while b"answer-42" not in seen:
                data = line.recv(4096)
                assert data, f"The console was closed; it had said {seen!r}."
                seen += data

    def test_a_power_cut_keeps_what_was_synced_and_a_reset_boots_again(self):
        identity = inside("new", "cat /proc/sys/kernel/random/boot_id; echo kept > /root/kept; sync /root/kept")
        process = STATE.read("new").process.pid
        lab("power-cut", "new")
        assert state.start_time(process) is None
        assert "is not running" in refused("ssh", "new", "true")
        lab("power-on", "new")
        after = ask("new", kept="cat /root/kept", boot="cat /proc/sys/kernel/random/boot_id", **BOOTED_BY_GRUB)
        came_by_grub(after, "new")
        assert said(after["kept"]) == "kept"
        assert said(after["boot"]) != identity
        process = STATE.read("new").process.pid
        lab("reset", "new")
        assert inside("new", "cat /proc/sys/kernel/random/boot_id") not in (identity, said(after["boot"]))
        assert STATE.read("new").process.pid == process


@pytest.mark.qemu
class TestOld:
    def test_another_kernel_and_layout_with_a_multi_queue_card_on_a_tap(self):
        with booted("old"):
            card = "/sys/devices/pci0000:40/*/0000:*"  # a port, and the card in it
            facts = ask(
                "old",
                **BOOTED_BY_GRUB,
                lscpu="lscpu -p=CPU,CORE,SOCKET,NODE | grep -v '^#'",
                card=f"ls -d {card}",
                node=f"cat {card}/numa_node",
                queues=f"ls -d {card}/virtio*/net/*/queues/rx-* | wc -l",
                interrupts="cat /proc/interrupts",
                ping=f"ping -c 1 -W 20 {MACHINES.gateway}",
            )
            came_by_grub(facts, "old")
            cpus = [tuple(int(n) for n in line.split(",")) for line in said(facts["lscpu"]).splitlines()]
            assert cpus == [(0, 0, 0, 0), (1, 1, 0, 0), (2, 2, 1, 1), (3, 3, 1, 1)]  # two sockets, no SMT, two nodes
            assert said(facts["card"]).startswith("/sys/devices/pci0000:40/")
            assert said(facts["node"]) == "1"
            assert said(facts["queues"]) == "4"
            assert len(re.findall(r"virtio\d+-input\.[0-3]$", said(facts["interrupts"]), re.MULTILINE)) >= 4
            said(facts["ping"])
            tap = network.link("old", "data")
            assert lab("net", "--", "ip", "-o", "link", "show", tap).returncode == 0
            assert not Path("/sys/class/net", tap).exists()


@pytest.mark.qemu
class TestBootLayouts:
    def test_boot_on_lvm(self):
        with booted("lvm"):
            facts = ask(
                "lvm",
                **BOOTED_BY_GRUB,
                mount="findmnt -n -o SOURCE,FSTYPE /boot",
                abstraction="grub-probe --target=abstraction /boot/grub",
            )
        came_by_grub(facts, "lvm")
        assert said(facts["mount"]).split() == ["/dev/mapper/hostprep-boot", "ext4"]
        assert said(facts["abstraction"]) == "lvm"

    def test_root_and_boot_on_btrfs(self):
        with booted("btrfs"):
            facts = ask(
                "btrfs", **BOOTED_BY_GRUB, mount="findmnt -n -o FSTYPE /", fs="grub-probe --target=fs /boot/grub"
            )
        came_by_grub(facts, "btrfs")
        assert said(facts["mount"]) == said(facts["fs"]) == "btrfs"

    def test_systemd_boot_under_uefi(self):
        with booted("sdboot"):
            facts = ask(
                "sdboot",
                status="bootctl status --no-pager",
                entries="bootctl list --no-pager",
                efi="ls /sys/firmware/efi/efivars | wc -l",
                cmdline="cat /proc/cmdline",
                kernel="uname -r",
                failed="systemctl --failed --no-legend",
            )
        assert re.search(r"Current Boot Loader:\s+Product: systemd-boot", said(facts["status"]))
        assert said(facts["kernel"]) in said(facts["entries"])
        assert int(said(facts["efi"])) > 0
        assert "root=LABEL=hp-root" in said(facts["cmdline"]) and "BOOT_IMAGE" not in said(facts["cmdline"])
        assert said(facts["failed"]) == ""


@pytest.fixture(scope="class")
def hosts():
    with booted("host1", "host2"):
        yield


@pytest.mark.usefixtures("hosts")
class TestHosts:
    def test_they_run_and_reach_each_other(self):
        facts = ask(
            "host1",
            running="systemctl is-system-running --wait",
            ping="ping -c 1 -W 5 host2",
            hostname="hostname",
            interrupts="echo 1 > /proc/irq/default_smp_affinity",
        )
        assert said(facts["running"]) == "running"
        said(facts["ping"])
        assert said(facts["hostname"]) == "host1"
        assert facts["interrupts"][0] != 0  # this machine's interrupts are out of reach

    def test_a_changed_boot_entry_shows_after_a_reboot(self):
        before = inside("host1", "cat /proc/sys/kernel/random/boot_id")
        change = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT isolcpus=managed_irq,2-3"'
        facts = ask(
            "host1",
            write=f"echo {shlex.quote(change)} > /etc/default/grub.d/90-test.cfg",
            grub="update-grub",
            old="cat /proc/cmdline",
        )
        assert "isolcpus" not in said(facts["old"])
        lab("ssh", "host1", "systemctl reboot", check=False)
        lab("wait", "host1", "--boot-id", before)
        facts = ask("host1", boot="cat /proc/sys/kernel/random/boot_id", cmdline="cat /proc/cmdline")
        assert said(facts["boot"]) != before
        assert said(facts["cmdline"]).startswith("BOOT_IMAGE=") and "isolcpus=managed_irq,2-3" in said(facts["cmdline"])
        assert STATE.read("host1").running

    def test_a_power_cut_and_return(self):
        before = inside("host2", "cat /proc/sys/kernel/random/boot_id; touch /root/kept")
        lab("power-cycle", "host2")
        after = inside("host2", "cat /proc/sys/kernel/random/boot_id; ls /root/kept").split()
        assert after[0] != before and after[1:] == ["/root/kept"]

    def test_given_arguments_and_folders_show_in_place_of_the_machines_own(self):
        lab("up", "host3", "--cmdline", "BOOT_IMAGE=/vmlinuz nohz_full=1-3")
        try:
            assert inside("host3", "cat /proc/cmdline") == "BOOT_IMAGE=/vmlinuz nohz_full=1-3"
            inside("host3", "mkdir -p /etc/lab/proc-irq/7 && echo f > /etc/lab/proc-irq/7/smp_affinity")
            lab("reboot", "host3")
            assert inside("host3", "cat /proc/irq/7/smp_affinity") == "f"
        finally:
            lab("down", "host3")

    @pytest.mark.parametrize("start", ["up", "power-on"])
    def test_one_that_powered_itself_off_starts_again_with_its_disk_and_its_forwards(self, start):
        port = lab("forward", "host2", "5201").stdout
        process = STATE.read("host2").process.pid
        lab("ssh", "host2", "touch /root/mine; systemctl poweroff", check=False)
        gone(process)
        assert "is not running (it is off)" in refused("ssh", "host2", "true")
        lab(start, "host2")
        assert inside("host2", "ls /root/mine") == "/root/mine"
        assert lab("forward", "host2", "5201").stdout == port

    def test_one_whose_process_died_starts_again(self):
        process = STATE.read("host2").process.pid
        os.kill(process, signal.SIGKILL)  # the loop alone: the host itself still runs
        gone(process)
        lab("up", "host2")
        assert inside("host2", "hostname") == "host2"

    def test_the_inventory_and_the_ssh_configuration_reach_them(self):
        text = lab("inventory", "host1", "host2").stdout
        assert "lab_nspawn" in text and "ansible_ssh_common_args" in text
        done = subprocess.run(
            ["ssh", "-F", str(STATE.folder / "ssh_config"), "host2", "hostname"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip() == "host2"

    def test_a_port_is_forwarded_to_them_from_loopback_only(self):
        port = int(lab("forward", "host1", "5201").stdout)
        inside("host1", "iperf3 --server --daemon --one-off")
        done = subprocess.run(
            ["iperf3", "--client", "127.0.0.1", "--port", str(port), "--time", "1"], capture_output=True, check=False
        )
        assert done.returncode == 0, done
        listeners = subprocess.run(["ss", "--no-header", "-tln"], capture_output=True, text=True, check=True).stdout
        own = [line.split()[3] for line in listeners.splitlines() if line.split()[3].endswith(f":{port}")]
        assert own == [f"127.0.0.1:{port}"]


class TestRefusals:
    @pytest.fixture(autouse=True)
    def nothing_is_left(self):
        lab("clean")
        yield
        lab("status")  # which makes nothing
        found = {key: value for key, value in left().items() if key != "state"}
        assert not any(found.values()), found

    def test_an_unknown_machine(self):
        assert "There is no machine 'nope' in the lab: it has new, old" in refused("up", "nope")

    def test_a_machine_that_does_not_exist_yet(self):
        assert "`up new` makes it" in refused("ssh", "new", "true")

    def test_not_root(self):
        assert "needs root" in refused("up", "host1", prefix=("unshare", "--user"))

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert f"Port {port} of 127.0.0.1 is taken" in refused("up", "host1", "--ssh-port", str(port))

    def test_no_disk_space(self, tmp_path):
        with small(tmp_path, "64m"):
            text = refused("image", "host1", XDG_CACHE_HOME=str(tmp_path))
            assert re.search(r"no room for an image of host1: .* has \d+ MiB free, and it needs \d+ MiB", text)

    def test_a_full_disk(self, tmp_path):
        places = {"XDG_CACHE_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        with small(tmp_path, "64k"):
            (tmp_path / "full").write_bytes(b"x" * 65536)
            assert "no room for an image of host1" in refused("image", "host1", **places)
            assert "no room for an image of host1" in refused("up", "host1", **places)
            lab("clean", **places)  # which is how room is made

    def test_a_disk_that_takes_no_more_files(self, tmp_path):
        places = {"XDG_CACHE_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        with small(tmp_path, "64m", inodes=1):
            assert "no room for an image of host1" in refused("image", "host1", **places)
            for command in (("up", "host1"), ("clean",)):
                text = refused(*command, **places)
                assert re.fullmatch(r"`\w+` could not be finished \(/.*: No space left .*make room there.*\n", text), (
                    text
                )

    def test_a_disk_that_fills_up_while_a_machine_runs(self, tmp_path):
        images.ensure(MACHINES.machine("host1"))
        place = {"XDG_STATE_HOME": str(tmp_path)}
        with small(tmp_path, "2g"):
            lab("up", "host1", **place)
            try:
                usage = os.statvfs(tmp_path)
                used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
                subprocess.run(["mount", "-o", f"remount,size={used}", tmp_path], check=True)
                text = refused("power-cut", "host1", **place)
                assert re.search(r"`power-cut` could not be finished \(.*/host1/state\.new: No space left", text), text
            finally:
                lab("clean", **place)
            assert list(tmp_path.glob("*/lab/*")) == []

    def test_a_description_with_an_error(self, tmp_path):
        file = tmp_path / "mine.yml"
        file.write_text("machines: {one: {kind: qemu, cpu: 2}}", encoding="utf-8")
        assert "mine.yml: one has the unknown key 'cpu'" in refused("list", HOSTPREP_LAB_MACHINES=str(file))

    @pytest.mark.qemu
    def test_a_machine_that_does_not_come_up(self):
        images.ensure(MACHINES.machine("new"))
        text = refused("up", "new", "--timeout", "6")
        assert "new did not answer within 6 s; the last lines of its console:" in text

    @pytest.mark.qemu
    def test_a_machine_that_dies_while_it_boots(self):
        images.ensure(MACHINES.machine("new"))
        with self.started("up", "new") as (program, pid):
            os.kill(pid, signal.SIGKILL)
            _out, text = program.communicate(timeout=60)
        assert program.returncode == 2
        assert "new ended before it answered" in text

    @pytest.mark.parametrize("name", [pytest.param("new", marks=pytest.mark.qemu), "host1"])
    def test_leftovers_of_a_killed_run_are_named_and_removed(self, name):
        images.ensure(MACHINES.machine(name))
        with self.started("up", name) as (program, pid):
            program.kill()
            program.wait()
        assert state.start_time(pid) is not None
        assert f"process {pid} of {name}" in lab("status").stderr or f"half-made machine {name}" in lab("status").stderr
        text = lab("clean").stderr
        assert "Leftovers of a run that was killed" in text and name in text
        assert state.start_time(pid) is None

    def test_a_start_that_is_killed_costs_no_disk(self):
        lab("up", "host1")
        try:
            inside("host1", "touch /root/kept")
            lab("power-cut", "host1")
            with self.started("power-on", "host1") as (program, pid):
                program.kill()
                program.wait()
            text = lab("up", "host1").stderr
            assert "the unfinished start of host1, which keeps its disk" in text
            assert state.start_time(pid) is None
            assert inside("host1", "ls /root/kept") == "/root/kept"
        finally:
            lab("down", "host1")

    def test_a_build_that_is_killed_takes_its_programs_along_and_leaves_a_folder_that_clean_finds(self, tmp_path):
        def builders():
            return [pid for pid, arguments in state.all_processes() if str(tmp_path) in arguments]

        command = [sys.executable, str(PROGRAM), "--lab", STATE.lab, "image", "host1"]
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as program:
            for _try in range(300):
                if len(builders()) > 2 and list(tmp_path.glob("*/lab/tmp/build-*/mmdebstrap.log")):
                    break
                time.sleep(0.1)
            program.kill()
        for _try in range(100):
            if not builders():
                break
            time.sleep(0.1)
        assert builders() == []
        assert "scratch folder" in lab("clean", XDG_CACHE_HOME=str(tmp_path)).stderr
        assert not list(tmp_path.glob("*/lab/tmp/*"))

    @contextlib.contextmanager
    def started(self, *words):
        """The program, from the moment that its machine has a process."""
        command = [sys.executable, str(PROGRAM), "--lab", STATE.lab, *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as program:
            for _try in range(600):
                record = STATE.read(words[1])
                if record and record.process:
                    break
                time.sleep(0.02)
            else:
                program.kill()
                pytest.fail(f"{words} did not start a process")
            yield program, record.process.pid
