# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data path gate: which of netkit and BIG TCP a host may get, with the reasons.

The rule: kernel ≥ ``kernel_min`` and every uplink's driver in ``nic_drivers``. Beneath it, what the kernel and Cilium need whatever
the rule says. ``judge`` answers with ``eligible`` True, False, or None where what was read does not tell; only True may be acted on.
What each option means to a user is written once, in the documentation of the ``dataplane_gate`` module.
"""

from __future__ import annotations

import re

from . import cilium, cpulist
from .cilium import BIG_TCP, GATES
from .errors import HostprepError, finding

# Versions are raw: a bare 6.10 of YAML is the number 6.1, which must be refused and not turned into a text
OPTIONS = {
    "uplinks": {"type": "list", "elements": "str"},
    "kernel": {"type": "raw"},
    "config_netkit": {"type": "str"},
    "kernel_min": {"type": "raw", "default": "6.8"},
    "nic_drivers": {"type": "list", "elements": "str", "default": ["mlx4", "mlx5", "ice"]},
    "nic_drivers_gates": {"type": "list", "elements": "str", "default": list(GATES)},
    "netkit_kernel_floor": {"type": "raw", "default": "6.7"},
    "netkit_kernel_young": {"type": "raw", "default": "6.12"},
    "big_tcp_ipv4_kernel_floor": {"type": "raw", "default": "6.3"},
    "big_tcp_ipv6_kernel_floor": {"type": "raw", "default": "5.19"},
    "both_families_from": {"type": "raw", "default": "6.7"},
    "tso_max_size_above": {"type": "int", "default": 65536},
    "tso_max_sizes": {"type": "dict"},
    "wanted": {"type": "list", "elements": "str", "default": list(GATES)},
    "known_bad_kernels": {"type": "list", "elements": "dict"},
    "known_bad_releases": {"type": "list", "elements": "dict"},
    "cilium_version": {"type": "str"},
    "cilium_values": {"type": "dict"},
}
# A driver's name in sysfs and the name of its family, where they differ
DRIVER_FAMILIES = {"mlx5_core": "mlx5", "mlx4_en": "mlx4", "mlx4_core": "mlx4", "virtio-pci": "virtio_net"}
# Ubuntu's flavours (nvidia, aws, azure …) count from 1001 on, each for itself; what was made from -49 has numbers from 1014 to 1019
BAD_KERNELS = (
    {
        "release": r"6\.8\.0-([1-4]?[0-9]|10[01][0-9])(-|\Z)",
        "gates": ["netkit"],
        "why": "Ubuntu's 6.8 up to -49, and its flavours up to -1019, lack netkit fixes: addresses of other nodes cannot be reached"
        " (cilium#36123, LP 2068655)",
    },
)
_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?", re.ASCII)


def _unusable(option, value, allowed):
    return HostprepError(
        "gate_%s" % option,
        "the option %s of the data path gate is not usable" % option,
        read=repr(value)[:120],
        allowed=allowed,
        cure="correct %s in the inventory" % option,
    )


def _texts(option, value, choices=None):
    if (
        isinstance(value, str)
        or not isinstance(value, (list, tuple))
        or not all(isinstance(item, str) for item in value)
    ):
        raise _unusable(option, value, "a list of texts")
    if choices and set(value) - set(choices):
        raise _unusable(option, value, "a list of " + ", ".join(choices))
    return list(value)


def _kernel(option, value):
    if isinstance(value, bool) or not _NUMBERS.match(str(value)):
        raise _unusable(option, value, 'a kernel version such as "6.8", quoted in YAML')
    if isinstance(value, float):
        raise _unusable(option, value, 'a quoted version: YAML reads a bare 6.10 as 6.1, so write "6.10"')
    return str(value)


def _sizes(option, value):
    if not isinstance(value, dict) or not all(
        isinstance(size, int) and not isinstance(size, bool) for size in value.values()
    ):
        raise _unusable(option, value, "a mapping of NIC name or PCI address to bytes, such as {ens1f0np0: 524280}")
    return {str(name): size for name, size in value.items()}


def _bytes(option, value):
    if isinstance(value, bool) or not re.match(r"\d{1,9}\Z", str(value), re.ASCII):
        raise _unusable(option, value, "a whole number of bytes")
    return int(value)


def _bad_kernels(option, value):
    allowed = "a list of {release: pattern, gates: [...], why: text}"
    if not isinstance(value, (list, tuple)):
        raise _unusable(option, value, allowed)
    for entry in value:
        if not isinstance(entry, dict) or {"release", "gates", "why"} != set(entry):
            raise _unusable(option, entry, allowed)
        _texts(option, entry["gates"], GATES)
        try:
            re.compile(str(entry["release"]))
        except re.error as error:
            raise _unusable(option, entry["release"], "a regular expression (%s)" % error) from None
    return [dict(entry, release=str(entry["release"])) for entry in value]


def _bad_releases(option, value):
    allowed = (
        "a list of {first: version, last: version, what: big_tcp_with_tunnel_device or distributed_lru, why: text}"
    )
    if not isinstance(value, (list, tuple)):
        raise _unusable(option, value, allowed)
    for entry in value:
        if not isinstance(entry, dict) or {"first", "last", "what", "why"} != set(entry):
            raise _unusable(option, entry, allowed)
        cilium.release(entry["first"]), cilium.release(entry["last"])
    return list(value)


def _table(option, value):
    if not isinstance(value, dict):
        raise _unusable(option, value, "a mapping of chart values")
    return value


def _choice(option, value):
    if value not in ("y", "m", "n"):
        raise _unusable(option, value, "y, m or n")
    return value


_CHECKS = {
    "uplinks": _texts,
    "kernel": _kernel,
    "config_netkit": _choice,
    "nic_drivers": _texts,
    "nic_drivers_gates": lambda option, value: _texts(option, value, GATES),
    "tso_max_size_above": _bytes,
    "tso_max_sizes": _sizes,
    "wanted": lambda option, value: _texts(option, value, GATES),
    "known_bad_kernels": _bad_kernels,
    "known_bad_releases": _bad_releases,
    "cilium_version": lambda option, value: cilium.shown(cilium.release(value)),
    "cilium_values": _table,
}


def normalise(given):
    """Every option of OPTIONS, checked; None and absent mean the default. Raises ``gate_<option>``, ``gate_option_unknown``."""
    if given is not None and not isinstance(given, dict):
        raise _unusable("options", given, "a mapping of options of dataplane_gate")
    unknown = sorted(str(key) for key in given or {} if key not in OPTIONS)
    if unknown:
        raise HostprepError(
            "gate_option_unknown",
            "the data path gate has no such option",
            read=", ".join(unknown)[:200],
            allowed=", ".join(sorted(OPTIONS)),
            cure="remove or correct it in the inventory",
        )
    options = {}
    for option, spec in OPTIONS.items():
        value = (given or {}).get(option)
        value = spec.get("default") if value is None else value
        options[option] = None if value is None else _CHECKS.get(option, _kernel)(option, value)
    return options


def kernel_number(text):
    """(6, 8, 0) of "6.8.0-49-generic"; (6, 8) of "6.8"; None where there are no numbers."""
    match = _NUMBERS.match(text or "")
    return tuple(int(part) for part in match.groups() if part is not None) if match else None


def below(release, floor):
    return kernel_number(release) < kernel_number(floor)


# --- uplinks -------------------------------------------------------------------------------------------------------------------


def _label(nic):
    return nic.get("name") or nic.get("pci") or "unnamed NIC"


def _names(nic):
    names = [nic.get("name"), nic.get("pci"), (nic.get("pci") or "").lower()]
    return {name for name in names + list(nic.get("netdevs") or ()) if name}


def _beneath(topology, name, seen):
    """NICs under a network device; itself, if it is one's. Loops end where they close."""
    if name in seen:
        return []
    seen.add(name)
    for nic in topology["nics"]:
        if name in _names(nic):
            return [nic]
    device = next((device for device in topology["netdevs"] if device["name"] == name), None)
    found = []
    for lower in [] if device is None else list(device.get("nics") or ()) + list(device.get("lower") or ()):
        found += [nic for nic in _beneath(topology, lower, seen) if nic not in found]
    return found


