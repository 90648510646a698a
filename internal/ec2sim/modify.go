package ec2sim

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

func modifyActions() []action {
	return []action{{
		name:   "ModifyVolume",
		handle: modifyVolume,
		params: []string{"VolumeId", "Size", "Iops", "Throughput", "VolumeType", "MultiAttachEnabled"},
		bucket: bucketMutate,
	}, {
		name:   "DescribeVolumesModifications",
		handle: describeModifications,
		params: params([]string{"VolumeId.N"}, filterParam, paging),
		filters: []string{"modification-state", "original-iops", "original-size", "original-volume-type", "start-time",
			"target-iops", "target-size", "target-volume-type", "volume-id"},
		bucket: bucketDescribe,
	}}
}

// A volume can be modified so many times in a rolling day, if the one before
// is completed.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVolume.html
const (
	maxModifications   = 4
	modificationWindow = 24 * time.Hour
)

type modificationXML struct {
	VolumeID           string  `xml:"volumeId"`
	State              string  `xml:"modificationState"`
	StatusMessage      *string `xml:"statusMessage"`
	Progress           int64   `xml:"progress"`
	StartTime          string  `xml:"startTime"`
	EndTime            *string `xml:"endTime"`
	TargetSize         int32   `xml:"targetSize"`
	TargetIOPS         *int32  `xml:"targetIops"`
	TargetThroughput   *int32  `xml:"targetThroughput"`
	TargetType         string  `xml:"targetVolumeType"`
	TargetMultiAttach  bool    `xml:"targetMultiAttachEnabled"`
	OriginalSize       int32   `xml:"originalSize"`
	OriginalIOPS       *int32  `xml:"originalIops"`
	OriginalThroughput *int32  `xml:"originalThroughput"`
	OriginalType       string  `xml:"originalVolumeType"`
	OriginalMulti      bool    `xml:"originalMultiAttachEnabled"`
}

type modifyAnswer struct {
	answer
	Modification modificationXML `xml:"volumeModification"`
}

type modificationsAnswer struct {
	answer
	Modifications set[modificationXML] `xml:"volumeModificationSet"`
	NextToken     *string              `xml:"nextToken"`
}

