# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper: a program on the host that puts the interrupts of planned NICs in place, and puts them back when something moves them.

Drivers give interrupts out anew when channels change, when they are bound, when a CPU returns: whatever was pinned is then where the
driver likes it. So the keeper pins once, then sleeps until the kernel tells of such a change (events.py), waits a moment for the
burst to end, looks at everything anew and writes only what is wrong. What sends no event is found by the backstop, once a minute.

It reads the plan that the host keeps, and again when that file changes. One runs at a time, and while it writes it holds the lock
that the module nic_irq_affinity holds too. No exception ends it: what goes wrong becomes a line, and it goes on with the next event.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import glob
import os
import selectors
import socket
import sys
import time

from ..model import affinity as rules_of, boot_record, irq_metrics
from ..model.errors import HostprepError, unexpected
from . import affinity, boot_compare, events, report_files, steering
from .kept import PLAN_PATH
from .tree import Tree

PERIOD = 60.0  # seconds of the backstop, at least
SETTLE = 0.1  # a burst of events has ended when none came for so long …
LATEST = 0.5  # … or when its first is so old
AGAIN = 2.0  # after a burst: drivers and RDMA go on making vectors for a while
MOST_PAUSE = 10.0  # when another program keeps writing, the keeper answers no faster than so
ERROR, WARNING, NOTICE, INFO = 3, 4, 5, 6  # syslog(3)
_UNTOLD = "found by the backstop, no event told of it"
_MOVERS = (
    "irqbalance",
    "tuned",
)  # programs that move interrupts; those whose unit has a /proc of its own send no event


class Journal:
    """Lines for people, with the priority that systemd takes off again."""

    def __init__(self, stream=None, priorities=None):
        self._stream = stream or sys.stderr
        self._priorities = bool(os.environ.get("JOURNAL_STREAM")) if priorities is None else priorities

    def say(self, priority, line):
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(("<%d>" % priority if self._priorities else "") + line + "\n")
            self._stream.flush()


