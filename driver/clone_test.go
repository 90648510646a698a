package driver_test

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// cloneOf asks for a copy of a volume.
func cloneOf(id string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
	}
}

func in(zones ...string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		var all []*csi.Topology
		for _, z := range zones {
			all = append(all, &csi.Topology{Segments: map[string]string{"topology.kubernetes.io/zone": z}})
		}
		r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: all, Preferred: all}
	}
}

func ofSize(gibs int64) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.CapacityRange = &csi.CapacityRange{RequiredBytes: gibs * gib} }
}

func TestClone(t *testing.T) {
	c := newCluster(t)
	source := c.volume("pvc-1").GetVolumeId()
	if _, err := c.publish(source, nodeA); err != nil {
		t.Fatal(err)
	}
	type change = func(*csi.CreateVolumeRequest)
	set := func(k, v string) change { return func(r *csi.CreateVolumeRequest) { r.Parameters[k] = v } }
	for name, tc := range map[string]struct {
		why    string
		change []change
		gib    int64
		sim    ec2sim.Shape
	}{
		"alike":        {"size and type as asked for", nil, 10, ec2sim.Shape{SizeGiB: 10, Type: "gp3", IOPS: 3000, ThroughputMiBs: 125}},
		"no size":      {"as large as its source, not the default size", []change{func(r *csi.CreateVolumeRequest) { r.CapacityRange = nil }}, 10, ec2sim.Shape{SizeGiB: 10, Type: "gp3", IOPS: 3000, ThroughputMiBs: 125}},
		"larger":       {"a node grows its filesystem", []change{ofSize(12)}, 12, ec2sim.Shape{SizeGiB: 12, Type: "gp3", IOPS: 3000, ThroughputMiBs: 125}},
		"another type": {"the class of the clone decides", []change{set("type", "io2"), set("iops", "500")}, 10, ec2sim.Shape{SizeGiB: 10, Type: "io2", IOPS: 500}},
		"faster":       {"the class of the clone decides", []change{set("iops", "4000"), set("throughput", "250")}, 10, ec2sim.Shape{SizeGiB: 10, Type: "gp3", IOPS: 4000, ThroughputMiBs: 250}},
		"other zone preferred": {"the node that was chosen may be elsewhere: its source's zone is allowed, and the scheduler will see it", []change{in(zoneB, zoneA)},
			10, ec2sim.Shape{SizeGiB: 10, Type: "gp3", IOPS: 3000, ThroughputMiBs: 125}},
		"any zone": {"no topology", []change{func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = nil }}, 10, ec2sim.Shape{SizeGiB: 10, Type: "gp3", IOPS: 3000, ThroughputMiBs: 125}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.volume("clone-"+name, append(tc.change, cloneOf(source))...)
			want := &csi.Volume{VolumeId: got.GetVolumeId(), CapacityBytes: tc.gib * gib,
				AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": zoneA}}},
				ContentSource:      wanted("", cloneOf(source)).GetVolumeContentSource()}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
			v, _ := c.sim.Volume(got.GetVolumeId())
			if v.SourceVolumeID != source || v.SizeGiB != tc.sim.SizeGiB || v.Type != tc.sim.Type || v.IOPS != tc.sim.IOPS || v.ThroughputMiBs != tc.sim.ThroughputMiBs {
				t.Errorf("%s: EC2 made %+v, want a copy of %s as %+v", tc.why, v, source, tc.sim)
			}
			if v.Tags["CSIVolumeName"] != "clone-"+name || v.Tags["ebs.csi.aws.com/cluster"] != "true" || v.Tags["env"] != "test" {
				t.Errorf("tags of the copy: %v", v.Tags)
			}
		})
	}
	if n := c.calls("CreateVolume"); n != 1 {
		t.Errorf("%d CreateVolume calls, want the source's alone", n)
	}
}

// What is encrypted stays so, and a class that encrypts does with a copy of a plain volume too.
func TestEncryptionOfAClone(t *testing.T) {
	c := newCluster(t)
	encrypted := func(r *csi.CreateVolumeRequest) { r.Parameters["encrypted"] = "true" }
	withKey := func(r *csi.CreateVolumeRequest) {
		r.Parameters["kmsKeyId"] = "arn:aws:kms:us-east-1:000000000000:key/k"
	}
	plain, secret := c.volume("plain").GetVolumeId(), c.volume("secret", encrypted).GetVolumeId()
	for _, tc := range []struct {
		why, source string
		change      func(*csi.CreateVolumeRequest)
		want        bool
		key         string
	}{
		{"plain of plain", plain, func(*csi.CreateVolumeRequest) {}, false, ""},
		{"encrypted of plain", plain, encrypted, true, ""},
		{"with a key", plain, withKey, true, "arn:aws:kms:us-east-1:000000000000:key/k"},
		{"of encrypted, the class says nothing", secret, func(*csi.CreateVolumeRequest) {}, true, ""},
	} {
		for range 2 { // a repeat finds it, and takes it for what is wanted
			v, _ := c.sim.Volume(c.volume(tc.why, tc.change, cloneOf(tc.source)).GetVolumeId())
			if v.Encrypted != tc.want || tc.key != "" && v.KMSKeyID != tc.key {
				t.Errorf("%s: encrypted %t with %q", tc.why, v.Encrypted, v.KMSKeyID)
			}
		}
	}
}

