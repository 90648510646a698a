package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/test/bench"
	"github.com/holdfast-dev/holdfast/test/process"
)

// stack is what makes VolumeSnapshots ready: EC2, the driver, its sidecar, and the
// cluster's snapshot-controller.
type stack struct {
	sim *ec2sim.Sim
	url string
}

// startStack starts all of it. The volumes are there already: see volumes.
func (p *place) startStack(ctx context.Context, o options) (*stack, error) {
	sim, err := ec2sim.New(ec2sim.Config{Delays: &ec2sim.Delays{}})
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(sim)
	passing, end := context.WithCancel(context.Background())
	go sim.Run(passing)
	p.stops = append(p.stops, func() error { end(); server.Close(); return sim.Close() })
	st := &stack{sim: sim, url: server.URL}

	binary, err := process.Build(ctx, p.Dir)
	if err != nil {
		return nil, err
	}
	log, err := p.log("driver")
	if err != nil {
		return nil, err
	}
	driver, err := process.StartController(ctx, process.Options{Binary: binary, Dir: p.Dir, Log: log}, st.url)
	if err != nil {
		return nil, err
	}
	p.stops = append(p.stops, driver.Stop)
	// What config/driver says, and what the sandbox and most clusters have but
	// for the rate, which the controller's makers leave at 5 a second.
	if err := p.program(ctx, "csi-snapshotter", "--csi-address="+strings.TrimPrefix(driver.Endpoint, "unix://"), "--timeout=60s", "--retry-interval-max=1m",
		"--worker-threads=100", "--kube-api-qps=50", "--kube-api-burst=100", "--extra-create-metadata", "--resync-period=30s"); err != nil {
		return nil, err
	}
	return st, p.program(ctx, "snapshot-controller", fmt.Sprintf("--kube-api-qps=%d", o.qps), fmt.Sprintf("--kube-api-burst=%d", 2*o.qps))
}

// program starts one of the built programs against the server.
func (p *place) program(ctx context.Context, name string, args ...string) error {
	kubeconfig, err := p.Kubeconfig()
	if err != nil {
		return err
	}
	log, err := p.log(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.Env.BinaryAssetsDirectory, name), append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.stops = append(p.stops, func() error {
		_ = cmd.Process.Kill() // an error means that it has ended
		var killed *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &killed) {
			return err
		}
		return nil
	})
	return nil
}

// volumes makes volumes at once, and then gives EC2 its own times and bounds.
func (st *stack) volumes(ctx context.Context, n int, throttle bool) ([]string, error) {
	api := ec2.NewFromConfig(ec2sim.ClientConfig(st.url))
	ids := make([]string, n)
	err := bench.Parallel(ctx, workers, n, func(ctx context.Context, i int) error {
		v, err := api.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(20), VolumeType: types.VolumeTypeGp3})
		if err != nil {
			return fmt.Errorf("make a volume: %w", err)
		}
		ids[i] = aws.ToString(v.VolumeId)
		return nil
	})
	if err != nil {
		return nil, err
	}
	st.sim.ResetCalls()
	st.sim.SetThrottle(throttle)
	return ids, st.sim.SetDelays(ec2sim.Delays{Spread: 0.42, Snapshot: ec2sim.Duration(20 * time.Second), SnapshotSpacing: ec2sim.DefaultDelays().SnapshotSpacing})
}

// calls are what EC2 was asked, by action and how it answered.
func (st *stack) calls() (all []string) {
	for _, c := range st.sim.Calls() {
		all = append(all, fmt.Sprintf("%s %s %d", c.Action, c.Code, c.Count))
	}
	return all
}
