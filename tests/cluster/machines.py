# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab beside this cluster (tests/lab): its network, its machines' addresses, and how a machine is reached."""

from __future__ import annotations

import os
from pathlib import Path

from .common import ClusterError, lab_state
from .node import Machine


class Lab:
    """What machines.yml and the lab's state say; needs PyYAML, as the lab's own program does."""

    def __init__(self) -> None:
        try:
            from lab import cli, spec, ssh
            from lab.errors import LabError
        except ModuleNotFoundError as missing:
            raise ClusterError(
                f"The lab's program needs the Python package {missing.name}, which is not installed."
            ) from None
        self.error = LabError
        try:
            self.machines = spec.load(Path(os.environ.get("HOSTPREP_LAB_MACHINES") or cli.MACHINES))
        except LabError as error:
            raise ClusterError(str(error)) from None
        self.state = lab_state()
        self.ssh = ssh

    @property
    def namespace(self) -> str:
        return self.state.namespace

    @property
    def gateway(self) -> str:
        """The address inside the namespace that every machine reaches."""
        return self.machines.gateway

    def address(self, name: str) -> str | None:
        """A machine's address on the lab's network; None for one without."""
        return self.machines.hosts.get(name)

    def is_nspawn(self, name: str) -> bool:
        """Whether its kernel and control groups are this machine's."""
        try:
            return self.machines.machine(name).kind == "nspawn"
        except self.error as error:
            raise ClusterError(str(error)) from None

    def reach(self, name: str) -> Machine:
        record = self.state.read(name)
        if not record or not record.running:
            raise ClusterError(f"{name} does not run: boot it first (tests/lab up {name}).")
        return Machine(name, self.ssh.command(self.state.folder, name))
