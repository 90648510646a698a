package ec2sim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

const absentVolume = "vol-00000000000000000"

func TestAttachRefusals(t *testing.T) {
	const instanceC = "i-0000000000000a002"
	r := newRegion(t)
	if err := r.AddInstance(ec2sim.Instance{ID: instanceC, Zone: zoneA}); err != nil {
		t.Fatal(err)
	}
	attached, free := r.newVolume(), r.newVolume()
	wantCode(t, r.attach(attached, instanceA, "/dev/xvdaa"), "")
	rows := []struct{ why, volume, instance, device, code string }{
		{"one zone for both", free, instanceB, "/dev/xvdaa", "InvalidVolume.ZoneMismatch"},
		{"attached to it already", attached, instanceA, "/dev/xvdab", "VolumeInUse"},
		{"attached to another", attached, instanceC, "/dev/xvdab", "VolumeInUse"},
		{"a device name is used once", free, instanceA, "/dev/xvdaa", "InvalidParameterValue"},
		{"the root disk has a name too", free, instanceA, "/dev/xvda", "InvalidParameterValue"},
		{"a device name looks like one", free, instanceA, "/dev/nvme1n1", "InvalidParameterValue"},
		{"the volume exists", absentVolume, instanceA, "/dev/xvdab", "InvalidVolume.NotFound"},
		{"an id has digits", "vol-xyz", instanceA, "/dev/xvdab", "InvalidVolumeID.Malformed"},
		{"an id has its prefix", "disk-1", instanceA, "/dev/xvdab", "InvalidParameterValue"},
		{"the instance exists", free, "i-00000000000000000", "/dev/xvdab", "InvalidInstanceID.NotFound"},
		{"an instance id has digits", free, "fake-node", "/dev/xvdab", "InvalidInstanceID.Malformed"},
	}
	for _, row := range rows {
		if got := code(r.attach(row.volume, row.instance, row.device)); got != row.code {
			t.Errorf("%s: %q, want %q", row.why, got, row.code)
		}
	}
	if err := r.TerminateInstance(instanceC); err != nil {
		t.Fatal(err)
	}
	wantCode(t, r.attach(free, instanceC, "/dev/xvdab"), "IncorrectState")
}

func TestDetachRefusals(t *testing.T) {
	const instanceC = "i-0000000000000a002"
	r := newRegion(t)
	if err := r.AddInstance(ec2sim.Instance{ID: instanceC, Zone: zoneA}); err != nil {
		t.Fatal(err)
	}
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	wantCode(t, r.detach(vol, instanceC), "InvalidAttachment.NotFound")
	wantCode(t, r.detach(absentVolume, instanceA), "InvalidVolume.NotFound")
	wantCode(t, r.detach(vol, "i-00000000000000000"), "InvalidInstanceID.NotFound")
	_, err := r.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: &vol, Device: aws.String("/dev/xvdzz")})
	wantCode(t, err, "InvalidAttachment.NotFound")
	root := r.Instances()[0].RootID
	wantCode(t, r.detach(root, instanceA), "OperationNotPermitted")
	if got := r.states(vol); got[1] != "attaching" {
		t.Errorf("refused detaches left the volume %v", got)
	}
	// a volume that hangs in attaching can be detached
	wantCode(t, r.detach(vol, instanceA), "")
	r.pass(time.Minute)
	wantSame(t, []string{"available"}, r.states(vol))
}

// TestAttachmentLimit counts the root disk, and network interfaces where the
// type shares its limit with them.
func TestAttachmentLimit(t *testing.T) {
	rows := []struct {
		why, typ string
		enis     int
		fits     int
	}{
		{"shared, one interface", "m5.large", 1, 26},
		{"shared, three interfaces", "m5.large", 3, 24},
		{"dedicated, three interfaces", "m7i.large", 3, 31},
		{"the smallest", "d3en.12xlarge", 1, 2},
	}
	for _, row := range rows {
		t.Run(row.why, func(t *testing.T) {
			r := newRegion(t)
			id := "i-00000000000000c01"
			if err := r.AddInstance(ec2sim.Instance{ID: id, Zone: zoneA, Type: row.typ, NetworkInterfaces: row.enis}); err != nil {
				t.Fatal(err)
			}
			for n := range row.fits {
				if err := r.attach(r.newVolume(), id, fmt.Sprintf("/dev/xvd%c%c", 'b'+n/26, 'a'+n%26)); err != nil {
					t.Fatalf("volume %d of %d: %v", n+1, row.fits, err)
				}
			}
			wantCode(t, r.attach(r.newVolume(), id, "/dev/xvdzz"), "AttachmentLimitExceeded")
		})
	}
}

