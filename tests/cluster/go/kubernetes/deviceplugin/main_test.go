// Copyright: (c) 2026, the lo0.rke2_hostprep authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// What a kubelet sees of the device plugin, shown to a registration service that does as the kubelet's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registry "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

const patience = 20 * time.Second

// kubelet registers plugins as the real one does: it connects and asks for the options before it answers.
type kubelet struct {
	api.UnimplementedRegistrationServer
	folder  string
	refuses bool
	server  *grpc.Server
	plugins chan connected
	dead    chan struct{}
}

type connected struct {
	request *api.RegisterRequest
	options *api.DevicePluginOptions
	plugin  api.DevicePluginClient
	lists   chan *api.ListAndWatchResponse
}

func (k *kubelet) Register(ctx context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	if k.refuses {
		k.plugins <- connected{request: request}
		return nil, status.Error(codes.Unknown, "not today")
	}
	connection, err := grpc.NewClient("unix:"+filepath.Join(k.folder, request.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	plugin := api.NewDevicePluginClient(connection)
	options, err := plugin.GetDevicePluginOptions(ctx, &api.Empty{})
	if err != nil {
		return nil, err
	}
	lists := make(chan *api.ListAndWatchResponse)
	go func() {
		<-k.dead
		connection.Close()
	}()
	go func() {
		defer close(lists)
		stream, err := plugin.ListAndWatch(context.Background(), &api.Empty{})
		for err == nil {
			var list *api.ListAndWatchResponse
			if list, err = stream.Recv(); err == nil {
				lists <- list
			}
		}
	}()
	k.plugins <- connected{request, options, plugin, lists}
	return &api.Empty{}, nil
}

// begin does as a kubelet that starts: the socket of the one before goes, then it listens.
func begin(t *testing.T, k *kubelet) *kubelet {
	t.Helper()
	place := filepath.Join(k.folder, "kubelet.sock")
	os.Remove(place)
	listener, err := net.Listen("unix", place)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // as of a kubelet that is killed
	k.plugins, k.dead = make(chan connected, 100), make(chan struct{})
	k.server = grpc.NewServer()
	api.RegisterRegistrationServer(k.server, k)
	go k.server.Serve(listener)
	t.Cleanup(k.die)
	return k
}

// die closes all connections; the socket stays.
func (k *kubelet) die() {
	select {
	case <-k.dead:
	default:
		close(k.dead)
		k.server.Stop()
	}
}

func next[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("%s: nothing in %v", what, patience)
		panic("unreachable")
	}
}

// until waits for the words that begin so.
func until(t *testing.T, said <-chan string, words string) {
	t.Helper()
	for heard := ""; !strings.HasPrefix(heard, words); {
		heard = next(t, words, said)
	}
}

// run serves a plugin in a folder; its words come over the channel; the function ends it and waits until it has.
func run(t *testing.T, folder string) (<-chan string, func()) {
	t.Helper()
	interval = 20 * time.Millisecond
	p, err := newPlugin("lab.test/gpu", "0:2,1:1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	said, ended := make(chan string, 1000), make(chan struct{})
	last := ""
	go func() {
		defer close(ended)
		p.serve(ctx, folder, func(text string) {
			if text != last {
				last = text
				said <- text
			}
		})
	}()
	end := func() {
		cancel()
		next(t, "the plugin's end", ended)
	}
	t.Cleanup(end)
	return said, end
}

func sockets(t *testing.T, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}

func TestAKubeletIsSentTheDevices(t *testing.T) {
	folder := t.TempDir()
	said, end := run(t, folder)
	until(t, said, waiting+" stat ") // no kubelet yet
	k := begin(t, &kubelet{folder: folder})
	got := next(t, "registration", k.plugins)
	request := got.request
	if request.Version != "v1beta1" || request.ResourceName != "lab.test/gpu" || request.Endpoint != "lab.test-gpu.sock" {
		t.Errorf("registered with %v", request)
	}
	if !request.Options.GetPreferredAllocationAvailable || !got.options.GetPreferredAllocationAvailable {
		t.Errorf("options %v, later %v", request.Options, got.options)
	}
	var devices []string
	for _, device := range next(t, "the devices", got.lists).Devices {
		devices = append(devices, fmt.Sprint(device.ID, " ", device.Health, " ", device.Topology.Nodes[0].ID, " of ", len(device.Topology.Nodes)))
	}
	wanted := []string{"numa0-0 Healthy 0 of 1", "numa0-1 Healthy 0 of 1", "numa1-0 Healthy 1 of 1"}
	if !reflect.DeepEqual(devices, wanted) {
		t.Errorf("devices %q, not %q", devices, wanted)
	}
	until(t, said, registered)

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := got.plugin.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
		{DevicesIds: []string{"numa1-0", "numa0-1"}}, {DevicesIds: []string{"numa0-0"}},
	}})
	if err != nil || len(answer.ContainerResponses) != 2 {
		t.Fatalf("allocated %v, %v", answer, err)
	}
	for i, value := range []string{"numa0-1,numa1-0", "numa0-0"} {
		container := answer.ContainerResponses[i]
		if !reflect.DeepEqual(container.Envs, map[string]string{"LAB_TEST_GPU": value}) || len(container.Mounts)+len(container.Devices) > 0 {
			t.Errorf("container %d is given %v, not %s", i, container, value)
		}
	}
	_, err = got.plugin.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"numa2-0"}}}})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `lab.test/gpu has no device "numa2-0"`) {
		t.Errorf("an unknown device: %v", err)
	}
	chosen, err := got.plugin.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: []string{"numa1-0", "numa0-1", "numa0-0"}, AllocationSize: 2},
	}})
	if err != nil || !reflect.DeepEqual(chosen.ContainerResponses[0].DeviceIDs, []string{"numa0-0", "numa0-1"}) {
		t.Errorf("preferred %v, %v", chosen, err)
	}
	_, err = got.plugin.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: []string{"numa1-0"}, AllocationSize: 2},
	}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("two of one: %v", err)
	}

	end()
	if left := sockets(t, folder); !reflect.DeepEqual(left, []string{"kubelet.sock"}) {
		t.Errorf("left behind: %q", left)
	}
}

