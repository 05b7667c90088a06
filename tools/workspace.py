# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tool needs around this checkout: interpreters, virtual environments of pinned packages, collection layouts.

Slow things lie in a cache outside the checkout (``$XDG_CACHE_HOME/lo0.rke2_hostprep``, by default under ``~/.cache``),
each named after a hash of what it was made from, so a changed requirements file or interpreter makes a new one.
``requirements/NAME.txt`` says in its ``# python:`` line which interpreters it is for, best first.

As a command: ``workspace.py run NAME COMMAND …`` runs a command in an environment, made first if it is missing; NAME
``test`` is the first test environment that this machine has an interpreter for.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

TOP = Path(__file__).resolve().parents[1]
BUILD = TOP / "build"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lo0.rke2_hostprep"
COLLECTION = Path("ansible_collections/lo0/rke2_hostprep")
TEST_ENVIRONMENTS = ("test-2.21", "test-2.19")  # one for each ansible-core that the collection promises to run on


class WorkspaceError(Exception):
    """Something that the tools need is not on this machine; the text is a sentence for the user."""


@functools.cache
def interpreter(version: str) -> Path | None:
    """The real path of a Python of that minor version ("3.13") that can make environments; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    candidates = ([on_path] if on_path else []) + sorted(str(p) for p in pyenv.glob(f"{version}.*/bin/python{version}"))
    # The base executable, so that an active virtual environment makes no difference.
    probe = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], getattr(sys, '_base_executable', sys.executable))"
    for candidate in candidates:
        # A pyenv shim of a version that is not switched on exits with an error.
        answer = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, check=False)
        found, _blank, path = answer.stdout.strip().partition(" ")
        if answer.returncode == 0 and found == version:
            return Path(path)
    return None


def requirements_file(name: str) -> Path:
    return TOP / "requirements" / f"{name}.txt"


def wanted_pythons(name: str) -> list[str]:
    """The minor versions that requirements/NAME.txt accepts, best first."""
    stated = re.search(r"^# python: (.+)$", requirements_file(name).read_text(encoding="utf-8"), re.MULTILINE)
    assert stated, f"{requirements_file(name)} has no '# python:' line"
    return stated[1].split()


def find_python(name: str) -> str | None:
    """The best minor version for requirements/NAME.txt that this machine has."""
    return next(filter(interpreter, wanted_pythons(name)), None)


def test_environment() -> str:
    """The first test environment that this machine has an interpreter for."""
    return next(filter(find_python, TEST_ENVIRONMENTS), TEST_ENVIRONMENTS[0])


def venv(name: str) -> Path:
    """The virtual environment with requirements/NAME.txt, made if it is not in the cache yet."""
    requirements = requirements_file(name)
    version = find_python(name)
    python = version and interpreter(version)
    if not python:
        raise WorkspaceError(
            f"requirements/{requirements.name} needs one of Python {', '.join(wanted_pythons(name))} with its venv module, and this machine has none."
        )
    key = hashlib.sha256(f"{python} {os.path.realpath(python)}\n".encode() + requirements.read_bytes()).hexdigest()[:12]
    folder = CACHE / "venv" / f"{name}-{key}"
    done = folder / "complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            print(f"Setting up {requirements.name} with {python} in {folder} …", file=sys.stderr, flush=True)
            subprocess.run([python, "-m", "venv", "--clear", folder], check=True, stdout=sys.stderr)
            pip = [str(folder / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
            installed = subprocess.run(
                [*pip, "install", "--requirement", str(requirements)], check=False, stdout=sys.stderr
            )
            if installed.returncode:
                raise WorkspaceError(
                    f"pip could not install requirements/{requirements.name} (its message is above): check that this machine reaches a package index."
                )
            done.touch()
    return folder


def collections() -> Path:
    """The folder with the collections that requirements/collections.txt says to take out of its package, made if it is not in the cache."""
    requirements = requirements_file("collections")
    stated = re.search(r"^# take: (.+)$", requirements.read_text(encoding="utf-8"), re.MULTILINE)
    assert stated, f"{requirements} has no '# take:' line"
    folder = CACHE / "collections" / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            print(f"Setting up {stated[1]} in {folder} …", file=sys.stderr, flush=True)
            python = venv(test_environment()) / "bin/python"
            options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary=:all:"]
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                download = [str(python), "-m", "pip", "download", *options, "--dest", work]
                fetched = subprocess.run(
                    [*download, "--requirement", str(requirements)], check=False, stdout=sys.stderr
                )
                if fetched.returncode:
                    raise WorkspaceError(
                        f"pip could not fetch requirements/{requirements.name} (its message is above): check that this machine reaches a package index."
                    )
                [package] = Path(work).glob("*.whl")
                with zipfile.ZipFile(package) as wheel:
                    for name in stated[1].split():
                        below = f"ansible_collections/{name.replace('.', '/')}/"
                        members = [member for member in wheel.namelist() if member.startswith(below)]
                        if not members:
                            raise WorkspaceError(f"{package.name} has no {name}: take another version of it.")
                        wheel.extractall(Path(work) / "taken", members)
                (Path(work) / "taken").rename(folder)
    return folder


def link() -> Path:
    """Lays the checkout out as a collection by a link under build/, for tools that follow links; returns the folder."""
    root = BUILD / "collections"
    place = root / COLLECTION
    if not place.is_symlink():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(TOP, place.parent))
    return root


def checkout_files() -> list[str]:
    """Every file of the checkout that is tracked or could be: uncommitted work is tested too, build output is not."""
    listed = subprocess.run(
        ["git", "-C", TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        raise WorkspaceError(f"git cannot list the files of {TOP}, which the tests copy: {listed.stderr.strip()}")
    return sorted(name for name in set(listed.stdout.split("\0")) if name and os.path.lexists(TOP / name))


def stage(shared: Path | None) -> Path:
    """A copy of the checkout at …/ansible_collections/lo0/rke2_hostprep, for ansible-test, which refuses links.

    ``shared`` (the captured machines) is linked beside the copy, because ansible-test hands no environment variables on.
    """
    place = CACHE / "stage" / hashlib.sha256(str(TOP).encode()).hexdigest()[:12] / COLLECTION
    tests = place / "tests"
    tests.mkdir(parents=True, exist_ok=True)
    # All is laid anew but tests/output, where ansible-test keeps its virtual environments.
    for old in {*place.iterdir(), *tests.iterdir()} - {tests, tests / "output"}:
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    for name in checkout_files():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, target, follow_symlinks=False)
    beside = place.parent / "shared"
    beside.unlink(missing_ok=True)
    if shared:
        beside.symlink_to(shared)
    return place


def environment(name: str) -> dict[str, str]:
    """The variables of a process that uses environment NAME and sees the checkout as an installed collection."""
    folders = [link(), collections()] if name in TEST_ENVIRONMENTS else [link()]
    return {
        **os.environ,
        "LC_ALL": "C.UTF-8",  # Ansible refuses other encodings
        "PATH": f"{venv(name)}/bin:{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(map(str, folders)),
        "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
    }


def run_tool(main: Callable[[list[str]], int]) -> NoReturn:
    """Runs a tool's main and exits with its code; a WorkspaceError is one sentence, not a traceback."""
    try:
        sys.exit(main(sys.argv[1:]))
    except WorkspaceError as error:
        sys.exit(str(error))


def main(arguments: list[str]) -> int:
    if len(arguments) < 3 or arguments[0] != "run":
        print(__doc__, file=sys.stderr)
        return 2
    name = test_environment() if arguments[1] == "test" else arguments[1]
    variables = environment(name)
    os.chdir(TOP)
    os.execvpe(arguments[2], arguments[2:], variables)


if __name__ == "__main__":
    run_tool(main)
