package ec2sim

// maxMultiAttach is how many instances share a Multi-Attach volume.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html
const maxMultiAttach = 16

// checkShared judges whether a Multi-Attach volume and the instance go
// together: it takes instances built on Nitro, and only so many.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html
func checkShared(v *Volume, i *Instance) *APIError {
	switch {
	case !v.MultiAttach:
		return nil
	case typeOf(i.Type).hypervisor == "xen":
		return refuse("UnsupportedOperation", "Volume '%s' has Multi-Attach enabled, which instance type %s does not support.", v.ID, i.Type)
	case len(v.Attachments) >= maxMultiAttach:
		return refuse("AttachmentLimitExceeded", "Volume '%s' has reached the maximum of %d attachments.", v.ID, maxMultiAttach)
	}
	return nil
}

// checkMultiAttachChange judges a modification of, or to, a Multi-Attach
// volume: io1 has it from its creation or never, and is fixed with it; with
// io2 it changes while detached, and the type stays.
// https://docs.aws.amazon.com/ebs/latest/userguide/working-with-multi-attach.html
func checkMultiAttachChange(v *Volume, to Shape) *APIError {
	switch {
	case to.MultiAttach != v.MultiAttach && v.Type == "io1":
		return refuse("InvalidParameterCombination", "Multi-Attach of volume '%s' of type io1 cannot be changed after its creation.", v.ID)
	case to.MultiAttach != v.MultiAttach && v.State != stateAvailable:
		return refuse("IncorrectState", "Multi-Attach of volume '%s' can only be changed while it is detached.", v.ID)
	case v.MultiAttach && to.Type != v.Type:
		return refuse("InvalidParameterCombination", "Volume '%s' has Multi-Attach enabled; its type cannot be changed.", v.ID)
	case v.MultiAttach && v.Type == "io1":
		return refuse("InvalidParameterCombination", "Volume '%s' of type io1 has Multi-Attach enabled and cannot be modified.", v.ID)
	}
	return nil
}