func TestItRegistersWithEveryKubelet(t *testing.T) {
	for _, name := range []string{"removes the plugins' sockets", "keeps them", "comes long after the first"} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			first := begin(t, &kubelet{folder: folder})
			said, _ := run(t, folder)
			got := next(t, "first registration", first.plugins)
			next(t, "the devices", got.lists)
			until(t, said, registered)
			switch name {
			case "removes the plugins' sockets": // before the streams of the first have ended
				if err := os.Remove(filepath.Join(folder, got.request.Endpoint)); err != nil {
					t.Fatal(err)
				}
			case "comes long after the first":
				first.die()
				until(t, said, waiting+" rpc error: ")
			}
			second := begin(t, &kubelet{folder: folder})
			var list *api.ListAndWatchResponse
			for list == nil { // a registration at the very moment of the start is made again
				got = next(t, "second registration", second.plugins)
				list = next(t, "the devices again", got.lists)
			}
			if len(list.Devices) != 3 {
				t.Errorf("sent %v", list)
			}
			until(t, said, registered)
			if name == "comes long after the first" {
				return
			}
			select {
			case again := <-second.plugins:
				t.Errorf("registered twice: %v", again.request)
			case <-time.After(10 * interval):
			}
		})
	}
}

func TestARefusalIsSaidAndTriedAgain(t *testing.T) {
	folder := t.TempDir()
	first := begin(t, &kubelet{folder: folder, refuses: true})
	said, _ := run(t, folder)
	next(t, "first try", first.plugins)
	next(t, "second try", first.plugins)
	until(t, said, waiting+" rpc error: code = Unknown desc = not today")
	second := begin(t, &kubelet{folder: folder})
	next(t, "registration", second.plugins)
	until(t, said, registered)
}

// manager is what stands behind the kubelet's own registration service.
type manager struct {
	lists chan int
	gone  chan string
}

func (m manager) CleanupPluginDirectory(klog.Logger, string) error { return nil }

func (m manager) PluginConnected(ctx context.Context, _ string, plugin registry.DevicePlugin) error {
	_, err := plugin.API().GetDevicePluginOptions(ctx, &api.Empty{})
	return err
}

func (m manager) PluginDisconnected(_ klog.Logger, resource string) { m.gone <- resource }

func (m manager) PluginListAndWatchReceiver(_ klog.Logger, _ string, list *api.ListAndWatchResponse) {
	m.lists <- len(list.Devices)
}

func TestTheKubeletsOwnRegistration(t *testing.T) {
	folder := t.TempDir()
	said, end := run(t, folder)
	m := manager{make(chan int, 100), make(chan string, 100)}
	log := klog.Background()
	server, err := registry.NewServer(log, filepath.Join(folder, "kubelet.sock"), m, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop(log) })
	for range 2 {
		if err := server.Start(log); err != nil {
			t.Fatal(err)
		}
		if count := next(t, "the devices", m.lists); count != 3 {
			t.Errorf("sent %d devices", count)
		}
		until(t, said, registered)
		server.Stop(log)
		next(t, "the end of the connection", m.gone)
		until(t, said, waiting)
	}
	end()
}

