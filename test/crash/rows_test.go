package crash

import (
	"context"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

const (
	gib      = int64(1) << 30
	instance = "i-0000000000000a001"
	zone     = "us-east-1a"
	// short is how long EC2's states last: long enough that a request waits.
	short = ec2sim.Duration(100 * time.Millisecond)
	// lag is how far EC2's reads lag where they do: longer than a controller
	// takes to start.
	lag = ec2sim.Duration(2 * time.Second)
)

// row is a change that EC2 accepts and whose answer nobody hears.
type row struct {
	action string
	// in tells rows of the same action apart.
	in string
	// prepare brings the site to where the change is asked for.
	prepare func(s *site) trial
}

func (r row) name() string { return strings.TrimSuffix(r.action+" "+r.in, " ") }

// trial is the request of a row, which may be repeated, and what has to hold
// once it has succeeded.
type trial struct {
	request func(context.Context) error
	check   func()
}

var rows = []row{
	{"CreateVolume", "", func(s *site) trial {
		var got *csi.Volume
		return trial{
			func(ctx context.Context) (err error) { got, err = s.create(ctx, "pvc-1", nil); return err },
			func() { s.holds(1, 0); s.isVolume(got, 1) },
		}
	}},
	{"CopyVolumes", "", func(s *site) trial {
		source := s.volume("pvc-source")
		var got *csi.Volume
		return trial{
			func(ctx context.Context) (err error) {
				got, err = s.create(ctx, "pvc-copy", &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
					Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source}}})
				return err
			},
			func() {
				s.holds(2, 0)
				s.isVolume(got, 1)
				if v, _ := s.sim.Volume(got.GetVolumeId()); v.SourceVolumeID != source {
					s.t.Errorf("the copy %s is of volume %q, want of %s", v.ID, v.SourceVolumeID, source)
				}
			},
		}
	}},
	{"AttachVolume", "", func(s *site) trial {
		id, device := s.volume("pvc-1"), ""
		return trial{
			func(ctx context.Context) (err error) { device, err = s.publish(ctx, id); return err },
			func() {
				s.holds(1, 0)
				v, _ := s.sim.Volume(id)
				if len(v.Attachments) != 1 || v.Attachments[0].State != "attached" || v.Attachments[0].Device != device {
					s.t.Errorf("volume %s has attachments %+v, want one as %q, attached", id, v.Attachments, device)
				}
			},
		}
	}},
	{"DetachVolume", "", func(s *site) trial {
		id := s.attached("pvc-1")
		return trial{
			func(ctx context.Context) error {
				_, err := s.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: instance})
				return err
			},
			func() {
				s.holds(1, 0)
				if v, _ := s.sim.Volume(id); v.State != "available" || len(v.Attachments) != 0 {
					s.t.Errorf("volume %s is %s with attachments %+v, want available with none", id, v.State, v.Attachments)
				}
			},
		}
	}},
	{"ModifyVolume", "growing", func(s *site) trial {
		id, size := s.volume("pvc-1"), int64(0)
		return trial{
			func(ctx context.Context) error {
				out, err := s.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
					VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}, VolumeCapability: capability()})
				size = out.GetCapacityBytes()
				return err
			},
			func() {
				s.holds(1, 0)
				v, _ := s.sim.Volume(id)
				if size != 2*gib || v.SizeGiB != 2 || len(v.Modifications) != 1 {
					s.t.Errorf("answered %d bytes; volume %s has %d GiB after %d changes; want 2 GiB after 1: EC2 allows few changes a day", size, id, v.SizeGiB, len(v.Modifications))
				}
			},
		}
	}},
	{"ModifyVolume", "for a class", func(s *site) trial {
		return s.modified(nil, map[string]string{"throughput": "200", "tagSpecification_1": "team=db"}, 200, "db")
	}},
	{"CreateTags", "", func(s *site) trial {
		return s.modified(nil, map[string]string{"throughput": "200", "tagSpecification_1": "team=db"}, 200, "db")
	}},
	{"DeleteTags", "", func(s *site) trial {
		return s.modified(map[string]string{"tagSpecification_1": "team=db"}, map[string]string{"throughput": "200", "tagDeletion_1": "team"}, 200, "")
	}},
	{"CreateSnapshot", "", func(s *site) trial {
		id, snapshot := s.volume("pvc-1"), ""
		return trial{
			func(ctx context.Context) (err error) {
				snapshot, err = s.snapshot(ctx, id, "snapshot-1", nil)
				return err
			},
			func() {
				s.holds(1, 1)
				if sn, ok := s.sim.Snapshot(snapshot); !ok || sn.VolumeID != id {
					s.t.Errorf("answered snapshot %q, of volume %q; want one of %s", snapshot, sn.VolumeID, id)
				}
			},
		}
	}},
	{"CreateSnapshots", "", func(s *site) trial {
		ids := []string{s.attached("pvc-1"), s.attached("pvc-2")}
		var got *csi.VolumeGroupSnapshot
		return trial{
			func(ctx context.Context) error {
				out, err := csi.NewGroupControllerClient(s.Conn).CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "group-1", SourceVolumeIds: ids})
				got = out.GetGroupSnapshot()
				return err
			},
			func() {
				s.holds(2, 2)
				if n := len(got.GetSnapshots()); n != 2 {
					s.t.Errorf("answered %d snapshots, want 2", n)
				}
				for _, snapshot := range got.GetSnapshots() {
					if sn, ok := s.sim.Snapshot(snapshot.GetSnapshotId()); !ok || sn.VolumeID != snapshot.GetSourceVolumeId() {
						s.t.Errorf("answered %v, which EC2 has not", snapshot)
					}
				}
			},
		}
	}},
	{"CreateSnapshot", "with more to come", func(s *site) trial { return s.equipped() }},
	{"EnableFastSnapshotRestores", "", func(s *site) trial { return s.equipped() }},
	{"LockSnapshot", "", func(s *site) trial { return s.equipped() }},
	{"DisableFastSnapshotRestores", "", func(s *site) trial {
		id := s.snapshotted("pvc-1", map[string]string{"fastSnapshotRestoreAvailabilityZones": zone})
		return trial{
			func(ctx context.Context) error {
				_, err := s.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
				return err
			},
			func() { s.holds(1, 0) },
		}
	}},
	{"DeleteSnapshot", "", func(s *site) trial {
		id := s.snapshotted("pvc-1", nil)
		return trial{
			func(ctx context.Context) error {
				_, err := s.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
				return err
			},
			func() { s.holds(1, 0) },
		}
	}},
	{"DeleteSnapshot", "of a group", func(s *site) trial {
		ids := []string{s.attached("pvc-1"), s.attached("pvc-2")}
		gone := &csi.DeleteVolumeGroupSnapshotRequest{}
		s.must("snapshot both", func(ctx context.Context) error {
			out, err := csi.NewGroupControllerClient(s.Conn).CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "group-1", SourceVolumeIds: ids})
			gone.GroupSnapshotId = out.GetGroupSnapshot().GetGroupSnapshotId()
			for _, snapshot := range out.GetGroupSnapshot().GetSnapshots() {
				gone.SnapshotIds = append(gone.SnapshotIds, snapshot.GetSnapshotId())
			}
			return err
		})
		return trial{
			func(ctx context.Context) error {
				_, err := csi.NewGroupControllerClient(s.Conn).DeleteVolumeGroupSnapshot(ctx, gone)
				return err
			},
			func() { s.holds(2, 0) },
		}
	}},
	{"DeleteVolume", "", func(s *site) trial {
		id := s.volume("pvc-1")
		return trial{
			func(ctx context.Context) error {
				_, err := s.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
				return err
			},
			func() { s.holds(0, 0) },
		}
	}},
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (s *site) create(ctx context.Context, name string, from *csi.VolumeContentSource) (*csi.Volume, error) {
	where := []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": zone}}}
	out, err := s.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, VolumeCapabilities: []*csi.VolumeCapability{capability()},
		VolumeContentSource: from, AccessibilityRequirements: &csi.TopologyRequirement{Requisite: where, Preferred: where},
	})
	return out.GetVolume(), err
}

