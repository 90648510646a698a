package ec2sim

import (
	"maps"
	"slices"
	"strconv"
)

func volumeActions() []action {
	return []action{{
		name:   "CreateVolume",
		handle: createVolume,
		params: params([]string{"AvailabilityZone", "AvailabilityZoneId", "ClientToken", "Encrypted", "Iops", "KmsKeyId",
			"MultiAttachEnabled", "Size", "SnapshotId", "Throughput", "VolumeInitializationRate", "VolumeType"}, tagSpec),
		bucket: bucketCreate,
	}, {
		name:   "DescribeVolumes",
		handle: describeVolumes,
		params: params([]string{"VolumeId.N"}, filterParam, paging),
		filters: params(tagFilters, []string{"attachment.attach-time", "attachment.delete-on-termination", "attachment.device",
			"attachment.instance-id", "attachment.status", "availability-zone", "availability-zone-id", "create-time", "encrypted",
			"multi-attach-enabled", "size", "snapshot-id", "status", "volume-id", "volume-type"}),
		bucket: bucketDescribe, plainBucket: true,
	}, {
		name:   "DeleteVolume",
		handle: deleteVolume,
		params: []string{"VolumeId"},
		bucket: bucketCreate,
	}}
}

type tagXML struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type attachmentXML struct {
	VolumeID            string `xml:"volumeId"`
	InstanceID          string `xml:"instanceId"`
	Device              string `xml:"device"`
	Status              string `xml:"status"`
	AttachTime          string `xml:"attachTime"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"`
	CardIndex           int32  `xml:"ebsCardIndex"`
}

type volumeXML struct {
	ID          string             `xml:"volumeId"`
	Size        int32              `xml:"size"`
	SnapshotID  string             `xml:"snapshotId"`
	Zone        string             `xml:"availabilityZone"`
	ZoneID      string             `xml:"availabilityZoneId"`
	Status      string             `xml:"status"`
	CreateTime  string             `xml:"createTime"`
	Type        string             `xml:"volumeType"`
	IOPS        *int32             `xml:"iops"`
	Throughput  *int32             `xml:"throughput"`
	InitRate    *int32             `xml:"volumeInitializationRate"`
	SourceID    *string            `xml:"sourceVolumeId"`
	Fast        *bool              `xml:"fastRestored"`
	Encrypted   bool               `xml:"encrypted"`
	KMSKeyID    *string            `xml:"kmsKeyId"`
	MultiAttach bool               `xml:"multiAttachEnabled"`
	Attachments set[attachmentXML] `xml:"attachmentSet"`
	Tags        set[tagXML]        `xml:"tagSet"`
}

type volumeAnswer struct {
	answer
	volumeXML
}

type volumesAnswer struct {
	answer
	Volumes   set[volumeXML] `xml:"volumeSet"`
	NextToken *string        `xml:"nextToken"`
}

func (s *Sim) volumeXML(v *Volume) volumeXML {
	x := volumeXML{
		ID: v.ID, Size: v.SizeGiB, SnapshotID: v.SnapshotID, Zone: v.Zone, ZoneID: s.zoneID(v.Zone),
		Status: v.State, CreateTime: wireTime(v.Created), Type: v.Type,
		IOPS: ptr(v.IOPS), Throughput: ptr(v.ThroughputMiBs), InitRate: ptr(v.InitRateMiBs), SourceID: ptr(v.SourceVolumeID), Fast: ptr(v.FastRestored),
		Encrypted: v.Encrypted, KMSKeyID: ptr(v.KMSKeyID), MultiAttach: v.MultiAttach, Tags: tagsXML(v.Tags),
	}
	for i := range v.Attachments {
		x.Attachments.Items = append(x.Attachments.Items, v.attachmentXML(&v.Attachments[i]))
	}
	return x
}

func (v *Volume) attachmentXML(a *Attachment) attachmentXML {
	return attachmentXML{v.ID, a.InstanceID, a.Device, a.State, wireTime(a.Since), a.DeleteOnTermination, a.CardIndex}
}

func tagsXML(tags map[string]string) set[tagXML] {
	var out set[tagXML]
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out.Items = append(out.Items, tagXML{k, tags[k]})
	}
	return out
}

