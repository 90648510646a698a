package ebs

import (
	"errors"
	"strings"
	"testing"
)

func TestVolumeRequestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		r     VolumeRequest
		want  error
		texts []string
	}{
		"gp3, least":          {"the smallest", VolumeRequest{Type: GP3, Size: 1}, nil, nil},
		"gp3, most":           {"the largest", VolumeRequest{Type: GP3, Size: 65536, IOPS: 80000, ThroughputMiBps: 2000}, nil, nil},
		"gp3, size":           {"beyond the largest", VolumeRequest{Type: GP3, Size: 65537}, ErrOutOfRange, []string{"65537", "1 to 65536"}},
		"gp3, iops below":     {"3000 come with it", VolumeRequest{Type: GP3, Size: 10, IOPS: 2999}, ErrInvalid, []string{"2999", "3000 to 80000"}},
		"gp3, iops above":     {"beyond the most", VolumeRequest{Type: GP3, Size: 1000, IOPS: 80001}, ErrInvalid, []string{"80001"}},
		"gp3, ratio":          {"500 per GiB", VolumeRequest{Type: GP3, Size: 10, IOPS: 5001}, ErrInvalid, []string{"5001", "5000", "500 per GiB"}},
		"gp3, small, 3000":    {"every gp3 volume has 3000", VolumeRequest{Type: GP3, Size: 1, IOPS: 3000}, nil, nil},
		"gp3, MiB/s below":    {"125 come with it", VolumeRequest{Type: GP3, Size: 10, ThroughputMiBps: 124}, ErrInvalid, []string{"124", "125 to 2000"}},
		"gp3, MiB/s above":    {"beyond the most", VolumeRequest{Type: GP3, Size: 1000, IOPS: 80000, ThroughputMiBps: 2001}, ErrInvalid, []string{"2001"}},
		"gp3, MiB/s for 3000": {"a quarter of the IOPS", VolumeRequest{Type: GP3, Size: 10, ThroughputMiBps: 751}, ErrInvalid, []string{"751", "3000 IOPS", "750"}},
		"gp3, MiB/s for 4000": {"a quarter of the IOPS", VolumeRequest{Type: GP3, Size: 10, IOPS: 4000, ThroughputMiBps: 1000}, nil, nil},
		"gp2":                 {"no choice", VolumeRequest{Type: GP2, Size: 16384}, nil, nil},
		"gp2, iops":           {"no choice", VolumeRequest{Type: GP2, Size: 10, IOPS: 3000}, ErrInvalid, []string{"gp2", "gp3, io1 and io2"}},
		"gp2, MiB/s":          {"no choice", VolumeRequest{Type: GP2, Size: 10, ThroughputMiBps: 125}, ErrInvalid, []string{"gp2"}},
		"io1":                 {"50 per GiB", VolumeRequest{Type: IO1, Size: 4, IOPS: 200}, nil, nil},
		"io1, ratio":          {"50 per GiB", VolumeRequest{Type: IO1, Size: 4, IOPS: 201}, ErrInvalid, []string{"201", "200"}},
		"io1, size":           {"begins at 4", VolumeRequest{Type: IO1, Size: 3, IOPS: 100}, ErrOutOfRange, []string{"4 to 16384"}},
		"io1, none":           {"EC2 has no default", VolumeRequest{Type: IO1, Size: 4}, ErrInvalid, []string{"iops or iopsPerGB"}},
		"io2, most":           {"1000 per GiB", VolumeRequest{Type: IO2, Size: 256, IOPS: 256000}, nil, nil},
		"io2, ratio":          {"1000 per GiB", VolumeRequest{Type: IO2, Size: 4, IOPS: 4001}, ErrInvalid, []string{"4000"}},
		"io2, MiB/s":          {"no choice", VolumeRequest{Type: IO2, Size: 4, IOPS: 100, ThroughputMiBps: 125}, ErrInvalid, []string{"io2"}},
		"io2, several nodes":  {"Multi-Attach", VolumeRequest{Type: IO2, Size: 4, IOPS: 100, MultiAttach: true}, nil, nil},
		"io1, several nodes":  {"not offered", VolumeRequest{Type: IO1, Size: 4, IOPS: 100, MultiAttach: true}, ErrInvalid, []string{"io1", "io2"}},
		"gp3, several nodes":  {"EC2 does not know it", VolumeRequest{Type: GP3, Size: 4, MultiAttach: true}, ErrInvalid, []string{"gp3", "io2"}},
		"st1":                 {"begins at 125", VolumeRequest{Type: ST1, Size: 124}, ErrOutOfRange, []string{"125 to 16384"}},
		"sc1":                 {"begins at 125", VolumeRequest{Type: SC1, Size: 125}, nil, nil},
		"standard":            {"ends at 1024", VolumeRequest{Type: Standard, Size: 1025}, ErrOutOfRange, []string{"1 to 1024"}},
		"restore":             {"the snapshot's size is not known here", VolumeRequest{Type: GP3, Snapshot: "snap-1", IOPS: 4000}, nil, nil},
		"slow fetch":          {"the lowest rate", VolumeRequest{Type: GP3, Snapshot: "snap-1", InitializationMiBps: 100}, nil, nil},
		"fast fetch":          {"the highest rate", VolumeRequest{Type: GP3, Snapshot: "snap-1", InitializationMiBps: 300}, nil, nil},
		"slower fetch":        {"EC2 has a lowest rate", VolumeRequest{Type: GP3, Snapshot: "snap-1", InitializationMiBps: 99}, ErrInvalid, []string{"volumeInitializationRate 99", "100 to 300"}},
		"faster fetch":        {"EC2 has a highest rate, also for a class that serves empty volumes", VolumeRequest{Type: GP3, Size: 1, InitializationMiBps: 301}, ErrInvalid, []string{"301"}},
		"no type":             {"types are listed", VolumeRequest{Type: "gp4", Size: 1}, ErrInvalid, []string{"gp4", "gp2, gp3, io1, io2, sc1, st1, standard"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.r.Check()
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: %v, want %v", tc.why, err, tc.want)
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not name %q", tc.why, err, text)
				}
			}
		})
	}
}

func TestWellFormed(t *testing.T) {
	for id, want := range map[VolumeID]bool{
		"vol-0123456789abcdef0": true, "vol-12345678": true, "vol-": false, "": false, "vol-0123456789abcdef01": false,
		"vol-XYZ": false, "snap-0123456789abcdef0": false, "aws://us-east-1a/vol-12345678": false,
	} {
		if got := id.WellFormed(); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
	if !InstanceID("i-0000000000000a001").WellFormed() || InstanceID("node-a1").WellFormed() || !SnapshotID("snap-12345678").WellFormed() || SnapshotID("vol-12345678").WellFormed() {
		t.Error("instances and snapshots have prefixes of their own")
	}
}
