# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of Cilium's chart for a cluster: the performance profile, and what is checked before a chart sees them.

A chart's schema accepts misspelt keys, and what renders may still end the agent: keys, kinds and pairs are checked here. The base is
safe for every node; what a node may have beyond it goes to that node alone (cilium_objects.py).
"""

from __future__ import annotations

import difflib
import re

from . import cilium
from .errors import HostprepError, finding

PROFILE = {
    "cluster_cidr": {"type": "list", "elements": "str", "default": ["10.42.0.0/16"]},
    "ipv4_native_routing_cidr": {"type": "str"},
    "ipv6_native_routing_cidr": {"type": "str"},
    "auto_direct_node_routes": {"type": "bool", "default": False},
    "fabric_has_routes": {"type": "bool", "default": False},
    "k8s_service_host": {"type": "str", "default": "localhost"},
    "k8s_service_port": {"type": "int", "default": 6443},
    "chaining_mode": {"type": "str", "default": "none"},
    "devices": {"type": "list", "elements": "str"},
    "clock_probe": {"type": "bool", "default": True},
}
XDP = "loadBalancer.acceleration"
# What is not for every node, and what the base must therefore have
BASE = {
    "bpf.datapathMode": "veth",
    "enableIPv4BIGTCP": False,
    "enableIPv6BIGTCP": False,
    "bpf.distributedLRU.enabled": False,
    "bpf.mapDynamicSizeRatio": None,
    XDP: "disabled",
}
CHOICES = {
    "routingMode": ("native", "tunnel"),
    "tunnelProtocol": ("vxlan", "geneve"),
    "bpf.datapathMode": ("veth", "netkit", "netkit-l2", "auto"),
    XDP: ("disabled", "native", "best-effort"),
    "loadBalancer.mode": ("snat", "dsr", "hybrid", "annotation"),
    "loadBalancer.dsrDispatch": ("opt", "ipip", "geneve"),
    "encryption.type": ("ipsec", "wireguard", "ztunnel"),
    "updateStrategy.type": ("RollingUpdate", "OnDelete"),
}
# Keys that RKE2 adds to the chart that it ships
RKE2_KEYS = {
    "global.clusterCIDRv4": "s",
    "global.clusterCIDRv6": "s",
    "global.systemDefaultRegistry": "s",
    "portmapPlugin.image.repository": "s",
    "portmapPlugin.image.tag": "s",
}
_KIND_NAMES = {
    "b": "true or false",
    "i": "a whole number",
    "n": "a number",
    "s": "a text",
    "a": "a list",
    "o": "a mapping",
}
_STEP = re.compile(r"(?:\\.|[^.\\])+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CIDR4 = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})\Z", re.ASCII)
_CIDR6 = re.compile(r"[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/(\d{1,3})\Z", re.ASCII)


# --- trees of values -------------------------------------------------------------------------------------------------------------


def step(key):
    """A key as a part of a dotted path, its own dots escaped as `helm --set` wants them: kubernetes\\.io/os."""
    return re.sub(r"([.\\])", r"\\\1", str(key))


def leaves(values, prefix=""):
    """[(dotted path, value)] of a tree in its own order; an empty mapping and a list are leaves."""
    found = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found += leaves(value, "%s%s." % (prefix, step(key)))
        else:
            found.append((prefix + step(key), value))
    return found


def merged(base, more):
    """The base with `more` laid over it, mapping by mapping; neither is changed."""
    result = dict(base)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def nested(paths):
    """The tree of {dotted path: value}."""
    tree = {}
    for path, value in paths.items():
        *above, last = (_ESCAPED.sub(r"\1", part) for part in _STEP.findall(path))
        place = tree
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return tree


# --- the profile -----------------------------------------------------------------------------------------------------------------


def cidr_family(text):
    """4 or 6; None where it is no CIDR."""
    match = _CIDR4.match(str(text))
    if match:
        *parts, length = (int(part) for part in match.groups())
        return 4 if max(parts) <= 255 and length <= 32 else None
    match = _CIDR6.match(str(text))
    return 6 if match and int(match.group(1)) <= 128 else None


def profile(given, owner="rke2"):
    """Chart values of the performance profile. given: options of PROFILE; owner: "rke2" (its chart) or "helm" (the upstream one).

    XDP stays off: it helps traffic from outside to a service whose pod is on another node, and nothing else.
    """
    options = _profile_options(given)
    native = {4: options["ipv4_native_routing_cidr"], 6: options["ipv6_native_routing_cidr"]}
    for cidr in options["cluster_cidr"]:
        family = cidr_family(cidr)
        native[family] = native[family] or cidr
    if not options["auto_direct_node_routes"] and not options["fabric_has_routes"]:
        raise HostprepError(
            "cilium_routes_missing",
            "native routing needs routes between the nodes, and nothing says who makes them",
            read="auto_direct_node_routes: false, fabric_has_routes: false",
            allowed="auto_direct_node_routes: true where all nodes are on one L2 network, fabric_has_routes: true where the network routes pod CIDRs",
            cure="set the one that is so in rke2_hostprep_cilium",
        )
    values = {
        "routingMode": "native",
        "autoDirectNodeRoutes": options["auto_direct_node_routes"],
        "kubeProxyReplacement": True,
        "k8sServiceHost": options["k8s_service_host"],
        "k8sServicePort": options["k8s_service_port"],
        "cni": {"chainingMode": options["chaining_mode"]},
        "bpf": {"masquerade": True, "datapathMode": "veth", "distributedLRU": {"enabled": False}},
        "bpfClockProbe": options["clock_probe"],
        "enableIPv4BIGTCP": False,
        "enableIPv6BIGTCP": False,
        "loadBalancer": {"acceleration": "disabled"},
    }
    if native[4]:
        values["ipv4NativeRoutingCIDR"] = native[4]
    if native[6]:
        values["ipv6NativeRoutingCIDR"] = native[6]
    if options["devices"]:
        values["devices"] = list(options["devices"])
    if owner == "helm":  # RKE2's chart takes these from the cluster's CIDRs and has its own defaults
        families = {cidr_family(cidr) for cidr in options["cluster_cidr"]}
        values.update(ipv4={"enabled": 4 in families}, ipv6={"enabled": 6 in families}, ipam={"mode": "kubernetes"})
    return values


def _profile_options(given):
    if not isinstance(given, dict):
        raise _unusable("options", given, "a mapping")
    unknown = sorted(str(key) for key in given if key not in PROFILE)
    if unknown:
        raise HostprepError(
            "cilium_option_unknown",
            "the Cilium profile has no such option",
            read=", ".join(unknown)[:200],
            allowed=", ".join(sorted(PROFILE)),
            cure="remove or correct it; values of the chart go to cilium_values",
        )
    options = {}
    for option, spec in PROFILE.items():
        value = given.get(option)
        value = spec.get("default") if value is None else value
        if option == "cluster_cidr" and isinstance(value, str):
            value = [part.strip() for part in value.split(",")]  # as RKE2's configuration has it
        if value is not None and not _FITS[spec["type"]](value):
            raise _unusable(option, value, _ALLOWED[spec["type"]])
        options[option] = value
    for option, families in (
        ("cluster_cidr", (4, 6)),
        ("ipv4_native_routing_cidr", (4,)),
        ("ipv6_native_routing_cidr", (6,)),
    ):
        value = options[option]
        for cidr in value if isinstance(value, list) else [value] if value else []:
            if cidr_family(cidr) not in families:
                raise _unusable(
                    option, cidr, "a CIDR such as %s" % ("10.42.0.0/16" if 4 in families else "fd00:42::/56")
                )
    return options


_FITS = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536,
    "str": lambda value: isinstance(value, str) and value != "",
    "list": lambda value: (
        isinstance(value, list) and bool(value) and all(isinstance(item, str) and item for item in value)
    ),
}
_ALLOWED = {"bool": "true or false", "int": "a port from 1 to 65535", "str": "a text", "list": "a list of texts"}


def _unusable(option, value, allowed):
    return HostprepError(
        "cilium_option_invalid",
        "the option %s of the Cilium profile is not usable" % option,
        read=repr(value)[:120],
        allowed=allowed,
        cure="correct it in rke2_hostprep_cilium",
    )


# --- keys and kinds ----------------------------------------------------------------------------------------------------------------


def chart_keys(table, version):
    """({dotted path: kinds}, finding or None) of a chart. table: what tools/chart_keys.py wrote; version: a tuple.

    A release that is not in the table is checked against the nearest one of its minor version; one of another minor is refused.
    """
    known = {cilium.release(text): text for text in table["versions"]}
    same = sorted((abs(each[2] - version[2]), each) for each in known if each[:2] == version[:2])
    if not same:
        raise HostprepError(
            "cilium_chart_unknown",
            "the keys of this chart are not known",
            read="Cilium " + cilium.shown(version),
            allowed="releases of " + ", ".join(sorted({cilium.shown(each[:2]) for each in known})),
            cure="give the chart's own values in cilium_chart_values_file (helm show values)",
        )
    nearest = same[0][1]
    note = None
    if nearest != version:
        note = finding(
            "cilium_chart_nearest",
            "the keys are checked against the nearest chart that is known",
            "to be exact, give the chart's own values in cilium_chart_values_file (helm show values)",
            "Cilium %s, chart %s" % (cilium.shown(version), cilium.shown(nearest)),
        )
    return dict(_flat(table["keys"], known[nearest])), note


def _flat(tree, version, prefix=""):
    for key, value in tree.items():
        if isinstance(value, str):
            yield prefix + key, value
            continue
        by_version = value.get("", {})
        if version in by_version:
            yield prefix + key, by_version[version]
        yield from _flat({name: below for name, below in value.items() if name}, version, prefix + key + ".")


def keys_of_values(values):
    """{dotted path: kinds} of a chart's own values (helm show values), where a null may be anything."""
    letters = ((bool, "b"), (int, "i"), (float, "n"), (str, "s"), (list, "a"), (dict, "o"))
    return {
        path: next((letter for kind, letter in letters if isinstance(value, kind)), "?")
        for path, value in leaves(values)
    }