def uplinks(topology, names=None):
    """[{"name", "nics": [NICs of the topology]}]: the named devices, or those with a default route, or every PCI NIC that is not down."""
    if names is None:
        names = [device["name"] for device in topology["netdevs"] if device.get("default_route")]
        names = names or [_label(nic) for nic in topology["nics"] if nic.get("default_route")]
        names = names or [_label(nic) for nic in topology["nics"] if nic.get("pci") and nic.get("up") is not False]
    else:
        known = {name for nic in topology["nics"] for name in _names(nic)} | {
            device["name"] for device in topology["netdevs"]
        }
        missing = [name for name in names if name not in known and name.lower() not in known]
        if missing:
            raise HostprepError(
                "uplink_unknown",
                "an uplink is named that this host does not have",
                read=", ".join(missing),
                allowed=", ".join(sorted(known))[:300] or "none was found",
                cure="correct uplinks in the inventory",
            )
    return [
        {"name": name, "nics": _beneath(topology, name, set()) or _beneath(topology, name.lower(), set())}
        for name in names
    ]


def family(driver):
    return DRIVER_FAMILIES.get(driver, driver)


# --- the judgement ---------------------------------------------------------------------------------------------------------------


class _Verdict:
    """Collects, for each gate, what speaks against it (``no``) and what cannot be known (``unknown``)."""

    def __init__(self):
        self.no = {gate: [] for gate in GATES}
        self.unknown = {gate: [] for gate in GATES}

    def against(self, gates, reason):
        for gate in gates:
            self.no[gate].append(reason)

    def unsure(self, gates, reason):
        for gate in gates:
            self.unknown[gate].append(reason)


