# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the running kernel tells of a network device: its TSO limit (rtnetlink) and its channels (ethtool).

Used on the live root alone; a snapshot has no kernel to ask. No privilege is needed, and any failure is an unknown.
Numbers: include/uapi/linux/{rtnetlink,if_link,ethtool,sockios}.h.
"""

from __future__ import annotations

import socket
import struct

try:
    import fcntl
except ImportError:  # not Linux: the module is only documented or tested there
    fcntl = None

_NETLINK_ROUTE = 0
_RTM_NEWLINK = 16
_RTM_GETLINK = 18
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_IFLA_IFNAME = 3
_IFLA_TSO_MAX_SIZE = 59
_SIOCETHTOOL = 0x8946
_ETHTOOL_GCHANNELS = 0x3C
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
_CHANNELS = struct.Struct("=9I")


def fill(reader, nics):
    """Sets ``tso_max_size`` and ``channels`` of the NICs of a live host."""
    sizes = why = None
    try:
        sizes = tso_max_sizes()
    except (OSError, struct.error) as error:
        why = str(error)
    for nic in nics:
        what = "nics.%s." % nic.label
        nic.facts["tso_max_size"] = (sizes or {}).get(nic.name)
        if nic.facts["tso_max_size"] is None:
            reader.note(
                what + "tso_max_size",
                "netlink",
                why or "not told by this kernel (older than 6.0), or no network device",
            )
        try:
            nic.facts["channels"] = channels(nic.name) if nic.name else None
            reason = "no network device"
        except OSError as error:
            reason = error.strerror or str(error)
        if nic.facts["channels"] is None:
            reader.note(what + "channels", "ethtool", reason)


def tso_max_sizes():
    """{device name: largest TSO packet in bytes}, for the devices whose kernel says so (6.0 and later)."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE) as link:
        link.settimeout(2)
        link.send(
            _HEADER.pack(_HEADER.size + _LINK.size, _RTM_GETLINK, _NLM_F_REQUEST_DUMP, 1, 0) + _LINK.pack(0, 0, 0, 0, 0)
        )
        found = {}
        while True:
            more = parse_links(link.recv(1 << 18), found)
            if not more:
                return found


def parse_links(data, found):
    """Adds the links of one netlink datagram to ``found``; False after the last one. Raises OSError for a kernel's refusal."""
    place = 0
    while place + _HEADER.size <= len(data):
        length, kind, _flags, _sequence, _port = _HEADER.unpack_from(data, place)
        end = place + length
        if length < _HEADER.size or end > len(data):
            return False
        if kind == _NLMSG_DONE:
            return False
        if kind == _NLMSG_ERROR:
            raise OSError("the kernel refused to list its links")
        if kind == _RTM_NEWLINK:
            name, size = _attributes(data, place + _HEADER.size + _LINK.size, end)
            if name and size:
                found[name] = size
        place += length + 3 & ~3
    return True


def _attributes(data, place, end):
    name = size = None
    while place + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, place)
        if length < _ATTRIBUTE.size or place + length > end:
            break
        value = data[place + _ATTRIBUTE.size : place + length]
        if kind == _IFLA_IFNAME:
            name = value.rstrip(b"\0").decode("utf-8", "replace")
        elif kind == _IFLA_TSO_MAX_SIZE and len(value) == 4:
            size = struct.unpack("=I", value)[0]
        place += length + 3 & ~3
    return name, size


def channels(name):
    """{combined, combined_max, rx, rx_max, tx, tx_max} of a network device. Raises OSError where the driver has none."""
    if fcntl is None:
        raise OSError("no ioctl on this platform")
    import array

    request = array.array("B", _CHANNELS.pack(_ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0))
    address, _length = request.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", name.encode()[:15], address))
    _command, max_rx, max_tx, _max_other, max_combined, rx, tx, _other, combined = _CHANNELS.unpack(request.tobytes())
    return {"combined": combined, "combined_max": max_combined, "rx": rx, "rx_max": max_rx, "tx": tx, "tx_max": max_tx}
