# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the gates of this repository in tiers and counts: ``run.py check`` (the quick ones) or ``run.py test`` (all of them,
or the tiers named after it: static, unit, molecule, plan, nspawn, cluster, kubelet, boot, machines, irq, host).

A gate is one command. Where it writes JUnit files its tests are counted one by one, else it counts as one test. Its output
goes to ``build/test/GATE.log`` and is shown when it fails. Everything runs on each ansible-core of
``workspace.TEST_ENVIRONMENTS`` whose interpreter is on the machine; one that is not is named.

The clock: a ``late`` tier that was not begun by minute 65, or that may take longer than to minute 85, is skipped and named, and
at minute 85 whatever still runs is stopped and counts as failed. Which of them is last, and so the one that may be skipped, changes by the day.
The last line is ``N passed, N failed`` over all tiers.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tools"))

import workspace  # noqa: E402  (tools/ is no package; the line above makes it importable)

LOGS = workspace.BUILD / "test"
LAST_START = 65 * 60
HARD_STOP = 85 * 60
TIERS = ("static", "unit", "molecule", "plan", "nspawn", "cluster", "kubelet", "boot", "machines", "irq", "host")
QUICK_TIERS = ("static", "unit")
CLEANUP_SECONDS = 60
MARK = "HOSTPREP_GATE"  # a variable that all processes of a gate have
TARGET_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
# In the names of the tests that boot other machines than `new`: one of them has its turn each day.
LAYOUTS = ("TestOld", "boot_on_lvm", "on_btrfs", "under_uefi", "VectorSpace")
# Programs that some tests start, by the Debian package that has each: the report's page, a sanity test, the benchmark.
PACKAGES = {"chromium": "chromium", "shellcheck": "shellcheck", "lstopo-no-graphics": "hwloc-nox"}


@dataclass
class Gate:
    """One command; ``junit`` is a glob of the result files that it writes, ``needs`` is found in what it prints."""

    name: str
    command: list[str]
    environment: dict[str, str]
    folder: Path = TOP
    junit: Path | None = None
    needs: str | None = None
    skips: int | None = None  # the exit code with which it says, in its last line, that this machine cannot run it
    cleanup: list[list[str]] = field(default_factory=list)  # end what the command leaves running where it fails
    outcome: Outcome | None = None  # once it ran


@dataclass
class Tier:
    name: str
    gates: Callable[[], Iterable[Gate]]
    late: int = 0  # where it may be skipped: minutes that it takes at most on two cores
    root: bool = False  # boots machines, which makes network namespaces, taps and mounts


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skips: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skips += other.skips


def read_junit(files: Iterable[Path]) -> Outcome:
    """The counts of JUnit files; a file that is not XML (a run that was broken off) counts as one failure."""
    outcome = Outcome()
    for path in files:
        try:
            cases = list(ET.parse(path).iter("testcase"))
        except ET.ParseError:
            outcome.failed += 1
            continue
        for case in cases:
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                outcome.failed += 1
            elif skipped is not None:
                outcome.skips.append(skipped.get("message") or "no reason given")
            else:
                outcome.passed += 1
    return outcome


def judge(gate: Gate, code: int, output: str, shared: Path | None) -> tuple[Outcome, list[str]]:
    """What a finished gate counts as, and the sentences that say why it failed."""
    outcome = Outcome()
    why: list[str] = []
    if gate.skips is not None and code == gate.skips:
        outcome.skips = output.split("\n")[-2:-1] or ["no reason given"]
        return outcome, why
    if gate.junit:
        outcome = read_junit(gate.junit.parent.glob(gate.junit.name))
        if not outcome.passed and not outcome.failed:
            why.append("It executed no test.")
        missed = [skip for skip in outcome.skips if "HOSTPREP_SHARED" in skip]
        if shared and missed:
            why.append(f"{len(missed)} tests skipped the captured machines although they are in {shared}: {missed[0]}")
    if code and not outcome.failed:
        why.append(f"It exited with {code}.")
    if gate.needs and not re.search(gate.needs, output):
        why.append(f"Its output has no '{gate.needs}'.")
    if why:
        outcome.failed += 1
    elif not gate.junit:
        outcome.passed += 1
    return outcome, why


def kill_marked(mark: str) -> None:
    """Kills every process with this variable. Neither a group nor a session has them all: Ansible's workers make their own."""
    for _try in range(200):  # one that hangs in the kernel cannot be waited for
        found = []
        for folder in Path("/proc").iterdir():
            # A process that ends meanwhile, or of another user; one that waits for its parent has no variables left.
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.05)


