// Copyright: (c) 2026, the lo0.rke2_hostprep authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// A hollow node: kubemark's kubelet over a container runtime that only pretends, for tests where the API alone matters.
//
// kubemark's own program gives every node one CPU, no boot id, and a port without access control on every address. Here the
// node is as large as it is told, reports the boot id of the machine that it runs on (so that a reboot shows in the API),
// and listens where it is told.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	cadvisor "github.com/google/cadvisor/info/v1"
	"go.opentelemetry.io/otel/trace/noop"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	remote "k8s.io/cri-client/pkg"
	runtime "k8s.io/cri-client/pkg/fake"
	"k8s.io/klog/v2"
	cadvisorfake "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

// machine is what the kubelet takes for its hardware.
type machine struct {
	cadvisorfake.Fake
	info    cadvisor.MachineInfo
	version cadvisor.VersionInfo
}

func (m *machine) MachineInfo() (*cadvisor.MachineInfo, error) {
	copied := m.info
	return &copied, nil
}

func (m *machine) VersionInfo() (*cadvisor.VersionInfo, error) {
	copied := m.version
	return &copied, nil
}

// line is the content of a one-line file, empty where there is none.
func line(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func labels(text string) (map[string]string, error) {
	found := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("the label %q is not NAME=VALUE", pair)
		}
		found[name] = value
	}
	return found, nil
}

func run() error {
	name := flag.String("name", "", "the node's name")
	kubeconfig := flag.String("kubeconfig", "", "how the API server is reached")
	root := flag.String("root", "", "a folder of its own, emptied at the start")
	address := flag.String("address", "127.0.0.1", "where it listens, and the node's address")
	port := flag.Int("port", 10250, "where it listens")
	cpus := flag.Int("cpus", 8, "the node's CPUs")
	memory := flag.Uint64("memory-mib", 16384, "the node's memory")
	pairs := flag.String("labels", "", "NAME=VALUE,…")
	flag.Parse()
	if *name == "" || *kubeconfig == "" || *root == "" {
		return fmt.Errorf("-name, -kubeconfig and -root are needed")
	}
	labelled, err := labels(*pairs)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()

	access, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	access.UserAgent = "hollow-kubelet"
	access.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := clientset.NewForConfig(access)
	if err != nil {
		return err
	}

	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: *name, KubeletPort: *port, MaxPods: 110, NodeLabels: labelled,
	})
	// It has made folders under /tmp by now, which nobody would remove.
	if err := os.RemoveAll(flags.RootDirectory); err != nil {
		return err
	}
	if err := os.RemoveAll(*root); err != nil {
		return err
	}
	flags.RootDirectory = *root
	flags.NodeIP = *address
	config.Address = *address
	config.StaticPodPath = filepath.Join(*root, "static-pods")
	config.PodLogsDir = filepath.Join(*root, "pod-logs")
	for _, folder := range []string{config.StaticPodPath, config.PodLogsDir} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}

	beats := *access
	beats.QPS = -1
	beats.Timeout = min(config.NodeStatusUpdateFrequency.Duration, time.Duration(config.NodeLeaseDurationSeconds)*time.Second)
	heartbeat, err := clientset.NewForConfig(&beats)
	if err != nil {
		return err
	}

	socket := "unix://" + filepath.Join(*root, "runtime.sock")
	containers := runtime.NewFakeRemoteRuntime()
	if err := containers.Start(socket); err != nil {
		return err
	}
	defer containers.Stop()
	service, err := remote.NewRemoteRuntimeService(ctx, socket, 15*time.Second, noop.NewTracerProvider(), false)
	if err != nil {
		return err
	}

	hardware := &machine{
		Fake: cadvisorfake.Fake{NodeName: *name},
		info: cadvisor.MachineInfo{
			NumCores: *cpus, NumPhysicalCores: *cpus, NumSockets: 1, MemoryCapacity: *memory << 20,
			BootID: line("/proc/sys/kernel/random/boot_id"), MachineID: line("/etc/machine-id"),
		},
		version: cadvisor.VersionInfo{KernelVersion: line("/proc/sys/kernel/osrelease"), ContainerOsVersion: "hollow"},
	}
	kubelet := kubemark.NewHollowKubelet(
		flags, config, client, heartbeat, hardware, containers.ImageService, service, cm.NewStubContainerManager(),
	)
	go kubelet.Run(ctx)
	<-ctx.Done()
	return nil
}

func main() {
	klog.InitFlags(nil)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hollow:", err)
		os.Exit(1)
	}
}