def check_keys(values, keys):
    """Refuses a key that the chart does not have, and a value of the wrong kind. keys: {dotted path: kinds}."""
    inner = {path[: match.start()] for path in keys for match in re.finditer(r"\.", path)}
    _check_tree(values, "", keys, inner)


def unknown_keys(values, keys):
    """Paths of the values that the chart does not have."""
    found = []
    for path, value in leaves(values):
        try:
            check_keys(nested({path: value}), keys)
        except HostprepError as error:
            found += [path] if error.code == "cilium_key_unknown" else []
    return found


def _check_tree(values, prefix, keys, inner):
    for key, value in values.items():
        path = prefix + step(key)
        if path in keys:
            _check_kind(path, value, keys[path])
        elif path in inner:
            if isinstance(value, dict):
                _check_tree(value, path + ".", keys, inner)
            elif value is not None:
                raise _wrong_kind(path, value, "o")
        else:
            near = difflib.get_close_matches(path, [*keys, *inner], 1, 0.6) or [
                other for other in sorted(keys) if other.rpartition(".")[2].lower() == str(key).lower()
            ]
            raise HostprepError(
                "cilium_key_unknown",
                "the chart has no such key, and its schema would accept it without a word",
                read=path,
                allowed="keys of the chart",
                cure="did you mean %s?" % near[0]
                if near
                else "remove it, or give cilium_chart_values_file if your chart has it",
            )


