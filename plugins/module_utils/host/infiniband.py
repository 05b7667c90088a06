# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA devices (HCAs) of a host, with or without a network device, by the PCI function they sit on.

Source: sys/class/infiniband (Documentation/ABI/stable/sysfs-class-infiniband). Software devices (rxe, siw) sit on no PCI
function and are not listed. One entry per port.
"""

from __future__ import annotations

from ..model import netdev, pci
from .reader import printable

IB = "sys/class/infiniband"


def ports_by_function(reader, functions):
    """{BDF: [{name, port, link_layer, rate_gbps, state}]}, in the order of device name and port number."""
    found = {}
    names = reader.tree.listdir(IB)
    listed = set()
    for name in names or ():
        folder = "%s/%s" % (IB, name)
        path = reader.tree.real(folder)
        if path == folder:  # a capture that copied the folder in place of the link
            path = reader.tree.real(folder + "/device") or folder
        listed.add(name)
        function = functions.at(path) if path else None
        if function is None:
            if not (path or "").startswith("sys/devices/virtual"):
                reader.note(
                    "nics.*.infiniband",
                    folder,
                    "dangling link" if path is None else "not on a PCI function that can be read",
                )
            continue
        found.setdefault(function.bdf, []).extend(_ports(reader, name, path if path.endswith("/" + name) else folder))
    for bdf, function in functions.by_bdf.items():
        if function.pci_class is not None and pci.network(function.pci_class) and "infiniband" in function.names():
            for name in reader.tree.listdir(function.path + "/infiniband") or ():
                if name not in listed:  # a capture without sys/class
                    found.setdefault(bdf, []).extend(_ports(reader, name, "%s/infiniband/%s" % (function.path, name)))
    return found


def _ports(reader, name, folder):
    what = "nics.*.infiniband.%s" % printable(name)
    numbers = sorted(
        int(port)
        for port in reader.tree.listdir(folder + "/ports") or ()
        if port.isdigit() and port.isascii() and len(port) < 4
    )
    if not numbers:
        reader.note(what, folder + "/ports", reader.tree.why(folder + "/ports"))
        return [{"name": printable(name), "port": None, "link_layer": None, "rate_gbps": None, "state": None}]
    ports = []
    for number in numbers:
        port = "%s/ports/%d/" % (folder, number)
        facts = {
            "name": printable(name),
            "port": number,
            "link_layer": reader.word(port + "link_layer"),
            "rate_gbps": netdev.port_rate(reader.text(port + "rate")),
            "state": netdev.port_state(reader.text(port + "state")),
        }
        for field, file in (("link_layer", "link_layer"), ("rate_gbps", "rate"), ("state", "state")):
            if facts[field] is None:
                reader.note(what, port + file, reader.why(port + file))
        ports.append(facts)
    return ports
