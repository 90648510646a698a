package driver_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func parameters(more map[string]string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { maps.Copy(r.Parameters, more) }
}

func filesystem(fsType string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].GetMount().FsType = fsType }
}

// TestFormatOptionsTravel: new and found volumes carry the same volume context.
func TestFormatOptionsTravel(t *testing.T) {
	c := newCluster(t)
	for range 2 {
		vol := c.volume("pvc-1", parameters(map[string]string{"blockSize": "4096", "ext4BigAlloc": "true", "ext4ClusterSize": "32k"}))
		want := map[string]string{"blocksize": "4096", "ext4bigalloc": "true", "ext4clustersize": "32768"}
		if diff := cmp.Diff(want, vol.GetVolumeContext()); diff != "" {
			t.Errorf("volume context (-want +got)\n%s", diff)
		}
		c.restart()
	}
}

// DRIVER rules 11 and 15: what cannot be is refused before EC2 is asked anything.
func TestParametersAreJudgedBeforeAnyCall(t *testing.T) {
	c := newCluster(t)
	for name, tc := range map[string]struct {
		why    string
		change []func(*csi.CreateVolumeRequest)
		texts  []string
	}{
		"xfs, ext4's": {"xfs knows no bigalloc", []func(*csi.CreateVolumeRequest){filesystem("xfs"), parameters(map[string]string{"ext4BigAlloc": "true"})}, []string{"ext4BigAlloc", "xfs"}},
		"cluster":     {"clusters are bigalloc's", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"ext4ClusterSize": "65536"})}, []string{"ext4ClusterSize", "ext4BigAlloc"}},
		"inodes":      {"more inodes than 10 GiB hold", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"numberOfInodes": "41943040"})}, []string{"numberOfInodes 41943040"}},
		"encrypted":   {"never silently unencrypted", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"encrypted": "yes"})}, []string{"encrypted", "yes"}},
		"rate":        {"EC2 has a highest rate", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"volumeInitializationRate": "301"})}, []string{"volumeInitializationRate 301", "100 to 300"}},
		"unknown":     {"a mistyped key never passes", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"blocksise": "4096"})}, []string{"blocksise"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.CreateVolume(t.Context(), wanted("pvc-1", tc.change...))
			wantCode(t, tc.why, err, codes.InvalidArgument, tc.texts...)
		})
	}
	if calls := c.sim.Calls(); len(calls) != 0 {
		t.Errorf("EC2 was asked: %+v", calls)
	}
}

// Classes of Kubernetes' own plugin have a rate of IOPS also where the type lets
// nobody choose it, and that ignored it: so must this driver, or their claims stay
// pending. The other numbers, which that plugin did not know, are refused.
func TestRateThatATypeDoesNotHave(t *testing.T) {
	c := newCluster(t)
	for n, params := range []map[string]string{
		{"type": "gp2", "iopsPerGB": "10", "allowautoiopspergbincrease": "true"}, // as csi-translation-lib makes it
		{"type": "gp2", "iopsPerGB": "10", "fsType": "ext4"},
		{"type": "standard", "iopsPerGB": "30"},
	} {
		vol := c.volume(fmt.Sprintf("pvc-%d", n), parameters(params))
		made, _ := c.sim.Volume(vol.GetVolumeId())
		if made.Type != params["type"] {
			t.Errorf("%v made %s", params, made.Type)
		}
		if rate, ok := made.Tags["ebs.csi.aws.com/IOPSPerGb"]; ok {
			t.Errorf("%v is remembered as a rate of %s", params, rate)
		}
	}
}

// TestAttachUntilInitialized: a restored volume of such a class is attached once
// EC2 says that all its content is there, and no EC2 call is spent on an empty one.
func TestAttachUntilInitialized(t *testing.T) {
	c := newCluster(t)
	wait := parameters(map[string]string{"blockAttachUntilInitialized": "true", "volumeInitializationRate": "100"})
	empty := c.volume("pvc-1", wait)
	if empty.GetVolumeContext() != nil {
		t.Errorf("an empty volume has nothing to wait for, its context is %v", empty.GetVolumeContext())
	}
	made, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: empty.GetVolumeId()})
	if err != nil {
		t.Fatal(err)
	}
	c.clock.Step(time.Hour)
	c.sim.SetDelays(ec2sim.Delays{Initialize: ec2sim.Duration(100 * time.Second)})
	vol := c.volume("pvc-2", wait, func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: made.GetSnapshot().GetSnapshotId()}}}
	})
	if diff := cmp.Diff(map[string]string{"blockattachuntilinitialized": "true"}, vol.GetVolumeContext()); diff != "" {
		t.Errorf("volume context (-want +got)\n%s", diff)
	}
	publish := func(volumeContext map[string]string) error {
		_, err := c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: vol.GetVolumeId(), NodeId: nodeA, VolumeCapability: singleWriter(), VolumeContext: volumeContext})
		return err
	}
	wantCode(t, "a PV is written by users too", publish(map[string]string{"blockAttachUntilInitialized": "maybe"}), codes.InvalidArgument, "maybe", "true or false")
	wantCode(t, "the content is on the way", publish(vol.GetVolumeContext()), codes.Aborted, vol.GetVolumeId(), "initializing", "% of the content")
	if n := c.calls("AttachVolume"); n != 0 {
		t.Errorf("%d volumes were attached before their content was there", n)
	}
	c.restart()
	for wantedMost := 3; ; wantedMost-- {
		err := publish(vol.GetVolumeContext())
		if err == nil {
			break
		}
		if wantedMost == 0 {
			t.Fatal(err)
		}
		wantCode(t, "the content is on the way", err, codes.Aborted)
	}
	if known, _ := c.sim.Volume(vol.GetVolumeId()); known.Initialized.After(c.clock.Now()) || len(known.Attachments) != 1 {
		t.Errorf("attached %v, initialized at %v, it is %v", known.Attachments, known.Initialized, c.clock.Now())
	}
}
