# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of Cilium's values does to a running cluster, and how it is merged with someone's own values.

A difference is of scope ``node`` (each agent takes it at its own restart, and nodes with and without it work together), ``cluster``
(nodes with and without it do not, or all agents restart at once, two at a time, on nodes that are not drained) or ``none``.
"""

from __future__ import annotations

import json
import re

from . import cilium
from .cilium_values import leaves, merged, nested
from .errors import HostprepError

OWNED = "rke2-hostprep.lo0/owned-values"  # annotation: JSON list of the values' paths that this collection wrote
# path of the values: (key of the agent's configuration, what its absence there means, scope)
CONFIG = {
    "routingMode": ("routing-mode", "tunnel", "cluster"),
    "tunnelProtocol": ("tunnel-protocol", "vxlan", "cluster"),
    "autoDirectNodeRoutes": ("auto-direct-node-routes", "false", "cluster"),
    "directRoutingSkipUnreachable": ("direct-routing-skip-unreachable", "false", "cluster"),
    "ipv4NativeRoutingCIDR": ("ipv4-native-routing-cidr", "", "cluster"),
    "ipv6NativeRoutingCIDR": ("ipv6-native-routing-cidr", "", "cluster"),
    "ipv4.enabled": ("enable-ipv4", "true", "cluster"),
    "ipv6.enabled": ("enable-ipv6", "false", "cluster"),
    "ipam.mode": ("ipam", "cluster-pool", "cluster"),
    "kubeProxyReplacement": ("kube-proxy-replacement", "false", "cluster"),
    "bpf.masquerade": ("enable-bpf-masquerade", "false", "cluster"),
    "enableIPv4Masquerade": ("enable-ipv4-masquerade", "true", "cluster"),
    "enableIPv6Masquerade": ("enable-ipv6-masquerade", "true", "cluster"),
    "cni.chainingMode": ("cni-chaining-mode", "none", "cluster"),
    "cni.exclusive": ("cni-exclusive", "true", "cluster"),
    "bpf.tproxy": ("enable-bpf-tproxy", "false", "cluster"),
    "bpf.hostLegacyRouting": ("enable-host-legacy-routing", "false", "cluster"),
    "endpointRoutes.enabled": ("enable-endpoint-routes", "false", "cluster"),
    "egressGateway.enabled": ("enable-egress-gateway", "false", "cluster"),
    "MTU": ("mtu", "0", "cluster"),
    "bpf.datapathMode": ("datapath-mode", "veth", "node"),
    "enableIPv4BIGTCP": ("enable-ipv4-big-tcp", "false", "node"),
    "enableIPv6BIGTCP": ("enable-ipv6-big-tcp", "false", "node"),
    "devices": ("devices", "", "node"),
    "bpf.distributedLRU.enabled": ("bpf-distributed-lru", "false", "node"),
    "bpf.mapDynamicSizeRatio": ("bpf-map-dynamic-size-ratio", "0.0025", "node"),
    "bpfClockProbe": ("enable-bpf-clock-probe", "false", "node"),
    "loadBalancer.acceleration": ("bpf-lb-acceleration", "disabled", "node"),
}
# Values whose default differs between the upstream chart and RKE2's: taking one out is a change, whatever it was
NO_COMMON_DEFAULT = ("ipam.mode", "cni.chainingMode", "cni.exclusive", "ipv4.enabled", "ipv6.enabled")
# Values that change the DaemonSet and not its pod template: no agent restarts
HARMLESS = ("updateStrategy",)
POD_TEMPLATE = (
    "it changes the agents' pod template, or may: all agents restart, two at a time, on nodes that are not drained"
)
ROLL_OUT = "rollOutCiliumPods"
AT_ONCE = "with rollOutCiliumPods every change of the agents' configuration restarts all of them"
UNKNOWN = "what its last upgrade has changed is not known: all agents may restart"
WHOLE_CLUSTER = "nodes with and without it do not work together"
BY_NODE = "each agent takes it at its own restart"


def config_text(value):
    """A value as the chart writes it into the agent's configuration."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return " ".join(str(item) for item in value)
    return "%g" % value if isinstance(value, float) else str(value)