def judge(topology, options=None, newer=None):
    """{"gates": {gate: {"eligible", "reasons"}}, "warnings": [finding], "dataplane": what was read}.

    dataplane is {"kernel", "uplinks": [{"name", "nics"}], "memory_mib", "possible_cpus"}; the last two decide on the sizes of Cilium's maps.

    topology  as docs/schemas/topology.schema.json says; options: see OPTIONS, in any state that ``normalise`` takes
    newer     {"release", "config_netkit"} of a kernel that is installed and not running, or None. Unless the option kernel says which
              one will boot, a gate opens for a host only if it does with both.
    """
    options = normalise(options)
    answer = _judge(topology, options)
    if newer and options["kernel"] is None:
        built = options["config_netkit"] or newer["config_netkit"]
        other = _judge(topology, dict(options, kernel=newer["release"], config_netkit=built))
        for gate in GATES:
            if answer["gates"][gate]["eligible"] is True and other["gates"][gate]["eligible"] is not True:
                answer["gates"][gate] = other["gates"][gate]
        answer["warnings"].append(
            finding(
                "kernel_newer_installed",
                "a newer kernel is installed than the one that runs, and the next boot may start it: both were judged",
                "say which one will boot (kernel), or nothing if the newer one is meant",
                "running %s, installed %s" % (topology["kernel"]["release"], newer["release"]),
            )
        )
    return answer


def _judge(topology, options):
    verdict, warnings = _Verdict(), []
    running = topology["kernel"]["release"]
    kernel = options["kernel"] or running
    links = uplinks(topology, options["uplinks"])
    _judge_kernel(verdict, warnings, options, kernel)
    _judge_netkit(verdict, topology, options, kernel, running)
    _judge_drivers(verdict, options, links)
    _judge_sizes(verdict, warnings, options, links, kernel, running)
    _judge_cilium(verdict, warnings, options)
    off = [gate for gate in GATES if gate not in options["wanted"]]
    read = "wanted: %s" % (", ".join(options["wanted"]) or "none")
    verdict.against(off, finding("gate_not_wanted", "the policy does not want it", "add it to wanted", read))
    _judge_families(verdict, options, kernel)
    names = ", ".join(link["name"] for link in links)
    possible = topology["cpus"].get("possible")
    return {
        "gates": {gate: _answer(verdict, gate, kernel, names) for gate in GATES},
        "warnings": warnings,
        "dataplane": {
            "kernel": kernel,
            "memory_mib": _memory(topology),
            "possible_cpus": len(cpulist.expand(possible)) if possible else None,
            "uplinks": [
                {"name": link["name"], "nics": [_shown(nic, options) for nic in link["nics"]]} for link in links
            ],
        },
    }


