# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done so that owned files, units and commands are as wanted, or as they were found. Plain data in and out.

A *state* of a file is {"sha256", "mode", "uid", "gid"}, or None where there is no file. The record, which the host keeps, is

    {"format": 1,
     "files": {path: {"owner", "original": state with "xattrs" and "mtime_ns" or None, "ours": [states], "unsettled", "sensitive",
                      "foreign"}},
     "units": {name: {"owner", "original": {"load", "enabled", "active"}, "beneath", "touched": [...], "set": {...}, "settled"}},
     "folders": [folders that were made for files],
     "follow": {owner: {"units": [...], "commands": [...]}}}

``ours`` are the states that our writing may have left: one, or more while a run is under way. A path is *unsettled* from before its
first write until everything that follows its change has succeeded, so that a run that was killed or failed is taken up by the next.
"""

from __future__ import annotations

import copy
import hashlib
import re

from .errors import HostprepError

FORMAT = 1
MASKED = ("masked", "masked-runtime")
ENABLED = ("enabled", "enabled-runtime")
ENABLEABLE = ("disabled", "indirect", "linked", "linked-runtime", "enabled-runtime", "", "bad")
ACTIVE = ("active", "activating", "reloading", "refreshing")
UNIT_FOLDERS = (
    "/etc/systemd/system/",
    "/etc/systemd/system.control/",
    "/run/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
)
# Nobody owns these: the kernel makes them, and a file there would be gone after the boot or act on the machine.
FORBIDDEN = ("/proc", "/sys", "/dev")

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.(service|socket|timer|path|target|slice|mount|automount|swap|scope|device)")
_OWNER = re.compile(r"[a-z][a-z0-9_]{0,63}")


def empty_record():
    return {"format": FORMAT, "files": {}, "units": {}, "folders": [], "follow": {}}


# -- what the user wants --------------------------------------------------------------------------------------------------


def normalise(options):
    """The options of the module, checked as far as that is possible without the host; contents are bytes, modes are numbers."""
    wanted = {
        "state": options.get("state") or "present",
        "owner": options.get("owner") or "host",
        "purge": bool(options.get("purge")),
        "discard": bool(options.get("discard_foreign_changes")),
        "timeout": options.get("timeout") or 120,
        "files": [_file(entry) for entry in options.get("files") or []],
        "units": [_unit(entry) for entry in options.get("units") or []],
        "commands": [_command(entry) for entry in options.get("commands") or []],
    }
    if not _OWNER.fullmatch(wanted["owner"]):
        raise HostprepError(
            "files_owner_invalid",
            "the owner of the set is no name",
            read=wanted["owner"],
            allowed="a to z, 0 to 9 and _, at most 64, a letter first",
            cure="correct owner",
        )
    _unique([entry["path"] for entry in wanted["files"]], "path")
    _unique([entry["name"] for entry in wanted["units"]], "unit")
    for entry in wanted["files"]:
        if wanted["state"] == "present" and entry["state"] == "present" and entry["content"] is None:
            raise HostprepError(
                "file_content_missing",
                "a file has no content",
                read=entry["path"],
                allowed="content, which may be empty, or state: absent",
                cure="give the file its content",
            )
    if wanted["state"] == "present":
        known = {entry["path"] for entry in wanted["files"]}
        for name, path in _references(wanted):
            if path not in known:
                raise HostprepError(
                    "files_reference_unknown",
                    "%s waits for a file that is not in the set" % name,
                    read=path,
                    allowed=", ".join(sorted(known)) or "no file: the set has none",
                    cure="correct the path, or add the file",
                )
    return wanted


def _references(wanted):
    for unit in wanted["units"]:
        for path in unit["restart_on"] + unit["reload_on"]:
            yield unit["name"], path
    for command in wanted["commands"]:
        for path in command["when_changed"]:
            yield " ".join(command["argv"]), path


def check_path(path, what="a file"):
    """Refuses what is no plain absolute path, and places where nothing can be owned."""
    parts = path.split("/")
    if not path.startswith("/") or "" in parts[1:] or "." in parts or ".." in parts or "\0" in path:
        raise HostprepError(
            "file_path_invalid",
            "the path of %s is not absolute and plain" % what,
            read=path,
            allowed="a path that begins with /, without //, /./, /../ and a / at the end",
            cure="correct the path",
        )
    for place in FORBIDDEN:
        if path == place or path.startswith(place + "/"):
            raise HostprepError(
                "file_path_forbidden",
                "a file that the kernel makes cannot be owned",
                read=path,
                allowed="a path outside %s" % ", ".join(FORBIDDEN),
                cure="choose another place, such as a file in /etc/sysctl.d or /etc/tmpfiles.d that sets it at boot",
            )


def _file(entry):
    path = entry.get("path") or ""
    check_path(path)
    mode = entry.get("mode")
    mode = "0644" if mode is None else mode
    if not isinstance(mode, str) or not re.fullmatch(r"0?[0-7]{3,4}", mode):
        raise HostprepError(
            "file_mode_invalid",
            "the mode of a file is not an octal number in quotes",
            read="%s: %r" % (path, mode),
            allowed='"0644" and the like',
            cure="write the mode in quotes: without them YAML makes another number of it",
        )
    content = entry.get("content")
    if content is not None:
        try:
            content = content.encode("utf-8")
        except UnicodeEncodeError:
            content = content.encode("utf-8", "surrogateescape")
    validate = list(entry.get("validate") or [])
    if validate and not any("%s" in word for word in validate):
        raise HostprepError(
            "file_validate_invalid",
            "the command that validates a file never names it",
            read="%s: %s" % (path, " ".join(validate)),
            allowed="a list of words with %s in one of them",
            cure="put %s where the candidate's path belongs",
        )
    return {
        "path": path,
        "state": entry.get("state") or "present",
        "content": content,
        "mode": int(mode, 8),
        "validate": validate,
        "sensitive": bool(entry.get("sensitive")),
    }


def in_place(own_files, owner, files, purge=False):
    """Whether host_files would find nothing to do for a set of files without units of a wanted state.

    own_files: what host/own_files.py read; None where nothing is known. A file of another user than root counts as one that differs.
    """
    wanted = {entry["path"]: entry for entry in map(_file, files)}
    mine = {path: entry for path, entry in (own_files or {}).items() if entry["owner"] == owner}
    if not set(wanted) <= set(mine) or (purge and set(mine) != set(wanted)) or own_files is None:
        return False
    return all(
        now["settled"]
        and wanted[path]["state"] == "present"
        and now["sha256"] == hashlib.sha256(wanted[path]["content"] or b"").hexdigest()
        and (now["mode"], now["uid"], now["gid"]) == (wanted[path]["mode"], 0, 0)
        for path, now in mine.items()
        if path in wanted
    )


def _unit(entry):
    name = entry.get("name") or ""
    if not _UNIT.fullmatch(name) or name.startswith("-") or len(name) > 255:
        raise HostprepError(
            "unit_name_invalid",
            "that is no full name of a unit",
            read=name,
            allowed="a name with its kind, such as irqbalance.service",
            cure="correct the name",
        )
    unit = {key: entry.get(key) for key in ("name", "enabled", "masked", "state")}
    unit["restart_on"] = list(entry.get("restart_on") or [])
    unit["reload_on"] = list(entry.get("reload_on") or [])
    if unit["masked"] and (unit["enabled"] or unit["state"] == "started"):
        raise HostprepError(
            "unit_conflict",
            "a masked unit can be neither enabled nor started",
            read=name,
            allowed="masked: true alone, or with enabled: false and state: stopped",
            cure="decide for one",
        )
    return unit


def _command(entry):
    argv = [str(word) for word in entry.get("argv") or []]
    if not argv or not argv[0] or any("\0" in word for word in argv):
        raise HostprepError(
            "command_invalid",
            "a command has no words",
            read=repr(argv),
            allowed="a list whose first word is the program",
            cure="correct argv",
        )
    return {
        "argv": argv,
        "when_changed": list(entry.get("when_changed") or []),
        "before_units": bool(entry.get("before_units")),
    }


def _unique(names, kind):
    for name in names:
        if names.count(name) > 1:
            raise HostprepError(
                "files_named_twice",
                "the set names one %s twice" % kind,
                read=name,
                allowed="each %s once" % kind,
                cure="remove one entry",
            )


# -- what has to be done --------------------------------------------------------------------------------------------------


def scope(wanted, record):
    """(paths, units) of the record that this run gives back."""
    mine = [path for path, entry in record["files"].items() if entry["owner"] == wanted["owner"]]
    units = [name for name, entry in record["units"].items() if entry["owner"] == wanted["owner"]]
    named = {entry["path"] for entry in wanted["files"]}
    named_units = {entry["name"] for entry in wanted["units"]}
    if wanted["state"] == "absent":
        if named or named_units:
            return sorted(named & set(mine)), sorted(named_units & set(units))
        return sorted(mine), sorted(units)
    if wanted["purge"]:
        return sorted(set(mine) - named), sorted(set(units) - named_units)
    return [], []


def decide(wanted, found, record, live):
    """The whole decision, for check mode and real runs alike.

    wanted   of ``normalise``, where each file to write has its ``target`` state, and paths are as they are on the host
    found    {"files": {path: state}, "units": {name: {"load", "enabled", "active", "fragment"}}}; without units unless live
    live     whether units and commands may be touched

    Returns {"actions": [...] in their order, "files": {path: state to be}, "give_back": ([paths], [units]), "changed_paths": [...],
    "drift": [...], "not_touched": [...], "bookkeeping": bool}; refuses what must not be done.
    """
    give_back, units_back = scope(wanted, record)
    _check_owners(wanted, record)
    files, kinds, drift = {}, {}, []
    adopted = False
    if wanted["state"] == "present":
        for entry in wanted["files"]:
            path, target = entry["path"], entry["target"]
            now, known = found["files"][path], record["files"].get(path)
            if known and now != target and now not in known["ours"]:
                how = "put back" if now == plain_state(known["original"]) else "changed" if now else "removed"
                drift.append({"path": path, "message": how + " by someone else since the last run"})
            if now != target:
                files[path] = target
                kinds[path] = "write" if target else "remove"
            elif known and known["ours"] != [target]:
                adopted = True
        known = record["follow"].get(wanted["owner"])
        adopted = adopted or bool(known) and known != _follow(wanted, record)
    foreign = []
    for path in give_back:
        known, now = record["files"][path], found["files"][path]
        original = plain_state(known["original"])
        if now == original:
            continue
        if now not in known["ours"]:
            foreign.append(path)
        files[path] = original
        kinds[path] = "restore" if original else "remove"
    if foreign and not wanted["discard"]:
        raise HostprepError(
            "files_changed_by_others",
            "someone else changed owned files, and giving them back would lose that; nothing was done",
            read=", ".join(foreign),
            allowed="files as this module left them",
            cure="keep the change elsewhere if it matters, then run again with discard_foreign_changes: true",
        )
    drift += [{"path": path, "message": "changed by someone else, discarded"} for path in foreign]
    unsettled = {
        path
        for path, entry in record["files"].items()
        if entry["owner"] == wanted["owner"]
        and entry["unsettled"]
        and (wanted["state"] == "present" or path in give_back)
    }
    changed_paths = sorted(unsettled | set(files))
    before, after, not_touched = [], [], []
    follow = _follow(wanted, record)
    if live:
        before, after, unit_drift = _unit_actions(wanted, found, record, files, units_back, follow, changed_paths)
        drift += unit_drift
        due = [entry for entry in follow["commands"] if _due(entry, changed_paths)]
        early = [{"action": "run", "argv": entry["argv"]} for entry in due if entry.get("before_units")]
        reloads = 1 if after and after[0]["action"] == "daemon-reload" else 0
        after[reloads:reloads] = early
        after += [{"action": "run", "argv": entry["argv"]} for entry in due if not entry.get("before_units")]
    else:
        not_touched = [{"unit": entry["name"]} for entry in wanted["units"]]
        not_touched += [{"unit": name} for name in units_back if {"unit": name} not in not_touched]
        not_touched += [{"argv": entry["argv"]} for entry in follow["commands"]]
    middle = [{"action": kinds[path], "path": path} for path in files]
    return {
        "actions": before + middle + after,
        "files": files,
        "give_back": (give_back, units_back if live else []),
        "changed_paths": changed_paths,
        "drift": drift,
        "not_touched": not_touched,
        "bookkeeping": bool(adopted or unsettled or give_back or (units_back and live) or files),
    }


def unit_names(wanted, record):
    """The units whose state ``decide`` has to know."""
    names = [entry["name"] for entry in wanted["units"] + _follow(wanted, record)["units"]] + scope(wanted, record)[1]
    return sorted(set(names))


def plain_state(state):
    return state and {key: state[key] for key in ("sha256", "mode", "uid", "gid")}


def _check_owners(wanted, record):
    for kind, entries, key in (("files", wanted["files"], "path"), ("units", wanted["units"], "name")):
        for entry in entries:
            known = record[kind].get(entry[key])
            if kind == "units" and not _claims(entry):
                continue
            if known and known["owner"] != wanted["owner"]:
                raise HostprepError(
                    "files_owned_by_another",
                    "another set owns that already, and one thing has one owner",
                    read="%s belongs to %s" % (entry[key], known["owner"]),
                    allowed="what no other set owns",
                    cure="leave it out here, or give it back there first (state: absent)",
                )


def _claims(unit):
    return any(unit[key] is not None for key in ("enabled", "masked", "state"))


def _follow(wanted, record):
    """The units and commands that follow changed files: those given now, or at a rollback without any those given last."""
    known = record["follow"].get(wanted["owner"])
    if wanted["state"] == "absent" and not wanted["commands"] and known:
        units = {entry["name"]: entry for entry in known["units"]}
        units.update({entry["name"]: entry for entry in wanted["units"] if entry["restart_on"] or entry["reload_on"]})
        return {"units": list(units.values()), "commands": known["commands"]}
    return {
        "units": [entry for entry in wanted["units"] if entry["restart_on"] or entry["reload_on"]],
        "commands": wanted["commands"],
    }


def _due(command, changed_paths):
    names = command["when_changed"]
    return bool(set(names) & set(changed_paths) if names else changed_paths)


def is_unit_file(path):
    return path.startswith(UNIT_FOLDERS)


def _provided(paths, name):
    """Whether one of the paths is the unit's own file, or the template that it is an instance of."""
    stem, _dot, kind = name.rpartition(".")
    names = {name, stem.partition("@")[0] + "@." + kind} if "@" in stem else {name}
    return any(is_unit_file(path) and path.rpartition("/")[2] in names for path in paths)


