# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the interrupt vectors of the planned NICs where the plan wants them. What belongs where is in model/affinity.py.

Interrupt numbers are found anew with every look, never kept: a driver that is bound again has others. Only smp_affinity_list is
written, and read back. What the kernel answers (kernel/irq/proc.c, kernel/irq/manage.c): EIO up to 6.11 and EPERM from 6.12 for an
interrupt that user space may not move; ENOSPC where no vector is left on the CPUs asked for; ENOENT where the interrupt is gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

try:
    import fcntl
except ImportError:  # not Linux: the module is only documented or tested there
    fcntl = None

from ..model import affinity, cpulist
from ..model.errors import HostprepError
from . import interrupts, netdevs, nics, pci
from .kept import PLAN_PATH, kept_plan
from .reader import Reader
from .tree import Tree, reason

ONLINE = "sys/devices/system/cpu/online"
PRESENT = "sys/devices/system/cpu/present"
DEFAULT = "proc/irq/default_smp_affinity"
LOCK = "/run/lo0.rke2_hostprep"
LOOKS = 4  # an interrupt that vanishes under our hands is looked for again, so often
_MANAGED = (errno.EIO, errno.EPERM)
_VANISHED = (errno.ENOENT, errno.ENODEV, errno.ESRCH)


def read_plan(tree):
    """The plan that the host keeps. Raises HostprepError: plan_missing, plan_unreadable."""
    plan, problem = kept_plan(tree)
    if plan is not None:
        return plan
    if problem:
        raise HostprepError(
            "plan_unreadable",
            "the plan that this host keeps cannot be read",
            read="/%s: %s" % (PLAN_PATH, problem),
            allowed="a plan as cpu_plan returns it",
            cure="move it aside and run the playbook site, or pass plan",
        )
    raise HostprepError(
        "plan_missing",
        "this host keeps no plan",
        read="no /" + PLAN_PATH,
        allowed="a plan as cpu_plan returns it",
        cure="run the playbook site, or pass plan",
    )


class Look:
    """What one look at the host finds.

    vectors   {label of a planned NIC: [vector]}, see model/affinity.py
    devices   PCI addresses and names of the NICs that are there
    online, present   sets of CPU ids (``present`` is empty where it is not known)
    columns   CPUs of the columns of /proc/interrupts, or None
    names     {label of a planned NIC: names of its network devices in this network namespace}
    """

    def __init__(self, tree, rules, counts=frozenset()):
        reader = Reader(tree)
        online = reader.cpus(ONLINE)
        self.online = set(online or rules["online"])
        self.present = set(reader.cpus(PRESENT) or online or ())
        functions = pci.Functions(reader)
        addresses = {entry["pci"] for entry in rules["nics"] if entry["pci"]}
        if all(entry["pci"] for entry in rules["nics"]):
            cards = nics.outlines(reader, functions, addresses)
        else:  # a card that is no PCI function is found by its network device only
            cards = nics.find(reader, functions, netdevs.Netdevs(reader))
        by_key = {card.bdf or card.name: card for card in cards}
        self.devices = set(by_key)
        self.vectors = {}
        self.names = {}
        owners = {}  # card -> (label, shift of its queues)
        for entry in rules["nics"]:
            card = by_key.get(entry["pci"] or entry["name"])
            if card is None:
                continue
            self.vectors[entry["label"]] = []
            owners[card] = entry["label"], 0
            self.names[entry["label"]] = list(card.names)
            if entry["name"] and not card.names:
                card.names = [entry["name"]]  # moved into another network namespace; its handlers still carry the name
        for card, (label, _shift) in list(owners.items()):
            for place, bdf in enumerate(card.function.vfs() if card.function else ()):
                virtual = by_key.get(bdf)
                if virtual is not None and virtual not in owners:
                    owners[virtual] = label, place + 1
        found, self.columns = interrupts.of_nics(reader, functions, cards, owners, counts)
        served = _queues_served() if tree.live and found else {}
        entries = {}  # of the actions that share an interrupt, the first that names a queue
        for card in owners:
            for entry in card.facts["irqs"]:
                if entries.get(entry["irq"], {"queue": None})["queue"] is None:
                    entries[entry["irq"]] = entry
        for card, fact, counted in found:
            label, shift = owners[card]
            number = fact["irq"]
            self.vectors[label].append(_vector(entries[number], fact, counted, shift, served.get(number)))