func TestMultiAttach(t *testing.T) {
	const instanceC = "i-0000000000000a002"
	r := newRegion(t)
	if err := r.AddInstance(ec2sim.Instance{ID: instanceC, Zone: zoneA}); err != nil {
		t.Fatal(err)
	}
	vol := r.newVolume(func(i *ec2.CreateVolumeInput) {
		i.VolumeType, i.Iops, i.MultiAttachEnabled = types.VolumeTypeIo2, aws.Int32(1000), aws.Bool(true)
	})
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdab"), "VolumeInUse")
	wantCode(t, r.attach(vol, instanceC, "/dev/xvdaa"), "")
	_, err := r.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: &vol})
	wantCode(t, err, "MissingParameter")
	wantCode(t, r.detach(vol, instanceA), "")
	r.pass(time.Minute)
	wantSame(t, []string{"in-use", "attached"}, r.states(vol))
}

func TestEbsCards(t *testing.T) {
	r := newRegion(t)
	id := "i-00000000000000c02"
	if err := r.AddInstance(ec2sim.Instance{ID: id, Zone: zoneA, Type: "r8gb.48xlarge"}); err != nil {
		t.Fatal(err)
	}
	attach := func(card int32) error {
		_, err := r.AttachVolume(t.Context(), &ec2.AttachVolumeInput{
			VolumeId: aws.String(r.newVolume()), InstanceId: &id, Device: aws.String("/dev/xvdba"), EbsCardIndex: &card})
		return err
	}
	wantCode(t, attach(2), "InvalidParameterValue")
	wantCode(t, attach(1), "")
}

// TestTerminatedInstanceLetsGo: volumes of a terminated instance become free,
// its root disk goes with it, and it stays visible.
func TestTerminatedInstanceLetsGo(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	root := r.Instances()[0].RootID
	if err := r.TerminateInstance(instanceA); err != nil {
		t.Fatal(err)
	}
	wantSame(t, []string{"available"}, r.states(vol))
	wantSame(t, []string{"InvalidVolume.NotFound"}, r.states(root))
	out, err := r.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{instanceA}})
	if err != nil {
		t.Fatal(err)
	}
	i := out.Reservations[0].Instances[0]
	if i.State.Name != types.InstanceStateNameTerminated || *i.State.Code != 48 || len(i.BlockDeviceMappings) != 0 {
		t.Errorf("terminated instance shows as %s %d with %d volumes", i.State.Name, *i.State.Code, len(i.BlockDeviceMappings))
	}
	if err := r.AddInstance(ec2sim.Instance{ID: instanceA, Zone: zoneA}); err == nil {
		t.Error("an instance id was used twice")
	}
	if err := r.RemoveInstance(instanceA); err != nil {
		t.Error(err)
	}
	_, err = r.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{instanceA}})
	wantCode(t, err, "InvalidInstanceID.NotFound")
}

func TestStoppedInstanceKeepsVolumes(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	r.pass(time.Minute)
	for _, step := range []func(string) error{r.StopInstance, r.StartInstance} {
		if err := step(instanceA); err != nil {
			t.Fatal(err)
		}
		wantSame(t, []string{"in-use", "attached"}, r.states(vol))
	}
	// declared again, as at a restart of the simulator, it is what it was
	if err := errors.Join(r.StopInstance(instanceA), r.AddInstance(ec2sim.Instance{ID: instanceA, Zone: zoneA})); err != nil {
		t.Fatal(err)
	}
	if got := r.Instances()[0].State; got != "stopped" {
		t.Errorf("declared again it is %s", got)
	}
}

func TestAddInstanceRefusals(t *testing.T) {
	r := newRegion(t)
	for why, i := range map[string]ec2sim.Instance{
		"an id is i- and 17 digits": {ID: "i-0abc", Zone: zoneA},
		"the zone is the region's":  {ID: "i-00000000000000c03", Zone: "eu-west-1a"},
		"the type is in the table":  {ID: "i-00000000000000c03", Zone: zoneA, Type: "z9.huge"},
		"a source is an address":    {ID: "i-00000000000000c03", Zone: zoneA, Sources: []string{"node-a"}},
		"a zone is for ever":        {ID: instanceA, Zone: zoneB},
		"it starts running or not":  {ID: "i-00000000000000c03", Zone: zoneA, State: "pending"},
	} {
		if err := r.AddInstance(i); err == nil {
			t.Errorf("%s, yet %+v was taken", why, i)
		}
	}
}
