# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has of RKE2: node kind, version, data dir, the configuration that RKE2 and its kubelet read, as plain data. Reads only.

Of files that others wrote the names of keys are read, and the values of those alone that decide something (model/rke2_facts.py):
tokens and other secrets never leave the file.

A document is {"path", "keys": [names], "values": {key: value}, "opaque": [keys whose value is not understood], "problem": None or why
the file cannot be divided into keys}.
"""

from __future__ import annotations

import re

from ..model import rke2_facts as facts, yaml_text
from . import kubelet
from .own_files import own_files
from .unit_files import unit

_DATA_VERSION = re.compile(r"(v1\.\d+\.\d+(?:-(?:rc|alpha|beta)\d+)?)-(rke2r\d+)", re.ASCII)
_TOLD = re.compile(r"\Arke2 version (v1\.[0-9A-Za-z.+-]+)", re.ASCII)
_UNIT = "rke2-%s.service"
_BINARIES = ("usr/local/bin/rke2", "usr/bin/rke2", "opt/rke2/bin/rke2")
_ONLINE = "sys/devices/system/cpu/online"
_MOST = 1024 * 1024


def read(tree, data_dir=None, state_dir=None):
    """What model/rke2_config.py takes as ``reading``: all of the host that the roles rke2 and cilium need to know.

    data_dir, state_dir: RKE2's and the kubelet's folder, where they are said elsewhere than in RKE2's files.
    """
    found = documents(tree, data_dir)
    base = _base(found["config"], data_dir)
    kind, kind_from = _kind(tree, base)
    version, version_from = _version(tree, base)
    processes = kubelet.kubelets(tree)
    return dict(
        found,
        root=tree.root,
        base="/" + base,
        kind=kind,
        kind_from=kind_from,
        version=version,
        version_from=version_from,
        initialised=tree.exists(base + "/server/db") or tree.exists(base + "/server/token"),
        units=[kind for kind in (facts.SERVER, facts.AGENT) if unit(tree, _UNIT % kind)["installed"]],
        state=kubelet.states(tree, state_dir or found["state_dir"]),
        memory=kubelet.node_memory(tree),
        online=tree.read(_ONLINE),
        running=bool(processes),
        restart_pending=kubelet.older_than(tree, processes[0], facts.paths("/" + base)) if processes else [],
        own_files=own_files(tree),
    )


def documents(tree, data_dir=None):
    """{"config", "kubelet": documents, "data_dir": what RKE2's own files say or None, "state_dir": the kubelet's}. Runs no program."""
    config = [_document(tree, path, facts.READ, _config_value) for path in _config_files(tree)]
    arguments = [facts.flag(one) for document in config for one in _arguments(document)]
    extra = [value for name, value in arguments if name in ("config", "config-dir")]
    root_dir = [value for name, value in arguments if name == facts.ROOT_DIR_FLAG and value]
    return {
        "data_dir": _said(config),
        "state_dir": root_dir[-1] if root_dir else facts.STATE_DIR,
        "config": config,
        "kubelet": [
            _document(tree, path, facts.READ_KUBELET, lambda _key, value: value)
            for path in _kubelet_files(tree, _base(config, data_dir) + facts.KUBELET_FOLDER, extra)
        ],
    }


def node_kind(tree, found):
    """ "server", "agent", or None where the host is no node of RKE2. found: of ``documents`` or ``read``, so that no file is read again."""
    return found["kind"] if "kind" in found else _kind(tree, _base(found["config"], None))[0]


def _said(config):
    found = [one["values"].get("data-dir") for one in config]
    return next((value for value in reversed(found) if isinstance(value, str)), None)


def _base(config, data_dir):
    """RKE2's data dir, as a path below the root."""
    return (_said(config) or data_dir or facts.DATA_DIR).strip("/")


def _config_files(tree):
    """In the order in which RKE2 reads them."""
    folder = facts.CONFIG_FOLDER.strip("/")
    paths = [facts.CONFIG.strip("/")] if tree.exists(facts.CONFIG.strip("/")) else []
    return paths + [
        "%s/%s" % (folder, name) for name in tree.listdir(folder) or [] if name.lower().endswith((".yaml", ".yml"))
    ]


def _kubelet_files(tree, folder, extra):
    """The drop-ins below a folder, in the kubelet's order, and what kubelet-arg names beside them."""
    found, todo = [], [folder]
    while todo:
        path = todo.pop()
        names = tree.listdir(path)
        if names is not None:
            todo += ["%s/%s" % (path, name) for name in reversed(names)]
        elif path.endswith(".conf"):
            found.append(path)
    for path in extra:
        path = path.strip("/")
        names = tree.listdir(path)
        found += [path] if names is None else ["%s/%s" % (path, name) for name in names if name.endswith(".conf")]
    return [path for path in found if tree.exists(path)]


def _document(tree, path, inspected, shown):
    document = {"path": "/" + path, "keys": [], "values": {}, "opaque": [], "problem": None}
    text = tree.read(path, _MOST)
    if text is None:
        document["problem"] = tree.why(path)
        return document
    try:
        found = yaml_text.read(text)
    except ValueError as error:
        # of the message only what is ours: a parser's own may quote the file
        document["problem"] = str(error) if str(error).startswith(("line ", "it ")) else "no JSON"
        return document
    for key, value in found.items():
        document["keys"].append(str(key))
        if value is yaml_text.OPAQUE:
            document["opaque"].append(str(key))
        elif str(key).rstrip("+") in inspected:
            document["values"][str(key)] = shown(key, value)
    return document


def _config_value(key, value):
    if str(key).rstrip("+") != "kubelet-arg":
        return value
    listed = value if isinstance(value, list) else [value]
    return [argument for argument in map(str, listed) if facts.flag(argument)[0] in facts.READ_FLAGS]


def _arguments(document):
    return document["values"].get("kubelet-arg", []) + document["values"].get("kubelet-arg+", [])


def _kind(tree, base):
    """(kind, where that is seen): the unit that runs, the one that is enabled, a server's or an agent's data, the only unit.

    The installer lays down the units of both kinds, so that a file alone tells nothing.
    """
    states = {kind: unit(tree, _UNIT % kind) for kind in (facts.SERVER, facts.AGENT)}
    for what, where in (("running", "%s runs"), ("enabled", "%s is enabled")):
        kinds = [kind for kind, state in states.items() if state[what]]
        if len(kinds) == 1:
            return kinds[0], where % (_UNIT % kinds[0])
    for kind, path in ((facts.SERVER, base + "/server/db"), (facts.AGENT, base + "/agent/kubelet.kubeconfig")):
        if tree.exists(path):
            return kind, "/" + path
    kinds = [kind for kind, state in states.items() if state["installed"]]
    return (kinds[0], "%s is the only unit" % (_UNIT % kinds[0])) if len(kinds) == 1 else (None, None)


def _version(tree, base):
    """(version, where that is seen): what the installed program says on a running machine, else what ran last."""
    binary = next((path for path in _BINARIES if tree.exists(path)), None)
    if tree.live and binary:
        from . import units  # Ansible compiles what is imported anew on each host: what few need is left out

        told = _TOLD.match(units.run(["/" + binary, "--version"], units.LOOK_TIMEOUT)[1])
        if told:
            return told.group(1), "/%s --version" % binary
    match = _DATA_VERSION.search(tree.target(base + "/bin") or "")
    if match:
        return "%s+%s" % match.groups(), "/%s/bin" % base
    return None, None