// What a killed run has left does not stop the next.
func TestASocketThatWasLeft(t *testing.T) {
	folder := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(folder, "lab.test-gpu.sock"))
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	k := begin(t, &kubelet{folder: folder})
	said, _ := run(t, folder)
	next(t, "registration", k.plugins)
	until(t, said, registered)
}

func TestPreferredDevicesAreOfFewNodes(t *testing.T) {
	p, err := newPlugin("lab.test/gpu", "0:4,1:2,2:3")
	if err != nil {
		t.Fatal(err)
	}
	all := func(except ...string) (ids []string) {
		for _, device := range p.devices {
			if !strings.Contains(strings.Join(except, " "), device.ID) {
				ids = append(ids, device.ID)
			}
		}
		return ids
	}
	for _, c := range []struct {
		available, required []string
		size                int
		wanted              string
	}{
		{all(), nil, 1, "numa1-0"}, // the node that it fills most
		{all(), nil, 3, "numa2-0 numa2-1 numa2-2"},
		{all(), nil, 4, "numa0-0 numa0-1 numa0-2 numa0-3"},
		{all(), nil, 6, "numa0-0 numa0-1 numa0-2 numa0-3 numa1-0 numa1-1"},
		{all(), []string{"numa2-1"}, 2, "numa2-1 numa2-0"},
		{all("numa0-0", "numa0-1"), nil, 5, "numa2-0 numa2-1 numa2-2 numa0-2 numa0-3"},
		{all(), []string{"numa0-3", "numa1-1"}, 3, "numa0-3 numa1-1 numa1-0"},
	} {
		if got := strings.Join(p.preferred(c.available, c.required, c.size), " "); got != c.wanted {
			t.Errorf("%d of %v with %v: %s, not %s", c.size, c.available, c.required, got, c.wanted)
		}
	}
}

func TestArguments(t *testing.T) {
	p, folder, err := arguments([]string{"--devices=1:1,0:2", "--resource", "a.test/b-c"})
	if err != nil || len(p.devices) != 3 || p.resource != "a.test/b-c" || p.variable() != "A_TEST_B_C" || folder != "/var/lib/kubelet/device-plugins/" {
		t.Errorf("%v %s %v", p, folder, err)
	}
	for line, wanted := range map[string]string{
		"":                              "--devices is needed",
		"--devices 0":                   `--devices: "0" is not NODE:COUNT`,
		"--devices 0:0":                 `--devices: "0:0" is not NODE:COUNT`,
		"--devices 0:101":               "1 to 100 devices",
		"--devices 0:1,":                `--devices: "" is not NODE:COUNT`,
		"--devices 1024:1":              "a NUMA node of 0 to 1023",
		"--devices -1:1":                `"-1:1" is not NODE:COUNT`,
		"--devices +1:1":                `"+1:1" is not NODE:COUNT`,
		"--devices 0:1:1":               `"0:1:1" is not NODE:COUNT`,
		"--devices 99999999999999999:1": "is not NODE:COUNT",
		"--devices 0:1,00:1":            "NUMA node 0 is named twice",
		"--devices 0:1 --resource gpu":  `--resource: "gpu" is no name of an extended resource`,
		"--devices 0:1 --resource kubernetes.io/gpu":   "is no name of an extended resource",
		"--devices 0:1 --resource a.kubernetes.io/gpu": "is no name of an extended resource",
		"--devices 0:1 --resource requests.test/gpu":   "is no name of an extended resource",
		"--devices 0:1 --resource lab.test/gpu/x":      "is no name of an extended resource",
		"--devices 0:1 --resource lab.test/":           "is no name of an extended resource",
		"--devices 0:1 more":                           `"more" is no option`,
		"--device 0:1":                                 "flag provided but not defined: -device",
		"-h":                                           flag.ErrHelp.Error(),
	} {
		if _, _, err := arguments(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), wanted) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, not %q", line, err, wanted)
		}
	}
}

func TestSystemdIsToldOnce(t *testing.T) {
	place := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: place, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("NOTIFY_SOCKET", place)
	say := told()
	for _, text := range []string{waiting, waiting + " a\nb", waiting + " a\nb", registered} {
		say(text)
	}
	text := make([]byte, 1000)
	for _, wanted := range []string{waiting, waiting + " a b", registered} {
		listener.SetReadDeadline(time.Now().Add(patience))
		count, err := listener.Read(text)
		if err != nil || string(text[:count]) != "STATUS="+wanted {
			t.Errorf("%q %v, not %q", text[:count], err, wanted)
		}
	}
	listener.SetReadDeadline(time.Now())
	if _, err := listener.Read(text); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("told more: %v", err)
	}
}
