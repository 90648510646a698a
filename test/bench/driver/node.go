package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/test/process"
)

// nodeRequests is how many requests the node process answers before its memory
// is looked at: kubelet asks for the capabilities with every mount.
const nodeRequests = 1000

// measureNode starts Holdfast's node process and tells how much memory it holds
// at rest, after requests that touch no disk.
func measureNode(ctx context.Context, binary, dir string) (f figure, err error) {
	f = figure{name: "node process's memory at rest", atMost: 25, unit: "MiB"}
	sim, err := ec2sim.New(ec2sim.Config{})
	if err != nil {
		return f, err
	}
	if err := sim.AddInstance(ec2sim.Instance{ID: instanceID(0), Zone: zones[0], Sources: []string{"127.0.0.1"}}); err != nil {
		return f, err
	}
	imds := httptest.NewServer(sim.IMDS())
	defer imds.Close()
	group, groupErr := newMemoryGroup(fmt.Sprintf("holdfast-bench-node-%d", os.Getpid()))
	o := process.Options{Binary: binary, Dir: dir}
	if groupErr == nil {
		o.Wrap = group.enter()
		defer func() { err = errors.Join(err, group.remove()) }()
	}
	node, err := process.StartNode(ctx, o, imds.URL)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	if err := useNode(ctx, node.Endpoint); err != nil {
		return f, err
	}
	resident, err := readKey(fmt.Sprintf("/proc/%d/status", node.PID()), "VmRSS", ":")
	if group == nil || err != nil {
		f.name += "*"
		f.is = mib(resident * 1024)
		return f, err
	}
	set, err := group.workingSet()
	f.is, f.note = mib(set), residentNote(resident*1024)
	return f, err
}

// useNode asks the node what kubelet asks.
func useNode(ctx context.Context, endpoint string) error {
	client, err := process.Dial(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the process ends anyway
	if _, err := client.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}); err != nil {
		return err
	}
	for range nodeRequests {
		if _, err := client.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{}); err != nil {
			return err
		}
	}
	return nil
}
