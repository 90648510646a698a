package ec2

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

var (
	gp3Of10 = ebs.Shape{Size: 10, Type: ebs.GP3, IOPS: 3000, ThroughputMiBps: 125}
	gp3Of20 = ebs.Shape{Size: 20, Type: ebs.GP3, IOPS: 3000, ThroughputMiBps: 125}
)

func volumeOf(s ebs.Shape) ebs.Volume { return ebs.Volume{ID: "vol-1"}.WithShape(s) }

func changeTo(s ebs.Shape, state types.VolumeModificationState) *modification {
	return &modification{state: state, target: s, progress: 7, began: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
}

func TestPlanModify(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		now    ebs.Shape
		latest *modification
		want   ebs.Modification
		step   modifyStep
		target ebs.Shape
		err    error
		texts  []string
	}{
		"as it is":              {"none for no-ops", gp3Of10, nil, ebs.Modification{Size: 10}, modifyNothing, gp3Of10, nil, nil},
		"never changed":         {"sent", gp3Of10, nil, ebs.Modification{Size: 20}, modifySend, gp3Of20, nil, nil},
		"completed":             {"sent", gp3Of10, changeTo(gp3Of10, "completed"), ebs.Modification{Size: 20}, modifySend, gp3Of20, nil, nil},
		"failed":                {"what failed has changed nothing", gp3Of10, changeTo(gp3Of20, "failed"), ebs.Modification{Size: 20}, modifySend, gp3Of20, nil, nil},
		"stale volume":          {"its latest change knows better", gp3Of10, changeTo(gp3Of20, "completed"), ebs.Modification{Size: 20}, modifyNothing, gp3Of20, nil, nil},
		"stale change":          {"a size never shrinks", gp3Of20, changeTo(gp3Of10, "completed"), ebs.Modification{Size: 20}, modifyNothing, gp3Of20, nil, nil},
		"under way":             {"the same: wait", gp3Of20, changeTo(gp3Of20, "modifying"), ebs.Modification{Size: 20}, modifyWait, gp3Of20, nil, nil},
		"under way, larger":     {"more than asked for: wait", gp3Of10, changeTo(gp3Of20, "modifying"), ebs.Modification{Size: 15}, modifyWait, gp3Of20, nil, nil},
		"optimizing":            {"the size can be used", gp3Of10, changeTo(gp3Of20, "optimizing"), ebs.Modification{Size: 20}, modifyNothing, gp3Of20, nil, nil},
		"another is modifying":  {"EC2 takes one at a time", gp3Of10, changeTo(gp3Of20, "modifying"), ebs.Modification{Size: 30}, 0, gp3Of10, ebs.ErrNotReady, []string{"30 GiB", "20 GiB", "modifying", "7 %", "2026-06-01T12:00:00Z"}},
		"another is optimizing": {"nor until it is completed", gp3Of10, changeTo(gp3Of20, "optimizing"), ebs.Modification{IOPS: 4000}, 0, gp3Of10, ebs.ErrNotReady, []string{"4000 IOPS", "optimizing"}},
		"impossible":            {"a refusal that no wait can heal comes first", gp3Of10, changeTo(gp3Of20, "optimizing"), ebs.Modification{IOPS: 50000}, 0, gp3Of10, ebs.ErrInvalid, []string{"50000", "20 GiB"}},
		"out of range":          {"csi-resizer must know that it is the size", gp3Of10, nil, ebs.Modification{Size: 70000}, 0, gp3Of10, ebs.ErrOutOfRange, []string{"70000"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := planModify(volumeOf(tc.now), tc.latest, tc.want)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("%s: %v, want %v", tc.why, err, tc.err)
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not name %q", tc.why, err, text)
				}
			}
			if err == nil && (p.step != tc.step || p.target != tc.target) {
				t.Errorf("%s: step %d to %s, want %d to %s", tc.why, p.step, p.target, tc.step, tc.target)
			}
		})
	}
}

func TestPlanTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		wants  []ebs.Modification
		target ebs.Shape // none where nothing is to be sent
		errs   []error
	}{
		"one":  {"alone", []ebs.Modification{{Size: 20}}, gp3Of20, []error{nil}},
		"all":  {"fields are merged", []ebs.Modification{{Size: 20}, {IOPS: 4000}, {ThroughputMiBps: 500}}, ebs.Shape{Size: 20, Type: ebs.GP3, IOPS: 4000, ThroughputMiBps: 500}, []error{nil, nil, nil}},
		"help": {"possible with the other's size only", []ebs.Modification{{IOPS: 8000}, {Size: 20}}, ebs.Shape{Size: 20, Type: ebs.GP3, IOPS: 8000, ThroughputMiBps: 125}, []error{nil, nil}},
		"bad":  {"the other must not fail for it", []ebs.Modification{{IOPS: 90000}, {Size: 20}}, gp3Of20, []error{ebs.ErrInvalid, nil}},
		"worse": {"each is told its own fault", []ebs.Modification{{IOPS: 90000}, {Size: 70000}}, ebs.Shape{},
			[]error{ebs.ErrInvalid, ebs.ErrOutOfRange}},
		"clash": {"each possible, together not: the later one tries again", []ebs.Modification{{Type: ebs.GP2}, {IOPS: 4000}}, ebs.Shape{Size: 10, Type: ebs.GP2},
			[]error{nil, ebs.ErrNotReady}},
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := planTogether(volumeOf(gp3Of10), nil, tc.wants)
			for i, err := range errs {
				if !errors.Is(err, tc.errs[i]) || (err == nil) != (tc.errs[i] == nil) {
					t.Errorf("%s: change %d: %v, want %v", tc.why, i, err, tc.errs[i])
				}
				if infeasible(err) && errors.Is(tc.errs[i], ebs.ErrNotReady) {
					t.Errorf("%s: change %d is told that it is infeasible: %v", tc.why, i, err)
				}
			}
			switch {
			case p == nil && tc.target != (ebs.Shape{}):
				t.Errorf("%s: nothing is sent, want %s", tc.why, tc.target)
			case p != nil && p.target != tc.target:
				t.Errorf("%s: %s is sent, want %s", tc.why, p.target, tc.target)
			}
		})
	}
}

func TestNextModification(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	began := func(ago time.Duration) *modification { return &modification{began: now.Add(-ago)} }
	for name, tc := range map[string]struct {
		why    string
		latest *modification
		text   string
		until  time.Time
		named  string
	}{
		"named":     {"EC2 knows best", began(time.Hour), "Wait until 2026-06-02T03:04:05Z before", time.Date(2026, 6, 2, 3, 4, 5, 0, time.UTC), "possible at 2026-06-02T03:04:05Z:"},
		"not named": {"a day after the latest at the latest; asked again before", began(time.Hour), "too many", now.Add(10 * time.Minute), "2026-06-02T11:00:00Z at the latest"},
		"soon":      {"not asked later than that", began(24*time.Hour - time.Minute), "too many", now.Add(time.Minute), "2026-06-01T12:01:00Z at the latest"},
		"no change": {"nothing is known", nil, "too many", now.Add(10 * time.Minute), "too many"},
	} {
		h := nextModification(now, tc.latest, errors.New(tc.text))
		if !h.until.Equal(tc.until) || !strings.Contains(h.err.Error(), tc.named) {
			t.Errorf("%s: %s: until %s, %v", name, tc.why, h.until, h.err)
		}
	}
}
