# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology of a host: everything a plan is made from, as plain JSON. Shape: docs/schemas/topology.schema.json.

What cannot be known is None and stands in ``unknown``; nothing is guessed. None without an entry in ``unknown`` means that there
is no such thing: a NIC's ``name`` (no network device), ``function``, ``physfn`` and ``sriov_total`` (no SR-IOV), a NIC's PCI
facts where ``pci`` is None, a core's ``type`` and ``capacity`` (the kernel tells of one kind of core only) and its ``die``,
``cluster`` and ``llc`` (no such level), a GPU's ``name`` (not in the table) and ``driver`` (none bound), an interrupt's ``chip``,
``hwirq``, ``device`` and ``managed``, an entry's ``queue``, ``name`` and ``managed``.
"""

from __future__ import annotations

from ..model.errors import HostprepError, unexpected
from . import cpus, interrupts, kernel, netdevs, nics, nodes, pci
from .identity import Identity
from .reader import Reader

SCHEMA_VERSION = 1


def discover(tree):
    """The topology of the host below a Tree. Raises HostprepError, and nothing else."""
    try:
        return _discover(tree)
    except HostprepError:
        raise
    except Exception as error:  # a defect here must reach the user as a sentence that names the file
        found = unexpected(error)
        read = "%s, after %s" % (found.read, tree.last)
        raise HostprepError(found.code, found.message, read=read, allowed=found.allowed, cure=found.cure) from error


def _discover(tree):
    reader = Reader(tree)
    facts = kernel.kernel(reader)
    identity = Identity(reader, facts["release"])
    processors = cpus.Cpus(reader)
    numa_nodes, node_of = nodes.numa_nodes(reader, processors.online)
    functions = pci.Functions(reader)
    devices = netdevs.Netdevs(reader)
    cards = nics.find(reader, functions, devices)
    gpus, display = pci.gpus(reader, functions)
    irqs, columns, default_affinity = interrupts.read(reader, functions, cards)
    ask_kernel(reader, cards)
    return {
        "schema_version": SCHEMA_VERSION,
        "root": tree.root,
        "arch": identity.arch,
        "cpu_model": identity.cpu_model,
        "cpu_vendor": identity.cpu_vendor,
        "hypervisor": identity.hypervisor,
        "kernel": facts,
        "cpus": processors.facts(node_of),
        "numa_nodes": numa_nodes,
        "nics": [card.facts for card in cards],
        "netdevs": devices.facts(nics.labels(cards, devices)),
        "gpus": gpus,
        "display": display,
        "irqs": irqs,
        "irq_columns": columns,
        "default_smp_affinity": default_affinity,
        "unknown": reader.unknown,
    }


def ask_kernel(reader, cards):
    """What no file tells; a snapshot has no kernel to ask."""
    if reader.tree.live and cards:
        from . import netlink  # Ansible compiles what is imported anew on each host: what few need is left out

        netlink.fill(reader, cards)
    elif cards:
        for field in ("tso_max_size", "channels"):
            reader.note("nics.*." + field, "netlink", "only a running kernel tells")
