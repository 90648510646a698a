package ec2sim

func copyActions() []action {
	return []action{{
		name:   "CopyVolumes",
		handle: copyVolumes,
		params: params([]string{"SourceVolumeId", "ClientToken", "Encrypted", "Iops", "KmsKeyId", "MultiAttachEnabled", "Size",
			"Throughput", "VolumeType"}, tagSpec),
		bucket: bucketMutate,
	}}
}

// copyVolumes makes one volume in the zone of its source, with the source's
// content as it is at the call.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CopyVolumes.html
func copyVolumes(r *request) (stampable, *APIError) {
	sourceID := r.must("SourceVolumeId")
	if err := r.err(); err != nil {
		return nil, err
	}
	source, err := r.sim.volume(sourceID)
	if err != nil {
		return nil, err
	}
	v, err := r.wantedCopy(source)
	if err != nil {
		return nil, err
	}
	if err := r.allowCopyVolumes(v, source); err != nil {
		return nil, err
	}
	made, err := r.makeOnce(v, func() *APIError { return r.checkCopySource(source) })
	if err != nil {
		return nil, err
	}
	ans := &volumesAnswer{}
	ans.Volumes.Items = []volumeXML{r.sim.volumeXML(made)}
	return ans, nil
}

// wantedCopy is the volume that the parameters ask for, checked. Type and
// performance are those of the request, not the source's; encryption stays.
func (r *request) wantedCopy(source *Volume) (*Volume, *APIError) {
	tags, err := r.newTags("volume")
	if err != nil {
		return nil, err
	}
	id := newID("vol-")
	v := &Volume{
		ID: id, Zone: source.Zone, Created: r.now, State: stateCreating, Tags: tags, SourceVolumeID: source.ID,
		Until: r.after(id, r.sim.delays.Create), Initialized: r.after(id, r.sim.delays.Initialize),
		SizeGiB: source.SizeGiB, Encrypted: r.boolean("Encrypted") || source.Encrypted, KMSKeyID: r.str("KmsKeyId"),
		Doomed: r.fault.ends(OutcomeVanish), Failing: r.fault.ends(OutcomeError),
	}
	if size, sized := r.number("Size"); sized {
		v.SizeGiB = size
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	if v.SizeGiB < source.SizeGiB {
		return nil, refuse("InvalidParameterValue", "Volume of size %dGiB is smaller than volume '%s', expect size >= %dGiB", v.SizeGiB, source.ID, source.SizeGiB)
	}
	if v.KMSKeyID == "" {
		v.KMSKeyID = source.KMSKeyID
	}
	if err := r.shapeParams(v); err != nil {
		return nil, err
	}
	return v, r.sim.fitKey(v)
}

// checkCopySource judges whether the volume can be copied now. One copy of a
// volume at a time may be initializing.
func (r *request) checkCopySource(source *Volume) *APIError {
	switch {
	case source.RootOf != "":
		return r.sim.notModelledLocked("action", "CopyVolumes of a root disk", "")
	case source.State == stateDeleting:
		return volumeNotFound(source.ID)
	case source.State == stateCreating:
		return refuse("IncorrectState", "The volume '%s' is in the '%s' state.", source.ID, source.State)
	}
	for _, v := range r.sim.store.volumes {
		if v.SourceVolumeID == source.ID && v.State != stateDeleting && v.initializing(r.now) {
			return refuse("ConcurrentCopyVolumeLimitExceeded", "Volume '%s' is being copied to '%s' already.", source.ID, v.ID)
		}
	}
	return nil
}

// allowCopyVolumes asks for the source and for the new volume.
func (r *request) allowCopyVolumes(v, source *Volume) *APIError {
	if err := r.allow(r.sim.volumeResource(source)); err != nil {
		return err
	}
	res := resource{r.sim.arn("volume", "*"), map[string][]string{}}
	res.shape(v)
	return r.allowNew(res, v.Tags)
}
