# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control plane: etcd, API server, scheduler and controller manager as processes of this machine.

They listen on 127.0.0.1, or inside a network namespace, where the API server is reached by the machines of the lab; a
relay then makes it answer on this machine's 127.0.0.1 too. They speak TLS with certificates of their own authority, and
authorise with Node and RBAC, as a real cluster does.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.state import DEFAULT_LAB

from . import binaries
from .common import HERE, SHARED, ClusterError, run, say
from .disk import require_space
from .pki import CLUSTER, DAYS, ETCD, FRONT_PROXY, Pki
from .processes import Processes, port_owner, resident_mib, same_namespace, undisturbed

# The API server's of the lab that has no name of its own; the others follow it. Below the ports that the kernel gives to
# outgoing connections.
PORT = 26443
PORT_VARIABLE = "HOSTPREP_CLUSTER_PORT"
LAST_PORT = 65535 - 4  # four ports after it are used too
STATE_MIB = 400  # etcd allocates 128 MiB at once; the rest is for logs and for what a test writes
SERVICES, FIRST_SERVICE = "10.96.0.0/16", "10.96.0.1"
PODS = "10.244.0.0/16"
FORWARD = HERE.parent / "lab" / "lab" / "forward.py"
HERE_ONLY = "127.0.0.1"
RELAY = "relay"
ORDER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NOWHERE = "198.51.100.1"  # told to pods where no machine of a lab reaches the API server; must not be loopback


@dataclass(frozen=True)
class Settings:
    """How a cluster was brought up; kept in its state so that every later command knows."""

    netns: str | None = None
    address: str = NOWHERE  # the API server's as the machines of the lab see it, and as pods are told it
    port: int = PORT

    @property
    def enter(self) -> list[str]:
        return ["ip", "netns", "exec", self.netns] if self.netns else []

    @property
    def ports(self) -> dict[str, int]:
        names = ("kube-apiserver", "etcd", "etcd-peer", "kube-controller-manager", "kube-scheduler")
        return {name: self.port + offset for offset, name in enumerate(names)}

    @property
    def listen(self) -> str:
        """Where the API server listens: every address of a namespace of its own, or this machine's loopback."""
        return "0.0.0.0" if self.netns else HERE_ONLY

    def url(self, host: str = HERE_ONLY) -> str:
        return f"https://{host}:{self.port}"


