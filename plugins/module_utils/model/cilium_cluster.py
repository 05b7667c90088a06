# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done to a cluster's Cilium: from what the user wants and what the API server told, to the texts that are written."""

from __future__ import annotations

import re

from . import cilium, cilium_change, cilium_objects, cilium_values
from .errors import HostprepError, finding

# DaemonSets that tell a cluster's network plugin
PLUGINS = {
    "cilium": "cilium",
    "rke2-canal": "canal",
    "canal": "canal",
    "calico-node": "calico",
    "kube-flannel-ds": "flannel",
    "rke2-flannel": "flannel",
    "kube-flannel": "flannel",
    "weave-net": "weave",
    "antrea-agent": "antrea",
    "kube-router": "kube-router",
    "aws-node": "aws-vpc-cni",
}
MANIFEST = "rke2-hostprep-cilium"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)
_ADDON = "objectset.rio.cattle.io/owner-name"  # RKE2's deploy controller: the manifest that an object came from
_RELEASE = "meta.helm.sh/release-name"
_NAMESPACE = "meta.helm.sh/release-namespace"
_CHART = re.compile(r"-v?(\d+\.\d+\.\d+)", re.ASCII)
WRITTEN = "# Written by lo0.rke2_hostprep (role cilium); the same on every server\n"
RELEASES = {"rke2": "rke2-cilium", "helm": "cilium"}


def judge(wanted, live=None):
    """{"values", "version", "owned", "rows", "phases": [{"name", "version", "values", "object", "text"}], "warnings", "running", "sensitive",
    "node_objects"}.

    wanted  {"owner": "rke2" or "helm", "options": {…} of cilium_values.PROFILE, "values": {…} the user's own, "version": text or None,
            "chart_keys": table of tools/chart_keys.py, "chart_values": {…} of the user's chart or None, "extra_keys": [path],
            "cluster_change": bool, "failure_policy": text, "manifest": name of the manifest without suffix,
            "servers": False where this run has no server to write the values on,
            "rke2": what a server is given in RKE2's configuration, "same" of rke2_config.render; None where that is not known,
            "new_cluster": bool, "node_configs_by": "api" or "manifest", "uplinks": {node: those of its plan's
            "dataplane", None where it has none} of all nodes of the run}
    live    {"daemonsets": [objects], "config": object or None, "helm_chart_config": object, {} or None,
            "release": {"release_values" or (before 6.3.0) "values": {…}, "status": text, "chart": "cilium-1.19.6"}, what
            kubernetes.core.helm_info tells of the release; {} or None where there is none},
            "chart_differs": whether Helm says that the chart is another one, "nodes": the Node objects};
            None where there is no cluster yet
    """
    live = live or {}
    owner = wanted.get("owner") or "rke2"
    manifest = wanted.get("manifest") or MANIFEST
    if not _NAME.match(str(manifest)) or str(manifest) in (
        one["metadata"]["name"] for one in cilium_objects.gate_configs()
    ):
        raise HostprepError(
            "cilium_manifest_name",
            "RKE2 takes no manifest of that name, or another object of this collection has it",
            read=repr(manifest)[:80],
            allowed="a to z, 0 to 9 and -, without a suffix, such as %s" % MANIFEST,
            cure="correct cilium_manifest",
        )
    _check_way(wanted, owner)
    agents = _agents(live.get("daemonsets") or [], owner)
    release = (live.get("release") or {}) if owner == "helm" else {}
    runs = _running_version(agents, release)
    version, warnings = _version(wanted.get("version"), runs, agents, owner)
    values = cilium_values.merged(cilium_values.profile(wanted.get("options") or {}, owner), wanted.get("values") or {})
    _check_servers(owner, values, wanted.get("rke2"))
    keys, more = _check(values, version, wanted)
    warnings += more
    existing = (live.get("helm_chart_config") or None) if owner == "rke2" else None
    set_now, theirs, owned = _set_now(existing, release.get("release_values", release.get("values")), wanted)
    if agents and cilium_change.unfinished(agents):
        values = cilium_values.merged(values, cilium_change.ON_DELETE)
        warnings.append(
            finding(
                "cilium_agents_old",
                "some agents still run what was set before; they stay as they are until their pod is deleted in their node's drain",
                "run the maintenance window on the nodes that are left",
                "%s of %s agents are up to date"
                % (
                    cilium.get(agents, "status.updatedNumberScheduled", 0),
                    cilium.get(agents, "status.desiredNumberScheduled", 0),
                ),
            )
        )
    if owner == "helm" and not agents:
        warnings += _first_install(wanted, live.get("nodes") or [])
    whole, mine = cilium_change.join(theirs, owned, values)
    warnings += _check_whole(whole, mine, keys, version, wanted)
    config = (live.get("config") or {}).get("data") or {}
    rows = cilium_change.differences(config, set_now, whole) if agents else []
    unknown = release.get("status", "deployed") != "deployed"
    if agents and owner == "helm":
        rows = cilium_change.of_release(release, runs, version, live.get("chart_differs") is True) + rows
    names = cilium_change.phases(
        rows, bool(agents), wanted.get("cluster_change") is True, wanted.get("servers") is not False
    )
    phases = []
    if names != ["values"]:
        if not unknown:
            # Helm takes what is not given as not wanted: a release of one's own has its values again
            kept = _ours(theirs, owned) if owner == "rke2" else set_now
            first = cilium_change.join(theirs, owned, cilium_values.merged(kept, cilium_change.ON_DELETE))
            phases.append(_phase("on_delete", runs or version, first, existing, wanted))
        whole, mine = cilium_change.join(theirs, owned, cilium_values.merged(values, cilium_change.ON_DELETE))
    phases.append(_phase("values", version, (whole, mine), existing, wanted))
    return {
        "values": whole,
        "version": cilium.shown(version),
        "owned": mine,
        "rows": rows,
        "phases": phases,
        "warnings": warnings,
        "running": bool(agents),
        "sensitive": any(cilium_change.sensitive(phase["values"]) for phase in phases),
        "node_objects": cilium_objects.gate_configs(),
    }


