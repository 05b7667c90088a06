# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps the system on the housekeeping CPUs: the files, units and commands for ``host_files``. Plain data in and out.

``plan`` is cpu_plan's, ``services`` what host/services.py read, ``switches`` the choices of the role cpu_isolation (``SWITCHES``).
"""

from __future__ import annotations

import re

from . import cpulist
from .errors import HostprepError, finding
from .plan import refuse_other_host

NAME = "lo0-rke2-hostprep"
DROP_IN = "90-%s.conf" % NAME  # after the 50-*.conf of systemctl set-property
# The kubelet's pods are in none of them: kubepods.slice is beside system.slice, and -.slice is never touched.
SLICES = ("system.slice", "user.slice", "init.scope")
MANAGER = "/etc/systemd/system.conf.d/" + DROP_IN
TMPFILES = "/etc/tmpfiles.d/90-%s.conf" % NAME
PREEMPTION_UNIT = NAME + "-preemption.service"
IRQBALANCE_ENVIRONMENT = "/etc/default/%s-irqbalance" % NAME
RKE2_UNITS = ("rke2-server.service", "rke2-agent.service")
GOVERNOR = "performance"


def drop_in(unit):
    return "/etc/systemd/system/%s.d/%s" % (unit, DROP_IN)


# Files whose text tells whether a live value that differs is drift, or was never asked for.
WATCHED = tuple(drop_in(unit) for unit in SLICES) + (MANAGER, TMPFILES, "/etc/systemd/system/" + PREEMPTION_UNIT)

# name: (default, allowed values or a type)
SWITCHES = {
    "system_slices": (True, bool),
    "irqbalance": ("mask", ("mask", "ban", "keep")),
    "tuned": ("auto", ("auto", "profile", "keep")),
    "tuned_replace": (False, bool),
    "busy_poll": (False, bool),
    "governor": (True, bool),
    "preemption": (None, str),
    "workqueue": (True, bool),
    "control_plane": (False, bool),
    "runc_version": (None, str),
}

# Arguments that decide where tasks, interrupts and ticks run: whoever claims one of them claims what the plan decides.
PLANNED_ARGUMENTS = frozenset(
    ("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", "nosmt", "systemd.cpu_affinity", "tuned.non_isolcpus")
)
# tuned's plug-ins, and of sysfs the files, that place tasks or interrupts.
_PLACING = ("irqbalance", "irq", "scheduler", "systemd")
_PLACING_FILES = ("workqueue", "/proc/irq", "cpumask")
# What network-latency and its heirs set and a node of large models is worse off with.
_HARMS = (
    ("sysctl", "kernel.timer_migration", "0", "timers stay on the isolated CPUs where they were armed"),
    ("vm", "transparent_hugepages", "never", "large models lose the huge pages of their memory"),
    ("vm", "transparent_hugepage", "never", "large models lose the huge pages of their memory"),
)
_BUSY = ("net.core.busy_poll", "net.core.busy_read")
_HEADER = "# Written by the collection lo0.rke2_hostprep, role cpu_isolation. Change its variables, not this file.\n"


# -- what comes in ---------------------------------------------------------------------------------------------------------


def _choices(given):
    if not isinstance(given, dict):
        raise HostprepError(
            "isolation_switch_invalid",
            "the switches are no mapping",
            read=type(given).__name__,
            allowed=", ".join(SWITCHES),
            cure="pass the role's switches",
        )
    for name, value in given.items():
        if name not in SWITCHES:
            raise HostprepError(
                "isolation_switch_unknown",
                "there is no such switch",
                read=str(name),
                allowed=", ".join(SWITCHES),
                cure="correct its name",
            )
        default, allowed = SWITCHES[name]
        if isinstance(allowed, tuple):
            right, shown = value in allowed, ", ".join(allowed)
        else:
            right = isinstance(value, allowed) or (default is None and value is None)
            shown = "true or false" if allowed is bool else "a text, or nothing"
        if not right:
            raise HostprepError(
                "isolation_switch_invalid",
                "a switch has a value that it cannot have",
                read="%s: %r" % (name, value),
                allowed=shown,
                cure="correct cpu_isolation_%s" % name,
            )
    return {name: given.get(name, default) for name, (default, _allowed) in SWITCHES.items()}


def _check_inputs(plan, services, host):
    """The plan's lists as they are written: whatever else stands in them would be lines of systemd's files."""
    keys = ("reserved", "isolated", "online_after_boot")
    try:
        lists = {key: cpulist.compress(plan[key]) for key in keys if isinstance(plan[key], str)}
        read = next((key for key in keys if not lists.get(key)), None)
    except (HostprepError, TypeError, LookupError) as error:
        read = type(plan).__name__ if not isinstance(plan, dict) else str(getattr(error, "read", error))
    if read is not None:
        raise HostprepError(
            "plan_invalid",
            "what was passed is no plan",
            read=read,
            allowed="the plan that cpu_plan returned",
            cure="run the role host_plan first",
        )
    refuse_other_host(plan, host)
    if not isinstance(services, dict) or "irqbalance" not in services:
        raise HostprepError(
            "services_missing",
            "what else works on the host's CPUs was not read",
            read=type(services).__name__,
            allowed="the services that cpu_plan returns",
            cure="set host_plan_services: true, or services: true of cpu_plan",
        )
    return lists


def isolation_set(plan, services, switches=None, host=None):
    """{"applies": bool, "files", "units", "commands": as host_files takes them, "files_first": bool, "warnings": [finding]}.

    files_first: whether the kernel arguments have to wait for the files, since a tuned profile that owns some of them goes with these.
    host: name of the host that it is for; a plan that names another is refused.
    Raises HostprepError where a switch asks for what the host cannot have, or what another owner has.
    """
    wanted = _choices(switches or {})
    plan = _check_inputs(plan, services, host)
    found = {"applies": True, "files": [], "units": [], "commands": [], "files_first": False, "warnings": []}
    if services["rke2"] == "server" and not wanted["control_plane"]:
        found["applies"] = False
        found["warnings"].append(
            finding(
                "control_plane_left",
                "the host is a control-plane node of RKE2, and is left as it is",
                "cpu_isolation_control_plane: true, where its CPUs shall be isolated all the same",
                "rke2-server",
            )
        )
        return found
    if wanted["system_slices"]:
        _system(plan, services, wanted, found)
    _irqbalance(plan, services, wanted, found)
    tuned_sets = _tuned(services, wanted, found)
    _live_values(plan, services, wanted, tuned_sets, found)
    _preemption(services, wanted, found)
    found["warnings"] += receive_warnings(plan, services)
    found["warnings"] += [
        finding(
            "other_owner",
            "%s places interrupts or tasks too, and the last one to write wins" % owner["name"],
            "switch it off, or leave the NICs and CPUs of the plan to it alone",
            "%s: %s" % (owner["path"], owner["read"]),
        )
        for owner in services["owners"]
    ]
    return found


def _own(found, path, content):
    found["files"].append({"path": path, "content": _HEADER + content})


def _in_place(services, found, path):
    """Whether the host has the file already as it shall be, so that a live value that differs was changed by someone."""
    return any(entry["path"] == path and services["ours"].get(path) == entry["content"] for entry in found["files"])


def _drift(found, what, is_now, wanted, cure):
    found["warnings"].append(
        finding(
            "live_value_differs",
            "%s differs from what the files of this role set" % what,
            cure,
            "%s, wanted %s" % (is_now or "nothing", wanted),
        )
    )


# -- the system's own tasks ------------------------------------------------------------------------------------------------


def _system(plan, services, wanted, found):
    reserved = plan["reserved"]
    if services["cgroup"]["cpuset"]:
        paths = []
        for unit in SLICES:
            section = "Scope" if unit.endswith(".scope") else "Slice"
            # Assignments of several drop-ins add up: the empty one forgets those before.
            _own(found, drop_in(unit), "[%s]\nAllowedCPUs=\nAllowedCPUs=%s\n" % (section, reserved))
            paths.append(drop_in(unit))
            live = services["cgroup"]["slices"][unit]
            if _in_place(services, found, drop_in(unit)) and live["cpus"] != reserved:
                cure = "systemctl daemon-reload, then systemd-run --wait true (a unit that starts makes systemd 257 write it)"
                _drift(found, "AllowedCPUs of the running %s" % unit, live["cpus"], reserved, cure)
        # Up to 252 the reload writes it. 257 waits until a unit starts: without one neither the cpusets nor their end come true.
        argv = ["systemd-run", "--quiet", "--wait", "--collect", "/bin/true"]
        # Before units: one that counts CPUs (irqbalance's ConditionCPUs=) must see those that systemd has from now on.
        found["commands"].append({"argv": argv, "when_changed": paths, "before_units": True})
        return
    found["warnings"].append(
        finding(
            "cgroup_without_cpuset",
            "the host has no cgroup v2 with cpusets, so CPUAffinity= is set instead: running services keep their CPUs until they restart",
            "boot with systemd.unified_cgroup_hierarchy=1",
            "cgroup v2 without cpuset" if services["cgroup"]["unified"] else "no cgroup v2",
        )
    )
    _own(found, MANAGER, "[Manager]\nCPUAffinity=\nCPUAffinity=%s\n" % reserved)
    if _in_place(services, found, MANAGER) and services["manager_cpus"] != reserved:
        _drift(found, "the CPU affinity of systemd", services["manager_cpus"], reserved, "systemctl daemon-reload")
    # systemd takes an affinity on when it reloads, and keeps it when the line is gone.
    give_back = '[ -e %s ] || taskset --cpu-list --pid "$(cat /sys/devices/system/cpu/online)" 1' % MANAGER
    for argv in (["systemctl", "daemon-reload"], ["/bin/sh", "-c", give_back]):
        found["commands"].append({"argv": argv, "when_changed": [MANAGER], "before_units": True})
    version = wanted["runc_version"] or services["runc"]
    if runc_resets_affinity(version):
        return
    # Up to that runc every container keeps the affinity of the unit that its runtime runs in (containerd#11345).
    text = "[Service]\nCPUAffinity=\nCPUAffinity=%s\n" % plan["online_after_boot"]
    for unit in RKE2_UNITS + tuple(services["runtimes"]):
        _own(found, drop_in(unit), text)
    found["warnings"].append(
        finding(
            "runc_keeps_affinity",
            "RKE2's own processes stay on all CPUs, since its containers would inherit a narrower affinity from them",
            "cpu_isolation_runc_version, where `runc --version` of RKE2 says 1.2.7, 1.3.1 or later",
            "runc %s" % (version or "of unknown version"),
        )
    )


def runc_resets_affinity(version):
    """Whether a runc gives a container the CPUs of its own cgroup; an unknown version is taken for one that does not."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)(-rc)?", version or "", re.ASCII)
    if not match:
        return False
    number = tuple(int(part) for part in match.groups()[:3])
    if match.group(4):
        return number > (1, 3, 1)
    return number >= (1, 3, 1) or (1, 2, 7) <= number < (1, 3, 0)


