package ec2sim

import (
	"regexp"
)

func attachActions() []action {
	return []action{{
		name:   "AttachVolume",
		handle: attachVolume,
		params: []string{"Device", "InstanceId", "VolumeId", "EbsCardIndex"},
		bucket: bucketMutate,
	}, {
		name:   "DetachVolume",
		handle: detachVolume,
		params: []string{"Device", "Force", "InstanceId", "VolumeId"},
		bucket: bucketMutate,
	}}
}

type attachAnswer struct {
	answer
	attachmentXML
}

// deviceNames: /dev/sdb, /dev/sdf1, /dev/xvdaa.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/device_naming.html
var deviceNames = regexp.MustCompile(`^/dev/(sd[a-z]([1-9]|1[0-5])?|xvd[a-z]{1,2})$`)

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_AttachVolume.html
func attachVolume(r *request) (stampable, *APIError) {
	volumeID, instanceID, device := r.must("VolumeId"), r.must("InstanceId"), r.must("Device")
	card, _ := r.number("EbsCardIndex")
	if err := r.err(); err != nil {
		return nil, err
	}
	v, err := r.sim.volume(volumeID)
	if err != nil {
		return nil, err
	}
	i, err := r.sim.instance(instanceID)
	if err != nil {
		return nil, err
	}
	if err := r.allow(r.sim.volumeResource(v), r.sim.instanceResource(i)); err != nil {
		return nil, err
	}
	if err := checkAttach(v, i); err != nil {
		return nil, err
	}
	if err := r.sim.checkSlot(i, device, card); err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	v.Attachments = append(v.Attachments, Attachment{
		InstanceID: i.ID, Device: device, State: attachAttaching, CardIndex: card,
		Since: r.now, Until: r.after(v.ID, r.sim.delays.Attach), Stuck: r.fault.ends(OutcomeStuck),
	})
	v.State = stateInUse
	r.sim.store.putVolume(v)
	return &attachAnswer{attachmentXML: v.attachmentXML(v.attachment(i.ID))}, nil
}

// checkAttach judges whether volume and instance go together.
func checkAttach(v *Volume, i *Instance) *APIError {
	switch {
	case i.State == instanceTerminated:
		return refuse("IncorrectState", "Instance '%s' is not 'running'.", i.ID)
	case v.Zone != i.Zone:
		return refuse("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", v.ID, i.ID)
	case v.State == stateInUse && (!v.MultiAttach || v.attachment(i.ID) != nil):
		return refuse("VolumeInUse", "%s is already attached to an instance", v.ID)
	case v.State != stateAvailable && v.State != stateInUse:
		return refuse("IncorrectState", "Volume '%s' is not 'available'.", v.ID)
	}
	return checkShared(v, i)
}

// checkSlot judges whether the instance has a place of that name left.
func (s *Sim) checkSlot(i *Instance, device string, card int32) *APIError {
	if !deviceNames.MatchString(device) {
		return refuse("InvalidParameterValue", "Value (%s) for parameter device is invalid. %s is not a valid EBS device name.", device, device)
	}
	typ := typeOf(i.Type)
	if card < 0 || card >= typ.cards {
		return refuse("InvalidParameterValue", "Value (%d) for parameter ebsCardIndex is invalid. Instance type %s has %d EBS cards.", card, i.Type, typ.cards)
	}
	used := 0
	for _, v := range s.store.volumes {
		a := v.attachment(i.ID)
		if a == nil {
			continue
		}
		used++
		if a.Device == device {
			return refuse("InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", device, device)
		}
	}
	if limit := typ.limit(i.enis()); used >= limit {
		return refuse("AttachmentLimitExceeded", "You may attach up to %d devices for this instance type. Please use a larger instance size to attach more volumes.", limit)
	}
	return nil
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DetachVolume.html
func detachVolume(r *request) (stampable, *APIError) {
	volumeID := r.must("VolumeId")
	instanceID, device, force := r.str("InstanceId"), r.str("Device"), r.boolean("Force")
	if err := r.err(); err != nil {
		return nil, err
	}
	v, err := r.sim.volume(volumeID)
	if err != nil {
		return nil, err
	}
	a, i, err := r.sim.wantedAttachment(v, instanceID, device)
	if err != nil {
		return nil, err
	}
	if err := r.allow(r.sim.volumeResource(v), r.sim.instanceResource(i)); err != nil {
		return nil, err
	}
	if v.RootOf != "" && i.State == instanceRunning {
		return nil, refuse("OperationNotPermitted", "The root volume '%s' of instance '%s' cannot be detached while the instance is running.", v.ID, i.ID)
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	if a.State == attachAttaching || a.State == attachAttached {
		a.State, a.Until, a.Trouble = attachDetaching, r.after(v.ID, r.sim.delays.Detach), ""
	}
	if force && !a.Force {
		a.Force = true
		a.Until = minTime(a.Until, r.after(v.ID, r.sim.delays.Detach))
	}
	r.sim.store.putVolume(v)
	return &attachAnswer{attachmentXML: v.attachmentXML(a)}, nil
}

// wantedAttachment is the attachment that DetachVolume means. A repeat while
// the volume is detaching finds it as well.
func (s *Sim) wantedAttachment(v *Volume, instanceID, device string) (*Attachment, *Instance, *APIError) {
	var i *Instance
	if instanceID != "" {
		var err *APIError
		if i, err = s.instance(instanceID); err != nil {
			return nil, nil, err
		}
	}
	if len(v.Attachments) == 0 {
		return nil, nil, refuse("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	if i == nil {
		if len(v.Attachments) > 1 {
			return nil, nil, refuse("MissingParameter", "The request must contain the parameter instanceId, as volume '%s' is attached to more than one instance", v.ID)
		}
		i = s.store.instances[v.Attachments[0].InstanceID]
	}
	a := v.attachment(i.ID)
	if a == nil || device != "" && device != a.Device {
		return nil, nil, refuse("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s' as the device '%s'.", v.ID, i.ID, device)
	}
	return a, i, nil
}
