package ec2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// maxExcluded is how many data volumes a CreateSnapshots can leave out.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceSpecification.html
const maxExcluded = 40

// commonInstance is the instance that has all volumes; of several the first by
// its id. volumes are what EC2 shows of ids.
func commonInstance(ids []ebs.VolumeID, volumes []ebs.Volume) (ebs.InstanceID, error) {
	byID := map[ebs.VolumeID]ebs.Volume{}
	for _, v := range volumes {
		byID[v.ID] = v
	}
	count := map[ebs.InstanceID]int{}
	var where []string
	for _, id := range ids {
		v, there := byID[id]
		if !there || !v.Exists() {
			return "", fmt.Errorf("%w: volume %s", ebs.ErrNotFound, id)
		}
		on, moving := attachedTo(v)
		switch {
		case len(on) == 0 && moving != "":
			return "", fmt.Errorf("%w: volume %s is %s", ebs.ErrNotReady, id, moving)
		case len(on) == 0:
			return "", fmt.Errorf("%w: volume %s is attached to no instance, and EC2 takes the volumes of one instance at one instant", ebs.ErrNotTogether, id)
		}
		for _, i := range on {
			count[i]++
		}
		where = append(where, fmt.Sprintf("%s to %s", id, list(on)))
	}
	var common []ebs.InstanceID
	for i, n := range count {
		if n == len(ids) {
			common = append(common, i)
		}
	}
	if len(common) == 0 {
		return "", fmt.Errorf("%w: they are attached to several instances (%s), and EC2 takes the volumes of one instance at one instant", ebs.ErrNotTogether, strings.Join(where, ", "))
	}
	return slices.Min(common), nil
}

// attachedTo are the instances that use a volume, and what else happens with it.
func attachedTo(v ebs.Volume) (on []ebs.InstanceID, moving string) {
	for _, a := range v.Attachments {
		switch a.State {
		case ebs.Attached, ebs.Busy:
			on = append(on, a.Instance)
		default:
			moving = fmt.Sprintf("%s (instance %s)", a.State, a.Instance)
		}
	}
	slices.Sort(on)
	return on, moving
}

// besides are the instance's volumes that are not wanted and must be left out
// one by one, and whether the root volume, which has a switch of its own, is wanted.
func besides(i instance, wanted []ebs.VolumeID) (leaveOut []ebs.VolumeID, withRoot bool) {
	for device, id := range i.devices {
		switch {
		case device == i.root:
			withRoot = slices.Contains(wanted, id)
		case id != "" && !slices.Contains(wanted, id):
			leaveOut = append(leaveOut, id)
		}
	}
	slices.Sort(leaveOut)
	return leaveOut, withRoot
}

// sortedGroup is what of a set of snapshots is what to a group.
type sortedGroup struct {
	members []ebs.Snapshot // one of each wanted volume, in the order of the volumes' ids
	strays  []ebs.Snapshot // of volumes that are not wanted
	double  []ebs.Snapshot // further ones of a wanted volume
	missing []ebs.VolumeID // wanted volumes without
}

// sortGroup sorts snapshots that carry a group's name.
func sortGroup(all []ebs.Snapshot, wanted []ebs.VolumeID) sortedGroup {
	var g sortedGroup
	have := map[ebs.VolumeID]bool{}
	for _, snap := range all {
		switch {
		case !slices.Contains(wanted, snap.Volume):
			g.strays = append(g.strays, snap)
		case have[snap.Volume]:
			g.double = append(g.double, snap)
		default:
			have[snap.Volume] = true
			g.members = append(g.members, snap)
		}
	}
	for _, id := range wanted {
		if !have[id] {
			g.missing = append(g.missing, id)
		}
	}
	slices.SortFunc(g.members, func(a, b ebs.Snapshot) int { return strings.Compare(string(a.Volume), string(b.Volume)) })
	return g
}

func snapshotIDs(snapshots []ebs.Snapshot) []ebs.SnapshotID {
	ids := make([]ebs.SnapshotID, 0, len(snapshots))
	for _, snap := range snapshots {
		ids = append(ids, snap.ID)
	}
	return ids
}
