# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes whose key the TPM only gives out after an unchanged boot: new kernel arguments would leave the host at a passphrase prompt.

PCR 8 holds the commands and the kernel command line that GRUB ran, 9 the files that it read (grub.cfg and entries among them), 12 the
command line and credentials that systemd-boot and its stub measured.
"""

from __future__ import annotations

import base64
import json
import re

from .errors import HostprepError

MEASURED = (8, 9, 12)
_NUMBERS = re.compile(r"[0-9]+")
_NAMES = {"kernel-config": 12, "kernel-initrd": 9, "kernel-boot": 11, "boot-loader-config": 5, "boot-loader-code": 4}
_DEPTH = 8


def bindings(crypttab, headers):
    """[{"device", "by", "pcrs": [int] or None for unknown}], in order.

    crypttab: text of /etc/crypttab or None; headers: {device: JSON of a LUKS2 header, as `cryptsetup luksDump --dump-json-metadata`
    prints it, or None where it could not be read}.
    """
    found = []
    for line in (crypttab or "").splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[0].startswith("#"):
            continue
        for option in fields[3].split(","):
            name, _equals, value = option.partition("=")
            if name == "tpm2-pcrs" and value:
                found.append({"device": fields[1], "by": "/etc/crypttab", "pcrs": _pcrs(value)})
    for device in sorted(headers):
        if headers[device] is None:
            found.append({"device": device, "by": "LUKS header", "pcrs": None})
            continue
        found += [{"device": device, "by": by, "pcrs": pcrs} for by, pcrs in _tokens(headers[device])]
    return found


def refuse_bound(found):
    """Raises HostprepError where a volume is bound to a PCR that new arguments change: tpm_bound, tpm_unknown."""
    for binding in found:
        bound = [pcr for pcr in binding["pcrs"] or [] if pcr in MEASURED]
        if bound:
            raise HostprepError(
                "tpm_bound",
                "an encrypted volume is bound to what new kernel arguments change: the host would ask for a passphrase at its next boot",
                read="%s, PCR %s (%s)" % (binding["device"], ", ".join(map(str, bound)), binding["by"]),
                allowed="volumes bound to other PCRs, such as 7",
                cure="enrol it anew without PCR %s (systemd-cryptenroll --wipe-slot=tpm2 --tpm2-device=auto --tpm2-pcrs=7, or "
                "clevis luks edit), or have the passphrase typed at the console" % ", ".join(map(str, bound)),
            )
    for binding in found:
        if binding["pcrs"] is None:
            raise HostprepError(
                "tpm_unknown",
                "what an encrypted volume is bound to cannot be known",
                read="%s (%s)" % (binding["device"], binding["by"]),
                allowed="volumes whose PCRs can be read, none of them 8, 9 or 12",
                cure="look with cryptsetup luksDump, and set accept_tpm_binding: true if none of them is 8, 9 or 12",
            )


def _pcrs(value):
    """PCR numbers of "7+8", "7,8:sha256=…", [7, 8] or a word of systemd's; None where one is not understood."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        value = [value]
    parts = value if isinstance(value, list) else re.split(r"[+,]", str(value).strip())
    numbers = set()
    for part in parts:
        if isinstance(part, bool):
            return None
        text = str(part).partition(":")[0].partition("=")[0].strip()
        if not text:
            continue
        if _NUMBERS.fullmatch(text) and len(text) < 4:
            numbers.add(int(text))
        elif text in _NAMES:
            numbers.add(_NAMES[text])
        else:
            return None
    return sorted(numbers)


def _tokens(text):
    """[(by, pcrs or None)] of the tokens in a LUKS2 header."""
    try:
        header = json.loads(text)
        tokens = header.get("tokens") or {}
        each = [tokens[key] for key in sorted(tokens)]
    except (ValueError, RecursionError, AttributeError, TypeError, LookupError):
        return [("LUKS header that is no JSON", None)]
    found = []
    for token in each:
        kind = token.get("type") if isinstance(token, dict) else None
        if kind == "systemd-tpm2":
            pcrs = _pcrs(token.get("tpm2-pcrs", []))
            if token.get("tpm2_pcrlock"):
                pcrs = None  # the policy lies in the TPM
            found.append(("systemd-cryptenroll", _both(pcrs, _pcrs(token.get("tpm2_pubkey_pcrs") or []))))
        elif kind == "clevis":
            found += _clevis(token.get("jwe"), 0)
    return found


def _both(left, right):
    """Signed PCRs count too: a signature for one kernel's command line does not fit another's."""
    return None if left is None or right is None else sorted(set(left) | set(right))


def _clevis(jwe, depth):
    """[("clevis", pcrs)] for every tpm2 pin in a JWE, in sss pins too; nothing for tang alone."""
    protected = jwe.get("protected") if isinstance(jwe, dict) else str(jwe).partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(str(protected) + "=" * (-len(str(protected)) % 4)))
        pin = header["clevis"]["pin"]
        config = header["clevis"].get(pin) or {}
        if pin == "tpm2":
            return [("clevis", _pcrs(config.get("pcr_ids", [])))]
        if pin == "sss":
            if depth >= _DEPTH:
                return [("clevis", None)]
            return [entry for inner in config.get("jwe", []) for entry in _clevis(inner, depth + 1)]
        return []
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return [("clevis", None)]