def _unit_actions(wanted, found, record, files, units_back, follow, changed_paths):
    """(actions before the files, actions after them, drift). Their order within a phase is that of ``_PHASES``."""
    before, after, drift = [], [], []
    coming = [path for path, target in files.items() if target]
    going = [path for path, target in files.items() if not target]
    if any(is_unit_file(path) for path in changed_paths):
        after.append({"action": "daemon-reload"})
    starting = set()
    back = {}
    for name in units_back:
        now = found["units"][name]
        back[name] = _given_back(record["units"][name], now, _provided(coming, name))
        if is_gone(record["units"][name], now) and not _provided(coming, name):
            drift.append({"unit": name, "message": GONE})
    ahead = {}
    if wanted["state"] == "present":
        for entry in wanted["units"]:
            ahead[entry["name"]] = _wanted_unit(entry, found["units"][entry["name"]], _provided(coming, entry["name"]))
            known = record["units"].get(entry["name"])
            if known and known["settled"] and ahead[entry["name"]] and known["set"] == claim(entry):
                now = found["units"][entry["name"]]
                drift.append(
                    {"unit": entry["name"], "message": "is %s, %s" % (now["enabled"] or "not enabled", now["active"])}
                )
    for source, given in ((ahead, False), (back, True)):
        for name, actions in source.items():
            # What ends a unit comes while a file that goes is still there. systemctl disables no masked unit: its mask goes first.
            ending = ("disable", "stop", "unmask" if "disable" in dict(actions) else "")
            for action, runtime in actions:
                step = {"action": action, "unit": name}
                if runtime:
                    step["runtime"] = True
                early = action in ending and (given or _provided(going, name))
                (before if early else after).append(step)
                if action in ("start", "stop"):
                    starting.add(name)
    stopped = {
        entry["name"] for entry in wanted["units"] if entry["state"] == "stopped" and wanted["state"] == "present"
    }
    for entry in follow["units"]:
        name = entry["name"]
        if (
            name in starting
            or name in stopped
            or _provided(going, name)
            or found["units"].get(name, {}).get("active") not in ACTIVE
        ):
            continue
        for action, paths in (("restart", entry["restart_on"]), ("reload", entry["reload_on"])):
            if set(paths) & set(changed_paths):
                after.append({"action": action, "unit": name})
                break
    before.sort(key=lambda step: _PHASES.index(step["action"]))
    after.sort(key=lambda step: _PHASES.index(step["action"]))
    return before, after, drift


