# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's root from a dict, for the tests of what reads one."""

from __future__ import annotations

import os

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.reader import Reader
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree


class Link(str):
    """Target of a symbolic link."""


def write(top, files):
    """Writes {path: text, bytes, Link or None for a folder} below a folder."""
    for path, content in files.items():
        place = top / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            os.symlink(content, place)
        elif isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.write_text(content, encoding="utf-8")


class Host:
    """Builds one root and reads it."""

    Link = Link

    def __init__(self, top):
        self.top = top
        self.top.mkdir(exist_ok=True)

    def add(self, files):
        write(self.top, files)
        return self

    def tree(self):
        return Tree(str(self.top))

    def reader(self):
        return Reader(self.tree())

    def discover(self):
        return discover(self.tree())

    def cpus(self, number, threads=1, packages=1):
        """CPUs 0 to number-1; siblings are cpu and cpu + number/threads; packages are blocks of cores."""
        cores = number // threads
        files = {
            "sys/devices/system/cpu/online": "0-%d\n" % (number - 1),
            "sys/devices/system/cpu/present": "0-%d\n" % (number - 1),
        }
        for cpu in range(number):
            core = cpu % cores
            folder = "sys/devices/system/cpu/cpu%d/topology/" % cpu
            files[folder + "core_cpus_list"] = ",".join(str(core + cores * thread) for thread in range(threads)) + "\n"
            files[folder + "physical_package_id"] = "%d\n" % (core * packages // cores)
        return self.add(files)

    def pci(self, path, **files):
        """A PCI function at a device path ("pci0000:00/0000:00:01.0") with id files, and its link on the bus."""
        bdf = path.rpartition("/")[2]
        self.add({"sys/bus/pci/devices/" + bdf: Link("../../../devices/" + path)})
        return self.add({"sys/devices/%s/%s" % (path, name): content for name, content in files.items()})

    def netdev(self, device, name, **files):
        """A network device on a device path, or a virtual one for device None."""
        folder = "%s/net/%s" % (device, name) if device else "virtual/net/%s" % name
        self.add({"sys/devices/%s/flags" % folder: files.pop("flags", "0x1003\n")})
        self.add({"sys/devices/%s/%s" % (folder, file.replace("__", "/")): content for file, content in files.items()})
        return self.add({"sys/class/net/" + name: Link("../../devices/" + folder)})


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "root")
