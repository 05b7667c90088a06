# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of the files that host_files owns, against host_files itself: what it would leave alone is in place, nothing else is."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import files
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.own_files import own_files
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import owned

SET = (
    {"path": "/etc/a.conf", "content": "one\n", "mode": "0600"},
    {"path": "/etc/b.d/b.conf", "content": "two\n", "mode": None},
)
RECORD = "var/lib/lo0.rke2_hostprep/owned.json"


def converge(host, wanted, **more):
    return files.converge(dict({"owner": "x", "files": wanted, "root": str(host.top), "purge": True}, **more))


def in_place(host, wanted=SET, owner="x", purge=True):
    """Where root runs the tests; elsewhere the owner is another, and nothing is in place."""
    found = own_files(host.tree())
    for entry in (found or {}).values():
        if entry["uid"] == os.getuid():
            entry.update(uid=0, gid=0)
    return owned.in_place(found, owner, wanted, purge)


@pytest.fixture
def there(host):
    host.add({"proc": None, "sys": None, "etc/other": ""})
    assert not in_place(host)
    converge(host, SET)
    return host


def test_what_host_files_wrote_is_in_place(there):
    assert in_place(there)
    assert converge(there, SET)["changed"] is False


@pytest.mark.parametrize(
    "wanted",
    [
        [dict(SET[0], content="other\n"), SET[1]],
        [dict(SET[0], mode="0644"), SET[1]],
        SET[:1],
        [*SET, {"path": "/etc/c.conf", "content": ""}],
        [dict(SET[0], state="absent", content=None), SET[1]],
        [],
    ],
)
def test_another_set_is_not(there, wanted):
    assert not in_place(there, wanted)
    assert converge(there, wanted)["changed"] is True


def test_without_purge_what_is_no_longer_wanted_may_stay(there):
    assert in_place(there, SET[:1], purge=False)
    assert converge(there, SET[:1], purge=False)["changed"] is False


def test_a_set_of_another_owner_is_not(there):
    assert not in_place(there, owner="y")


def touch(top):
    (top / "etc/a.conf").write_text("someone's\n")


def empty(top):
    (top / "etc/a.conf").unlink()


def link(top):
    (top / "etc/a.conf").rename(top / "etc/real")
    (top / "etc/a.conf").symlink_to("real")


def zeroes(top):
    (top / "etc/a.conf").write_bytes(b"one\n\0\0")


def mode(top):
    (top / "etc/a.conf").chmod(0o640)


def unsettled(top):
    record = json.loads((top / RECORD).read_text())
    record["files"]["/etc/a.conf"]["unsettled"] = True
    (top / RECORD).write_text(json.dumps(record))


def damaged(top):
    (top / RECORD).write_text("{")


@pytest.mark.parametrize("change", [touch, empty, link, zeroes, mode, unsettled, damaged])
def test_what_changed_since_is_not(there, change):
    change(there.top)
    assert not in_place(there)


def test_a_set_of_nothing_is_in_place_on_a_host_that_has_nothing(host):
    host.add({"proc": None, "sys": None})
    assert in_place(host, [])
