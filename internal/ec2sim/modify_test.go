package ec2sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (r *region) grow(volumeID string, size int32) error {
	_, err := r.ModifyVolume(r.t.Context(), &ec2.ModifyVolumeInput{VolumeId: &volumeID, Size: &size})
	return err
}

// modification is state, progress and the size that DescribeVolumes shows.
func (r *region) modification(volumeID string) []any {
	r.t.Helper()
	out, err := r.DescribeVolumesModifications(r.t.Context(), &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{volumeID}})
	if err != nil {
		return []any{code(err)}
	}
	v, err := r.DescribeVolumes(r.t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{volumeID}})
	if err != nil {
		r.t.Fatal(err)
	}
	m := out.VolumesModifications[0]
	return []any{m.ModificationState, *m.Progress, *v.Volumes[0].Size}
}

func TestModificationLife(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	wantSame(t, []any{"InvalidVolumeModification.NotFound"}, r.modification(vol))
	wantCode(t, r.grow(vol, 20), "")
	wantSame(t, []any{types.VolumeModificationStateModifying, int64(0), int32(10)}, r.modification(vol))
	wantCode(t, r.grow(vol, 30), "IncorrectModificationState")
	r.pass(time.Second)
	wantSame(t, []any{types.VolumeModificationStateOptimizing, int64(25), int32(20)}, r.modification(vol))
	wantCode(t, r.grow(vol, 30), "IncorrectModificationState")
	r.pass(3 * time.Second)
	wantSame(t, []any{types.VolumeModificationStateCompleted, int64(100), int32(20)}, r.modification(vol))
	out, err := r.DescribeVolumesModifications(t.Context(), &ec2.DescribeVolumesModificationsInput{
		Filters: filters("modification-state", "completed", "target-size", "20", "original-size", "10")})
	if err != nil || len(out.VolumesModifications) != 1 || *out.VolumesModifications[0].OriginalSize != 10 {
		t.Errorf("%v %+v", err, out)
	}
}

// TestFourModificationsADay: the fifth within 24 hours is refused and told
// when it may come.
func TestFourModificationsADay(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	first := r.clock.Now()
	for n := range int32(4) {
		wantCode(t, r.grow(vol, 11+n), "")
		r.pass(time.Hour)
	}
	err := r.grow(vol, 20)
	wantCode(t, err, "VolumeModificationRateExceeded")
	if next := first.Add(24 * time.Hour).Format(time.RFC3339); !strings.Contains(err.Error(), next) {
		t.Errorf("%q does not name %s", err, next)
	}
	r.pass(20 * time.Hour)
	wantCode(t, r.grow(vol, 20), "")
	r.pass(10 * time.Minute)
	wantCode(t, r.grow(vol, 21), "VolumeModificationRateExceeded")
}

func TestModifyRules(t *testing.T) {
	modify := func(change func(*ec2.ModifyVolumeInput)) func(*region, string) error {
		return func(r *region, id string) error {
			in := &ec2.ModifyVolumeInput{VolumeId: &id}
			change(in)
			_, err := r.ModifyVolume(r.t.Context(), in)
			return err
		}
	}
	standard := func(i *ec2.CreateVolumeInput) { i.VolumeType = types.VolumeTypeStandard }
	rows := map[string]struct {
		of   func(*ec2.CreateVolumeInput)
		do   func(*region, string) error
		code string
	}{
		"nothing asked":       {nil, modify(func(*ec2.ModifyVolumeInput) {}), "InvalidParameterCombination"},
		"smaller":             {nil, modify(func(i *ec2.ModifyVolumeInput) { i.Size = aws.Int32(9) }), "InvalidParameterValue"},
		"beyond the type":     {nil, modify(func(i *ec2.ModifyVolumeInput) { i.Size = aws.Int32(65537) }), "InvalidParameterValue"},
		"iops too high":       {nil, modify(func(i *ec2.ModifyVolumeInput) { i.Iops = aws.Int32(5001) }), "InvalidParameterValue"},
		"iops and throughput": {nil, modify(func(i *ec2.ModifyVolumeInput) { i.Iops, i.Throughput = aws.Int32(5000), aws.Int32(1250) }), ""},
		"to io2 without iops": {nil, modify(func(i *ec2.ModifyVolumeInput) { i.VolumeType = types.VolumeTypeIo2 }), "MissingParameter"},
		"to io2":              {nil, modify(func(i *ec2.ModifyVolumeInput) { i.VolumeType, i.Iops = types.VolumeTypeIo2, aws.Int32(1000) }), ""},
		"to gp2":              {nil, modify(func(i *ec2.ModifyVolumeInput) { i.VolumeType = types.VolumeTypeGp2 }), ""},
		"from standard":       {standard, modify(func(i *ec2.ModifyVolumeInput) { i.Size = aws.Int32(11) }), "InvalidParameterValue"},
		"volume unknown":      {nil, func(r *region, _ string) error { return r.grow(absentVolume, 20) }, "InvalidVolume.NotFound"},
		"multi-attach on gp3": {nil, modify(func(i *ec2.ModifyVolumeInput) { i.MultiAttachEnabled = aws.Bool(true) }), "InvalidParameterCombination"},
		"volume is being deleted": {nil, func(r *region, id string) error {
			if _, err := r.DeleteVolume(r.t.Context(), &ec2.DeleteVolumeInput{VolumeId: &id}); err != nil {
				return err
			}
			return r.grow(id, 20)
		}, "InvalidVolume.NotFound"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			vol := r.newVolume(func(i *ec2.CreateVolumeInput) {
				if row.of != nil {
					row.of(i)
				}
			})
			wantCode(t, row.do(r, vol), row.code)
		})
	}
}

// TestModifyKeepsWhatIsNotSaid: growing keeps IOPS and throughput; a new type
// brings its own.
func TestModifyKeepsWhatIsNotSaid(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume(func(i *ec2.CreateVolumeInput) { i.Iops, i.Throughput = aws.Int32(4000), aws.Int32(500) })
	wantCode(t, r.grow(vol, 20), "")
	r.pass(time.Hour)
	v, _ := r.Volume(vol)
	wantSame(t, []any{int32(20), "gp3", int32(4000), int32(500)}, []any{v.SizeGiB, v.Type, v.IOPS, v.ThroughputMiBs})
	_, err := r.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &vol, VolumeType: types.VolumeTypeGp2})
	wantCode(t, err, "")
	r.pass(time.Hour)
	v, _ = r.Volume(vol)
	wantSame(t, []any{int32(20), "gp2", int32(100), int32(0)}, []any{v.SizeGiB, v.Type, v.IOPS, v.ThroughputMiBs})
}
