# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan and what a host has to the files that RKE2 and its kubelet read. Plain data in and out.

``render(plan, reading, settings)`` takes the plan (None on a node without one), what host/rke2.py read (None where nothing was read)
and the settings of the role, and returns

    {"kind", "minor", "data_dir", "files": [{"path", "mode", "content"}], "units": [...], "kubelet": wanted, "same": {key: value},
     "in_place": whether the host has the files already, "running": whether a kubelet runs, "restart_pending": [our files it does not know],
     "transition_needed": bool, "why": [finding with "file"], "warnings": [finding]}

``wanted`` has the names of a KubeletConfiguration and goes to model/kubelet_state.py too. What would keep the kubelet or RKE2 from
starting, what another file says otherwise, and what a live cluster cannot change is refused.
"""

from __future__ import annotations

import re

from . import cpulist, kubelet_state, rke2_facts as facts, yaml_text
from .errors import HostprepError, finding
from .kubelet import MAX_NUMA_NODES
from .kubelet_state import STRICT

SCRIPT = "/usr/local/lib/lo0.rke2_hostprep/kubelet-state-aside"
COMMENT = ("Written by lo0.rke2_hostprep: a change here is undone by its next run.",)
SCOPES = ("container", "pod")

# option: (default, kind); what each means, and its danger, is in docs/rke2.md
CHOICES = {
    "static_policy": (None, bool),
    "align_by_uncorecache": (True, bool),
    "topology_manager_scope": ("container", str),
    "strict_cpu_reservation": (False, bool),
    "shared_cpus": (None, int),
    "memory_manager_static": (False, bool),
    "kube_reserved_memory_mib": (None, int),
    "system_reserved_memory_mib": (None, int),
    "eviction_memory_mib": (None, int),
    "reserved_memory_mib": (None, dict),
    "dra": (False, bool),
}
SETTINGS = (
    "kind",
    "version",
    "data_dir",
    "cni",
    "disable_kube_proxy",
    "config",
    "kubelet",
    "cluster_change",
    "restart",
)

_VERSION = re.compile(r"v?1\.(\d{1,3})(?:\.(\d{1,3}))?(?:[-+].*)?\Z", re.ASCII)
_KINDS = {bool: "true or false", int: "a whole number, 0 or more", str: "text", dict: "a mapping"}
_SUMMED = ("kubeReserved", "systemReserved", "evictionHard")  # what reservedMemory must add up to
_CREDENTIALS = re.compile(r"://[^/\s@]*:[^/\s@]*@")  # user and password in an address
_SECRET_NAME = re.compile(r"(?i)[^=]*(?:passw|token|secret|credential|access_?key|private_?key)[^=]*=")
_BOOLEAN_WORDS = ("true", "false", "yes", "no", "on", "off")


def minor_of(version):
    """The minor version of Kubernetes in "v1.34.4+rke2r1"; refuses what is unknown."""
    match = _VERSION.match(str(version or ""))
    if not match or int(match.group(1)) not in facts.MINORS:
        raise HostprepError(
            "rke2_version_unknown",
            "which keys and options this version of RKE2 takes is not known"
            if version
            else "the version of RKE2 is not known",
            read=repr(version)[:60] if version else "none given, and no RKE2 found on the host",
            allowed="RKE2 v1.%d to v1.%d" % (facts.MINORS[0], facts.MINORS[-1]),
            cure="use a version of this collection that knows it"
            if match
            else "set rke2_version, such as v1.34.4+rke2r1",
        )
    return int(match.group(1))


def _other_version(given, found):
    """[finding] where a release is given and another is on the host."""
    one, other = _VERSION.match(str(given)), _VERSION.match(found or "")
    if other is None or (one.group(1) == other.group(1) and one.group(2) in (None, other.group(2))):
        return []
    return [
        finding(
            "rke2_version_differs",
            "another RKE2 is on the host than the one that is written for, and takes other keys and options",
            "correct rke2_version, unless RKE2 is about to be upgraded",
            "rke2_version %s, on the host %s" % (given, found),
        )
    ]


def _check_since(key, version):
    """Refuses a key that this release does not know yet; where the patch is not said, one that no release of the minor version knows."""
    match = _VERSION.match(version)
    minor, patch = int(match.group(1)), match.group(2)
    first = facts.SINCE.get(key, {}).get(minor, 0)
    if first is None or (patch is not None and int(patch) < first):
        raise HostprepError(
            "rke2_key_newer",
            "this release of RKE2 does not know the key, skips it and starts without it",
            read="%s, RKE2 %s" % (key, version),
            allowed="v1.%d.%d or newer" % (minor, first) if first else "a newer minor version",
            cure="remove it from rke2_config, or upgrade RKE2",
        )


def choices(given):
    """The full choices of a mapping, checked."""
    if not isinstance(given or {}, dict):
        raise _invalid("rke2_kubelet", given, "a mapping")
    for name in given or {}:
        if name not in CHOICES:
            raise _unknown("kubelet_choice_unknown", "rke2_kubelet has an option that does not exist", name, CHOICES)
    full = {}
    for name, (default, kind) in CHOICES.items():
        value = (given or {}).get(name)
        full[name] = default if value is None else value
        if full[name] is None:
            continue
        whole = isinstance(full[name], int) and not isinstance(full[name], bool)
        good = whole and full[name] >= 0 if kind is int else isinstance(full[name], kind)
        if not good:
            raise _invalid("rke2_kubelet: " + name, full[name], _KINDS[kind])
    if full["topology_manager_scope"] not in SCOPES:
        raise _invalid("rke2_kubelet: topology_manager_scope", full["topology_manager_scope"], ", ".join(SCOPES))
    return full


def _invalid(name, value, allowed):
    if isinstance(value, str) and value.strip().lower() in _BOOLEAN_WORDS and "true" in allowed:
        return _quoted(name, value)
    return HostprepError(
        "rke2_setting_invalid",
        "%s is not usable" % name,
        read=repr(value)[:100],
        allowed=allowed,
        cure="correct it in the inventory",
    )


def _quoted(name, value):
    return HostprepError(
        "rke2_boolean_quoted",
        "%s is text where true or false belongs" % name,
        read=repr(value),
        allowed="true or false without quotes",
        cure="remove the quotes, or on the command line pass JSON: -e '{\"…\": true}'",
    )


def _unknown(code, message, name, known):
    import difflib  # a misspelt name is rare, and a module is compiled anew on each host

    near = difflib.get_close_matches(str(name), [str(key) for key in known], 3, 0.7)
    return HostprepError(
        code,
        message,
        read=str(name),
        allowed=", ".join(sorted(known)) if len(known) < 30 else "the keys of RKE2's reference pages",
        cure="did you mean %s?" % " or ".join(near) if near else "remove it",
    )


# -- the kubelet -----------------------------------------------------------------------------------------------------------


def wanted_kubelet(plan, kind, minor, chosen):
    """(wanted, [finding]): the part of a KubeletConfiguration that is ours; ``chosen`` of ``choices``."""
    static = kind == facts.AGENT if chosen["static_policy"] is None else chosen["static_policy"]
    wanted = {}
    warnings = []
    if static:
        wanted, warnings = _static(plan, kind, minor, chosen)
    elif chosen["strict_cpu_reservation"] or chosen["memory_manager_static"]:
        name = "strict_cpu_reservation" if chosen["strict_cpu_reservation"] else "memory_manager_static"
        raise HostprepError(
            "kubelet_choice_conflict",
            "%s has no meaning without the static CPU manager policy" % name,
            read="%s on %s"
            % (
                name,
                "a server, which gets no static policy unless told"
                if kind == facts.SERVER
                else "a node with static_policy: false",
            ),
            allowed="static_policy: true, or without it",
            cure="remove it from rke2_kubelet of that node",
        )
    wanted.update(_memory(plan, chosen))
    if chosen["dra"]:
        if minor < facts.DRA_BETA:
            raise _version_lacks("dynamic resource allocation (dra)", minor, facts.DRA_BETA, "set dra: false")
        if minor < facts.DRA_STABLE:
            wanted["featureGates"] = {"DynamicResourceAllocation": True}
    return wanted, warnings


def _version_lacks(what, minor, since, cure):
    return HostprepError(
        "kubelet_version_lacks",
        "this version of Kubernetes does not take %s without an alpha gate" % what,
        read="1.%d" % minor,
        allowed="1.%d or newer" % since,
        cure=cure,
    )


def _static(plan, kind, minor, chosen):
    part, reserved, online = _checked_plan(plan)
    warnings = []
    options = dict(part["cpuManagerPolicyOptions"])
    if chosen["align_by_uncorecache"] and minor >= facts.CPU_OPTIONS["prefer-align-cpus-by-uncorecache"]:
        options["prefer-align-cpus-by-uncorecache"] = "true"
    if chosen["strict_cpu_reservation"]:
        _check_strict(plan, kind, minor, chosen, len(online) - len(reserved))
        options[STRICT] = "true"
        warnings.append(
            finding(
                "strict_cpu_reservation",
                "pods without CPUs of their own run on the CPUs that are neither reserved nor given away, which may be none (k/k#141196)",
                "keep %d CPUs free of Guaranteed pods, or set strict_cpu_reservation: false" % chosen["shared_cpus"],
                "%d allocatable CPUs" % (len(online) - len(reserved)),
            )
        )
    for name in options:
        if minor < facts.CPU_OPTIONS.get(name, 99):
            raise _version_lacks(
                "the option %s of the CPU manager" % name, minor, facts.CPU_OPTIONS[name], "leave it out"
            )
    for name in part["topologyManagerPolicyOptions"]:
        if minor < facts.TOPOLOGY_OPTIONS.get(name, 99):
            since = facts.TOPOLOGY_OPTIONS[name]
            raise _version_lacks(
                "the option %s of the Topology Manager" % name, minor, since, "topology_manager_policy: none"
            )
    wanted = {
        "reservedSystemCPUs": part["reservedSystemCPUs"],
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": options,
        "topologyManagerPolicy": part["topologyManagerPolicy"],
        "topologyManagerScope": chosen["topology_manager_scope"],
        "topologyManagerPolicyOptions": dict(part["topologyManagerPolicyOptions"]),
    }
    if not wanted["topologyManagerPolicyOptions"]:
        del wanted["topologyManagerPolicyOptions"]
    return wanted, warnings


def _checked_plan(plan):
    """(the plan's kubelet part, reserved, online) of a plan that the kubelet takes."""
    try:
        part = plan["kubelet"]
        reserved, online = (set(cpulist.expand(plan[name])) for name in ("reserved", "online_after_boot"))
        given = set(cpulist.expand(part["reservedSystemCPUs"]))
        nodes = len(plan["numa"])
        policy, options = part["topologyManagerPolicy"], part["topologyManagerPolicyOptions"]
        dict(part["cpuManagerPolicyOptions"], mode=plan["mode"])
    except (TypeError, KeyError, ValueError):
        raise HostprepError(
            "plan_missing" if plan is None else "plan_invalid",
            "the kubelet's reservation needs the node's plan" if plan is None else "what was passed is no plan",
            read="no plan" if plan is None else type(plan).__name__,
            allowed="a plan as cpu_plan returns it",
            cure="run the role host_plan first, or set static_policy: false in rke2_kubelet",
        ) from None
    if given != reserved:
        raise HostprepError(
            "kubelet_reserved_differs",
            "the kubelet's reserved CPUs are not those of the plan",
            read="%s, plan %s" % (cpulist.compress(given), cpulist.compress(reserved)),
            allowed="the plan's list",
            cure="plan the host again, and set reserved_cpus in its policy",
        )
    if not reserved or not reserved < online:
        raise HostprepError(
            "kubelet_reserved_not_online",
            "the kubelet refuses reserved CPUs that are not online, and needs some that are not reserved",
            read="reserved %s, online after the boot %s" % (cpulist.compress(reserved), cpulist.compress(online)),
            allowed="a part of the online CPUs",
            cure="plan the host again",
        )
    told = int(options.get("max-allowable-numa-nodes") or MAX_NUMA_NODES)
    if policy != "none" and told < nodes:
        raise HostprepError(
            "kubelet_numa_refused",
            "the kubelet's Topology Manager does not start on more NUMA nodes than it is told",
            read="%d nodes, max-allowable-numa-nodes %s"
            % (nodes, options.get("max-allowable-numa-nodes") or "not set"),
            allowed="max-allowable-numa-nodes of at least the number of nodes, or topology_manager_policy: none",
            cure="plan the host again",
        )
    return part, reserved, online


def _check_strict(plan, kind, minor, chosen, allocatable):
    why = None
    shared = chosen["shared_cpus"]
    if kind == facts.SERVER:
        why = "the control plane's static pods on a server have no CPUs of their own, and could be left with none"
    elif plan["mode"] == "pinned":
        why = "in isolation mode pinned all pods without CPUs of their own would share a single CPU"
    elif not shared:
        why = "how many CPUs stay for pods without CPUs of their own is not declared"
    elif shared >= allocatable:
        why = "as many CPUs are declared shared as there are"
    else:
        largest = max([shape["cpus"] for shape in plan["policy"].get("pod_shapes") or ()], default=0)
        if largest > allocatable - shared:
            why = "a declared pod shape of %g CPUs does not leave the shared CPUs" % largest
    if why:
        raise HostprepError(
            "kubelet_strict_refused",
            "strict_cpu_reservation is refused: " + why,
            read="%d allocatable CPUs, shared_cpus %s, mode %s, %s" % (allocatable, shared, plan["mode"], kind),
            allowed="an agent in mode balanced or quiet, with shared_cpus from 1 to %d" % (allocatable - 1),
            cure="set strict_cpu_reservation: false, or declare shared_cpus",
        )
    if minor < facts.CPU_OPTIONS[STRICT]:
        raise _version_lacks(STRICT, minor, facts.CPU_OPTIONS[STRICT], "set strict_cpu_reservation: false")


def _memory(plan, chosen):
    """kubeReserved, systemReserved, evictionHard and the static memory manager with a reservation that adds up exactly."""
    kube, system = chosen["kube_reserved_memory_mib"] or 0, chosen["system_reserved_memory_mib"] or 0
    eviction = facts.EVICTION_MEMORY if chosen["eviction_memory_mib"] is None else chosen["eviction_memory_mib"]
    wanted = {}
    if kube:
        wanted["kubeReserved"] = {"memory": "%dMi" % kube}
    if system:
        wanted["systemReserved"] = {"memory": "%dMi" % system}
    if eviction:
        wanted["evictionHard"] = dict(facts.EVICTION_HARD, **{"memory.available": "%dMi" % eviction})
    if not chosen["memory_manager_static"]:
        if chosen["reserved_memory_mib"]:
            raise HostprepError(
                "kubelet_choice_conflict",
                "reserved_memory_mib is for the static memory manager alone",
                read="memory_manager_static: false",
                allowed="both, or neither",
                cure="remove reserved_memory_mib, or set memory_manager_static: true",
            )
        return wanted
    total = kube + system + eviction
    sizes = {str(node["id"]): node["memory_mib"] for node in plan["numa"] if node["memory_mib"]}
    if chosen["reserved_memory_mib"]:
        split = {str(node): amount for node, amount in chosen["reserved_memory_mib"].items()}
    else:
        share, left = divmod(total, len(sizes) or 1)
        split = {node: share + (left if place == 0 else 0) for place, node in enumerate(sorted(sizes, key=int))}
    sentence = "%s MiB on nodes, kube_reserved %d + system_reserved %d + eviction %d = %d MiB" % (
        " + ".join(str(amount) for amount in split.values()) or "no",
        kube,
        system,
        eviction,
        total,
    )
    good = all(isinstance(amount, int) and not isinstance(amount, bool) and amount > 0 for amount in split.values())
    if not good or not split or sum(split.values()) != total:
        raise HostprepError(
            "kubelet_reserved_memory",
            "the kubelet does not start unless the memory reserved on the NUMA nodes is exactly what is reserved in all",
            read=sentence,
            allowed="amounts above 0 whose sum is kube_reserved_memory_mib + system_reserved_memory_mib + eviction_memory_mib"
            " (RKE2 sets no eviction threshold for memory, so that there is no 100 MiB to add)",
            cure="correct reserved_memory_mib, or leave it out: it is then split evenly",
        )
    for node, amount in split.items():
        if node not in sizes or amount >= sizes[node]:
            raise HostprepError(
                "kubelet_reserved_memory",
                "memory is reserved on a NUMA node that has not so much",
                read="node %s: %d MiB of %s" % (node, amount, sizes.get(node, "none")),
                allowed="nodes with memory: "
                + (", ".join("%s (%d MiB)" % entry for entry in sizes.items()) or "none known"),
                cure="correct reserved_memory_mib",
            )
    wanted["memoryManagerPolicy"] = "Static"
    wanted["reservedMemory"] = [
        {"numaNode": int(node), "limits": {"memory": "%dMi" % amount}}
        for node, amount in sorted(split.items(), key=lambda one: int(one[0]))
    ]
    return wanted


def flags(wanted):
    """The same as entries of kubelet-arg, for versions without drop-ins."""
    found = []
    for name, value in wanted.items():
        if name == "reservedMemory":
            value = ";".join(
                "%d:%s" % (entry["numaNode"], ",".join("%s=%s" % limit for limit in sorted(entry["limits"].items())))
                for entry in value
            )
        elif name == "evictionHard":
            value = ",".join("%s<%s" % entry for entry in sorted(value.items()))
        elif isinstance(value, dict):
            value = ",".join("%s=%s" % (key, _word(entry)) for key, entry in sorted(value.items()))
        found.append("%s=%s" % (facts.FLAGS[name], value))
    return found


def _as_flag(key, value):
    """What another file says, as a flag says it; in a form that the kubelet does not take, as it stands, which is no value of ours."""
    try:
        return flags({key: value})[0].partition("=")[2] if isinstance(value, (dict, list)) else _word(value)
    except (AttributeError, KeyError, TypeError):
        return str(value)


def _word(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- RKE2 ------------------------------------------------------------------------------------------------------------------


def cni_list(value):
    """The plugins of a value of cni, in RKE2's order: text, a list, or text with commas."""
    names = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(name, str) for name in names):
        names = ["?"]
    names = [part.strip() for name in names for part in name.split(",")]
    primary = names[1:] if names[:1] == ["multus"] else names
    if len(primary) != 1 or primary[0] not in facts.CNI:
        raise HostprepError(
            "rke2_cni_invalid",
            "RKE2 does not start with this value of cni",
            read=repr(value)[:100],
            allowed="one of %s, or a list of multus and one of them, multus first" % ", ".join(facts.CNI),
            cure="correct rke2_cni",
        )
    return names


def _config(kind, settings, chosen, minor, kubelet_flags):
    """{key: value} of the drop-in for RKE2, lists with `+`."""
    given = settings.get("config") or {}
    if not isinstance(given, dict):
        raise _invalid("rke2_config", given, "a mapping of keys of RKE2's configuration")
    entries = {}
    if kind == facts.SERVER:
        if settings.get("cni") is not None:
            names = cni_list(settings["cni"])
            entries["cni"] = names if isinstance(settings["cni"], (list, tuple)) or len(names) > 1 else names[0]
        if settings.get("disable_kube_proxy") is not None:
            if not isinstance(settings["disable_kube_proxy"], bool):
                raise _invalid("rke2_disable_kube_proxy", settings["disable_kube_proxy"], "true or false")
            entries["disable-kube-proxy"] = settings["disable_kube_proxy"]
    for key, value in given.items():
        _check_key(kind, key, value)
        if key in entries:
            raise _twice(key, "rke2_" + key.replace("-", "_"))
        entries[key] = value
    gate = ["feature-gates=DynamicResourceAllocation=true"]
    if chosen["dra"] and kind == facts.SERVER and minor < facts.DRA_STABLE:
        serve = ",".join("resource.k8s.io/%s=true" % version for version in facts.DRA_API[minor])
        for key, added in (
            ("kube-apiserver-arg", gate + ["runtime-config=" + serve]),
            ("kube-controller-manager-arg", gate),
            ("kube-scheduler-arg", gate),
        ):
            names = {facts.flag(argument)[0] for argument in entries.get(key) or []}
            if names & {"feature-gates", "runtime-config"}:
                raise _twice(key, "dra: true")
            entries[key] = list(entries.get(key) or []) + added
    ours = set(facts.FLAGS.values()) | set(facts.RESERVED_CGROUPS.values()) | {"config", "config-dir"}
    for argument in entries.get("kubelet-arg") or []:
        if facts.flag(argument)[0] in ours:
            raise _twice("kubelet-arg: " + facts.flag(argument)[0], "the plan and rke2_kubelet")
    if kubelet_flags:
        entries["kubelet-arg"] = list(entries.get("kubelet-arg") or []) + kubelet_flags
    return {key + "+" if key in facts.LISTS else key: value for key, value in entries.items()}


def _twice(key, owner):
    return HostprepError(
        "rke2_key_twice",
        "rke2_config sets what %s sets" % owner,
        read=key,
        allowed="one place for each value",
        cure="remove it from rke2_config",
    )


def _check_key(kind, key, value):
    if key not in facts.KEYS[facts.SERVER]:
        raise _unknown("rke2_key_unknown", "RKE2 has no such key", key, facts.KEYS[kind])
    if key in facts.SECRET:
        raise HostprepError(
            "rke2_key_secret",
            "secrets do not belong into this file",
            read=key,
            allowed="keys that are no secret; token-file and agent-token-file name files",
            cure="leave it to what installs RKE2",
        )
    if key not in facts.KEYS[kind]:
        raise HostprepError(
            "rke2_key_of_servers",
            "an agent does not take a key of servers",
            read=key,
            allowed="keys of agents; what servers need goes to the servers",
            cure="set it for the group of servers alone",
        )
    for entry in facts.listed(value):
        if _CREDENTIALS.search(str(entry)) or (key.endswith("-extra-env") and _SECRET_NAME.match(str(entry))):
            raise HostprepError(
                "rke2_key_secret",
                "secrets do not belong into this file",
                read="%s: %s"
                % (key, str(entry).partition("=")[0] if "-extra-env" in key else "an address with a password"),
                allowed="values that are no secret",
                cure="leave it to what installs RKE2, or to the environment file of its unit",
            )
    if isinstance(value, str) and value.strip().lower() in _BOOLEAN_WORDS:
        raise _quoted("rke2_config: " + key, value)
    listed = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if key in facts.LISTS and not listed:
        raise _invalid("rke2_config: " + key, value, "a list of text")
    if not listed and not isinstance(value, (str, int)):
        raise _invalid("rke2_config: " + key, value, "text, a number, true or false, or a list of text")


# -- what the host has -----------------------------------------------------------------------------------------------------


def kind_of(settings, reading):
    given, found = settings.get("kind"), (reading or {}).get("kind")
    if given not in (None, facts.SERVER, facts.AGENT):
        raise _invalid("rke2_node_kind", given, "server or agent")
    if given and found and given != found:
        raise HostprepError(
            "rke2_kind_differs",
            "the node is no %s" % given,
            read="a %s: %s" % (found, reading["kind_from"]),
            allowed="the kind that the node has",
            cure="correct rke2_node_kind or the inventory's groups",
        )
    if not given and not found:
        raise HostprepError(
            "rke2_kind_unknown",
            "whether the node is a server or an agent is not known",
            read="no enabled unit of RKE2, and no data of one",
            allowed="server or agent",
            cure="set rke2_node_kind",
        )
    return given or found


def data_dir_of(settings, reading):
    """(data dir, [finding])"""
    given, found = settings.get("data_dir"), (reading or {}).get("data_dir")
    given, found = (value and re.sub("/+", "/", str(value)).rstrip("/") for value in (given, found))
    for value in (given, found):
        if value is not None and not re.match(r"(?:/[A-Za-z0-9._-]+)+\Z", value):
            raise _invalid("rke2_data_dir", value, "an absolute path")
    if given and found and given != found:
        raise HostprepError(
            "rke2_data_dir_differs",
            "RKE2's data dir is another",
            read="%s in its configuration, %s given" % (found, given),
            allowed="the data-dir of RKE2's configuration",
            cure="correct rke2_data_dir",
        )
    warnings = []
    if given and not found and given != facts.DATA_DIR:
        warnings.append(
            finding(
                "rke2_data_dir_unconfirmed",
                "no configuration file of RKE2 says so, and it would look for the kubelet's drop-ins below its own data dir",
                "set data-dir in the configuration of what installs RKE2",
                "rke2_data_dir " + given,
            )
        )
    return given or found or facts.DATA_DIR, warnings


def effective(documents):
    """{key: value} of RKE2's configuration files, in their order, the last one wins and `key+` adds."""
    found = {}
    for document in documents:
        for key, value in document["values"].items():
            name = key.rstrip("+")
            if key.endswith("+") and name in found:
                found[name] = facts.listed(found[name]) + facts.listed(value)
            else:
                found[name] = value
    return found


def _same(key, left, right):
    if key == "cni":
        try:
            return cni_list(left) == cni_list(right)
        except HostprepError:
            return False
    return _items(left) == _items(right)


def _items(value):
    """What RKE2 makes of a value: a list and text with commas are one."""
    return [part.strip() for entry in facts.listed(value) for part in _word(entry).split(",")]


def _foreign(reading, ours):
    """The documents that others wrote, each with whether RKE2 reads it after ours."""
    for document in reading["config"]:
        if document["path"] != ours:
            yield (
                document,
                document["path"].rpartition("/")[2] > ours.rpartition("/")[2] and "/config.yaml.d/" in document["path"],
            )


def _check_documents(documents, inspected, what):
    for document in documents:
        if document["problem"] or set(document["opaque"]) & inspected:
            raise HostprepError(
                "rke2_config_unreadable",
                "a file that %s reads cannot be judged" % what,
                read="%s: %s"
                % (document["path"], document["problem"] or "the value of " + ", ".join(sorted(document["opaque"]))),
                allowed="YAML with one key a line, and plain values and lists for the keys that are looked at",
                cure="rewrite it in that form, or repair it",
            )


def _check_config(reading, ours, entries, kind, warnings):
    names = {key.rstrip("+") for key in entries}
    _check_documents(reading["config"], names | facts.READ | {key + "+" for key in names | facts.READ}, "RKE2")
    for document, later in _foreign(reading, ours):
        for key in document["keys"]:
            name = key.rstrip("+")
            if kind == facts.AGENT and name in facts.SERVER_KEYS:
                warnings.append(
                    finding(
                        "rke2_server_key_on_agent",
                        "an agent's configuration has a key of servers, which RKE2 skips",
                        "remove it there",
                        "%s: %s" % (document["path"], name),
                    )
                )
            if name in facts.LISTS and name + "+" in entries and later and not key.endswith("+"):
                raise HostprepError(
                    "rke2_key_overwritten",
                    "a file that RKE2 reads after ours would replace our list",
                    read="%s: %s" % (document["path"], key),
                    allowed="%s+, which adds to it" % name,
                    cure="write the key with + there",
                )
            if (
                name in names
                and name not in facts.LISTS
                and not _same(name, document["values"].get(key), entries.get(name))
            ):
                known = key in document["values"]
                raise HostprepError(
                    "rke2_key_foreign",
                    "another file sets a key that this one sets too",
                    read="%s: %s%s, wanted %s"
                    % (
                        document["path"],
                        name,
                        " " + _shown(document["values"][key]) if known else "",
                        _shown(entries[name]),
                    ),
                    allowed="one value, best in one place",
                    cure="remove it there, or give its value in the inventory",
                )


def _shown(value):
    return ",".join(str(entry) for entry in value) if isinstance(value, list) else _word(value)


def _check_live(reading, wanted, cluster_change):
    """On a server that has been started: what its cluster was made with stays. wanted: of ``_same_on_servers``."""
    if not reading["initialised"]:
        return
    now = effective(reading["config"])
    before = _same_on_servers({}, reading, None)
    for key, value in sorted(wanted.items(), key=lambda one: one[0] not in facts.FIXED):  # what cannot be changed first
        has = before[key]
        if has is None or _same(key, has, value):
            continue
        if key in facts.FIXED:
            raise HostprepError(
                "rke2_live_differs",
                "the cluster was made with another %s, and RKE2 does not change that on a live cluster" % key,
                read="%s%s, wanted %s" % (_shown(has), "" if key in now else " (RKE2's default)", _shown(value)),
                allowed="the value that the cluster has",
                cure="keep it (in the inventory too), or make the cluster anew",
            )
        if cluster_change is not True:
            raise HostprepError(
                "rke2_cluster_change",
                "%s is the whole cluster's, and the live cluster has another" % key,
                read="%s now%s, %s wanted" % (_shown(has), "" if key in now else " (RKE2's default)", _shown(value)),
                allowed="the value that the cluster has, or rke2_cluster_change: true",
                cure="keep it, or plan the change for all servers in one window",
            )


def _same_on_servers(entries, reading, ours):
    """{key: value that RKE2 will see} of the keys that must be the same on every server; without a reading those of ``entries`` alone.

    ours: path of our file as it is now, which is left out; None: as it is now counts.
    """
    if reading is None:
        return {key: entries[key] for key in [*facts.SAME_ON_SERVERS, "cni"] if key in entries}
    now = effective([document for document in reading["config"] if document["path"] != ours])
    found = {key: entries.get(key, now.get(key, default)) for key, default in facts.SAME_ON_SERVERS.items()}
    found["cni"] = entries.get("cni", now.get("cni", facts.DEFAULT_CNI))
    if found["cluster-dns"] is None:
        found["cluster-dns"] = facts.cluster_dns(found["service-cidr"])
    return found


def check_servers(rendered, others, unjudged=()):
    """Refuses where another server of the same cluster is given another value; ``others``: {host: what ``render`` returned there}.

    unjudged: hosts that may be servers and for which there is no rendering. Before one of them is known, no server is changed.
    """
    for host, other in sorted(others.items()):
        for key in (
            sorted(set(rendered["same"]) & set(other["same"]))
            if rendered["kind"] == other["kind"] == facts.SERVER
            else ()
        ):
            values = other["same"].get(key), rendered["same"].get(key)
            if not _same(key, *values):
                raise HostprepError(
                    "rke2_servers_differ",
                    "every server must have the same value of %s" % key,
                    read="%s on %s, %s here" % (_shown(values[0]), host, _shown(values[1])),
                    allowed="one value for all servers",
                    cure="set it for the group of servers, not for one",
                )
    if unjudged and rendered["kind"] == facts.SERVER and not rendered["in_place"]:
        raise HostprepError(
            "rke2_servers_unjudged",
            "what servers share is written on all of them or on none, and other hosts of the play were not judged",
            read="not judged: %s" % ", ".join(sorted(unjudged)),
            allowed="all servers of the play judged before the first is changed; hosts that are none with rke2_node_kind: agent in the inventory",
            cure="run the play without serial, or the role with tasks_from: wanted on all servers before; mend what keeps one from being judged",
        )


def configured_kubelet(reading, wanted, ours):
    """``wanted`` with what others say of the CPU manager where it says nothing: what the kubelet will start with."""
    found = {}
    for _path, key, value in facts.said_to_kubelet(reading, ours):
        if key == "cpuManagerPolicyOptions" and isinstance(value, str):
            value = dict(entry.split("=", 1) for entry in value.split(",") if "=" in entry)
        elif key == "cpuManagerPolicyOptions" and not isinstance(value, dict):
            continue  # the kubelet does not start with it
        elif key == "reservedSystemCPUs":
            value = _as_flag(key, value)
        if key in ("cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs", "memoryManagerPolicy"):
            found[key] = value
    return dict(found, **wanted)


def _check_sum(reading, wanted):
    """Memory that RKE2's own drop-in holds back, and ours does not set anew, would be missing in reservedMemory."""
    own = [document for document in reading["kubelet"] if document["path"].rpartition("/")[2] == facts.KUBELET_DEFAULTS]
    _check_documents(own, set(_SUMMED), "the kubelet")
    for document in own:
        for key in _SUMMED:
            name = "memory.available" if key == "evictionHard" else "memory"
            value = document["values"].get(key) or {}
            amount = value.get(name) if isinstance(value, dict) else value
            ours = isinstance(value, dict) and name in wanted.get(key, {})  # read later than RKE2's
            if amount not in (None, "0", "0%", "100%", 0) and not ours:
                raise _set_elsewhere(
                    document["path"],
                    key,
                    "%s %s" % (name, amount) if isinstance(value, dict) else value,
                    "part of the sum that reservedMemory must be",
                )


def _check_kubelet(reading, ours, wanted, warnings):
    """What others say to the kubelet must not be what we say."""
    _check_documents(
        [
            document
            for document in reading["kubelet"]
            if document["path"] not in ours and document["path"].rpartition("/")[2] != facts.KUBELET_DEFAULTS
        ],
        set(wanted) | set(facts.RESERVED_CGROUPS) | set(_SUMMED if "reservedMemory" in wanted else ()),
        "the kubelet",
    )
    if "reservedMemory" in wanted:
        _check_sum(reading, wanted)
    said = list(facts.said_to_kubelet(reading, ours))
    mine = dict(zip(wanted, (entry.partition("=")[2] for entry in flags(wanted))))
    for path, key, value in said:
        if key in facts.RESERVED_CGROUPS and "reservedSystemCPUs" in wanted and value:
            raise HostprepError(
                "kubelet_reserved_cgroup",
                "the kubelet refuses reserved CPUs together with %s" % key,
                read="%s: %s" % (path, key),
                allowed="one of the two",
                cure="remove it there",
            )
        if key not in wanted:
            if key in _SUMMED and "reservedMemory" in wanted:
                raise _set_elsewhere(path, key, value, "part of the sum that reservedMemory must be")
            continue
        text = _as_flag(key, value)
        if key == "featureGates" and not set(text.split(",")) & {
            gate.replace("=true", "=false") for gate in mine[key].split(",")
        }:
            continue  # gates of several files are joined
        if key == "reservedSystemCPUs" and _cpus(text) != _cpus(mine[key]):
            raise HostprepError(
                "kubelet_reserved_differs",
                "another file gives the kubelet other reserved CPUs than the plan",
                read="%s: %s, plan %s" % (path, text, mine[key]),
                allowed="the plan's list, in one place",
                cure="remove it there, or set reserved_cpus in the policy to it",
            )
        if key != "reservedSystemCPUs" and not _says_the_same(value, wanted[key], text, mine[key]):
            raise _set_elsewhere(path, key, value, "%s here" % mine[key])
        warnings.append(
            finding(
                "kubelet_setting_twice",
                "another file gives the kubelet the same setting, and a change would have to be made in both",
                "remove it there",
                "%s: %s" % (path, key),
            )
        )


def _says_the_same(value, wanted, text, mine):
    """Of a setting in another place. Maps of files are joined, so that a part of ours is enough; a flag replaces the whole map."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        return all(name in wanted and _word(entry) == _word(wanted[name]) for name, entry in value.items())
    return sorted(text.split(",")) == sorted(mine.split(",")) if isinstance(wanted, dict) else text == mine


def _set_elsewhere(path, key, value, why):
    return HostprepError(
        "kubelet_setting_foreign",
        "another file gives the kubelet a setting that this one gives too",
        read="%s: %s %s, %s" % (path, key, value, why),
        allowed="one place for each setting",
        cure="remove it there, or say it in rke2_kubelet or the policy",
    )


def _cpus(text):
    try:
        return cpulist.expand(text)
    except HostprepError:
        return None


# -- all of it -------------------------------------------------------------------------------------------------------------


def render(plan, reading, settings):
    """See the module."""
    for name in settings:
        if name not in SETTINGS:
            raise _unknown("rke2_setting_unknown", "the role rke2 has no such setting", name, SETTINGS)
    kind = kind_of(settings, reading)
    version = settings.get("version") or (reading or {}).get("version")
    minor = minor_of(version)
    data_dir, warnings = data_dir_of(settings, reading)
    warnings += _other_version(version, (reading or {}).get("version"))
    chosen = choices(settings.get("kubelet"))
    wanted, more = wanted_kubelet(plan, kind, minor, chosen)
    warnings += more
    drop_in = minor >= facts.KUBELET_DROP_IN
    entries = _config(kind, settings, chosen, minor, [] if drop_in else flags(wanted))
    for key in settings.get("config") or {}:
        _check_since(key, str(version))
    config_path, kubelet_path = facts.paths(data_dir)
    same = _same_on_servers(entries, reading, config_path) if kind == facts.SERVER else {}
    if reading is not None:
        _check_config(reading, config_path, entries, kind, warnings)
        _check_kubelet(reading, (config_path, kubelet_path), wanted, warnings)
        if kind == facts.SERVER:
            _check_live(reading, same, settings.get("cluster_change"))
    files = []
    if entries:
        files.append({"path": config_path, "mode": "0600", "content": yaml_text.write(entries, COMMENT)})
    if wanted and drop_in:
        document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        document.update(wanted)
        files.append({"path": kubelet_path, "mode": "0600", "content": yaml_text.write(document, COMMENT)})
    if wanted.get("memoryManagerPolicy") == "Static":
        files += _aside(kind, (reading or {}).get("state_dir") or facts.STATE_DIR)
        warnings.append(
            finding(
                "memory_manager_static",
                "the memory of NUMA nodes changes from boot to boot, and the kubelet refuses its state file then (k/k#131253)",
                "nothing: before RKE2 starts after a boot the state files are moved aside",
                SCRIPT,
            )
        )
    why = []
    if (reading or {}).get("state"):
        configured = configured_kubelet(reading, wanted, (config_path, kubelet_path))
        why = refused_states(reading, configured, (plan or {}).get("online_after_boot"))
    if why:
        warnings.append(
            finding(
                "rke2_transition_pending",
                "until the state files are moved aside, the kubelet does not start again, after a crash or a reboot either",
                "drain and stop the node, run kubelet_checkpoint with state: transitioned, then start it",
                "; ".join("%s: %s" % (one["file"], one["code"]) for one in why),
            )
        )
    return {
        "kind": kind,
        "minor": minor,
        "data_dir": data_dir,
        "files": files,
        "units": _units(kind, reading, files, settings, bool(why)),
        "kubelet": wanted,
        "same": same,
        "in_place": reading is not None and _in_place(reading, files),
        "transition_needed": bool(why),
        "why": why,
        "running": (reading or {}).get("running") is True,
        "restart_pending": (reading or {}).get("restart_pending") or [],
        "warnings": warnings,
    }


def _in_place(reading, files):
    from .owned import in_place  # Ansible compiles what is imported anew on each host: what few need is left out

    return in_place(reading.get("own_files"), "rke2", files, purge=True)


def given_wanted(wanted):
    """A wanted reservation that a user gave, in the kinds that the kubelet takes; numbers and booleans that YAML made of text are text again."""
    found = dict(wanted)
    cpus, options = found.get("reservedSystemCPUs"), found.get("cpuManagerPolicyOptions")
    if isinstance(cpus, int) and not isinstance(cpus, bool):
        found["reservedSystemCPUs"] = str(cpus)
    if isinstance(options, dict):
        found["cpuManagerPolicyOptions"] = {str(name): _word(value) for name, value in options.items()}
    for name, value in found.items():
        fits, allowed = _WANTED.get(name, (lambda _value, name=name: name in facts.FLAGS, ", ".join(_WANTED)))
        if value is not None and not fits(value):
            raise HostprepError(
                "kubelet_wanted_invalid",
                "the wanted reservation is none that a kubelet takes",
                read="%s: %s" % (name, repr(value)[:100]),
                allowed=allowed,
                cure="correct wanted",
            )
    return found


def _reserved_memory(value):
    try:
        for entry in value:
            int(entry["numaNode"]), [kubelet_state.quantity(amount) for amount in entry["limits"].values()]
    except (TypeError, KeyError, ValueError, AttributeError, HostprepError):
        return False
    return isinstance(value, list)


_WANTED = {
    "cpuManagerPolicy": (lambda value: value in ("none", "static"), "none or static"),
    "cpuManagerPolicyOptions": (lambda value: isinstance(value, dict), "a mapping"),
    "reservedSystemCPUs": (lambda value: isinstance(value, str), "a list of CPUs such as 0-1,32-33"),
    "memoryManagerPolicy": (lambda value: value in ("None", "Static"), "None or Static"),
    "reservedMemory": (_reserved_memory, "a list such as [{numaNode: 0, limits: {memory: 1Gi}}]"),
}


def refused_states(reading, wanted, online=None):
    """[finding with "file"]: why the kubelet would refuse its state files with ``wanted``, see kubelet_state.py.

    online: CPU list of the time when the kubelet starts; without it those that are online now.
    """
    online = online or reading["online"]
    if not online:
        raise HostprepError(
            "online_unknown",
            "which CPUs are online cannot be known",
            read="no list of online CPUs",
            allowed="a host or capture with sys/devices/system/cpu, or online",
            cure="pass online or plan",
        )
    online = set(cpulist.expand(online))
    reserved = set(cpulist.expand(wanted.get("reservedSystemCPUs") or ""))
    if not reserved <= online:
        raise HostprepError(
            "kubelet_reserved_not_online",
            "the kubelet refuses reserved CPUs that are not online",
            read="reserved %s, online %s" % (cpulist.compress(reserved), cpulist.compress(online)),
            allowed="a part of the online CPUs",
            cure="plan the host again",
        )
    nodes = reading["memory"] and {int(node): amounts for node, amounts in reading["memory"].items()}
    if "reservedMemory" not in wanted:  # a static manager has one; it is someone else's, and is not known here
        nodes = None
    found = []
    for name, judge, machine in (
        ("cpu_manager_state", kubelet_state.cpu, online),
        ("memory_manager_state", kubelet_state.memory, nodes),
    ):
        entry = reading["state"][name]
        if entry["problem"] and not entry["problem"].startswith("it "):
            raise HostprepError(
                "checkpoint_unreadable",
                "a state file of the kubelet cannot be read",
                read="%s: %s" % (entry["path"], entry["problem"]),
                allowed="a file that root can read",
                cure="run as root, or repair the file",
            )
        if entry["problem"]:
            message = "the kubelet would refuse its state file: " + entry["problem"]
            reasons = [finding("checkpoint_damaged", message, kubelet_state.CURE, entry["problem"])]
        else:
            reasons = judge(entry["state"], wanted, machine)
        found += [dict(one, file=entry["path"]) for one in reasons]
    return found


def _units(kind, reading, files, settings, transition_needed):
    """The unit to restart when a file changed, where that is wanted and the kubelet would start again."""
    for name in ("restart", "cluster_change"):
        if not isinstance(settings.get(name) or False, bool):
            raise _invalid("rke2_" + name, settings[name], "true or false")
    if not settings.get("restart"):
        return []
    if transition_needed:
        raise HostprepError(
            "rke2_restart_refused",
            "after a restart the kubelet would refuse its state files and not start",
            read="rke2_restart: true, and kubelet_checkpoint says that a transition is needed",
            allowed="rke2_restart: false, or a node without that need",
            cure="drain and stop the node, run kubelet_checkpoint with state: transitioned, then start it",
        )
    if kind not in (reading or {}).get("units", []):
        return []
    return [{"name": "rke2-%s.service" % kind, "restart_on": [entry["path"] for entry in files]}]


_ASIDE = """#!/bin/sh
# %s
# Before RKE2 starts for the first time after a boot, moves the kubelet's state files aside: pods are admitted anew after a boot, and
# a memory_manager_state of another boot keeps the kubelet from starting. It never keeps RKE2 from starting.
state=$1
boot=$(cat /proc/sys/kernel/random/boot_id) || exit 0
mark=$state/hostprep-boot-id
mkdir -p -m 0750 "$state" || exit 0 # before the very first start, so that the boot after it is known to be another
known=$(cat "$mark" 2>/dev/null)
[ "$known" = "$boot" ] && exit 0
if [ -n "$known" ]; then # the first time ever the files may be those of a kubelet that runs pods in this boot
    for name in cpu_manager_state memory_manager_state; do
        if [ -f "$state/$name" ]; then
            mv -f "$state/$name" "$state/$name.previous-boot" || exit 0
        fi
    done
fi
echo "$boot" >"$mark.new" && mv -f "$mark.new" "$mark"
exit 0
"""


def _aside(kind, state_dir):
    unit = "/etc/systemd/system/rke2-%s.service.d/50-hostprep-kubelet-state.conf" % kind
    return [
        {"path": SCRIPT, "mode": "0755", "content": _ASIDE % COMMENT},
        {
            "path": unit,
            "mode": "0644",
            "content": "# %s\n[Service]\nExecStartPre=-/bin/sh %s %s\n" % (COMMENT[0], SCRIPT, state_dir),
        },
    ]
