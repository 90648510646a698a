//go:build e2e

package examples

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

func clone(t *testing.T, x *example) {
	x.apply("00", "10", "20")
	x.Ready("writer")
	sum := x.Sum("writer", "/data/blob")
	small := x.SizeKiB("writer", "/data")
	x.apply("30")
	x.Ready("reader") // the Pod's own promise: the checksum that the writer noted fits
	if got := x.Sum("reader", "/data/blob"); got != sum {
		t.Errorf("checksum in the clone is %s, want %s", got, sum)
	}
	x.Grown("reader", "clone", "/data", "2Gi", small)
	v := x.Volume(x.VolumeID("clone"))
	if got := aws.ToString(v.SourceVolumeId); got != x.VolumeID("source") || aws.ToInt32(v.Size) != 2 || !aws.ToBool(v.Encrypted) {
		t.Errorf("volume %s is a copy of %q, has %d GiB, encrypted %v; want of %s, 2, true", *v.VolumeId, got, aws.ToInt32(v.Size), aws.ToBool(v.Encrypted), x.VolumeID("source"))
	}
}