def _check_kind(path, value, kinds):
    if "b" in kinds and isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "on", "off"):
        raise HostprepError(
            "cilium_quoted_boolean",
            "a switch of the chart is given as a text",
            read='%s: "%s"' % (path, value),
            allowed="true or false, without quotes",
            cure="remove the quotes; a template needs | bool",
        )
    fits = (
        value is None
        or "?" in kinds
        or ("b" in kinds and isinstance(value, bool))
        or (("i" in kinds or "n" in kinds) and isinstance(value, int) and not isinstance(value, bool))
        or ("n" in kinds and isinstance(value, float))
        or ("s" in kinds and isinstance(value, str))
        or ("a" in kinds and isinstance(value, list))
        or ("o" in kinds and isinstance(value, dict))
    )
    if not fits:
        raise _wrong_kind(path, value, kinds)


def _wrong_kind(path, value, kinds):
    return HostprepError(
        "cilium_value_kind",
        "a value of the chart has the wrong kind",
        read="%s: %s" % (path, repr(value)[:100]),
        allowed=" or ".join(name for letter, name in _KIND_NAMES.items() if letter in kinds),
        cure="correct it",
    )


# --- what must not stand together -----------------------------------------------------------------------------------------------------


def check_pairs(values, version, fabric_has_routes=False, uplinks=None):
    """Refuses what a chart renders without a word and an agent does not survive. Returns [finding]: warnings.

    version: a tuple; uplinks: {node: [device]} of all nodes of the run; None, or an empty list of a node, where they are not known
    """
    _check_choices(values, version)
    _check_big_tcp(values)
    for path, wanted in BASE.items():
        value = cilium.get(values, path)
        if value not in (None, wanted):
            raise HostprepError(
                "cilium_base_not_safe",
                "that value is for single nodes: in the base, every node would get it at its agent's next restart",
                read="%s: %s" % (path, value),
                allowed="%s: %s" % (path, "the chart's default" if wanted is None else str(wanted).lower()),
                cure="leave it out: XDP asks for a driver that has it under every device, and helps no pod of the node itself"
                if path == XDP
                else "leave it out: the data path gate and cilium_node_settings give it to the nodes that may have it",
            )
    if not cilium.tunnel(values):
        _check_native(values, fabric_has_routes)
    if cilium.get(values, "kubeProxyReplacement") is True and not (
        cilium.get(values, "k8sServiceHost") and cilium.get(values, "k8sServicePort")
    ):
        raise HostprepError(
            "cilium_api_server_missing",
            "without kube-proxy the agent cannot find the API server",
            read="kubeProxyReplacement: true, no k8sServiceHost and k8sServicePort",
            allowed="both; on RKE2 localhost and 6443",
            cure="set both",
        )
    if cilium.on(values, "bandwidthManager.bbr") and not cilium.on(values, "bandwidthManager.enabled"):
        raise HostprepError(
            "cilium_bbr_alone",
            "BBR needs the bandwidth manager",
            read="bandwidthManager.bbr: true, bandwidthManager.enabled: false",
            allowed="both on, or both off",
            cure="set bandwidthManager.enabled: true",
        )
    _check_node_configuration(values)
    warnings = []
    for gate, reasons in cilium.exclusions(values, version).items():
        for reason in reasons:
            warnings.append(dict(reason, message="%s: %s" % (gate, reason["message"])))
    if not cilium.host_routing_off(values):
        warnings.append(
            finding(
                "cilium_host_firewall_bypassed",
                "eBPF host routing takes pod traffic past the host's netfilter: its nftables and iptables rules no longer apply to it",
                "filter pod traffic by CiliumNetworkPolicy; the host's rules still hold for the host's own traffic",
                "bpf.masquerade: true, kubeProxyReplacement: true",
            )
        )
    if not cilium.get(values, "devices"):
        warnings.append(_devices_automatic(uplinks or {}))
    return warnings


