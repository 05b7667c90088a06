# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a node's kubelet have devices: which are allowed, what runs on the machine, and when the node has them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import types
from pathlib import Path

import pytest
from cluster import binaries, deviceplugin, disk, node
from cluster.common import ClusterError
from cluster.processes import Processes

STARTED = "2026-11-30T12:00:00Z"
UNIT = deviceplugin.unit_text({0: 2, 1: 2}, "lab.test/gpu")


def test_devices():
    assert deviceplugin.device_list("1:1,0:100") == {1: 1, 0: 100}
    assert deviceplugin.device_list("1023:2") == {1023: 2}


@pytest.mark.parametrize(
    "text", ["", "0", "0:0", "0:101", "0:1,", "1024:1", "-1:1", "+1:1", "0:1:1", "a:1", "0: 1", "٠:1"]
)
def test_what_are_no_devices(text):
    with pytest.raises(
        ValueError, match="is not NODE:COUNT with a NUMA node of 0 to 1023 and 1 to 100 devices, such as"
    ):
        deviceplugin.device_list(text)


def test_a_numa_node_that_is_named_twice():
    with pytest.raises(ValueError, match="NUMA node 1 is named twice in '1:1,01:1'; name it once"):
        deviceplugin.device_list("1:1,01:1")


@pytest.mark.parametrize("text", ["lab.test/gpu", "a/B", "a-b.test/c_d.e-f", "0.test/9"])
def test_resources(text):
    assert deviceplugin.resource_name(text) == text
    assert deviceplugin.resource_of(deviceplugin.unit_text({0: 1}, text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "gpu",
            "/gpu",
            "lab.test/",
            "lab.test/a/b",
            "Lab.test/gpu",
            "lab.test/gpu\n",
            "lab.test/g u",
            "lab.test/-a",
        ),
        *("kubernetes.io/gpu", "a.kubernetes.io/gpu", "requests.test/gpu", "lab.test/" + "a" * 64),
    ],
)
def test_what_is_no_resource(text):
    with pytest.raises(ValueError, match="is no name of an extended resource: give DOMAIN/NAME"):
        deviceplugin.resource_name(text)


def test_the_unit():
    lines = UNIT.splitlines()
    assert "ExecStart=/usr/local/lib/lo0-lab/deviceplugin --resource=lab.test/gpu --devices=0:2,1:2" in lines
    assert "NotifyAccess=main" in lines and "After=kubelet.service" in lines and "Restart=always" in lines
    assert not any(line.startswith("Type=") for line in lines)


@pytest.fixture
def shell(monkeypatch, tmp_path):
    """A machine that is a folder, on which systemctl only keeps what it was told; returns what runs a script there."""
    for name in ("UNIT_FILE", "KUBELET_UNIT_FILE", "MARKER", "PROGRAMS"):
        monkeypatch.setattr(deviceplugin, name, str(tmp_path / name))
    (tmp_path / "PROGRAMS").mkdir()
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(
        """#!/bin/sh
echo "$@" >> "$MACHINE/told"
case "$*" in
"is-active --quiet kubelet") test -e "$MACHINE/kubelet-runs";;
"is-active "*) if test -e "$MACHINE/plugin-runs"; then echo active; else echo inactive; exit 3; fi;;
"show --property=ActiveEnterTimestamp --value kubelet") echo "Mon 2026-11-30 12:00:00 UTC";;
esac
""",
        encoding="utf-8",
    )
    systemctl.chmod(0o755)
    environment = os.environ | {
        "MACHINE": str(tmp_path),
        "PATH": "{0}:{1}".format(systemctl.parent, os.environ["PATH"]),
    }

    def run(script, stdin=""):
        done = subprocess.run(
            ["sh", "-c", script], env=environment, input=stdin, capture_output=True, text=True, check=True
        )
        assert not done.stderr
        return done.stdout

    return run


def test_a_machine_without_anything(shell):
    found = deviceplugin.understand(shell(deviceplugin.question([])))
    assert (found.content, found.since, found.active, found.lacking, found.unit) == ("none", "none", False, (), "")


