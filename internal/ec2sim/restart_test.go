package ec2sim_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// reopen takes up the state in a folder at a time.
func reopen(t *testing.T, dir string, now time.Time) *ec2sim.Sim {
	t.Helper()
	sim, err := ec2sim.New(ec2sim.Config{StateDir: dir, Clock: clocktesting.NewFakeClock(now)})
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

func kept(dir string) func(*ec2sim.Config) {
	return func(c *ec2sim.Config) { c.StateDir = dir }
}

// copyState copies the journal into a folder of its own, as a killed process
// leaves it.
func copyState(t *testing.T, journal []byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.jsonl"), journal, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readState(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "state.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestStateSurvivesRestart: everything is there again, states that were
// passing go on by the clock, client tokens are remembered.
func TestStateSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	r := newRegion(t, kept(dir))
	vol := r.newVolume(func(i *ec2.CreateVolumeInput) {
		i.ClientToken, i.TagSpecifications = aws.String("tok"), volumeTags("a", "b")
	})
	wantCode(t, r.grow(vol, 20), "")
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	if _, err := r.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: &vol}); err != nil {
		t.Fatal(err)
	}
	before := r.State()

	again := reopen(t, copyState(t, readState(t, dir)), r.clock.Now())
	wantSame(t, before, again.State())
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}

	later := reopen(t, copyState(t, readState(t, dir)), r.clock.Now().Add(time.Minute))
	got, _ := later.Volume(vol)
	wantSame(t, []any{"attached", "completed", int32(20)}, []any{got.Attachments[0].State, got.Modifications[0].State, got.SizeGiB})
	srv := serve(t, later)
	out, err := client(srv, ec2sim.AdminKey).CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(zoneA), Size: aws.Int32(10), VolumeType: "gp3", ClientToken: aws.String("tok"), TagSpecifications: volumeTags("a", "b")})
	if err != nil || *out.VolumeId != vol {
		t.Errorf("the token after a restart: %v, want %s", err, vol)
	}
}

// TestKilledWhileWriting: wherever the last write was cut, the state is that
// of before the call or that of after it.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	r := newRegion(t, kept(dir))
	vol := r.newVolume()
	before, beforeState := readState(t, dir), r.State()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	after, afterState := readState(t, dir), r.State()
	if !bytes.HasPrefix(after, before) || len(after) == len(before) {
		t.Fatal("the call was not appended to the journal")
	}
	for n := len(before); n <= len(after); n++ {
		sim := reopen(t, copyState(t, after[:n]), r.clock.Now())
		want := beforeState
		if n == len(after) {
			want = afterState
		}
		if diff := cmp.Diff(want, sim.State(), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("cut at %d of %d..%d (-want +got)\n%s", n, len(before), len(after), diff)
		}
		if err := sim.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedStateIsRefused(t *testing.T) {
	for why, journal := range map[string]string{
		"a line that is no JSON":   "{\"put\":[}\n",
		"a record of unknown kind": "{\"put\":[{\"key\":\"bucket/1\",\"value\":{}}]}\n",
		"a record of wrong shape":  "{\"put\":[{\"key\":\"volume/vol-1\",\"value\":[]}]}\n",
	} {
		_, err := ec2sim.New(ec2sim.Config{StateDir: copyState(t, []byte(journal))})
		if err == nil || !strings.Contains(err.Error(), "state") {
			t.Errorf("%s: error %v", why, err)
		}
	}
}

func TestOneProcessPerStateDir(t *testing.T) {
	dir := t.TempDir()
	first := reopen(t, dir, start)
	if _, err := ec2sim.New(ec2sim.Config{StateDir: dir}); err == nil || !strings.Contains(err.Error(), "another ec2sim") {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := reopen(t, dir, start).Close(); err != nil {
		t.Fatal(err)
	}
}

// TestJournalIsCompacted: many calls do not make the journal grow for ever.
func TestJournalIsCompacted(t *testing.T) {
	dir := t.TempDir()
	r := newRegion(t, kept(dir))
	vol := r.newVolume()
	longest := 0
	for range 700 {
		for _, tag := range []string{"a", "b"} {
			if _, code := raw(t, r.url, form("CreateTags", "ResourceId.1="+vol, "Tag.1.Key=k", "Tag.1.Value="+tag)); code != "" {
				t.Fatal(code)
			}
		}
		longest = max(longest, bytes.Count(readState(t, dir), []byte("\n")))
	}
	if longest > 1100 {
		t.Errorf("1400 changes of one record made %d lines", longest)
	}
	wantSame(t, r.State(), reopen(t, copyState(t, readState(t, dir)), r.clock.Now()).State())
}