def _vector(entry, fact, counted, shift, served):
    """One vector; what the kernel says of its queue comes before names."""
    kind, queue = entry["kind"], entry["queue"]
    if served is not None and kind != "ceq":
        kind, queue = ("queue" if kind in ("misc", "aeq") else kind), served
    return {
        "irq": fact["irq"],
        "kind": kind,
        "queue": queue,
        "name": entry["name"],
        "managed": fact["managed"],
        "affinity": fact["affinity"],
        "effective": fact["effective"],
        "shift": shift,
        "why": None,
        "counts": counted,
    }


def _queues_served():
    from . import genl  # needed on the running machine only

    try:
        return genl.queues_of_irqs()
    except OSError:  # kernels before 6.8 have no such family: names tell
        return {}


# -- writing -----------------------------------------------------------------------------------------------------------


def pin(root, rules, check=False, learned=None):
    """Rows of model/affinity.judge with ``result``: what was done, or in check mode would be. Raises HostprepError: irq_not_permitted.

    Results: ok, written, would_write, managed, unknown, vector_space, vanished, not_kept, refused.
    learned: {interrupt number: name} of those that refused once although nothing said that they are managed; filled here.
    """
    learned = {} if learned is None else learned
    done = {}
    for _attempt in range(LOOKS):
        tree = Tree(root)
        look = Look(tree, rules)
        rows = affinity.judge(rules, look.vectors, look.online)
        put_back(tree, rows, check, learned)
        for row in rows:
            earlier = done.get((row["irq"], row["name"]))
            if earlier and row["result"] == "ok":
                row.update(earlier)
            if row["result"] == "written":
                done[(row["irq"], row["name"])] = {key: row[key] for key in ("before", "result", "why")}
        if not any(row["result"] == "vanished" for row in rows):
            break
    return rows, look


def put_back(tree, rows, check=False, learned=None):
    """Writes what is in drift, and sets ``result``, ``after`` and ``why`` of every row."""
    learned = {} if learned is None else learned
    for row in rows:
        row["result"] = row["verdict"]
        if learned.get(row["irq"], row) == row["name"]:
            row.update(result="managed", wanted=None, why="the kernel refused to move it before")
    drift = [row for row in rows if row["result"] == "drift"]
    if check:
        _refuse_closed(tree, drift)
        for row in drift:
            row.update(result="would_write", after=row["wanted"], exposed=False)
        return
    if drift:
        _permitted(tree)
    for row in drift:
        _put(tree, row)
        if row["result"] == "managed":
            learned[row["irq"]] = row["name"]
            row["wanted"] = None
        row["exposed"] = affinity.exposed(row["after"], cpulist.expand(row["allowed"]))


def _permitted(tree):
    if not tree.writable:
        raise _not_permitted("the root %s is an archive" % tree.root)


def _refuse_closed(tree, drift):
    """What a run would find out with its first write: no rights, or a /proc that is read-only."""
    for row in drift:
        place = tree.place("proc/irq/%d/smp_affinity_list" % row["irq"])
        if place is not None and os.path.exists(place) and not os.access(place, os.W_OK):
            raise _not_permitted("%s cannot be written to" % place)


def _not_permitted(read):
    return HostprepError(
        "irq_not_permitted",
        "interrupts cannot be moved from here",
        read=read,
        allowed="root on the host, with a writable /proc/irq",
        cure="run as root (become: true), outside of containers and of units with ProtectKernelTunables",
    )