def _check_way(wanted, owner):
    """The CiliumNodeConfig objects get to the cluster."""
    by, new = wanted.get("node_configs_by"), wanted.get("new_cluster") is True
    if owner == "helm" and by == "manifest":
        raise HostprepError(
            "cilium_node_configs_nowhere",
            "with a Helm release of one's own no manifests are written, and the CiliumNodeConfig objects would go nowhere",
            read="cilium_owner: helm, cilium_node_configs_by: manifest",
            allowed="cilium_node_configs_by: api, the default there",
            cure="leave cilium_node_configs_by out",
        )
    if owner == "rke2" and new and by == "api":
        raise HostprepError(
            "cilium_node_configs_nowhere",
            "a cluster that does not exist yet has no API, and the CiliumNodeConfig objects would go nowhere",
            read="cilium_new_cluster: true, cilium_node_configs_by: api",
            allowed="cilium_node_configs_by: manifest, the default there",
            cure="leave cilium_node_configs_by out",
        )


def _first_install(wanted, nodes):
    """[finding] where Helm is yet to install Cilium: the kind CiliumNodeConfig comes with its operator, after the first agents."""
    if wanted.get("new_cluster") is True:
        return [
            finding(
                "cilium_helm_needs_api",
                "a Helm release needs the API: nothing is written for a cluster that does not exist yet",
                "run the role again without cilium_new_cluster once the API server answers",
                "cilium_owner: helm, cilium_new_cluster: true",
            )
        ]
    gates = set(cilium_objects.GATE_LABELS.values())
    early = sorted(
        cilium.get(node, "metadata.name", "") for node in nodes if gates & set(cilium.get(node, "metadata.labels", {}))
    )
    if not early:
        return []
    return [
        finding(
            "cilium_labels_early",
            "nodes have labels of the data path already, and their first agents start before there is a CiliumNodeConfig: their pods get the"
            " base's data path, over which the next agent does not start",
            "take the labels off before Cilium is installed, or drain and reboot these nodes right after it",
            ", ".join(early)[:300],
        )
    ]