# -- irqbalance ------------------------------------------------------------------------------------------------------------


def _irqbalance(plan, services, wanted, found):
    state = services["irqbalance"]
    if not state["installed"]:
        return
    if wanted["irqbalance"] == "mask":
        found["units"].append({"name": "irqbalance.service", "masked": True, "state": "stopped"})
    elif wanted["irqbalance"] == "ban":
        # A file of its own, read after the distribution's: what others write there stays theirs. Up to 1.7 irqbalance knows the mask
        # alone (up to 1.6 an empty one bans nothing), and later ones prefer it to the list: it is said twice.
        mask = cpulist.to_mask(plan["isolated"])
        _own(
            found,
            IRQBALANCE_ENVIRONMENT,
            "IRQBALANCE_BANNED_CPUS=%s\nIRQBALANCE_BANNED_CPULIST=%s\n" % (mask, plan["isolated"]),
        )
        path = drop_in("irqbalance.service")
        _own(found, path, "[Service]\nEnvironmentFile=%s\n" % IRQBALANCE_ENVIRONMENT)
        found["units"].append({"name": "irqbalance.service", "restart_on": [IRQBALANCE_ENVIRONMENT, path]})
    elif state["enabled"] or state["running"]:
        found["warnings"].append(
            finding(
                "irqbalance_kept",
                "irqbalance runs, and moves interrupts onto isolated CPUs: with isolcpus=managed_irq it bans none of them by itself",
                "cpu_isolation_irqbalance: mask or ban",
                ", ".join("%s=%s" % item for item in sorted(state["banned"].items())) or "no ban list",
            )
        )