# Masks come after enable and disable, which systemctl refuses for masked units, and before stop, so that nothing starts it again.
_PHASES = ("daemon-reload", "unmask", "disable", "enable", "mask", "stop", "start", "restart", "reload")


def claim(unit):
    return {key: unit[key] for key in ("enabled", "masked", "state") if unit[key] is not None}


def _refuse(code, message, name, now, allowed, cure):
    state = "%s: %s, %s, %s" % (name, now["load"], now["enabled"] or "not enabled", now["active"])
    return HostprepError(code, message, read=state, allowed=allowed, cure=cure)


def _wanted_unit(unit, now, provided):
    """[(action, runtime)] for one unit."""
    actions = []
    name, enabled = unit["name"], now["enabled"]
    masked = enabled in MASKED
    missing = now["load"] == "not-found" and not provided
    if missing and (unit["enabled"] or unit["state"] == "started"):
        raise _refuse(
            "unit_missing",
            "a unit is not on the host, and no file of the set makes it",
            name,
            now,
            "a unit that exists, or one whose file is in the set",
            "install what brings the unit, or leave it out",
        )
    if masked and unit["masked"] is None and (unit["enabled"] or unit["state"] == "started"):
        raise _refuse(
            "unit_masked",
            "a masked unit can be neither enabled nor started",
            name,
            now,
            "a unit that is not masked",
            "find out who masked it; masked: false takes the mask off",
        )
    if unit["masked"] and enabled != "masked":
        if now["fragment"] == "/etc/systemd/system/" + name:
            raise _refuse(
                "unit_not_maskable",
                "the unit's own file is where its mask would be",
                name,
                now,
                "a unit whose file lies elsewhere, such as in /usr/lib/systemd/system",
                "disable and stop it instead, or own its file with state: absent",
            )
        actions.append(("mask", False))
    if unit["masked"] is False and masked:
        actions.append(("unmask", enabled.endswith("-runtime")))
    if unit["enabled"] is False and (enabled in ENABLED or (masked and unit["masked"] is False)):
        # A mask hides whether its unit is enabled; disabling one that is not does nothing.
        actions.append(("disable", enabled in ENABLED and enabled.endswith("-runtime")))
    if unit["enabled"] and enabled != "enabled":
        if enabled not in ENABLEABLE and not masked and not provided:
            raise _refuse(
                "unit_not_enableable",
                "a unit cannot be enabled, since nothing says where it would be started from",
                name,
                now,
                "a unit with an [Install] section",
                "leave enabled out, or enable the unit that starts this one",
            )
        actions.append(("enable", False))
    active = now["active"] in ACTIVE
    if unit["state"] == "started" and not active:
        actions.append(("start", False))
    if unit["state"] == "stopped" and active:
        actions.append(("stop", False))
    return actions


