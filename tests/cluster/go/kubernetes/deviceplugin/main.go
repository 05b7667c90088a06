// Copyright: (c) 2026, the lo0.rke2_hostprep authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// A device plugin whose devices are only names, each of a NUMA node: what a kubelet's topology manager makes of devices can
// be seen on a machine that has none.
//
// A kubelet that starts removes the sockets of all plugins and forgets them; this one then registers again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	maxNode  = 1023 // the kernel's largest (CONFIG_NODES_SHIFT=10)
	maxCount = 100
	// The kubelet takes up to 10 s to reach a plugin that registers.
	registerTimeout = 15 * time.Second
	waiting         = "Waiting for the kubelet."
	registered      = "Registered."
)

// interval is how often the kubelet's socket is looked at.
var interval = time.Second

// As the kubelet's IsExtendedResourceName: a domain that is not Kubernetes' own, a slash, a name.
var resourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// parseDevices makes the devices of "NODE:COUNT,…": numaNODE-0, numaNODE-1 and so on for each node.
func parseDevices(text string) ([]*api.Device, error) {
	var devices []*api.Device
	var seen []int
	for _, pair := range strings.Split(text, ",") {
		left, right, _ := strings.Cut(pair, ":")
		node, err := number(left, 0, maxNode)
		count, err2 := number(right, 1, maxCount)
		if err != nil || err2 != nil {
			return nil, fmt.Errorf("--devices: %q is not NODE:COUNT with a NUMA node of 0 to %d and 1 to %d devices, such as 0:2,1:2", pair, maxNode, maxCount)
		}
		if slices.Contains(seen, node) {
			return nil, fmt.Errorf("--devices: NUMA node %d is named twice in %q; name it once with all of its devices", node, text)
		}
		seen = append(seen, node)
		for i := range count {
			devices = append(devices, &api.Device{
				ID:       fmt.Sprintf("numa%d-%d", node, i),
				Health:   api.Healthy,
				Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(node)}}},
			})
		}
	}
	return devices, nil
}

func number(text string, least, most int) (int, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	value, err := strconv.Atoi(text)
	if err == nil && (value < least || value > most) {
		err = strconv.ErrRange
	}
	return value, err
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	devices  []*api.Device
	nodes    map[string]int64 // by device
	watching atomic.Int32     // how many streams of a kubelet have been sent the devices, and last
}

func newPlugin(resource, devices string) (*plugin, error) {
	domain, _, _ := strings.Cut(resource, "/")
	if !resourceName.MatchString(resource) || strings.Contains(resource, "kubernetes.io/") || strings.HasPrefix(domain, "requests.") {
		return nil, fmt.Errorf("--resource: %q is no name of an extended resource: give DOMAIN/NAME with a domain that is not Kubernetes' own, such as lab.test/gpu", resource)
	}
	parsed, err := parseDevices(devices)
	if err != nil {
		return nil, err
	}
	p := &plugin{resource: resource, devices: parsed, nodes: map[string]int64{}}
	for _, device := range parsed {
		p.nodes[device.ID] = device.Topology.Nodes[0].ID
	}
	return p, nil
}

func (p *plugin) options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return p.options(), nil
}

// ListAndWatch sends the devices once: they never change.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	p.watching.Add(1)
	defer p.watching.Add(-1)
	<-stream.Context().Done()
	return nil
}

// known refuses a device that was never offered.
func (p *plugin) known(ids []string) error {
	for _, id := range ids {
		if _, ok := p.nodes[id]; !ok {
			return status.Errorf(codes.InvalidArgument, "%s has no device %q", p.resource, id)
		}
	}
	return nil
}

// variable is the name of what a container finds its devices in: LAB_TEST_GPU for lab.test/gpu.
func (p *plugin) variable() string {
	return strings.ToUpper(strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(p.resource))
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		if err := p.known(container.DevicesIds); err != nil {
			return nil, err
		}
		ids := slices.Sorted(slices.Values(container.DevicesIds))
		log.Printf("Allocated %s.", strings.Join(ids, ", "))
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{p.variable(): strings.Join(ids, ",")},
		})
	}
	return answer, nil
}

// preferred chooses so that the devices are of as few NUMA nodes as a choice node by node gets: first of nodes already in
// use, then of the fullest that still holds all the rest, else of the one with most.
func (p *plugin) preferred(available, required []string, size int) []string {
	chosen := slices.Clone(required)
	used, free := map[int64]bool{}, map[int64][]string{}
	for _, id := range required {
		used[p.nodes[id]] = true
	}
	for _, device := range p.devices {
		if slices.Contains(available, device.ID) && !slices.Contains(required, device.ID) {
			node := p.nodes[device.ID]
			free[node] = append(free[node], device.ID)
		}
	}
	for len(chosen) < size {
		rest := size - len(chosen)
		better := func(a, b int64) bool {
			if used[a] != used[b] {
				return used[a]
			}
			x, y := len(free[a]), len(free[b])
			if (x >= rest) != (y >= rest) {
				return x >= rest
			}
			if x != y {
				return (x < y) == (x >= rest)
			}
			return a < b
		}
		best := int64(-1)
		for node := range free {
			if best < 0 || better(node, best) {
				best = node
			}
		}
		if best < 0 {
			break
		}
		chosen = append(chosen, free[best][:min(rest, len(free[best]))]...)
		used[best] = true
		delete(free, best)
	}
	return chosen
}

