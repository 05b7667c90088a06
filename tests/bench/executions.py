# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many modules Ansible runs on a node for the roles rke2 and cilium, beside a plain playbook that leaves the same files.

Every module says in the node's journal that it was invoked, and that is what is counted. What ansible-playbook says that it sent is
compared with it, so that none can be missed. The nodes are hosts of the lab (docs/lab.md) that look like an agent and a server of RKE2
in their maintenance window: drained, RKE2 stopped. tests/lab/test_executions.py asserts of the same counts what was promised.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(TOP / "tools"))

import workspace  # noqa: E402  (tools/ is no package; the line above makes it importable)

OURS = {"agent": "host1", "server": "host2"}
PLAIN = {"agent": "host3", "server": "host4"}
NODES = {host: kind for hosts in (OURS, PLAIN) for kind, host in hosts.items()}
RUNS = ("changes", "as planned")
DROP_IN = "/etc/rancher/rke2/config.yaml.d/90-hostprep.yaml"
KUBELET = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-hostprep.conf"
MANIFESTS = "/var/lib/rancher/rke2/server/manifests/"
MANIFEST = MANIFESTS + "rke2-hostprep-cilium.yaml"

# What the installer of RKE2 lays down: the program, which tells its version, and the units of both kinds; one of them is enabled.
INSTALL = """
mkdir -p /usr/local/bin /usr/local/lib/systemd/system /etc/rancher/rke2
printf '#!/bin/sh\\necho "rke2 version v1.34.4+rke2r1 (0123456789abcdef)"\\n' > /usr/local/bin/rke2
chmod 755 /usr/local/bin/rke2
for kind in agent server; do
  printf '[Service]\\nExecStart=/usr/local/bin/rke2 %s\\n[Install]\\nWantedBy=multi-user.target\\n' $kind \\
    > /usr/local/lib/systemd/system/rke2-$kind.service
done
systemctl daemon-reload
"""
KIND = {
    # An agent that was started before it had a reservation.
    "agent": """
printf 'server: https://192.0.2.1:9345\\ntoken: bench\\n' > /etc/rancher/rke2/config.yaml
mkdir -p /var/lib/kubelet /var/lib/rancher/rke2/agent/etc/kubelet.conf.d
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\\nkind: KubeletConfiguration\\ncgroupDriver: systemd\\n' \\
  > /var/lib/rancher/rke2/agent/etc/kubelet.conf.d/00-rke2-defaults.conf
touch /var/lib/rancher/rke2/agent/kubelet.kubeconfig
printf '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}' > /var/lib/kubelet/cpu_manager_state
printf '{"policyName":"None","machineState":{},"checksum":4236770233}' > /var/lib/kubelet/memory_manager_state
systemctl --quiet enable rke2-agent.service
""",
    # A server before its first start, since there is no API yet.
    "server": """
printf 'token: bench\\n' > /etc/rancher/rke2/config.yaml
systemctl --quiet enable rke2-server.service
""",
}
# What a kubelet with the static policy has written when it ran again; without a checksum, which it takes too.
STARTED = """printf '{"policyName":"static","defaultCpuSet":"%s"}' $(cat /sys/devices/system/cpu/online) \
> /var/lib/kubelet/cpu_manager_state
printf '{"policyName":"None","machineState":{},"checksum":4236770233}' > /var/lib/kubelet/memory_manager_state"""
CURSOR = "journalctl --sync; journalctl --quiet --lines=0 --show-cursor"
# --all: else the text of a long invocation is left out. Not by transport or program: whatever calls itself a module counts.
JOURNAL = (
    "journalctl --sync; journalctl --output=json --all --output-fields=SYSLOG_IDENTIFIER,MESSAGE --after-cursor='%s'"
)
FILES = """python3 -c '
import json, os
found = {}
for top in "/etc/rancher", "/var/lib/rancher":
    for folder, _folders, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            with open(path) as stream:
                found[path] = ["%o" % (os.stat(path).st_mode & 0o7777), stream.read()]
print(json.dumps(found))'"""


class Failed(Exception):
    """A command that failed, or a count that cannot be right."""


@dataclass
class Run:
    """One command of Ansible's: what each node's journal says that ran there, and what the recap says."""

    executions: dict[str, list[tuple[str, str]]]  # by host: (module, how it was invoked), in order
    changed: dict[str, int]  # by host; empty for a command without a recap

    def modules(self, host):
        return [module for module, _invoked in self.executions[host]]

    def parts(self, host):
        """Of this collection's play: how many of host_plan (the one read), of the kubelet's transition, and of the roles' own."""
        found = collections.Counter(map(part, self.executions[host]))
        return found["read"], found["transition"], found["own"]


def part(execution):
    """What an execution of this collection's play was for; all that is not known to be something else is the roles' own."""
    module, invoked = execution
    if module == "cpu_plan":
        return "read"
    return "transition" if module == "kubelet_checkpoint" and " state=transitioned " in invoked + " " else "own"


def invocations(journal):
    """[(module, how it was invoked)] of `journalctl --output=json`, names without their collection."""
    found = []
    for line in journal.splitlines():
        entry = json.loads(line)
        name, text = entry.get("SYSLOG_IDENTIFIER"), entry.get("MESSAGE")
        if isinstance(text, list):  # bytes, where not all of it is printable
            text = bytes(text).decode(errors="replace")
        if isinstance(name, str) and name.startswith("ansible-") and (text or "").startswith("Invoked"):
            found.append((name.removeprefix("ansible-").rpartition(".")[2], text))
    return found


