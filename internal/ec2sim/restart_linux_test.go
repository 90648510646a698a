package ec2sim_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/ec2sim/disk"
)

// These tests start on real files. Nothing is attached, so they need no root.

func files(t *testing.T, dir string) *disk.Files {
	t.Helper()
	f, err := disk.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// startOn takes up the records and files of a folder.
func startOn(t *testing.T, dir string, clk clock.Clock) (*ec2sim.Sim, error) {
	t.Helper()
	return ec2sim.New(ec2sim.Config{StateDir: dir, Disks: files(t, dir), Clock: clk})
}

func image(dir, volumeID string) string { return filepath.Join(dir, "volumes", volumeID+".img") }

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestKilledWhileDeleting: a volume's file goes before its record does. The
// simulator starts again wherever in between it was killed, and ends the volume.
func TestKilledWhileDeleting(t *testing.T) {
	for _, row := range []struct {
		why      string
		fileGone bool
	}{
		{"killed while the volume was deleting", false},
		{"killed between the file and the record", true},
	} {
		t.Run(row.why, func(t *testing.T) {
			dir := t.TempDir()
			r := newRegion(t, kept(dir), func(c *ec2sim.Config) { c.Disks = files(t, dir) })
			doomed, stays := r.newVolume(), r.newVolume()
			_, err := r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &doomed})
			wantCode(t, err, "")
			if err := r.Close(); err != nil { // writes nothing: the journal is as after a kill
				t.Fatal(err)
			}
			if row.fileGone {
				if err := os.Remove(image(dir, doomed)); err != nil {
					t.Fatal(err)
				}
			}

			clk := clocktesting.NewFakeClock(r.clock.Now())
			again, err := startOn(t, dir, clk)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = again.Close() })
			if v, _ := again.Volume(doomed); v.State != "deleting" {
				t.Errorf("state %q right after the start", v.State)
			}
			clk.Step(time.Minute)
			if v, ok := again.Volume(doomed); ok {
				t.Errorf("a minute later it is still %s", v.State)
			}
			wantSame(t, []bool{false, true}, []bool{there(t, image(dir, doomed)), there(t, image(dir, stays))})
		})
	}
}

// TestBeginsOnlyWithoutImages: where there are images and no records, nothing
// is begun and nothing deleted, however often it is tried; with the records
// back it goes on.
func TestBeginsOnlyWithoutImages(t *testing.T) {
	dir := t.TempDir()
	r := newRegion(t, kept(dir), func(c *ec2sim.Config) { c.Disks = files(t, dir) })
	vol := r.newVolume()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	records, away := filepath.Join(dir, "state.jsonl"), filepath.Join(t.TempDir(), "state.jsonl")
	if err := os.Rename(records, away); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		sim, err := startOn(t, dir, r.clock)
		if err == nil {
			t.Error("started without the records of its images", sim.Close())
		} else if !strings.Contains(err.Error(), "state.jsonl") || !strings.Contains(err.Error(), image(dir, vol)) {
			t.Errorf("the refusal names not both, the image and what is missing: %v", err)
		}
		if !there(t, image(dir, vol)) || there(t, records) {
			t.Errorf("image kept: %v, records begun: %v", there(t, image(dir, vol)), there(t, records))
		}
	}
	if sim, err := ec2sim.New(ec2sim.Config{Disks: files(t, dir)}); err == nil {
		t.Error("started in memory on the images of another", sim.Close())
	}

	if err := os.Rename(away, records); err != nil {
		t.Fatal(err)
	}
	sim, err := startOn(t, dir, r.clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	if _, ok := sim.Volume(vol); !ok || !there(t, image(dir, vol)) {
		t.Errorf("with the records back: volume %v, image %v", ok, there(t, image(dir, vol)))
	}
}