# -- tuned -----------------------------------------------------------------------------------------------------------------


def _tuned(services, wanted, found):
    """Adds our profile where it belongs; returns the settings that tuned will have in force ({section: {option: {"value", "path"}}})."""
    tuned = services["tuned"]
    acts = tuned["installed"] and not tuned["masked"] and bool(tuned["enabled"] or tuned["running"])
    if wanted["tuned"] == "profile" and not (tuned["installed"] and tuned["base"]):
        raise HostprepError(
            "tuned_missing",
            "tuned, or its profile network-latency, is not on the host",
            read="tuned %s" % ("without network-latency" if tuned["installed"] else "is not installed"),
            allowed="tuned with its profiles",
            cure="install tuned, or cpu_isolation_tuned: auto or keep",
        )
    manages = wanted["tuned"] == "profile" or (wanted["tuned"] == "auto" and acts and tuned["base"])
    other = tuned["profile"] if acts and tuned["profile"] != NAME else None
    owned = _placing(tuned) if other else []
    if other and owned and manages and not wanted["tuned_replace"]:
        raise HostprepError(
            "tuned_profile_owns",
            "tuned's active profile %s owns arguments or interrupts that the plan decides on; nothing was done" % other,
            read="; ".join(owned),
            allowed="a profile that leaves them alone",
            cure="cpu_isolation_tuned_replace: true puts %s in its place, cpu_isolation_tuned: keep leaves it" % NAME,
        )
    if manages:
        found["files_first"] = bool(other and tuned["arguments"])
        _own_profile(tuned, wanted, found)
        dropped = sorted(set(tuned["arguments"]) - PLANNED_ARGUMENTS) if other else []
        if dropped:
            found["warnings"].append(
                finding(
                    "tuned_arguments_dropped",
                    "kernel arguments that tuned's profile %s set are gone with it" % other,
                    "add those that are needed to the boot loader's own settings",
                    ", ".join(dropped),
                )
            )
        return {"cpu": {"governor": {"value": GOVERNOR, "path": tuned["folder"]}}}
    if not other:
        return {}
    if owned:
        found["warnings"].append(
            finding(
                "tuned_profile_owns",
                "tuned's active profile %s is kept, and places arguments, tasks or interrupts itself" % other,
                "cpu_isolation_tuned: profile with cpu_isolation_tuned_replace: true, or another profile",
                "; ".join(owned),
            )
        )
    harms = [
        "%s=%s (%s)" % (option, value, why)
        for section, option, value, why in _HARMS
        if tuned["settings"].get(section, {}).get(option, {}).get("value") == value
    ]
    harms += [
        "%s=%s" % (option, tuned["settings"]["sysctl"][option]["value"])
        for option in _BUSY
        if tuned["settings"].get("sysctl", {}).get(option, {"value": "0"})["value"] != "0"
    ]
    if harms:
        found["warnings"].append(
            finding(
                "tuned_harms",
                "tuned's active profile %s is kept, with settings that disturb isolated CPUs" % other,
                "cpu_isolation_tuned: profile",
                "; ".join(harms),
            )
        )
    return tuned["settings"]


