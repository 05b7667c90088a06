# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes cluster for the tests. Run ``python tests/cluster COMMAND --help`` for what a command takes."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the folder is the package "cluster"

from cluster import binaries, deviceplugin, fleet, helm, images
from cluster.common import CACHE, STATES, ClusterError, Unavailable, say, state_folder
from cluster.disk import free_mib, remove_abandoned
from cluster.machines import Lab
from cluster.node import Node
from cluster.plane import PORT, PORT_VARIABLE, Plane, Settings, default_port, port_number

MOST_HOLLOW = 1000
FAILED = 2  # a refusal, as of the lab's program
STOPPED, TERMINATED, UNREAD = 130, 143, 141  # as of a shell: 128 and the signal
SKIPPED = 77  # the exit code of a test that could not be run


def port(text: str) -> int:
    try:
        return port_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def amount(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MOST_HOLLOW):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of nodes: allowed are 0 to {MOST_HOLLOW}")
    return int(text)


def numa_devices(text: str) -> dict[int, int]:
    try:
        return deviceplugin.device_list(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def resource(text: str) -> str:
    try:
        return deviceplugin.resource_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build the programs and images that are not in the cache")
    build.add_argument("names", nargs="*", metavar="PROGRAM", help="only these (default: all)")
    up = commands.add_parser("up", help="bring the control plane up")
    up.add_argument(
        "--lab", action="store_true", help="inside the lab's network (tests/lab), so that its machines reach it"
    )
    up.add_argument(
        "--port",
        type=port,
        help=f"the API server's; four after it are used too (default: ${PORT_VARIABLE}, else {PORT} in the lab without a"
        " name and one that follows from the name in another)",
    )
    commands.add_parser("down", help="end every process of the cluster; its data and certificates stay")
    commands.add_parser(
        "clean", help="end every process of the cluster and remove its data and certificates; the built programs stay"
    )
    commands.add_parser("status", help="what runs, with its memory, and the nodes, as JSON")
    access = commands.add_parser("kubeconfig", help="print the path of a kubeconfig")
    access.add_argument(
        "--user", default="admin", help="admin (default), reader (sees nodes and workloads), or any name of your own"
    )
    access.add_argument("--group", action="append", default=[], help="a group of a user of your own")
    access.add_argument("--expired", action="store_true", help="with a certificate that expired yesterday")
    add = commands.add_parser("add-node", help="make a machine of the lab a node and wait until it is Ready")
    add.add_argument("name", help="the machine's name, and the node's")
    add.add_argument(
        "--reserved", default="", metavar="CPULIST", help="turns the static CPU manager on, with these for the system"
    )
    add.add_argument("--hollow", action="store_true", help="a hollow kubelet instead of a real one")
    add.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    add.add_argument("--patience", type=float, default=300, metavar="SECONDS", help="until it is Ready (%(default)s)")
    remove = commands.add_parser("remove-node", help="take a node off the API")
    remove.add_argument("name")
    wait = commands.add_parser("wait-node", help="wait until a node is Ready")
    wait.add_argument("name")
    wait.add_argument("--other-boot", metavar="BOOT_ID", help="not satisfied by what it reported in that boot")
    wait.add_argument("--patience", type=float, default=300)
    plugin = commands.add_parser(
        "device-plugin",
        help="give a real kubelet devices that are only names, and wait until the node has them; again after a restart of"
        " the kubelet: wait until that one has them",
    )
    plugin.add_argument("name", help="the machine's name, and the node's")
    either = plugin.add_mutually_exclusive_group(required=True)
    either.add_argument("--devices", type=numa_devices, metavar="NODE:COUNT,…", help="how many each NUMA node has")
    either.add_argument("--remove", action="store_true", help="remove the plugin")
    plugin.add_argument(
        "--resource", type=resource, default=deviceplugin.RESOURCE, metavar="DOMAIN/NAME", help="%(default)s by default"
    )
    plugin.add_argument(
        "--patience", type=float, default=120, metavar="SECONDS", help="until it has them (%(default)s)"
    )
    hollow = commands.add_parser("hollow", help="bring the number of hollow nodes that run as processes here to N")
    hollow.add_argument("count", type=amount, metavar="N")
    kubectl = commands.add_parser("kubectl", help="run kubectl as the administrator", prefix_chars="+")
    kubectl.add_argument("words", nargs=argparse.REMAINDER, metavar="…")
    commands.add_parser("helm", help="print the path of a real Helm, fetched once")
    return parser


def report(took: dict[str, float]) -> None:
    say(", ".join(f"{part}: {seconds:.1f} s" for part, seconds in took.items()) or "Nothing to do.")


def do_build(_plane: Plane, options: argparse.Namespace) -> None:
    begun = time.monotonic()
    remove_abandoned()
    paths = binaries.need(options.names or list(binaries.PROGRAMS))
    if "pause" in paths:
        paths["images"] = images.make(paths["pause"])
    for name, path in paths.items():
        print(f"{name}\t{path.stat().st_size / 2**20:.1f} MiB\t{path}")
    report({"all": time.monotonic() - begun})


def do_up(plane: Plane, options: argparse.Namespace) -> None:
    remove_abandoned()
    chosen = options.port or default_port(plane.state.name)
    if options.lab:
        if os.geteuid():
            raise ClusterError("The lab's network can be entered by root only: run this as root, or without --lab.")
        lab = Lab()
        settings = Settings(lab.namespace, lab.gateway, chosen)
    else:
        settings = Settings(port=chosen)
    report(plane.up(settings))
    print(f"{binaries.need(('kubectl',))['kubectl']} --kubeconfig {plane.admin} get nodes")


def do_down(plane: Plane, options: argparse.Namespace) -> None:
    ended = fleet.down(plane, forget=options.command == "clean")
    say(f"Ended: {', '.join(ended)}." if ended else "Nothing of the cluster was running.")


def do_status(plane: Plane, _options: argparse.Namespace) -> None:
    print(json.dumps(plane.status(), indent=1))


def do_kubeconfig(plane: Plane, options: argparse.Namespace) -> None:
    if not plane.admin.exists():
        raise ClusterError("There is no cluster yet whose authority could sign: start it first with the command up.")
    plain = options.user == "admin" and not options.expired
    print(plane.admin if plain else plane.user(options.user, options.group, expired=options.expired))


def do_add_node(plane: Plane, options: argparse.Namespace) -> None:
    plane.require_up()
    lab = Lab()
    address = lab.address(options.name)
    if lab.is_nspawn(options.name) and not options.hollow:
        raise ClusterError(f"{options.name} is an nspawn host, in which no real kubelet can run: say --hollow.")
    if not plane.settings.netns or not address:
        raise ClusterError(
            f"{options.name} reaches no API server: it needs an address on the lab's network, and up --lab."
        )
    node = Node(options.name, options.reserved, address=address, labels=tuple(options.label), hollow=options.hollow)
    report(fleet.add(plane, node, lab.reach(options.name), options.patience))


def do_remove_node(plane: Plane, options: argparse.Namespace) -> None:
    plane.require_up()
    fleet.remove(plane, options.name)


def do_wait_node(plane: Plane, options: argparse.Namespace) -> None:
    plane.require_up()
    report({f"{options.name} Ready": fleet.wait_ready(plane, options.name, options.patience, options.other_boot)})


def do_device_plugin(plane: Plane, options: argparse.Namespace) -> None:
    plane.require_up()
    machine = Lab().reach(options.name)
    if options.remove:
        report(deviceplugin.take(plane, machine, options.patience))
    else:
        report(deviceplugin.put(plane, machine, options.devices, options.resource, options.patience))


def do_hollow(plane: Plane, options: argparse.Namespace) -> None:
    report({"hollow nodes": fleet.hollow(plane, options.count)})


def do_kubectl(plane: Plane, options: argparse.Namespace) -> None:
    plane.require_up()
    program = binaries.need(("kubectl",))["kubectl"]
    os.execv(program, ["kubectl", f"--kubeconfig={plane.admin}", *options.words])


def do_helm(_plane: Plane, _options: argparse.Namespace) -> None:
    print(helm.fetch())


COMMANDS = {
    "build": do_build,
    "up": do_up,
    "down": do_down,
    "clean": do_down,
    "status": do_status,
    "kubeconfig": do_kubeconfig,
    "add-node": do_add_node,
    "remove-node": do_remove_node,
    "wait-node": do_wait_node,
    "device-plugin": do_device_plugin,
    "hollow": do_hollow,
    "kubectl": do_kubectl,
    "helm": do_helm,
}


ALONE = ("up", "down", "clean", "hollow")  # what starts or ends processes of the cluster


@contextlib.contextmanager
def one_at_a_time(lab: str) -> Iterator[None]:
    place = CACHE / "locks" / f"cluster-{lab}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another command changes the cluster {lab}; waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def what_failed(error: OSError) -> str:
    """One sentence. What the system does not name is not guessed: a full disk is looked for among those written to."""
    where = f"{error.filename}: " if error.filename else ""
    tail = ""
    if error.errno == errno.ENOSPC:
        places = (CACHE, STATES, Path(tempfile.gettempdir()))
        tail = f" ({', '.join(f'{place} has {free_mib(place)} MiB free' for place in places)})"
    return f"{where}{error.strerror or error}{tail}."


def main() -> int:
    # So that what is half made is removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, lambda *_: sys.exit(TERMINATED))
    options = arguments().parse_args()
    try:
        plane = Plane(state_folder())
        with one_at_a_time(plane.state.name) if options.command in ALONE else contextlib.nullcontext():
            COMMANDS[options.command](plane, options)
    except Unavailable as missing:
        say(f"SKIPPED: {missing}")
        return SKIPPED
    except ClusterError as error:
        say(str(error))
        return FAILED
    except KeyboardInterrupt:
        say("Stopped.")
        return STOPPED
    except BrokenPipeError:  # whoever read the answer has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        say(what_failed(error))
        return FAILED
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        say(f"This is an error of the program itself: {type(error).__name__}: {error} ({at.filename}:{at.lineno}).")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
