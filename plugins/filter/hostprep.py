# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU list arithmetic, plan queries, what follows from a plan and what is decided on the controller: the functions of the modules.

Documented beside, one YAML each.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import re

from ansible.errors import AnsibleFilterError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import program
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist, isolation, rke2_config
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError

_MOST_VALUES = 100_000  # of someone's chart values


def _filter(function):
    def wrapped(*args):
        try:
            return function(*args)
        except HostprepError as error:
            raise AnsibleFilterError(str(error)) from error
        except TypeError as error:
            raise AnsibleFilterError("%s does not take these arguments: %s" % (function.__name__, error)) from error

    wrapped.__name__ = function.__name__
    wrapped.__doc__ = function.__doc__
    return wrapped


def _judging(function):
    """For what a role shows as a sentence of its own: a refusal is a result, with ``refused`` (the sentence) and ``code``."""

    def wrapped(*args):
        try:
            return dict(function(*args), refused=None, code=None)
        except HostprepError as error:
            return {"refused": str(error), "code": error.code}

    return wrapped


def _query(plan, expression):
    try:
        import jmespath
    except ImportError as error:
        raise AnsibleFilterError(
            "plan_query needs the Python library jmespath on the controller: pip install jmespath"
        ) from error
    if not isinstance(plan, (dict, list)):
        raise AnsibleFilterError("plan_query takes a plan or a list of plans, not %s" % type(plan).__name__)
    try:
        return jmespath.search(str(expression), plan)
    except jmespath.exceptions.JMESPathError as error:
        words = " ".join(str(error).split())
        raise AnsibleFilterError("plan_query cannot read the expression %r: %s" % (str(expression), words)) from error


def _records(hosts, hostvars):
    """JSON text, made from results as they were registered: Ansible would look for a template in each of their values, twice."""
    if not hasattr(hostvars, "raw_get"):
        raise AnsibleFilterError("plan_records takes the variable hostvars, not %s" % type(hostvars).__name__)
    records = []
    for host in hosts:
        result = hostvars.raw_get(host).get("host_plan_result") or {}
        planned = "plan" in result
        status = "planned" if planned else ("unreachable" if result.get("unreachable") or not result else "refused")
        error = None if planned else str(result.get("msg") or "the host could not be reached")
        records.append(
            {
                "host": str(host),
                "status": status,
                "plan": result.get("plan"),
                "error": error,
                "error_code": None if planned else result.get("code"),
            }
        )
    return json.dumps(records)


def _rke2_files(plan, reading, settings, refuse=True):
    for what, value, kinds in (
        ("a plan or null", plan, (dict, type(None))),
        ("what kubelet_checkpoint returned in rke2, or null", reading, (dict, type(None))),
        ("a mapping of settings", settings, (dict,)),
    ):
        if not isinstance(value, kinds):
            raise AnsibleFilterError("rke2_files takes %s, not %s" % (what, type(value).__name__))
    try:
        return rke2_config.render(plan or None, reading or None, settings)
    except HostprepError as error:
        if refuse:
            raise
        return {
            "refused": dict(error.as_dict(), sentence=str(error)),
            "kind": settings.get("kind") or (reading or {}).get("kind"),
        }


def _rke2_refusal(rendered, hosts, hostvars):
    """A sentence, or "": why this host gets no files, also for what the other servers are given."""
    if not hasattr(hostvars, "raw_get"):
        raise AnsibleFilterError("rke2_refusal takes the variable hostvars, not %s" % type(hostvars).__name__)
    if "refused" in rendered:
        return rendered["refused"]["sentence"]
    judged, unjudged = {}, []
    for host in hosts:
        known = hostvars.raw_get(host)
        other = known.get("rke2_rendered") or {}
        if "same" in other:
            judged[str(host)] = other
        elif "agent" not in (other.get("kind"), known.get("rke2_node_kind"), known.get("rke2_hostprep_node_kind")):
            unjudged.append(str(host))
    try:
        rke2_config.check_servers(rendered, judged, unjudged)
    except HostprepError as error:
        return str(error)
    return ""


def _owned_in_place(own_files, owner, files, purge=False):
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import owned

    if own_files is not None and not isinstance(own_files, dict):
        raise AnsibleFilterError(
            "owned_in_place takes what a module returned in own_files, not %s" % type(own_files).__name__
        )
    return owned.in_place(own_files, str(owner), files, purge)


def _values_of(chart_config):
    """The object with what its valuesContent says beside it; None is a text that cannot be read, which the judgement refuses."""
    text = (chart_config.get("spec") or {}).get("valuesContent")
    return dict(chart_config, values_parsed=_helm_yaml(str(text or "")))