def _check_big_tcp(values):
    asked = [path for path in ("enableIPv4BIGTCP", "enableIPv6BIGTCP") if cilium.on(values, path)]
    against = ["routingMode: %s" % cilium.shown_value(values, "routingMode")] if cilium.tunnel(values) else []
    if cilium.on(values, "encryption.enabled"):
        against.append("encryption.type: %s" % cilium.get(values, "encryption.type", "ipsec"))
    if asked and against:
        raise HostprepError(
            "cilium_big_tcp_excluded",
            "BIG TCP goes neither with a tunnel nor with encryption",
            read=", ".join(["%s: true" % path for path in asked] + against),
            allowed="BIG TCP with routingMode: native and no encryption",
            cure="decide for one of both; BIG TCP itself is left to the data path gate, which gives it to the nodes that may have it",
        )


def _devices_automatic(uplinks):
    read, cure = "devices: not set", "name the uplinks in devices, for all nodes or by node class"
    if uplinks and all(uplinks.values()):
        kinds = {tuple(sorted(names)) for names in uplinks.values()}
        shown = ["%s %s" % (node, "+".join(sorted(names))) for node, names in sorted(uplinks.items())]
        read += "; uplinks by the plans: " + ", ".join(shown[:8]) + (", …" if shown[8:] else "")
        if len(kinds) == 1:
            cure = "set devices: [%s] in rke2_hostprep_cilium, the uplinks of every node of this run" % ", ".join(
                *kinds
            )
        else:
            cure = "set cilium_node_settings: {devices: uplinks}, since the nodes' uplinks differ"
    return finding(
        "cilium_devices_automatic",
        "Cilium chooses its devices itself, and the one with the smallest limit decides on BIG TCP",
        cure,
        read,
    )


