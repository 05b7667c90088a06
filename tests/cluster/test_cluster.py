# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane on 127.0.0.1 does what its commands say: it comes up, refuses in one sentence, and leaves nothing behind.

It is of a lab of its own, so that a person's runs beside. The tests build on each other, since each start takes some 10 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from cluster import binaries, common, disk, fleet, plane
from cluster.command import Command
from cluster.processes import Processes

pytestmark = pytest.mark.cluster

cluster = Command("clustertest")
STATE = common.STATES / cluster.lab
PORT = plane.default_port(cluster.lab)


def refused(*words, **environment):
    """A call that must be refused in one sentence, which is returned."""
    done = cluster.call(*words, **environment)
    assert done.returncode == 2, done
    (sentence,) = done.stderr.splitlines()
    assert sentence.endswith(".") and not done.stdout, done
    return sentence


def running():
    return Processes(STATE).running()


@pytest.fixture(scope="module", autouse=True)
def clean():
    cluster("build", *binaries.CONTROL_PLANE, *binaries.HOLLOW)
    cluster("clean")
    yield
    cluster("clean")
    assert running() == {} and not STATE.exists() and disk.abandoned() == []


@contextlib.contextmanager
def listening(port):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield


@pytest.fixture
def small(tmp_path):
    """A disk of 8 MiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"No disk can be mounted here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def stopped_at(program, number):
    """Starts `up`, and sends it a signal once a program of the control plane runs; returns the exit code and its words."""
    with subprocess.Popen([*cluster.words, "up"], env=cluster.environment, stderr=subprocess.PIPE, text=True) as up:
        deadline = time.monotonic() + 60
        while program not in running():
            assert up.poll() is None and time.monotonic() < deadline, program
            time.sleep(0.05)
        up.send_signal(number)
        words = up.communicate()[1]
    return up.returncode, words


def test_a_port_that_is_taken():
    with listening(PORT + 1):
        told = refused("up")
    assert told.startswith(f"Port {PORT + 1}, which etcd would listen on, is taken by ") and "--port" in told
    assert f"process {os.getpid()}:" in told
    assert running() == {}


def test_a_full_disk_for_the_state(small):
    told = refused("up", XDG_STATE_HOME=str(small))
    assert f"no room for the cluster's data: {small}/" in told
    assert f" has 8 MiB free, and {plane.STATE_MIB} MiB are needed" in told and "XDG_STATE_HOME" in told
    assert list(small.iterdir()) == []


@pytest.mark.parametrize("full", [False, True])
def test_a_full_disk_for_the_programs(small, full):
    if full:
        with contextlib.suppress(OSError), open(small / "all", "wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
    told = refused("build", "pause", XDG_CACHE_HOME=str(small), GOCACHE=str(small / "go-build"))
    assert f"no room for building pause: {small}/lo0.rke2_hostprep/cluster and {small}/go-build" in told
    assert f" {0 if full else 8} MiB free, and " in told and " MiB are needed" in told and "XDG_CACHE_HOME" in told


@pytest.mark.parametrize(
    ("program", "number", "code"), [("etcd", signal.SIGINT, 130), ("kube-apiserver", signal.SIGTERM, 143)]
)
def test_a_request_to_stop_leaves_nothing_running(program, number, code):
    ended, words = stopped_at(program, number)
    assert ended == code and "Traceback" not in words
    assert running() == {}
    assert "nodes" in json.loads(cluster("status").stdout)
    assert "start it first with the command up" in refused("kubectl", "get", "nodes")


def test_what_a_killed_start_left_is_made_whole():
    # All programs run by then, and the roles are not there yet.
    assert stopped_at("kube-scheduler", signal.SIGKILL)[0] == -signal.SIGKILL
    left = running()
    assert set(left) == set(plane.ORDER)
    assert "start it first with the command up" in refused("kubectl", "get", "nodes")
    assert "Ended what an earlier run had left: " in cluster("up").stderr
    now = running()
    assert set(now) == set(left) and not set(sum(now.values(), [])) & set(sum(left.values(), []))


def test_it_answers():
    assert cluster("kubectl", "get", "--raw", "/readyz").stdout == "ok"
    before = running()
    assert set(before) == set(plane.ORDER) and "Nothing to do." in cluster("up").stderr
    assert running() == before


def test_ports_of_hollow_nodes():
    with listening(PORT + fleet.HOLLOW_PORTS + 1):
        told = refused("hollow", "2")
    assert told.startswith(f"Port {PORT + fleet.HOLLOW_PORTS + 1}, which hollow-002 would listen on, is taken by ")
    assert not fleet.hollow_names(list(running()))


def test_a_reader_reads_only():
    cluster("hollow", "1")
    access = cluster("kubeconfig", "--user", "reader").stdout.strip()
    names = cluster("kubectl", "--kubeconfig", access, "get", "nodes", "--output=name").stdout
    assert names == "node/hollow-001\n"
    done = cluster.call("kubectl", "--kubeconfig", access, "label", "node", "hollow-001", "a=b")
    assert done.returncode and 'User "reader" cannot patch resource "nodes"' in done.stderr


def test_clean_leaves_nothing():
    told = cluster("clean").stderr
    assert all(name in told for name in (*plane.ORDER, "hollow-001"))
    assert running() == {} and not STATE.exists()
    assert cluster("clean").stderr == "Nothing of the cluster was running.\n"