def _put(tree, row):
    """Writes one mask, or where the kernel has no vector left there, the widest that it takes."""
    place = tree.place("proc/irq/%d/smp_affinity_list" % row["irq"])
    number = errno.ENOENT if place is None else _write(place, row["wanted"], tree.live)
    if number == errno.ENOSPC:
        row.update(result="vector_space", why="no interrupt vector is left on CPU %s" % row["wanted"])
        for cpus in dict.fromkeys(cpus for cpus in row["spare"] if cpus != row["wanted"]):
            if cpus == row["before"] or _write(place, cpus, tree.live) is None:
                row["after"] = cpus
                break
        return
    if number in _MANAGED:
        row.update(result="managed", why="the kernel keeps its CPUs itself (%s)" % errno.errorcode[number])
    elif number in _VANISHED:
        row.update(result="vanished", why="it went away before it was written")
    elif number in (errno.EACCES, errno.EROFS):
        raise _not_permitted("%s: %s" % (place, os.strerror(number)))
    elif number is not None:
        row.update(result="refused", why="the kernel refused %s: %s" % (row["wanted"], os.strerror(number)))
    else:
        row["after"] = _read(place)
        if row["after"] == row["wanted"]:
            row["result"] = "written"
        elif row["after"] is None:
            row.update(result="vanished", why="it went away after it was written")
        else:
            row.update(result="not_kept", why="it was written, and is %s all the same" % row["after"])


def _write(place, cpus, live):
    """None, or the error number. Without O_TRUNC: on /proc that alone would look like a write to those who watch the file."""
    try:
        handle = os.open(place, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            text = (cpus + "\n").encode()
            os.write(handle, text)
            if not live:
                os.ftruncate(handle, len(text))
        finally:
            os.close(handle)
    except OSError as error:
        return error.errno
    return None


def _read(place):
    """The mask as the kernel keeps it now; None where there is none."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cpulist.compress(os.read(handle, 65536).decode("ascii", "replace"))
        finally:
            os.close(handle)
    except (OSError, HostprepError):
        return None


def release(root, rules):
    """Lets the kernel choose again: every unmanaged vector of the planned NICs gets the default mask. Returns (how many, the mask).

    The masks before the first run are kept nowhere: they belonged to vectors that are no more once a driver makes them anew.
    """
    tree = Tree(root)
    default = cpulist.from_mask(tree.read(DEFAULT) or "0")
    written = 0
    for vectors in Look(tree, rules).vectors.values() if default else ():
        for vector in vectors:
            place = tree.place("proc/irq/%d/smp_affinity_list" % vector["irq"])
            if vector["managed"] or vector["affinity"] in (None, default) or place is None:
                continue
            written += _write(place, default, tree.live) is None
    return written, default


# -- one at a time -----------------------------------------------------------------------------------------------------


def lock_place(root, what="irq"):
    """What runs lock: a file in /run on the running machine, a folder of a copy, where nothing is to be added.

    what: "irq" for as long as masks are written, "keeper" for as long as a keeper lives.
    """
    if os.path.realpath(root) == "/":
        return os.path.join(LOCK, what + ".lock")
    return os.path.join(root, {"irq": "proc/irq", "keeper": "sys"}[what])


@contextlib.contextmanager
def alone(place, seconds=30.0):
    """Holds the lock at `place` while the block runs. Raises HostprepError: irq_busy, irq_not_permitted."""
    handle = _lock(place, seconds)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(place, seconds):
    try:
        if os.path.isdir(place):
            handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        else:
            os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
            handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None  # a root without interrupts
    except OSError as error:
        raise _not_permitted("%s: %s" % (place, reason(error))) from None
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or time.monotonic() >= end:
                os.close(handle)
                raise HostprepError(
                    "irq_busy",
                    "another run is moving interrupts on this host",
                    read="%s is locked" % place,
                    allowed="one run at a time",
                    cure="wait until it ends",
                ) from None
        time.sleep(0.05)
