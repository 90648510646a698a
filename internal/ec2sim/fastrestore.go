package ec2sim

import (
	"slices"
	"strings"
	"time"
)

func fastRestoreActions() []action {
	zones := []string{"AvailabilityZone.N", "AvailabilityZoneId.N", "SourceSnapshotId.N"}
	return []action{{
		name:   "EnableFastSnapshotRestores",
		handle: enableFastRestores,
		params: zones,
		bucket: bucketMutate,
	}, {
		name:   "DisableFastSnapshotRestores",
		handle: disableFastRestores,
		params: zones,
		bucket: bucketMutate,
	}, {
		name:    "DescribeFastSnapshotRestores",
		handle:  describeFastRestores,
		params:  params(filterParam, paging),
		filters: []string{"availability-zone", "availability-zone-id", "owner-id", "snapshot-id", "state"},
		bucket:  bucketDescribe,
	}}
}

const (
	// maxFastSources is how many snapshots a call may name, as EC2 was seen
	// to refuse more: https://github.com/pingcap/tidb/issues/48505
	maxFastSources = 10
	// maxFastGiB is the largest snapshot that fast restore takes.
	// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-fast-snapshot-restore.html
	maxFastGiB = 16384
)

// fastRestoreXML is one snapshot in one zone.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeFastSnapshotRestoreSuccessItem.html
type fastRestoreXML struct {
	SnapshotID string  `xml:"snapshotId"`
	Zone       string  `xml:"availabilityZone"`
	ZoneID     string  `xml:"availabilityZoneId"`
	State      string  `xml:"state"`
	Reason     string  `xml:"stateTransitionReason"`
	OwnerID    string  `xml:"ownerId"`
	Enabling   *string `xml:"enablingTime"`
	Optimizing *string `xml:"optimizingTime"`
	Enabled    *string `xml:"enabledTime"`
	Disabling  *string `xml:"disablingTime"`
	Disabled   *string `xml:"disabledTime"`
}

type fastErrorXML struct {
	Zone    string `xml:"availabilityZone"`
	ZoneID  string `xml:"availabilityZoneId"`
	Code    string `xml:"error>code"`
	Message string `xml:"error>message"`
}

type fastFailureXML struct {
	SnapshotID string            `xml:"snapshotId"`
	Errors     set[fastErrorXML] `xml:"fastSnapshotRestoreStateErrorSet"`
}

type fastChangeAnswer struct {
	answer
	Successful   set[fastRestoreXML] `xml:"successful"`
	Unsuccessful set[fastFailureXML] `xml:"unsuccessful"`
}

type fastRestoresAnswer struct {
	answer
	Restores  set[fastRestoreXML] `xml:"fastSnapshotRestoreSet"`
	NextToken *string             `xml:"nextToken"`
}

