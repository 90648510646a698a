package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/driver"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

const instance = "i-0123456789abcdef0"

// benchDriver times each RPC of a volume's life against what EC2 itself takes.
func benchDriver(ctx context.Context, rounds int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp("", "holdfast-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sim, err := ec2sim.New(ec2sim.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = sim.Close() }()
	if err := sim.AddInstance(ec2sim.Instance{ID: instance, Zone: "us-east-1a", Type: "m5.large"}); err != nil {
		return err
	}
	web := httptest.NewServer(sim)
	defer web.Close()

	client, served, err := serve(ctx, web.URL, "unix://"+filepath.Join(dir, "csi.sock"))
	if err != nil {
		return err
	}
	err = measure(ctx, client, sim, rounds)
	cancel()
	return errors.Join(err, <-served)
}

// serve starts the controller service as the driver's binary does.
func serve(ctx context.Context, ec2URL, endpoint string) (csi.ControllerClient, <-chan error, error) {
	cloud := ec2.New(ec2sim.ClientConfig(ec2URL), clock.RealClock{})
	server, err := driver.NewServer(driver.ServerOptions{
		Endpoint:   endpoint,
		Log:        logr.Discard(),
		Identity:   &driver.IdentityService{Name: driver.DefaultName, Version: "bench", Ready: cloud.Reachable},
		Controller: driver.NewControllerService(cloud, cloud, driver.Tagging{}),
	})
	if err != nil {
		return nil, nil, err
	}
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx) }()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, nil, err
	}
	return csi.NewControllerClient(conn), served, nil
}

func measure(ctx context.Context, client csi.ControllerClient, sim *ec2sim.Sim, rounds int) error {
	delays := sim.Delays()
	var took [4][]time.Duration
	before := calls(sim)
	for i := range rounds {
		life, err := oneLife(ctx, client, fmt.Sprintf("pvc-%d", i))
		if err != nil {
			return err
		}
		for j, d := range life {
			took[j] = append(took[j], d)
		}
	}
	fmt.Printf("%-28s %10s %10s %10s %8s\n", "RPC (median of "+fmt.Sprint(rounds)+")", "took", "EC2 itself", "driver", "ratio")
	for j, r := range []struct {
		name string
		ec2  time.Duration
	}{
		{"CreateVolume", time.Duration(delays.Create)},
		{"ControllerPublishVolume", time.Duration(delays.Attach)},
		{"ControllerUnpublishVolume", time.Duration(delays.Detach)},
		{"DeleteVolume", 0}, // not waited for: the volume is deleting
	} {
		m := median(took[j])
		ratio := "-"
		if r.ec2 > 0 {
			ratio = fmt.Sprintf("%.2f", m.Seconds()/r.ec2.Seconds())
		}
		fmt.Printf("%-28s %8.2f s %8.2f s %8.2f s %8s\n", r.name, m.Seconds(), r.ec2.Seconds(), (m - r.ec2).Seconds(), ratio)
	}
	fmt.Printf("EC2 calls a volume's life: %.1f\n", float64(calls(sim)-before)/float64(rounds))
	return nil
}

func calls(sim *ec2sim.Sim) int {
	n := 0
	for _, c := range sim.Calls() {
		n += c.Count
	}
	return n
}

// oneLife creates, attaches, detaches and deletes a volume and tells how long each took.
func oneLife(ctx context.Context, client csi.ControllerClient, name string) ([4]time.Duration, error) {
	var took [4]time.Duration
	capability := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	start := time.Now()
	created, err := client.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:               name,
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 1 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{capability},
		AccessibilityRequirements: &csi.TopologyRequirement{
			Preferred: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": "us-east-1a"}}},
			Requisite: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": "us-east-1a"}}},
		},
	})
	if err != nil {
		return took, err
	}
	took[0] = time.Since(start)
	id := created.GetVolume().GetVolumeId()

	start = time.Now()
	if _, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: instance, VolumeCapability: capability}); err != nil {
		return took, err
	}
	took[1] = time.Since(start)

	start = time.Now()
	if _, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: instance}); err != nil {
		return took, err
	}
	took[2] = time.Since(start)

	start = time.Now()
	if _, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		return took, err
	}
	took[3] = time.Since(start)
	return took, nil
}