// DRIVER rule 5 for clones, and the code of each refusal.
func TestCloneRefusals(t *testing.T) {
	c := newCluster(t)
	source, other := c.volume("pvc-1").GetVolumeId(), c.volume("pvc-2").GetVolumeId()
	clone := c.volume("clone", cloneOf(source)).GetVolumeId()
	type change = func(*csi.CreateVolumeRequest)
	for name, tc := range map[string]struct {
		name   string
		change []change
		want   codes.Code
		texts  []string
	}{
		"again":                      {"clone", []change{cloneOf(source)}, codes.OK, nil},
		"again, another zone too":    {"clone", []change{cloneOf(source), in(zoneB, zoneA)}, codes.OK, nil},
		"of another volume":          {"clone", []change{cloneOf(other)}, codes.AlreadyExists, []string{clone, source, other}},
		"empty":                      {"clone", nil, codes.AlreadyExists, []string{clone, source}},
		"a clone of what was empty":  {"pvc-2", []change{cloneOf(source)}, codes.AlreadyExists, []string{other, source}},
		"of another size":            {"clone", []change{cloneOf(source), ofSize(20)}, codes.AlreadyExists, []string{"10", "20"}},
		"outside the zone, existing": {"clone", []change{cloneOf(source), in(zoneB)}, codes.AlreadyExists, []string{zoneA, zoneB}},
		"outside the zone":           {"new", []change{cloneOf(source), in(zoneB)}, codes.ResourceExhausted, []string{source, zoneA, zoneB}},
		"smaller":                    {"new", []change{cloneOf(source), ofSize(9)}, codes.OutOfRange, []string{"10 GiB", "9"}},
		"no such source":             {"new", []change{cloneOf("vol-0123456789abcdef0")}, codes.NotFound, []string{"vol-0123456789abcdef0"}},
		"no id":                      {"new", []change{cloneOf("my-volume")}, codes.NotFound, []string{"my-volume"}},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := c.CreateVolume(t.Context(), wanted(tc.name, tc.change...))
			wantCode(t, name, err, tc.want, tc.texts...)
			if err == nil && answer.GetVolume().GetVolumeId() != clone {
				t.Errorf("answered %v, want %s", answer, clone)
			}
		})
	}
	going := c.volume("pvc-3").GetVolumeId()
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: going}); err != nil {
		t.Fatal(err)
	}
	_, err := c.CreateVolume(t.Context(), wanted("new", cloneOf(going)))
	wantCode(t, "a source that is being deleted", err, codes.NotFound, going)
	if n := len(c.sim.Volumes()); n > 4 {
		t.Errorf("%d volumes, want no second one", n)
	}
}

// A source makes one copy at a time, and none before it is there itself: both pass.
func TestCloneOfASourceThatIsBusy(t *testing.T) {
	c := newCluster(t)
	source := c.volume("pvc-1").GetVolumeId()
	delays := c.sim.Delays()
	delays.Initialize = ec2sim.Duration(time.Hour)
	c.sim.SetDelays(delays)
	c.volume("first", cloneOf(source))
	_, err := c.CreateVolume(t.Context(), wanted("second", cloneOf(source)))
	wantCode(t, "a copy is being initialized", err, codes.Aborted, "ConcurrentCopyVolumeLimitExceeded")
	c.clock.Step(2 * time.Hour)
	c.volume("second", cloneOf(source))

	c.sim.FailNext("CopyVolumes", "IncorrectState", 1)
	_, err = c.CreateVolume(t.Context(), wanted("third", cloneOf(source)))
	wantCode(t, "the source is not ready", err, codes.Aborted)
	c.clock.Step(2 * time.Hour)
	c.volume("third", cloneOf(source))
}

// DRIVER rules 1 and 2 for CopyVolumes: accepted and the answer lost, or accepted and vanished.
func TestCloneWhoseAnswerIsLost(t *testing.T) {
	c := newCluster(t)
	source := c.volume("pvc-1").GetVolumeId()
	for _, restarted := range []bool{false, true} {
		if err := c.sim.Inject(ec2sim.Fault{Action: "CopyVolumes", LostAnswer: ec2sim.LostAfter, Count: 2}); err != nil {
			t.Fatal(err)
		}
		name := map[bool]string{false: "kept", true: "restarted"}[restarted]
		if _, err := c.CreateVolume(t.Context(), wanted(name, cloneOf(source))); status.Code(err) != codes.Aborted {
			t.Errorf("%v while the outcome is not known, want ABORTED", err)
		}
		if restarted {
			c.restart()
		}
		before := len(c.sim.Volumes())
		_, err := c.CreateVolume(t.Context(), wanted(name, cloneOf(source), in(zoneB)))
		wantCode(t, "asked for elsewhere meanwhile, it is not given up", err, codes.AlreadyExists, zoneA, zoneB)
		c.volume(name, cloneOf(source))
		if n := len(c.sim.Volumes()); n != before {
			t.Errorf("%d volumes after the repeat, %d before it", n, before)
		}
		c.clock.Step(time.Minute)
	}
	if err := c.sim.Inject(ec2sim.Fault{Action: "CopyVolumes", Outcome: ec2sim.OutcomeVanish}); err != nil {
		t.Fatal(err)
	}
	_, err := c.CreateVolume(t.Context(), wanted("ghost", cloneOf(source)))
	wantCode(t, "the copy vanishes", err, codes.Aborted, "encryption")
	before := len(c.sim.Volumes())
	c.volume("ghost", cloneOf(source))
	if n := len(c.sim.Volumes()); n != before+1 {
		t.Errorf("%d volumes after the cure, want %d", n, before+1)
	}
}
