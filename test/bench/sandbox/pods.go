package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// patience bounds the wait for one Pod.
const patience = 2 * time.Minute

// benchPods times claims with their Pod, from kubectl apply to a ready container.
func benchPods(ctx context.Context, c *testenv.Cluster, rounds int) error {
	manifests := filepath.Join(c.Root, "test", "demo", "manifests")
	if _, err := c.Kubectl(ctx, "apply", "-f", filepath.Join(manifests, "00-base.yaml")); err != nil {
		return err
	}
	var up, gone []time.Duration
	for range rounds {
		start := time.Now()
		if _, err := c.Kubectl(ctx, "apply", "-f", filepath.Join(manifests, "claim.yaml"), "-f", filepath.Join(manifests, "pod.yaml")); err != nil {
			return err
		}
		if _, err := c.WaitPodReady(ctx, "demo", "writer", patience); err != nil {
			return err
		}
		up = append(up, time.Since(start))

		start = time.Now()
		if _, err := c.Kubectl(ctx, "delete", "--wait", "-f", filepath.Join(manifests, "pod.yaml"), "-f", filepath.Join(manifests, "claim.yaml")); err != nil {
			return err
		}
		if _, err := c.Kubectl(ctx, "wait", "--for=delete", "pv", "--all", "--timeout", patience.String()); err != nil {
			return err
		}
		gone = append(gone, time.Since(start))
	}
	delays := ec2sim.DefaultDelays()
	own := time.Duration(delays.Create + delays.Attach)
	row(fmt.Sprintf("claim and Pod to ready container (median of %d)", rounds), median(up))
	row("  of which EC2 itself: creating and attaching", own)
	row("  the rest: Kubernetes, driver, mkfs, mount, container", median(up)-own)
	row(fmt.Sprintf("Pod and claim deleted to volume gone (median of %d)", rounds), median(gone))
	return nil
}
