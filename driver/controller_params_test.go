package driver_test

import (
	"maps"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

func parameters(more map[string]string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { maps.Copy(r.Parameters, more) }
}

func filesystem(fsType string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].GetMount().FsType = fsType }
}

// TestFormatOptionsTravel: new and found volumes carry the same volume context.
func TestFormatOptionsTravel(t *testing.T) {
	c := newCluster(t)
	for range 2 {
		vol := c.volume("pvc-1", parameters(map[string]string{"blockSize": "4096", "ext4BigAlloc": "true", "ext4ClusterSize": "32k"}))
		want := map[string]string{"blocksize": "4096", "ext4bigalloc": "true", "ext4clustersize": "32768"}
		if diff := cmp.Diff(want, vol.GetVolumeContext()); diff != "" {
			t.Errorf("volume context (-want +got)\n%s", diff)
		}
		c.restart()
	}
}

// DRIVER rules 11 and 15: what cannot be is refused before EC2 is asked anything.
func TestParametersAreJudgedBeforeAnyCall(t *testing.T) {
	c := newCluster(t)
	for name, tc := range map[string]struct {
		why    string
		change []func(*csi.CreateVolumeRequest)
		texts  []string
	}{
		"xfs, ext4's": {"xfs knows no bigalloc", []func(*csi.CreateVolumeRequest){filesystem("xfs"), parameters(map[string]string{"ext4BigAlloc": "true"})}, []string{"ext4BigAlloc", "xfs"}},
		"cluster":     {"clusters are bigalloc's", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"ext4ClusterSize": "65536"})}, []string{"ext4ClusterSize", "ext4BigAlloc"}},
		"inodes":      {"more inodes than 10 GiB hold", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"numberOfInodes": "41943040"})}, []string{"numberOfInodes 41943040"}},
		"encrypted":   {"never silently unencrypted", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"encrypted": "yes"})}, []string{"encrypted", "yes"}},
		"unknown":     {"a mistyped key never passes", []func(*csi.CreateVolumeRequest){parameters(map[string]string{"blocksise": "4096"})}, []string{"blocksise"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.CreateVolume(t.Context(), wanted("pvc-1", tc.change...))
			wantCode(t, tc.why, err, codes.InvalidArgument, tc.texts...)
		})
	}
	if calls := c.sim.Calls(); len(calls) != 0 {
		t.Errorf("EC2 was asked: %+v", calls)
	}
}