@pytest.mark.parametrize(
    ("program", "runs", "since"), [("kubelet", True, STARTED), ("kubelet", False, "none"), ("hollow", True, "none")]
)
def test_a_machine_with_a_kubelet(shell, tmp_path, program, runs, since):
    (tmp_path / "KUBELET_UNIT_FILE").write_text(
        "ExecStart={0}/PROGRAMS/{1} --x\n".format(tmp_path, program), encoding="utf-8"
    )
    if runs:
        (tmp_path / "kubelet-runs").touch()
    assert deviceplugin.understand(shell(deviceplugin.question([]))).since == since


@pytest.mark.skipif(
    not Path("/sys/devices/system/node/node0").exists(), reason="This machine's kernel has no NUMA nodes."
)
def test_numa_nodes_that_a_machine_lacks(shell):
    found = deviceplugin.understand(shell(deviceplugin.question([1022, 0, 1023])))
    assert found.lacking == (1022, 1023) and found.online.startswith("0")


def test_what_was_started_is_found_and_removed(shell, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    shell(deviceplugin.start_script(), UNIT)
    (tmp_path / "MARKER").write_text("key\n", encoding="utf-8")
    (tmp_path / "PROGRAMS" / "deviceplugin").touch()
    (tmp_path / "plugin-runs").touch()
    told = (tmp_path / "told").read_text(encoding="utf-8").split("\n")
    wanted = ["daemon-reload", "enable --quiet device-plugin.service", "restart device-plugin.service", ""]
    assert told == wanted
    found = deviceplugin.understand(shell(deviceplugin.question([0])))
    assert (found.content, found.active, found.unit) == ("key", True, UNIT)
    for _time in range(2):
        shell(deviceplugin.stop_script())
        (tmp_path / "plugin-runs").unlink(missing_ok=True)
        (tmp_path / "told").unlink()
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        assert not list((tmp_path / "PROGRAMS").iterdir())


class Recorder(node.Machine):
    """Answers the first question as told and with the plugin's states in turn, and keeps what it is asked."""

    def __init__(self, found, states=("Registered.",)):
        super().__init__("new", [])
        self.found, self.states, self.asked, self.given = found, list(states), [], []

    def run(self, script, *, what, stdin=None, patience=300):
        self.asked.append(what)
        if what.startswith("Looking"):
            return self.found
        if what.startswith("Asking"):
            return (self.states.pop(0) if len(self.states) > 1 else self.states[0]) + "\n"
        if stdin is not None:
            self.given.append(stdin.decode())
        return "last words\n"


def found(content="none", since=STARTED, state="inactive", lacking="", unit=""):
    return "\n".join((content, since, state, "0-1", lacking, unit))


@pytest.fixture
def plane(monkeypatch, tmp_path):
    """A control plane of which the API alone answers: with `plane.counts` in turn, by a kubelet that reported late."""
    plane = types.SimpleNamespace(
        processes=Processes(tmp_path), counts=[4], reported="2026-11-30T12:00:01Z", offered=[]
    )

    def nodes(_plane):
        count = plane.counts.pop(0) if len(plane.counts) > 1 else plane.counts[0]
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": plane.reported}
        status = {"conditions": [ready], "allocatable": {"cpu": "8", **({"lab.test/gpu": str(count)} if count else {})}}
        return [{"metadata": {"name": "other"}}, {"metadata": {"name": "new"}, "status": status}]

    @contextlib.contextmanager
    def offered(_plane, whose, file):
        plane.offered.append(whose)
        yield "http://192.0.2.1:1/programs.tar"

    program = tmp_path / "deviceplugin-v1"
    program.write_bytes(b"elf")
    for module in (disk, node):
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(deviceplugin, "nodes", nodes)
    monkeypatch.setattr("cluster.fleet.nodes", nodes)
    monkeypatch.setattr(deviceplugin, "offered", offered)
    monkeypatch.setattr(binaries, "need", lambda names: dict.fromkeys(names, program))
    monkeypatch.setattr("cluster.processes.time.sleep", lambda _seconds: None)
    plane.key = node.content_key({"deviceplugin": program}, None)
    return plane


def put(plane, machine, patience=120):
    return deviceplugin.put(plane, machine, {0: 2, 1: 2}, "lab.test/gpu", patience)


START = "Starting the device plugin"
FETCH = "Fetching the programs"


def test_it_is_put_and_waited_for(plane):
    machine = Recorder(found(), ["", "Waiting for the kubelet.", "Registered."])
    plane.counts = [0, 0, 4]
    assert set(put(plane, machine)) == {"program", "copied and started", "allocatable"}
    assert machine.asked[1:3] == [FETCH, START] and machine.given == [UNIT]
    assert machine.asked.count("Asking for the plugin's status") > 3 and plane.offered == ["deviceplugin-new"]


@pytest.mark.parametrize(
    ("change", "done"),
    [
        ({}, []),
        ({"state": "activating"}, [START]),
        ({"unit": deviceplugin.unit_text({0: 4}, "lab.test/gpu")}, [START]),
        ({"content": "other"}, [FETCH, START]),
    ],
)
def test_only_what_differs_is_done(plane, change, done):
    there = {"content": plane.key, "state": "active", "unit": UNIT} | change
    machine = Recorder(found(**there))
    put(plane, machine)
    assert [what for what in machine.asked if what in (FETCH, START)] == done


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (
            {"since": "none"},
            "^No real kubelet runs on new: make it a node first with the command add-node, without --hollow.$",
        ),
        ({"lacking": "1 5"}, "^new has no NUMA node 1, 5, it has 0-1: give devices of those it has.$"),
    ],
)
def test_a_machine_that_cannot_have_them(plane, there, told):
    machine = Recorder(found(**there))
    with pytest.raises(ClusterError, match=told):
        put(plane, machine)
    assert len(machine.asked) == 1  # nothing was changed


