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

// gathering is for how long a driver gathers the changes of a volume: EC2 takes
// four a day, and a claim's size and class come as two requests.
const gathering = 2 * time.Second

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
	// gathers is for how long the request may wait for further ones that EC2 is
	// sent together with it, before the driver is said to add anything.
	gathers time.Duration
	// left is how much more there is in EC2 afterwards than was asked for.
	left func(ec2sim.State) int
}

func (f *fleet) phases() []phase {
	return []phase{
		{name: "created", do: f.create, waitsFor: "CreateVolume", left: f.extraVolumes},
		{name: "attached", do: f.attach, waitsFor: "AttachVolume", left: f.extraAttachments},
		{name: "modified", do: f.grow, waitsFor: "ModifyVolume", gathers: gathering, left: f.extraVolumes},
		{name: "snapshotted", do: f.snapshot, left: f.extraSnapshots},
		{name: "detached", do: f.detach, waitsFor: "DetachVolume", left: f.attachments},
		{name: "unsnapshotted", do: f.deleteSnapshot, left: func(s ec2sim.State) int { return len(s.Snapshots) }},
		{name: "deleted", do: f.deleteVolume, left: func(s ec2sim.State) int { return f.remaining(s) + len(s.Snapshots) }},
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
	lateness
	volumes int
	buckets time.Duration
	leaked  int
	peak    memory
}

// lateness is how much later than EC2's own time requests were answered. Each
// volume is compared with itself: with times as spread as EC2's, the difference
// between the medians of two samples would say more about the samples than
// about the driver.
type lateness struct {
	own    []time.Duration // what EC2 drew for each volume's call
	adds   []time.Duration // how much later, beyond phase.gathers, the volume was answered
	absent int             // volumes that were answered although EC2 drew no time for a call
}

// lateness compares each volume's answer with what EC2 drew for it.
func (f *fleet) lateness(p phase, answered map[int]time.Duration) lateness {
	var l lateness
	if p.waitsFor == "" {
		return l
	}
	for i, after := range answered {
		own, ok := f.region.drew(p.waitsFor, f.volumes[i])
		if !ok {
			l.absent++
			continue
		}
		l.own, l.adds = append(l.own, own), append(l.adds, after-own-p.gathers)
	}
	return l
}

// share is the median of what was added, in percent of EC2's own median.
func (l lateness) share() float64 {
	return 100 * quantile(l.adds, 0.5).Seconds() / quantile(l.own, 0.5).Seconds()
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
			phase: p, outcome: out, traffic: t, lateness: f.lateness(p, out.answered), volumes: len(f.volumes), leaked: p.left(f.region.State()),
			buckets: f.region.bucketTime(t), peak: gauge.peak(),
		}
		show(r)
		all = append(all, r)
	}
	return all, nil
}
