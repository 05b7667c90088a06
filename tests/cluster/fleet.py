# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a running control plane: real kubelets on machines, hollow ones on machines or as processes here."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import binaries, images
from .common import ClusterError, say
from .disk import remove_abandoned
from .node import Machine, Node, hollow_command, install
from .pki import CLUSTER
from .plane import Plane, kubeconfig
from .processes import port_owner, undisturbed

HOLLOW_PORTS = 100  # the first hollow kubelet listens that far above the API server


def credentials(plane: Plane, node: Node, server: str) -> dict[str, str]:
    """What a kubelet proves itself with: a client certificate in system:nodes, and one to serve with."""
    pki, client, serving = plane.pki, f"node-{node.name}", f"kubelet-{node.name}"
    user = f"system:node:{node.name}"
    pki.issue(client, CLUSTER, user, groups=("system:nodes",))
    names = [node.name, *([node.address] if node.address else [])]
    pki.issue(serving, CLUSTER, user, groups=("system:nodes",), uses=("serverAuth",), names=names, again=True)
    authority = pki.certificate(CLUSTER).read_bytes()
    access = kubeconfig(server, authority, pki.certificate(client).read_bytes(), pki.key(client).read_bytes(), user)
    return {
        "ca.crt": authority.decode(),
        "kubelet.crt": pki.certificate(serving).read_text(encoding="utf-8"),
        "kubelet.key": pki.key(serving).read_text(encoding="utf-8"),
        "kubelet.kubeconfig": access,
    }


def readiness(node: dict) -> tuple[bool, str]:
    """Whether a Node object is Ready, and what its kubelet says about it."""
    for condition in node.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready":
            return condition["status"] == "True", condition.get("message", "")
    return False, "its kubelet has reported nothing yet"


def nodes(plane: Plane) -> list[dict]:
    return plane.get("nodes", what="The nodes cannot be read")["items"]


def heartbeat(node: dict) -> str:
    """When a kubelet last said how a Node is, by its machine's clock ("" for never); such times sort as text."""
    conditions = node.get("status", {}).get("conditions", [])
    return next((item.get("lastHeartbeatTime") or "" for item in conditions if item["type"] == "Ready"), "")


def why_not_ready(plane: Plane, name: str, other_boot: str | None = None, since: str = "") -> str | None:
    """Why the node is not Ready (in a boot other than the one named, by a report after since), None when it is."""
    node = next((node for node in nodes(plane) if node["metadata"]["name"] == name), None)
    if node is None:
        return "no node of that name has registered"
    if other_boot and node["status"]["nodeInfo"]["bootID"] == other_boot:
        return "its kubelet has not reported since the boot before"
    if since and heartbeat(node) <= since:
        return f"its kubelet has not reported since it was started ({since} by its clock)"
    ready, message = readiness(node)
    return None if ready else message or "its kubelet does not say why"


def wait_ready(plane: Plane, name: str, patience: float = 300, other_boot: str | None = None, since: str = "") -> float:
    """Waits for a node; returns the seconds taken."""
    return plane.processes.wait(
        f"node {name} to be Ready", lambda: why_not_ready(plane, name, other_boot, since), patience, interval=1
    )


def boot_id(plane: Plane, name: str) -> str:
    return plane.get("node", name, what=f"Node {name} cannot be read")["status"]["nodeInfo"]["bootID"]


@contextlib.contextmanager
def offered(plane: Plane, whose: str, file: Path) -> Iterator[str]:
    """Serves a file inside the lab's network for as long as the block runs; yields its URL."""
    name = f"offer-{whose}"
    argv: list[str | Path] = [
        *("setpriv", "--pdeathsig", "KILL"),  # of use to this run alone
        sys.executable,
        "-u",
        "-m",
        "http.server",
        "0",
        "--bind",
        plane.settings.address,
        "--directory",
        file.parent,
    ]
    plane.processes.start(name, argv)

    def port() -> str | None:
        found = re.search(r" port (\d+) ", plane.processes.log(name).read_text(encoding="utf-8"))
        return found[1] if found else None

    try:
        silent = "it does not listen yet"
        plane.processes.wait("the programs to be offered", lambda: None if port() else silent, 30, 0.1, name)
        yield f"http://{plane.settings.address}:{port()}/{file.name}"
    finally:
        plane.processes.stop([name])