def _ours(values, owned):
    """The part of live values that this collection wrote."""
    return cilium_values.nested({path: value for path, value in cilium_values.leaves(values) if path in owned})


def _phase(name, version, joined, existing, wanted):
    values, owned = joined
    written = cilium_objects.helm_chart_config(values, owned, existing, wanted.get("failure_policy") or "abort")
    text = WRITTEN + cilium_objects.yaml_text(written)
    return {"name": name, "version": cilium.shown(version), "values": values, "object": written, "text": text}


def manifests(judged, phase, folder, name, node_configs=()):
    """The files on a server, as host_files takes them: the HelmChartConfig of a phase, and one for each CiliumNodeConfig.

    A file of its own for each: RKE2 removes an object from the cluster when it goes from a manifest that stays.
    """
    text = next(one["text"] for one in judged["phases"] if one["name"] == phase)
    found = [_manifest(folder, name, text, judged["sensitive"])]
    for one in node_configs:
        text = WRITTEN + cilium_objects.yaml_text(one)
        found.append(_manifest(folder, one["metadata"]["name"], text, False))
    return found


def _manifest(folder, name, text, sensitive):
    return {"path": "%s/%s.yaml" % (folder, name), "mode": "0600", "content": text, "sensitive": sensitive}


def _agents(daemonsets, owner):
    """Cilium's DaemonSet, or None where the cluster has no network plugin yet. Refuses another plugin and another owner."""
    found = {}
    for daemonset in daemonsets:
        name = cilium.get(daemonset, "metadata.name")
        if name in PLUGINS:
            found[PLUGINS[name]] = daemonset
    others = sorted(set(found) - {"cilium"})
    if others:
        raise HostprepError(
            "cni_differs",
            "the cluster runs another network plugin, and a running cluster's plugin cannot be exchanged",
            read=", ".join(others),
            allowed="cilium, or a cluster without any yet",
            cure="build a new cluster with cni: cilium and move the workloads",
        )
    agents = found.get("cilium")
    if agents is None:
        return None
    annotations = cilium.get(agents, "metadata.annotations") or {}
    release, namespace = annotations.get(_RELEASE), annotations.get(_NAMESPACE) or cilium_objects.NAMESPACE
    found = (release, namespace)
    if release and found != (RELEASES[owner], cilium_objects.NAMESPACE):
        other = next((name for name in RELEASES if found == (RELEASES[name], cilium_objects.NAMESPACE)), None)
        raise HostprepError(
            "cilium_two_owners",
            "Cilium was installed by another Helm release, and two releases fight over the same objects",
            read="release %s in namespace %s" % found,
            allowed="release %s in namespace %s (cilium_owner: %s)"
            % (RELEASES[owner], cilium_objects.NAMESPACE, owner),
            cure="set cilium_owner: %s" % other
            if other
            else "go on with what installed that release, without this role",
        )
    return agents


def _check_servers(owner, values, rke2):
    """What RKE2's configuration says must fit: the chart that it installs, and who answers for services."""
    if not rke2:
        return
    cni = rke2.get("cni", "canal")
    names = cni if isinstance(cni, (list, tuple)) else str(cni).split(",")
    right = "cilium" if owner == "rke2" else "none"
    if right not in [str(name).strip() for name in names]:
        raise HostprepError(
            "cilium_cni_of_rke2",
            "RKE2's own network plugin on the servers does not fit",
            read="cni: %s, cilium_owner: %s" % (",".join(map(str, names)), owner),
            allowed="cni: cilium with cilium_owner: rke2, cni: none with cilium_owner: helm",
            cure="correct rke2_cni or cilium_owner",
        )
    proxy = rke2.get("disable-kube-proxy", False)
    if (cilium.get(values, "kubeProxyReplacement") is True) != (str(proxy).lower() == "true"):
        raise HostprepError(
            "cilium_kube_proxy_of_rke2",
            "either kube-proxy or Cilium answers for services, and never both or none",
            read="kubeProxyReplacement: %s, disable-kube-proxy: %s"
            % (str(cilium.get(values, "kubeProxyReplacement")).lower(), str(proxy).lower()),
            allowed="disable-kube-proxy: true with kubeProxyReplacement: true, or both false",
            cure="set rke2_disable_kube_proxy: true on the servers",
        )


