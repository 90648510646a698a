package ec2_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// counts are the client's metrics: how many requests each series counts.
func counts(t *testing.T, c *ec2.Client) map[string]int {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(c.Metrics()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			n := int(m.GetCounter().GetValue())
			if h := m.GetHistogram(); h != nil {
				n = int(h.GetSampleCount())
			}
			found[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = n
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	const id = "vol-0123456789abcdef0"
	for name, tc := range map[string]struct {
		why    string
		before func(r *region)
		want   map[string]int
	}{
		"refused": {
			"a refusal has EC2's code, and no duration",
			func(r *region) { r.FailNext("DescribeVolumes", "InvalidVolume.NotFound", 1) },
			map[string]int{`aws_ebs_csi_api_request_errors_total{code="InvalidVolume.NotFound",request="DescribeVolumes"}`: 1},
		},
		"throttled": {
			"each try counts, as throttled and not as an error too",
			func(r *region) { r.FailNext("DescribeVolumes", "RequestLimitExceeded", 2) },
			map[string]int{`aws_ebs_csi_api_request_throttles_total{operation_name="DescribeVolumes"}`: 2},
		},
		"unknown code": {
			"EC2 may say anything: codes that we do not know are one",
			func(r *region) { r.intercept(func(call) *reply { return refusal(400, "BrandNew", "no") }) },
			map[string]int{`aws_ebs_csi_api_request_errors_total{code="Other",request="DescribeVolumes"}`: 1},
		},
		"fault of EC2": {
			"the SDK tries again, and each try counts",
			func(r *region) { r.intercept(func(call) *reply { return refusal(500, "InternalError", "sorry") }) },
			map[string]int{`aws_ebs_csi_api_request_errors_total{code="InternalError",request="DescribeVolumes"}`: 2},
		},
		"no answer": {
			"a connection that ends early",
			func(r *region) {
				if err := r.Inject(ec2sim.Fault{Action: "DescribeVolumes", LostAnswer: ec2sim.LostAfter, Count: 2}); err != nil {
					r.t.Fatal(err)
				}
			},
			map[string]int{`aws_ebs_csi_api_request_errors_total{code="NoAnswer",request="DescribeVolumes"}`: 2},
		},
		"answered": {
			"a success has a duration",
			func(r *region) {
				r.intercept(func(call) *reply {
					return &reply{200, "<DescribeVolumesResponse><volumeSet><item><volumeId>" + id + "</volumeId></item></volumeSet></DescribeVolumesResponse>"}
				})
			},
			map[string]int{`aws_ebs_csi_api_request_duration_seconds{request="DescribeVolumes"}`: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			tc.before(r)
			client := r.client()
			_, err := client.Volume(t.Context(), id)
			if _, answered := tc.want[`aws_ebs_csi_api_request_duration_seconds{request="DescribeVolumes"}`]; (err == nil) != answered {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, counts(t, client)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

// A whole life of a volume is counted by EC2's actions.
func TestMetricsOfActions(t *testing.T) {
	r := newRegion(t)
	client := r.client()
	vol, err := client.EnsureVolume(t.Context(), request("pvc-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteVolume(t.Context(), vol.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Volume(t.Context(), "my-volume"); !errors.Is(err, ebs.ErrNotFound) {
		t.Fatal(err)
	}
	got := counts(t, client)
	for _, action := range []string{"CreateVolume", "DescribeVolumes", "DeleteVolume"} {
		if n, want := got[fmt.Sprintf("aws_ebs_csi_api_request_duration_seconds{request=%q}", action)], len(r.callsOf(action)); n != want || n == 0 {
			t.Errorf("%s: %d counted, %d sent", action, n, want)
		}
	}
}
