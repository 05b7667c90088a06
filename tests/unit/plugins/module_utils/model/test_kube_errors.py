# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failed call of the Kubernetes API is called, by the texts that kubernetes.core 6.6 gives, and that secrets stay out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import kube_errors

TOP = Path(__file__).resolve().parents[5]


def status(code, message, reason="Reason"):
    return (
        "Exception '%d\nReason: %s\nHTTP response headers: HTTPHeaderDict({'Content-Length': '409'})\nHTTP response body: "
        'b\'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"%s","reason":"%s","code":%d}\\n\'\nOriginal traceback: \n'
        % (code, reason, message, reason, code)
    )


CASES = [
    (
        "UPGRADE FAILED: execution error at (cilium/templates/validate.yaml:1:2): a timeout is needed",
        "kube_helm_template",
        "validate.yaml",
    ),
    ('path "/no/chart" not found', "kube_helm_chart", "/no/chart"),
    ("repo x not found", "kube_helm_chart", "repo x"),
    ("non-absolute URLs should be in form of repo_name/path_to_chart, got: cilium", "kube_helm_chart", "got: cilium"),
    (
        "UPGRADE FAILED: conflict occurred while applying object kube-system/cilium apps/v1, Kind=DaemonSet: Apply failed with"
        ' 1 conflict: conflict with "kubectl-patch" using apps/v1: .spec.updateStrategy.type',
        "kube_field_owner",
        ".spec.updateStrategy.type",
    ),
    ('Failed to find required executable "helm" in paths: /usr/bin:/bin', "kube_helm_missing", "executable"),
    (
        "Exited 1. stderr: Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress",
        "kube_helm_pending",
        "in progress",
    ),
    (status(401, "Unauthorized"), "kube_credentials", "Unauthorized"),
    ("Failed to get client due to HTTPSConnectionPool: certificate has expired", "kube_credentials", "certificate"),
    (status(403, 'nodes is forbidden: User \\"x\\" cannot list resource \\"nodes\\"'), "kube_forbidden", "cannot list"),
    (status(409, "the object has been modified; please apply your changes"), "kube_conflict", "has been modified"),
    (
        status(429, "Cannot evict pod as it would violate the pod's disruption budget."),
        "kube_busy",
        "disruption budget",
    ),
    (status(500, "etcdserver: request timed out"), "kube_server_error", "etcdserver"),
    (status(503, "apiserver not ready"), "kube_unavailable", "not ready"),
    ("the server is currently unable to handle the request: Service Unavailable", "kube_unavailable", "unable"),
    (status(422, 'spec.defaults.devices: Invalid value: \\"array\\"'), "kube_invalid", "Invalid value"),
    (status(404, "the server could not find the requested resource"), "kube_kind_unknown", "could not find"),
    (
        "Failed to find exact match for cilium.io/v2.CiliumNodeConfig by [kind, name]",
        "kube_kind_unknown",
        "exact match",
    ),
    ("Timed out after 30 second(s).", "kube_timeout", "30 second"),
    (
        "HTTPSConnectionPool(host='10.0.0.1', port=6443): Max retries exceeded (Caused by NewConnectionError: Connection refused)",
        "kube_unreachable",
        "refused",
    ),
    (
        "Failed to load kubeconfig due to Invalid kube-config file. No configuration found.",
        "kube_kubeconfig_unusable",
        "kube-config",
    ),
    ("Could not find or access '/kubeconfig' on the Ansible Controller.", "kube_kubeconfig_unusable", "/kubeconfig"),
    ("something else entirely", "kube_failed", "something else"),
    (None, "kube_failed", "no message"),
]


@pytest.mark.parametrize(("text", "code", "shown"), CASES)
def test_causes(text, code, shown):
    error = kube_errors.explain(text, "reading the nodes")
    assert error.code == code
    assert shown.lower() in error.read.lower() and "\n" not in str(error)
    assert str(error).startswith("reading the nodes failed") and error.cure


@pytest.mark.parametrize(("text", "code", "shown"), CASES)
def test_trying_again(text, code, shown):
    again = {"kube_conflict", "kube_busy", "kube_unavailable"}  # 409, 429, 503: the API server itself says so
    assert kube_errors.passing(text) == (code in again)


def test_what_was_written_before_is_said():
    error = kube_errors.explain(status(429, "too many requests"), "applying", written="the values, on s1")
    assert str(error).startswith("applying failed: the API server answers that it is too busy")
    assert "; written before: the values, on s1; read: too many requests;" in str(error)


JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6.eyJpc3MiOiJrdWJlcm5l.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.def-123 was refused", "abc.def-123"),
        (status(401, "token " + JWT + " is expired"), JWT),
        ("client-key-data: LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg"),
        ("password=hunter2secret in https://x", "hunter2secret"),
        ("bad key -----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----", "MHcCAQEE"),
        ("Authorization: Basic dXNlcjpodW50ZXIy failed", "dXNlcjpodW50ZXIy"),
        ("https://admin:hunter2@10.0.0.1:6443 timed out", "hunter2"),
        ("node token K10" + "0a" * 32 + "::server:deadbeef", "deadbeef"),
    ],
)
def test_secrets_are_left_out(text, secret):
    assert secret not in str(kube_errors.explain(text, "x"))


@pytest.mark.parametrize("text", ["no key hunter2", 'no key "hunt\\"er\\\\"', "line 1: first of key\n  line 2"])
def test_what_is_hidden_is_left_out(text):
    said = str(
        kube_errors.explain(
            "cannot take it: %s; 2 of 3" % text, "x", ["hunter2", 'hunt"er\\', "first of key\nline 2", "2"]
        )
    )
    assert "(left out)" in said and "cannot take it" in said and "2 of 3" in said
    assert not any(word in said for word in ("hunter2", "er\\", "first of key", "line 2"))


def test_every_code_is_documented():
    documented = set(re.findall(r"`([a-z0-9_]+)`", (TOP / "docs" / "codes.md").read_text(encoding="utf-8")))
    assert not ({kind[0] for kind in kube_errors._KINDS} | {"kube_failed"}) - documented
