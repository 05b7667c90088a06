# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the example machines of examples/machines into a folder, one folder per host: build_trees.py OUT.

A machine is built again only when its description or the builder changed. Prints what it built; nothing when all is up to date.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILDER = HERE.parent / "tests" / "builder"


def fingerprint(spec: Path) -> str:
    """Of all that a tree is made from."""
    digest = hashlib.sha256()
    for path in [spec, *sorted(BUILDER.glob("*.py"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def build_one(spec: Path, out: Path) -> bool:
    """Builds beside the old tree and swaps, so that a broken-off run leaves no half machine; says whether it did anything."""
    from builder import build

    stamp = out / f".{spec.stem}.stamp"
    wanted = fingerprint(spec)
    if (out / spec.stem).is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return False
    fresh = out / f".{spec.stem}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    build(spec, fresh, share=True)
    shutil.rmtree(out / spec.stem, ignore_errors=True)
    fresh.rename(out / spec.stem)
    stamp.write_text(wanted, encoding="utf-8")
    return True


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: build_trees.py OUT: write the folder that the example machines are built into", file=sys.stderr)
        return 2
    if not BUILDER.is_dir():
        print(
            f"The example machines are built from a checkout of the repository: {BUILDER} is not there.",
            file=sys.stderr,
        )
        return 1
    sys.path.insert(0, str(BUILDER.parent))
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    for spec in sorted((HERE / "machines").glob("*.yml")):
        if build_one(spec, out):
            print(f"built {out / spec.stem}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