func (s *Sim) fastRestoreXML(sn *Snapshot, f *FastRestore) fastRestoreXML {
	at := func(state string) *string { return ptr(wireTime(f.Entered[state])) }
	x := fastRestoreXML{
		SnapshotID: sn.ID, Zone: f.Zone, ZoneID: s.zoneID(f.Zone), State: f.State, OwnerID: s.cfg.Account,
		Reason: "Client.UserInitiated", Enabling: at(fastEnabling), Optimizing: at(fastOptimizing), Enabled: at(fastEnabled),
		Disabling: at(fastDisabling), Disabled: at(fastDisabled),
	}
	if f.State != fastEnabling && f.State != fastDisabling {
		x.Reason += " - Lifecycle state transition"
	}
	return x
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EnableFastSnapshotRestores.html
func enableFastRestores(r *request) (stampable, *APIError) { return r.changeFastRestores(r.enableFast) }

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DisableFastSnapshotRestores.html
func disableFastRestores(r *request) (stampable, *APIError) {
	return r.changeFastRestores(r.disableFast)
}

// changeFastRestores makes one change to each snapshot in each zone. What
// fails is told in the answer, which is a success all the same.
func (r *request) changeFastRestores(change func(sn *Snapshot, zone string) (*FastRestore, *APIError)) (stampable, *APIError) {
	ids := r.list("SourceSnapshotId")
	zones, err := r.fastZones()
	if err != nil {
		return nil, err
	}
	switch {
	case len(ids) == 0:
		return nil, refuse("MissingParameter", "The request must contain the parameter SourceSnapshotIds")
	case len(ids) > maxFastSources:
		return nil, refuse("InvalidRequest", "Number of values of parameter SourceSnapshotIds must be less than or equal to %d.", maxFastSources)
	}
	if err := snapshotIDs.checkAll(ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if sn, err := r.sim.snapshot(id); err == nil {
			if err := r.allow(r.sim.snapshotResource(sn)); err != nil {
				return nil, err
			}
		}
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	ans := &fastChangeAnswer{}
	for _, id := range ids {
		failed := fastFailureXML{SnapshotID: id}
		for _, z := range zones {
			sn, err := r.sim.snapshot(id)
			var f *FastRestore
			if err == nil {
				f, err = change(sn, z.name)
			}
			if err != nil {
				failed.Errors.Items = append(failed.Errors.Items, fastErrorXML{z.name, z.id, err.Code, err.Message})
				continue
			}
			r.sim.store.putSnapshot(sn)
			ans.Successful.Items = append(ans.Successful.Items, r.sim.fastRestoreXML(sn, f))
		}
		if failed.Errors.Items != nil {
			ans.Unsuccessful.Items = append(ans.Unsuccessful.Items, failed)
		}
	}
	return ans, nil
}

// fastZones are the zones of a call, by names or by ids.
func (r *request) fastZones() ([]zone, *APIError) {
	names, ids := r.list("AvailabilityZone"), r.list("AvailabilityZoneId")
	switch {
	case len(names)+len(ids) == 0:
		return nil, refuse("MissingParameter", "Either AvailabilityZone or AvailabilityZoneId must be specified.")
	case len(names) > 0 && len(ids) > 0:
		return nil, refuse("InvalidParameterCombination", "The parameters AvailabilityZone and AvailabilityZoneId cannot be used together.")
	}
	return r.sim.wantedZones(names, ids)
}

// enableFast: what is on, or on its way, stays as it is.
func (r *request) enableFast(sn *Snapshot, zone string) (*FastRestore, *APIError) {
	f := sn.fastRestore(zone)
	switch {
	case f != nil && f.State == fastDisabling:
		return nil, refuse("IncorrectState", "Fast snapshot restores of snapshot '%s' are being disabled in %s.", sn.ID, zone)
	case f != nil && f.State != fastDisabled:
		return f, nil
	case sn.SizeGiB > maxFastGiB:
		return nil, refuse("InvalidParameterValue", "Snapshot '%s' of %d GiB is too large for fast snapshot restores; maximum is %d GiB.", sn.ID, sn.SizeGiB, maxFastGiB)
	}
	if q := r.sim.quotas.FastRestores; q > 0 && !sn.fastAnywhere() && r.sim.fastSnapshots() >= q {
		return nil, refuse("FastSnapshotRestoreLimitExceeded", "You have exceeded your maximum of %d snapshots with fast snapshot restores.", q)
	}
	if f == nil {
		sn.FastRestores = append(sn.FastRestores, FastRestore{Zone: zone})
		f = &sn.FastRestores[len(sn.FastRestores)-1]
	}
	f.Entered = map[string]time.Time{}
	f.enter(fastEnabling, r.now, time.Duration(r.sim.delays.FastRestoreEnable))
	return f, nil
}

func (r *request) disableFast(sn *Snapshot, zone string) (*FastRestore, *APIError) {
	f := sn.fastRestore(zone)
	switch {
	case f == nil || f.State == fastDisabled:
		return nil, refuse("InvalidParameterValue", "Fast snapshot restores of snapshot '%s' are not enabled in %s.", sn.ID, zone)
	case f.State == fastDisabling:
		return f, nil
	}
	f.enter(fastDisabling, r.now, time.Duration(r.sim.delays.FastRestoreDisable))
	return f, nil
}

func (f *FastRestore) enter(state string, at time.Time, lasts time.Duration) {
	f.State, f.Until = state, at.Add(lasts)
	f.Entered[state] = at
}

// passing tells whether time alone moves it on.
func (f *FastRestore) passing(sn *Snapshot) bool {
	switch f.State {
	case fastEnabling:
		return sn.State == snapCompleted
	case fastOptimizing, fastDisabling:
		return true
	}
	return false
}

// advanceFastRestore: enabling -> optimizing -> enabled; disabling -> disabled.
// https://docs.aws.amazon.com/ebs/latest/userguide/view-fsr-enabled-snapshots.html
func (s *Sim) advanceFastRestore(sn *Snapshot, f *FastRestore, now time.Time) bool {
	changed := false
	for f.passing(sn) && !f.Until.After(now) {
		changed = true
		switch f.State {
		case fastEnabling:
			at := f.Until
			if at.Before(sn.Completed) {
				at = sn.Completed
			}
			f.enter(fastOptimizing, at, time.Duration(s.delays.FastRestoreOptimize))
		case fastOptimizing:
			f.enter(fastEnabled, f.Until, 0)
		default:
			f.enter(fastDisabled, f.Until, 0)
		}
	}
	return changed
}

func (sn *Snapshot) fastRestore(zone string) *FastRestore {
	for i := range sn.FastRestores {
		if sn.FastRestores[i].Zone == zone {
			return &sn.FastRestores[i]
		}
	}
	return nil
}

// fastIn tells whether volumes made in the zone need no initialization.
func (sn *Snapshot) fastIn(zone string) bool {
	f := sn.fastRestore(zone)
	return f != nil && f.State == fastEnabled
}

func (sn *Snapshot) fastAnywhere() bool {
	return slices.ContainsFunc(sn.FastRestores, func(f FastRestore) bool { return f.State != fastDisabled })
}

// fastSnapshots is how many snapshots have fast restore on.
func (s *Sim) fastSnapshots() int {
	n := 0
	for _, sn := range s.store.snapshots {
		if sn.fastAnywhere() {
			n++
		}
	}
	return n
}

// checkNoFastRestore keeps a snapshot from being deleted, in the words of
// https://github.com/rebuy-de/aws-nuke/issues/453
func checkNoFastRestore(sn *Snapshot) *APIError {
	if !sn.fastAnywhere() {
		return nil
	}
	var zones []string
	for _, f := range sn.FastRestores {
		if f.State != fastDisabled {
			zones = append(zones, f.Zone)
		}
	}
	return refuse("InvalidSnapshot.InUse", "The snapshot %s is currently enabled for fast restores in %s. Fast snapshot restores must be disabled within all Availability Zones before the snapshot may be deleted.",
		sn.ID, strings.Join(zones, ", "))
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeFastSnapshotRestores.html
func describeFastRestores(r *request) (stampable, *APIError) {
	filters, err := r.filters()
	if err != nil {
		return nil, err
	}
	if err := r.allow(anything()); err != nil {
		return nil, err
	}
	snapshots, err := r.sim.wantedSnapshots(nil)
	if err != nil {
		return nil, err
	}
	var found []fastRestoreXML
	for _, sn := range snapshots {
		for i := range sn.FastRestores {
			if x := r.sim.fastRestoreXML(sn, &sn.FastRestores[i]); matchAll(filters, x.fact) {
				found = append(found, x)
			}
		}
	}
	found, next, err := page(r, found, func(x fastRestoreXML) string { return x.SnapshotID + "\n" + x.Zone }, 200, nil, "")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	return &fastRestoresAnswer{Restores: set[fastRestoreXML]{found}, NextToken: next}, nil
}

func (x fastRestoreXML) fact(name string) []string {
	return map[string][]string{
		"availability-zone":    {x.Zone},
		"availability-zone-id": {x.ZoneID},
		"owner-id":             {x.OwnerID},
		"snapshot-id":          {x.SnapshotID},
		"state":                {x.State},
	}[name]
}
