# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a program on the host: an entry file of this folder and all that it imports from here, and a script that starts it.

Used on the controller, where the collection lies, and by a module on the host, where it lies in Ansible's zip file: sources are read
through the loader of this file. The program is the same source that the modules run; in its folder on the host the files keep their
relative places, so that relative imports work. It is run as ``python3 -IB <folder>/<script>``.
"""

from __future__ import annotations

import ast
import json
import os

from ..model import affinity
from ..model.plan import kept, refuse_other_host
from .kept import PLAN_PATH

FOLDER = "/usr/local/lib/lo0.rke2_hostprep"
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = "hostprep"
KEEPER = ("host/keeper.py", "rke2_hostprep_irq.py", "Keeps NIC interrupts where this host's plan wants them")
COMPARISON = (
    "host/boot_compare.py",
    "rke2_hostprep_boot.py",
    "Compares a boot with the kernel arguments that were asked for",
)
SCRIPT = KEEPER[1]
_SCRIPT_TEXT = '''# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""%(what)s. The program is hostprep/%(entry)s, beside what it imports."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hostprep.%(module)s import main  # noqa: E402  the line above makes it importable

sys.exit(main())
'''


def files(program=KEEPER):
    """{path below the program's folder on the host: text}, sorted by path. program: KEEPER or COMPARISON."""
    entry, script, what = program
    found = {PACKAGE + "/" + path: text for path, text in closure(entry).items()}
    found[script] = _SCRIPT_TEXT % {"what": what, "entry": entry, "module": entry[: -len(".py")].replace("/", ".")}
    return dict(sorted(found.items()))


def owned_files(plan, host=None):
    """[{"path", "content"}] for host_files: the plan that the host keeps, then the program. Raises what affinity.checked does.

    host: name of the host that is to keep it; a plan that names another is refused.
    """
    affinity.checked(plan)
    refuse_other_host(plan, host)
    text = json.dumps(kept(plan), indent=1, sort_keys=True) + "\n"
    found = [{"path": "/" + PLAN_PATH, "content": text}]
    return found + [{"path": FOLDER + "/" + path, "content": text} for path, text in files().items()]


def closure(entry, top=TOP):
    """{path below `top`: text} of a file and its imports."""
    found = {}
    todo = [(entry, True)]
    while todo:
        path, needed = todo.pop()
        if path in found:
            continue
        text = _source(os.path.join(top, path))
        if text is None:
            if needed:
                raise FileNotFoundError(path)
            continue  # a name that is in a file, not a file
        found[path] = text
        todo += [(other, False) for other in _imports(text, path)]
    return found


def _source(path):
    """Text of a file beside this one, on the disk or in a zip; None where there is none."""
    try:
        data = __loader__.get_data(path)
    except OSError:
        return None
    return None if data is None else data.decode("utf-8")


def _imports(text, path):
    """Paths that relative imports may mean: a name is a file of the package, or something in its file."""
    folder = path.split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - node.level + 1] + (node.module.split(".") if node.module else [])
            yield "/".join(base) + ".py"
            for name in node.names:
                yield "/".join([*base, name.name]) + ".py"
