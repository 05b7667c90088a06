# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a machine, and how it is read.

Every key has a default in parentheses; an empty description is a one-socket x86 machine of 4 cores with SMT. `at` is a
device's PCI path from its root bus down, "17:01.0/18:00.0/1a:00.0": everything before the last is a bridge, made once
for all that name it; a domain ("10000:e1:00.0") holds for what follows it, and a new domain below a device opens the
root bus of that domain there, as Intel VMD does. CPU sets are the kernel's lists ("0-1,32-33").

    name       free text, for people
    arch       x86_64 | aarch64 | ppc64le | s390x | riscv64 (x86_64)
    kernel     release (6.8.0-64-generic); decides which files exist and how /proc/interrupts looks
    cmdline    boot arguments (BOOT_IMAGE=… root=… ro); isolated, nohz_full, default_smp_affinity and SMT follow from them
    preempt    none | voluntary | full | lazy | rt (voluntary)
    config     {NETKIT: y|m|n, …} over what such a release has
    hypervisor none | kvm | qemu | vmware | microsoft | xen | oracle | amazon | google | zvm | powervm (none)
    dmi        {sys_vendor, product_name, …}
    cpus:
      model, vendor     as /proc/cpuinfo names them (by arch)
      packages, cores, threads   (1, 4, 2) cores per package: a number, or a list with one per package
      ecores            further E-cores per package, without SMT (0)
      numbering         block: thread 0 of every core, socket after socket, then thread 1 | adjacent: siblings 2i, 2i+1
                        | alternate: as block, sockets taking turns | [["0,32", …], …]: cores of each package (block)
      ids               the ids that the numbering 0, 1, 2 … stands for, where some are missing ("0-n")
      present, possible wider sets (all | present); offline: present and not online (none)
      dies              per package (1); clusters: cores per cluster (L2's); llc: cores per last-level cache (die's)
      llc_kib           (2048 per core); caches: false for none (true)
      package_ids       one per package, or one for all (0, 1, …); core_ids: package | die (restart there) | global | list (package)
      package_list      package | core: whose CPUs core_siblings names (package)
      books, drawers    packages per book, books per drawer (s390x)
      smt               on | off | forceoff | notsupported | notimplemented (from threads); off takes second threads offline
      capacity          {"0-3": 512, …} (1024 each on Arm)
      topology          false: no cpuN/topology (true)
    memory:             or false: a kernel without NUMA
      nodes_per_package (1); mib per node: a number, or a list with one per node (262144)
      cpus              {node id: CPU set}, instead of nodes_per_package; ids: the nodes' ids where some are missing (0, 1, …)
      memoryless        [node id]; cpuless: [{id, count (1), mib (131072), near: node id (first)}]: CXL, PMEM, GPU memory
      distances         [[…], …] (10; 12 in a package; 21 across; 17 and 28 to nodes without CPUs)
    roots      {root bus: NUMA node} ("17" or "0000:17"; -1 where not named)
    pci:       - {kind, at, node, boot_vga, vectors, driver, class, vendor, device}; `at` may be a list; kinds in pci.py
    nics:      drivers in drivers.py; - at, node, driver; without PCI dev (path below sys/devices) and bus (platform)
      name     netdev (by address); a list: several on one function (dev_port); named: false where none is seen
      state    up | nolink | down (up); speed in Mb/s (by driver); queues (by driver and CPUs); mtu (1500)
      pin      CPU set over which its queue interrupts are dealt, instead of the driver's choice
      ceqs     irdma completion vectors (0); hca: RDMA device, false for none (mlx5_N, qibN); link: ethernet | infiniband
      vfs      {count, driver, at: address of the first (PF + 2), node, queues, state, named (true)}; representors: n
      vendor, device, class
    netdevs:   - {name, kind: bond | vlan | bridge | team | veth | netkit | dummy, lower: [names], id: VLAN, state}
    default_route, default_route6   name or [names] of the netdevs that carry it
    cgroup     {cpus, mems, version: 1|2}: the process that captured was confined to these
    grub, grub.d    GRUB_CMDLINE_LINUX of etc/default/grub, {file: value} of etc/default/grub.d
    rke2, rke2.d    etc/rancher/rke2/config.yaml as a mapping, {file: mapping} of config.yaml.d
    kubelet    {policyName, defaultCpuSet, entries}: var/lib/kubelet/cpu_manager_state
    files      {path: text, {link: path}}, written last; without: [shell patterns, or **/name] of paths that the capture lacks