def _check_choices(values, version):
    proxy = cilium.get(values, "kubeProxyReplacement")
    if proxy is not None and not isinstance(proxy, bool):
        raise HostprepError(
            "cilium_kube_proxy_replacement",
            "kubeProxyReplacement is true or false; the words of older releases are gone",
            read="kubeProxyReplacement: %s" % proxy,
            allowed="true, false",
            cure="write true in place of strict, false in place of partial, probe and disabled",
        )
    for path, choices in CHOICES.items():
        value = cilium.get(values, path)
        if path == "bpf.datapathMode" and version < (1, 20, 0):
            choices = choices[:-1]
        if value not in (None, "") and value not in choices:
            raise HostprepError(
                "cilium_value_unknown",
                "Cilium has no such mode, and the chart would accept it",
                read="%s: %s" % (path, value),
                allowed=", ".join(choices),
                cure="correct it",
            )


def _check_native(values, fabric_has_routes):
    ipam = cilium.get(values, "ipam.mode")
    cloud = ipam in ("eni", "alibabacloud") or cilium.on(values, "ipMasqAgent.enabled")
    if ipam in (None, "cluster-pool") and cilium.on(values, "nativeRoutingCIDRFromClusterPool"):
        cloud = True
    four, six = cilium.get(values, "ipv4NativeRoutingCIDR"), cilium.get(values, "ipv6NativeRoutingCIDR")
    missing = []
    if cilium.get(values, "enableIPv4Masquerade", True) and cilium.get(values, "ipv4.enabled", not six) and not four:
        missing.append("ipv4NativeRoutingCIDR")
    if cilium.get(values, "enableIPv6Masquerade", True) and cilium.get(values, "ipv6.enabled", False) and not six:
        missing.append("ipv6NativeRoutingCIDR")
    if missing and not cloud:
        raise HostprepError(
            "cilium_native_cidr_missing",
            "native routing with masquerade renders without it, and then the agent exits",
            read="routingMode: native, no " + " and no ".join(missing),
            allowed="the pods' CIDR, where traffic is not masqueraded",
            cure="set " + " and ".join(missing),
        )
    if not (
        cilium.on(values, "autoDirectNodeRoutes")
        or fabric_has_routes
        or cloud
        or cilium.on(values, "bgpControlPlane.enabled")
    ):
        raise HostprepError(
            "cilium_routes_missing",
            "native routing needs routes between the nodes, and nothing says who makes them",
            read="routingMode: native, autoDirectNodeRoutes: false",
            allowed="autoDirectNodeRoutes: true, or the statement fabric_has_routes: true",
            cure="set the one that is so",
        )


