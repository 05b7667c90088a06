# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificates of the cluster, made with the openssl command: one authority each for the cluster, for etcd and for
aggregated APIs, and short subjects that mean something to Kubernetes (CN is the user, O its groups).
"""

from __future__ import annotations

import ipaddress
import shutil
from collections.abc import Sequence
from pathlib import Path

from .common import Unavailable, run

CLUSTER, ETCD, FRONT_PROXY = "ca", "etcd-ca", "front-proxy-ca"
AUTHORITY_DAYS, DAYS = 3650, 365


def settings(
    common_name: str, groups: Sequence[str], uses: Sequence[str], names: Sequence[str], authority: bool = False
) -> str:
    """The text of an openssl configuration for one certificate; uses: clientAuth, serverAuth; names: hosts and addresses."""
    subject = [f"{position}.O = {group}" for position, group in enumerate(groups)] + [f"CN = {common_name}"]
    extensions = ["subjectKeyIdentifier = hash", "authorityKeyIdentifier = keyid"]
    if authority:
        extensions += [
            "basicConstraints = critical, CA:TRUE",
            "keyUsage = critical, digitalSignature, keyCertSign, cRLSign",
        ]
    else:
        extensions += ["basicConstraints = critical, CA:FALSE", "keyUsage = critical, digitalSignature"]
        extensions += [f"extendedKeyUsage = {', '.join(uses)}"]
    if names:
        extensions.append(
            "subjectAltName = " + ", ".join(("IP:" if _is_address(name) else "DNS:") + name for name in names)
        )
    return "\n".join(
        ["[req]", "prompt = no", "distinguished_name = subject", "[subject]", *subject, "[extensions]", *extensions, ""]
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Pki:
    """The authorities and keys below one folder; what exists is kept."""

    def __init__(self, folder: Path):
        self.folder = folder

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def _make(self, name: str, text: str, days: int, signer: str | None) -> None:
        if not shutil.which("openssl"):
            raise Unavailable("The cluster's certificates are made with openssl, which is not installed.")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key, certificate = f"{self.key(name)}.new", f"{self.certificate(name)}.new"
        what = f"The certificate {name} cannot be made"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key]
        # Beside the keys, where a killed run's are written over: nothing is left in a folder that nobody clears.
        config, request = self.folder / f"{name}.cnf", self.folder / f"{name}.csr"
        config.write_text(text, encoding="utf-8")
        if signer:
            run(["openssl", "req", "-new", "-config", config, *curve, "-out", request], what=what)
            authority: list[str | Path] = ["-CA", self.certificate(signer), "-CAkey", self.key(signer)]
            extensions: list[str | Path] = ["-extfile", config, "-extensions", "extensions"]
            sign = ["openssl", "x509", "-req", "-sha256", "-in", request, *authority, *extensions]
            run([*sign, "-days", str(days), "-out", certificate], what=what)
        else:
            itself: list[str | Path] = [
                "openssl",
                "req",
                "-x509",
                "-sha256",
                "-config",
                config,
                "-extensions",
                "extensions",
                *curve,
            ]
            run([*itself, "-days", str(days), "-out", certificate], what=what)
        for used in (config, request):
            used.unlink(missing_ok=True)
        Path(key).rename(self.key(name))
        Path(certificate).rename(self.certificate(name))

    def authority(self, name: str) -> None:
        if not self.certificate(name).exists():
            self._make(name, settings(f"lo0.rke2_hostprep {name}", (), (), (), authority=True), AUTHORITY_DAYS, None)

    def issue(
        self,
        name: str,
        signer: str,
        common_name: str,
        *,
        groups: Sequence[str] = (),
        uses: Sequence[str] = ("clientAuth",),
        names: Sequence[str] = (),
        days: int = DAYS,
        again: bool = False,
    ) -> None:
        """A key and its certificate; made again when asked (another list of names). Negative days: expired already."""
        if again or not self.certificate(name).exists():
            self._make(name, settings(common_name, groups, uses, names), days, signer)

    def signing_key(self, name: str) -> None:
        """A key pair without a certificate, for service-account tokens: NAME.key and NAME.pub."""
        key = self.key(name)
        public = self.folder / f"{name}.pub"
        if not public.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            curve = ["-pkeyopt", "ec_paramgen_curve:P-256"]
            run(["openssl", "genpkey", "-algorithm", "EC", *curve, "-out", key], what=f"The key {name} cannot be made")
            key.chmod(0o600)
            run(
                ["openssl", "pkey", "-in", key, "-pubout", "-out", f"{public}.new"],
                what=f"The key {name} cannot be read",
            )
            Path(f"{public}.new").rename(public)
