# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Debian packages that the lab runs on, and where this machine gets them from.

The mirror is read from the machine's own apt sources, so that the lab works behind whatever mirror is set up there.
QEMU has igb since 8.0; where the distribution's is older it comes from the distribution's backports, added for that one
apt call only.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError, Unsuitable
from .tools import NICE, Waiting, last_line, run, write

MIRROR_VARIABLE = "HOSTPREP_LAB_MIRROR"
QEMU = "qemu-system-x86"
OLDEST_QEMU = 8
OLDEST_DEBIAN = 12
# program or file that must be there: the package that has it
NEEDED = {
    "qemu": {
        "mmdebstrap": "mmdebstrap",
        "sfdisk": "fdisk",
        "mke2fs": "e2fsprogs",
        "mkfs.btrfs": "btrfs-progs",
        "qemu-img": "qemu-utils",
        "qemu-system-x86_64": QEMU,
        "/usr/share/OVMF/OVMF_CODE_4M.fd": "ovmf",
        "/usr/share/seabios/bios-256k.bin": "seabios",
        "ip": "iproute2",
        "ssh": "openssh-client",
        "setpriv": "util-linux",
        "iperf3": "iperf3",
    },
    "nspawn": {
        "mmdebstrap": "mmdebstrap",
        "systemd-nspawn": "systemd-container",
        "ip": "iproute2",
        "ssh": "openssh-client",
        "setpriv": "util-linux",
        "iperf3": "iperf3",
    },
}


@dataclass(frozen=True)
class Source:
    """One entry of the machine's apt sources."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str


def parse_sources(text: str, deb822: bool) -> Iterator[Source]:
    """The binary sources of one file: a .sources file of stanzas, or a .list file of lines."""
    if deb822:
        for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
            fields = {
                k.lower(): " ".join(v.split()) for k, v in re.findall(r"(?m)^([\w-]+):((?:.*(?:\n[ \t].*)*))", stanza)
            }
            if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() not in ("no", "false"):
                uris, suites, components = (
                    tuple(fields.get(key, "").split()) for key in ("uris", "suites", "components")
                )
                yield Source(uris, suites, components, fields.get("signed-by", ""))
        return
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s+([^#]+)", line)
        if match:
            signed = re.search(r"signed-by=(\S+)", match[1] or "")
            yield Source((match[2],), (match[3],), tuple(match[4].split()), signed[1] if signed else "")


def read_sources(apt: Path = Path("/etc/apt")) -> list[Source]:
    found: list[Source] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.suffix in (".list", ".sources") and path.is_file():
            found += parse_sources(path.read_text(encoding="utf-8", errors="replace"), path.suffix == ".sources")
    return found


def unsuitable() -> str:
    """What this machine is, where that is not a Debian which the lab's packages can come from; else empty."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "a system without /etc/os-release"
    version = release.get("VERSION_ID", "")  # a Debian that is not released yet has none
    if release.get("ID") == "debian" and not (version.isdigit() and int(version) < OLDEST_DEBIAN):
        return ""
    return f"{release.get('NAME', 'an unnamed system')} {version}".strip()


def _refuse_if_unsuitable() -> None:
    found = unsuitable()
    if found:
        raise Unsuitable(
            f"This machine cannot run the lab: it needs Debian {OLDEST_DEBIAN} or newer, and this is {found}."
        )


def require_debian(kinds: Iterable[str]) -> None:
    """Refuses a machine that lacks the packages and that they cannot be installed on."""
    if unsuitable() and missing(kinds):
        _refuse_if_unsuitable()


def codename() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return release.get("VERSION_CODENAME", "") if release.get("ID") == "debian" else ""


def main_source(sources: Iterable[Source], release: str) -> Source | None:
    """The source that this machine's own release comes from."""
    return next((s for s in sources if release and release in s.suites and "main" in s.components), None)


def mirror() -> str:
    """The Debian mirror that images are made from."""
    named = os.environ.get(MIRROR_VARIABLE)
    if named:
        return named
    source = main_source(read_sources(), codename())
    if source is None:
        _refuse_if_unsuitable()
        raise LabError(f"No Debian mirror was found in /etc/apt: set {MIRROR_VARIABLE} to the address of one.")
    return source.uris[0]


