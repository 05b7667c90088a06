# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What RKE2 and the kubelet take, by node kind and version: the one place for keys, options and versions of both.

Keys: the reference pages of RKE2's documentation (v1.36), and what its program takes beside them (pkg/cli/cmds).
Options of the kubelet's managers: policy_options.go of Kubernetes 1.31 to 1.36, by the first minor version that takes them without an
alpha gate. Drop-ins: RKE2 starts its kubelet with a folder of them from 1.32 on (rancher/rke2#4043), and keeps its own settings there in
00-rke2-defaults.conf.
"""

from __future__ import annotations

SERVER, AGENT = "server", "agent"
DATA_DIR = "/var/lib/rancher/rke2"
CONFIG = "/etc/rancher/rke2/config.yaml"
CONFIG_FOLDER = CONFIG + ".d"
KUBELET_FOLDER = "/agent/etc/kubelet.conf.d"  # below the data dir
KUBELET_DEFAULTS = "00-rke2-defaults.conf"
STATE_DIR = "/var/lib/kubelet"

NAME = "90-hostprep"  # of our drop-ins

MINORS = range(31, 37)  # of Kubernetes 1
KUBELET_DROP_IN = 32
CPU_OPTIONS = {"full-pcpus-only": 23, "strict-cpu-reservation": 33, "prefer-align-cpus-by-uncorecache": 34}
TOPOLOGY_OPTIONS = {"prefer-closest-numa-nodes": 28, "max-allowable-numa-nodes": 31}
DRA_BETA, DRA_STABLE = 32, 34  # behind a gate, and on
DRA_API = {32: ("v1beta1",), 33: ("v1beta1", "v1beta2")}

CNI = ("none", "calico", "canal", "cilium", "flannel")
DEFAULT_CNI = "canal"

# RKE2 sets evictionHard to imagefs and nodefs alone, which takes the kubelet's own threshold of 100Mi for memory away
EVICTION_HARD = {"imagefs.available": "5%", "nodefs.available": "5%"}
EVICTION_MEMORY = 0

BOTH_KEYS = frozenset(
    """
    config debug data-dir bind-address token token-file server control-plane-resource-requests
    control-plane-resource-limits control-plane-probe-configuration kube-apiserver-extra-mount
    kube-scheduler-extra-mount kube-controller-manager-extra-mount kube-proxy-extra-mount etcd-extra-mount
    cloud-controller-manager-extra-mount kube-apiserver-extra-env kube-scheduler-extra-env
    kube-controller-manager-extra-env kube-proxy-extra-env etcd-extra-env cloud-controller-manager-extra-env
    kube-apiserver-image kube-controller-manager-image cloud-controller-manager-image kube-proxy-image
    kube-scheduler-image pause-image runtime-image etcd-image cloud-provider-name cloud-provider-config
    node-name-from-cloud-provider-metadata profile audit-policy-file pod-security-admission-config-file
    enable-pprof kubelet-path node-name with-node-id node-label node-taint image-credential-provider-bin-dir
    image-credential-provider-config protect-kernel-defaults selinux lb-server-port container-runtime-endpoint
    default-runtime snapshotter private-registry disable-default-registry-endpoint nonroot-devices node-ip
    node-external-ip node-internal-dns node-external-dns resolv-conf kubelet-arg kube-proxy-arg
    airgap-extra-registry
    """.split()
)
SERVER_KEYS = frozenset(
    """
    advertise-address tls-san tls-san-security cluster-cidr service-cidr service-node-port-range cluster-dns
    cluster-domain egress-selector-mode servicelb-namespace cni ingress-controller write-kubeconfig
    write-kubeconfig-mode write-kubeconfig-group helm-controller-arg agent-token agent-token-file
    cluster-reset cluster-reset-restore-path datastore-endpoint datastore-cafile datastore-certfile
    datastore-keyfile etcd-expose-metrics etcd-disable-snapshots etcd-snapshot-name
    etcd-snapshot-schedule-cron etcd-snapshot-reconcile-interval etcd-snapshot-retention etcd-snapshot-dir
    etcd-snapshot-compress etcd-s3 etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-skip-ssl-verify
    etcd-s3-access-key etcd-s3-secret-key etcd-s3-session-token etcd-s3-bucket etcd-s3-bucket-lookup-type
    etcd-s3-region etcd-s3-folder etcd-s3-retention etcd-s3-proxy etcd-s3-config-secret etcd-s3-insecure
    etcd-s3-timeout kube-apiserver-arg etcd-arg kube-controller-manager-arg kube-scheduler-arg
    kube-cloud-controller-manager-arg disable disable-scheduler disable-cloud-controller disable-kube-proxy
    embedded-registry enable-servicelb supervisor-metrics secrets-encryption-provider system-default-registry
    disable-apiserver disable-controller-manager disable-etcd helm-job-image
    """.split()
)
KEYS = {SERVER: BOTH_KEYS | SERVER_KEYS, AGENT: BOTH_KEYS}

# Keys that came later: {minor version of Kubernetes: the first patch that has it, None for none}; a minor that is not named has it from
# its first release on. A release without it skips the key and starts. (pkg/cli/cmds of the releases v1.31.0+rke2r1 to v1.36.3+rke2r1)
SINCE = {
    "etcd-s3-bucket-lookup-type": {31: 9, 32: 5, 33: 1},
    "etcd-s3-retention": {31: 12, 32: 8, 33: 4},
    "etcd-s3-session-token": {31: 6, 32: 2},
    "etcd-snapshot-reconcile-interval": {31: 7, 32: 3},
    "helm-controller-arg": {31: None, 32: None, 33: None, 34: 10, 35: 7, 36: 3},
    "node-external-dns": {31: 5},
    "node-internal-dns": {31: 5},
    "node-name-from-cloud-provider-metadata": {31: 3},
    "nonroot-devices": {31: 3},
    "secrets-encryption-provider": {31: 8, 32: 4},
}

# What RKE2 wants to be the same on every server, with its defaults where they are fixed; agent-token is one too, and a secret.
SAME_ON_SERVERS = {
    "cluster-cidr": "10.42.0.0/16",
    "cluster-dns": None,  # the tenth address of service-cidr
    "cluster-domain": "cluster.local",
    "disable-cloud-controller": False,
    "disable-kube-proxy": False,
    "egress-selector-mode": "agent",
    "service-cidr": "10.43.0.0/16",
}
# Those that a cluster is made with and keeps
FIXED = frozenset(("cluster-cidr", "cluster-dns", "cluster-domain", "service-cidr", "cni"))
# Values of these are never read, kept or written
SECRET = frozenset(
    """
    token agent-token datastore-endpoint etcd-s3-access-key etcd-s3-secret-key etcd-s3-session-token etcd-s3-proxy
    """.split()
)
# Values that are read from files of others; of all other keys the names alone
READ = frozenset(("cni", "disable", "data-dir", "kubelet-arg")) | frozenset(SAME_ON_SERVERS)
# Lists, to which ours is added with `key+`
LISTS = frozenset(
    """
    disable etcd-arg etcd-extra-env etcd-extra-mount helm-controller-arg kube-apiserver-arg kube-apiserver-extra-env
    kube-apiserver-extra-mount kube-controller-manager-arg kube-controller-manager-extra-env kube-controller-manager-extra-mount
    kube-proxy-arg kube-proxy-extra-env kube-proxy-extra-mount kube-scheduler-arg kube-scheduler-extra-env
    kube-scheduler-extra-mount kube-cloud-controller-manager-arg cloud-controller-manager-extra-env
    cloud-controller-manager-extra-mount kubelet-arg node-label node-taint nonroot-devices tls-san
    """.split()
)

# Names in the kubelet's configuration and its flags for them
FLAGS = {
    "cpuManagerPolicy": "cpu-manager-policy",
    "cpuManagerPolicyOptions": "cpu-manager-policy-options",
    "reservedSystemCPUs": "reserved-cpus",
    "topologyManagerPolicy": "topology-manager-policy",
    "topologyManagerPolicyOptions": "topology-manager-policy-options",
    "topologyManagerScope": "topology-manager-scope",
    "memoryManagerPolicy": "memory-manager-policy",
    "reservedMemory": "reserved-memory",
    "kubeReserved": "kube-reserved",
    "systemReserved": "system-reserved",
    "evictionHard": "eviction-hard",
    "featureGates": "feature-gates",
}
# With reservedSystemCPUs the kubelet refuses these
RESERVED_CGROUPS = {"systemReservedCgroup": "system-reserved-cgroup", "kubeReservedCgroup": "kube-reserved-cgroup"}
ROOT_DIR_FLAG = "root-dir"
READ_FLAGS = frozenset(FLAGS.values()) | frozenset(RESERVED_CGROUPS.values()) | {ROOT_DIR_FLAG, "config", "config-dir"}
READ_KUBELET = frozenset(FLAGS) | frozenset(RESERVED_CGROUPS)


def cluster_dns(service_cidr):
    """The default of cluster-dns: the tenth address of each network of service-cidr; None where that is no network."""
    import ipaddress  # needed on the controller alone

    names = service_cidr if isinstance(service_cidr, (list, tuple)) else str(service_cidr).split(",")
    try:
        return ",".join(str(ipaddress.ip_network(str(name).strip())[10]) for name in names)
    except (ValueError, IndexError):
        return None


def paths(data_dir):
    """Our two drop-ins: RKE2's and the kubelet's."""
    return "%s/%s.yaml" % (CONFIG_FOLDER, NAME), "%s%s/%s.conf" % (data_dir, KUBELET_FOLDER, NAME)


def flag(argument):
    """(name, value) of one entry of a list like kubelet-arg; the value of a bare flag is ""."""
    name, _equals, value = str(argument).lstrip("-").partition("=")
    return name.strip(), value.strip()


def listed(value):
    """A list of what RKE2 takes as a list or as one value."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def said_to_kubelet(reading, ours=()):
    """[(path, name in the kubelet's configuration, value)] of what files say to the kubelet, those at the end win.

    reading: host/rke2.py's; ours: paths to leave out. Drop-ins come first, then flags, of which RKE2 takes what is left where a later
    file sets ``kubelet-arg`` without ``+``.
    """
    found = [
        (document["path"], key, value)
        for document in reading["kubelet"]
        if document["path"] not in ours and document["path"].rpartition("/")[2] != KUBELET_DEFAULTS
        for key, value in document["values"].items()
    ]
    names = {name: key for key, name in list(FLAGS.items()) + list(RESERVED_CGROUPS.items())}
    flags = []
    for document in reading["config"]:
        for key in ("kubelet-arg", "kubelet-arg+"):
            if key not in document["values"]:
                continue
            if key == "kubelet-arg":
                flags = []
            for argument in listed(document["values"][key]) if document["path"] not in ours else ():
                name, value = flag(argument)
                if name in names:
                    flags.append((document["path"], names[name], value))
    return found + flags
