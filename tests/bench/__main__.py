# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures, printed as ratios and shares of one run: `make bench`. Nothing is asserted; a part that cannot run says why.

python tests/bench [lstopo] [growth] [fleet] [irqs] [keeper]     default: these
python tests/bench isolation[:interrupts][:jitter][:threads]     as root: boots a machine of the lab; default: all three
python tests/bench executions                                    as root: boots four hosts of the lab
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import executions
import isolation

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests"))
SHARED = Path(os.environ.get("HOSTPREP_SHARED") or TOP.parent / "shared")
HOSTS = int(os.environ.get("BENCH_HOSTS", "200"))


def _collection():
    sys.path.insert(0, str(TOP / "tests" / "unit"))
    import conftest  # noqa: F401  makes a flat checkout importable as the collection
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.configured import observe
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan

    def plan(root):
        tree = Tree(str(root))
        topology = discover(tree)
        return make_plan(topology, {}, observed=observe(tree, topology["kernel"]["release"]))

    return plan


def _seconds(*actions, runs=7):
    """Median of each action over several runs after one that warms up; turn by turn, so that a busy moment hits all."""
    times = [[] for _action in actions]
    for run in range(runs + 1):
        for action, taken in zip(actions, times):
            start = time.perf_counter()
            action()
            if run:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def lstopo(folder):
    """Discover and plan, in process and warm, beside hwloc's lstopo as a whole process on the same snapshot."""
    program = shutil.which("lstopo-no-graphics")
    if not program or not SHARED.is_dir():
        print("lstopo: skipped, needs hwloc's lstopo-no-graphics and captured machines (HOSTPREP_SHARED)")
        return
    plan = _collection()
    for name in ("hwloc-power7-256", "cnto-bm-worker1", "ul-epyc-7451-2s"):
        root = folder / name
        with tarfile.open(SHARED / "machines" / (name + ".tar.xz")) as archive:
            archive.extractall(root, filter="fully_trusted")
        (ours,) = _seconds(lambda root=root: plan(root), runs=15)
        command = [program, "-i", str(root), "--of", "console"]
        (theirs,) = _seconds(lambda command=command: subprocess.run(command, check=False, capture_output=True), runs=15)
        print(
            "lstopo %-20s discover+plan %6.1f ms, lstopo %6.1f ms, ratio %.2f"
            % (name, ours * 1e3, theirs * 1e3, ours / theirs)
        )


def growth(folder):
    """A host of 1,152 CPUs, 64 nodes and 2,048 NIC interrupts beside one of 112 CPUs with nodes and interrupts in proportion."""
    from builder import build, named

    plan = _collection()
    big = named("huge")
    small = dict(big, cpus={"packages": 2, "cores": 28}, memory={"nodes_per_package": 3}, roots={"0000:10": 0})
    small["nics"] = [dict(big["nics"][0], queues=198)]
    few, many = 112, 1152
    roots = [build(spec, folder / ("growth-%d" % cpus)) for cpus, spec in ((few, small), (many, big))]
    fast, slow = _seconds(*(lambda root=root: plan(root) for root in roots), runs=15)
    for cpus, seconds in ((few, fast), (many, slow)):
        print("growth %5d CPUs: %7.1f ms" % (cpus, seconds * 1e3))
    print(
        "growth time x%.1f for CPUs x%.1f, ratio %.2f (1.00 is linear)"
        % (slow / fast, many / few, slow / fast / (many / few))
    )


def fleet(folder):
    """The plan playbook with its report over many hosts, beside `ansible -m setup` over the same hosts."""
    from builder import build, named

    names = ["article-alternate", "ice-448", "epyc-480"]
    roots = [build(named(name), folder / ("fleet-" + name)) for name in names]
    inventory = folder / "hosts.yml"
    lines = [
        "all:",
        "  vars: {ansible_connection: local, ansible_python_interpreter: '%s'}" % sys.executable,
        "  hosts:",
    ]
    for number in range(HOSTS):
        root = folder / ("host%03d" % number)
        root.symlink_to(roots[number % len(roots)])
        lines.append("    host%03d: {rke2_hostprep_root: '%s'}" % (number, root))
    inventory.write_text("\n".join(lines) + "\n")
    report = folder / "report"
    plan = [
        "ansible-playbook",
        str(TOP / "playbooks" / "plan.yml"),
        "-i",
        str(inventory),
        "-f",
        "10",
        "-e",
        "rke2_hostprep_report_dir=%s" % report,
    ]
    setup = ["ansible", "all", "-i", str(inventory), "-f", "10", "-m", "ansible.builtin.setup"]
    times = {}
    for name, command in (("setup", setup), ("plan", plan), ("setup again", setup)):
        start = time.perf_counter()
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=TOP)
        times[name] = time.perf_counter() - start
        print("fleet %-12s %6.1f s, exit %d" % (name, times[name], done.returncode))
        if done.returncode:
            print(done.stdout[-2000:] + done.stderr[-2000:])
    ratio = times["plan"] / ((times["setup"] + times["setup again"]) / 2)
    size = (report / "plan.html").stat().st_size / 1e6
    print("fleet %d hosts: plan/setup ratio %.2f, HTML %.2f MB" % (HOSTS, ratio, size))


