# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that carry Cilium's settings to a cluster and its nodes: HelmChartConfig, CiliumNodeConfig, node labels.

A CiliumNodeConfig for each gate selects the label of that gate; one for each node class carries what belongs to hardware (devices, map
sizes). No two of them set the same key, so the order in which Cilium applies them is of no matter.
"""

from __future__ import annotations

import hashlib
import json
import re

from .cilium import GATES, NODE_CONFIG
from .cilium_change import OWNED, config_text
from .errors import HostprepError

NAMESPACE = "kube-system"
GATE_LABELS = {
    "netkit": "rke2-hostprep.lo0/netkit",
    "big_tcp_ipv4": "rke2-hostprep.lo0/big-tcp-ipv4",
    "big_tcp_ipv6": "rke2-hostprep.lo0/big-tcp-ipv6",
}
CLASS_LABEL = "rke2-hostprep.lo0/node-class"
MANAGED_BY = {"app.kubernetes.io/managed-by": "lo0.rke2_hostprep"}
# what a node class may set: (key of the agent's configuration)
CLASS_KEYS = {"devices": "devices", "distributed_lru": "bpf-distributed-lru", "map_ratio": "bpf-map-dynamic-size-ratio"}
FAILURE_POLICIES = ("abort", "retry")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*\Z", re.ASCII)
_BLOCK = re.compile(r"[^\s].*[^\n]\n\Z", re.DOTALL)  # a text that a literal block gives back as it is
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def yaml_text(value, indent=0):
    """YAML of plain data: block style, texts in double quotes, texts of several lines as literal blocks. The same in every run."""
    space = "  " * indent
    if isinstance(value, dict) and value:
        return "".join("%s%s:%s" % (space, _key(key), _after(item, indent)) for key, item in value.items())
    if isinstance(value, (list, tuple)) and value:
        return "".join("%s-%s" % (space, _after(item, indent)) for item in value)
    return space + _scalar(value) + "\n"


def _after(value, indent):
    if isinstance(value, (dict, list, tuple)) and value:
        return "\n" + yaml_text(value, indent + 1)
    if isinstance(value, str) and _BLOCK.match(value) and value.replace("\n", "").isprintable():
        space = "  " * (indent + 1)
        return " |\n" + "".join((space + line if line else "") + "\n" for line in value[:-1].split("\n"))
    return " " + _scalar(value) + "\n"


def _key(key):
    key = str(key)
    return key if _PLAIN.match(key) and key.lower() not in _WORDS else _quoted(key)


def _scalar(value):
    if isinstance(value, float):
        text = "%.12g" % value
        return text if "e" not in text and "." in text else "%.10f" % value
    return _quoted(value) if isinstance(value, str) else json.dumps(list(value) if isinstance(value, tuple) else value)


def _quoted(text):
    """JSON's double quotes, but for what lies beyond 16 bits: there YAML knows no pairs."""
    return '"%s"' % "".join(
        "\\" + char if char in '"\\' else char if " " <= char <= "~" else _escape(ord(char)) for char in text
    )


def _escape(code):
    return "\\u%04x" % code if code < 0x10000 else "\\U%08x" % code


def helm_chart_config(values, owned, existing=None, failure_policy="abort"):
    """The HelmChartConfig rke2-cilium with these values. existing: the live object, whose other settings stay.

    failurePolicy is never "reinstall", the default: that answers a failed upgrade by uninstalling the cluster's network.
    """
    if failure_policy not in FAILURE_POLICIES:
        raise HostprepError(
            "cilium_failure_policy",
            "that failure policy would take the cluster's network away",
            read=str(failure_policy),
            allowed=", ".join(FAILURE_POLICIES),
            cure="set cilium_failure_policy to abort",
        )
    spec = dict((existing or {}).get("spec") or {})
    found = spec.get("failurePolicy")
    if found not in FAILURE_POLICIES:  # "reinstall" may be the API server's default as well as someone's wish
        found = failure_policy
    spec.update(failurePolicy=found, valuesContent=yaml_text(values) if values else "")
    return {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChartConfig",
        "metadata": {
            "name": "rke2-cilium",
            "namespace": NAMESPACE,
            "annotations": {OWNED: json.dumps(owned)},
        },
        "spec": spec,
    }


def node_config(name, selector, defaults):
    return {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNodeConfig",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(MANAGED_BY)},
        "spec": {"nodeSelector": {"matchLabels": selector}, "defaults": defaults},
    }


def gate_configs():
    """One CiliumNodeConfig for each gate; harmless as long as no node has the label."""
    return [
        node_config("rke2-hostprep-" + gate.replace("_", "-"), {GATE_LABELS[gate]: "true"}, dict(NODE_CONFIG[gate]))
        for gate in GATES
    ]


def class_settings(settings):
    """The agent's configuration of a node class. settings: {"devices": [...], "distributed_lru": bool, "map_ratio": number}."""
    unknown = sorted(set(map(str, settings)) - set(CLASS_KEYS))
    if unknown:
        raise HostprepError(
            "cilium_node_setting",
            "a node class has no such setting",
            read=", ".join(unknown)[:200],
            allowed=", ".join(sorted(CLASS_KEYS)),
            cure="remove or correct it in cilium_node_settings",
        )
    for name, value in settings.items():
        if value is not None and not _SETTING_FITS[name](value):
            raise HostprepError(
                "cilium_node_setting",
                "the setting %s of a node class is not usable" % name,
                read=repr(value)[:120],
                allowed=_SETTING_ALLOWED[name],
                cure="correct it in cilium_node_settings",
            )
    return {CLASS_KEYS[name]: config_text(value) for name, value in sorted(settings.items()) if value is not None}


_SETTING_FITS = {
    "devices": lambda value: isinstance(value, list) and value and all(isinstance(one, str) and one for one in value),
    "distributed_lru": lambda value: isinstance(value, bool),
    "map_ratio": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1,
}
_SETTING_ALLOWED = {
    "devices": "a list of names, or uplinks",
    "distributed_lru": "true or false without quotes",
    "map_ratio": "a number above 0 and at most 1",
}


def class_name(defaults):
    """Name of a node class: nodes with the same settings are of the same class. None where there is nothing to set."""
    if not defaults:
        return None
    return "c-" + hashlib.sha256(json.dumps(defaults, sort_keys=True).encode()).hexdigest()[:10]


def class_configs(all_defaults):
    """One CiliumNodeConfig for each class among the nodes' settings."""
    by_name = {class_name(defaults): defaults for defaults in all_defaults if defaults}
    return [
        node_config("rke2-hostprep-" + name, {CLASS_LABEL: name}, dict(defaults))
        for name, defaults in sorted(by_name.items())
    ]


def labels(gates, defaults):
    """{label: value or None} of a node: None is a label that it must not have. Only a gate that says True opens."""
    wanted = {GATE_LABELS[gate]: "true" if (gates.get(gate) or {}).get("eligible") is True else None for gate in GATES}
    wanted[CLASS_LABEL] = class_name(defaults)
    return wanted


def label_changes(wanted, live):
    """{label: value or None} that differ from a live node's labels."""
    return {name: value for name, value in wanted.items() if (live or {}).get(name) != value}


def text_labels(wanted):
    """RKE2's node-label, as a list: what a new node registers with."""
    return ["%s=%s" % (name, value) for name, value in sorted(wanted.items()) if value is not None]
