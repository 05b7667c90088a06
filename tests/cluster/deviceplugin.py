# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A device plugin on a node's machine, whose devices are only names: what its kubelet makes of devices of NUMA nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from . import binaries
from .common import ClusterError, say
from .fleet import explained, nodes, offered, why_not_ready
from .node import PROGRAMS, Machine, send, service
from .plane import Plane

RESOURCE = "lab.test/gpu"
UNIT = "device-plugin.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
KUBELET_UNIT_FILE = "/etc/systemd/system/kubelet.service"
(PROGRAM,) = binaries.DEVICE_PLUGIN
MARKER = f"{PROGRAMS}/{PROGRAM}.content"
REGISTERED = "Registered."  # the unit's status once the kubelet has been sent the devices


def device_list(text: str) -> dict[int, int]:
    """NUMA node to number of devices from "NODE:COUNT,…"; ValueError says what is allowed, as the program itself does."""
    found: dict[int, int] = {}
    for pair in text.split(","):
        numbers = re.fullmatch(r"([0-9]{1,4}):([0-9]{1,3})", pair)
        node, count = map(int, numbers.groups()) if numbers else (-1, 0)
        if not (0 <= node <= 1023 and 1 <= count <= 100):
            raise ValueError(
                f"{pair!r} is not NODE:COUNT with a NUMA node of 0 to 1023 and 1 to 100 devices, such as 0:2,1:2"
            )
        if node in found:
            raise ValueError(f"NUMA node {node} is named twice in {text!r}; name it once with all of its devices")
        found[node] = count
    return found


def resource_name(text: str) -> str:
    """The name of an extended resource, as the program (and the kubelet) takes it; ValueError says what is allowed."""
    domain, name = r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?", r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
    if not re.fullmatch(f"{domain}/{name}", text) or "kubernetes.io/" in text or text.startswith("requests."):
        raise ValueError(
            f"{text!r} is no name of an extended resource: give DOMAIN/NAME with a domain that is not Kubernetes' own,"
            f" such as {RESOURCE}"
        )
    return text


def unit_text(devices: dict[int, int], resource: str) -> str:
    """The systemd unit; its status is what the program says of itself."""
    wanted = ",".join(f"{node}:{count}" for node, count in devices.items())
    command = f"{PROGRAMS}/{PROGRAM} --resource={resource} --devices={wanted}"
    # Not Type=notify: a boot would wait for a kubelet that may never come.
    return service("Device plugin of the lab", command, after="kubelet.service", extra=["NotifyAccess=main"])


def resource_of(unit: str) -> str | None:
    """The resource that a unit of unit_text offers."""
    found = re.search(r"^ExecStart=.* --resource=(\S+)", unit, re.MULTILINE)
    return found[1] if found else None


@dataclass(frozen=True)
class Found:
    """What a machine was found with."""

    content: str  # the key of the program that has gone over, or "none"
    since: str  # when its real kubelet was started, by its clock; "none" where none runs
    active: bool  # whether the plugin runs
    online: str  # its NUMA nodes, as the kernel lists them
    lacking: tuple[int, ...]  # the wanted NUMA nodes that it does not have
    unit: str  # the text of the plugin's unit, "" for none


def question(wanted: Iterable[int]) -> str:
    """The script whose output understand reads."""
    started = "systemctl show --property=ActiveEnterTimestamp --value kubelet"
    real = f"grep -qsF 'ExecStart={PROGRAMS}/kubelet ' {KUBELET_UNIT_FILE}"
    return "\n".join(
        (
            f"cat {MARKER} 2>/dev/null || echo none",
            f"if {real} && systemctl is-active --quiet kubelet; then",
            f'  date --utc --date="$({started})" +%Y-%m-%dT%H:%M:%SZ',
            "else echo none; fi",
            f"systemctl is-active {UNIT} || true",
            "cat /sys/devices/system/node/online 2>/dev/null || echo none",
            f"echo $(for node in {' '.join(map(str, wanted))}; do",
            "  test -d /sys/devices/system/node/node$node || echo $node",
            "done)",
            f"cat {UNIT_FILE} 2>/dev/null || true",
        )
    )


def understand(answer: str) -> Found:
    content, since, state, online, lacking, unit = answer.split("\n", 5)
    return Found(content, since, state == "active", online, tuple(map(int, lacking.split())), unit)


