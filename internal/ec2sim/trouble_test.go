package ec2sim_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func TestTrouble(t *testing.T) {
	for _, row := range []struct {
		why         string
		trouble     ec2sim.Trouble
		status      types.VolumeStatusInfoStatus
		io, iops    string
		event, list bool
	}{
		{"a healthy volume", ec2sim.Trouble{}, "ok", "passed", "not-applicable", false, false},
		{"input and output stopped", ec2sim.Trouble{IODisabled: true}, "impaired", "failed", "not-applicable", false, true},
		{"no IOPS at all", ec2sim.Trouble{Performance: "stalled"}, "impaired", "passed", "stalled", false, true},
		{"too few IOPS", ec2sim.Trouble{Performance: "degraded"}, "warning", "passed", "degraded", false, true},
		{"an event", ec2sim.Trouble{Inconsistent: true}, "ok", "passed", "not-applicable", true, false},
	} {
		t.Run(row.why, func(t *testing.T) {
			r := newRegion(t)
			vol := r.newVolume()
			if err := r.SetTrouble(vol, row.trouble); err != nil {
				t.Fatal(err)
			}
			out, err := r.DescribeVolumeStatus(t.Context(), &ec2.DescribeVolumeStatusInput{VolumeIds: []string{vol}})
			if err != nil {
				t.Fatal(err)
			}
			s := out.VolumeStatuses[0]
			detail := func(name types.VolumeStatusName) string {
				i := slices.IndexFunc(s.VolumeStatus.Details, func(d types.VolumeStatusDetails) bool { return d.Name == name })
				return *s.VolumeStatus.Details[i].Status
			}
			if s.VolumeStatus.Status != row.status || detail("io-enabled") != row.io || detail("io-performance") != row.iops || (len(s.Events) == 1) != row.event {
				t.Errorf("%+v with events %+v", s.VolumeStatus, s.Events)
			}
			either, err := r.DescribeVolumeStatus(t.Context(), &ec2.DescribeVolumeStatusInput{
				Filters: []types.Filter{{Name: ptrTo("volume-status.status"), Values: []string{"impaired", "warning"}}}})
			if err != nil || (len(either.VolumeStatuses) == 1) != row.list {
				t.Errorf("listed %d, %v", len(either.VolumeStatuses), err)
			}
		})
	}
}

func ptrTo(s string) *string { return &s }

// A failed volume can only be deleted; an attached one cannot fail here.
func TestFailedVolume(t *testing.T) {
	r := newRegion(t)
	vol, busy := r.newVolume(), r.newVolume()
	wantCode(t, r.attach(busy, instanceA, "/dev/xvdaa"), "")
	for id, trouble := range map[string]ec2sim.Trouble{busy: {Failed: true}, vol: {Performance: "slow"}, absentVolume: {}} {
		if err := r.SetTrouble(id, trouble); err == nil {
			t.Errorf("%s: trouble %+v was taken", id, trouble)
		}
	}
	if err := r.SetTrouble(vol, ec2sim.Trouble{Failed: true}); err != nil {
		t.Fatal(err)
	}
	wantSame(t, []string{"error"}, r.states(vol))
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdab"), "IncorrectState")
	_, err := r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &vol})
	wantCode(t, err, "")
	r.pass(time.Minute)
	if _, there := r.Volume(vol); there {
		t.Error("it is still there")
	}
}

func TestTroubleOverTheControlAPI(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	for body, want := range map[string]int{`{"ioDisabled": true}`: http.StatusNoContent, `{"broken": true}`: http.StatusBadRequest} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/_sim/volumes/"+vol+"/trouble", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: status %d, want %d", body, answer.StatusCode, want)
		}
	}
	if v, _ := r.Volume(vol); !v.Trouble.IODisabled {
		t.Errorf("trouble %+v", v.Trouble)
	}
}

// A volume may fail while it is made, after the call was accepted.
func TestVolumeThatFailsWhileItIsMade(t *testing.T) {
	r := newRegion(t)
	source := r.newVolume()
	makers := map[string]func() (string, error){
		"CreateVolume": func() (string, error) {
			out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: ptrTo(zoneA), Size: ptr32(1)})
			if err != nil {
				return "", err
			}
			return *out.VolumeId, nil
		},
		"CopyVolumes": func() (string, error) {
			out, err := r.copyVolume(source)
			if err != nil {
				return "", err
			}
			return *out.VolumeId, nil
		},
	}
	for action, do := range makers {
		r.inject(ec2sim.Fault{Action: action, Outcome: ec2sim.OutcomeError})
		id, err := do()
		if err != nil {
			t.Fatalf("%s: %v", action, err)
		}
		wantSame(t, []string{"creating"}, r.states(id))
		r.pass(time.Minute)
		wantSame(t, []string{"error"}, r.states(id))
	}
}

func ptr32(n int32) *int32 { return &n }