def run_gate(gate: Gate, stop_at: float, shared: Path | None) -> Outcome:
    """Runs one gate with its output in a log file; at ``stop_at`` (time.monotonic) it is ended with all that it started."""
    log = LOGS / (re.sub(r"[^\w.]+", "-", gate.name) + ".log")
    if gate.junit:
        for old in gate.junit.parent.glob(gate.junit.name):
            old.unlink()
    began = time.monotonic()
    mark = f"{MARK}={os.getpid()}-{began}"
    stopped = False
    with open(log, "w", encoding="utf-8") as sink:
        process = subprocess.Popen(
            gate.command,
            cwd=gate.folder,
            env=gate.environment | dict([mark.split("=")]),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout=max(0.0, stop_at - began))
        except subprocess.TimeoutExpired:
            stopped = True
        finally:
            if process.poll() is None:
                kill_marked(mark)
                process.wait()
            if process.returncode:
                for command in gate.cleanup:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        subprocess.run(
                            command,
                            cwd=gate.folder,
                            env=gate.environment,
                            check=False,
                            stdin=subprocess.DEVNULL,
                            stdout=sink,
                            stderr=sink,
                            timeout=CLEANUP_SECONDS,
                        )
    output = log.read_text(encoding="utf-8", errors="replace")
    outcome, why = judge(gate, process.returncode, output, shared)
    if stopped:
        why = ["It was stopped because the time for the whole run is over."]
    gate.outcome = outcome
    counted = f"{outcome.passed} passed, {outcome.failed} failed, {len(outcome.skips)} skipped" if gate.junit else ""
    word = "FAILED" if outcome.failed else "ok" if outcome.passed else "skip"
    print(
        f"  {word:6} {gate.name:44} {time.monotonic() - began:6.1f} s  {counted}".rstrip(),
        flush=True,
    )
    for reason in sorted(set(outcome.skips)):
        print(f"         skipped {outcome.skips.count(reason)}: {reason}")
    if outcome.failed:
        print(
            f"----- {' '.join(map(str, gate.command))}\n{output[-20000:].rstrip()}\n----- {' '.join(why)}", flush=True
        )
    return outcome


def run_tiers(tiers: Iterable[Tier], started: float, shared: Path | None) -> Outcome:
    """Runs the tiers by the clock, ``started`` being time.monotonic at minute 0."""
    total = Outcome()
    for tier in tiers:
        minute = (time.monotonic() - started) / 60
        if tier.late and minute * 60 >= LAST_START:
            print(
                f"Tier {tier.name}: skipped, because minute {LAST_START // 60} was over before it could begin.",
                flush=True,
            )
            continue
        if tier.late and minute + tier.late > HARD_STOP / 60:
            print(
                f"Tier {tier.name}: skipped in minute {minute:.0f}, because it may take {tier.late} and minute {HARD_STOP // 60} is the last.",
                flush=True,
            )
            continue
        if tier.root and os.geteuid():
            print(f"Tier {tier.name}: skipped, because it boots machines and that needs root.", flush=True)
            continue
        print(f"Tier {tier.name} (minute {minute:.0f})", flush=True)
        try:
            for gate in tier.gates():
                if time.monotonic() >= started + HARD_STOP:
                    print(f"  FAILED {gate.name}: not begun, because minute {HARD_STOP // 60} is over.", flush=True)
                    total.failed += 1
                else:
                    total.add(run_gate(gate, started + HARD_STOP, shared))
        except workspace.WorkspaceError as error:  # what the next gate needs could not be set up
            print(f"  FAILED the rest of tier {tier.name}: {error}", flush=True)
            total.failed += 1
    return total


def in_turn(tiers: list[Tier], day: date) -> list[Tier]:
    """The tiers, the late ones in an order that moves on by one each day, and by one more when all pairs of place and layout were met
    that come by that: so each meets every layout as the last."""
    late = [tier for tier in tiers if tier.late]
    number = day.toordinal()
    if late and math.gcd(len(late), len(LAYOUTS)) > 1:
        number += number // math.lcm(len(late), len(LAYOUTS))
    first = number % max(1, len(late))
    return [tier for tier in tiers if not tier.late] + late[first:] + late[:first]


