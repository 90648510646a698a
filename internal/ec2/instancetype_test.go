package ec2_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// One call tells of all types; what EC2 does not know is left out and spoils nothing.
func TestInstanceLimits(t *testing.T) {
	r := newRegion(t)
	got, err := r.client().InstanceLimits(t.Context(), []string{"m5.large", "z9.huge", "m7i.large", "m5.metal", "t2.medium"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]ebs.InstanceLimit{
		"m5.large":  {Volumes: 27, Kind: ebs.Shared, Hypervisor: ebs.Nitro},
		"m7i.large": {Volumes: 32, Kind: ebs.Dedicated, Hypervisor: ebs.Nitro},
		"m5.metal":  {Volumes: 31, Kind: ebs.Shared},
		"t2.medium": {Volumes: 39, Kind: ebs.Shared, Hypervisor: ebs.XenHypervisor},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits (-want +got)\n%s", diff)
	}
	for name, says := range got {
		if !ebs.LimitOf(name).Agrees(says) {
			t.Errorf("%s: the table says %s, EC2 %s", name, ebs.LimitOf(name), says)
		}
	}
	if n := len(r.callsOf("DescribeInstanceTypes")); n != 1 {
		t.Errorf("%d calls, want one for all types", n)
	}
}