class Nodes:
    """Hosts of the lab that look like nodes. ``lab``: runs a command of the lab and returns what it prints."""

    def __init__(self, scratch, lab):
        self.scratch = Path(scratch)
        self.lab = lab

    def up(self):
        self.lab("up", "--fresh", *NODES)
        self.inside({host: "set -e" + INSTALL + KIND[NODES[host]] for host in NODES})
        groups = {"ours": OURS.values(), "plain": PLAIN.values(), "rke2_servers": [OURS["server"]]}
        children = {name: {"hosts": dict.fromkeys(hosts)} for name, hosts in groups.items()}
        (self.scratch / "groups.yml").write_text(json.dumps({"all": {"children": children}}))
        (self.scratch / "lab.yml").write_text(self.lab("inventory", *NODES))

    def inside(self, scripts):
        """{host: what its script prints}, all hosts at once."""
        with futures.ThreadPoolExecutor(len(scripts)) as pool:
            return dict(zip(scripts, pool.map(lambda host: self.lab("ssh", host, scripts[host]), scripts)))

    def started(self):
        """RKE2 was started again on the agents, and stopped for the next window."""
        self.inside({OURS["agent"]: STARTED, PLAIN["agent"]: STARTED})

    def files(self, hosts):
        """{host: {path: (mode, content as plain data)}} of all files of RKE2's."""
        read = self.inside(dict.fromkeys(hosts, FILES))
        return {
            host: {path: (mode, list(yaml.safe_load_all(text))) for path, (mode, text) in json.loads(found).items()}
            for host, found in read.items()
        }

    def run(self, hosts, *command):
        """Runs a command of Ansible's on hosts and counts. Raises Failed where it fails or the counts differ."""
        said = self.inside(dict.fromkeys(hosts, CURSOR))
        cursors = {host: re.search(r"^-- cursor: (\S+)$", text, re.M)[1] for host, text in said.items()}
        done = subprocess.run(
            [*command, "-vvv", "-i", str(self.scratch / "lab.yml"), "-i", str(self.scratch / "groups.yml")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=TOP,
            env=os.environ
            | {
                "ANSIBLE_COLLECTIONS_PATH": str(workspace.link()),
                "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
                "ANSIBLE_FORCE_COLOR": "0",
            },
        )
        if done.returncode:
            raise Failed("`%s` failed: %s" % (" ".join(command), (done.stdout + done.stderr)[-3000:]))
        journals = self.inside({host: JOURNAL % cursors[host] for host in hosts})
        executions = {host: invocations(journal) for host, journal in journals.items()}
        sent = re.findall(r"^(?:<\S+> )?Using module file .*/(\w+)\.py$", done.stdout, re.M)
        seen = [module for found in executions.values() for module, _invoked in found]
        if sorted(sent) != sorted(seen):
            raise Failed("Ansible sent %s, and the journals have %s" % (sorted(sent), sorted(seen)))
        changed = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s", done.stdout, re.M)
        return Run(executions, {host: int(number) for host, number in changed})

    def ours(self):
        return self.run(list(OURS.values()), "ansible-playbook", str(HERE / "executions.yml"))

    def plain(self, files):
        """``files``: files() of the nodes that this collection brought to their plan, whose values it is handed."""
        values = {
            "plain_config": {PLAIN[kind]: files[OURS[kind]][DROP_IN][1][0] for kind in PLAIN},
            "plain_kubelet": files[OURS["agent"]][KUBELET][1][0],
            "plain_manifests": {
                path: documents[0]
                for path, (_mode, documents) in files[OURS["server"]].items()
                if path.startswith(MANIFESTS)
            },
        }
        book = str(HERE / "executions_plain.yml")
        return self.run(list(PLAIN.values()), "ansible-playbook", book, "-e", json.dumps(values))


def both(nodes):
    """({run: Run} of this collection, {run: Run} of the plain playbook, {host: files()} at the end)."""
    ours, plain = {}, {}
    ours["changes"] = nodes.ours()
    written = nodes.files(OURS.values())
    plain["changes"] = nodes.plain(written)
    nodes.started()
    ours["as planned"] = nodes.ours()
    plain["as planned"] = nodes.plain(written)
    return ours, plain, nodes.files(NODES)


def report(ours, plain):
    row = "%-7s %-11s %9s %12s %11s %5s %7s %7s"
    lines = ["Module executions on a node, by its own journal"]
    lines += [row % ("node", "", "host_plan", "rke2+cilium", "transition", "all", "plain", "times")]
    for kind in OURS:
        for name in RUNS:
            read, transition, own = ours[name].parts(OURS[kind])
            theirs = len(plain[name].executions[PLAIN[kind]])
            total = read + transition + own
            lines.append(row % (kind, name, read, own, transition, total, theirs, "%.1f" % (theirs / total)))
    for kind in OURS:
        for name in RUNS:
            counted = collections.Counter(plain[name].modules(PLAIN[kind]))
            listed = ", ".join("%d %s" % (number, module) for module, number in counted.items())
            lines.append("plain, %s, %s: %s" % (kind, name, listed))
    return "\n".join(lines)


def run(scratch):
    if os.geteuid():
        print("executions: skipped, it boots hosts of the lab and that needs root")
        return
    os.environ.setdefault("HOSTPREP_LAB", "bench")

    def lab(*words):
        command = [sys.executable, str(TOP / "tests/lab"), *words]
        return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout

    folder = Path(scratch) / "executions"
    folder.mkdir()
    nodes = Nodes(folder, lab)
    try:
        nodes.up()
        ours, plain, files = both(nodes)
    finally:
        lab("down", *NODES)
    print(report(ours, plain))
    for kind in OURS:
        same = files[OURS[kind]] == files[PLAIN[kind]]
        print("%s: the files of both %s" % (kind, "say the same" if same else "DIFFER: the counts are of no use"))
