package ec2sim

import (
	"slices"
	"time"
)

func statusActions() []action {
	return []action{{
		name:    "DescribeVolumeStatus",
		handle:  describeVolumeStatus,
		params:  params([]string{"VolumeId.N"}, filterParam, paging),
		filters: []string{"availability-zone", "volume-status.status", "volume-status.details-name", "volume-status.details-status"},
		bucket:  bucketDescribe,
	}}
}

type statusDetailXML struct {
	Name   string `xml:"name"`
	Status string `xml:"status"`
}

type initXML struct {
	Type      string `xml:"initializationType"`
	Progress  int64  `xml:"progress"`
	Remaining *int64 `xml:"estimatedTimeToCompleteInSeconds"`
}

type statusEventXML struct {
	ID          string `xml:"eventId"`
	Type        string `xml:"eventType"`
	Description string `xml:"description"`
}

type volumeStatusXML struct {
	VolumeID string               `xml:"volumeId"`
	Zone     string               `xml:"availabilityZone"`
	ZoneID   string               `xml:"availabilityZoneId"`
	Status   string               `xml:"volumeStatus>status"`
	Details  set[statusDetailXML] `xml:"volumeStatus>details"`
	Init     *initXML             `xml:"initializationStatusDetails"`
	Events   set[statusEventXML]  `xml:"eventsSet"`
	Actions  set[string]          `xml:"actionsSet"`
}

type statusAnswer struct {
	answer
	Statuses  set[volumeStatusXML] `xml:"volumeStatusSet"`
	NextToken *string              `xml:"nextToken"`
}

// volumeStatusXML: a volume's input and output work here but for its Trouble; a
// volume from a snapshot or another volume is initialized in the time that the
// delays give it.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-checks.html
// https://docs.aws.amazon.com/ebs/latest/userguide/initalize-volume.html
func (s *Sim) volumeStatusXML(v *Volume) volumeStatusXML {
	x := volumeStatusXML{VolumeID: v.ID, Zone: v.Zone, ZoneID: s.zoneID(v.Zone), Status: "ok"}
	io, initialized := "passed", "completed"
	if v.State == stateCreating {
		x.Status, io = "insufficient-data", "insufficient-data"
	}
	performance := "not-applicable" // it is told of io1, io2 and gp3 volumes that are attached
	if v.Trouble.IODisabled {
		io = "failed"
	}
	if v.Trouble.Performance != "" {
		performance = v.Trouble.Performance
	}
	switch {
	case v.Trouble.IODisabled, v.Trouble.Performance == performanceStalled:
		x.Status = "impaired"
	case v.Trouble.Performance != "":
		x.Status = "warning"
	}
	if v.Trouble.Inconsistent {
		x.Events.Items = []statusEventXML{{"evol-" + v.ID, "potential-data-inconsistency", "The volume's data may be inconsistent."}}
	}
	if v.SnapshotID != "" || v.SourceVolumeID != "" {
		x.Init = s.initXML(v)
		if v.initializing(s.clock.Now()) {
			initialized = "initializing"
		}
	}
	x.Details.Items = []statusDetailXML{{"io-enabled", io}, {"io-performance", performance}, {"initialization-state", initialized}}
	return x
}

// initXML: a copy tells no estimate.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InitializationStatusDetails.html
func (s *Sim) initXML(v *Volume) *initXML {
	now, left := s.clock.Now(), int64(0)
	x := &initXML{Type: "default", Progress: 100}
	if v.initializing(now) {
		x.Progress, left = percent(v.Created, v.Initialized, now), int64((v.Initialized.Sub(now)+time.Second-1)/time.Second)
	}
	switch {
	case v.SourceVolumeID != "":
		x.Type = "volume-copy"
		return x
	case v.InitRateMiBs > 0:
		x.Type = "provisioned-rate"
	}
	x.Remaining = &left
	return x
}

// initializing tells whether content of the volume's source is still missing.
func (v *Volume) initializing(now time.Time) bool { return v.Initialized.After(now) }

func (x volumeStatusXML) fact(name string) []string {
	var out []string
	switch name {
	case "availability-zone":
		return []string{x.Zone}
	case "volume-status.status":
		return []string{x.Status}
	case "volume-status.details-name":
		for _, d := range x.Details.Items {
			out = append(out, d.Name)
		}
	case "volume-status.details-status":
		for _, d := range x.Details.Items {
			out = append(out, d.Status)
		}
	}
	return out
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeVolumeStatus.html
func describeVolumeStatus(r *request) (stampable, *APIError) {
	ids, volumes, filters, err := r.namedVolumes()
	if err != nil {
		return nil, err
	}
	var found []volumeStatusXML
	for _, v := range volumes {
		if x := r.sim.volumeStatusXML(v); matchAll(filters, x.fact) {
			found = append(found, x)
		}
	}
	found, next, err := page(r, found, func(x volumeStatusXML) string { return x.VolumeID }, 1000, ids, "volumeIds")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	return &statusAnswer{Statuses: set[volumeStatusXML]{slices.Clip(found)}, NextToken: next}, nil
}