def _memory(topology):
    sizes = [node.get("memory_mib") for node in topology["numa_nodes"]]
    return sum(sizes) if sizes and None not in sizes else None


def _shown(nic, options):
    return {"name": _label(nic), "driver": nic.get("driver"), "tso_max_size": _size(nic, options)}


def _answer(verdict, gate, kernel, uplink_names):
    if verdict.no[gate]:
        return {"eligible": False, "reasons": verdict.no[gate] + verdict.unknown[gate]}
    if verdict.unknown[gate]:
        return {"eligible": None, "reasons": verdict.unknown[gate]}
    read = "kernel %s, uplinks %s" % (kernel, uplink_names)
    return {"eligible": True, "reasons": [finding("eligible", "everything that it needs was read", None, read)]}


def _judge_kernel(verdict, warnings, options, kernel):
    if kernel_number(kernel) is None:
        verdict.unsure(
            GATES,
            finding(
                "kernel_unknown",
                "the kernel's release is not known",
                "give it as kernel",
                "kernel %s" % (kernel or "none"),
            ),
        )
        return
    rule = options["kernel_min"]
    floors = {gate: options[gate + "_kernel_floor"] for gate in GATES}
    for gate in GATES:
        if below(kernel, rule):
            verdict.against(
                [gate],
                finding(
                    "kernel_below_rule",
                    "the kernel is older than the policy's minimum",
                    "boot kernel %s or later, or lower kernel_min" % rule,
                    "kernel %s, kernel_min %s" % (kernel, rule),
                ),
            )
        if below(kernel, floors[gate]):
            verdict.against(
                [gate],
                finding(
                    "kernel_below_floor",
                    "the kernel does not have it",
                    "boot kernel %s or later" % floors[gate],
                    "kernel %s" % kernel,
                ),
            )
    for entry in BAD_KERNELS if options["known_bad_kernels"] is None else options["known_bad_kernels"]:
        if re.match(entry["release"], kernel):
            verdict.against(
                entry["gates"],
                finding(
                    "kernel_known_bad",
                    "this kernel is known to fail with it: " + entry["why"],
                    "boot a newer kernel",
                    kernel,
                ),
            )
    young = options["netkit_kernel_young"]
    if not below(kernel, floors["netkit"]) and below(kernel, young) and "netkit" in options["wanted"]:
        warnings.append(
            finding(
                "netkit_kernel_young",
                "netkit before %s may lack the fix for packets that network policies misjudge (cilium#35306)" % young,
                "prefer kernel %s or later, or ask the distribution for the fix" % young,
                "kernel %s" % kernel,
            )
        )


def _judge_netkit(verdict, topology, options, kernel, running):
    built = options["config_netkit"]
    if built is None and kernel == running:
        built = (topology["kernel"].get("config") or {}).get("CONFIG_NETKIT")
    if built is None:
        verdict.unsure(
            ["netkit"],
            finding(
                "netkit_config_unknown",
                "whether kernel %s was built with CONFIG_NETKIT is not known, and an agent that asks for netkit without it does not start"
                % (kernel or "?"),
                "provide /boot/config-%s, or say config_netkit: y" % (kernel or "RELEASE"),
                "kernel %s, CONFIG_NETKIT not known" % (kernel or "not known"),
            ),
        )
    elif built != "y":
        verdict.against(
            ["netkit"],
            finding(
                "netkit_not_built",
                "the kernel was built without CONFIG_NETKIT, and no module can add it",
                "boot a kernel with CONFIG_NETKIT=y",
                "CONFIG_NETKIT=%s in kernel %s" % (built, kernel),
            ),
        )