def _image(agents):
    """The agents' image without its digest, "" where there is none."""
    for container in cilium.get(agents or {}, "spec.template.spec.containers", []):
        if container.get("name") == "cilium-agent":
            return str(container.get("image") or "").partition("@")[0]
    return ""


def _running_version(agents, release):
    """Of the Helm release, as Helm compares it, else of the agents' image; None where neither tells one."""
    chart = _CHART.search(str(release.get("chart") or "")) if agents else None
    text = chart.group(1) if chart else _image(agents).rpartition(":")[2].lstrip("v")
    try:
        return cilium.release(text) if text else None
    except HostprepError:
        return None  # a tag of one's own


def _version(given, runs, agents, owner):
    """(tuple, warnings). RKE2 decides which Cilium it ships: what runs is read, what is given is compared with it."""
    image = _image(agents)
    if given is None and runs is None:
        raise HostprepError(
            "cilium_version_needed",
            "Cilium's version is not known: nothing runs that would tell it",
            read="no cilium_version" + (", image %s" % image if image else ""),
            allowed="three numbers, such as 1.19.6, or RKE2's chart version 1.19.601",
            cure="set cilium_version to the one that this RKE2 release ships (docs/cilium.md has a table)",
        )
    version = cilium.release(given) if given is not None else runs
    if runs and runs != version and owner == "rke2":  # a Helm release of one's own gets the one that is given
        return version, [
            finding(
                "cilium_version_differs",
                "another Cilium runs than the one that is checked for",
                "correct cilium_version, unless RKE2 is about to be upgraded",
                "cilium_version %s, running %s" % (cilium.shown(version), cilium.shown(runs)),
            )
        ]
    return version, []


def _check(values, version, wanted):
    """Keys and kinds of our values: (the chart's keys, [finding])."""
    table, own = wanted.get("chart_keys"), wanted.get("chart_values")
    keys, note = {}, None
    if own:
        keys = cilium_values.keys_of_values(own)
        try:  # keys that a values.yaml only has as a comment
            known, _note = cilium_values.chart_keys(table, version)
            free = [path + "." for path, kinds in known.items() if "o" in kinds]  # mappings of any keys, such as labels
            keys = {path: kinds for path, kinds in keys.items() if not path.startswith(tuple(free))}
            inner = {path.rpartition(".")[0] for path in keys}
            keys = dict({path: kinds for path, kinds in known.items() if path not in inner}, **keys)
        except HostprepError:
            pass
    else:
        keys, note = cilium_values.chart_keys(table, version)
    if (wanted.get("owner") or "rke2") == "rke2":
        keys.update(cilium_values.RKE2_KEYS)
    keys.update(dict.fromkeys(wanted.get("extra_keys") or [], "?"))
    cilium_values.check_keys(values, keys)
    return keys, [note] if note else []


def _check_whole(values, owned, keys, version, wanted):
    """What must not stand together, whoever set it; [finding]. values: ours and someone else's."""
    options = wanted.get("options") or {}
    fabric = options.get("fabric_has_routes") is True
    uplinks = {node: [link["name"] for link in links or []] for node, links in (wanted.get("uplinks") or {}).items()}
    warnings = cilium_values.check_pairs(values, version, fabric, uplinks)
    theirs = cilium_values.nested({path: value for path, value in cilium_values.leaves(values) if path not in owned})
    unknown = cilium_values.unknown_keys(theirs, keys)
    if unknown:
        warnings.append(
            finding(
                "cilium_foreign_key",
                "someone else's HelmChartConfig has keys that the chart does not have, and takes without a word",
                "correct or remove them there",
                ", ".join(unknown)[:300],
            )
        )
    return warnings


