package main

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/test/process"
)

const gib = int64(1) << 30

// fleet is the volumes of a run.
type fleet struct {
	client    *process.Client
	region    *region
	run       string // part of the names, so that runs do not meet
	volumes   []string
	snapshots []string
}

func newFleet(client *process.Client, r *region, run string, n int) *fleet {
	return &fleet{client: client, region: r, run: run, volumes: make([]string, n), snapshots: make([]string, n)}
}

// phase is one step in the volumes' lives.
type phase struct {
	name string
	do   task
	// waitsFor is the action whose state the request waits for; empty: the
	// request does not wait.
	waitsFor string
	// left is how much more there is in EC2 afterwards than was asked for.
	left func(ec2sim.State) int
}

func (f *fleet) phases() []phase {
	return []phase{
		{"created", f.create, "CreateVolume", f.extraVolumes},
		{"attached", f.attach, "AttachVolume", f.extraAttachments},
		{"modified", f.grow, "ModifyVolume", f.extraVolumes},
		{"snapshotted", f.snapshot, "", f.extraSnapshots},
		{"detached", f.detach, "DetachVolume", f.attachments},
		{"unsnapshotted", f.deleteSnapshot, "", func(s ec2sim.State) int { return len(s.Snapshots) }},
		{"deleted", f.deleteVolume, "", func(s ec2sim.State) int { return f.remaining(s) + len(s.Snapshots) }},
	}
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (f *fleet) instance(i int) string { return f.region.instances[i%len(f.region.instances)] }

func (f *fleet) create(ctx context.Context, i int) (bool, error) {
	zone := []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": zoneOf(i % len(f.region.instances))}}}
	out, err := f.client.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:                      fmt.Sprintf("pvc-%s-%d", f.run, i),
		CapacityRange:             &csi.CapacityRange{RequiredBytes: gib},
		VolumeCapabilities:        []*csi.VolumeCapability{capability()},
		Parameters:                map[string]string{"type": "gp3"},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: zone, Preferred: zone},
	})
	if err == nil {
		f.volumes[i] = out.GetVolume().GetVolumeId()
	}
	return true, err
}

func (f *fleet) attach(ctx context.Context, i int) (bool, error) {
	_, err := f.client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: f.volumes[i], NodeId: f.instance(i), VolumeCapability: capability(),
	})
	return true, err
}

func (f *fleet) grow(ctx context.Context, i int) (bool, error) {
	_, err := f.client.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: f.volumes[i], CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}, VolumeCapability: capability(),
	})
	return true, err
}

// snapshot asks until the snapshot is ready, as csi-snapshotter does: with the
// same request again.
func (f *fleet) snapshot(ctx context.Context, i int) (bool, error) {
	out, err := f.client.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
		SourceVolumeId: f.volumes[i], Name: fmt.Sprintf("snapshot-%s-%d", f.run, i),
	})
	if err == nil {
		f.snapshots[i] = out.GetSnapshot().GetSnapshotId()
	}
	return out.GetSnapshot().GetReadyToUse(), err
}

func (f *fleet) detach(ctx context.Context, i int) (bool, error) {
	_, err := f.client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: f.volumes[i], NodeId: f.instance(i)})
	return true, err
}

func (f *fleet) deleteSnapshot(ctx context.Context, i int) (bool, error) {
	_, err := f.client.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: f.snapshots[i]})
	return true, err
}

func (f *fleet) deleteVolume(ctx context.Context, i int) (bool, error) {
	_, err := f.client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: f.volumes[i]})
	return true, err
}

// distinct is how many of the ids there are, without those that never came.
func distinct(ids []string) map[string]int {
	m := map[string]int{}
	for i, id := range ids {
		if id != "" {
			m[id] = i
		}
	}
	return m
}

func (f *fleet) extraVolumes(s ec2sim.State) int { return len(s.Volumes) - len(distinct(f.volumes)) }

func (f *fleet) extraSnapshots(s ec2sim.State) int {
	return len(s.Snapshots) - len(distinct(f.snapshots))
}

// extraAttachments counts the attachments that are not a volume's to its own instance.
func (f *fleet) extraAttachments(s ec2sim.State) int {
	extra, owner := 0, distinct(f.volumes)
	for _, v := range s.Volumes {
		i, ours := owner[v.ID]
		for _, a := range v.Attachments {
			if !ours || a.InstanceID != f.instance(i) {
				extra++
			}
		}
	}
	return extra + f.extraVolumes(s)
}

func (f *fleet) attachments(s ec2sim.State) int {
	n := 0
	for _, v := range s.Volumes {
		n += len(v.Attachments)
	}
	return n
}

// remaining counts the volumes that are not on their way out.
func (f *fleet) remaining(s ec2sim.State) int {
	n := 0
	for _, v := range s.Volumes {
		if v.State != "deleting" {
			n++
		}
	}
	return n
}

// result is what a phase showed.
type result struct {
	phase
	outcome
	traffic
	volumes   int
	ec2Median time.Duration
	buckets   time.Duration
	leaked    int
	peak      memory
}

// run does the phases one after the other; where one does not settle all
// volumes within limit the run goes on, so that the rest is told.
func (f *fleet) runPhases(ctx context.Context, workers int, limit time.Duration, gauge *gauge, show func(result)) ([]result, error) {
	var all []result
	for _, p := range f.phases() {
		f.region.reset()
		gauge.begin()
		phaseCtx, cancel := context.WithTimeout(ctx, limit)
		out := work(phaseCtx, workers, len(f.volumes), p.do)
		cancel()
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		t := f.region.traffic()
		r := result{
			phase: p, outcome: out, traffic: t, volumes: len(f.volumes), leaked: p.left(f.region.State()),
			ec2Median: f.region.drawnMedian(p.waitsFor), buckets: f.region.bucketTime(t), peak: gauge.peak(),
		}
		show(r)
		all = append(all, r)
	}
	return all, nil
}
