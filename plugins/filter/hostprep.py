# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU list arithmetic, plan queries and what follows from a plan, for templates: the same functions that the modules use. Documented beside, one YAML each."""

from __future__ import annotations

import json

from ansible.errors import AnsibleFilterError
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import program
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import cpulist, isolation
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError


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
            "plan_query": _query,
            "plan_records": _records,
            "nic_irq_files": _filter(program.owned_files),
        }