class Gates:
    """The gates of this repository, for the ansible-cores and interpreters that this machine has."""

    def __init__(self, shared: Path | None, only_quick: bool) -> None:
        self.only_quick = only_quick
        self.cores = [name for name in workspace.TEST_ENVIRONMENTS if workspace.find_python(name)]
        if only_quick:
            self.cores = self.cores[:1]
        for name in workspace.TEST_ENVIRONMENTS:
            python = workspace.find_python(name)
            best = workspace.wanted_pythons(name)[0]
            if not python:
                print(
                    f"{name}: not run, because this machine has none of Python {', '.join(workspace.wanted_pythons(name))}.",
                    flush=True,
                )
            elif python != best:
                print(f"{name}: on Python {python}, because this machine has no Python {best}.", flush=True)
        if not self.cores:
            raise workspace.WorkspaceError(
                "This machine has no Python that a supported ansible-core runs on: install Python 3.11, 3.12 or 3.13."
            )
        self.main = self.cores[0]
        self.targets = [version for version in TARGET_PYTHONS if workspace.interpreter(version)]
        more = {"NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}
        if shared:
            more["HOSTPREP_SHARED"] = str(shared)
        self.environments = {name: workspace.environment(name) | more for name in self.cores}
        self.staged = TOP if only_quick else workspace.stage(shared)

    def gate(self, name: str, *command: str, core: str | None = None, **more: Any) -> Gate:
        return Gate(name, list(command), self.environments[core or self.main], **more)

    def ansible_test(self, name: str, core: str, *command: str, **more: Any) -> Gate:
        """A gate in the copy of the checkout, with a home of its own in the cache (see ``ansible_test_home``)."""
        paths = [str(path.parent) for path in map(workspace.interpreter, self.targets) if path]
        variables = {**self.environments[core], "HOME": str(ansible_test_home(core)), "ANSIBLE_CONFIG": "/dev/null"}
        variables["PATH"] = ":".join([variables["PATH"], *paths])
        return Gate(f"{name}, {core}", ["ansible-test", *command], variables, folder=self.staged, **more)

    def static(self) -> Iterator[Gate]:
        yield self.gate("ruff", "ruff", "check", "--no-cache", ".")
        yield self.gate("ruff format", "ruff", "format", "--no-cache", "--check", ".")
        yield self.gate("mypy", "mypy", "--no-incremental")
        yield self.gate("yamllint", "yamllint", "--strict", ".")
        yield self.gate("changelog", "antsibull-changelog", "lint")
        for core in self.cores:
            yield self.gate(f"ansible-lint, {core}", "ansible-lint", "--strict", core=core)
        if self.only_quick:
            return
        yield self.gate("documentation", "python", "tools/docs.py")
        yield self.gate(
            "execution environment",
            "ansible-builder",
            "create",
            "-f",
            "meta/execution-environment.yml",
            "-c",
            str(LOGS / "context"),
        )
        yield self.gate(
            "execution environment of others",
            "ansible-builder",
            "introspect",
            "--sanitize",
            str(workspace.link()),
            needs="from collection lo0.rke2_hostprep",
        )
        # On the first core with the target hosts' Pythons: `compile` and `import` run on each that is found.
        for core in self.cores:
            pythons = [] if core == self.main else ["--python", str(workspace.find_python(core))]
            yield self.ansible_test("sanity", core, "sanity", "--local", "--color", "no", *pythons)
        yield from self.built()

    def built(self) -> Iterator[Gate]:
        """The tarball, and Galaxy's own check of it."""
        artifact = LOGS / "artifact"
        shutil.rmtree(artifact, ignore_errors=True)
        yield self.gate(
            "build",
            "ansible-galaxy",
            "collection",
            "build",
            "--force",
            "--output-path",
            str(artifact),
            folder=self.staged,
        )
        if not workspace.find_python("importer"):
            print(
                f"  galaxy-importer: not run, because this machine has none of Python {', '.join(workspace.wanted_pythons('importer'))}."
            )
            return
        tarball = next(artifact.glob("*.tar.gz"), artifact / "no tarball was built")
        yield Gate(
            "galaxy-importer",
            ["python", "-m", "galaxy_importer.main", str(tarball)],
            workspace.environment("importer"),
            folder=artifact,
        )

    def unit(self) -> Iterator[Gate]:
        for core in self.cores:
            results = LOGS / f"unit-{core}.xml"
            yield self.gate(
                f"pytest, {core}", "pytest", "-q", "-n", "auto", f"--junit-xml={results}", core=core, junit=results
            )
        if self.only_quick:
            return
        results = LOGS / "browser.xml"
        yield self.gate(
            "the report's page in Chromium", "pytest", "-q", "tests/browser", f"--junit-xml={results}", junit=results
        )
        results = self.staged / "tests/output/junit/*.xml"
        oldest = self.targets[0]  # plain pytest has covered the controllers' Pythons
        yield self.ansible_test(
            f"units on Python {oldest}",
            self.main,
            "units",
            "--venv",
            "--python",
            oldest,
            "--color",
            "no",
            junit=results,
        )

    def molecule(self) -> Iterator[Gate]:
        """The scenarios that boot no machine. Molecule only warns about a playbook that is missing: hence missing=0."""
        for core in self.cores:
            yield self.gate(
                f"molecule default, {core}",
                "molecule",
                "test",
                "--scenario-name",
                "default",
                core=core,
                needs="missing=0",
            )

    def plan(self) -> Iterator[Gate]:
        """`make plan` as a newcomer runs it, in a copy of the checkout."""
        yield self.gate("make plan", "make", "plan", folder=self.staged, needs=r"build/report/plan\.html")

    def lab(self, name: str, *command: str, **more: Any) -> Gate:
        """A gate with a lab of its own (docs/lab.md), of which a failure leaves nothing running."""
        gate = self.gate(name, *command, skips=77, **more)
        gate.environment = gate.environment | {"HOSTPREP_LAB": "gate", "HOSTPREP_LAB_NICE": "0"}
        gate.cleanup = [["python", "tests/cluster", "clean"], ["python", "tests/lab", "clean"]]
        return gate

    def lab_tests(self, name: str, *chosen: str) -> Gate:
        results = LOGS / f"{name}.xml"
        return self.lab(name, "pytest", "-q", *chosen, f"--junit-xml={results}", junit=results)

    def nspawn(self) -> Iterator[Gate]:
        """The lab's hosts that boot in seconds, and its refusals."""
        image = self.lab("the image of the lab's hosts", "python", "tests/lab", "image", "host1")
        yield image
        if passed(image):
            yield self.lab_tests("the lab's hosts", "tests/lab", "-m", "not qemu")
            yield self.lab("molecule roles", "molecule", "test", "--scenario-name", "roles", needs="missing=0")

    def turn(self) -> str:
        """Selects of the tests on other machines than `new` those whose turn it is, a day each; `make soak` boots all."""
        layout = LAYOUTS[date.today().toordinal() % len(LAYOUTS)]
        return " and ".join(f"not {name}" for name in LAYOUTS if name != layout)

    def boot(self) -> Iterator[Gate]:
        """Kernel arguments on a machine with a boot loader of its own."""
        images = self.lab("the lab's image new", "python", "tests/lab", "image", "new")
        yield images
        if passed(images):
            others = " and ".join(f"not {name}" for name in LAYOUTS)
            yield self.lab_tests("boots of a machine", "tests/lab/test_boot.py", "-k", others)

    def machines(self) -> Iterator[Gate]:
        """What the lab itself promises, and what the machine whose turn it is shows."""
        workspace.link()  # the tests run a playbook
        chosen = f"{self.turn()} and not TestGrub and not SlowFallbacks and not PowerCuts and not TestIgb"
        files = ["tests/lab/test_lab.py", "tests/lab/test_boot.py", "tests/lab/test_irq.py"]
        yield self.lab_tests("the lab's machines", *files, "-m", "qemu", "-k", chosen)

    def irq(self) -> Iterator[Gate]:
        """Interrupts of NICs on machines with a kernel of their own."""
        workspace.link()  # the tests run a playbook
        yield self.lab_tests("interrupts of the lab's machines", "tests/lab/test_irq.py", "-k", "TestIgb")

    def host(self) -> Iterator[Gate]:
        """Both roles on both kernels: trial boot, rollback, and nothing left."""
        images = self.lab("the lab's images", "python", "tests/lab", "image", "new", "old")
        yield images
        if passed(images):
            yield self.lab("molecule host", "molecule", "test", "--scenario-name", "host", needs="missing=0")

    def with_cluster(self, machines: list[str], *gates: Gate) -> Iterator[Gate]:
        """Gates that need a real Kubernetes on machines of the lab."""
        images = self.lab("the lab's images", "python", "tests/lab", "image", *machines)
        yield images
        programs = self.lab("the cluster's programs", "python", "tests/cluster", "build")
        yield programs
        if passed(images) and passed(programs):
            yield from gates

    def cluster(self) -> Iterator[Gate]:
        """The cluster itself, and what the lab promises with it."""
        plane = self.lab_tests("the cluster's control plane", "tests/cluster")
        lab = self.lab("molecule lab", "molecule", "test", "--scenario-name", "lab", needs="missing=0")
        yield from self.with_cluster(["new", "host1"], plane, lab)

    def kubelet(self) -> Iterator[Gate]:
        """Roles rke2 and cilium, with real kubelets on two kernels."""
        roles = self.lab("molecule cluster", "molecule", "test", "--scenario-name", "cluster", needs="missing=0")
        yield from self.with_cluster(["new", "old", "host1"], roles)


def passed(gate: Gate) -> bool:
    return bool(gate.outcome and gate.outcome.passed)


def ansible_test_home(core: str) -> Path:
    """A HOME in which ansible-test finds its pip bootstrap, so that it downloads nothing but packages.

    It would fetch a script of its own from the network and keep it under ~/.ansible; Python's ensurepip does the same job.
    """
    home = workspace.CACHE / "ansible-test"
    scripts = home / ".ansible/test/cache"
    scripts.mkdir(parents=True, exist_ok=True)
    [source] = workspace.venv(core).glob("lib/python*/site-packages/ansible_test/_internal/python_requirements.py")
    version = re.search(r"\bpip='([\d.]+)'", source.read_text(encoding="utf-8"))
    assert version, f"{source} names no pip version"
    script = scripts / f"get_pip_{version[1].replace('.', '_')}.py"
    script.write_text("import ensurepip\nensurepip.bootstrap(upgrade=True, default_pip=True)\n", encoding="utf-8")
    return home


def install_programs() -> None:
    """Installs the programs that are missing where that is possible, and names those that stay missing."""
    missing = [program for program in PACKAGES if not shutil.which(program)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        apt = ["apt-get", "-q", "-y"]
        with open(LOGS / "apt.log", "w", encoding="utf-8") as log:
            for command in (["update"], *(["install", PACKAGES[program]] for program in missing)):
                print(f"  {' '.join(apt + command)}", flush=True)
                variables = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
                subprocess.run(
                    apt + command, env=variables, check=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
    for program in missing:
        if not shutil.which(program):
            print(
                f"{program} is not on this machine (Debian package {PACKAGES[program]}): what needs it is skipped.",
                flush=True,
            )


def main(arguments: list[str]) -> int:
    if arguments[:1] not in (["check"], ["test"]):
        print(__doc__, file=sys.stderr)
        return 2
    unknown = set(arguments[1:]) - set(TIERS)
    if unknown:
        print(f"There is no tier {', '.join(sorted(unknown))}: there are {', '.join(TIERS)}.")
        return 2
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit("Stopped."))  # so that what runs is ended too
    started = time.monotonic()
    only_quick = arguments[0] == "check"
    place = Path(os.environ.get("HOSTPREP_SHARED") or TOP.parent / "shared").resolve()
    shared = place if place.is_dir() else None
    if not shared:
        print(
            f"No captured machines in {place}: tests that need them are skipped (HOSTPREP_SHARED names another folder)."
        )
    LOGS.mkdir(parents=True, exist_ok=True)
    if not only_quick:
        install_programs()
    try:
        gates = Gates(shared, only_quick)
    except workspace.WorkspaceError as error:
        print(f"{error}\n0 passed, 1 failed", flush=True)
        return 1
    tiers = [
        Tier("static", gates.static),
        Tier("unit", gates.unit),
        Tier("molecule", gates.molecule),
        Tier("plan", gates.plan),
        Tier("nspawn", gates.nspawn, root=True),
        Tier("cluster", gates.cluster, late=20, root=True),
        Tier("kubelet", gates.kubelet, late=30, root=True),
        Tier("boot", gates.boot, late=20, root=True),
        Tier("machines", gates.machines, late=20, root=True),
        Tier("irq", gates.irq, late=15, root=True),
        Tier("host", gates.host, late=25, root=True),
    ]
    wanted = arguments[1:] or (QUICK_TIERS if only_quick else TIERS)
    total = run_tiers(in_turn([tier for tier in tiers if tier.name in wanted], date.today()), started, shared)
    print(f"{len(total.skips)} skipped; {(time.monotonic() - started) / 60:.1f} minutes; logs in {LOGS}")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    workspace.run_tool(main)