// fact answers the filters of DescribeVolumes.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeVolumes.html
func (s *Sim) volumeFact(v *Volume) func(name string) []string {
	return func(name string) []string {
		switch name {
		case "availability-zone":
			return []string{v.Zone}
		case "availability-zone-id":
			return []string{s.zoneID(v.Zone)}
		case "create-time":
			return []string{wireTime(v.Created)}
		case "encrypted":
			return []string{strconv.FormatBool(v.Encrypted)}
		case "multi-attach-enabled":
			return []string{strconv.FormatBool(v.MultiAttach)}
		case "size":
			return []string{strconv.Itoa(int(v.SizeGiB))}
		case "snapshot-id":
			return []string{v.SnapshotID}
		case "status":
			return []string{v.State}
		case "volume-id":
			return []string{v.ID}
		case "volume-type":
			return []string{v.Type}
		case "tag-key":
			return tagFact(v.Tags, name)
		}
		if facts := v.attachmentFact(name); facts != nil {
			return facts
		}
		return tagFact(v.Tags, name)
	}
}

func (v *Volume) attachmentFact(name string) []string {
	var out []string
	for _, a := range v.Attachments {
		switch name {
		case "attachment.attach-time":
			out = append(out, wireTime(a.Since))
		case "attachment.delete-on-termination":
			out = append(out, strconv.FormatBool(a.DeleteOnTermination))
		case "attachment.device":
			out = append(out, a.Device)
		case "attachment.instance-id":
			out = append(out, a.InstanceID)
		case "attachment.status":
			out = append(out, a.State)
		}
	}
	return out
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeVolumes.html
func describeVolumes(r *request) (stampable, *APIError) {
	ids, volumes, filters, err := r.namedVolumes()
	if err != nil {
		return nil, err
	}
	volumes = slices.DeleteFunc(volumes, func(v *Volume) bool { return !matchAll(filters, r.sim.volumeFact(v)) })
	volumes, next, err := page(r, volumes, func(v *Volume) string { return v.ID }, 500, ids, "volumeIds")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	ans := &volumesAnswer{NextToken: next}
	for _, v := range volumes {
		ans.Volumes.Items = append(ans.Volumes.Items, r.sim.volumeXML(v))
	}
	return ans, nil
}

// namedVolumes reads what every describe of volumes begins with: the ids, their
// volumes, and the filters that are still to be applied.
func (r *request) namedVolumes() (ids []string, volumes []*Volume, filters []filter, err *APIError) {
	ids = r.list("VolumeId")
	if filters, err = r.filters(); err != nil {
		return nil, nil, nil, err
	}
	if volumes, err = r.sim.wantedVolumes(ids); err != nil {
		return nil, nil, nil, err
	}
	if err = r.allow(anything()); err != nil {
		return nil, nil, nil, err
	}
	return ids, volumes, filters, nil
}

// wantedVolumes are the volumes of those ids, all if there are none. One
// unknown id refuses the call, and the text names all unknown ones.
func (s *Sim) wantedVolumes(ids []string) ([]*Volume, *APIError) {
	if len(ids) == 0 {
		return s.visibleVolumes(), nil
	}
	if err := volumeIDs.checkAll(ids); err != nil {
		return nil, err
	}
	var out []*Volume
	var missing []string
	for _, id := range ids {
		v := s.store.volumes[id]
		if v == nil {
			missing = append(missing, id)
		} else if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	if missing != nil {
		return nil, volumeNotFound(missing...)
	}
	return out, nil
}

func (s *Sim) visibleVolumes() []*Volume {
	return slices.Collect(maps.Values(s.store.volumes))
}

// volume is the volume of an id, or the refusal EC2 has for it.
func (s *Sim) volume(id string) (*Volume, *APIError) {
	if err := volumeIDs.check(id); err != nil {
		return nil, err
	}
	v := s.store.volumes[id]
	if v == nil {
		return nil, volumeNotFound(id)
	}
	return v, nil
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteVolume.html
func deleteVolume(r *request) (stampable, *APIError) {
	id := r.must("VolumeId")
	if err := r.err(); err != nil {
		return nil, err
	}
	v, err := r.sim.volume(id)
	if err != nil {
		return nil, err
	}
	if err := r.allow(r.sim.volumeResource(v)); err != nil {
		return nil, err
	}
	switch {
	case v.State == stateDeleting:
		return nil, volumeNotFound(id)
	case len(v.Attachments) > 0:
		return nil, refuse("VolumeInUse", "Volume %s is currently attached to %s", v.ID, v.Attachments[0].InstanceID)
	case v.State != stateAvailable && v.State != stateError:
		return nil, refuse("IncorrectState", "The volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	v.State, v.Until = stateDeleting, r.after(v.ID, r.sim.delays.Delete)
	r.sim.store.putVolume(v)
	return done(), nil
}