def _set_now(existing, release_values, wanted):
    """(values that are set now, those that may be someone else's, paths among them that are ours)."""
    if existing is None:
        return release_values or {}, {}, []
    metadata = existing.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    manifest = wanted.get("manifest") or MANIFEST
    origin = annotations.get(_ADDON)
    if origin and origin != manifest:
        raise HostprepError(
            "cilium_foreign_manifest",
            "the HelmChartConfig rke2-cilium comes from another manifest on the servers, and two manifests overwrite each other",
            read="manifest %s" % origin,
            allowed="manifest %s" % manifest,
            cure="if that file has nothing else, set cilium_manifest: %s (the file is kept and can be given back);"
            " else take the object out of it" % origin,
        )
    values = existing.get("values_parsed")
    spec = existing.get("spec") or {}
    elsewhere = dict(cilium_values.leaves(spec.get("values") or {}))
    mixed = sorted(
        path
        for path, _value in cilium_values.leaves(cilium_values.profile(wanted.get("options") or {}))
        if path in elsewhere
    )
    if mixed:
        raise HostprepError(
            "cilium_foreign_value",
            "someone else's HelmChartConfig sets in spec.values what this collection sets in spec.valuesContent",
            read=", ".join(mixed)[:300],
            allowed="keys that are not set there",
            cure="remove them there",
        )
    if not isinstance(values, dict):
        raise HostprepError(
            "cilium_foreign_unreadable",
            "the values in the HelmChartConfig rke2-cilium cannot be read",
            read="%d characters, which may hold secrets and are not shown" % len(str(spec.get("valuesContent") or "")),
            allowed="a YAML mapping in spec.valuesContent",
            cure="correct it",
        )
    return values, values, cilium_change.owned_paths(annotations)


def node(gate, settings, context):
    """What a node gets: {"gates", "gates_text", "labels", "defaults", "class", "node_label", "maps", "pending", "warnings"}.

    node_label: what a new node may register with; gates_text: the gate's answers, a line each
    pending: {label: [value now, value wanted]} of a node that the API has; it changes in the node's own drain alone.

    gate      {"gates", "dataplane"} of the data path gate
    settings  {"devices", "distributed_lru", "map_ratio"} of the node's hardware; what is absent has the base's value
              devices may be "uplinks": those that the gate found
    context   {"version": text, "values": the cluster's values, "irq_cpus": number, "known_bad_releases": list,
              "name": the node's name in the API, "nodes": the Node objects that the API has, None where there is no cluster yet,
              "owner": "rke2" or "helm", "running": whether Cilium has agents (default: yes), "server": whether the node is a server}
    gates are those of the gate, closed by what the values exclude. maps is None where the node's memory or CPUs are not known
    """
    version = cilium.release(context["version"]) if context.get("version") else None
    values = context.get("values")
    gates = dict(gate["gates"])
    if values is not None:
        for name, reasons in cilium.exclusions(values, version, context.get("known_bad_releases")).items():
            known = [reason["code"] for reason in gates.get(name, {}).get("reasons", [])]
            new = [reason for reason in reasons if reason["code"] not in known]
            if new and gates.get(name, {}).get("eligible") is not False:
                gates[name] = {"eligible": False, "reasons": new}
    read = gate.get("dataplane") or {}
    settings = _with_uplinks(settings, read)
    defaults = cilium_objects.class_settings(settings)
    gates = _judged_devices(gates, defaults.get("devices") or (values or {}).get("devices"), read)
    wanted = cilium_objects.labels(gates, defaults)
    pending, warnings = _pending(wanted, gates, context)
    registers, more = _registers(cilium_objects.text_labels(wanted), context)
    warnings = warnings + more
    lru, ratio = settings.get("distributed_lru") is True, settings.get("map_ratio")
    maps = None
    if read.get("memory_mib") and read.get("possible_cpus"):
        maps = cilium_values.map_sizes(
            read["memory_mib"] << 20,
            read["possible_cpus"],
            ratio,
            lru,
            context.get("irq_cpus"),
            2 if values and values.get("ipv6NativeRoutingCIDR") and values.get("ipv4NativeRoutingCIDR") else 1,
            version,
            context.get("known_bad_releases"),
        )
    elif lru or ratio is not None:
        raise HostprepError(
            "cilium_maps_unknown",
            "map sizes are set for a node whose memory or possible CPUs are not known, so what they cost cannot be said",
            read="memory %s MiB, possible CPUs %s" % (read.get("memory_mib"), read.get("possible_cpus")),
            allowed="nodes whose sys/ tells both",
            cure="run on the host itself, or leave distributed_lru and map_ratio out",
        )
    return {
        "gates": gates,
        "gates_text": [_gate_text(name, answer) for name, answer in gates.items()],
        "labels": wanted,
        "defaults": defaults,
        "class": cilium_objects.class_name(defaults),
        "node_label": registers,
        "maps": maps,
        "pending": pending,
        "warnings": warnings,
    }