def _check_node_configuration(values):
    """Per-node configuration must reach the agents."""
    keys = {key for pairs in cilium.NODE_CONFIG.values() for key in pairs}
    sources = cilium.get(values, "daemon.configSources")
    only = cilium.get(values, "daemon.allowedConfigOverrides")
    blocked = cilium.get(values, "daemon.blockedConfigOverrides")
    read = None
    if sources and "cilium-node-config" not in sources:
        read = "daemon.configSources: %s" % sources
    elif only and keys - {key.strip() for key in only.split(",")}:
        read = "daemon.allowedConfigOverrides: %s" % only
    elif blocked and not only and keys & {key.strip() for key in blocked.split(",")}:
        read = "daemon.blockedConfigOverrides: %s" % blocked
    if read:
        raise HostprepError(
            "cilium_node_config_blocked",
            "these values keep per-node configuration from the agents, who would ignore it without a word",
            read=read,
            allowed="values that let through " + ", ".join(sorted(keys)),
            cure="leave it out, or add those keys",
        )


# --- map sizes -------------------------------------------------------------------------------------------------------------------------

RATIO = 0.0025  # the chart's default
LARGEST = 1 << 24  # entries of a map, whatever the ratio gives
# map: (default entries, smallest, bytes of key and value as Cilium counts them: those of IPv6, so that the cost is an upper bound)
MAPS = {
    "ct_tcp": (1 << 19, 1 << 17, 94),
    "ct_any": (1 << 18, 1 << 16, 94),
    "nat": (1 << 19, 1 << 17, 94),
    "neigh": (1 << 19, 1 << 17, 24),
    "sock_rev_nat": (1 << 18, 1 << 16, 52),
}
# What the kernel adds to each entry and bucket: on 6.18 (x86-64) a map of 14-byte keys and 56-byte values took 136 bytes an entry
_ELEMENT = 48
_BUCKET = 16