def _judge_drivers(verdict, options, links):
    if not links:
        read = "no default route, no PCI NIC that may be up" if options["uplinks"] is None else "uplinks: []"
        verdict.unsure(GATES, finding("no_uplink", "no uplink of this host is known", "name them in uplinks", read))
    gates = options["nic_drivers_gates"]
    for link in links:
        if not link["nics"]:
            verdict.against(
                [gate for gate in GATES if gate in BIG_TCP or gate in gates],
                finding(
                    "uplink_virtual",
                    "an uplink has no physical NIC beneath it: it has no driver of the list, and Cilium gives all devices the smallest limit of them",
                    "name the physical uplinks, or leave it out of Cilium's devices",
                    link["name"],
                ),
            )
        for nic in link["nics"]:
            if nic.get("driver") is None:
                verdict.unsure(
                    gates,
                    finding(
                        "nic_driver_unknown",
                        "an uplink's driver is not known",
                        "bind a driver, or capture its link",
                        _label(nic),
                    ),
                )
            elif family(nic["driver"]) not in {family(name) for name in options["nic_drivers"]}:
                verdict.against(
                    gates,
                    finding(
                        "nic_driver_not_listed",
                        "an uplink's driver is not in nic_drivers (%s)" % ", ".join(options["nic_drivers"]),
                        "allow it in nic_drivers if you have tested it",
                        "%s: %s" % (_label(nic), nic["driver"]),
                    ),
                )


def _size(nic, options):
    declared = options["tso_max_sizes"] or {}
    return next((declared[name] for name in sorted(_names(nic)) if name in declared), nic.get("tso_max_size"))


def _judge_sizes(verdict, warnings, options, links, kernel, running):
    limit, seen = options["tso_max_size_above"], []
    for link in links:
        for nic in link["nics"]:
            if nic in seen:
                continue
            seen.append(nic)
            size = _size(nic, options)
            if size is None:
                verdict.unsure(
                    BIG_TCP,
                    finding(
                        "tso_max_size_unknown",
                        "an uplink's tso_max_size is not known: only a running kernel from 6.0 on tells it",
                        "run this on the host itself, or declare it in tso_max_sizes",
                        _label(nic),
                    ),
                )
            elif size <= limit:
                verdict.against(
                    BIG_TCP,
                    finding(
                        "tso_max_size_small",
                        "an uplink takes no packets above %d bytes, and Cilium gives all devices the smallest limit of them"
                        % limit,
                        "leave this uplink out of Cilium's devices, or leave BIG TCP off here",
                        "%s: tso_max_size %d" % (_label(nic), size),
                    ),
                )
    if kernel != running and seen:
        warnings.append(
            finding(
                "judged_on_another_kernel",
                "tso_max_size was read on the running kernel, the rest is judged for the one that will boot",
                "judge again after the boot",
                "running %s, to boot %s" % (running or "unknown", kernel),
            )
        )


def _judge_cilium(verdict, warnings, options):
    version = options["cilium_version"] and cilium.release(options["cilium_version"])
    if version is None:
        warnings.append(
            finding(
                "cilium_version_unknown",
                "without Cilium's version its releases with defects are not ruled out",
                "give cilium_version",
                "no cilium_version",
            )
        )
    if options["cilium_values"] is not None:
        for gate, reasons in cilium.exclusions(
            options["cilium_values"], version, options["known_bad_releases"]
        ).items():
            verdict.no[gate] += reasons


def _judge_families(verdict, options, kernel):
    """From 6.7 on BIG TCP of one family alone has no effect (cilium#32942), so what is against one is against both."""
    if kernel_number(kernel) is None or below(kernel, options["both_families_from"]):
        return
    for gate, other in (BIG_TCP, BIG_TCP[::-1]):
        if verdict.no[other] and not verdict.no[gate]:
            verdict.against(
                [gate],
                finding(
                    "big_tcp_one_family",
                    "from kernel %s on, BIG TCP of one family alone has no effect" % options["both_families_from"],
                    "clear what is against " + other,
                    "%s is not eligible: %s" % (other, verdict.no[other][0]["code"]),
                ),
            )
