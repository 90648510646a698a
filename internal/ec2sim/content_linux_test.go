package ec2sim_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// fill writes a text to the begin of a volume, as an instance would.
func fill(t *testing.T, dir, volumeID, text string) {
	t.Helper()
	f, err := os.OpenFile(image(dir, volumeID), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// begin is the first n bytes of a file.
func begin(t *testing.T, path string, n int) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, n)
	if _, err := f.ReadAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	return string(buf)
}

// TestContentOfCopies: through the API, a copy and the snapshots of an
// instance hold what the volumes held at the call.
func TestContentOfCopies(t *testing.T) {
	dir := t.TempDir()
	r := newRegion(t, kept(dir), func(c *ec2sim.Config) { c.Disks = files(t, dir) })
	one, two := r.newAttached("/dev/xvdaa"), r.newAttached("/dev/xvdab")
	fill(t, dir, one, "first of one")
	fill(t, dir, two, "first of two")
	copied, err := r.copyVolume(one, func(i *ec2.CopyVolumesInput) { i.Size = aws.Int32(20) })
	if err != nil {
		t.Fatal(err)
	}
	group, err := r.createSnapshots(r.Client)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, dir, one, "later of one")
	fill(t, dir, two, "later of two")
	r.pass(time.Minute)
	if got := begin(t, image(dir, *copied.VolumeId), 12); got != "first of one" {
		t.Errorf("the copy holds %q", got)
	}
	if info, err := os.Stat(image(dir, *copied.VolumeId)); err != nil || info.Size() != 20<<30 {
		t.Errorf("the copy: %v, %d bytes", err, info.Size())
	}
	for _, sn := range group {
		want := map[string]string{one: "first of one", two: "first of two"}[*sn.VolumeId]
		if got := begin(t, filepath.Join(dir, "snapshots", *sn.SnapshotId+".img"), 12); got != want {
			t.Errorf("the snapshot of %s holds %q, want %q", *sn.VolumeId, got, want)
		}
	}
	r.inject(ec2sim.Fault{Action: "CreateVolume", Outcome: ec2sim.OutcomeVanish})
	wantCode(t, r.createOnce(), "")
	if images, err := os.ReadDir(filepath.Join(dir, "volumes")); err != nil || len(images) != 3 {
		t.Errorf("%v, %d files, want those of three volumes", err, len(images))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := startOn(t, dir, r.clock)
	if err != nil {
		t.Fatalf("with a vanishing volume: %v", err)
	}
	wantSame(t, r.State(), again.State())
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