def _gate_text(name, answer):
    if answer.get("eligible") is True:
        return name + ": yes"
    reasons = [
        reason["code"] + (" (%s)" % reason["read"] if reason.get("read") else "")
        for reason in answer.get("reasons") or []
    ]
    said = "no" if answer.get("eligible") is False else "not known, so no"
    return "%s: %s; %s" % (name, said, ", ".join(reasons))


def _registers(labels, context):
    """(labels that a new node may register with, [finding]).

    An agent that finds no CiliumNodeConfig, nor the kind, starts with the base without a word; the kind is made by Cilium's operator, which
    starts with the first agents.
    """
    if not labels or context.get("running", True):
        return labels, []
    read = ", ".join(labels)
    if context.get("owner") == "helm" or context.get("server"):
        return [], [
            finding(
                "cilium_labels_later",
                "the node's first agent starts before Cilium's operator has made the kind CiliumNodeConfig, and takes the base's data path"
                " whatever its labels say; the node registers without them",
                "once Cilium runs, give the node its maintenance window: drain, labels, reboot",
                read,
            )
        ]
    return labels, [
        finding(
            "cilium_joins_later",
            "the node registers with its labels, which its first agent follows only if the CiliumNodeConfig objects are there by then",
            "start RKE2 on it once `kubectl -n kube-system get ciliumnodeconfigs` lists them",
            read,
        )
    ]


def _judged_devices(gates, devices, read):
    """The gates, those of BIG TCP closed where Cilium is to use a device that was not looked at: the smallest limit of all decides."""
    names = devices.replace(",", " ").split() if isinstance(devices, str) else devices or []
    seen = {
        name for link in read.get("uplinks") or [] for name in [link["name"], *(nic["name"] for nic in link["nics"])]
    }
    missing = [name for name in names if name not in seen and not set(name) & set("+!*")]
    if not seen or not missing:
        return gates
    reason = finding(
        "cilium_devices_not_judged",
        "Cilium is to use a device whose limit was not looked at, and gives all devices the smallest limit of them",
        "name it in uplinks of rke2_hostprep_dataplane, or take it out of devices",
        "devices %s, judged %s" % (", ".join(names), ", ".join(sorted(seen))),
    )
    return {
        gate: {"eligible": False, "reasons": [reason]}
        if gate in cilium.BIG_TCP and answer.get("eligible") is not False
        else answer
        for gate, answer in gates.items()
    }


def _with_uplinks(settings, read):
    """The settings of a node class with the uplinks of the gate, where devices says ``uplinks``."""
    if settings.get("devices") != "uplinks":
        return settings
    names = [link["name"] for link in read.get("uplinks") or []]
    if not names:
        raise HostprepError(
            "cilium_uplinks_unknown",
            "devices of the node are to be its uplinks, and none is known",
            read="devices: uplinks, no uplink in what the data path gate read",
            allowed="a host with a default route, or uplinks named for the gate",
            cure="name them in rke2_hostprep_dataplane (uplinks), or list devices",
        )
    return dict(settings, devices=names)


