# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's side of a plan: its reservation, and which pods it would admit."""

from __future__ import annotations

from . import cpulist
from .errors import finding

MAX_NUMA_NODES = 8  # the Topology Manager's own limit without max-allowable-numa-nodes


def reservation(machine, topology, policy, reserved, isolated):
    """(kubelet dict of the plan, [finding]); reserved and isolated are lists of ids."""
    nodes = len(topology["numa_nodes"]) or 1
    admission = forecasts(policy["pod_shapes"], machine, topology, isolated)
    chosen = policy["topology_manager_policy"]
    if chosen is None:
        fits_one = admission and all(entry["policies"]["single-numa-node"]["admitted"] for entry in admission)
        chosen = "single-numa-node" if fits_one else "best-effort"
    options = {"prefer-closest-numa-nodes": "true"} if nodes > 1 and chosen != "none" else {}
    warnings = []
    if nodes > MAX_NUMA_NODES and chosen != "none":
        options["max-allowable-numa-nodes"] = str(nodes)
        warnings.append(
            finding(
                "kubelet_numa_nodes",
                "the kubelet's Topology Manager refuses more than %d NUMA nodes by default" % MAX_NUMA_NODES,
                "keep max-allowable-numa-nodes as the plan sets it (Kubernetes 1.31 or newer)",
                "%d nodes" % nodes,
            )
        )
    absent = set(reserved) - set(cpulist.expand(topology["cpus"]["online"]))
    if absent:  # the policy says that they come back with the boot
        warnings.append(
            finding(
                "kubelet_refuses_reserved",
                "until the planned boot the kubelet refuses the reservation, because CPUs in it are not online",
                "do not start RKE2 with it before the boot that brings them back",
                "reserved %s, of which %s are offline" % (cpulist.compress(reserved), cpulist.compress(absent)),
            )
        )
    for entry in admission:
        verdict = entry["policies"][chosen]
        if not verdict["admitted"]:
            warnings.append(
                finding(
                    "shape_not_admitted",
                    "pod shape %s would not be admitted under %s: %s"
                    % (entry["shape"]["name"], chosen, verdict["reason"]),
                    "change the shape, the reservation or topology_manager_policy",
                    _words(entry["shape"]),
                )
            )
    return {
        "reservedSystemCPUs": cpulist.compress(reserved),
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "topologyManagerPolicy": chosen,
        "topologyManagerPolicyOptions": options,
        "allocatable_cpus": len(isolated),
        "admission": admission,
    }, warnings


def _words(shape):
    return "%g CPUs, %d GPUs, %d MiB" % (shape["cpus"], shape["gpus"], shape["memory_mib"])


def forecasts(shapes, machine, topology, isolated):
    """Whether each declared pod shape would be admitted, see admission.py."""
    if not shapes:
        return []
    from .admission import forecast  # Ansible compiles what is imported anew on each host: what few need is left out

    return [forecast(shape, machine, topology, isolated) for shape in shapes]
