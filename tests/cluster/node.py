# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a machine a node: a real kubelet with containerd and runc, or a hollow kubelet (kubemark's).

Paths are those of RKE2 where a role or a test could depend on them: the containerd socket, the kubelet's folder of
drop-ins, and its state folder. A machine is reached by a command that runs another on it (``ssh … host``).
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from .common import CACHE, ClusterError
from .disk import require_space, scratch
from .images import PAUSE

SOCKET = "/run/k3s/containerd/containerd.sock"
DROP_INS = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d"
PROGRAMS = "/usr/local/lib/lo0-lab"
CONTENT = f"{PROGRAMS}/content"  # names the programs and images that have gone over
CONFIGURATION = "/etc/lo0-lab"
KUBELET_PORT = 10250
WANTED_RESERVATION = f"{CONFIGURATION}/reservation.conf"  # becomes RESERVATION, or nothing where it is empty
HOLLOW_ROOT = "/var/lib/lo0-lab/hollow"
CPU_STATE = "/var/lib/kubelet/cpu_manager_state"
RESERVATION = f"{DROP_INS}/90-lab.conf"
CNI_PROGRAMS = "/usr/lib/cni"  # Debian's containernetworking-plugins


@dataclass(frozen=True)
class Node:
    """What a node is told: its name, the CPUs its kubelet keeps for the system ("" = no static CPU manager), its port."""

    name: str
    reserved: str = ""
    port: int = KUBELET_PORT
    address: str | None = None  # None: that of its default route, a hollow one's is 127.0.0.1
    labels: tuple[str, ...] = ()
    hollow: bool = False


def kubelet_configuration(node: Node) -> dict:
    """The kubelet's main configuration file, without what is a node's own choice."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "port": node.port,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{CONFIGURATION}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{CONFIGURATION}/kubelet.crt",
        "tlsPrivateKeyFile": f"{CONFIGURATION}/kubelet.key",
        "failSwapOn": False,
        "resolvConf": "",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "2%", "imagefs.available": "2%"},
        "logging": {"flushFrequency": "1s"},
    }


def reservation(reserved: str) -> str:
    """The drop-in with the CPU reservation, as a role of the collection or a person would write it."""
    return f"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
reservedSystemCPUs: "{reserved}"
cpuManagerPolicy: static
cpuManagerPolicyOptions:
  full-pcpus-only: "true"
topologyManagerPolicy: best-effort
"""