def differences(config, values, wanted):
    """[{"path", "text", "live", "wanted", "scope", "why"}] between what runs and what is wanted, by path.

    config   the live ConfigMap cilium-config's data; {} where there is none
    values   the chart values that are set now (of the HelmChartConfig or the Helm release); what they do not tell is taken from config
    wanted   the values to be set
    """
    live, rows = dict(leaves(values)), []
    new = dict(leaves(wanted))
    at_once = cilium.on(values, ROLL_OUT) or cilium.on(wanted, ROLL_OUT)
    for path in sorted(set(live) | set(new)):
        row = _difference(path, config, live, new)
        if row:
            if at_once and row["scope"] == "node":
                row.update(scope="cluster", why=AT_ONCE)
            rows.append(dict({"path": path, "text": _row_text(path, row)}, **row))
    return rows


def _row_text(path, row):
    return "%s: %s, wanted %s (%s)" % (path, _shown(row["live"], path), _shown(row["wanted"], path), row["why"])


def _difference(path, config, live, new):
    if path in CONFIG:
        key, absent, scope = CONFIG[path]
        now = str(config.get(key, absent))
        if new.get(path) is None:
            if live.get(path) is None:
                return None
            then = None if path in NO_COMMON_DEFAULT else absent
        else:
            then = config_text(new[path])
        if then is not None and _same(now, then):
            return None
        return {"live": now, "wanted": then, "scope": scope, "why": BY_NODE if scope == "node" else WHOLE_CLUSTER}
    if live.get(path) == new.get(path):
        return None
    harmless = path.split(".")[0] in HARMLESS
    return {
        "live": live.get(path),
        "wanted": new.get(path),
        "scope": "none" if harmless else "cluster",
        "why": "no agent restarts for it" if harmless else POD_TEMPLATE,
    }


def _same(one, other):
    if one == other:
        return True
    try:
        return float(one) == float(other)  # "0.0025" and "2.5e-03"
    except ValueError:
        return False


def of_release(release, runs, version, chart_differs=False):
    """Rows as of ``differences`` for what Helm changes beside the values: another chart, and what a failed upgrade has left.

    release   {"status": text, "chart": text} of the Helm release; chart_differs: whether Helm says that its chart is another one
    runs      version that runs, None where that is not known; version: the one wanted. Tuples
    """
    rows = []
    if runs and runs != version:
        rows.append(_cluster_row("cilium_version", cilium.shown(runs), cilium.shown(version), POD_TEMPLATE))
    elif chart_differs:
        rows.append(_cluster_row("cilium_helm_chart", release.get("chart"), "another chart", POD_TEMPLATE))
    status = release.get("status", "deployed")
    if status != "deployed":
        rows.append(_cluster_row("Helm release", status, "deployed", UNKNOWN))
    return rows


def _cluster_row(path, live, wanted, why):
    row = {"path": path, "live": live, "wanted": wanted, "scope": "cluster", "why": why}
    return dict(row, text=_row_text(path, row))


def unapplied(config, values):
    """Texts of what the agents' configuration does not have yet of the values; a list that is empty when RKE2 has applied them."""
    return [row["text"] for row in differences(config, values, values)]


