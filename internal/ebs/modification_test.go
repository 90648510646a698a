package ebs

import (
	"errors"
	"strings"
	"testing"
)

func TestModificationTarget(t *testing.T) {
	gp3 := Shape{Size: 10, Type: GP3, IOPS: 3000, ThroughputMiBps: 125}
	gp2 := Shape{Size: 100, Type: GP2}
	io2 := Shape{Size: 20, Type: IO2, IOPS: 10000}
	rate := map[string]string{TagIOPSPerGiB: "500", TagAutoIOPS: "true"}
	for name, tc := range map[string]struct {
		why   string
		now   Shape
		m     Modification
		tags  map[string]string
		want  Shape
		err   error
		texts []string
	}{
		"nothing":          {"what is so stays", gp3, Modification{Size: 10, Type: GP3, IOPS: 3000, ThroughputMiBps: 125}, nil, gp3, nil, nil},
		"smaller":          {"a size is at least", gp3, Modification{Size: 5}, nil, gp3, nil, nil},
		"larger":           {"only the size", gp3, Modification{Size: 20}, nil, Shape{20, GP3, 3000, 125}, nil, nil},
		"too large":        {"beyond the type", gp3, Modification{Size: 65537}, nil, gp3, ErrOutOfRange, []string{"65537"}},
		"iops":             {"only the IOPS", gp3, Modification{IOPS: 5000}, nil, Shape{10, GP3, 5000, 125}, nil, nil},
		"iops, too many":   {"500 for each GiB", gp3, Modification{IOPS: 8000}, nil, gp3, ErrInvalid, []string{"8000", "10 GiB", "5000"}},
		"iops and size":    {"the size that the volume then has counts", gp3, Modification{IOPS: 8000, Size: 16}, nil, Shape{16, GP3, 8000, 125}, nil, nil},
		"throughput":       {"a quarter of the IOPS at most", gp3, Modification{ThroughputMiBps: 1000}, nil, gp3, ErrInvalid, []string{"1000", "3000 IOPS"}},
		"iops of gp2":      {"cannot be chosen", gp2, Modification{IOPS: 300}, nil, gp2, ErrInvalid, []string{"gp2"}},
		"unknown type":     {"types are listed", gp3, Modification{Type: "gp4"}, nil, gp3, ErrInvalid, []string{"gp4", "io2"}},
		"gp2 to gp3":       {"gp2's IOPS were nobody's choice: EC2's defaults", gp2, Modification{Type: GP3}, nil, Shape{100, GP3, 3000, 125}, nil, nil},
		"gp2 to io2":       {"EC2's default for it", gp2, Modification{Type: IO2}, nil, Shape{100, IO2, 3000, 0}, nil, nil},
		"small gp2 to io1": {"EC2's default is more than 10 GiB may have", Shape{Size: 10, Type: GP2}, Modification{Type: IO1}, nil, Shape{}, ErrInvalid, []string{"3000", "500"}},
		"gp3 to io2":       {"CSI: what is not named stays", gp3, Modification{Type: IO2}, nil, Shape{10, IO2, 3000, 0}, nil, nil},
		"io2 to io1":       {"it stays as far as the type goes", io2, Modification{Type: IO1}, nil, Shape{20, IO1, 1000, 0}, nil, nil},
		"io2 to gp3":       {"IOPS stay, throughput is the type's", io2, Modification{Type: GP3}, nil, Shape{20, GP3, 10000, 125}, nil, nil},
		"io1 to gp3":       {"never below the type's least", Shape{4, IO1, 100, 0}, Modification{Type: GP3}, nil, Shape{4, GP3, 3000, 125}, nil, nil},
		"gp3 to gp2":       {"a type without a choice", gp3, Modification{Type: GP2}, nil, Shape{10, GP2, 0, 0}, nil, nil},
		"gp3 to st1":       {"too small: the type is at fault, no size", gp3, Modification{Type: ST1}, nil, gp3, ErrInvalid, []string{"10 GiB", "125 to 16384"}},
		"to st1, grown":    {"large enough then", gp3, Modification{Type: ST1, Size: 125}, nil, Shape{125, ST1, 0, 0}, nil, nil},
		"standard":         {"EC2 modifies none", Shape{Size: 10, Type: Standard}, Modification{Size: 20}, nil, Shape{}, ErrInvalid, []string{"standard"}},
		"to standard":      {"EC2 makes none", gp3, Modification{Type: Standard}, nil, Shape{}, ErrInvalid, []string{"standard"}},
		"standard, as is":  {"nothing to do is no modification", Shape{Size: 10, Type: Standard}, Modification{Size: 10}, nil, Shape{Size: 10, Type: Standard}, nil, nil},
		"fewer iops":       {"the throughput that stays needs 1000", Shape{100, GP3, 4000, 1000}, Modification{IOPS: 3000}, nil, Shape{}, ErrInvalid, []string{"throughput 1000"}},

		"rate":               {"by the size", io2, Modification{IOPSPerGiB: 50}, nil, Shape{20, IO2, 1000, 0}, nil, nil},
		"rate, grown":        {"by the size that it then has", io2, Modification{IOPSPerGiB: 50, Size: 40}, nil, Shape{40, IO2, 2000, 0}, nil, nil},
		"rate, too low":      {"more IOPS cost more: only when allowed", gp3, Modification{IOPSPerGiB: 10}, nil, gp3, ErrInvalid, []string{"3000", "allowAutoIOPSIncreaseOnModify"}},
		"rate, raised":       {"the class allows it", Shape{10, GP3, 4000, 125}, Modification{IOPSPerGiB: 10, RaiseIOPS: true}, nil, gp3, nil, nil},
		"rate, by tag":       {"the volume remembers that it is allowed", Shape{10, GP3, 4000, 125}, Modification{IOPSPerGiB: 10}, rate, gp3, nil, nil},
		"rate, too high":     {"beyond the type", io2, Modification{IOPSPerGiB: 1001}, nil, io2, ErrInvalid, []string{"1001", "1000"}},
		"rate of gp2":        {"cannot be chosen", gp2, Modification{IOPSPerGiB: 3}, nil, gp2, ErrInvalid, []string{"gp2"}},
		"growth by tag":      {"the IOPS grow with the size", gp3, Modification{Size: 20}, rate, Shape{20, GP3, 10000, 125}, nil, nil},
		"growth, any case":   {"tags of AWS's driver, whatever their case", gp3, Modification{Size: 20}, map[string]string{strings.ToLower(TagIOPSPerGiB): "500", strings.ToLower(TagAutoIOPS): "TRUE"}, Shape{20, GP3, 10000, 125}, nil, nil},
		"growth, cut":        {"a rate serves every size", io2, Modification{Size: 65536}, rate, Shape{65536, IO2, 256000, 0}, nil, nil},
		"growth, never less": {"somebody gave it more", Shape{10, IO2, 9000, 0}, Modification{Size: 11}, rate, Shape{11, IO2, 9000, 0}, nil, nil},
		"growth, not auto":   {"without the second tag IOPS stay", gp3, Modification{Size: 20}, map[string]string{TagIOPSPerGiB: "500"}, Shape{20, GP3, 3000, 125}, nil, nil},
		"growth of gp2":      {"a rate of an earlier type is no hindrance", gp2, Modification{Size: 200}, rate, Shape{200, GP2, 0, 0}, nil, nil},
		"growth of io1":      {"500 is no rate of io1: the size must not fail for it", Shape{10, IO1, 100, 0}, Modification{Size: 20}, rate, Shape{20, IO1, 100, 0}, nil, nil},
		"not grown":          {"no growth, no change", gp3, Modification{Size: 10}, rate, gp3, nil, nil},
		"growth, iops named": {"what is asked for goes before the tag", gp3, Modification{Size: 20, IOPS: 4000}, rate, Shape{20, GP3, 4000, 125}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.m.Target(tc.now, tc.tags)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("%s: %v, want %v", tc.why, err, tc.err)
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not name %q", tc.why, err, text)
				}
			}
			if err == nil && got != tc.want {
				t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
			}
			if again, err := tc.m.Target(got, tc.tags); tc.err == nil && (err != nil || again != got) {
				t.Errorf("%s: a repeat makes %s of it, %v", tc.why, again, err)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	got, err := Modification{Size: 20}.Merge(Modification{Type: IO2, IOPSPerGiB: 50, RaiseIOPS: true})
	if err != nil || got.Size != 20 || got.Type != IO2 || got.IOPSPerGiB != 50 || !got.RaiseIOPS {
		t.Errorf("%+v, %v, want all parts of both", got, err)
	}
	for name, tc := range map[string]struct {
		a, b  Modification
		texts []string
	}{
		"size":          {Modification{Size: 20}, Modification{Size: 30}, []string{"20", "30"}},
		"type":          {Modification{Type: GP3}, Modification{Type: IO2}, []string{"gp3", "io2"}},
		"iops":          {Modification{IOPS: 4000}, Modification{IOPS: 5000}, []string{"4000", "5000"}},
		"iops and rate": {Modification{IOPS: 4000}, Modification{IOPSPerGiB: 50}, []string{"4000", "50 per GiB"}},
		"throughput":    {Modification{ThroughputMiBps: 200}, Modification{ThroughputMiBps: 300}, []string{"200", "300"}},
	} {
		_, err := tc.a.Merge(tc.b)
		if !errors.Is(err, ErrNotReady) {
			t.Errorf("%s: %v, want an error that a repeat can heal", name, err)
			continue
		}
		for _, text := range tc.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not name %s", name, err, text)
			}
		}
		if _, err := tc.a.Merge(tc.a); err != nil {
			t.Errorf("%s: the same twice: %v", name, err)
		}
	}
}
