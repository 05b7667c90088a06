# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel's files about network devices say: routing tables, bonds, VLANs, InfiniBand ports. Text in, plain data out."""

from __future__ import annotations

import re

RTF_UP = 0x0001
RTF_REJECT = 0x0200
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+\Z", re.ASCII)
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*Gb/sec", re.ASCII)


def default_route_devices(ipv4, ipv6):
    """Names of the devices that carry a default route, from the text of proc/net/route and proc/net/ipv6_route (either may be None).

    Routes that are not up or that reject count for nothing, and neither does the IPv6 entry on "lo" that stands for "no route".
    """
    found = set()
    for line in (ipv4 or "").splitlines()[1:]:
        words = line.split()
        if len(words) >= 8 and _hex(words[1]) == 0 and _hex(words[7]) == 0 and _usable(words[3]):
            found.add(words[0])
    for line in (ipv6 or "").splitlines():
        words = line.split()
        if (
            len(words) >= 10
            and len(words[0]) == 32
            and _hex(words[0]) == 0
            and _hex(words[1]) == 0
            and _usable(words[8])
            and words[9] != "lo"
        ):
            found.add(words[9])
    return found


def _hex(word):
    try:
        return int(word, 16) if len(word) <= 32 else None
    except ValueError:
        return None


def _usable(flags):
    value = _hex(flags)
    return value is not None and bool(value & RTF_UP) and not value & RTF_REJECT


def vlans(text):
    """{VLAN device: device below it} from proc/net/vlan/config ("eth0.10 | 10 | eth0")."""
    found = {}
    for line in (text or "").splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) == 3 and words[1].isdigit() and words[0] and words[2]:
            found[words[0]] = words[2]
    return found


def bond_members(text):
    """Names of a bond's slaves from proc/net/bonding/<bond>, in the order of the file."""
    return [
        line.partition(":")[2].strip()
        for line in (text or "").splitlines()
        if line.startswith("Slave Interface:") and line.partition(":")[2].strip()
    ]


def representor(phys_port_name):
    """True for the switch-side port of a virtual or sub-function ("pf0vf3"): it sits on its PF's device and is no NIC."""
    return bool(phys_port_name) and bool(_REPRESENTOR.match(phys_port_name))


def port_state(text):
    """("4: ACTIVE") gives "ACTIVE"; None stays None."""
    return text.partition(":")[2].strip() or text if text else None


def port_rate(text):
    """Gb/s of an InfiniBand port's rate ("100 Gb/sec (4X EDR)"), int where whole; None where the text has none."""
    found = _RATE.match(text) if text else None
    if not found:
        return None
    value = float(found.group(1))
    return int(value) if value.is_integer() else value