// volume makes a volume and returns its id.
func (s *site) volume(name string) string {
	s.t.Helper()
	var made *csi.Volume
	s.must("create "+name, func(ctx context.Context) (err error) { made, err = s.create(ctx, name, nil); return err })
	return made.GetVolumeId()
}

// publish attaches a volume and returns the device's name.
func (s *site) publish(ctx context.Context, id string) (string, error) {
	out, err := s.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: instance, VolumeCapability: capability()})
	return out.GetPublishContext()["devicePath"], err
}

// attached makes a volume and attaches it.
func (s *site) attached(name string) string {
	s.t.Helper()
	id := s.volume(name)
	s.must("attach "+id, func(ctx context.Context) error { _, err := s.publish(ctx, id); return err })
	return id
}

func (s *site) snapshot(ctx context.Context, volume, name string, parameters map[string]string) (string, error) {
	out, err := s.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: volume, Name: name, Parameters: parameters})
	return out.GetSnapshot().GetSnapshotId(), err
}

// snapshotted makes a volume and a snapshot of it, whose id it returns.
func (s *site) snapshotted(name string, parameters map[string]string) string {
	s.t.Helper()
	volume, id := s.volume(name), ""
	s.must("snapshot "+volume, func(ctx context.Context) (err error) {
		id, err = s.snapshot(ctx, volume, "snapshot-of-"+name, parameters)
		return err
	})
	return id
}