GONE = "is not on the host any more: it is neither enabled nor started again"


def is_gone(known, now):
    return now["load"] == "not-found" and known["original"]["load"] != "not-found"


def _given_back(known, now, provided=False):
    """[(action, runtime)] that bring a unit back to what was found before the first change; ``provided``: its file comes back too."""
    original, touched, enabled = known["original"], known["touched"], now["enabled"]
    actions = []
    masked, was_masked = enabled in MASKED, original["enabled"] in MASKED
    beneath = known["beneath"] if was_masked else original["enabled"]
    hidden = known["hidden"] if masked else enabled  # None: nobody has seen what is beneath the mask
    switch = []
    if "enabled" in touched and (hidden is None or (hidden in ENABLED) != (beneath in ENABLED)):
        word = "enable" if beneath in ENABLED else "disable"
        other = beneath if beneath in ENABLED else hidden
        switch = [(word, bool(other) and other.endswith("-runtime"))]
    if was_masked and masked and hidden is None:
        switch = []  # the mask is as it was found, and it is not ours
    if masked and (switch or not was_masked) and "masked" in touched:
        actions.append(("unmask", enabled.endswith("-runtime")))
    actions += switch if "masked" in touched or not masked else []
    if "masked" in touched and was_masked and (enabled != original["enabled"] or switch):
        actions.append(("mask", original["enabled"].endswith("-runtime")))
    if "state" in touched:
        was, active = original["active"] in ACTIVE, now["active"] in ACTIVE
        if was and not active and original["enabled"] not in MASKED:
            actions.append(("start", False))
        if active and not was:
            actions.append(("stop", False))
    if is_gone(known, now) and not provided:
        return [step for step in actions if step[0] not in ("enable", "start")]
    return actions