def port_number(text: str) -> int:
    """The API server's port from what a person wrote; ValueError says what is allowed."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= LAST_PORT:
        raise ValueError(
            f"{text!r} is no port for the API server: allowed are 1 to {LAST_PORT} (four after it are used too)"
        )
    return int(text)


def default_port(lab: str) -> int:
    """The API server's port where none is chosen: the environment's, else the same one for a lab every time."""
    text = os.environ.get(PORT_VARIABLE)
    if text:
        try:
            return port_number(text)
        except ValueError as error:
            raise ClusterError(f"{PORT_VARIABLE}: {error}.") from None
    if lab == DEFAULT_LAB:
        return PORT
    # Hollow nodes listen up to 200 above; two names can still meet, and then one is told to choose another.
    return PORT - 200 * (1 + zlib.crc32(lab.encode()) % 60)


def flags(values: dict[str, object]) -> list[str]:
    """Command line flags from a mapping; a list is joined by commas, True is the word."""
    joined = {
        key: ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value for key, value in values.items()
    }
    return [f"--{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in joined.items()]


def commands(settings: Settings, state: Path, pki: Pki, programs: dict[str, Path]) -> dict[str, list[str]]:
    """The command line of each control plane program."""
    here, ports = HERE_ONLY, settings.ports
    etcd = {
        "name": "lab",
        "data-dir": state / "etcd",
        "listen-client-urls": f"https://{here}:{ports['etcd']}",
        "advertise-client-urls": f"https://{here}:{ports['etcd']}",
        "listen-peer-urls": f"https://{here}:{ports['etcd-peer']}",
        "initial-advertise-peer-urls": f"https://{here}:{ports['etcd-peer']}",
        "initial-cluster": f"lab=https://{here}:{ports['etcd-peer']}",
        "cert-file": pki.certificate("etcd"),
        "key-file": pki.key("etcd"),
        "client-cert-auth": True,
        "trusted-ca-file": pki.certificate(ETCD),
        "peer-cert-file": pki.certificate("etcd"),
        "peer-key-file": pki.key("etcd"),
        "peer-client-cert-auth": True,
        "peer-trusted-ca-file": pki.certificate(ETCD),
        "unsafe-no-fsync": True,  # a test's data need not survive this machine's power cut
        "log-level": "warn",
    }
    apiserver = {
        "bind-address": settings.listen,
        "secure-port": settings.port,
        "advertise-address": settings.address,
        "etcd-servers": f"https://{here}:{ports['etcd']}",
        "etcd-cafile": pki.certificate(ETCD),
        "etcd-certfile": pki.certificate("apiserver-etcd-client"),
        "etcd-keyfile": pki.key("apiserver-etcd-client"),
        "tls-cert-file": pki.certificate("apiserver"),
        "tls-private-key-file": pki.key("apiserver"),
        "client-ca-file": pki.certificate(CLUSTER),
        "kubelet-certificate-authority": pki.certificate(CLUSTER),
        "kubelet-client-certificate": pki.certificate("apiserver-kubelet-client"),
        "kubelet-client-key": pki.key("apiserver-kubelet-client"),
        "kubelet-preferred-address-types": ["InternalIP", "Hostname"],
        "requestheader-client-ca-file": pki.certificate(FRONT_PROXY),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": pki.certificate("front-proxy-client"),
        "proxy-client-key-file": pki.key("front-proxy-client"),
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": pki.folder / "sa.pub",
        "service-account-signing-key-file": pki.key("sa"),
        "service-cluster-ip-range": SERVICES,
        "authorization-mode": ["Node", "RBAC"],
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": True,
        "audit-policy-file": HERE / "manifests" / "audit.yaml",
        "audit-log-path": state / "logs" / "audit.log",
    }
    manager = {
        "kubeconfig": state / "controller-manager.kubeconfig",
        "authentication-kubeconfig": state / "controller-manager.kubeconfig",
        "authorization-kubeconfig": state / "controller-manager.kubeconfig",
        "bind-address": here,
        "secure-port": ports["kube-controller-manager"],
        "client-ca-file": pki.certificate(CLUSTER),
        "requestheader-client-ca-file": pki.certificate(FRONT_PROXY),
        "root-ca-file": pki.certificate(CLUSTER),
        "service-account-private-key-file": pki.key("sa"),
        "use-service-account-credentials": True,
        "cluster-signing-cert-file": pki.certificate(CLUSTER),
        "cluster-signing-key-file": pki.key(CLUSTER),
        "allocate-node-cidrs": True,
        "cluster-cidr": PODS,
        "service-cluster-ip-range": SERVICES,
        "controllers": ["*", "tokencleaner"],
        "leader-elect": False,
    }
    scheduler = {
        "kubeconfig": state / "scheduler.kubeconfig",
        "authentication-kubeconfig": state / "scheduler.kubeconfig",
        "authorization-kubeconfig": state / "scheduler.kubeconfig",
        "bind-address": here,
        "secure-port": ports["kube-scheduler"],
        "client-ca-file": pki.certificate(CLUSTER),
        "leader-elect": False,
    }
    values = dict(zip(ORDER, (etcd, apiserver, manager, scheduler)))
    return {name: [str(programs[name]), *flags(values[name])] for name in ORDER}


def not_ok(answer: str) -> str:
    """What an unready API server complains of: the checks that it marks with [-], or its last line."""
    checks = re.findall(r"\[-\](\S+) failed", answer)
    lines = answer.strip().splitlines()
    return f"not done yet: {', '.join(checks)}" if checks else (lines[-1][:300] if lines else "no answer")


def kubeconfig(server: str, authority: bytes, certificate: bytes, key: bytes, user: str) -> str:
    """A kubeconfig (JSON is YAML) that carries its certificates in itself, so that it can be copied anywhere."""

    def packed(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "lab", "cluster": {"server": server, "certificate-authority-data": packed(authority)}}
            ],
            "users": [
                {"name": user, "user": {"client-certificate-data": packed(certificate), "client-key-data": packed(key)}}
            ],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        },
        indent=1,
    )


class Plane:
    """The control plane of one state folder."""

    def __init__(self, state: Path):
        self.state = state
        self.settings = self.kept_settings()
        self.pki = Pki(state / "pki")
        self.processes = Processes(state, self.settings.enter)

    def kept_settings(self) -> Settings:
        """How the cluster of this folder was brought up; what another version of this program kept beside is let be."""
        try:
            kept = json.loads((self.state / "settings.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # none yet, or half written by a killed run
            return Settings()
        return Settings(**{name: kept[name] for name in asdict(Settings()) if name in kept})

    @property
    def admin(self) -> Path:
        return self.state / "admin.kubeconfig"

    @property
    def complete(self) -> Path:
        """There only once everything is started and the roles and CRDs are in."""
        return self.state / "complete"

    def is_up(self) -> bool:
        """Whether it came up wholly, and every program runs once, in the namespace that has the name now.

        A lab that was made anew has another namespace of the same name.
        """
        running = self.processes.running()
        netns = self.settings.netns
        if not self.complete.exists():
            return False
        if any(len(running.get(name, ())) != 1 for name in (*ORDER, *([RELAY] if netns else []))):
            return False
        return not netns or same_namespace(running["kube-apiserver"][0], Path("/run/netns", netns))

    def require_up(self) -> None:
        if not self.is_up():
            raise ClusterError("The control plane is not running, or not whole: start it first with the command up.")

    def write(self, path: Path, text: str) -> Path:
        """A file that only its owner reads: most carry keys."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def user(self, name: str, groups: Sequence[str] = (), *, file: str | None = None, expired: bool = False) -> Path:
        """A kubeconfig for a user, whose certificate the cluster's authority signs; returns the file."""
        certificate = re.sub(r"[^\w.-]", "-", f"user-{name}{'-expired' if expired else ''}")
        self.pki.issue(certificate, CLUSTER, name, groups=groups, days=-1 if expired else DAYS, again=bool(groups))
        text = kubeconfig(
            self.settings.url(),
            self.pki.certificate(CLUSTER).read_bytes(),
            self.pki.certificate(certificate).read_bytes(),
            self.pki.key(certificate).read_bytes(),
            name,
        )
        return self.write(self.state / f"{file or certificate}.kubeconfig", text)

    def kubectl(self, *arguments: str | Path, what: str, stdin: str | None = None) -> str:
        """Runs kubectl as the administrator."""
        programs = binaries.need(("kubectl",))
        command = [programs["kubectl"], f"--kubeconfig={self.admin}", *arguments]
        return run(command, what=what, stdin=stdin)

    def get(self, *arguments: str, what: str) -> dict:
        return json.loads(self.kubectl("get", "--output=json", *arguments, what=what))

    def certificates(self) -> None:
        pki = self.pki
        for authority in (CLUSTER, ETCD, FRONT_PROXY):
            pki.authority(authority)
        both = ("serverAuth", "clientAuth")
        pki.issue("etcd", ETCD, "etcd", uses=both, names=("localhost", HERE_ONLY))
        pki.issue("apiserver-etcd-client", ETCD, "apiserver-etcd-client")
        names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
        ]
        names += [HERE_ONLY, self.settings.address, FIRST_SERVICE]
        pki.issue("apiserver", CLUSTER, "kube-apiserver", uses=("serverAuth",), names=names, again=True)
        pki.issue("apiserver-kubelet-client", CLUSTER, "kube-apiserver-kubelet-client")
        pki.issue("front-proxy-client", FRONT_PROXY, "front-proxy-client")
        pki.signing_key("sa")
        self.user("system:kube-controller-manager", file="controller-manager")
        self.user("system:kube-scheduler", file="scheduler")
        self.user("admin", ("system:masters",), file="admin")

    def check_ports(self) -> None:
        if self.settings.netns and not Path("/run/netns", self.settings.netns).exists():
            raise ClusterError(
                f"There is no network namespace {self.settings.netns}: the lab makes it with its first machine, so boot one"
                " first, or leave --lab out."
            )
        for name, port in self.settings.ports.items():
            owner = port_owner(port, self.settings.enter)
            if self.settings.netns and name == "kube-apiserver":
                owner = owner or port_owner(port)
            if owner:
                raise ClusterError(
                    f"Port {port}, which {name} would listen on, is taken by {owner}: end that, or choose another with --port or {PORT_VARIABLE}."
                )

    def up(self, settings: Settings) -> dict[str, float]:
        """Brings the control plane up (nothing happens where it is up as asked); returns the seconds of each part."""
        if self.is_up() and settings == self.settings:
            return {}
        took = {}
        begun = time.monotonic()
        programs = binaries.need(binaries.CONTROL_PLANE)
        took["programs"] = time.monotonic() - begun
        self.complete.unlink(missing_ok=True)
        left = self.stop()
        if left:
            say(f"Ended what an earlier run had left: {', '.join(left)}.")
        self.settings = settings
        self.processes = Processes(self.state, settings.enter)
        require_space({self.state: STATE_MIB}, "the cluster's data", "XDG_STATE_HOME")
        self.check_ports()
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.write(self.state / "settings.json", json.dumps(asdict(settings)))
        begun = time.monotonic()
        self.certificates()
        took["certificates"] = time.monotonic() - begun
        try:
            self.start(commands(settings, self.state, self.pki, programs), took)
            self.write(self.complete, "")
        except BaseException:  # a request to stop too: what is half there is of no use
            with undisturbed():
                self.stop()
            raise
        return took

    def start(self, argvs: dict[str, list[str]], took: dict[str, float]) -> None:
        """Starts the programs in order, each when what it needs is there."""
        begun = time.monotonic()
        self.processes.start("etcd", argvs["etcd"])
        self.processes.start("kube-apiserver", argvs["kube-apiserver"])
        if self.settings.netns:
            self.start_relay(self.settings.netns)
        # It waits for etcd itself.
        self.processes.wait("the API server", lambda: self.unready("/readyz"), 180, log="kube-apiserver")
        took["etcd and API server"] = time.monotonic() - begun
        begun = time.monotonic()
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.processes.start(name, argvs[name])
        access = f"--filename={HERE / 'manifests' / 'access.yaml'}"
        with self.processes.watched("the roles and CRDs were applied"):
            self.kubectl("apply", "--server-side", access, what="The roles cannot be applied")
            self.apply_crds()
        self.processes.wait("the controller manager", self.no_service_account, 120, log="kube-controller-manager")
        self.processes.wait("the scheduler", self.deaf_scheduler, 60, log="kube-scheduler")
        took["controllers, roles and CRDs"] = time.monotonic() - begun

    def start_relay(self, netns: str) -> None:
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((HERE_ONLY, self.settings.port))
            listening.listen(128)
            inherited = listening.fileno()
            argv = [sys.executable, FORWARD, inherited, netns, HERE_ONLY, self.settings.port, "apiserver"]
            self.processes.start(RELAY, [str(word) for word in argv], inherit=(inherited,), outside=True)

    def apply_crds(self) -> None:
        folder = SHARED / "crds"
        if not folder.is_dir():
            say(f"No CustomResourceDefinitions: {folder} is not there (HOSTPREP_SHARED says where it is).")
            return
        self.kubectl(
            "apply", "--server-side", f"--filename={folder}", what="The CustomResourceDefinitions cannot be applied"
        )
        self.kubectl(
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
            what="The CustomResourceDefinitions are not served",
        )

    def unready(self, path: str) -> str | None:
        """Why the API server does not call itself ready, None when it does."""
        programs = binaries.need(("kubectl",))
        command = [str(programs["kubectl"]), f"--kubeconfig={self.admin}", "--request-timeout=5s", "get", "--raw", path]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return None
        return not_ok(answer.stderr)

    def no_service_account(self) -> str | None:
        found = self.get("serviceaccounts", "--namespace=default", what="The service accounts cannot be read")
        return None if found["items"] else "the namespace default has no service account yet"

    def deaf_scheduler(self) -> str | None:
        port = self.settings.ports["kube-scheduler"]
        return None if port_owner(port, self.settings.enter) else f"it does not listen on port {port} yet"

    def nodes_running(self) -> list[str]:
        return [name for name in self.processes.running() if name not in (*ORDER, RELAY)]

    def stop(self) -> list[str]:
        """Ends every process of the cluster, nodes first; returns who had run."""
        # An API server whose store has gone first takes its time to end.
        ended = self.processes.stop((*ORDER[1:], RELAY, *self.nodes_running()), patience=5)
        return ended + self.processes.stop(ORDER[:1])

    def status(self) -> dict:
        """What runs, with its memory, and the nodes if there is an API server to ask."""
        running = self.processes.running()
        result: dict = {
            "state": str(self.state),
            "server": self.settings.url() if self.admin.exists() else None,
            "kubeconfig": str(self.admin),
            "processes": {
                name: {"pid": pids[0], "mib": round(sum(map(resident_mib, pids)), 1)} for name, pids in running.items()
            },
            "nodes": {},
        }
        if "kube-apiserver" in running:
            for node in self.get("nodes", what="The nodes cannot be read")["items"]:
                ready = next(
                    (item["status"] for item in node["status"].get("conditions", []) if item["type"] == "Ready"),
                    "Unknown",
                )
                result["nodes"][node["metadata"]["name"]] = {
                    "ready": ready,
                    "kubelet": node["status"]["nodeInfo"]["kubeletVersion"],
                }
        return result
