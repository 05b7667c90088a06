# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of the units that belong to a trial boot and to the comparison at every boot. Plain systemd, but for the comparison's program.

The guard runs in the trial alone (ConditionKernelCommandLine). Its timer starts first of all and needs nothing: not sysinit.target, and
it stays where the boot ends in emergency or rescue mode (IgnoreOnIsolate), to which systemd changes by isolating them.
"""

from __future__ import annotations

from .cmdline import TRIAL_MARK

FOLDER = "/etc/systemd/system/"
GUARD = "rke2-hostprep-trial"
TIMER, SERVICE, COMPARISON = GUARD + ".timer", GUARD + ".service", "rke2-hostprep-boot.service"
PROGRAM = "/usr/local/lib/lo0.rke2_hostprep/boot"
SCRIPT = "rke2_hostprep_boot.py"
RECORD = "/var/lib/lo0.rke2_hostprep/boot.json"
OUTCOME = "/var/lib/lo0.rke2_hostprep/boot-outcome.json"
_HEAD = "# Written by the module kernel_cmdline of lo0.rke2_hostprep, which also removes it.\n"

_TIMER = """[Unit]
Description=Time limit of a trial of kernel arguments
ConditionKernelCommandLine={mark}
DefaultDependencies=no
IgnoreOnIsolate=yes

[Timer]
OnBootSec={minutes}min
AccuracySec=1s
Unit={service}

[Install]
WantedBy=sysinit.target emergency.target rescue.target
"""

# An orderly reboot first. Where a job hangs or no bus answers, systemd is told to reboot at once, and then the kernel is.
_SERVICE = r"""[Unit]
Description=Reboot into the old boot entry: the trial of kernel arguments was not committed in time
ConditionKernelCommandLine={mark}
DefaultDependencies=no
IgnoreOnIsolate=yes

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'systemctl --no-block reboot; sleep 90; systemctl --force reboot; \
  sleep 60; systemctl --force --force reboot; sleep 30; echo b >/proc/sysrq-trigger'
"""

_COMPARISON = """[Unit]
Description=Compare this boot with the kernel arguments that were asked for
After=local-fs.target
ConditionPathExists={record}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} -IB {program}/{script}
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=/var/lib/lo0.rke2_hostprep
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateNetwork=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_UNIX
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def guard(minutes):
    """{path: text} of the trial's time limit."""
    return {
        FOLDER + TIMER: _HEAD + _TIMER.format(mark=TRIAL_MARK, minutes=minutes, service=SERVICE),
        FOLDER + SERVICE: _HEAD + _SERVICE.format(mark=TRIAL_MARK),
    }


def comparison(python, sources):
    """{path: text} of the comparison at every boot: its unit, and its program. sources: {path below the program's folder: text}."""
    unit = _COMPARISON.format(record=RECORD, python=python, program=PROGRAM, script=SCRIPT)
    files = {FOLDER + COMPARISON: _HEAD + unit}
    files.update(("%s/%s" % (PROGRAM, path), text) for path, text in sources.items())
    return files