def containerd_configuration() -> str:
    """containerd's config.toml: systemd cgroups as the kubelet's, the pause image of the lab, Debian's CNI plugins."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return "\n".join(
        (
            "version = 3",
            "[grpc]",
            f"address = '{SOCKET}'",
            "[plugins.'io.containerd.cri.v1.images'.pinned_images]",
            f"sandbox = '{PAUSE}'",
            f"[{runtime}.containerd.runtimes.runc]",
            "runtime_type = 'io.containerd.runc.v2'",
            f"[{runtime}.containerd.runtimes.runc.options]",
            "SystemdCgroup = true",
            f"[{runtime}.cni]",
            f"bin_dirs = ['{CNI_PROGRAMS}']",
            "conf_dir = '/etc/cni/net.d'",
            f"conf_template = '{CONFIGURATION}/cni.conflist'",
            "",
        )
    )


def cni_template() -> str:
    """A bridge with addresses from the range that the controller manager gives the node; containerd fills it in."""
    return json.dumps(
        {
            "cniVersion": "1.0.0",
            "name": "lab",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": "{{.PodCIDR}}"}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        },
        indent=1,
    )


def service(description: str, command: str, *, after: str, extra: Sequence[str] = ()) -> str:
    """The text of a systemd unit that runs for as long as the machine does."""
    lines = [
        "[Unit]",
        f"Description={description}",
        f"After={after}",
        "StartLimitIntervalSec=0",
        "[Service]",
        f"ExecStart={command}",
    ]
    lines += ["Restart=always", "RestartSec=2", *extra, "[Install]", "WantedBy=multi-user.target", ""]
    return "\n".join(lines)


def hollow_command(node: Node, program: str | Path, kubeconfig: str | Path, root: str | Path) -> list[str]:
    """The command line of a hollow kubelet, whose folder is root."""
    values = {
        "name": node.name,
        "kubeconfig": kubeconfig,
        "root": root,
        "port": node.port,
        "labels": ",".join(node.labels),
    }
    if node.address:
        values["address"] = node.address
    return [str(program), *(f"--{key}={value}" for key, value in values.items() if value)]


def units(node: Node) -> dict[str, str]:
    """The systemd units of a node; both kinds of kubelet are kubelet.service."""
    if node.hollow:
        command = hollow_command(node, f"{PROGRAMS}/hollow", f"{CONFIGURATION}/kubelet.kubeconfig", HOLLOW_ROOT)
        unit = service("Hollow kubelet of the lab", " ".join(command), after="network-online.target")
        return {"kubelet.service": unit}
    kubelet = [f"{PROGRAMS}/kubelet", f"--config={CONFIGURATION}/kubelet.json", f"--config-dir={DROP_INS}"]
    kubelet += [f"--kubeconfig={CONFIGURATION}/kubelet.kubeconfig", f"--hostname-override={node.name}"]
    kubelet += [f"--node-ip={node.address}"] if node.address else []
    kubelet += [f"--node-labels={','.join(node.labels)}"] if node.labels else []
    delegated = ["Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", "LimitNOFILE=1048576", "TasksMax=infinity"]
    containerd = f"{PROGRAMS}/containerd --config {CONFIGURATION}/containerd.toml"
    path = f"Environment=PATH={PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {
        "containerd.service": service(
            "containerd of the lab", containerd, after="network.target", extra=["Type=notify", *delegated, path]
        ),
        "kubelet.service": service(
            "Kubelet of the lab",
            " ".join(kubelet),
            after="containerd.service network-online.target",
            extra=["OOMScoreAdjust=-999"],
        ),
    }


def configuration(node: Node, credentials: Mapping[str, str]) -> dict[str, str]:
    """Every small file of a node by its path; credentials: ca.crt, kubelet.crt, kubelet.key, kubelet.kubeconfig."""
    files = {f"{CONFIGURATION}/{name}": text for name, text in credentials.items()}
    files |= {f"/etc/systemd/system/{name}": text for name, text in units(node).items()}
    if not node.hollow:
        files[f"{CONFIGURATION}/kubelet.json"] = json.dumps(kubelet_configuration(node), indent=1)
        files[f"{CONFIGURATION}/containerd.toml"] = containerd_configuration()
        files[f"{CONFIGURATION}/cni.conflist"] = cni_template()
        files[WANTED_RESERVATION] = reservation(node.reserved) if node.reserved else ""
    return files


def start_script(node: Node) -> str:
    """What runs on the machine after the files are there; it ends when the programs run, not when the node is Ready.

    It prints the machine's time at a moment when no kubelet ran. Reports have whole seconds, hence the pause.
    """
    stop = "systemctl stop kubelet 2>/dev/null || true; date --utc +%Y-%m-%dT%H:%M:%SZ; sleep 1"
    if node.hollow:
        return "\n".join(
            (
                "set -e",
                "systemctl daemon-reload",
                stop,
                "systemctl enable --quiet kubelet",
                "systemctl start kubelet",
                "sync",
            )
        )
    return "\n".join(
        (
            "set -e",
            stop,
            # A kubelet does not start on the state of another policy or of CPUs that were reserved otherwise.
            f"if ! cat {RESERVATION} 2>/dev/null | cmp -s - {WANTED_RESERVATION}; then",
            f"  rm -f {CPU_STATE} {RESERVATION}",
            f"  if test -s {WANTED_RESERVATION}; then install -D -m 0644 {WANTED_RESERVATION} {RESERVATION}; fi",
            "fi",
            f"mkdir -p {DROP_INS} /etc/cni/net.d",
            "swapoff -a || true",
            # What a pod network needs of the kernel.
            "modprobe -q overlay || true; modprobe -q br_netfilter || true",
            "printf 'net.ipv4.ip_forward = 1\n' > /etc/sysctl.d/90-lo0-lab.conf; sysctl -q -p /etc/sysctl.d/90-lo0-lab.conf || true",
            "systemctl daemon-reload",
            "systemctl enable --quiet containerd kubelet",
            "systemctl restart containerd",
            f"for image in pause busybox; do {PROGRAMS}/ctr --address {SOCKET} -n k8s.io images import --local {PROGRAMS}/images/$image.tar >/dev/null; done",
            "systemctl start kubelet",
            "sync",
        )
    )


def requirements(node: Node) -> dict[str, str]:
    """What the machine itself has to bring: path to Debian package."""
    return {} if node.hollow else {"/usr/sbin/runc": "runc", f"{CNI_PROGRAMS}/bridge": "containernetworking-plugins"}


class Machine:
    """A machine that a command reaches."""

    def __init__(self, name: str, reach: Sequence[str]):
        self.name = name
        self.reach = list(reach)

    def run(self, script: str, *, what: str, stdin: bytes | None = None, patience: float = 300) -> str:
        """Runs a shell script there."""
        try:
            done = subprocess.run(
                [*self.reach, script], input=stdin, capture_output=True, check=False, timeout=patience
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{what} on {self.name}: no answer in {patience:.0f} s.") from None
        if done.returncode:
            words = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise ClusterError(f"{what} on {self.name}: it ended with {done.returncode}: {words[-1500:]}")
        return done.stdout.decode(errors="replace")


def _add(tar: tarfile.TarFile, path: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(path.lstrip("/"))
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def configuration_archive(files: Mapping[str, str]) -> bytes:
    """A tar to unpack at / of the machine; what carries a key is for root only."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, text in files.items():
            _add(tar, path, text.encode(), 0o600 if path.endswith((".key", ".kubeconfig")) else 0o644)
    return out.getvalue()


