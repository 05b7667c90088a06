# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is configured to, read from files as their owners write them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.configured import observe
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.host.tree import Tree


def seen(tmp_path, files, release=None):
    (tmp_path / "sys").mkdir()
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return observe(Tree(str(tmp_path)), release)


@pytest.mark.parametrize(
    ("files", "tokens"),
    [
        ({}, None),
        (
            {
                "etc/default/grub": 'GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT="quiet isolcpus=2-3"\nGRUB_CMDLINE_LINUX=""\n'
            },
            ["quiet", "isolcpus=2-3"],
        ),
        ({"etc/default/grub": "GRUB_CMDLINE_LINUX='a b'\nGRUB_CMDLINE_LINUX_DEFAULT=c # note\n"}, ["a", "b", "c"]),
        (
            {
                "etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n',
                "etc/default/grub.d/90-own.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT nosmt"\n',
                "etc/default/grub.d/ignored.txt": 'GRUB_CMDLINE_LINUX_DEFAULT="lost"\n',
            },
            ["quiet", "nosmt"],
        ),
        (
            {
                "etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n',
                "etc/default/grub.d/50-cloudimg-settings.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0"\n',
            },
            ["console=ttyS0"],
        ),
        (
            {
                "etc/default/grub": 'GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT:+x} $tuned_params"\n'
            },
            ["a"],
        ),
        (
            {
                "etc/default/grub": 'GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX+=" isolcpus=2"\n',
                "etc/default/grub.d/60.cfg": 'GRUB_CMDLINE_LINUX+=" nosmt"\n',
            },
            ["a", "isolcpus=2", "nosmt"],
        ),
        ({"etc/default/grub": 'GRUB_CMDLINE_LINUX="unclosed\n'}, []),
        ({"etc/default/grub": b"\xff\xfe\x00garbage="}, []),
        ({"etc/kernel/cmdline": "root=UUID=1 isolcpus=4\n"}, ["root=UUID=1", "isolcpus=4"]),
        (
            {
                "etc/default/grub": 'GRUB_CMDLINE_LINUX="old"\n',
                "boot/grub2/grubenv": "# GRUB Environment Block\ntuned_params=nohz=on isolcpus=2\nsaved_entry=a\n####",
                "boot/loader/entries/a.conf": "title EL\nversion 5.14.0-1.el9\nlinux /vmlinuz-5.14.0-1.el9\noptions root=/dev/sda1 $tuned_params ro\n",
            },
            ["root=/dev/sda1", "nohz=on", "isolcpus=2", "ro"],
        ),
        (  # leftovers of a write that a power cut broke off, and of an editor: no boot loader reads them
            {
                "boot/loader/entries/.a.conf.new-hostprep-boot~": "version 5.14.0-1.el9\noptions isolcpus=2\n",
                "boot/loader/entries/.a.conf": "version 5.14.0-1.el9\noptions isolcpus=3\n",
                "boot/loader/entries/Z.conf~": "version 5.14.0-1.el9\noptions isolcpus=4\n",
                "boot/loader/entries/a.conf": "version 5.14.0-1.el9\noptions ro\n",
            },
            ["ro"],
        ),
    ],
)
def test_boot_arguments(tmp_path, files, tokens):
    assert seen(tmp_path, files, "5.14.0-1.el9")["boot_args"]["tokens"] == tokens