def phases(rows, running, permitted, servers=True):
    """Names of what is written, one after the other: ["values"], or ["on_delete", "values"] for a cluster-wide change.

    running    whether Cilium has agents; permitted: the user's cilium_cluster_change
    servers    whether this run writes the values at all; without that, what is decided for nodes would fit another cluster
    A cluster-wide change of a running cluster is refused without the permission; with it, agents are first kept from restarting
    (updateStrategy OnDelete), so that each restarts in its own node's drain.
    """
    cluster = [row for row in rows if row["scope"] == "cluster"]
    if not running or not cluster:
        return ["values"]
    if not servers:
        raise HostprepError(
            "cilium_values_not_applied",
            "the running cluster has other values than those wanted, and this run has no server to write them on",
            read="; ".join(row["text"] for row in cluster)[:700],
            allowed="a run for nodes alone on a cluster that has the wanted values",
            cure="run the play for the servers first, or want what the cluster has",
        )
    if not permitted:
        raise HostprepError(
            "cilium_cluster_change",
            "these values change the data path of the whole running cluster",
            read="; ".join(
                "%s: %s, wanted %s"
                % (row["path"], _shown(row["live"], row["path"]), _shown(row["wanted"], row["path"]))
                for row in cluster
            )[:700],
            allowed="on a running cluster, only what a node takes in its own drain: %s" % ", ".join(by_node()),
            cure="plan a window for the whole cluster and set cilium_cluster_change: true for that run",
        )
    return ["on_delete", "values"]


def by_node():
    return sorted(path for path, (_key, _absent, scope) in CONFIG.items() if scope == "node")


ON_DELETE = {
    "updateStrategy": {"type": "OnDelete", "rollingUpdate": None}
}  # agents restart only when their pod is deleted


def unfinished(daemonset):
    """Whether agents of an OnDelete DaemonSet still run the old pod template, so that the strategy must stay."""
    status = daemonset.get("status") or {}
    return cilium.get(daemonset, "spec.updateStrategy.type") == "OnDelete" and status.get(
        "updatedNumberScheduled", 0
    ) < status.get("desiredNumberScheduled", 0)


_SECRET = re.compile(
    r"(?i)passw|token|secret|credential|private|kubeconfig|(?:^|[._-])key$|tls\.(?:.*\.)?(?:key|cert)$"
)


def secret(path):
    """Whether a value of the chart may be one, by its name."""
    return _SECRET.search(path) is not None


def sensitive(values):
    """Whether someone's values may have a secret among them, so that no text of them is shown."""
    return bool(secrets(values))


def secrets(values):
    """The texts among someone's values that may be secrets."""
    return [value for path, value in leaves(values) if secret(path) and isinstance(value, str) and value]


def _shown(value, path=""):
    if secret(path) and isinstance(value, str) and value:
        return "(left out)"
    return (
        "not set" if value in (None, "") else config_text(value) if not isinstance(value, dict) else json.dumps(value)
    )


# --- someone's own HelmChartConfig ----------------------------------------------------------------------------------------------------


def owned_paths(annotations):
    """Paths of the values that this collection wrote, from an object's annotations. A damaged list owns nothing."""
    try:
        paths = json.loads((annotations or {}).get(OWNED) or "[]")
    except ValueError:
        return []
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def join(existing, owned, wanted):
    """(values, owned paths): the wanted values merged into existing ones.

    Keys that someone else set stay. One that is wanted otherwise is refused. What was ours and is no longer wanted goes.
    """
    theirs = {path: value for path, value in leaves(existing) if path not in owned}
    ours = dict(leaves(wanted))
    conflicts = []
    for path, value in ours.items():
        if path in theirs:
            if theirs[path] != value:
                conflicts.append("%s: %s, wanted %s" % (path, _shown(theirs[path], path), _shown(value, path)))
            continue
        # one has a mapping where the other has a value
        conflicts += [
            "%s: %s, wanted %s: %s" % (other, _shown(theirs[other], other), path, _shown(value, path))
            for other in theirs
            if (other.startswith(path + ".") or path.startswith(other + ".")) and theirs[other] not in ({}, None)
        ]
    if conflicts:
        raise HostprepError(
            "cilium_foreign_value",
            "someone else's HelmChartConfig has another value for what this collection wants to set",
            read="; ".join(conflicts)[:700],
            allowed="keys that are not set there, or set to the same",
            cure="remove them there, or want the same in rke2_hostprep_cilium or cilium_values",
        )
    mine = sorted(path for path in ours if path not in theirs)
    kept = nested(
        {
            path: value
            for path, value in theirs.items()
            if value not in ({}, None) or not any(o.startswith(path + ".") for o in ours)
        }
    )
    return merged(kept, wanted), mine
