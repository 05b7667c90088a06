# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of Cilium and its chart: release numbers, releases with defects, and which values exclude which data path.

Values are the chart's, as the user writes them: a nested dict; what is absent has the chart's default. Read in the templates and
the agent's source of 1.19 and 1.20.
"""

from __future__ import annotations

import re

from .errors import HostprepError, finding

GATES = ("netkit", "big_tcp_ipv4", "big_tcp_ipv6")
BIG_TCP = GATES[1:]
# What per-node configuration turns on, by gate: the key of the agent's configuration and its value
NODE_CONFIG = {
    "netkit": {"datapath-mode": "netkit"},
    "big_tcp_ipv4": {"enable-ipv4-big-tcp": "true"},
    "big_tcp_ipv6": {"enable-ipv6-big-tcp": "true"},
}
# first and last release, what it concerns, what happens there
BAD_RELEASES = (
    {
        "first": "1.19.0",
        "last": "1.19.4",
        "what": "big_tcp_with_tunnel_device",
        "why": "the agent cannot set up its VXLAN device when BIG TCP is on (cilium#44198, cilium#46337)",
    },
    {
        "first": "1.17.2",
        "last": "1.17.3",
        "what": "distributed_lru",
        "why": "maps are made anew without end until the node has no memory left (cilium#39009, cilium#39070)",
    },
    {
        "first": "1.19.0",
        "last": "1.19.3",
        "what": "distributed_lru",
        "why": "after an upgrade the agent cannot allocate its maps (cilium#44221)",
    },
)
_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[-+].*)?\Z", re.ASCII)


def release(text):
    """(1, 19, 4) of "1.19.4", "v1.19.4" or RKE2's chart version "1.19.402", whose last two digits count RKE2's packages."""
    match = _RELEASE.match(str(text))
    if not match:
        raise HostprepError(
            "cilium_version_invalid",
            "that is no version of Cilium",
            read=str(text)[:60],
            allowed="three numbers, such as 1.19.6, or RKE2's chart version 1.19.601",
            cure="give the version of the chart",
        )
    patch = match.group(3)
    return int(match.group(1)), int(match.group(2)), int(patch) // 100 if len(patch) >= 3 else int(patch)


def shown(version):
    return ".".join(str(part) for part in version)


def get(values, path, default=None):
    """The value at a dotted path; the default where it, or something above it, is absent or null."""
    for key in path.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return default if values is None else values


def on(values, path):
    """Whether a switch is on. "true" counts, as it does in the agent's configuration."""
    return str(get(values, path)).lower() == "true"


def defect(version, what, bad=None):
    """The entry of a release with that defect, or None. version: a tuple or None, bad: a list of one's own."""
    for entry in BAD_RELEASES if bad is None else bad:
        if version and entry["what"] == what and release(entry["first"]) <= version <= release(entry["last"]):
            return entry
    return None


def host_routing_off(values):
    """[(value as it stands, why it switches eBPF host routing off)]; the agent falls back without an error."""
    found = []
    if not on(values, "kubeProxyReplacement"):
        found.append(("kubeProxyReplacement: %s" % shown_value(values, "kubeProxyReplacement"), "it needs true"))
    if not on(values, "bpf.masquerade"):
        found.append(("bpf.masquerade: %s" % shown_value(values, "bpf.masquerade"), "it needs true"))
    legacy, chaining = get(values, "bpf.hostLegacyRouting"), get(values, "cni.chainingMode", "none")
    if legacy is None and chaining != "none":
        found.append(("cni.chainingMode: %s" % chaining, "the chart then turns legacy host routing on; it needs none"))
    elif on(values, "bpf.hostLegacyRouting"):
        found.append(("bpf.hostLegacyRouting: %s" % legacy, "leave it out"))
    if ipsec(values):
        found.append(("encryption.type: ipsec", "IPsec excludes it"))
    return found


def ipsec(values):
    return on(values, "encryption.enabled") and get(values, "encryption.type", "ipsec") == "ipsec"


def tunnel(values):
    return get(values, "routingMode", "tunnel") != "native"


def shown_value(values, path):
    value = get(values, path)
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def exclusions(values, version, bad=None):
    """{gate: [finding]}: what the values and the release have against each data path. bad: see `defect`."""
    found = {gate: [] for gate in GATES}

    def against(gates, reason):
        for gate in gates:
            found[gate].append(reason)

    for read, why in host_routing_off(values):
        against(
            GATES,
            finding(
                "cilium_host_routing_off",
                "these values switch eBPF host routing off, which netkit and BIG TCP need",
                "change it: " + why,
                read,
            ),
        )
    if on(values, "encryption.enabled"):
        kind = get(values, "encryption.type", "ipsec")
        against(
            BIG_TCP,
            finding(
                "cilium_encryption",
                "BIG TCP and encryption exclude each other",
                "one of both",
                "encryption.type: %s" % kind,
            ),
        )
    if tunnel(values):
        against(
            BIG_TCP,
            finding(
                "cilium_tunnel",
                "BIG TCP needs native routing",
                "routingMode: native, with routes between the nodes",
                "routingMode: %s" % shown_value(values, "routingMode"),
            ),
        )
    for dispatch in ("geneve", "ipip"):
        if get(values, "loadBalancer.dsrDispatch") == dispatch:
            against(
                BIG_TCP,
                finding(
                    "cilium_dsr_dispatch",
                    "BIG TCP and this way of direct server return exclude each other",
                    "loadBalancer.dsrDispatch: opt",
                    "loadBalancer.dsrDispatch: " + dispatch,
                ),
            )
    entry = defect(version, "big_tcp_with_tunnel_device", bad)
    if entry and (tunnel(values) or on(values, "egressGateway.enabled")):
        against(
            BIG_TCP,
            finding(
                "cilium_release_bad",
                "this release has a defect with BIG TCP beside a tunnel device or the egress gateway: " + entry["why"],
                "use a release after %s, or leave the egress gateway out" % entry["last"],
                "Cilium %s, egressGateway.enabled: %s" % (shown(version), shown_value(values, "egressGateway.enabled")),
            ),
        )
    if on(values, "bpf.tproxy"):
        against(
            ["netkit"],
            finding(
                "cilium_tproxy", "netkit and bpf.tproxy exclude each other", "leave bpf.tproxy out", "bpf.tproxy: true"
            ),
        )
    if on(values, "endpointRoutes.enabled"):
        against(
            ["netkit"],
            finding(
                "cilium_endpoint_routes",
                "netkit with endpoint routes fails on kernels without the scrub attribute, which cannot be seen from here",
                "leave endpointRoutes out",
                "endpointRoutes.enabled: true",
            ),
        )
    return found