def write_programs(target: Path, programs: Mapping[str, Path], images: Path | None) -> None:
    """The tar with what is large and the same for every node: programs and images."""
    with tarfile.open(target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, program in programs.items():
            _add(tar, f"{PROGRAMS}/{name}", program.read_bytes(), 0o755)
        if images:
            with tarfile.open(images) as inner:
                for member in inner.getmembers():
                    content = inner.extractfile(member)
                    assert content, f"{images} holds something that is not a file: {member.name}"
                    _add(tar, f"{PROGRAMS}/images/{member.name}", content.read(), 0o644)


def content_key(programs: Mapping[str, Path], images: Path | None) -> str:
    """Names the programs and images of a node, which need not go over again while it stays the same."""
    parts = [str(path) for _name, path in sorted(programs.items())] + [images.name if images else ""]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def fetch_script(url: str, key: str, marker: str) -> str:
    """What makes the machine fetch its programs; the marker is written last."""
    fetch = f"import shutil, sys, urllib.request; shutil.copyfileobj(urllib.request.urlopen({url!r}), sys.stdout.buffer, 1 << 20)"
    # A program that runs cannot be written over, only replaced.
    unpack = "tar -x -f - -C / --unlink-first --no-same-owner"
    return f"set -o pipefail; python3 -c {shlex.quote(fetch)} | {unpack} && echo {key} > {marker}"


def send(
    machine: Machine,
    programs: Mapping[str, Path],
    images: Path | None,
    offer: Callable[[Path], AbstractContextManager[str]],
    *,
    has: str,
    marker: str,
) -> bool:
    """Puts programs and images on the machine unless it has them, as its marker says; returns whether it had to.

    ``offer`` makes a file available to the machine under a URL: through ssh the programs would take three times as long
    on an emulated machine.
    """
    key = content_key(programs, images)
    if has == key:
        return False
    size = sum(path.stat().st_size for path in (*programs.values(), *([images] if images else [])))
    require_space({CACHE: size // 2**20 + 10}, f"the archive of {machine.name}'s programs", "XDG_CACHE_HOME")
    with scratch() as work:
        archive = work / "programs.tar"
        write_programs(archive, programs, images)
        with offer(archive) as url:
            script = fetch_script(url, key, marker)
            machine.run(f"bash -c {shlex.quote(script)}", what="Fetching the programs", patience=900)
    return True


def install(
    machine: Machine,
    node: Node,
    credentials: Mapping[str, str],
    programs: Mapping[str, Path],
    images: Path | None,
    offer: Callable[[Path], AbstractContextManager[str]],
) -> str:
    """Puts everything on the machine and starts it; returns when, by its clock. What is secret goes through ssh."""
    tests = "; ".join(f"test -e {path} || echo {package}" for path, package in requirements(node).items())
    question = f"cat {CONTENT} 2>/dev/null || echo none; {tests or 'true'}"
    answer = machine.run(question, what="Looking for what a node needs").split()
    if answer[1:]:
        raise ClusterError(
            f"{node.name} lacks Debian's {', '.join(answer[1:])}: its machine has to bring these packages."
        )
    send(machine, programs, images, offer, has=answer[0], marker=CONTENT)
    machine.run(
        "tar -x -f - -C / --no-same-owner",
        what="Copying the node's configuration",
        stdin=configuration_archive(configuration(node, credentials)),
    )
    return machine.run(start_script(node), what="Starting the kubelet", patience=600).partition("\n")[0]