# -- what the record says while and after it is done ----------------------------------------------------------------------


def journal(wanted, found, record, decision):
    """The record to keep before the first change: it holds for whatever moment the run may be killed at.

    Original states of files are filled in with what only the host knows ("xattrs", "mtime_ns") by the caller.
    """
    record = copy.deepcopy(record)
    owner = wanted["owner"]
    sensitive = {entry["path"] for entry in wanted["files"] if entry["sensitive"]}
    for path, target in decision["files"].items():
        now = found["files"][path]
        entry = record["files"].get(path)
        if entry is None:
            entry = {"owner": owner, "original": now, "ours": [now], "unsettled": True, "foreign": None}
            record["files"][path] = entry
        if target not in entry["ours"]:
            entry["ours"] = entry["ours"] + [target]
        entry["sensitive"] = bool(entry.get("sensitive")) or path in sensitive
        entry["unsettled"] = True
    touching = {}
    for step in decision["actions"]:
        if "unit" in step:
            touching.setdefault(step["unit"], set()).update(_DIMENSION.get(step["action"], ()))
    for entry in wanted["units"] if wanted["state"] == "present" else []:
        touched = touching.get(entry["name"])
        known = record["units"].get(entry["name"])
        if touched and known is None:
            now = found["units"][entry["name"]]
            original = {key: now[key] for key in ("load", "enabled", "active")}
            known = {"owner": owner, "original": original, "touched": [], "set": {}, "settled": False}
            known.update(beneath=None, hidden=None)
            record["units"][entry["name"]] = known
        if known and known["owner"] == owner:
            if touched:
                known["settled"] = False
            known["touched"] = sorted(set(known["touched"]) | (touched or set()))
    if wanted["state"] == "present" and any(entry["owner"] == owner for entry in record["files"].values()):
        record["follow"][owner] = _follow(wanted, record)
    return record