# What the drivers' own scripts do for each interrupt, kept short: look, compare, write. The second forks no program at all.
LOOPS = {
    "shell loop": 'while read -r irq cpus; do f="$1/proc/irq/$irq/smp_affinity_list"; '
    '[ "$(cat "$f")" = "$cpus" ] || echo "$cpus" > "$f"; done < "$2"',
    "loop of builtins": 'while read -r irq cpus; do f="$1/proc/irq/$irq/smp_affinity_list"; '
    'read -r now < "$f"; [ "$now" = "$cpus" ] || echo "$cpus" > "$f"; done < "$2"',
}


def irqs(folder):
    """Putting 448 queue interrupts in place, when none and when all are elsewhere, beside shell loops over the same files.

    Ours finds the interrupts anew each time, as it does on a host; the loops are handed numbers and CPUs.
    """
    from builder import build, named

    _collection()
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import affinity
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.affinity import checked
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan

    spec = named("ice-448")
    spec["nics"] = [dict(nic, ceqs=0) for nic in spec["nics"] if nic["driver"] == "ice"]
    root = build(spec, folder / "irqs")
    rules = checked(make_plan(discover(Tree(str(root))), {}))
    rows, _look = affinity.pin(str(root), rules)
    right, wrong = folder / "right", folder / "wrong"
    for path, column in ((right, "after"), (wrong, "before")):
        path.write_text("".join("%d %s\n" % (row["irq"], row[column]) for row in rows if row["kind"] == "queue"))
    places = [root / "proc/irq" / line.split()[0] / "smp_affinity_list" for line in right.read_text().splitlines()]

    def ours():
        affinity.pin(str(root), rules)

    def loop(text):
        return lambda: subprocess.run(["sh", "-c", text, "sh", str(root), str(right)], check=True)

    def timed(action, before):
        times = []
        for run in range(8):
            before()
            start = time.perf_counter()
            action()
            if run:
                times.append(time.perf_counter() - start)
        return statistics.median(times)

    def scatter():
        for place in places:
            place.write_text("50\n")

    for case, before in (("nothing changes", ours), ("everything changes", scatter)):
        taken = timed(ours, before)
        for name, text in LOOPS.items():
            theirs = timed(loop(text), before)
            print(
                "irqs %d queues, %-18s ours %6.1f ms, %-16s %7.1f ms, %5.1f times as long"
                % (len(places), case, taken * 1e3, name, theirs * 1e3, theirs / taken)
            )


def keeper(folder):
    """The keeper of 448 queues as a program of its own: memory, and the processor time of an hour in which nothing happens."""
    import json
    import signal

    from builder import build, named

    _collection()
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import program
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.kept import PLAN_PATH
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.plan import make_plan

    spec = named("ice-448")
    spec["nics"] = [dict(nic, ceqs=0) for nic in spec["nics"] if nic["driver"] == "ice"]
    root = build(spec, folder / "keeper")
    kept = root / PLAN_PATH
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(make_plan(discover(Tree(str(root))), {})))
    for path, text in program.files().items():
        place = folder / "program" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    metrics = folder / "metrics" / "irq.prom"
    command = [
        sys.executable,
        "-IB",
        str(folder / "program" / program.SCRIPT),
        "--root",
        str(root),
        "--metrics",
        str(metrics),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def looked():
        return metrics.stat().st_mtime_ns if metrics.exists() else 0

    def processor():
        fields = Path("/proc/%d/stat" % process.pid).read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    try:
        while not looked():
            time.sleep(0.05)
        time.sleep(3)  # its second look, and the one that its own writes ask for
        start, looks = processor(), 30
        for _look in range(looks):
            before = looked()
            process.send_signal(signal.SIGHUP)
            while looked() == before:
                time.sleep(0.01)
        each = (processor() - start) / looks
        status = Path("/proc/%d/status" % process.pid).read_text()
        memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    finally:
        process.terminate()
        process.wait()
    print(
        "keeper 448 queues: %.1f MiB resident, %.0f ms of processor a look, %.1f s an hour of 60 looks"
        % (memory, each * 1e3, each * 60)
    )


if __name__ == "__main__":
    parts = {"lstopo": lstopo, "growth": growth, "fleet": fleet, "irqs": irqs, "keeper": keeper}
    chosen = sys.argv[1:] or list(parts)
    parts |= {"executions": executions.run, "isolation": isolation.run}  # only where they are named: they boot machines
    for part in chosen:
        name, *pieces = part.split(":")
        if name not in parts or not set(pieces) <= set(isolation.PARTS if name == "isolation" else ()):
            there = [*parts, *("isolation:" + piece for piece in isolation.PARTS)]
            sys.exit("no such part: %s; there are %s" % (part, ", ".join(there)))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # /sys and /proc lie in memory too
    with tempfile.TemporaryDirectory(prefix="hostprep-bench-", dir=memory) as scratch:
        for part in chosen:
            name, *pieces = part.split(":")
            parts[name](Path(scratch), *([pieces] if name == "isolation" else []))
