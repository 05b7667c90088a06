#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say which of netkit and BIG TCP a host may get. The judgement is in module_utils/model/gate.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dataplane_gate
short_description: Say whether a host may get Cilium's netkit and BIG TCP, and why
version_added: 0.2.0
author:
  - The lo0.rke2_hostprep authors (@lo0)
description:
  - Judges three gates, C(netkit), C(big_tcp_ipv4) and C(big_tcp_ipv6), on the kernel that will boot, the drivers and limits of the uplinks,
    and the values that Cilium's chart gets.
  - The rule is O(kernel_min) and O(nic_drivers). Beneath it stands what the kernel and Cilium need whatever the rule says.
  - An answer is V(true), V(false), or null where what was read does not tell. Only V(true) may be acted on. Each has its reasons.
  - Reads only.
options:
  root:
    description:
      - Folder, or C(.tar), C(.tar.gz), C(.tar.bz2) or C(.tar.xz) archive, that holds the C(sys/) and C(proc/) of the machine to judge.
      - The default is the running machine. Only that tells C(tso_max_size).
    type: path
    default: /
  topology:
    description: The topology that M(lo0.rke2_hostprep.host_topology) returned, instead of reading O(root).
    type: dict
  policy:
    description:
      - The options below as one mapping, as an inventory holds it. A key that is no option is refused. An option given beside it wins.
    type: raw
  uplinks:
    description:
      - The devices that Cilium will use. NICs by name or PCI address; a bond, VLAN or bridge stands for the NICs beneath it.
      - The default is every device with a default route, or every PCI NIC that is not down where there is none.
    type: list
    elements: str
  kernel:
    description:
      - Release of the kernel that will boot, such as V(6.12.48-amd64). Its C(/boot/config-RELEASE) is read.
      - The default is the running kernel. Where a newer one is installed in C(/boot), a gate opens only if it does with both.
    type: raw
  config_netkit:
    description: CONFIG_NETKIT of that kernel, V(y), V(m) or V(n), where it cannot be read.
    type: str
  kernel_min:
    description:
      - The rule's oldest kernel, for all three gates. Quote it.
      - The default is V(6.8).
    type: raw
  nic_drivers:
    description:
      - The rule's NIC drivers. C(mlx5_core) counts as V(mlx5), C(mlx4_en) and C(mlx4_core) as V(mlx4).
      - The default is V([mlx4, mlx5, ice]).
    type: list
    elements: str
  nic_drivers_gates:
    description:
      - The gates that the rule of O(nic_drivers) holds for. netkit itself needs no certain NIC.
      - The default is V([netkit, big_tcp_ipv4, big_tcp_ipv6]).
    type: list
    elements: str
  netkit_kernel_floor:
    description:
      - The first kernel that has netkit.
      - The default is V(6.7).
    type: raw
  netkit_kernel_young:
    description:
      - A kernel before this gets a warning about netkit.
      - The default is V(6.12).
    type: raw
  big_tcp_ipv4_kernel_floor:
    description:
      - The first kernel that has BIG TCP for IPv4.
      - The default is V(6.3).
    type: raw
  big_tcp_ipv6_kernel_floor:
    description:
      - The first kernel that has BIG TCP for IPv6.
      - The default is V(5.19).
    type: raw
  both_families_from:
    description:
      - The first kernel on which BIG TCP of one family alone has no effect, so that what is against one is against both.
      - The default is V(6.7).
    type: raw
  tso_max_size_above:
    description:
      - The smallest C(tso_max_size) of all uplinks must be above this number of bytes for BIG TCP.
      - The default is V(65536).
    type: int
  tso_max_sizes:
    description: "C(tso_max_size) in bytes by NIC name or PCI address, where it cannot be read, such as V({ens1f0np0: 524280})."
    type: dict
  wanted:
    description:
      - The gates that the policy wants at all.
      - The default is V([netkit, big_tcp_ipv4, big_tcp_ipv6]).
    type: list
    elements: str
  known_bad_kernels:
    description: Kernels to refuse, in place of the list that ships with this collection.
    type: list
    elements: dict
    suboptions:
      release:
        description: A regular expression that the beginning of C(uname -r) matches.
        type: str
        required: true
      gates:
        description: The gates that are closed there.
        type: list
        elements: str
        required: true
      why:
        description: What happens there.
        type: str
        required: true
  known_bad_releases:
    description: Releases of Cilium to refuse, in place of the list that ships with this collection.
    type: list
    elements: dict
    suboptions:
      first:
        description: First such release.
        type: str
        required: true
      last:
        description: Last such release.
        type: str
        required: true
      what:
        description: What is broken, V(big_tcp_with_tunnel_device) or V(distributed_lru).
        type: str
        required: true
      why:
        description: What happens there.
        type: str
        required: true
  cilium_version:
    description: Cilium's version, or that of RKE2's chart (V(1.19.601) is 1.19.6).
    type: str
  cilium_values:
    description:
      - The values that Cilium's chart gets. What they leave out has the chart's default, under which BIG TCP is not possible.
      - Without this option the values are taken to be those of the role C(cilium).
    type: dict
