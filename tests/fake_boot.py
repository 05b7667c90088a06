# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of files that boots: its boot loader's programs answer in process, and ``boot`` makes /proc/cmdline from what is on its disk.

Written from what GRUB, systemd-boot and kexec do, not from what the collection's code thinks of it: GRUB's menu is read here by its own
few lines, and one-shot entries are cleared as each loader does.
"""

from __future__ import annotations

import re
from pathlib import Path

from fake_systemctl import Systemctl

RELEASE = "6.12.1-amd64"
NEWER = "6.12.9-amd64"
GUID = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
BLOCK = b"# GRUB Environment Block\n" + b"#" * (1024 - 25)
OS_RELEASE = {
    "debian": "ID=debian\n",
    "sles": 'ID="sles"\nID_LIKE="suse"\n',
    "el": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "systemd-boot": "ID=debian\n",
}
CONFIG = "".join(
    "%s=y\n" % name
    for name in ("CONFIG_CPU_ISOLATION", "CONFIG_NO_HZ_FULL", "CONFIG_RCU_NOCB_CPU", "CONFIG_KEXEC_FILE")
)


class PowerCut(BaseException):
    """The machine is off in the middle of a write. No `except Exception` stops it."""


class Machine:
    """``backend`` of model/bootloader.py. ``abstraction``: what grub-probe says of the folder of grubenv."""

    def __init__(self, top, backend="debian", abstraction="", kernels=(RELEASE,)):
        self.top = Path(top)
        self.backend = backend
        self.abstraction = abstraction
        self.systemctl = Systemctl(self.top)
        self.calls = []
        self.fail = {}
        self.boots = 0
        self.loaded = None
        self.default = 0  # GRUB_DEFAULT: an index counts the entries as the menu has them in that boot
        self.log = None
        self.grub = {"debian": "boot/grub", "sles": "boot/grub2", "el": "boot/grub2"}.get(backend)
        self.put("etc/os-release", OS_RELEASE[backend])
        self.put("sys/devices/system/cpu/present", "0-3\n")
        self.put("sys/devices/system/cpu/online", "0-3\n")
        self.put("proc/sys/kernel/osrelease", RELEASE + "\n")
        self.put("proc/version", "Linux version %s (a@b) #1 SMP PREEMPT_DYNAMIC x\n" % RELEASE)
        self.put("sys/kernel/kexec_loaded", "0\n")
        self.put("usr/sbin/kexec", "")
        for release in kernels:
            self.install(release)
        (self.top / "var/lib").mkdir(parents=True)
        if backend in ("debian", "sles"):
            self.put("etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="console=ttyS0"\n')
            self.put(self.grub + "/grub.cfg", self.menu())
        if self.grub:
            self.put(self.grub + "/grubenv", BLOCK)
        if backend == "el":
            self.put("boot/grub2/grub.cfg", "blscfg\nnext_entry\n")
            self.put("etc/default/grub", 'GRUB_CMDLINE_LINUX="ro"\n')
        if backend == "systemd-boot":
            self.put("sys/firmware/efi/efivars/LoaderInfo-" + GUID, self.variable("systemd-boot 257"))
            self.put("etc/kernel/cmdline", "root=UUID=1 ro quiet\n")
        self.boot()

    # -- files

    def put(self, path, content):
        place = self.top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    def get(self, path):
        place = self.top / path
        return place.read_text(errors="surrogateescape") if place.exists() else None

    def files(self):
        """All that an undoing has to give back: the bytes of each file, None for a folder."""
        skip = ("proc", "sys", "run")
        found = {str(path.relative_to(self.top)): path for path in self.top.rglob("*")}
        return {
            name: path.read_bytes() if path.is_file() else None
            for name, path in found.items()
            if name.partition("/")[0] not in skip
        }

    @staticmethod
    def variable(text):
        return b"\x06\0\0\0" + text.encode("utf-16-le") + b"\0\0"

    def install(self, release):
        """A kernel package."""
        self.put("boot/vmlinuz-" + release, "")
        self.put("boot/initrd.img-" + release, "")
        self.put("boot/config-" + release, CONFIG)
        self.put("lib/modules/%s/modules.dep" % release, "")
        if self.backend == "el":
            self.put(
                "boot/loader/entries/m-%s.conf" % release,
                "title Rocky %s\nversion %s\nlinux /vmlinuz-%s\ninitrd /i.img\noptions root=UUID=1 ro $tuned_params\n"
                % ((release,) * 3),
            )
        elif self.backend == "systemd-boot":
            options = (self.get("etc/kernel/cmdline") or "root=UUID=1 ro quiet").strip()
            self.put(
                "boot/efi/loader/entries/m-%s.conf" % release,
                "title Debian\nversion %s\nlinux /m/%s/linux\noptions %s systemd.machine_id=m\n"
                % (release, release, options),
            )
            self.put("boot/efi/loader/loader.conf", "timeout 3\n")
        elif self.get("etc/default/grub") is not None:
            self.put(self.grub + "/grub.cfg", self.menu())

    def defaults(self):
        """What a shell makes of GRUB's defaults, for the few forms that the tests use."""
        values = {}
        paths = [self.top / "etc/default/grub", *sorted((self.top / "etc/default/grub.d").glob("*.cfg"))]
        for path in paths:
            for name, text in re.findall(r'^(GRUB_\w+)="(.*)"$', path.read_text(), re.M):
                text = re.sub(
                    r"\$\{(\w+):\+\$\1 \}", lambda m: values[m.group(1)] + " " if values.get(m.group(1)) else "", text
                )
                values[name] = re.sub(r"\$(\w+)", lambda m: values.get(m.group(1), ""), text)
        return values

    def menu(self):
        """grub.cfg as grub-mkconfig prints it: kernels, the newest first, each in an entry of its own and a recovery entry."""
        values = self.defaults()
        both = "%s %s" % (values.get("GRUB_CMDLINE_LINUX", ""), values.get("GRUB_CMDLINE_LINUX_DEFAULT", ""))
        text = 'if [ "${next_entry}" ] ; then\n  set default="${next_entry}"\nfi\n'
        releases = sorted(
            (path.name[len("vmlinuz-") :] for path in (self.top / "boot").glob("vmlinuz-*")), reverse=True
        )
        for release in releases:
            for title, args in (("", both), (" (recovery)", "single " + values.get("GRUB_CMDLINE_LINUX", ""))):
                text += (
                    "menuentry 'Linux %s%s' {\n\tlinux\t/boot/vmlinuz-%s root=UUID=1 ro %s\n\tinitrd\t/boot/i\n}\n"
                    % (
                        release,
                        title,
                        release,
                        args.strip(),
                    )
                )
        return text + "source ${config_directory}/custom.cfg\n"

    # -- programs

    def run(self, argv, timeout=None):
        call = " ".join(argv)
        self.calls.append(call)
        for start, output in self.fail.items():
            if call.startswith(start):
                return 1, output
        name = argv[0]
        if name == "systemctl":
            return self.systemctl.run(argv, timeout)
        if name.endswith("-probe"):
            return 0, (self.abstraction if "abstraction" in argv[1] else "ext2") + "\n"
        if name.endswith("-mkconfig"):
            Path(argv[argv.index("-o") + 1]).write_text(self.menu())
            return 0, "done\n"
        if name == "bootctl":
            path = self.top / ("sys/firmware/efi/efivars/LoaderEntryOneShot-" + GUID)
            if argv[2]:
                path.write_bytes(self.variable(argv[2]))
            elif path.exists():
                path.unlink()
            return 0, ""
        if name == "kexec":
            loading = "--load" in argv
            self.loaded = (
                next((word.partition("=")[2] for word in argv if word.startswith("--command-line=")), None)
                if loading
                else None
            )
            self.put("sys/kernel/kexec_loaded", "%d\n" % loading)
            return 0, ""
        if name == "grubby":
            return self.grubby(argv)
        if name in ("journalctl", "dmesg"):
            return 0, "Linux version 6\nCommand line: x\n" if self.log is None else self.log
        if name == "blkid":
            return 2, ""
        return 127, "%s: not found" % name

    def grubby(self, argv):
        gone = next((word.partition("=")[2].split() for word in argv if word.startswith("--remove-args=")), [])
        new = next((word.partition("=")[2].split() for word in argv if word.startswith("--args=")), [])
        for path in (self.top / "boot/loader/entries").glob("*.conf"):
            lines = path.read_text().splitlines()
            for index, line in enumerate(lines):
                if line.startswith("options "):
                    lines[index] = " ".join([word for word in line.split() if word not in gone] + new)
            path.write_text("\n".join(lines) + "\n")
        return 0, ""

    # -- booting

    def boot(self, firmware=True):
        """Boots what the disk says, or what kexec loaded; returns the tokens of /proc/cmdline."""
        line = None
        if not firmware and self.loaded is not None:
            line = self.loaded
        elif self.backend in ("debian", "sles"):
            line = self.by_grub()
        else:
            line = self.by_entries()
        self.loaded = None
        self.boots += 1
        for unit in self.systemctl.units.values():
            unit["active"] = False
        self.systemctl.run(["systemctl", "daemon-reload"])
        self.put("sys/kernel/kexec_loaded", "0\n")
        self.put("proc/cmdline", line + "\n")
        self.put("proc/sys/kernel/random/boot_id", "boot-%d\n" % self.boots)
        isolated = re.search(r"isolcpus=(?:domain,)?([0-9,-]+)", line)
        irq = re.search(r"irqaffinity=(\S+)", line)
        self.put("sys/devices/system/cpu/isolated", (isolated.group(1) if isolated else "") + "\n")
        self.put("proc/irq/default_smp_affinity", {None: "f", "0-1": "3", "0": "1"}[irq and irq.group(1)] + "\n")
        return line.split()

    def next_entry(self):
        """The one-shot entry, cleared as GRUB does where it can write."""
        block = (self.top / self.grub / "grubenv").read_bytes()
        assert len(block) == 1024
        found = re.search(rb"^next_entry=(.*)\n", block, re.M)
        if found and not self.abstraction:
            left = block.replace(found.group(0), b"")
            self.put(self.grub + "/grubenv", left + b"#" * (1024 - len(left)))
        return found.group(1).decode() if found and found.group(1) else None

    def by_grub(self):
        chosen = self.next_entry()
        menu = self.get(self.grub + "/grub.cfg") + (self.get(self.grub + "/custom.cfg") or "")
        menu = re.sub(
            r'^if \[ "\$\{default\}" = "([^"]*)" \]; then\n(.*?)^fi\n',
            lambda found: found.group(2) if found.group(1) == chosen else "",
            menu,
            flags=re.M | re.S,
        )
        entries = re.findall(r"^menuentry '[^']*'(?: --id (\S+))? \{\n(.*?)^\}", menu, re.M | re.S)
        default = entries[self.default if self.default < len(entries) else 0][1]
        body = next((body for name, body in entries if name and name == chosen), default)
        kernel, args = re.search(r"linux\t(\S+) (.*)", body).groups()
        self.put("proc/sys/kernel/osrelease", kernel.rpartition("vmlinuz-")[2] + "\n")
        return "BOOT_IMAGE=%s %s" % (kernel, args)

    def by_entries(self):
        folder = self.top / ("boot/loader/entries" if self.backend == "el" else "boot/efi/loader/entries")
        chosen = self.next_entry() if self.backend == "el" else None
        if self.backend == "systemd-boot":
            path = self.top / ("sys/firmware/efi/efivars/LoaderEntryOneShot-" + GUID)
            if path.exists():
                chosen = path.read_bytes()[4:].decode("utf-16-le").strip("\0").removesuffix(".conf")
                path.unlink()
        plain = sorted(path for path in folder.glob("*.conf") if "trial" not in path.name)
        path = folder / ("%s.conf" % chosen)
        text = (path if chosen and path.exists() else plain[-1]).read_text()
        kernel = re.search(r"^version (\S+)", text, re.M).group(1)
        self.put("proc/sys/kernel/osrelease", kernel + "\n")
        args = " ".join(re.findall(r"^options (.*)", text, re.M)).replace(" $tuned_params", "")
        return ("BOOT_IMAGE=/vmlinuz-%s " % kernel if self.backend == "el" else "initrd=\\m\\initrd ") + args