def _placing(tuned):
    """["option in file"] of what a profile says about arguments of the plan, tasks or interrupts."""
    owned = [
        "%s in /%s" % (name, path) for name, path in sorted(tuned["arguments"].items()) if name in PLANNED_ARGUMENTS
    ]
    for section, options in sorted(tuned["settings"].items()):
        plugin = options.get("type", {"value": section})["value"]
        for option, setting in sorted(options.items()):
            places = plugin in _PLACING and option not in ("type", "enabled", "priority", "ps_blacklist")
            if places or (plugin == "sysfs" and any(word in option for word in _PLACING_FILES)):
                owned.append("[%s] %s in /%s" % (section, option, setting["path"]))
    return owned


def _own_profile(tuned, wanted, found):
    dropped = ["kernel.timer_migration"] + ([] if wanted["busy_poll"] else list(_BUSY))
    path = "%s/%s/tuned.conf" % (tuned["folder"], NAME)
    # Its arguments twice over: a version that does not know the one word knows the other.
    _own(
        found,
        path,
        "[main]\nsummary=network-latency without boot arguments and without what disturbs isolated CPUs\n"
        "include=network-latency\n\n[bootloader]\nreplace=true\nenabled=false\nskip_grub_config=True\n\n"
        "[vm]\ndrop=transparent_hugepages,transparent_hugepage\n\n[sysctl]\ndrop=%s\n" % ",".join(dropped),
    )
    # As tuned itself writes them, so that it finds nothing to change.
    found["files"].append({"path": "/etc/tuned/active_profile", "content": NAME + "\n"})
    found["files"].append({"path": "/etc/tuned/profile_mode", "content": "manual\n"})
    paths = [path, "/etc/tuned/active_profile", "/etc/tuned/profile_mode"]
    unit = {"name": "tuned.service", "restart_on": paths}
    if wanted["tuned"] == "profile":
        unit.update(enabled=True, state="started")
        if tuned["masked"]:
            unit["masked"] = False
    found["units"].append(unit)


