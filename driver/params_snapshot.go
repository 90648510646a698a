package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// snapshotParameters is what a VolumeSnapshotClass or a VolumeGroupSnapshotClass
// asks for.
type snapshotParameters struct {
	tags     map[string]string // as in volumeParameters
	snapshot map[string]string // what templates may name, such as VolumeSnapshotName
	// fastRestoreZones are sorted, each once.
	fastRestoreZones []string
	lock             *ebs.SnapshotLock
}

// theLock is the lock, to be filled in.
func (p *snapshotParameters) theLock() *ebs.SnapshotLock {
	if p.lock == nil {
		p.lock = &ebs.SnapshotLock{}
	}
	return p.lock
}

// snapshotTable holds the parameters of a VolumeSnapshotClass, see
// https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/snapshot.md
// and for the locks https://docs.aws.amazon.com/ebs/latest/userguide/ebs-snapshot-lock.html
// A VolumeGroupSnapshotClass takes the same; each snapshot of a group gets what
// the class asks for. The sidecar names the object by keys of its own.
var snapshotTable = []parameter[snapshotParameters]{
	{"tagSpecification_", "key=value", func(p *snapshotParameters, key, v string) error {
		p.tags = withTag(p.tags, key, v)
		return nil
	}},
	{"fastSnapshotRestoreAvailabilityZones", "a list of availability zones such as us-east-1a, us-east-1b", parseZoneList},
	{"lockMode", "governance or compliance", func(p *snapshotParameters, _, v string) error {
		mode := ebs.LockMode(strings.ToLower(v))
		if mode != ebs.LockGovernance && mode != ebs.LockCompliance {
			return errValue
		}
		p.theLock().Mode = mode
		return nil
	}},
	{"lockDuration", "a whole number of days, 1 to 36500", func(p *snapshotParameters, _, v string) (err error) {
		p.theLock().Days, err = parseCount(v)
		return err
	}},
	{"lockExpirationDate", "a time such as 2027-01-31T00:00:00Z (RFC 3339)", func(p *snapshotParameters, _, v string) error {
		end, err := time.Parse(time.RFC3339, v)
		if err != nil || end.IsZero() {
			return errValue
		}
		p.theLock().Until = end.UTC()
		return nil
	}},
	{"lockCoolOffPeriod", "a whole number of hours, 1 to 72", func(p *snapshotParameters, _, v string) (err error) {
		p.theLock().CoolOffHours, err = parseCount(v)
		return err
	}},
	{"outpostArn", "none: leave it out, the snapshot is kept in the region", func(_ *snapshotParameters, _, _ string) error {
		return errors.New("snapshots on AWS Outposts are not supported by this driver")
	}},
	{sidecarPrefix + "volumesnapshot/name", "any", snapshotName("VolumeSnapshotName")},
	{sidecarPrefix + "volumesnapshot/namespace", "any", snapshotName("VolumeSnapshotNamespace")},
	{sidecarPrefix + "volumesnapshotcontent/name", "any", snapshotName("VolumeSnapshotContentName")},
	{sidecarPrefix + "volumegroupsnapshot/name", "any", snapshotName("VolumeGroupSnapshotName")},
	{sidecarPrefix + "volumegroupsnapshot/namespace", "any", snapshotName("VolumeGroupSnapshotNamespace")},
	{sidecarPrefix + "volumegroupsnapshotcontent/name", "any", snapshotName("VolumeGroupSnapshotContentName")},
}

func snapshotName(field string) func(p *snapshotParameters, _, v string) error {
	return func(p *snapshotParameters, _, v string) error {
		p.snapshot[field] = v
		return nil
	}
}

// parseZoneList reads names of zones, separated by commas. Whether there are
// such zones is EC2's to say.
func parseZoneList(p *snapshotParameters, _, v string) error {
	for zone := range strings.SplitSeq(v, ",") {
		zone = strings.TrimSpace(zone)
		if zone == "" || strings.ContainsAny(zone, " \t\n") {
			return errValue
		}
		p.fastRestoreZones = append(p.fastRestoreZones, zone)
	}
	slices.Sort(p.fastRestoreZones)
	p.fastRestoreZones = slices.Compact(p.fastRestoreZones)
	return nil
}

// parseSnapshotParameters reads the parameters of a VolumeSnapshotClass.
func parseSnapshotParameters(params map[string]string) (snapshotParameters, error) {
	p := snapshotParameters{snapshot: map[string]string{}}
	if err := parseParameters(snapshotTable, params, &p); err != nil {
		return snapshotParameters{}, err
	}
	if p.lock == nil {
		return p, nil
	}
	if err := p.lock.Check(); err != nil {
		return snapshotParameters{}, fmt.Errorf("parameters lockMode, lockDuration, lockExpirationDate, lockCoolOffPeriod: %w", err)
	}
	return p, nil
}
