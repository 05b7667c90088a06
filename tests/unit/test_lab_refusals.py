# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab says when the system refuses something, and what it leaves alone when it cleans."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("The lab's program is for Python 3.11 and newer.", allow_module_level=True)
pytest.importorskip("yaml")

LAB = Path(__file__).resolve().parents[1] / "lab"
sys.path.insert(0, str(LAB))

from lab import cli, images, lives, packages, spec, state, tools  # noqa: E402  (found by the path above)
from lab.errors import LabError, Unsuitable  # noqa: E402
from lab.qmp import Qmp  # noqa: E402


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A cache and a state of the test's own, and a root who may do everything."""
    monkeypatch.setattr(images, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(state, "STATE", tmp_path / "state" / "lab")
    monkeypatch.setattr(state, "LOCKS", tmp_path / "state" / "locks", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def ended(monkeypatch, capsys, error):
    """The exit status and the message of a command in which that error comes up."""

    def command(lives, options):
        raise error

    monkeypatch.setattr(cli, "_list", command)
    code = cli.main(["list"])
    return code, capsys.readouterr().err


class TestCommand:
    def test_what_the_system_refuses_is_one_sentence_with_the_file_and_what_helps(self, monkeypatch, capsys):
        code, text = ended(monkeypatch, capsys, OSError(errno.ENOSPC, "No space left on device", "/x/state.json"))
        assert code == 2
        assert text == (
            "`list` could not be finished (/x/state.json: No space left on device): make room there, and run it again.\n"
        )

    def test_a_full_disk_without_a_file_names_the_labs_folders_and_their_room(self, monkeypatch, capsys, places):
        code, text = ended(monkeypatch, capsys, OSError(errno.ENOSPC, "No space left on device"))
        assert code == 2
        assert str(images.CACHE) in text and "MiB" in text and text.count("\n") == 1

    @pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO, errno.ECONNRESET])
    def test_no_other_error_of_the_system_is_a_traceback(self, monkeypatch, capsys, number):
        code, text = ended(monkeypatch, capsys, OSError(number, os.strerror(number)))
        assert code == 2 and os.strerror(number) in text and text.count("\n") == 1

    def test_a_machine_that_cannot_run_the_lab_has_an_exit_status_of_its_own(self, monkeypatch, capsys):
        assert ended(monkeypatch, capsys, Unsuitable("Not here.")) == (77, "Not here.\n")

    def test_an_answer_that_cannot_be_written_is_said_plainly(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([sys.executable, LAB, "list"], stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 2
        assert done.stderr == b"The answer could not be written to standard output (No space left on device).\n"

    def test_a_reader_that_has_seen_enough_is_no_error(self):
        ours, theirs = os.pipe()
        os.close(ours)
        with open(theirs, "wb") as closed:
            done = subprocess.run([sys.executable, LAB, "list"], stdout=closed, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (141, b"")

    def test_without_pyyaml_the_package_is_named(self):
        # -S: without the folders that packages are installed in.
        done = subprocess.run(
            [sys.executable, "-S", str(LAB), "list"],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode == 2
        assert "python3-yaml" in done.stderr and done.stderr.count("\n") == 1


class TestFiles:
    def test_a_write_to_a_full_disk_names_the_file(self):
        with pytest.raises(OSError, match="/dev/full"):
            tools.write(Path("/dev/full"), "text")

    def test_what_cannot_be_removed_is_said_plainly(self, tmp_path, monkeypatch):
        def rmtree(path):
            raise OSError(errno.EBUSY, "Device or resource busy", f"{path}/root")

        monkeypatch.setattr(shutil, "rmtree", rmtree)
        with pytest.raises(LabError, match=r"could not be removed \(.*/root: Device or resource busy\)"):
            tools.remove(tmp_path)

    def test_what_is_gone_already_is_removed(self, tmp_path):
        tools.remove(tmp_path / "none")

    def test_room_is_asked_for_before_anything_is_made(self, places, monkeypatch):
        monkeypatch.setattr(images.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
        with pytest.raises(LabError, match="no room for an image of new: .* has 0 MiB free"):
            images.ensure(spec.load(LAB / "machines.yml").machine("new"))
        assert not images.CACHE.exists()


class TestFirstBoot:
    def test_one_that_hangs_or_fails_shows_the_end_of_its_console(self, tmp_path, monkeypatch):
        machine = spec.load(LAB / "machines.yml").machine("new")
        console = tmp_path / "first-boot.log"
        monkeypatch.setattr(images, "FIRST_BOOT_LIMIT", 1)
        for script, words in (("sleep 60", "did not end within 1 s"), ("exit 3", "ended with 3")):
            with pytest.raises(LabError, match=f"(?s){words}.*Kernel panic"):
                images._first_boot(machine, ["sh", "-c", f"echo Kernel panic > {console}; {script}"], console)


class TestControlSocket:
    @pytest.fixture
    def server(self, tmp_path):
        """QEMU's end: greets, takes the capabilities, and then does what the test says."""
        path = tmp_path / "qmp.sock"
        threads = []

        def serve(then):
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(str(path))
            listening.listen()

            def talk():
                with listening, listening.accept()[0] as line:
                    line.sendall(b'{"QMP": {}}\n')
                    line.recv(4096)
                    line.sendall(b'{"return": {}}\n')
                    then(line)

            threads.append(threading.Thread(target=talk, daemon=True))
            threads[0].start()
            return Qmp(path, timeout=0.3)

        yield serve
        threads[0].join(10)

    def test_no_answer_in_time(self, server):
        release = threading.Event()
        with server(lambda line: release.wait(10)) as control:
            with pytest.raises(LabError, match=r"did not carry out stop .*no answer in time"):
                control.execute("stop")
            release.set()

    def test_a_machine_that_ends_is_no_closed_standard_output(self, server):
        closed = threading.Event()

        def close(line):
            line.close()
            closed.set()

        with server(close) as control:
            closed.wait(10)
            with pytest.raises(LabError, match="did not carry out stop .*Broken pipe|the machine has ended"):
                control.execute("stop")

    def test_what_is_not_qemu(self, server):
        with server(lambda line: line.sendall(b"HTTP/1.1 200 OK\r\n") or line.recv(4096)) as control:
            with pytest.raises(LabError, match="is not QEMU: it said"):
                control.execute("stop")

    def test_waiting_for_an_event_leaves_the_patience_for_answers_as_it_was(self, server):
        release = threading.Event()
        with server(lambda line: release.wait(10)) as control:
            assert not control.wait_event("DEVICE_DELETED", {}, 0.05)
            assert control._socket.gettimeout() == 0.3
            release.set()


class TestCleaning:
    def test_the_labs_lock_outlives_the_folder_that_is_removed(self, places):
        entered = threading.Event()

        def other():
            with state.State("t").locked():
                entered.set()

        with state.State("t").locked():
            shutil.rmtree(state.State("t").folder, ignore_errors=True)
            thread = threading.Thread(target=other, daemon=True)
            thread.start()
            assert not entered.wait(0.3)
        thread.join(10)
        assert entered.is_set()

    @pytest.fixture
    def cached(self, places):
        """An image that a machine of another lab stands on, one of nobody, and a tree."""
        for folder in ("qemu/used-1", "qemu/free-2"):
            (images.CACHE / folder).mkdir(parents=True)
            (images.CACHE / folder / "image.json").write_text('{"kernel": "6.12"}', encoding="utf-8")
        (images.CACHE / "rootfs").mkdir()
        (images.CACHE / "rootfs" / "tree-3.tar").write_text("", encoding="utf-8")
        other = state.State("other")
        me = state.this_process()
        other.write(state.Record("new", "qemu", state.OFF, me, str(images.CACHE / "qemu/used-1"), 2222))
        (state.STATE / "Not-a-lab").mkdir()
        return other

    def test_images_that_machines_of_other_labs_stand_on_are_kept_and_named(self, cached, capsys):
        mine = lives.Lives(spec.load(LAB / "machines.yml"), state.State("mine"))
        mine.remove_images([images.CACHE / "rootfs/tree-3.tar"])
        assert [p.name for p in images.present()] == ["used-1", "tree-3.tar"]
        mine.remove_images(())
        assert [p.name for p in images.present()] == ["used-1"]
        assert "used-1, which machines stand on (lab/machine): other/new." in capsys.readouterr().err

    def test_nothing_is_removed_while_a_machine_is_made_from_an_image(self, cached):
        mine = lives.Lives(spec.load(LAB / "machines.yml"), state.State("mine"))
        thread = threading.Thread(target=mine.remove_images, args=((),), daemon=True)
        with images.using(), images.using():  # two who use do not wait for each other
            thread.start()
            thread.join(0.3)
            assert thread.is_alive() and len(images.present()) == 3
        thread.join(10)
        assert len(images.present()) == 1


class TestOtherSystems:
    @pytest.mark.parametrize(
        ("release", "found"),
        [
            ({"ID": "ubuntu", "ID_LIKE": "debian", "NAME": "Ubuntu", "VERSION_ID": "24.04"}, "Ubuntu 24.04"),
            ({"ID": "debian", "NAME": "Debian GNU/Linux", "VERSION_ID": "11"}, "Debian GNU/Linux 11"),
            ({"ID": "arch", "NAME": "Arch Linux"}, "Arch Linux"),
        ],
    )
    def test_they_are_refused_in_one_sentence(self, monkeypatch, release, found):
        monkeypatch.setattr(packages.platform, "freedesktop_os_release", lambda: release)
        monkeypatch.setattr(packages, "missing", lambda kinds: ["mmdebstrap"])
        sentence = f"This machine cannot run the lab: it needs Debian 12 or newer, and this is {found}."
        with pytest.raises(Unsuitable) as refusal:
            packages.require_debian(["qemu"])
        assert str(refusal.value) == sentence
        monkeypatch.delenv(packages.MIRROR_VARIABLE, raising=False)
        monkeypatch.setattr(packages, "read_sources", lambda: [])
        with pytest.raises(Unsuitable):
            packages.mirror()

    @pytest.mark.parametrize("version", [{"VERSION_ID": "12"}, {"VERSION_ID": "13"}, {}])
    def test_debian_is_not_and_nothing_is_where_all_packages_are(self, monkeypatch, version):
        monkeypatch.setattr(packages.platform, "freedesktop_os_release", lambda: {"ID": "debian"} | version)
        monkeypatch.setattr(packages, "missing", lambda kinds: ["mmdebstrap"])
        packages.require_debian(["qemu"])
        monkeypatch.setattr(packages.platform, "freedesktop_os_release", lambda: {"ID": "ubuntu"})
        monkeypatch.setattr(packages, "missing", lambda kinds: [])
        packages.require_debian(["qemu"])

    def test_up_and_image_say_so_before_they_ask_for_root(self, monkeypatch, capsys):
        monkeypatch.setattr(packages, "unsuitable", lambda: "Ubuntu 24.04")
        monkeypatch.setattr(packages, "missing", lambda kinds: ["mmdebstrap"])
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        for command in ("up", "image"):
            assert cli.main([command, "host1"]) == 77
        assert capsys.readouterr().err.count("it needs Debian 12 or newer, and this is Ubuntu 24.04.\n") == 2