def start_script() -> str:
    """What runs on the machine with the unit's text as input; it ends when the plugin runs, not when it is registered."""
    return "\n".join(
        (
            "set -e",
            f"cat > {UNIT_FILE}.new",
            f"mv {UNIT_FILE}.new {UNIT_FILE}",
            "systemctl daemon-reload",
            f"systemctl enable --quiet {UNIT}",
            f"systemctl restart {UNIT}",
            "sync",
        )
    )


def stop_script() -> str:
    return "\n".join(
        (
            "set -e",
            f"if test -e {UNIT_FILE}; then systemctl disable --quiet --now {UNIT}; fi",
            f"rm -f {UNIT_FILE} {UNIT_FILE}.new {MARKER} {PROGRAMS}/{PROGRAM}",
            "systemctl daemon-reload",
            "sync",
        )
    )


def allocatable(plane: Plane, name: str, resource: str) -> int:
    """How many devices of a resource the API says a node has; 0 where it does not know the resource, or the node."""
    for node in nodes(plane):
        if node["metadata"]["name"] == name:
            return int(node.get("status", {}).get("allocatable", {}).get(resource, 0))
    return 0


def why_other(plane: Plane, name: str, resource: str, count: int) -> str | None:
    """Why the API does not say that the node has that many, None when it does."""
    now = allocatable(plane, name, resource)
    return None if now == count else f"the API says {now}"


def put(
    plane: Plane, machine: Machine, devices: dict[int, int], resource: str, patience: float = 120
) -> dict[str, float]:
    """Runs the plugin on a node's machine and waits until the node has the devices; returns the seconds of each part."""
    took = {}
    begun = time.monotonic()
    programs = binaries.need(binaries.DEVICE_PLUGIN)
    took["program"] = time.monotonic() - begun
    begun = time.monotonic()
    found = understand(machine.run(question(devices), what="Looking for what the machine has"))
    if found.since == "none":
        raise ClusterError(
            f"No real kubelet runs on {machine.name}: make it a node first with the command add-node, without --hollow."
        )
    if found.lacking:
        raise ClusterError(
            f"{machine.name} has no NUMA node {', '.join(map(str, found.lacking))}, it has {found.online}: give devices of"
            " those it has."
        )

    # Its own process and marker: add-node may offer at the same time, and knows nothing of this program.
    def offer(file):
        return offered(plane, f"{PROGRAM}-{machine.name}", file)

    fresh = send(machine, programs, None, offer, has=found.content, marker=MARKER)
    unit = unit_text(devices, resource)
    if fresh or not found.active or found.unit != unit:
        machine.run(start_script(), what="Starting the device plugin", stdin=unit.encode())
        took["copied and started"] = time.monotonic() - begun

    def why_not() -> str | None:
        status = machine.run(
            f"systemctl show --property=StatusText --value {UNIT}", what="Asking for the plugin's status", patience=60
        ).strip()
        if status != REGISTERED:
            return f"its plugin says: {status}" if status else "its plugin says nothing yet"
        # What a kubelet before this one reported does not count.
        return why_not_ready(plane, machine.name, since=found.since) or why_other(
            plane, machine.name, resource, sum(devices.values())
        )

    with explained(machine, "device-plugin", "kubelet"):
        what = f"{machine.name} to have {sum(devices.values())} {resource}"
        took["allocatable"] = plane.processes.wait(what, why_not, patience, interval=1)
    return took


def take(plane: Plane, machine: Machine, patience: float = 120) -> dict[str, float]:
    """Removes the plugin, and waits until the node no longer has its devices."""
    begun = time.monotonic()
    found = understand(machine.run(question(()), what="Looking for what the machine has"))
    if not found.unit and found.content == "none":
        say(f"{machine.name} has no device plugin.")
        return {}
    machine.run(stop_script(), what="Removing the device plugin")
    took = {"removed": time.monotonic() - begun}
    resource = resource_of(found.unit)
    if resource and found.since != "none":  # without a kubelet nobody would tell the API
        what = f"{machine.name} to have no {resource}"
        with explained(machine, "kubelet"):
            took["not allocatable"] = plane.processes.wait(
                what, lambda: why_other(plane, machine.name, resource, 0), patience, interval=1
            )
    return took