def notify(state):
    """Tells systemd, where it asked to be told (sd_notify(3))."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place[:1] in ("/", "@"):
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link,
        ):
            link.sendto(state.encode(), "\0" + place[1:] if place[0] == "@" else place)


class Keeper:
    """Looks, writes and remembers what is needed to tell what changed; ``look`` is one pass, ``run`` the loop around it.

    root      "/" or a folder
    metrics   path of the Prometheus textfile, or None
    steering  whether transmit and receive steering of planned NICs (XPS, RPS) are kept too
    """

    def __init__(self, root="/", metrics=None, journal=None, clock=time.monotonic, steering=False):
        self.root = root
        self.steering = steering
        self.metrics = metrics
        self.journal = journal or Journal()
        self.clock = clock
        self.rules = None
        self.paths = []  # (interrupt number, path) of the masks to be watched
        self.repairs = {}
        self.sources = {}
        self.repaired = False  # whether the last look wrote anything
        self.refusal = None
        self._plan_seen = None
        self._learned = {}
        self._counts = {}
        self._settled = set()
        self._share = (None, None)
        self._seconds = None
        self._said = {}
        self._rows = []
        self._absent = set()

    # -- one pass ------------------------------------------------------------------------------------------------------

    def look(self, because, since=None, count=False):
        """Looks at everything and puts back what is elsewhere. Returns the rows, or None where it was refused.

        because: what happened, for the journal. since: when (of ``clock``). count: also count where interrupts fired.
        """
        start = self.clock() if since is None else since
        try:
            rows = self._look(because, start, count)
            self._resolved("refusal")
        except HostprepError as error:
            rows = None
            self.repaired = False
            self.refusal = error
            self._complain({"refusal": str(error)}, ERROR)
        except Exception as error:  # it must go on, and the journal gets a sentence
            rows = None
            self.repaired = False
            self.refusal = unexpected(error)
            self._complain({"refusal": str(self.refusal)}, ERROR)
        self._write_metrics()
        return rows

    def _look(self, because, start, count):
        self._load()
        counted = (set(self._counts) | {row["irq"] for row in self._rows} or True) if count else frozenset()
        with affinity.alone(affinity.lock_place(self.root)):
            tree = Tree(self.root)
            seen = affinity.Look(tree, self.rules, counted)
            rules_of.check_parts(dict(self.rules, nics=[]), seen.present, ())
            strayed = self._count(seen) if count else {}
            rows = rules_of.judge(self.rules, seen.vectors, seen.online, strayed)
            affinity.put_back(tree, rows, learned=self._learned)
            if any(row["result"] == "vanished" for row in rows):
                written = {row["irq"]: row for row in rows if row["result"] == "written"}
                rows, seen = affinity.pin(self.root, self.rules, learned=self._learned)
                for row in rows:
                    earlier = written.get(row["irq"])
                    if earlier and earlier["name"] == row["name"] and row["result"] == "ok":
                        row.update(before=earlier["before"], result="written")
        taken = self.clock() - start
        if self.steering:
            self._say(steering.steer(tree, self.rules["nics"], seen.names, seen.online), "steering")
        self._rows = rows
        numbers = {row["irq"]: row["name"] for row in rows}
        self._learned = {number: name for number, name in self._learned.items() if numbers.get(number) == name}
        self.paths = [
            (row["irq"], "%s/proc/irq/%d/%s" % (self.root.rstrip("/"), row["irq"], name))
            for row in rows
            if row["result"] not in ("managed", "unknown")
            for name in ("smp_affinity_list", "smp_affinity")
        ]
        self._tell(rows, because, taken, seen, count)
        self.refusal = None
        return rows

    def set_queues(self, addresses=(), everywhere=False):
        """Brings the planned NICs to the plan's number of queues, but for those that carry the connection (unless `everywhere`)."""
        try:
            self._load()
            with affinity.alone(affinity.lock_place(self.root)):
                tree = Tree(self.root)
                seen = affinity.Look(tree, self.rules)
                rules_of.check_parts(dict(self.rules, nics=[]), seen.present, ())
                kept = None if everywhere else steering.carrying(tree, addresses)
                self._say(steering.plan_queues(self.rules["nics"], seen.names, kept), "queues")
        except (HostprepError, OSError) as error:  # the look that follows says why nothing can be done
            self.journal.say(WARNING, "queues are left as they are: %s" % error)

    def release(self):
        """Lets the kernel choose the CPUs again, when the keeper is taken away for good."""
        if self.rules is None:
            return
        try:
            with affinity.alone(affinity.lock_place(self.root)):
                number, mask = affinity.release(self.root, self.rules)
                if self.steering:
                    tree = Tree(self.root)
                    seen = affinity.Look(tree, self.rules)
                    self._say(steering.steer(tree, self.rules["nics"], seen.names, seen.online, off=True), "steering")
            self.journal.say(NOTICE, "%d vectors given back to the kernel's choice, CPUs %s" % (number, mask))
        except HostprepError as error:
            self.journal.say(WARNING, "interrupts stay where they are: %s" % error)

    def _say(self, lines, key):
        """Notices as they come; warnings once for as long as they are the same."""
        for word, line in lines:
            if word == "notice":
                self.journal.say(NOTICE, line)
        warnings = [line for word, line in lines if word == "warning"]
        if warnings:
            self._complain({key: "; ".join(warnings)}, WARNING)
        else:
            self._resolved(key)

    def _load(self):
        """Reads the plan if its file is another than the last time."""
        path = os.path.join(self.root, PLAN_PATH)
        try:
            found = os.stat(path)
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            stamp = None
        if self.rules is not None and (stamp == self._plan_seen or stamp is None):
            return  # the plan was taken away: what it said holds until the keeper is stopped
        try:
            rules = rules_of.checked(affinity.read_plan(Tree(self.root)))
        except HostprepError as error:
            if self.rules is None:
                raise
            self._complain({"plan": "the new plan is not used, the one before it holds: %s" % error}, ERROR)
            return
        self._resolved("plan")
        self._plan_seen = stamp
        self.rules = rules
        self._settled = set()
        self.journal.say(
            INFO,
            "keeping %s on CPUs %s"
            % (
                ", ".join(entry["label"] for entry in rules["nics"]) or "no NIC",
                rules_of.cpulist.compress(rules["irq"]),
            ),
        )

    def _count(self, seen):
        """Where interrupts fired since the last count; {irq: strays} of those whose mask was right all the time."""
        now = {}
        for vectors in seen.vectors.values():
            for vector in vectors:
                if vector["counts"] is not None and not vector["managed"]:
                    now[vector["irq"]] = (vector["name"], vector["counts"])
        moved = rules_of.deltas(seen.columns, self._counts, now, self.rules["irq"])
        self._counts = now
        total = sum(more for more, _outside in moved.values())
        outside = sum(strays for _more, strays in moved.values())
        if moved:
            self._share = (outside / total if total else 0.0, total)
        return {irq: strays for irq, (_more, strays) in moved.items() if strays and irq in self._settled}

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tell(self, rows, because, taken, seen, count):
        written = [row for row in rows if row["result"] == "written"]
        self.repaired = bool(written) or any(row["result"] == "not_kept" for row in rows)
        for row in written:
            self.repairs[row["nic"]] = self.repairs.get(row["nic"], 0) + 1
        if written:
            self._seconds = taken
        if written and because == _UNTOLD:
            because += "".join(", %s runs" % name for name in _running(self.root))
        for line in irq_metrics.repairs(rows, because, taken * 1000):
            self.journal.say(NOTICE, line)
        # an interrupt whose mask was right at every look since the last count has no reason to have fired elsewhere
        right = {row["irq"] for row in rows if row["result"] in ("ok", "vector_space")}
        self._settled = right if count else self._settled & right
        self._complain(irq_metrics.complaints(rows), WARNING, ("vector_space", "not_kept", "refused", "vanished"))
        gone = set(rules_of.absent(self.rules, seen.devices))
        for label in sorted(gone - self._absent):
            self.journal.say(WARNING, "%s is not there: it is kept as soon as it returns" % label)
        for label in sorted(self._absent - gone):
            self.journal.say(NOTICE, "%s is there again" % label)
        self._absent = gone

    def _complain(self, lines, priority, results=()):
        """Says what is new, once; and what is no longer so."""
        for key, line in lines.items():
            if self._said.get(key) != line:
                self.journal.say(priority, line)
                self._said[key] = line
        for key in [key for key in self._said if key[0] in results and key not in lines]:
            del self._said[key]
            self.journal.say(NOTICE, "%s: that is over (%s)" % (key[1], key[0].replace("_", " ")))

    def _resolved(self, key):
        if self._said.pop(key, None) and key == "refusal":
            self.journal.say(NOTICE, "the keeper works again")

    def samples(self):
        """What the textfile says."""
        found = irq_metrics.per_nic(self._rows)
        none = ()
        found["repairs_total"] = {(("nic", row["nic"]),): 0 for row in self._rows}
        found["repairs_total"].update({(("nic", nic),): number for nic, number in self.repairs.items()})
        found["nic_present"] = {
            (("nic", entry["label"]),): 0 if entry["label"] in self._absent else 1
            for entry in (self.rules or {"nics": ()})["nics"]
        }
        found["isolated_share"] = {none: self._share[0]}
        found["interrupts"] = {none: self._share[1]}
        found["event_to_write_seconds"] = {none: self._seconds}
        found["source_up"] = {(("source", name),): int(up) for name, up in self.sources.items()}
        found["last_look_timestamp_seconds"] = {none: time.time()}
        found["refused"] = {none: int(self.refusal is not None)}
        state = boot_compare.state(self.root.rstrip("/"))
        found["boot_state"] = {(("state", one),): int(one == state) for one in boot_record.STATES if state}
        return found

    def _write_metrics(self):
        if not self.metrics:
            return
        folder, name = os.path.split(self.metrics)
        try:
            report_files.write(folder, {name: irq_metrics.text(self.samples())})
            self._resolved("metrics")
        except HostprepError as error:
            self._complain({"metrics": "the metrics are not written: %s" % error.read}, WARNING)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, sources, stopped=lambda: False, period=PERIOD, settle=SETTLE, latest=LATEST, again=AGAIN):
        """Looks once, then after every burst of events and every `period` seconds, until stopped() is true.

        sources: objects as events.py has them; all are read, and each that fails for good is taken out with a line.
        """
        with selectors.DefaultSelector() as selector:
            for source in sources:
                selector.register(source, selectors.EVENT_READ, source)
                self.sources[source.name] = True
            self.look("at the start", count=True)
            self._watch(sources)
            notify("READY=1\nSTATUS=keeping")
            backstop = self.clock() + period
            first = last = None  # times of the first and the last event of a burst
            second = self.clock() + again  # when to look once more: what moved while the watches were being set
            because = []
            fights = 0
            while not stopped():
                now = self.clock()
                due = backstop
                if first is not None:
                    pause = min(settle * 2**fights, MOST_PAUSE)
                    due = min(due, max(min(last + settle, first + latest), first + pause if fights else 0))
                elif second is not None:
                    due = min(due, second)
                for key, _mask in selector.select(max(0.0, due - now)):
                    texts = self._read(selector, key.data)
                    if texts:
                        last = self.clock()
                        first = last if first is None else first
                        because += [text for text in texts if text not in because]
                now = self.clock()
                if stopped() or now < due:
                    continue
                if now >= backstop:
                    backstop = now + period
                    self.look("; ".join(because[:3]) or _UNTOLD, first, count=True)
                    second = None
                elif first is not None:
                    self.look("; ".join(because[:3]), first)
                    written_alone = all(text.startswith("mask") for text in because)
                    second = None if written_alone else self.clock() + again
                else:
                    self.look("found %g s after an event" % again)
                    second = None
                if first is not None:
                    fights = min(fights + 1, 10) if self.repaired else 0
                first = last = None
                because = []
                self._watch(sources)
                notify("WATCHDOG=1")
        notify("STOPPING=1")

    def _read(self, selector, source):
        try:
            return source.events()
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return ["%s: some were lost" % source.name]
            selector.unregister(source)
            self.sources[source.name] = False
            self.journal.say(
                WARNING, "%s are not heard any more: %s; the backstop remains" % (source.name, error.strerror or error)
            )
            return ["%s: the source ended" % source.name]

    def _watch(self, sources):
        for source in sources:
            if hasattr(source, "watch") and self.sources.get(source.name):
                source.watch(self.paths)
                if source.missed:
                    self._complain(
                        {
                            "watches": "%d masks cannot be watched (fs.inotify.max_user_watches); the backstop remains"
                            % source.missed
                        },
                        WARNING,
                    )


