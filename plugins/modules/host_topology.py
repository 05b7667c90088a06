#!/usr/bin/python
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology of a host, live or captured: glue between Ansible and module_utils/host/discover.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_topology
short_description: Reads the CPUs, NUMA nodes, NICs, accelerators and interrupts of a host
version_added: 0.1.0
description:
  - Reads what a host's C(/sys) and C(/proc) tell about its CPUs, NUMA nodes, caches, NICs, accelerators, interrupts and kernel,
    and returns it as plain data.
  - It changes nothing, runs no program, and needs no privilege. What only root can read is unknown to others.
  - What cannot be known is V(null) and is listed in RV(topology.unknown) with the file and the reason. Nothing is guessed. A NUMA
    node of -1 is unknown.
  - A capture of another machine goes through the same code as the live host.
options:
  root:
    description:
      - The host's root on the machine that runs the module. Either C(/), or a folder that holds a host's C(sys/) and C(proc/), or
        a C(.tar), C(.tar.gz), C(.tar.xz) or C(.tar.bz2) of such a folder.
      - Links are followed inside the root only.
    type: path
    default: /
attributes:
  check_mode:
    description: The module only reads, so check mode is no different.
    support: full
  diff_mode:
    description: There is nothing to differ.
    support: none
author:
  - The lo0.rke2_hostprep authors (@lo0)
seealso:
  - module: lo0.rke2_hostprep.cpu_plan
"""

EXAMPLES = r"""
- name: Read the topology of the host
  lo0.rke2_hostprep.host_topology:
  register: host

- name: Show which NUMA node each NIC is on
  ansible.builtin.debug:
    msg: "{{ item.name or item.pci }} is on NUMA node {{ item.numa_node }}"
  loop: "{{ host.topology.nics }}"
  loop_control:
    label: "{{ item.pci }}"

- name: Read a captured machine on the controller
  lo0.rke2_hostprep.host_topology:
    root: /srv/captures/node7.tar.xz
  delegate_to: localhost
"""

RETURN = r"""
topology:
  description:
    - The host, as plain data. C(docs/schemas/topology.schema.json) of the collection is its JSON Schema.
    - A cpulist is a string in the kernel's format, compressed, such as V(0-1,32-33). An empty string is the empty list.
  returned: success
  type: dict
  contains:
    schema_version:
      description: Version of this shape.
      type: int
      sample: 1
    root:
      description: The root as it was given.
      type: str
      sample: /
    arch:
      description: Architecture as C(uname -m) names it.
      type: str
      sample: x86_64
    cpu_model:
      description: Model name of the CPU.
      type: str
      sample: Intel(R) Xeon(R) Platinum 8462Y+
    cpu_vendor:
      description: Vendor of the CPU.
      type: str
      sample: intel
    hypervisor:
      description:
        - V(none), or the hypervisor that the host runs on, or V(vm) where only that there is one is known.
      type: str
      sample: none
    kernel:
      description:
        - RV(ignore:release), RV(ignore:version), RV(ignore:cmdline), its RV(ignore:args) (quotes respected), the build options
          in RV(ignore:config) (V(y), V(m) or V(n)), and RV(ignore:preempt), the preemption model as it runs (V(none),
          V(voluntary), V(full), V(lazy) or V(rt)).
      type: dict
    cpus:
      description:
        - Cpulists RV(ignore:possible), RV(ignore:present), RV(ignore:online), RV(ignore:offline) (present but not online),
          RV(ignore:isolated), RV(ignore:nohz_full); the lowest online CPU RV(ignore:boot).
        - RV(ignore:siblings), one cpulist of online CPUs for each core, ordered by lowest CPU; V(null) where the kernel does not
          tell which CPUs share a core.
        - RV(ignore:packages) (a count), RV(ignore:package_cpus), RV(ignore:dies), RV(ignore:clusters), and RV(ignore:llcs), the
          groups of CPUs under one last-level cache with its size in KiB.
        - RV(ignore:cores), in the order of RV(ignore:siblings), each with the index of its package, die, cluster and cache, its
          NUMA node, and its type (V(P) or V(E)) and capacity where the kernel tells.
        - RV(ignore:threads_per_core), RV(ignore:threads_per_core_min), and RV(ignore:cores_per_package), V(null) where packages
          differ; RV(ignore:smt_control) and RV(ignore:smt_active).
      type: dict
    numa_nodes:
      description:
        - Every NUMA node, those without CPUs or without memory included. RV(ignore:cpus) are the online ones,
          RV(ignore:cpus_raw) the kernel's own list; RV(ignore:memory_mib) in MiB; RV(ignore:distances) by node id.
      type: list
      elements: dict
      sample: [{"id": 0, "cpus": "0-15,32-47", "cpus_raw": "0-15,32-47", "memory_mib": 257531, "distances": {"0": 10, "1": 21}, "has_memory": true}]
    nics:
      description:
        - One entry for each PCI network function (InfiniBand included), and for each hardware interface without PCI.
        - RV(ignore:name) is V(null) where no network device is seen. RV(ignore:bridges) are the PCI bridges from the root port
          down. RV(ignore:speed_mbps) in Mb/s. RV(ignore:tso_max_size) in bytes and RV(ignore:channels) are read from a live
          kernel only.
        - RV(ignore:irqs) are its interrupts, with the queue that each serves and RV(ignore:managed), whether the kernel keeps its
          affinity to itself.
      type: list
      elements: dict
    netdevs:
      description: Every network device, its kind, and the NICs beneath it through bonds, VLANs, bridges and teams.
      type: list
      elements: dict
      sample: [{"name": "bond0", "kind": "bond", "lower": ["ens1f0"], "nics": ["ens1f0"], "up": true, "carrier": true, "default_route": true}]
    gpus:
      description: Accelerators, by a table of PCI vendors and classes; a BMC's display and an NVSwitch are none.
      type: list
      elements: dict
    display:
      description: PCI addresses of every display controller (class 03), BMCs included.
      type: list
      elements: str
    irqs:
      description: Every numbered interrupt, with the PCI address of its device and the cpulists it may go to and does go to.
      type: list
      elements: dict
    irq_columns:
      description: CPU ids of the columns of C(/proc/interrupts).
      type: list
      elements: int
    default_smp_affinity:
      description: Cpulist that new interrupts get.
      type: str
      sample: 0-63
    unknown:
      description:
        - What could not be known. RV(ignore:what) is the place in the topology (V(*) stands for every item of a list),
          RV(ignore:path) the file below the root, RV(ignore:why) the reason.
      type: list
      elements: dict
      sample: [{"what": "cpus.isolated", "path": "sys/devices/system/cpu/isolated", "why": "missing"}]
code:
  description: Stable identifier of the refusal.
  returned: failure
  type: str
  sample: root_missing
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
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.errors import HostprepError, unexpected


def main():
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    try:
        topology = discover(Tree(module.params["root"]))
    except HostprepError as error:
        module.fail_json(msg=str(error), **error.as_dict())
    except Exception as error:  # a user never sees a traceback; the sentence says what to report
        error = unexpected(error)
        module.fail_json(msg=str(error), **error.as_dict())
    module.exit_json(changed=False, topology=topology)


if __name__ == "__main__":
    main()