def _helm_yaml(text):
    """A YAML text as Helm reads it, as plain data; None where it cannot be that. What is read here is written back for Helm."""
    import yaml

    class Loader(yaml.SafeLoader):
        """With the numbers of Helm's parser: 1e3 is one, and neither 12:30 nor 2024-01-01 is anything but text."""

        yaml_implicit_resolvers = {
            first: [entry for entry in entries if entry[0].rpartition(":")[2] not in ("int", "float", "timestamp")]
            for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    for kind, pattern in (
        ("int", r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]*|[1-9][0-9_]*)\Z"),
        (
            "float",
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z",
        ),
    ):
        Loader.add_implicit_resolver("tag:yaml.org,2002:" + kind, re.compile(pattern), list("-+.0123456789"))
    try:
        found = yaml.load(text, Loader)  # noqa: S506  a SafeLoader
        return {} if found is None else _plain(found, itertools.count(1))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _plain(value, counter):
    """What JSON could hold of a parsed text, keys as text; ValueError for anything else, and for aliases that grow without end."""
    if next(counter) > _MOST_VALUES:
        raise ValueError("too many values")
    if isinstance(value, dict):
        return {_plain_key(key): _plain(entry, counter) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry, counter) for entry in value]
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError("no plain value")


def _plain_key(key):
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, (str, int)) and key != "":
        return str(key)
    raise ValueError("no plain key")


def _cilium_cluster(wanted, live=None):
    # Templates without Cilium need none of this
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_cluster

    live = dict(live or {})
    if live.get("helm_chart_config"):
        live["helm_chart_config"] = _values_of(live["helm_chart_config"])
    return cilium_cluster.judge(wanted, live)


def _cilium_node(gate, settings=None, context=None):
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_cluster

    return cilium_cluster.node(gate, settings or {}, context or {})


def _cilium_node_configs(nodes):
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_objects

    return cilium_objects.gate_configs() + cilium_objects.class_configs(
        [node["defaults"] for node in nodes if not node.get("refused")]
    )


def _cilium_manifests(judged, phase, options):
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_cluster

    return cilium_cluster.manifests(
        judged, phase, options["folder"], options["manifest"], options.get("node_configs") or []
    )


def _cilium_unapplied(judged, resources):
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_change

    config = (resources[0].get("data") or {}) if resources else {}
    return cilium_change.unapplied(config, judged["values"])


def _cilium_label_patch(node, wanted, pods):
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_cluster

    return {"patch": cilium_cluster.label_patch(wanted, node, pods)}


def _kube_error(result, doing, values=(), written=None):
    """One sentence for the failed result of a module of kubernetes.core.

    values: trees whose secrets it may quote; written: what this run has changed before
    """
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cilium_change, kube_errors

    hidden = [text for tree in values for text in cilium_change.secrets(tree)]
    return str(kube_errors.explain(_said(result), doing, hidden, written))


def _kube_passing(result):
    from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import kube_errors

    return bool(result.get("failed")) and kube_errors.passing(_said(result))


def _said(result):
    _before, helm, said = str(result.get("stderr") or "").rpartition("Error: ")
    if helm:  # its log and the module's words say the same again
        return said
    parts = [result.get("msg"), result.get("reason"), result.get("status") and "status: %s" % result["status"]]
    return " ".join(str(part) for part in parts if part) if parts[0] else str(result.get("exception") or "")


def _kube_missing(path):
    """What the controller lacks for calls of the Kubernetes API, as a sentence; empty where it lacks nothing."""
    import os

    if not path:
        return "no kubeconfig is given; what to do: set rke2_hostprep_kubeconfig to one on the controller"
    if not os.access(os.path.expanduser(str(path)), os.R_OK):
        return "the kubeconfig %s cannot be read on the controller; what to do: correct rke2_hostprep_kubeconfig" % path
    for name, cure in (
        ("ansible_collections.kubernetes.core", "ansible-galaxy collection install kubernetes.core"),
        ("kubernetes", "pip install kubernetes"),
        ("jsonpatch", "pip install jsonpatch"),
    ):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return "calls of the Kubernetes API need %s on the controller; what to do: %s" % (
                name.replace("ansible_collections.", ""),
                cure,
            )
    return ""


class FilterModule:
    """Filters of lo0.rke2_hostprep."""

    def filters(self):
        return {
            "cpulist_expand": _filter(cpulist.expand),
            "cpulist_compress": _filter(cpulist.compress),
            "cpulist_union": _filter(cpulist.union),
            "cpulist_minus": _filter(cpulist.minus),
            "cpulist_intersect": _filter(cpulist.intersect),
            "cpulist_to_mask": _filter(cpulist.to_mask),
            "cpulist_from_mask": _filter(cpulist.from_mask),
            "isolation_set": _filter(isolation.isolation_set),
            "nic_irq_files": _filter(program.owned_files),
            "rke2_files": _filter(_rke2_files),
            "rke2_refusal": _filter(_rke2_refusal),
            "owned_in_place": _filter(_owned_in_place),
            "plan_query": _query,
            "plan_records": _records,
            "cilium_cluster": _judging(_cilium_cluster),
            "cilium_node": _judging(_cilium_node),
            "cilium_node_configs": _filter(_cilium_node_configs),
            "cilium_unapplied": _filter(_cilium_unapplied),
            "cilium_manifests": _filter(_cilium_manifests),
            "cilium_label_patch": _judging(_cilium_label_patch),
            "kube_error": _kube_error,
            "kube_missing": _kube_missing,
            "kube_passing": _kube_passing,
        }