"""

from __future__ import annotations

import difflib
import types
from pathlib import Path

import yaml

from . import lists

NAME_LENGTH = 15  # bytes of an interface's name: IFNAMSIZ less its NUL


class SpecError(ValueError):
    """A description that no machine can have, in one sentence."""


SECTIONS = {
    "name": (str, None),
    "arch": ({"x86_64", "aarch64", "ppc64le", "s390x", "riscv64"}, "x86_64"),
    "kernel": (str, "6.8.0-64-generic"),
    "cmdline": (str, None),
    "preempt": ({"none", "voluntary", "full", "lazy", "rt"}, "voluntary"),
    "config": (dict, {}),
    "hypervisor": (
        {"none", "kvm", "qemu", "vmware", "microsoft", "xen", "oracle", "amazon", "google", "zvm", "powervm"},
        "none",
    ),
    "dmi": (dict, {}),
    "cpus": (dict, {}),
    "memory": ((dict, bool), {}),
    "roots": (dict, {}),
    "pci": ([dict], []),
    "nics": ([dict], []),
    "netdevs": ([dict], []),
    "default_route": ((str, [str]), []),
    "default_route6": ((str, [str]), []),
    "cgroup": (dict, None),
    "grub": (str, None),
    "grub.d": (dict, {}),
    "rke2": (dict, None),
    "rke2.d": (dict, {}),
    "kubelet": (dict, None),
    "files": (dict, {}),
    "without": ([str], []),
}


def read(section, where, fields):
    """The section's values by name, defaults filled in.

    A field is (kind, default): a kind is a type, a set of words, [kind] for a list of such, or a tuple of kinds; a whole
    number's kind may be range(low, high + 1).
    """
    if not isinstance(section, dict):
        raise SpecError(f"{where} is {section!r}: write a mapping of {', '.join(fields)}")
    for key in section:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, 1)
            raise SpecError(
                f"{where} has no key {key!r}: {'did you mean ' + near[0] if near else 'use one of ' + ', '.join(fields)}"
            )
    out = types.SimpleNamespace()
    for key, (kind, default) in fields.items():
        value = section.get(key)
        if value is None:
            value = default
        else:
            if isinstance(kind, set) and isinstance(value, bool):  # YAML reads a bare on and off as booleans
                value = "on" if value else "off"
            if not _fits(value, kind):
                raise SpecError(f"{where}: {key} is {value!r:.60}: write {_words(kind)}")
        setattr(out, key.replace(".", "_"), value)
    return out


def _fits(value, kind):
    if isinstance(kind, tuple):
        return any(_fits(value, one) for one in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(one, kind[0]) for one in value)
    if isinstance(kind, set):
        return isinstance(value, str) and value in kind
    if isinstance(kind, range):
        return isinstance(value, int) and not isinstance(value, bool) and value in kind
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _words(kind):
    if isinstance(kind, tuple):
        return " or ".join(_words(one) for one in kind)
    if isinstance(kind, list):
        return f"a list, each {_words(kind[0])}"
    if isinstance(kind, set):
        return "one of " + ", ".join(sorted(kind))
    if isinstance(kind, range):
        return f"a whole number from {kind[0]} to {kind[-1]}"
    return {str: "text (an address in quotes)", int: "a whole number", dict: "a mapping", bool: "true or false"}[kind]


def cpus(text, where, allowed=None):
    """Ids of a CPU list, which must lie in `allowed` where that is given."""
    try:
        ids = lists.expand(text)
    except ValueError:
        raise SpecError(f"{where} is {text!r}: write a CPU list such as 0-1,32-33") from None
    wrong = [] if allowed is None else sorted(set(ids) - set(allowed))
    if wrong:
        raise SpecError(f"{where} names CPUs {lists.compress(wrong)}, and the machine has {lists.compress(allowed)}")
    return ids


def interface_name(name, where):
    """The name, if the kernel would take it."""
    if (
        not 1 <= len(name.encode()) <= NAME_LENGTH
        or name in (".", "..")
        or "/" in name
        or ":" in name
        or any(char.isspace() for char in name)
    ):
        raise SpecError(
            f"{where}: name {name!r} is no interface name: use 1 to {NAME_LENGTH} bytes without '/', ':' or white space"
        )
    return name


def load(spec):
    """The description as a mapping: from a mapping, YAML text, or the path of a YAML file."""
    if isinstance(spec, (str, Path)):
        text = str(spec)
        if isinstance(spec, Path) or ("\n" not in text and text.endswith((".yml", ".yaml"))):
            text = Path(spec).read_text(encoding="utf-8")
        try:
            spec = yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise SpecError(f"the description is not YAML: {str(error).splitlines()[0]}") from None
    return read(spec, "the description", SECTIONS)