func (s *Sim) modificationXML(v *Volume) modificationXML {
	m := v.modification()
	x := modificationXML{
		VolumeID: v.ID, State: m.State, StatusMessage: ptr(m.Trouble), StartTime: wireTime(m.Begun),
		TargetSize: m.To.SizeGiB, TargetIOPS: ptr(m.To.IOPS), TargetThroughput: ptr(m.To.ThroughputMiBs), TargetType: m.To.Type,
		TargetMultiAttach: m.To.MultiAttach,
		OriginalSize:      m.From.SizeGiB, OriginalIOPS: ptr(m.From.IOPS), OriginalThroughput: ptr(m.From.ThroughputMiBs),
		OriginalType: m.From.Type, OriginalMulti: m.From.MultiAttach,
	}
	if m.State == modCompleted {
		x.Progress, x.EndTime = 100, ptr(wireTime(m.Done))
	} else {
		x.Progress = percent(m.Begun, m.Done, s.clock.Now())
	}
	return x
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVolume.html
func modifyVolume(r *request) (stampable, *APIError) {
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
	to, err := r.wantedShape(v)
	if err != nil {
		return nil, err
	}
	if err := r.checkModify(v); err != nil {
		return nil, err
	}
	if provisionedIOPS(to.Type, to.IOPS) > provisionedIOPS(v.Type, v.IOPS) {
		if err := r.sim.checkIOPSQuota(v.ID, to); err != nil {
			return nil, err
		}
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	usable := r.after(v.ID, r.sim.delays.Modify)
	v.Modifications = append(v.Modifications, Modification{
		State: modModifying, Begun: r.now, Usable: usable, Done: usable.Add(time.Duration(r.sim.delays.Optimize)), From: v.shape(), To: to,
	})
	if n := len(v.Modifications); n > maxModifications { // older ones decide nothing
		v.Modifications = slices.Delete(v.Modifications, 0, n-maxModifications)
	}
	r.sim.store.putVolume(v)
	return &modifyAnswer{Modification: r.sim.modificationXML(v)}, nil
}

// wantedShape is what the volume is to become. What is not said stays, if the
// new type has it; else it is the new type's default.
func (r *request) wantedShape(v *Volume) (Shape, *APIError) {
	size, sized := r.number("Size")
	wish := shapeWish{iops: r.optional("Iops"), throughput: r.optional("Throughput")}
	to := v.shape()
	if t := r.str("VolumeType"); t != "" {
		to.Type = t
	}
	if r.has("MultiAttachEnabled") {
		to.MultiAttach = r.boolean("MultiAttachEnabled")
	}
	if err := r.err(); err != nil {
		return to, err
	}
	if !sized && wish == (shapeWish{}) && !r.has("VolumeType") && !r.has("MultiAttachEnabled") {
		return to, refuse("InvalidParameterCombination", "The request must contain at least one of size, iops, throughput, volumeType and multiAttachEnabled.")
	}
	if sized {
		to.SizeGiB = size
	}
	switch {
	case v.Type == "standard" || to.Type == "standard":
		return to, refuse("InvalidParameterValue", "Volumes of type standard cannot be modified, and no volume can become one.")
	case to.SizeGiB < v.SizeGiB:
		return to, refuse("InvalidParameterValue", "New size cannot be smaller than existing size")
	}
	if err := checkMultiAttachChange(v, to); err != nil {
		return to, err
	}
	lim := volumeTypes[to.Type]
	if wish.iops == nil && lim.maxIOPS > 0 && v.IOPS > 0 && (to.Type == v.Type || v.Type == "io1" && to.Type == "io2" || v.Type == "io2" && to.Type == "io1") {
		wish.iops = &v.IOPS
	}
	if wish.throughput == nil && to.Type == v.Type && lim.maxMiBs > 0 {
		wish.throughput = &v.ThroughputMiBs
	}
	return fit(to, wish)
}

// checkModify judges whether the volume can be modified now.
func (r *request) checkModify(v *Volume) *APIError {
	switch v.State {
	case stateDeleting:
		return volumeNotFound(v.ID)
	case stateCreating:
		return refuse("IncorrectState", "The volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	if m := v.modification(); m != nil && m.State != modCompleted {
		return refuse("IncorrectModificationState", "Volume %s cannot be modified in modification state %s", v.ID, strings.ToUpper(m.State))
	}
	if n := len(v.Modifications); n >= maxModifications {
		next := v.Modifications[n-maxModifications].Begun.Add(modificationWindow)
		if r.now.Before(next) {
			return refuse("VolumeModificationRateExceeded",
				"You've reached the maximum modification rate per volume limit. Wait until %s before the next modification of this EBS volume.", next.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeVolumesModifications.html
func describeModifications(r *request) (stampable, *APIError) {
	ids, volumes, filters, err := r.namedVolumes()
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		for _, v := range volumes {
			if v.modification() == nil {
				return nil, refuse("InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.", v.ID)
			}
		}
	}
	volumes = slices.DeleteFunc(volumes, func(v *Volume) bool { return v.modification() == nil || !matchAll(filters, v.modificationFact) })
	volumes, next, err := page(r, volumes, func(v *Volume) string { return v.ID }, 500, nil, "")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	ans := &modificationsAnswer{NextToken: next}
	for _, v := range volumes {
		ans.Modifications.Items = append(ans.Modifications.Items, r.sim.modificationXML(v))
	}
	return ans, nil
}

func (v *Volume) modificationFact(name string) []string {
	m := v.modification()
	number := func(n int32) []string { return []string{strconv.Itoa(int(n))} }
	switch name {
	case "modification-state":
		return []string{m.State}
	case "original-iops":
		return number(m.From.IOPS)
	case "original-size":
		return number(m.From.SizeGiB)
	case "original-volume-type":
		return []string{m.From.Type}
	case "start-time":
		return []string{wireTime(m.Begun)}
	case "target-iops":
		return number(m.To.IOPS)
	case "target-size":
		return number(m.To.SizeGiB)
	case "target-volume-type":
		return []string{m.To.Type}
	}
	return []string{v.ID} // volume-id
}