@pytest.mark.parametrize(
    ("files", "source", "value"),
    [
        ({}, None, None),
        ({"etc/rancher/rke2/config.yaml": "cni: cilium\n"}, "/etc/rancher/rke2/config.yaml", None),
        (
            {"etc/rancher/rke2/config.yaml": "kubelet-arg:\n  - reserved-cpus=0-1,32-33\n  - v=2\n"},
            "/etc/rancher/rke2/config.yaml",
            "0-1,32-33",
        ),
        (
            {"etc/rancher/rke2/config.yaml": 'kubelet-arg: ["v=2", "reserved-cpus=0,4"]\n'},
            "/etc/rancher/rke2/config.yaml",
            "0,4",
        ),
        ({"etc/rancher/rke2/config.yaml": "# reserved-cpus=0\n"}, "/etc/rancher/rke2/config.yaml", None),
        (
            {
                "etc/rancher/rke2/config.yaml": "kubelet-arg: [reserved-cpus=0]\n",
                "etc/rancher/rke2/config.yaml.d/90.yaml": "kubelet-arg+: [reserved-cpus=0-1]\n",
            },
            "/etc/rancher/rke2/config.yaml.d/90.yaml",
            "0-1",
        ),
        (
            {
                "var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50.conf": 'kind: KubeletConfiguration\nreservedSystemCPUs: "0-1"\n'
            },
            "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50.conf",
            "0-1",
        ),
        (  # the data dir is RKE2's own, and flags win over files
            {
                "etc/rancher/rke2/config.yaml": "data-dir: /srv/rke2\n",
                "etc/rancher/rke2/config.yaml.d/10.yaml": "kubelet-arg: [reserved-cpus=0-3]\n",
                "srv/rke2/agent/etc/kubelet.conf.d/90-hostprep.conf": "reservedSystemCPUs: 0-1\n",
                "var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50.conf": "reservedSystemCPUs: 0\n",
            },
            "/etc/rancher/rke2/config.yaml.d/10.yaml",
            "0-3",
        ),
        (  # a list without + takes the place of those before it
            {
                "etc/rancher/rke2/config.yaml": "kubelet-arg: [reserved-cpus=0]\n",
                "etc/rancher/rke2/config.yaml.d/90.yaml": "kubelet-arg: [v=2]\n",
            },
            "/etc/rancher/rke2/config.yaml",
            None,
        ),
        ({"etc/rancher/rke2/config.yaml": "a: 1\nbroken\n"}, None, None),
    ],
)
def test_kubelet_reservation(tmp_path, files, source, value):
    assert seen(tmp_path, files)["kubelet_reserved"] == {"source": source, "value": value}


@pytest.mark.parametrize(
    ("text", "state", "problem"),
    [
        (None, None, None),
        ('{"policyName":"none"}', {"policyName": "none"}, None),
        ("", None, "it is not JSON"),
        ("[" * 5000, None, "it is not JSON"),
        ("[]", None, "it holds no JSON object"),
    ],
)
def test_kubelet_state_file(tmp_path, text, state, problem):
    found = seen(tmp_path, {} if text is None else {"var/lib/kubelet/cpu_manager_state": text})["cpu_manager_state"]
    assert (found["state"], found["problem"]) == (state, problem)


def test_the_state_file_is_where_the_kubelet_is_told_to_keep_it(tmp_path):
    found = seen(
        tmp_path,
        {
            "etc/rancher/rke2/config.yaml": "kubelet-arg:\n- root-dir=/srv/kubelet\n",
            "srv/kubelet/cpu_manager_state": '{"policyName":"static"}',
            "var/lib/kubelet/cpu_manager_state": '{"policyName":"none"}',
        },
    )["cpu_manager_state"]
    assert found == {"path": "/srv/kubelet/cpu_manager_state", "state": {"policyName": "static"}, "problem": None}


def test_what_only_root_may_read_is_a_problem_and_not_absent():
    closed = ("var/lib/kubelet", "var/lib/lo0.rke2_hostprep", "boot/loader/entries")
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to other users
        top = Path(place)
        top.chmod(0o755)
        for folder in ("sys", "etc/default", *closed):
            (top / folder).mkdir(parents=True)
        (top / "var/lib/kubelet/cpu_manager_state").write_text('{"policyName":"none"}')
        (top / "etc/default/grub").write_text("GRUB_CMDLINE_LINUX=quiet\n")
        for folder in closed:
            (top / folder).chmod(0)
        was = os.geteuid()
        if was == 0:
            os.seteuid(65534)
        try:
            found = observe(Tree(place), "6.12")
        finally:
            os.seteuid(was)
            for folder in closed:
                (top / folder).chmod(0o755)
    assert "Permission denied" in found["cpu_manager_state"]["problem"]
    assert "Permission denied" in found["kept_plan"]["problem"]
    assert found["boot_args"] == {"source": None, "tokens": None}


def test_an_efi_partition_that_only_root_may_read_does_not_hide_grubs_defaults():
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to other users
        top = Path(place)
        top.chmod(0o755)
        for folder in ("sys", "etc/default", "boot/efi/loader/entries"):
            (top / folder).mkdir(parents=True)
        (top / "etc/default/grub").write_text("GRUB_CMDLINE_LINUX=quiet\n")
        (top / "boot/efi").chmod(0)
        was = os.geteuid()
        if was == 0:
            os.seteuid(65534)
        try:
            found = observe(Tree(place), "6.12")["boot_args"]
        finally:
            os.seteuid(was)
            (top / "boot/efi").chmod(0o755)
    assert found == {"source": "etc/default/grub", "tokens": ["quiet"]}