def learn(known, step, enabled):
    """Notes what a mask hides, before "mask" and after "unmask"; returns whether there was something to note.

    ``known`` is the unit's record or None, ``enabled`` what systemd says of the unit at that moment. "beneath" is what the mask hid
    that was there before us, "hidden" what the mask hides that was put on since.
    """
    if known is None or enabled in MASKED:
        return False
    if step["action"] == "mask":
        known["hidden"] = enabled
        return True
    if step["action"] == "unmask" and known["original"]["enabled"] in MASKED and known["beneath"] is None:
        known["beneath"] = enabled
        return True
    return False


_DIMENSION = {
    "mask": ("masked",),
    "unmask": ("masked",),
    "enable": ("enabled",),
    "disable": ("enabled",),
    "start": ("state",),
    "stop": ("state",),
}


def written(record, wanted, decision):
    """The record once the files are as they shall be, and what follows is still to be done."""
    record = copy.deepcopy(record)
    for path, target in decision["files"].items():
        record["files"][path]["ours"] = [target]
    for entry in wanted["files"] if wanted["state"] == "present" else []:
        if entry["path"] in record["files"]:
            record["files"][entry["path"]]["ours"] = [entry["target"]]
    return record


def settled(record, wanted, decision):
    """The record once everything has succeeded."""
    record = written(record, wanted, decision)
    owner = wanted["owner"]
    paths, units = decision["give_back"]
    for path in paths:
        del record["files"][path]
    for name in units:
        del record["units"][name]
    for path in decision["changed_paths"]:
        if path in record["files"]:
            record["files"][path]["unsettled"] = False
    for entry in wanted["units"] if wanted["state"] == "present" else []:
        known = record["units"].get(entry["name"])
        if known:
            known["set"], known["settled"] = claim(entry), True
    if not any(entry["owner"] == owner for entry in record["files"].values()):
        record["follow"].pop(owner, None)
    return record