def apt_settings() -> list[str]:
    """What this machine's apt needs to reach its mirror (proxies, certificates, dates), as lines of an apt.conf."""
    dump = run(["apt-config", "dump"], "Reading apt's settings")
    return [line for line in dump.splitlines() if re.match(r"Acquire::(?:https?|Check-)\S* \"", line)]


def missing(kinds: Iterable[str]) -> list[str]:
    """The packages whose program or file is not there, or is too old."""
    absent: dict[str, None] = {}
    for kind in kinds:
        for what, package in NEEDED[kind].items():
            if not (os.path.exists(what) if what.startswith("/") else shutil.which(what)):
                absent[package] = None
    if "qemu" in kinds and QEMU not in absent and qemu_version() < OLDEST_QEMU:
        absent[QEMU] = None
    return list(absent)


def qemu_version() -> int:
    text = run(["qemu-system-x86_64", "--version"], "Asking QEMU for its version")
    match = re.search(r"version (\d+)\.", text)
    return int(match[1]) if match else 0


def ensure(kinds: Iterable[str]) -> None:
    """Installs what is missing where that is possible (root on Debian); else one sentence with the line to run."""
    wanted = missing(kinds)
    if not wanted:
        return
    line = "apt-get install " + " ".join(wanted)
    release = codename()
    if os.geteuid() or not release or not shutil.which("apt-get"):
        backports = f" ({QEMU} {OLDEST_QEMU}.0 or newer: Debian 12 has it in backports)" if QEMU in wanted else ""
        raise LabError(f"The lab needs packages that this machine does not have; run: {line}{backports}")
    with tempfile.TemporaryDirectory(prefix="hp-lab-apt-") as folder:
        log = Path(folder) / "log"
        with Waiting(f"Installing {', '.join(wanted)}", lambda: last_line(log)):
            apt = _apt(Path(folder), release)
            run([*apt, "update"], "apt-get update", log)
            plain = [p for p in wanted if p != QEMU]
            if plain:
                run([*apt, "install", *plain], line, log)
            if QEMU in wanted:
                old = re.search(
                    r"Candidate: (?:\d+:)?(\d+)",
                    run(["apt-cache", *apt[apt.index("-o") :], "policy", QEMU], "apt-cache policy"),
                )
                suite = ["-t", f"{release}-backports"] if not old or int(old[1]) < OLDEST_QEMU else []
                run([*apt, "install", *suite, QEMU], f"apt-get install {QEMU}", log)
    left = missing(kinds)
    if left:
        raise LabError(f"After the installation these packages are still missing or too old: {', '.join(left)}.")


def _apt(folder: Path, release: str) -> list[str]:
    """An apt-get call that sees this machine's Debian sources and, for this call only, the backports beside them."""
    own = [s for s in read_sources() if "main" in s.components and any(x.split("-")[0] == release for x in s.suites)]
    first = main_source(own, release)
    if first is None:
        raise LabError(
            f"No source of Debian {release} was found in /etc/apt: the lab's packages must be installed by hand."
        )
    backports = Source(first.uris, (f"{release}-backports",), ("main",), first.signed_by)
    sources = folder / "lab.sources"
    write(sources, "\n".join(_stanza(s) for s in [*own, backports]))
    options = {
        "Dir::Etc::SourceList": str(sources),
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Get::List-Cleanup": "0",
        "APT::Install-Recommends": "0",
        "DPkg::Lock::Timeout": "600",
    }
    words = [w for key, value in options.items() for w in ("-o", f"{key}={value}")]
    return [*NICE, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", *words]


def _stanza(source: Source) -> str:
    lines = [
        "Types: deb",
        f"URIs: {' '.join(source.uris)}",
        f"Suites: {' '.join(source.suites)}",
        f"Components: {' '.join(source.components)}",
    ]
    if source.signed_by:
        lines.append(f"Signed-By: {source.signed_by}")
    return "\n".join(lines) + "\n"