// modified is a request for what a VolumeAttributesClass wants, after another
// class, which EC2 is asked for one by one; and what the volume then has.
func (s *site) modified(before, class map[string]string, throughputMiBs int32, team string) trial {
	id := s.volume("pvc-1")
	modify := func(ctx context.Context, class map[string]string) error {
		_, err := s.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: class})
		return err
	}
	if before != nil {
		s.must("modify "+id, func(ctx context.Context) error { return modify(ctx, before) })
	}
	return trial{
		func(ctx context.Context) error { return modify(ctx, class) },
		func() {
			s.holds(1, 0)
			v, _ := s.sim.Volume(id)
			if v.ThroughputMiBs != throughputMiBs || v.Tags["team"] != team || len(v.Modifications) != 1 {
				s.t.Errorf("volume %s has %d MiB/s after %d changes, and team %q; want %d after 1, and %q", id, v.ThroughputMiBs, len(v.Modifications), v.Tags["team"], throughputMiBs, team)
			}
		},
	}
}

// equipped is a request for a snapshot with fast restore and a lock, which EC2
// is asked for one by one.
func (s *site) equipped() trial {
	id, snapshot := s.volume("pvc-1"), ""
	class := map[string]string{"fastSnapshotRestoreAvailabilityZones": zone, "lockMode": "governance", "lockDuration": "1"}
	return trial{
		func(ctx context.Context) (err error) {
			snapshot, err = s.snapshot(ctx, id, "snapshot-1", class)
			return err
		},
		func() {
			s.holds(1, 1)
			sn, _ := s.sim.Snapshot(snapshot)
			if len(sn.FastRestores) != 1 || sn.FastRestores[0].Zone != zone || sn.Lock == nil || sn.Lock.Mode != "governance" {
				s.t.Errorf("snapshot %s has fast restore in %+v and lock %+v, want %s and governance", snapshot, sn.FastRestores, sn.Lock, zone)
			}
		},
	}
}

// holds checks how many volumes and snapshots there are in EC2, beside those
// that are on their way out.
func (s *site) holds(volumes, snapshots int) {
	s.t.Helper()
	state := s.sim.State()
	alive := 0
	for _, v := range state.Volumes {
		if v.State != "deleting" {
			alive++
		}
	}
	if alive != volumes || len(state.Snapshots) != snapshots {
		s.t.Errorf("EC2 has %d volumes and %d snapshots, want %d and %d: %+v", alive, len(state.Snapshots), volumes, snapshots, state)
	}
}

// isVolume checks a volume that was answered against EC2's.
func (s *site) isVolume(got *csi.Volume, sizeGiB int32) {
	s.t.Helper()
	v, ok := s.sim.Volume(got.GetVolumeId())
	if !ok || v.State != "available" || v.SizeGiB != sizeGiB || got.GetCapacityBytes() != int64(sizeGiB)*gib || v.Zone != zone {
		s.t.Errorf("answered %+v; EC2's volume is %+v; want it available, of %d GiB, in %s", got, v, sizeGiB, zone)
	}
}
