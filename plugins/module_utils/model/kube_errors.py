# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failed call of the Kubernetes API means, from the text with which a module failed. No token or key is ever repeated."""

from __future__ import annotations

import json
import re

from .errors import HostprepError

# Where a status stands: in the answer's body, or where the Python client and the modules put it; not in some header
_STATUS = re.compile(
    r"""\\?"code\\?"\s*:\s*([45]\d\d)\b|Exception\s+'?([45]\d\d)\b|\(([45]\d\d)\)\s*Reason|\bstatus(?:\scode)?:?\s([45]\d\d)\b""",
    re.ASCII,
)
_MESSAGE = re.compile(r'\\?"message\\?"\s*:\s*\\?"(.{1,400}?)\\?"\s*,', re.DOTALL)
_SECRETS = re.compile(
    r"(?i)((?:bearer|basic)\s+\S+|(?<=://)[^/\s@]*:[^/\s@]*(?=@)|eyJ[\w-]{5,}\.[\w-]+\.[\w-]*"
    r"|(?:token|password|client-key-data|client-certificate-data)[\"']?\s*[:=]\s*\S+"
    r"|-----BEGIN[^-]*-----.*?(?:-----END[^-]*-----|\Z)|K10[0-9a-f]{20,}::?\S*)",
    re.DOTALL,
)
# (code, what the text must have, sentence, cure); the first that fits
_KINDS = (
    (
        "kube_helm_missing",
        r"required executable .?helm",
        "there is no Helm on the controller's PATH",
        "install Helm 3 or 4 on the controller, for cilium_owner: helm",
    ),
    (
        "kube_helm_pending",
        r"another operation \(install/upgrade/rollback\) is in progress",
        "another run of Helm changes the release now, or was ended in the middle",
        "wait for it; where none runs, look at `helm history cilium` and take the release back with `helm rollback`",
    ),
    (
        "kube_helm_template",
        r"execution error at|error calling|\btemplate: |specifications of the schema",
        "the chart does not render with these values",
        "correct the values, as the text says",
    ),
    (
        "kube_helm_chart",
        r"^(?:path|repo|chart|fetch) .{0,300}not found|no chart version found|non-absolute urls should be|no cached repo"
        r"|not a valid chart repository|chart.yaml file is missing|failed to download",
        "Helm has no such chart",
        "correct cilium_helm_chart, cilium_helm_repository or cilium_version",
    ),
    (
        "kube_field_owner",
        r"apply failed with \d+ conflict",
        "someone else has set a field that the object is to have otherwise, and Helm takes none from another",
        "set the field to what the chart has, or take it back with kubectl apply --server-side --force-conflicts --field-manager=helm",
    ),
    (
        "kube_credentials",
        r"\b401\b|unauthorized|certificate has expired|certificate_expired|token.{0,20}expired|provide credentials",
        "the API server does not accept the kubeconfig's credentials: they are expired or of another cluster",
        "make a new kubeconfig (on an RKE2 server: /etc/rancher/rke2/rke2.yaml) and name it in rke2_hostprep_kubeconfig",
    ),
    (
        "kube_forbidden",
        r"\b403\b|forbidden",
        "the kubeconfig's user has no right to that",
        "give it the rights that docs/cilium.md lists",
    ),
    (
        "kube_conflict",
        r"\b409\b|\bconflict\b|already exists|object has been modified",
        "someone else changed the object at the same time",
        "run again",
    ),
    (
        "kube_busy",
        r"\b429\b|too many requests",
        "the API server answers that it is too busy, or a disruption budget allows no eviction now",
        "wait and run again",
    ),
    (
        "kube_unavailable",
        r"\b503\b|service unavailable",
        "the API server is not ready",
        "wait until it is, and run again",
    ),
    (
        "kube_timeout",
        r"timed? ?out|timeout|deadline exceeded|did not complete",
        "the API server did not answer in time",
        "look at the API server, or raise rke2_hostprep_kube_timeout",
    ),
    (
        "kube_server_error",
        r"\b50[0-9]\b|internal server error|bad gateway",
        "the API server failed",
        "look at the servers (journalctl -u rke2-server, etcd) and run again",
    ),
    (
        "kube_kubeconfig_unusable",
        r"invalid kube-?config|could not load|failed to load kubeconfig|no such file|could not find or access|expected object with name|no configuration found",
        "the kubeconfig cannot be used",
        "name a readable kubeconfig in rke2_hostprep_kubeconfig",
    ),
    (
        "kube_invalid",
        r"\b422\b|\b400\b|unknown field|is invalid|bad request|strict decoding",
        "the API server does not accept the object",
        "compare the versions of RKE2 and Cilium with those that docs/cilium.md names",
    ),
    (
        "kube_kind_unknown",
        r"\b404\b|failed to find exact match|no matches for kind|could not find the requested resource",
        "the API server does not know that kind: the chart that brings it is not installed yet, or is of another version",
        "wait until Cilium's operator has made its resource definitions, and run again",
    ),
    (
        "kube_unreachable",
        r"connection refused|max retries|name or service not known|no route to host|network is unreachable|connection reset|failed to establish",
        "the API server cannot be reached from the controller",
        "correct the server's address in the kubeconfig, or the route to it",
    ),
)
_PASSING = ("kube_conflict", "kube_busy", "kube_unavailable")  # 409, 429 and 503


def explain(text, doing, hidden=(), written=None):
    """The HostprepError of a failure.

    text: what the module said; doing: "reading cilium-config"; hidden: texts that are not shown; written: what this run has changed before
    """
    before = "; written before: %s" % written if written else ""
    text = _without(str(text or "no message"), hidden)
    said = _MESSAGE.search(text)
    shown = " ".join(_SECRETS.sub("(left out)", said.group(1) if said else text).split())[:300]
    status = _STATUS.search(text)
    # a status says more than words that a message may quote
    number = status and next(group for group in status.groups() if group)
    known = number and any(re.search(kind[1], number) for kind in _KINDS)
    searched = number if known else text.lower()
    for code, pattern, sentence, cure in _KINDS:
        if re.search(pattern, searched):
            return HostprepError(code, "%s failed: %s%s" % (doing, sentence, before), read=shown, cure=cure)
    return HostprepError("kube_failed", "%s failed%s" % (doing, before), read=shown, cure="see docs/cilium.md")


def _without(text, hidden):
    """The text without those of hidden, as they are and as a program quotes them, line by line."""
    lines = {line.strip() for one in hidden for line in one.splitlines()}
    for line in sorted(lines, key=len, reverse=True):
        for shown in (line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1]):
            if len(shown) > 2:  # not each letter of a sentence
                text = text.replace(shown, "(left out)")
    return text


def passing(text):
    """Whether the API server's answer asks to try again."""
    return explain(text, "").code in _PASSING