def _pending(wanted, gates, context):
    """({label: [now, wanted]}, [finding]) of a node that the API has."""
    if context.get("nodes") is None:
        return {}, []
    live = next((one for one in context["nodes"] if cilium.get(one, "metadata.name") == context.get("name")), None)
    if live is None:
        return {}, [
            finding(
                "cilium_node_not_there",
                "the cluster has no node of this name yet",
                "give a new node its labels by RKE2's node-label (cilium_node.node_label), or correct cilium_node_name",
                str(context.get("name")),
            )
        ]
    has = cilium.get(live, "metadata.labels", {})
    pending = {name: [has.get(name), value] for name, value in cilium_objects.label_changes(wanted, has).items()}
    shown = ", ".join(
        "%s: %s, wanted %s" % (name, *(each or "none" for each in pair)) for name, pair in pending.items()
    )
    lost = [
        gate for gate, label in cilium_objects.GATE_LABELS.items() if label in pending and pending[label][1] is None
    ]
    if lost:
        reasons = "; ".join("%s: %s" % (gate, gates[gate]["reasons"][0]["code"]) for gate in lost)
        return pending, [
            finding(
                "cilium_node_lost",
                "the node runs a data path that it may no longer have; it stays so until its own drain (%s)" % reasons,
                "clear what is against it, or give the node its maintenance window: drain, labels, reboot",
                shown,
            )
        ]
    if pending:
        return pending, [
            finding(
                "cilium_node_waits",
                "the node is to get another data path or other settings, which changes in its own drain alone",
                "give the node its maintenance window: drain, labels, reboot",
                shown,
            )
        ]
    return {}, []


def label_patch(wanted, node_object, pods):
    """JSON patch that brings a live node's labels to those wanted; [] where they are. Refused unless the node is drained.

    wanted: "labels" of ``node``; node_object: the Node; pods: all Pods on it. The agent does not start over pods of the other data
    path, so labels change only when nothing but host-network, static and DaemonSet pods is left, and the reboot comes next.
    """
    live = cilium.get(node_object, "metadata.labels", {})
    changes = cilium_objects.label_changes(wanted, live)
    if not changes:
        return []
    left = [pod for pod in pods if _in_the_way(pod)]
    cordoned = cilium.get(node_object, "spec.unschedulable") is True
    if left or not cordoned:
        names = ["%s/%s" % (pod["metadata"].get("namespace"), pod["metadata"].get("name")) for pod in left]
        raise HostprepError(
            "cilium_node_not_drained",
            "the node's data path is to change, and it is not drained",
            read="%s; labels to change: %s"
            % (
                "cordoned" if cordoned else "not cordoned",
                ", ".join("%s=%s" % (name, value or "(none)") for name, value in sorted(changes.items())),
            )
            + ("; pods: %s" % ", ".join(sorted(names)[:8]) if names else ""),
            allowed="a cordoned node without pods of its own network, DaemonSet pods aside",
            cure="drain the node, run the role cilium with tasks_from: label, then reboot it",
        )
    patch = (
        []
        if "labels" in (node_object.get("metadata") or {})
        else [{"op": "add", "path": "/metadata/labels", "value": {}}]
    )
    for name, value in sorted(changes.items()):
        place = "/metadata/labels/" + name.replace("~", "~0").replace("/", "~1")
        patch.append({"op": "remove", "path": place} if value is None else {"op": "add", "path": place, "value": value})
    return patch


def _in_the_way(pod):
    if cilium.get(pod, "status.phase") in ("Succeeded", "Failed") or cilium.get(pod, "spec.hostNetwork") is True:
        return False
    metadata = pod.get("metadata") or {}
    owners = [owner.get("kind") for owner in metadata.get("ownerReferences") or []]
    return "DaemonSet" not in owners and "kubernetes.io/config.mirror" not in (metadata.get("annotations") or {})