def _running(root):
    """Which of the programs that move interrupts run."""
    found = set()
    for path in glob.glob(os.path.join(root, "proc/[0-9]*/comm")):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as handle:
            found.add(handle.read().strip())
    return [name for name in _MOVERS if name in found]


def open_sources(keeper, kinds=events.SOURCES):
    """The sources that this kernel grants; each that it refuses is said once, and the backstop remains."""
    found = []
    for kind in kinds:
        try:
            found.append(kind())
        except (OSError, AttributeError) as error:  # a C library without inotify has no such function
            keeper.sources[kind.name] = False
            keeper.journal.say(
                WARNING,
                "no %s events: %s; what they would tell is found within %g s"
                % (kind.name, getattr(error, "strerror", None) or error, PERIOD),
            )
    return found


def main(arguments=None):
    """The program. Exit status: 0 done or stopped, 1 refused."""
    parser = argparse.ArgumentParser(
        prog="rke2-hostprep-irq", description="Keeps NIC interrupts on the CPUs that this host's plan gives them."
    )
    parser.add_argument("--once", action="store_true", help="pin once and end")
    parser.add_argument("--root", default="/", help="the host's root (default: /)")
    parser.add_argument("--metrics", help="Prometheus textfile to write")
    parser.add_argument(
        "--period", type=float, default=PERIOD, help="seconds between looks without an event (60 or more)"
    )
    parser.add_argument(
        "--unit", help="the systemd unit that runs this; stopped while disabled, interrupts go back to the kernel"
    )
    parser.add_argument("--steering", action="store_true", help="keep XPS by the plan's queue map and RPS off, too")
    parser.add_argument(
        "--queues", action="store_true", help="with --once: set the number of queues to the plan's, too"
    )
    parser.add_argument(
        "--management", action="append", default=[], metavar="ADDRESS", help="the NIC with it keeps its queues"
    )
    parser.add_argument("--queues-on-management", action="store_true", help="no NIC keeps its queues")
    options = parser.parse_args(arguments)
    keeper = Keeper(options.root, options.metrics, steering=options.steering)
    try:
        if options.once:
            if options.queues:
                keeper.set_queues(options.management, options.queues_on_management)
            return 0 if keeper.look("pinned once") is not None else 1
        with affinity.alone(affinity.lock_place(options.root, "keeper"), 0):
            return _keep(keeper, max(options.period, PERIOD), options.unit)
    except HostprepError as error:
        keeper.journal.say(ERROR, str(error))
    except Exception as error:
        keeper.journal.say(ERROR, str(unexpected(error)))
    return 1


def _keep(keeper, period, unit=None):
    signals = events.Signals()
    sources = [*open_sources(keeper), signals]
    try:
        keeper.run(sources, lambda: signals.stopped, period)
    finally:
        for source in sources:
            source.close()
    if unit and not _enabled(keeper.root, unit):
        keeper.release()
    else:
        keeper.journal.say(INFO, "stopped; interrupts stay where they are")
    return 0


def _enabled(root, unit):
    """Whether systemd would start the unit at the next boot. A restart and a shutdown find it so, a removal does not."""
    return bool(glob.glob(os.path.join(root, "etc/systemd/system/*.wants", glob.escape(unit))))


if __name__ == "__main__":
    raise SystemExit(main())
