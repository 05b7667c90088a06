# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of the test cluster are found again after a killed run, waited for with a reason, and ended."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from cluster.common import ClusterError
from cluster.processes import Processes, listeners, port_owner, same_namespace

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="Processes are looked for in /proc, which is not here."
)


@pytest.fixture
def processes(tmp_path):
    here = Processes(tmp_path)
    yield here
    here.stop()


def test_found_again_and_ended_in_reverse_order(processes, tmp_path):
    first = processes.start("first", ["sleep", "60"])
    second = processes.start("second", ["sleep", "60"])
    other = Processes(tmp_path)  # as a later run: it knows the folder alone
    assert other.running() == {"first": [first.pid], "second": [second.pid]}
    assert Processes(tmp_path / "elsewhere").running() == {}
    assert other.stop(["first", "second", "third"]) == ["second", "first"]
    assert other.running() == {} and other.stop() == []


def test_children_are_not_taken_for_the_program(processes):
    script = "import subprocess, time; subprocess.Popen(['sleep', '60']); print('started', flush=True); time.sleep(60)"
    parent = processes.start("parent", [sys.executable, "-c", script])
    processes.wait("its child", lambda: None if "started" in processes.last_lines("parent") else "not started", 20)
    assert processes.running() == {"parent": [parent.pid]}


def test_one_that_ignores_the_request_is_killed(processes, capsys):
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    processes.start("deaf", [sys.executable, "-c", script])
    processes.wait("it to ignore", lambda: None if "deaf\n" in processes.last_lines("deaf") + "\n" else "not yet", 20)
    processes.stop(patience=0.3)
    assert "is killed" in capsys.readouterr().err
    assert processes.running() == {}


def test_a_program_that_ends_early_shows_its_last_words(processes):
    processes.start("broken", ["sh", "-c", "echo cannot open the store >&2; exit 3"])
    with pytest.raises(
        ClusterError, match=r"(?s)broken ended with 3 while waiting for the store.*cannot open the store"
    ):
        processes.wait("the store", lambda: "it does not answer", 20, interval=0.01)


def test_every_program_is_watched_while_one_is_waited_for(processes):
    processes.start("store", ["sh", "-c", "echo the disk is full >&2; exit 4"])
    processes.start("server", ["sleep", "60"])
    with pytest.raises(ClusterError, match="(?s)store ended with 4 while waiting for the server.*the disk is full"):
        processes.wait("the server", lambda: "it does not answer", 20, interval=0.01)


def test_the_one_that_ended_is_named_and_not_what_missed_it(processes):
    child = processes.start("store", ["sleep", "60"])
    with pytest.raises(ClusterError, match="store was killed by signal 9 while the roles were applied"):
        with processes.watched("the roles were applied"):
            child.kill()
            child.wait()
            raise ClusterError("The roles cannot be applied.")
    child = processes.start("other", ["true"])
    child.wait()
    with pytest.raises(ClusterError, match="ended"), processes.watched("all went well"):
        pass


def test_what_was_ended_here_is_not_missed(processes):
    processes.start("offer", ["sleep", "60"])
    processes.stop(["offer"])
    processes.check("waiting for nothing")


def test_two_of_one_name_are_both_found_and_both_ended(processes, tmp_path):
    pids = sorted(Processes(tmp_path).start("store", ["sleep", "60"]).pid for _time in range(2))
    assert processes.running() == {"store": pids}
    assert processes.stop(["store"]) == ["store"]
    assert processes.running() == {}


def test_waiting_ends_with_the_reason(processes):
    with pytest.raises(ClusterError, match="for the node, in vain: it has not registered"):
        processes.wait("the node", lambda: "it has not registered", 0.05, interval=0.01)


def test_listening_sockets_are_read():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:8E5B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"
        "   1: 0100007F:8E5C 0100007F:8E5B 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n"
    )
    assert listeners(table) == {36443: "4711"}


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_who_has_a_port(family, address):
    with socket.socket(family) as taken:
        try:
            taken.bind((address, 0))
        except OSError as error:
            pytest.skip("{0} cannot be used here: {1}".format(address, error))
        taken.listen()
        port = taken.getsockname()[1]
        owner = port_owner(port)
        assert owner.endswith("process {0}".format(os.getpid()))
    assert port_owner(port) is None


def test_it_outlives_the_terminal_that_started_it(processes):
    child = processes.start("quiet", ["sleep", "60"])
    links = [os.readlink("/proc/{0}/fd/{1}".format(child.pid, number)) for number in (0, 1, 2)]
    assert links[0] == os.devnull and links[1] == links[2] == str(processes.log("quiet"))
    assert os.getsid(child.pid) == child.pid


def test_which_namespace_a_process_is_in(tmp_path):
    assert same_namespace(os.getpid(), Path("/proc/self/ns/net"))
    assert not same_namespace(os.getpid(), Path("/proc/self/ns/uts"))
    assert not same_namespace(os.getpid(), tmp_path / "gone")
