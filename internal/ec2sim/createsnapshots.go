package ec2sim

import (
	"maps"
	"slices"
)

// maxExcluded is how many data volumes a CreateSnapshots can leave out.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceSpecification.html
const maxExcluded = 40

// snapshotInfoXML is a snapshot as CreateSnapshots shows it: its state is
// <state>, not <status>.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_SnapshotInfo.html
type snapshotInfoXML struct {
	ID          string      `xml:"snapshotId"`
	VolumeID    string      `xml:"volumeId"`
	State       string      `xml:"state"`
	StartTime   string      `xml:"startTime"`
	Progress    string      `xml:"progress"`
	OwnerID     string      `xml:"ownerId"`
	VolumeSize  int32       `xml:"volumeSize"`
	Description string      `xml:"description"`
	Encrypted   bool        `xml:"encrypted"`
	Tags        set[tagXML] `xml:"tagSet"`
}

type snapshotInfosAnswer struct {
	answer
	Snapshots set[snapshotInfoXML] `xml:"snapshotSet"`
}

// createSnapshots snapshots the volumes of an instance, all at one instant or
// none.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateSnapshots.html
func createSnapshots(r *request) (stampable, *APIError) {
	instanceID, description := r.must("InstanceSpecification.InstanceId"), r.str("Description")
	copyTags, err := r.copyTagsParam()
	if err != nil {
		return nil, err
	}
	tags, err := r.newTags("snapshot")
	if err != nil {
		return nil, err
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	i, err := r.sim.instance(instanceID)
	if err != nil {
		return nil, err
	}
	volumes, err := r.volumesToSnapshot(i)
	if err != nil {
		return nil, err
	}
	var snapshots []*Snapshot
	for _, v := range volumes {
		all := map[string]string{}
		if copyTags {
			maps.Copy(all, v.Tags)
		}
		maps.Copy(all, tags)
		if err := checkTagCount(len(all)); err != nil {
			return nil, err
		}
		snapshots = append(snapshots, r.newSnapshot(v, description, all))
	}
	if err := r.allowCreateSnapshots(i, snapshots, tags); err != nil {
		return nil, err
	}
	if err := r.checkSnapshots(volumes...); err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	if err := r.sim.makeSnapshots(snapshots...); err != nil {
		return nil, err
	}
	return r.sim.snapshotInfos(snapshots), nil
}

func (s *Sim) snapshotInfos(snapshots []*Snapshot) *snapshotInfosAnswer {
	ans := &snapshotInfosAnswer{}
	for _, sn := range snapshots {
		x := s.snapshotXML(sn)
		ans.Snapshots.Items = append(ans.Snapshots.Items, snapshotInfoXML{
			ID: x.ID, VolumeID: x.VolumeID, State: x.Status, StartTime: x.StartTime, Progress: x.Progress, OwnerID: x.OwnerID,
			VolumeSize: x.VolumeSize, Description: x.Description, Encrypted: x.Encrypted, Tags: x.Tags,
		})
	}
	return ans
}

// copyTagsParam tells whether snapshots take the tags of their volumes; where
// both have a key the request's value is taken.
func (r *request) copyTagsParam() (bool, *APIError) {
	switch from := r.str("CopyTagsFromSource"); from {
	case "":
		return false, nil
	case "volume":
		return true, nil
	default:
		return false, refuse("InvalidParameterValue", "Value (%s) for parameter copyTagsFromSource is invalid. Expected: 'volume'.", from)
	}
}

// volumesToSnapshot are the volumes attached to the instance, whatever the
// state of the attachment, less those that the call leaves out.
func (r *request) volumesToSnapshot(i *Instance) ([]*Volume, *APIError) {
	const param = "InstanceSpecification.ExcludeDataVolumeId"
	withoutRoot, excluded := r.boolean("InstanceSpecification.ExcludeBootVolume"), r.list(param)
	if err := r.err(); err != nil {
		return nil, err
	}
	if len(excluded) > maxExcluded {
		return nil, refuse("InvalidParameterValue", "The number of excluded data volumes (%d) exceeds the maximum of %d.", len(excluded), maxExcluded)
	}
	if err := volumeIDs.checkAll(excluded); err != nil {
		return nil, err
	}
	for _, id := range excluded {
		if v := r.sim.store.volumes[id]; v == nil || v.attachment(i.ID) == nil {
			return nil, refuse("InvalidParameterValue", "Volume '%s' is not attached to instance '%s' and cannot be excluded.", id, i.ID)
		} else if v.RootOf == i.ID {
			return nil, refuse("InvalidParameterValue", "Volume '%s' is the root volume of instance '%s'. Use ExcludeBootVolume to exclude it.", id, i.ID)
		}
	}
	volumes := slices.DeleteFunc(r.sim.attachedTo(i.ID), func(v *Volume) bool {
		return withoutRoot && v.RootOf == i.ID || slices.Contains(excluded, v.ID)
	})
	if len(volumes) == 0 {
		return nil, refuse("InvalidParameterValue", "No volume of instance '%s' is left to be snapshotted.", i.ID)
	}
	return volumes, nil
}

// allowCreateSnapshots asks for the instance, each volume and each new
// snapshot. Conditions see the request's tags, not those copied from volumes.
func (r *request) allowCreateSnapshots(i *Instance, snapshots []*Snapshot, asked map[string]string) *APIError {
	if err := r.allow(r.sim.instanceResource(i)); err != nil {
		return err
	}
	for _, sn := range snapshots {
		v := r.sim.store.volumes[sn.VolumeID]
		if err := r.allow(r.sim.volumeResource(v)); err != nil {
			return err
		}
		res := r.sim.newSnapshotResource(sn, v)
		if err := r.allowNew(res, asked); err != nil {
			return err
		}
		if len(asked) == 0 && len(sn.Tags) > 0 {
			res.context["ec2:CreateAction"] = []string{r.action.name}
			if err := r.allowAction("CreateTags", res); err != nil {
				return err
			}
		}
	}
	return nil
}