# -- values of the kernel --------------------------------------------------------------------------------------------------


def _live_values(plan, services, wanted, tuned_sets, found):
    """Governor and workqueue masks by one file of tmpfiles.d, which every boot applies."""
    lines, expected = [], []
    queues = services["workqueue"] if wanted["workqueue"] else {}
    claimed = [option for option in tuned_sets.get("sysfs", {}) if "workqueue" in option]
    if claimed:
        queues = {}  # said by tuned_profile_owns
    if queues:
        mask = cpulist.to_mask(plan["reserved"])
        patterns = {re.sub(r"workqueue/[^/]+/cpumask", "workqueue/*/cpumask", path) for path in queues}
        lines += ["w %s - - - - %s" % (pattern, mask) for pattern in sorted(patterns, key=lambda one: (len(one), one))]
        expected += [(path, cpus, plan["reserved"]) for path, cpus in sorted(queues.items())]
    governor = services["governor"]
    if wanted["governor"] and governor["current"]:
        by_tuned = tuned_sets.get("cpu", {}).get("governor", {}).get("value")
        if by_tuned and GOVERNOR not in by_tuned.split("|")[0]:
            found["warnings"].append(
                finding(
                    "governor_owned",
                    "tuned sets another frequency governor, and is left to it",
                    "cpu_isolation_tuned: profile, or another profile",
                    "governor=%s in /%s" % (by_tuned, tuned_sets["cpu"]["governor"]["path"]),
                )
            )
        elif not by_tuned and GOVERNOR not in governor["available"]:
            found["warnings"].append(
                finding(
                    "governor_unavailable",
                    "the frequency driver does not offer the governor performance",
                    "look at the firmware's power profile and the kernel's cpufreq driver, or cpu_isolation_governor: false",
                    ", ".join(governor["available"]) or "none offered",
                )
            )
        elif not by_tuned:
            lines.append("w /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor - - - - %s" % GOVERNOR)
            others = {name: cpus for name, cpus in governor["current"].items() if name != GOVERNOR}
            expected += [("the frequency governor of CPUs " + cpus, name, GOVERNOR) for name, cpus in others.items()]
    if lines and services["container"]:
        found["warnings"].append(
            finding(
                "container",
                "the host is a container, whose kernel belongs to another machine: workqueue masks and the governor are left",
                "run the role on the machine itself",
                services["container"],
            )
        )
        return
    if not lines:
        return
    _own(found, TMPFILES, "".join(line + "\n" for line in lines))
    # By prefix and not by name: after a rollback the file is gone, and the command must succeed all the same.
    argv = ["systemd-tmpfiles", "--create", "--prefix=/sys/devices"]
    found["commands"].append({"argv": argv, "when_changed": [TMPFILES]})
    if _in_place(services, found, TMPFILES):
        for what, is_now, right in expected:
            if is_now != right:
                _drift(found, what, is_now, right, "systemd-tmpfiles --create %s" % TMPFILES)