def is_empty(record):
    return not (record["files"] or record["units"] or record["folders"])


def unit_after(now, actions):
    """What a unit will be after its actions: (enabled, active) as far as that is known, for the diff."""
    enabled, active = now["enabled"] or "not enabled", "started" if now["active"] in ACTIVE else "stopped"
    for action in actions:
        enabled = {"mask": "masked", "unmask": "unmasked", "enable": "enabled", "disable": "disabled"}.get(
            action, enabled
        )
        active = {"start": "started", "stop": "stopped"}.get(action, active)
    return enabled, active


def unit_missed(unit, now):
    """What of a wanted unit does not hold, in words; None where all does."""
    if unit["masked"] and now["enabled"] not in MASKED:
        return "it is not masked"
    if unit["masked"] is False and now["enabled"] in MASKED:
        return "it is still masked"
    if unit["enabled"] and now["enabled"] not in ENABLED:
        return "it is not enabled (%s)" % (now["enabled"] or "no unit file")
    if unit["enabled"] is False and now["enabled"] in ENABLED:
        return "it is still enabled"
    if unit["state"] == "started" and now["active"] not in ACTIVE:
        return "it did not stay started (%s)" % now["active"]
    if unit["state"] == "stopped" and now["active"] in ACTIVE:
        return "it is still running"
    return None


def not_as_wanted(wanted, record, decision, now):
    """(unit, words) of the first unit whose actions all succeeded and that is not as it should be; None where there is none."""
    acted = {step["unit"] for step in decision["actions"] if "unit" in step}
    for entry in wanted["units"] if wanted["state"] == "present" else []:
        words = entry["name"] in acted and unit_missed(entry, now[entry["name"]])
        if words:
            return entry["name"], words
    for name in decision["give_back"][1]:
        left = name in acted and _given_back(record["units"][name], now[name])
        if left:
            return name, "it is not as it was found (missing: %s)" % ", ".join(action for action, _runtime in left)
    return None


def check_record(document):
    """The record as read, or a ValueError with a sentence's end."""
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ValueError("it is no record")
    if document["format"] > FORMAT:
        raise HostprepError(
            "record_newer",
            "the record of owned files was written by a newer version of the collection",
            read="format %d" % document["format"],
            allowed="format %d" % FORMAT,
            cure="use the version that wrote it",
        )
    record = empty_record()
    for key, value in record.items():
        given = document.get(key, value)
        if not isinstance(given, type(value)):
            raise ValueError("%s has another shape" % key)
        record[key] = given
    for path, entry in record["files"].items():
        check_path(path, "a recorded file")
        for key, kinds in (("owner", str), ("original", (dict, type(None))), ("ours", list), ("unsettled", bool)):
            if not isinstance(entry, dict) or key not in entry or not isinstance(entry[key], kinds):
                raise ValueError("%s has no %s" % (path, key))
        if not all(state is None or isinstance(state, dict) for state in entry["ours"]):
            raise ValueError("%s has another shape" % path)
        if entry["original"] is not None:
            if not {"sha256", "mode", "uid", "gid"} <= set(entry["original"]):
                raise ValueError("%s has another shape" % path)
    for name, entry in record["units"].items():
        seen = (str, type(None))
        for key, kinds in (
            ("owner", str),
            ("original", dict),
            ("beneath", seen),
            ("hidden", seen),
            ("touched", list),
            ("set", dict),
            ("settled", bool),
        ):
            if not isinstance(entry, dict) or key not in entry or not isinstance(entry[key], kinds):
                raise ValueError("%s has no %s" % (name, key))
    return record
