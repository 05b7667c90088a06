# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes that the TPM opens only after an unchanged boot."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import tpm
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError
from hypothesis import given, strategies as st


def header(*tokens):
    return json.dumps(
        {"keyslots": {}, "tokens": {str(number): token for number, token in enumerate(tokens)}, "segments": {}}
    )


def enrolled(pcrs, **more):
    return {
        "type": "systemd-tpm2",
        "keyslots": ["1"],
        "tpm2-blob": "AAAA",
        "tpm2-pcrs": pcrs,
        "tpm2-pcr-bank": "sha256",
        **more,
    }


def encoded(clevis):
    text = json.dumps({"alg": "dir", "clevis": clevis, "enc": "A256GCM"})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def clevis(config):
    return {"type": "clevis", "keyslots": ["1"], "jwe": {"ciphertext": "x", "protected": encoded(config), "tag": "y"}}


TPM2 = {"pin": "tpm2", "tpm2": {"hash": "sha256", "key": "ecc", "pcr_bank": "sha256", "pcr_ids": "7,8"}}


@pytest.mark.parametrize(
    ("token", "pcrs"),
    [
        (enrolled([7]), [[7]]),
        (enrolled([4, 7, 9]), [[4, 7, 9]]),
        (enrolled([]), [[]]),
        (enrolled([7], tpm2_pubkey_pcrs=[11]), [[7, 11]]),
        (enrolled([], tpm2_pcrlock=True), [None]),
        (enrolled("x"), [None]),
        (enrolled([True]), [None]),
        ({"type": "systemd-recovery", "keyslots": ["2"]}, []),
        (clevis(TPM2), [[7, 8]]),
        (clevis({"pin": "tpm2", "tpm2": {"pcr_bank": "sha256"}}), [[]]),
        (clevis({"pin": "tang", "tang": {"url": "http://a"}}), []),
        (
            clevis(
                {
                    "pin": "sss",
                    "sss": {"t": 1, "jwe": [encoded(TPM2) + "..iv.text.tag", encoded({"pin": "tang"}) + "..a.b.c"]},
                }
            ),
            [[7, 8]],
        ),
        ({"type": "clevis", "jwe": {"protected": "!!"}}, [None]),
        ({"type": "clevis"}, [None]),
        ("no token", []),
    ],
)
def test_bindings_of_a_luks_header(token, pcrs):
    found = tpm.bindings(None, {"/dev/sda3": header(token)})
    assert [entry["pcrs"] for entry in found] == pcrs
    assert {entry["device"] for entry in found} <= {"/dev/sda3"}


@pytest.mark.parametrize(
    ("line", "pcrs"),
    [
        ("root UUID=1 none tpm2-device=auto,tpm2-pcrs=7+8", [[7, 8]]),
        ("root UUID=1 none tpm2-pcrs=7:sha256=00ff+12", [[7, 12]]),
        ("root UUID=1 none tpm2-pcrs=kernel-config", [[12]]),
        ("root UUID=1 none tpm2-pcrs=else", [None]),
        ("root UUID=1 none tpm2-device=auto,tpm2-pcrs=", []),
        ("root UUID=1 none luks,discard", []),
        ("# root UUID=1 none tpm2-pcrs=8", []),
        ("root UUID=1", []),
        ("", []),
    ],
)
def test_bindings_of_crypttab(line, pcrs):
    assert [entry["pcrs"] for entry in tpm.bindings(line + "\n", {})] == pcrs


@pytest.mark.parametrize("pcr", [8, 9, 12])
def test_a_volume_that_would_ask_for_a_passphrase_is_refused(pcr):
    with pytest.raises(HostprepError) as caught:
        tpm.refuse_bound(
            tpm.bindings(None, {"/dev/sdb": header(enrolled([7])), "/dev/sda3": header(enrolled([7, pcr]))})
        )
    assert caught.value.code == "tpm_bound"
    assert "/dev/sda3, PCR %d (systemd-cryptenroll)" % pcr in caught.value.read
    assert "tpm2-pcrs=7" in caught.value.cure


def test_volumes_bound_to_other_things_pass():
    tpm.refuse_bound(
        tpm.bindings("a b none tpm2-pcrs=7", {"/dev/a": header(enrolled([0, 2, 4, 7, 11])), "/dev/b": header()})
    )


@pytest.mark.parametrize(
    "text", [None, "{", "[]", '{"tokens": 7}', '{"tokens": [1]}', header(enrolled([], tpm2_pcrlock=True)), "[" * 5000]
)
def test_a_header_that_does_not_tell_is_refused(text):
    with pytest.raises(HostprepError) as caught:
        tpm.refuse_bound(tpm.bindings(None, {"/dev/sda3": text}))
    assert caught.value.code == "tpm_unknown"


def test_endless_nesting_is_unknown():
    pin = TPM2
    for _round in range(20):
        pin = {"pin": "sss", "sss": {"t": 1, "jwe": [encoded(pin) + "...."]}}
    assert tpm.bindings(None, {"/dev/a": header(clevis(pin))})[0]["pcrs"] is None


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["type", "jwe", "protected", "tpm2-pcrs", "tokens", "0"]), inner, max_size=3),
    ),
)


@given(st.text(), JSON, JSON)
def test_any_header_is_read_without_a_traceback(text, whole, token):
    tpm.bindings(
        text, {"a": text, "b": json.dumps(whole), "c": header(token, {"type": "clevis", "jwe": token}, enrolled(token))}
    )
