package ec2sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func shared(typ types.VolumeType) func(*ec2.CreateVolumeInput) {
	return func(i *ec2.CreateVolumeInput) {
		i.VolumeType, i.Iops, i.MultiAttachEnabled = typ, aws.Int32(100), aws.Bool(true)
	}
}

func single(typ types.VolumeType) func(*ec2.CreateVolumeInput) {
	return func(i *ec2.CreateVolumeInput) { i.VolumeType, i.Iops = typ, aws.Int32(100) }
}

// TestMultiAttachTakes16: the seventeenth instance is refused, until one lets go.
func TestMultiAttachTakes16(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume(shared(types.VolumeTypeIo2))
	attach := func(n int) error {
		id := fmt.Sprintf("i-%017x", 0xc00+n)
		if err := r.AddInstance(ec2sim.Instance{ID: id, Zone: zoneA}); err != nil {
			t.Fatal(err)
		}
		return r.attach(vol, id, "/dev/xvdaa")
	}
	for n := range 16 {
		wantCode(t, attach(n), "")
	}
	r.pass(time.Minute)
	wantCode(t, attach(16), "AttachmentLimitExceeded")
	wantCode(t, r.detach(vol, fmt.Sprintf("i-%017x", 0xc00)), "")
	wantCode(t, attach(16), "AttachmentLimitExceeded")
	r.pass(time.Minute)
	wantCode(t, attach(16), "")
	if got := r.states(vol); len(got) != 17 || got[0] != "in-use" {
		t.Errorf("states %v, want in-use with 16 attachments", got)
	}
}

// TestMultiAttachNeedsNitro: a volume of its own goes to a Xen instance, a
// shared one does not.
func TestMultiAttachNeedsNitro(t *testing.T) {
	r := newRegion(t)
	const xen = "i-00000000000000c05"
	if err := r.AddInstance(ec2sim.Instance{ID: xen, Zone: zoneA, Type: "t2.medium"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, r.attach(r.newVolume(shared(types.VolumeTypeIo2)), xen, "/dev/xvdaa"), "UnsupportedOperation")
	wantCode(t, r.attach(r.newVolume(single(types.VolumeTypeIo2)), xen, "/dev/xvdaa"), "")
}

func TestMultiAttachModifications(t *testing.T) {
	enable := func(i *ec2.ModifyVolumeInput) { i.MultiAttachEnabled = aws.Bool(true) }
	disable := func(i *ec2.ModifyVolumeInput) { i.MultiAttachEnabled = aws.Bool(false) }
	grow := func(i *ec2.ModifyVolumeInput) { i.Size = aws.Int32(20) }
	faster := func(i *ec2.ModifyVolumeInput) { i.Iops = aws.Int32(200) }
	to := func(typ types.VolumeType) func(*ec2.ModifyVolumeInput) {
		return func(i *ec2.ModifyVolumeInput) { i.VolumeType = typ }
	}
	const no = "InvalidParameterCombination"
	for _, row := range []struct {
		why      string
		of       func(*ec2.CreateVolumeInput)
		attached bool
		change   func(*ec2.ModifyVolumeInput)
		code     string
		after    bool // Multi-Attach
	}{
		{"io2 gets it", single("io2"), false, enable, "", true},
		{"io2 loses it", shared("io2"), false, disable, "", false},
		{"not while attached", single("io2"), true, enable, "IncorrectState", false},
		{"nor the other way", shared("io2"), true, disable, "IncorrectState", true},
		{"io2 grows with it, attached", shared("io2"), true, grow, "", true},
		{"io2 gets faster with it", shared("io2"), true, faster, "", true},
		{"its type stays", shared("io2"), false, to("io1"), no, true},
		{"io1 never gets it", single("io1"), false, enable, no, false},
		{"io1 never loses it", shared("io1"), false, disable, no, true},
		{"io1 does not grow with it", shared("io1"), false, grow, no, true},
		{"io1 grows without it", single("io1"), false, grow, "", false},
		{"said again it is no change", shared("io2"), true, func(i *ec2.ModifyVolumeInput) { enable(i); grow(i) }, "", true},
	} {
		t.Run(row.why, func(t *testing.T) {
			r := newRegion(t)
			vol := r.newVolume(row.of)
			if row.attached {
				wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
			}
			in := &ec2.ModifyVolumeInput{VolumeId: &vol}
			row.change(in)
			_, err := r.ModifyVolume(t.Context(), in)
			wantCode(t, err, row.code)
			r.pass(time.Minute)
			if v, _ := r.Volume(vol); v.MultiAttach != row.after {
				t.Errorf("Multi-Attach is %v afterwards", v.MultiAttach)
			}
		})
	}
}