def _preemption(services, wanted, found):
    model, state = wanted["preemption"], services["preemption"]
    if not model:
        return
    if services["container"] or state["why"]:
        raise HostprepError(
            "preemption_unreadable",
            "which preemption models the kernel offers cannot be read",
            read=services["container"] or state["why"],
            allowed="a kernel with PREEMPT_DYNAMIC, debugfs and no lockdown",
            cure="leave cpu_isolation_preemption out",
        )
    if model not in state["models"]:
        raise HostprepError(
            "preemption_not_offered",
            "the kernel does not offer that preemption model",
            read="%s, in use %s" % (model, state["model"]),
            allowed=", ".join(state["models"]),
            cure="correct cpu_isolation_preemption",
        )
    path = "/etc/systemd/system/" + PREEMPTION_UNIT
    file = "/sys/kernel/debug/sched/preempt"
    # A unit and no preempt= argument: it acts at once, is undone at once, and needs no boot that has to be tried.
    _own(
        found,
        path,
        "[Unit]\nDescription=Preemption model of the kernel: {0}\nRequiresMountsFor=/sys/kernel/debug\n"
        "ConditionPathExists={1}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\nRuntimeDirectory={2}\n"
        'ExecStart=/bin/sh -c \'cut -d"(" -f2 {1} | cut -d")" -f1 >/run/{2}/before && echo {0} >{1}\'\n'
        "ExecStop=/bin/sh -c 'cat /run/{2}/before >{1}'\n\n[Install]\nWantedBy=multi-user.target\n".format(
            model, file, PREEMPTION_UNIT.rpartition(".")[0]
        ),
    )
    found["units"].append({"name": PREEMPTION_UNIT, "enabled": True, "state": "started", "restart_on": [path]})
    if _in_place(services, found, path) and state["model"] != model:
        _drift(found, "the preemption model", state["model"], model, "systemctl restart " + PREEMPTION_UNIT)


# -- receive work that others steer ----------------------------------------------------------------------------------------


def receive_warnings(plan, services):
    """[finding] of what makes isolated CPUs receive packets whatever the interrupts' masks say."""
    found, sysctl = [], services["sysctl"]
    flows = sysctl["net.core.rps_sock_flow_entries"]
    busy = ["%s=%d" % (name, sysctl[name]) for name in _BUSY if sysctl[name]]
    for nic in services["nics"]:
        steered = cpulist.intersect(cpulist.union(*nic["rps"].values()), plan["isolated"]) if nic["rps"] else ""
        if steered:
            found.append(
                finding(
                    "rps_on_isolated",
                    "RPS hands received packets of %s to isolated CPUs" % nic["name"],
                    "write 0 or a mask of housekeeping CPUs to rps_cpus of its queues",
                    "CPUs %s, queues %s" % (steered, ", ".join(sorted(nic["rps"], key=int))),
                )
            )
        if flows and nic["flows"]:
            found.append(
                finding(
                    "rfs_to_isolated",
                    "RFS hands received packets of %s to the CPU where they are read, and aRFS their interrupts too"
                    % nic["name"],
                    "net.core.rps_sock_flow_entries=0, and ethtool -K %s ntuple off" % nic["name"],
                    "rps_sock_flow_entries=%d, rps_flow_cnt=%d" % (flows, nic["flows"]),
                )
            )
        if nic["threaded"]:
            found.append(
                finding(
                    "napi_threaded",
                    "threads of the kernel receive for %s, on any CPU that they are not bound away from" % nic["name"],
                    "echo 0 to /sys/class/net/%s/threaded, or bind the napi/%s threads" % (nic["name"], nic["name"]),
                    "threaded=1",
                )
            )
        if nic["defer"] and nic["timeout"]:
            busy.append(
                "%s: napi_defer_hard_irqs=%d, gro_flush_timeout=%d" % (nic["name"], nic["defer"], nic["timeout"])
            )
    if busy:
        found.append(
            finding(
                "busy_polling",
                "sockets are polled by the tasks that read them, so that isolated CPUs receive for all flows of the queue",
                "set them to 0, unless the workload is built for it",
                "; ".join(busy),
            )
        )
    return found
