# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of /proc that list CPUs without interrupts: cpuinfo, softirqs, softnet_stat, and the cgroup of the process that captured."""

from __future__ import annotations

from . import lists

SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
X86_FLAGS = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx lm constant_tsc"


def emit(tree, machine):
    tree.text("proc/cpuinfo", _CPUINFO[machine.arch](machine))
    possible = machine.cpus.possible
    rows = ["".join(["                    ", *(f"CPU{cpu:<8d}" for cpu in possible)])]
    online = set(machine.cpus.online)
    for place, name in enumerate(SOFTIRQS):
        counts = (1000 * (place + 1) + cpu if cpu in online else 0 for cpu in possible)
        rows.append(f"{name:>12}:" + "".join(f" {count:>10}" for count in counts))
    tree.text("proc/softirqs", "\n".join(rows) + "\n")
    tree.text("proc/net/softnet_stat", "".join(_softnet(machine.kernel, cpu) for cpu in machine.cpus.online))
    _cgroup(tree, machine)


def _softnet(kernel, cpu):
    """One line per online CPU; the columns grew from 11 to 13 (with the CPU's id) to 15."""
    words = [4096 + cpu, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    if kernel.at_least(5, 10):
        words += [0, cpu]
    if kernel.at_least(6, 4):
        words += [0, 0]
    return " ".join(f"{word:08x}" for word in words) + "\n"


def _x86(machine):
    cpus = machine.cpus
    families = {"GenuineIntel": (6, 143), "AuthenticAMD": (25, 17), "HygonGenuine": (24, 1)}
    family, model = families.get(cpus.vendor, (6, 143))
    flags = X86_FLAGS + (" hypervisor" if machine.spec.hypervisor != "none" else "")
    online = set(cpus.online)
    cores = {}
    for cpu in cpus.all:
        if cpu.id in online:
            cores.setdefault(cpu.package, set()).add(cpu.core)
    width = {package: (len(ids), len(cores[package])) for package, ids in cpus.groups("package").items()}
    out = []
    for cpu in cpus.all:
        if cpu.id in online:
            siblings, in_package = width[cpu.package]
            out.append(
                f"processor\t: {cpu.id}\nvendor_id\t: {cpus.vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {cpus.model}\n"
                f"stepping\t: 8\ncpu MHz\t\t: 2800.000\nphysical id\t: {cpus.package_id(cpu.package)}\nsiblings\t: {siblings}\n"
                f"core id\t\t: {cpu.core_id}\ncpu cores\t: {in_package}\napicid\t\t: {cpu.core * 2 + cpu.thread}\nfpu\t\t: yes\nflags\t\t: {flags}\n"
                "bogomips\t: 5600.00\nclflush size\t: 64\naddress sizes\t: 52 bits physical, 57 bits virtual\npower management:\n\n"
            )
    return "".join(out)


def _arm(machine):
    parts = {
        "Neoverse-N1": "0xd0c",
        "Neoverse-V1": "0xd40",
        "Neoverse-N2": "0xd49",
        "Neoverse-V2": "0xd4f",
        "TSV110": "0xd01",
        "Cortex-X925": "0xd85",
    }
    part = parts.get(machine.cpus.model, machine.cpus.model)
    return "".join(
        f"processor\t: {cpu}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes sha1 sha2 crc32 atomics cpuid\n"
        f"CPU implementer\t: {machine.cpus.vendor}\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: 0\n\n"
        for cpu in machine.cpus.online
    )


def _power(machine):
    platform = "pSeries" if machine.spec.hypervisor == "powervm" else "PowerNV"
    body = "".join(
        f"processor\t: {cpu}\ncpu\t\t: {machine.cpus.model}\nclock\t\t: 3800.000000MHz\nrevision\t: 2.2 (pvr 004e 1202)\n\n"
        for cpu in machine.cpus.online
    )
    return f"{body}timebase\t: 512000000\nplatform\t: {platform}\nmodel\t\t: IBM,9009-42A\nmachine\t\t: CHRP IBM,9009-42A\n"


def _s390(machine):
    online = machine.cpus.online
    head = (
        f"vendor_id       : IBM/S390\n# processors    : {len(online)}\nbogomips per cpu: 24038.00\nmax thread id   : 0\n"
        "features\t: esan3 zarch stfle msa ldisp eimm dfp edat etf3eh highgprs te vx sie\n"
    )
    return head + "".join(
        f"processor {cpu}: version = FF,  identification = {cpu:02X}0123,  machine = {machine.cpus.model}\n"
        for cpu in online
    )


def _riscv(machine):
    isa = machine.cpus.model
    return "".join(
        f"processor\t: {cpu}\nhart\t\t: {cpu}\nisa\t\t: {isa}\nmmu\t\t: sv48\nuarch\t\t: thead,c920\n\n"
        for cpu in machine.cpus.online
    )


_CPUINFO = {"x86_64": _x86, "aarch64": _arm, "ppc64le": _power, "s390x": _s390, "riscv64": _riscv}


def _cgroup(tree, machine):
    """A capture taken inside a cgroup: the process's own view of its CPUs, beside a sysfs that shows the whole machine."""
    want = machine.cgroup
    if want is None:
        return
    where = "/batch.slice/job_1"
    allowed, nodes = lists.compress(want.cpus), lists.compress(want.mems)
    if want.version == 1:
        tree.line("proc/self/cpuset", where)
        tree.text("proc/self/cgroup", f"3:cpuset:{where}\n0::{where}\n")
        tree.text("proc/mounts", "cgroup /sys/fs/cgroup/cpuset cgroup rw,nosuid,nodev,noexec,relatime,cpuset 0 0\n")
        tree.line(f"sys/fs/cgroup/cpuset{where}/cpuset.cpus", allowed)
        tree.line(f"sys/fs/cgroup/cpuset{where}/cpuset.mems", nodes)
    else:
        tree.text("proc/self/cgroup", f"0::{where}\n")
        tree.text("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n")
        tree.line(f"sys/fs/cgroup{where}/cgroup.controllers", "cpuset cpu memory")
        tree.line(f"sys/fs/cgroup{where}/cpuset.cpus.effective", allowed)
        tree.line(f"sys/fs/cgroup{where}/cpuset.mems.effective", nodes)
    tree.text(
        "proc/self/status",
        f"Name:\ttar\nCpus_allowed:\t{lists.mask(want.cpus, machine.cpus.bits)}\nCpus_allowed_list:\t{allowed}\n"
        f"Mems_allowed_list:\t{nodes}\n",
    )