def map_sizes(
    memory_bytes, possible_cpus, ratio=None, distributed_lru=False, irq_cpus=None, families=1, version=None, bad=None
):
    """How large Cilium makes its maps on a node, what they cost, and what few interrupt CPUs can use of them.

    memory_bytes   the node's RAM
    possible_cpus  CPUs that the kernel counts with (sys/devices/system/cpu/possible), not those online
    ratio          bpf.mapDynamicSizeRatio; irq_cpus: number of CPUs that take the NICs' interrupts; families: 1, or 2 for dual stack

    {"ratio", "distributed_lru", "entries": {map: n}, "capped": [map], "memory_bytes", "memory_share", "per_cpu": {map: n} or None,
    "usable_from_irq_cpus": {map: n} or None, "text", "notes": [finding]}. Maps are allocated whole, so the memory is used at once.
    """
    ratio = RATIO if ratio is None else ratio
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
        raise HostprepError(
            "cilium_map_ratio",
            "the ratio of memory for Cilium's maps is not usable",
            read=repr(ratio)[:60],
            allowed="a number above 0 and at most 1; the chart's default is %s" % RATIO,
            cure="correct map_ratio",
        )
    entry = cilium.defect(version, "distributed_lru", bad) if distributed_lru else None
    if entry:
        raise HostprepError(
            "cilium_release_lru",
            "this release has a defect with the distributed LRU: " + entry["why"],
            read="Cilium " + cilium.shown(version),
            allowed="releases after " + entry["last"],
            cure="upgrade, or leave distributed_lru off",
        )
    multiple = possible_cpus if distributed_lru else 1
    total = sum(entries * size for entries, _smallest, size in MAPS.values())
    share = int(memory_bytes * ratio)
    entries, capped = {}, []
    for name, (default, smallest, _size) in MAPS.items():
        count = -(-(default * share // total) // multiple) * multiple  # up to whole CPUs, as the kernel rounds
        if count < smallest:
            count = -(-smallest // multiple) * multiple
        elif count > LARGEST:
            count = LARGEST // multiple * multiple
            capped.append(name)
        entries[name] = count
    cost = families * sum(
        count * (_ELEMENT + -(-MAPS[name][2] // 8) * 8) + _BUCKET * (1 << max(count - 1, 1).bit_length())
        for name, count in entries.items()
    )
    per_cpu = {name: count // possible_cpus for name, count in entries.items()} if distributed_lru else None
    usable = {name: count * irq_cpus for name, count in per_cpu.items()} if per_cpu and irq_cpus else None
    return {
        "ratio": ratio,
        "distributed_lru": distributed_lru,
        "entries": entries,
        "capped": capped,
        "memory_bytes": cost,
        "memory_share": round(cost / memory_bytes, 4) if memory_bytes else None,
        "per_cpu": per_cpu,
        "usable_from_irq_cpus": usable,
        "text": "ratio %g%s: %s; %d MiB of the node's %d MiB%s"
        % (
            ratio,
            ", distributed LRU" if distributed_lru else "",
            ", ".join("%s %d" % entry for entry in entries.items()),
            cost >> 20,
            memory_bytes >> 20,
            "; from %d interrupt CPUs %d TCP connections" % (irq_cpus, usable["ct_tcp"])
            if usable
            else "; from the interrupt CPUs: not known"
            if distributed_lru
            else "",
        ),
        "notes": _map_notes(ratio, entries, capped, cost, memory_bytes, usable, irq_cpus, possible_cpus)
        + ([_share_unknown(entries, possible_cpus)] if distributed_lru and not usable else []),
    }


def _map_notes(ratio, entries, capped, cost, memory, usable, irq_cpus, possible):
    notes = []
    if capped:
        notes.append(
            finding(
                "cilium_maps_capped",
                "maps are at their cap of %d entries; a larger ratio only adds to the others" % LARGEST,
                "a ratio of %.4f brings the largest of them to the cap on this node" % _cap_ratio(memory),
                "ratio %g, %s" % (ratio, ", ".join(capped)),
            )
        )
    if cost > memory // 20:
        notes.append(
            finding(
                "cilium_maps_memory",
                "the maps take more than a twentieth of the node's memory, at once and for good",
                "lower map_ratio, and add the rest to system-reserved",
                "%d MiB of %d MiB" % (cost >> 20, memory >> 20),
            )
        )
    if usable and usable["ct_tcp"] < MAPS["ct_tcp"][0]:
        notes.append(
            finding(
                "cilium_lru_share",
                "with the distributed LRU, connections that come in are kept in the shares of the CPUs that take interrupts, and those hold"
                " fewer than the %d entries of Cilium's default" % MAPS["ct_tcp"][0],
                "leave distributed_lru off on this node, or raise map_ratio",
                "%d of %d CPUs take interrupts: %d of %d entries"
                % (irq_cpus, possible, usable["ct_tcp"], entries["ct_tcp"]),
            )
        )
    return notes


def _share_unknown(entries, possible):
    return finding(
        "cilium_lru_share_unknown",
        "with the distributed LRU, connections that come in are kept in the shares of the CPUs that take interrupts, and which those are is"
        " not known without a plan",
        "run the role host_plan for the node before",
        "no plan; %d entries over %d possible CPUs" % (entries["ct_tcp"], possible),
    )


def _cap_ratio(memory):
    """The ratio at which the largest maps reach their cap."""
    total = sum(entries * size for entries, _smallest, size in MAPS.values())
    return LARGEST / MAPS["ct_tcp"][0] * total / memory