attributes:
  check_mode:
    support: full
    description: Reads only, so check mode and a run are the same.
  diff_mode:
    support: none
    description: Changes nothing.
"""

EXAMPLES = r"""
- name: Judge the running host by the rule
  lo0.rke2_hostprep.dataplane_gate:
    cilium_version: 1.19.6
  register: gate

- name: Judge the kernel that will boot, with a NIC driver that this site has tested for netkit
  lo0.rke2_hostprep.dataplane_gate:
    kernel: 6.12.48+deb13-amd64
    uplinks: [bond0]
    nic_drivers: [mlx4, mlx5, ice, bnxt_en]
    cilium_version: 1.19.601
    cilium_values: "{{ cilium_values }}"
"""

RETURN = r"""
gates:
  description: C(netkit), C(big_tcp_ipv4) and C(big_tcp_ipv6), each with C(eligible) and C(reasons).
  returned: success
  type: dict
  sample:
    netkit:
      eligible: false
      reasons:
        - code: kernel_below_rule
          message: the kernel is older than the policy's minimum
          cure: boot kernel 6.8 or later, or lower kernel_min
          read: kernel 6.1.0-28-amd64, kernel_min 6.8
gate_warnings:
  description: What does not close a gate but should be known, in the shape of a reason.
  returned: success
  type: list
  elements: dict
  sample: []
dataplane:
  description:
    - What was read, namely the kernel that was judged, the uplinks with the NICs beneath them, their drivers and limits, and the memory
      and possible CPUs that decide on the sizes of Cilium's maps.
  returned: success
  type: dict
  sample:
    kernel: 6.12.48+deb13-amd64
    memory_mib: 1546000
    possible_cpus: 224
    uplinks: [{name: bond0, nics: [{name: ens1f0np0, driver: mlx5_core, tso_max_size: 524280}]}]
code:
  description: Stable code of a refusal, with RV(read), RV(allowed) and RV(cure) beside it.
  returned: failure
  type: str
  sample: uplink_unknown
read:
  description: What was read.
  returned: failure
  type: str
allowed:
  description: What would be accepted.
  returned: failure
  type: str
cure:
  description: What to do.
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule

# For its effect alone, and before the others, which Python then compiles once
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host import compile_once  # noqa: F401  pylint: disable=unused-import
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.discover import discover
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.kernel import (
    config as kernel_config,
    newer as newer_kernel,
)
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.reader import Reader
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import gate
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.topology import complete

_TEXT = {"type": "str", "required": True}
_ENTRIES = {
    "known_bad_kernels": {
        "release": _TEXT,
        "gates": {"type": "list", "elements": "str", "required": True},
        "why": _TEXT,
    },
    "known_bad_releases": {"first": _TEXT, "last": _TEXT, "what": _TEXT, "why": _TEXT},
}


def _answer(params):
    if params["policy"] is not None and not isinstance(params["policy"], dict):
        gate.normalise(params["policy"])  # refuses it
    options = dict(params["policy"] or {})
    options.update((name, params[name]) for name in gate.OPTIONS if params[name] is not None)
    options = gate.normalise(options)
    newer = None
    if params["topology"] is not None:
        topology = complete(params["topology"])
    else:
        tree = Tree(params["root"])
        topology = discover(tree)
        kernel = options["kernel"]
        if kernel not in (None, topology["kernel"]["release"]) and options["config_netkit"] is None:
            options["config_netkit"] = kernel_config(Reader(tree), kernel, running=False)["CONFIG_NETKIT"]
        newer = newer_kernel(Reader(tree), topology["kernel"]["release"])
    return gate.judge(topology, options, newer)


def main():
    spec = {
        name: {key: value for key, value in option.items() if key != "default"} for name, option in gate.OPTIONS.items()
    }
    for name, options in _ENTRIES.items():
        spec[name]["options"] = options
    spec.update(
        root={"type": "path", "default": "/"},
        topology={"type": "dict"},
        policy={"type": "raw"},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = _answer(module.params)
    except HostprepError as error:
        module.fail_json(msg=str(error), **error.as_dict())
    except Exception as error:  # a user never sees a traceback; the sentence says what to report
        error = unexpected(error)
        module.fail_json(msg=str(error), **error.as_dict())
    result["gate_warnings"] = result.pop("warnings")  # "warnings" is Ansible's own
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
