package ec2_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func copyOf(source ebs.VolumeID) func(*ebs.VolumeRequest) {
	return func(w *ebs.VolumeRequest) { w.Source = source }
}

func TestEnsureVolumeCopies(t *testing.T) {
	r := newRegion(t)
	source := r.volume("source").ID
	want := request("copy", copyOf(source), func(w *ebs.VolumeRequest) {
		w.Size, w.IOPS, w.ThroughputMiBps, w.Encrypted, w.KMSKeyID = 20, 4000, 250, true, "arn:aws:kms:us-east-1:000000000000:key/k"
	})
	got, err := r.client().EnsureVolume(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	expect := ebs.Volume{
		ID: got.ID, Size: 20, Type: ebs.GP3, IOPS: 4000, ThroughputMiBps: 250, Encrypted: true, KMSKeyID: want.KMSKeyID,
		Zone: ebs.Zone{Name: zoneA, ID: got.Zone.ID}, State: ebs.VolumeAvailable, Source: source, Tags: want.Tags,
	}
	if diff := cmp.Diff(expect, got); diff != "" {
		t.Errorf("what is asked for is what EC2 makes (-want +got)\n%s", diff)
	}
	again, err := r.client().EnsureVolume(t.Context(), want)
	if err != nil || again.ID != got.ID {
		t.Errorf("a repeat by another process gave %s, %v; want %s", again.ID, err, got.ID)
	}
	for _, c := range r.callsOf("CopyVolumes") {
		if token := c.form.Get("ClientToken"); len(token) != 64 {
			t.Errorf("token %q: it is to be made of the name", token)
		}
	}
}

// What EC2 knows of the source by itself is enough for a repeat: the source may be gone by then.
func TestEnsureVolumeFindsACopyOfWhatIsGone(t *testing.T) {
	r := newRegion(t)
	source := r.volume("source").ID
	made, err := r.client().EnsureVolume(t.Context(), request("copy", copyOf(source)))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.client().DeleteVolume(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	found, err := r.client().EnsureVolume(t.Context(), request("copy", copyOf(source)))
	if err != nil || found.ID != made.ID {
		t.Errorf("%s, %v; want %s", found.ID, err, made.ID)
	}
}

// A copy that may have been made and is not shown yet is not given up, as the
// final error "no zone" would: it would be nobody's.
func TestEnsureVolumeMayHaveCopiedForOtherZones(t *testing.T) {
	r := newRegion(t)
	source := r.volume("source").ID
	if err := r.Inject(ec2sim.Fault{Action: "CopyVolumes", LostAnswer: ec2sim.LostAfter, Count: 2}); err != nil {
		t.Fatal(err)
	}
	hidden := first(3)
	r.intercept(func(c call) *reply {
		if c.by("tag:CSIVolumeName") && hidden() {
			return noVolumes()
		}
		return nil
	})
	client := r.client()
	if _, err := client.EnsureVolume(t.Context(), request("copy", copyOf(source))); !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Fatalf("%v, want that it may have been accepted", err)
	}
	elsewhere := request("copy", copyOf(source), func(w *ebs.VolumeRequest) {
		w.Zone, w.AllowedZones = ebs.Zone{Name: zoneB}, []ebs.Zone{{Name: zoneB}}
	})
	if _, err := client.EnsureVolume(t.Context(), elsewhere); !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Errorf("%v, want that the copy may be there", err)
	}
	if _, err := client.EnsureVolume(t.Context(), elsewhere); !errors.Is(err, ebs.ErrAlreadyExists) {
		t.Errorf("once it is shown: %v, want that it exists in another zone", err)
	}
}

// Half an answer: EC2 tells no copy, and may have made one.
func TestEnsureVolumeWithoutACopyInTheAnswer(t *testing.T) {
	r := newRegion(t)
	source := r.volume("source").ID
	empty := first(1)
	r.intercept(func(c call) *reply {
		if c.action == "CopyVolumes" && empty() {
			return &reply{200, "<CopyVolumesResponse><volumeSet/></CopyVolumesResponse>"}
		}
		return nil
	})
	_, err := r.client().EnsureVolume(t.Context(), request("copy", copyOf(source)))
	if !errors.Is(err, ebs.ErrMaybeAccepted) || !strings.Contains(err.Error(), "0 volumes") {
		t.Errorf("%v, want that it may have been accepted", err)
	}
}
