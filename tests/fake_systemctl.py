# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A systemctl for tests: units are a JSON file, unit files below a root become units with ``daemon-reload``, and calls are counted.

``Systemctl`` answers in process, in place of ``host.units.run``; run as a program it keeps its state in $FAKE_SYSTEMCTL.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

VERBS = ("daemon-reload", "mask", "unmask", "enable", "disable", "start", "stop", "restart", "reload", "status")


class Systemctl:
    """``units``: {name: {"enabled", "active", "masked", "static"}}; ``fail``: {"start a.service": "what it prints"}."""

    def __init__(self, root, units=None, fail=None):
        self.root = Path(root)
        self.units = {
            name: dict({"enabled": False, "active": False, "masked": False}, **unit)
            for name, unit in (units or {}).items()
        }
        self.fail = fail or {}
        self.calls = []  # all that changes something

    def run(self, argv, timeout=None):
        words = [word for word in argv if not word.startswith("--")]
        if words[0] != "systemctl":
            self.calls.append(" ".join(argv))
            return (1, self.fail[" ".join(argv)]) if " ".join(argv) in self.fail else (0, "")
        if words[1] == "show":
            return 0, "\n".join(self._show(name) for name in words[2:])
        call = " ".join(words[1:])
        if words[1] != "status":
            self.calls.append(call)
        if call in self.fail:
            return 1, self.fail[call]
        return self._do(*words[1:])

    def _show(self, name):
        unit = self.units.get(name)
        if unit is None or (unit.get("gone") and not unit["masked"]):
            load, enabled, active = "not-found", "", "active" if unit and unit["active"] else "inactive"
        else:
            load = "masked" if unit["masked"] else "loaded"
            enabled = (
                "masked"
                if unit["masked"]
                else "static"
                if unit.get("static")
                else ("disabled", "enabled")[unit["enabled"]]
            )
            active = "active" if unit["active"] else "inactive"
        fragment = "" if unit is None else unit.get("fragment", "/usr/lib/systemd/system/" + name)
        return "LoadState=%s\nActiveState=%s\nFragmentPath=%s\nUnitFileState=%s\n" % (load, active, fragment, enabled)

    def _do(self, verb, name=None):
        if verb == "daemon-reload":
            folder = self.root / "etc/systemd/system"
            for path in [*folder.glob("*.service"), *folder.glob("*.timer")]:
                self.units.setdefault(path.name, {"enabled": False, "active": False, "masked": False})
                self.units[path.name].update(ours=True, gone=False)
            for unit_name, unit in self.units.items():
                if unit.get("ours"):
                    unit["gone"] = not (self.root / "etc/systemd/system" / unit_name).exists()
            return 0, ""
        unit = self.units.get(name)
        if verb == "mask" and unit is None:
            unit = self.units[name] = {"enabled": False, "active": False, "masked": False, "gone": True}
        if unit is None or (unit.get("gone") and verb not in ("mask", "unmask", "stop")):
            return 5, "Unit %s not found." % name
        if verb in ("mask", "unmask"):
            unit["masked"] = verb == "mask"
        elif verb in ("enable", "disable"):
            if unit["masked"]:
                return 1, "Unit %s is masked." % name
            unit["enabled"] = verb == "enable" and not unit.get("static")
        elif verb in ("start", "restart"):
            if unit["masked"]:
                return 1, "Unit %s is masked." % name
            unit["active"] = not unit.get("dies")
        elif verb == "stop":
            unit["active"] = False
        elif verb == "status":
            return 3, "status of %s" % name
        return 0, ""

    def state(self):
        return {
            name: (unit["enabled"], unit["active"], unit["masked"])
            for name, unit in self.units.items()
            if not (unit.get("gone") and (unit["enabled"], unit["active"], unit["masked"]) == (False, False, False))
        }


def main():
    path = Path(os.environ["FAKE_SYSTEMCTL"])
    state = json.loads(path.read_text(encoding="utf-8"))
    assert os.environ["LC_ALL"] == "C"
    fake = Systemctl(state["root"], state["units"], state.get("fail"))
    fake.calls = state.get("calls", [])
    code, output = fake.run(["systemctl"] + sys.argv[1:])
    print(output)
    path.write_text(json.dumps(dict(state, units=fake.units, calls=fake.calls)), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