@pytest.mark.parametrize(
    ("status", "count", "reported", "told"),
    [
        ("", 4, "2026-11-30T12:00:01Z", "its plugin says nothing yet"),
        ("Waiting for the kubelet.", 4, "2026-11-30T12:00:01Z", "its plugin says: Waiting for the kubelet."),
        ("Registered.", 4, STARTED, "its kubelet has not reported since it was started"),
        ("Registered.", 0, "2026-11-30T12:00:01Z", "the API says 0"),
        ("Registered.", 5, "2026-11-30T12:00:01Z", "the API says 5"),
    ],
)
def test_a_wait_in_vain_is_explained(plane, status, count, reported, told):
    plane.counts, plane.reported = [count], reported
    with pytest.raises(ClusterError) as error:
        put(plane, Recorder(found(), [status]), patience=0)
    assert "Waited 0 s for new to have 4 lab.test/gpu, in vain: " + told in str(error.value)
    assert str(error.value).endswith("Last lines of its device-plugin and kubelet:\nlast words")


def test_it_is_taken_away(plane, capsys):
    machine = Recorder(found(content=plane.key, state="active", unit=UNIT))
    plane.counts = [4, 4, 0]
    assert set(deviceplugin.take(plane, machine)) == {"removed", "not allocatable"}
    assert machine.asked[1] == "Removing the device plugin" and plane.counts == [0]
    machine = Recorder(found())
    assert deviceplugin.take(plane, machine) == {} and len(machine.asked) == 1
    assert capsys.readouterr().err == "new has no device plugin.\n"


def test_without_a_kubelet_nobody_tells_that_it_is_gone(plane):
    machine = Recorder(found(content=plane.key, since="none", unit=UNIT))
    assert set(deviceplugin.take(plane, machine)) == {"removed"}


def test_devices_that_stay_are_told(plane):
    machine = Recorder(found(content=plane.key, state="active", unit=UNIT))
    with pytest.raises(ClusterError, match="for new to have no lab.test/gpu, in vain: the API says 4"):
        deviceplugin.take(plane, machine, patience=0)