func (p *plugin) GetPreferredAllocation(_ context.Context, request *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	answer := &api.PreferredAllocationResponse{}
	for _, container := range request.ContainerRequests {
		if err := p.known(slices.Concat(container.AvailableDeviceIDs, container.MustIncludeDeviceIDs)); err != nil {
			return nil, err
		}
		ids := p.preferred(container.AvailableDeviceIDs, container.MustIncludeDeviceIDs, int(container.AllocationSize))
		if len(ids) != int(container.AllocationSize) {
			return nil, status.Errorf(codes.InvalidArgument, "%d devices are asked for, of %d available with %d that must be among them",
				container.AllocationSize, len(container.AvailableDeviceIDs), len(container.MustIncludeDeviceIDs))
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

// identity tells one socket from the next of that name, which may have the same inode.
type identity struct {
	inode         uint64
	seconds, nano int64
}

func identify(path string) (identity, error) {
	var found syscall.Stat_t
	if err := syscall.Stat(path, &found); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{found.Ino, int64(found.Ctim.Sec), int64(found.Ctim.Nsec)}, nil
}

// offer serves on a socket of its own and registers it with the kubelet.
func (p *plugin) offer(ctx context.Context, kubelet, own string) (*grpc.Server, error) {
	// A run that was killed leaves its socket.
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", own)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true)) // so that no stream outlives its server
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	if err := p.register(ctx, kubelet, filepath.Base(own)); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

func (p *plugin) register(ctx context.Context, kubelet, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: p.resource, Options: p.options(),
	})
	return err
}

// serve registers with each kubelet that comes to listen in the folder, until ctx ends; say is told how it stands.
func (p *plugin) serve(ctx context.Context, folder string, say func(string)) {
	kubelet := filepath.Join(folder, filepath.Base(api.KubeletSocket))
	own := filepath.Join(folder, strings.ReplaceAll(p.resource, "/", "-")+".sock")
	var server *grpc.Server
	var with identity
	var watched bool // the kubelet has been sent the devices
	withdraw := func() {
		if server != nil {
			server.Stop() // the socket goes too
			server, watched = nil, false
		}
	}
	defer withdraw()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	say(waiting)
	for {
		now, err := identify(kubelet)
		left := watched && p.watching.Load() == 0
		if server != nil && (err != nil || now != with || left) {
			withdraw()
			say(waiting)
		}
		if err == nil && server == nil {
			// A kubelet that starts meanwhile may be registered with twice, never not at all.
			server, err = p.offer(ctx, kubelet, own)
			with = now
		}
		if err != nil {
			say(fmt.Sprintf("%s %v", waiting, err))
		}
		if server != nil && p.watching.Load() > 0 {
			watched = true
			say(registered)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// told says something once, in the log and as the status of the systemd unit.
func told() func(string) {
	last := ""
	return func(text string) {
		text = strings.ReplaceAll(text, "\n", " ")
		if text == last {
			return
		}
		last = text
		log.Print(text)
		if place := os.Getenv("NOTIFY_SOCKET"); place != "" {
			if err := notify(place, "STATUS="+text); err != nil {
				log.Printf("systemd cannot be told: %v", err)
			}
		}
	}
}

func notify(place, text string) error {
	connection, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: place, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = connection.Write([]byte(text))
	return err
}

// arguments makes the plugin of the command line; it also says where the kubelet's sockets are.
func arguments(words []string) (*plugin, string, error) {
	flags := flag.NewFlagSet("deviceplugin", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, and the caller's
	devices := flags.String("devices", "", "NODE:COUNT,…: how many devices each NUMA node has")
	resource := flags.String("resource", "lab.test/gpu", "the resource's name")
	folder := flags.String("folder", api.DevicePluginPath, "where the kubelet's socket and those of its plugins are")
	err := flags.Parse(words)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("%q is no option; an option begins with --", flags.Arg(0))
	case err == nil && *devices == "":
		err = errors.New("--devices is needed: NODE:COUNT,…, such as 0:2,1:2")
	}
	if err != nil {
		return nil, "", err
	}
	p, err := newPlugin(*resource, *devices)
	return p, *folder, err
}

func main() {
	log.SetFlags(0)
	p, folder, err := arguments(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	p.serve(ctx, folder, told())
}
