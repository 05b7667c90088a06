# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes roles/cilium/files/chart_keys.json: which keys the values of Cilium's charts have, and of which kind.

    python tools/chart_keys.py cilium-1.19.6.tgz cilium-1.20.0.tgz …

Keys come from a chart's values.yaml, its schema (kinds), and its templates (keys that values.yaml only has as a comment).
Nothing of the charts' texts and defaults is kept. Needs PyYAML.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

TARGET = Path(__file__).resolve().parents[1] / "roles" / "cilium" / "files" / "chart_keys.json"
LETTERS = {"boolean": "b", "integer": "i", "number": "n", "string": "s", "array": "a", "object": "o", "null": "~"}
# Values of these names are of Kubernetes' own types: what may stand in them is not the chart's to say
KUBERNETES = {"affinity", "nodeSelector", "resources", "securityContext", "podSecurityContext"}
REFERENCE = re.compile(r"\.Values\.([A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)*)")
Keys = dict[str, str]


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "b"
    for python, letter in ((int, "i"), (float, "n"), (str, "s"), (list, "a"), (dict, "o")):
        if isinstance(value, python):
            return letter
    return "?"  # null: the schema tells, or nothing does


def walk(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Keys:
    found: Keys = {}
    for key, value in values.items():
        here = schema.get("properties", {}).get(key, {})
        if isinstance(value, dict) and value and key not in KUBERNETES:
            found.update(walk(value, here, f"{prefix}{key}."))
            continue
        named = here.get("type", [])
        letters = "".join(sorted(LETTERS[name] for name in ([named] if isinstance(named, str) else named)))
        found[prefix + key] = letters or kind_of(value)
    return found


def read(archive: Path) -> tuple[str, Keys]:
    """(version, {dotted key: kinds}) of a chart."""
    files: dict[str, str] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content:
                files[member.name.partition("/")[2]] = content.read().decode("utf-8", "replace")
    version = str(yaml.safe_load(files["Chart.yaml"])["version"])
    keys = walk(yaml.safe_load(files["values.yaml"]), json.loads(files["values.schema.json"]))
    inner = {key[: place.start()] for key in keys for place in re.finditer(r"\.", key)}
    for name, text in sorted(files.items()):
        # validate.yaml names the keys that were removed, to refuse them
        if name.startswith("templates/") and name != "templates/validate.yaml":
            for key in REFERENCE.findall(text):
                above = [key[: place.start()] for place in re.finditer(r"\.", key)]
                if key != "AsMap" and key not in keys and key not in inner and not any(part in keys for part in above):
                    keys[key] = "?"
    return version, keys


def compact(charts: dict[str, Keys]) -> dict[str, Any]:
    """A tree of keys; a leaf is its kinds, or {"": {version: kinds}} where the charts differ."""
    tree: dict[str, Any] = {}
    for key in sorted({key for keys in charts.values() for key in keys}):
        kinds = {version: keys[key] for version, keys in charts.items() if key in keys}
        place = tree
        *above, last = key.split(".")
        for part in above:
            place = place.setdefault(part, {})
            if isinstance(place, str):  # free-form in one chart, spelt out in another
                raise SystemExit(f"{key} lies below a key that is none in another chart: give fewer charts at once")
        same = len(kinds) == len(charts) and len(set(kinds.values())) == 1
        place[last] = next(iter(kinds.values())) if same else {"": kinds}
    return tree


def main(archives: list[str]) -> None:
    charts = dict(sorted(read(Path(name)) for name in archives))
    lines = [
        f"    {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in compact(charts).items()
    ]
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(
        '{\n  "made_by": "tools/chart_keys.py",\n  "kinds": '
        + json.dumps({letter: name for name, letter in LETTERS.items()} | {"?": "anything"})
        + f',\n  "versions": {json.dumps(list(charts))},\n  "keys": {{\n'
        + ",\n".join(lines)
        + "\n  }\n}\n",
        encoding="utf-8",
    )
    print(f"{TARGET.relative_to(Path.cwd())}: {', '.join(charts)}, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