@contextlib.contextmanager
def explained(machine: Machine, *units: str) -> Iterator[None]:
    """What fails inside is told with the last that these units of the machine said."""
    try:
        yield
    except ClusterError as error:
        chosen = " ".join(f"-u {unit}" for unit in units)
        try:
            journal = machine.run(
                f"journalctl --no-pager --lines=12 --output=cat {chosen}", what="Reading the journal", patience=60
            )
        except ClusterError as silent:
            journal = str(silent)
        raise ClusterError(f"{error} Last lines of its {' and '.join(units)}:\n{journal.rstrip()}") from None


def add(plane: Plane, node: Node, machine: Machine, patience: float = 300) -> dict[str, float]:
    """Makes a machine a node and waits until it is Ready; returns the seconds of each part."""
    plane.require_up()
    took = {}
    begun = time.monotonic()
    programs = binaries.need(binaries.HOLLOW if node.hollow else binaries.NODE)
    bundle = None
    if not node.hollow:
        bundle = images.make(programs.pop("pause"))
    took["programs"] = time.monotonic() - begun
    begun = time.monotonic()
    server = plane.settings.url(plane.settings.address)
    keys = credentials(plane, node, server)
    since = install(machine, node, keys, programs, bundle, lambda file: offered(plane, node.name, file))
    took["copied and started"] = time.monotonic() - begun
    with explained(machine, "kubelet", "containerd"):
        took["Ready"] = wait_ready(plane, node.name, patience, since=since)
    return took


def remove(plane: Plane, name: str) -> None:
    """Takes a node off the API; its machine is not touched."""
    plane.kubectl("delete", "node", name, "--ignore-not-found", what=f"Node {name} cannot be deleted")


def down(plane: Plane, forget: bool) -> list[str]:
    """Ends every process of the cluster; with forget its data and certificates go too."""
    ended = plane.stop()
    if forget:
        if plane.state.exists():
            shutil.rmtree(plane.state)
        remove_abandoned()
    return ended


def hollow_names(running: Sequence[str]) -> list[str]:
    return [name for name in running if name.startswith("hollow-")]


def hollow(plane: Plane, count: int, patience: float = 180) -> float:
    """Brings the number of hollow nodes that run as processes here to count; returns the seconds until all are Ready."""
    plane.require_up()
    begun = time.monotonic()
    program = binaries.need(binaries.HOLLOW)["hollow"]
    wanted = [f"hollow-{number:03d}" for number in range(1, count + 1)]
    running = plane.processes.running()
    registered = [node["metadata"]["name"] for node in nodes(plane)]
    present = [name for name in hollow_names(list(running)) if name in registered]
    # What is only half there, such as a Node whose process was killed, is made anew.
    surplus = sorted(set(hollow_names([*running, *registered])) - (set(present) & set(wanted)))
    plane.processes.stop(surplus)
    for name in surplus:
        remove(plane, name)
        shutil.rmtree(plane.state / "hollow" / name, ignore_errors=True)
    ports = {
        name: plane.settings.port + HOLLOW_PORTS + number for number, name in enumerate(wanted) if name not in present
    }
    if max(ports.values(), default=0) > 65535:
        raise ClusterError(
            f"{count} hollow nodes would listen on ports up to {max(ports.values())}, and 65535 is the last one: ask for"
            f" fewer, or bring the cluster up again with a --port below {plane.settings.port}."
        )
    for name, port in ports.items():
        owner = port_owner(port, plane.settings.enter)
        if owner:
            raise ClusterError(
                f"Port {port}, which {name} would listen on, is taken by {owner}: end that, or bring the cluster up again"
                " with another --port."
            )

    def missing() -> str | None:
        ready = {node["metadata"]["name"] for node in nodes(plane) if readiness(node)[0]}
        late = [name for name in wanted if name not in ready]
        return f"{len(late)} are not, {late[0]} among them" if late else None

    try:
        for name, port in ports.items():
            node = Node(name, port=port, hollow=True)
            keys = credentials(plane, node, plane.settings.url())
            access = plane.write(plane.state / "hollow" / f"{name}.kubeconfig", keys["kubelet.kubeconfig"])
            plane.processes.start(name, hollow_command(node, program, access, plane.state / "hollow" / name))
        if wanted:
            plane.processes.wait(f"{count} hollow nodes to be Ready", missing, patience, interval=1)
            say(f"{count} hollow nodes are Ready.")
    except BaseException:  # a request to stop too; those that were there stay
        with undisturbed():
            plane.processes.stop(list(ports))
        raise
    return time.monotonic() - begun
