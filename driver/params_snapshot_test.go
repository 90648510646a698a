package driver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

func TestParseSnapshotParameters(t *testing.T) {
	none := map[string]string{}
	for name, tc := range map[string]struct {
		why    string
		params map[string]string
		want   snapshotParameters
		wrong  []string
	}{
		"nothing": {"a class may be empty", nil, snapshotParameters{snapshot: none}, nil},
		"tags": {"with the names that templates may use", map[string]string{
			"tagSpecification_1": "a={{ .VolumeSnapshotName }}", "csi.storage.k8s.io/volumesnapshot/name": "s",
			"csi.storage.k8s.io/volumesnapshot/namespace": "db", "csi.storage.k8s.io/volumesnapshotcontent/name": "c",
		}, snapshotParameters{
			tags:     map[string]string{"tagSpecification_1": "a={{ .VolumeSnapshotName }}"},
			snapshot: map[string]string{"VolumeSnapshotName": "s", "VolumeSnapshotNamespace": "db", "VolumeSnapshotContentName": "c"},
		}, nil},
		"group": {"a group has names of its own", map[string]string{
			"csi.storage.k8s.io/volumegroupsnapshot/name": "g", "csi.storage.k8s.io/volumegroupsnapshot/namespace": "db",
			"csi.storage.k8s.io/volumegroupsnapshotcontent/name": "c",
		}, snapshotParameters{snapshot: map[string]string{
			"VolumeGroupSnapshotName": "g", "VolumeGroupSnapshotNamespace": "db", "VolumeGroupSnapshotContentName": "c",
		}}, nil},
		"zones": {"blanks, order and repeats mean nothing", map[string]string{"FastSnapshotRestoreAvailabilityZones": "us-east-1b, us-east-1a,us-east-1b"},
			snapshotParameters{snapshot: none, fastRestoreZones: []string{"us-east-1a", "us-east-1b"}}, nil},
		"no zones":   {"a key without value is a slip", map[string]string{"fastSnapshotRestoreAvailabilityZones": ""}, snapshotParameters{}, []string{"fastSnapshotRestoreAvailabilityZones", "us-east-1a"}},
		"empty zone": {"a comma too many is a slip", map[string]string{"fastSnapshotRestoreAvailabilityZones": "us-east-1a,"}, snapshotParameters{}, []string{"us-east-1a,"}},
		"two words":  {"commas separate", map[string]string{"fastSnapshotRestoreAvailabilityZones": "us-east-1a us-east-1b"}, snapshotParameters{}, []string{"list of availability zones"}},
		"governance": {"for some days", map[string]string{"lockMode": "Governance", "lockDuration": "30"},
			snapshotParameters{snapshot: none, lock: &ebs.SnapshotLock{Mode: ebs.LockGovernance, Days: 30}}, nil},
		"compliance": {"until a time, in any time zone", map[string]string{"lockmode": "compliance", "lockExpirationDate": "2027-01-31T01:00:00+01:00", "lockCoolOffPeriod": "72"},
			snapshotParameters{snapshot: none, lock: &ebs.SnapshotLock{Mode: ebs.LockCompliance, Until: time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC), CoolOffHours: 72}}, nil},
		"mode":          {"the modes are named", map[string]string{"lockMode": "strict", "lockDuration": "1"}, snapshotParameters{}, []string{`"strict"`, "governance or compliance"}},
		"mode alone":    {"a lock needs an end", map[string]string{"lockMode": "governance"}, snapshotParameters{}, []string{"lockDuration", "lockExpirationDate"}},
		"duration only": {"a lock needs a mode", map[string]string{"lockDuration": "1"}, snapshotParameters{}, []string{"lockMode", "governance and compliance"}},
		"cooling only":  {"a lock needs a mode", map[string]string{"lockCoolOffPeriod": "1"}, snapshotParameters{}, []string{"lockMode"}},
		"two ends":      {"one of them would be ignored", map[string]string{"lockMode": "governance", "lockDuration": "1", "lockExpirationDate": "2027-01-31T00:00:00Z"}, snapshotParameters{}, []string{"not both"}},
		"no days":       {"days are counted from 1", map[string]string{"lockMode": "governance", "lockDuration": "0"}, snapshotParameters{}, []string{"lockDuration", "1 to 36500"}},
		"too long":      {"the bound is told", map[string]string{"lockMode": "governance", "lockDuration": "36501"}, snapshotParameters{}, []string{"36501", "1 to 36500"}},
		"a date":        {"a day is no time", map[string]string{"lockMode": "governance", "lockExpirationDate": "2027-01-31"}, snapshotParameters{}, []string{"lockExpirationDate", "RFC 3339"}},
		"cool":          {"governance has none", map[string]string{"lockMode": "governance", "lockDuration": "1", "lockCoolOffPeriod": "1"}, snapshotParameters{}, []string{"lockCoolOffPeriod", "only compliance"}},
		"73 hours":      {"the bound is told", map[string]string{"lockMode": "compliance", "lockDuration": "1", "lockCoolOffPeriod": "73"}, snapshotParameters{}, []string{"73", "1 to 72"}},
		"outpost":       {"refused in clear words", map[string]string{"outpostArn": "arn:aws:outposts:us-east-1:1:outpost/op-1"}, snapshotParameters{}, []string{"outpostArn", "Outposts are not supported"}},
		"of a volume":   {"keys of other classes are unknown", map[string]string{"type": "gp3"}, snapshotParameters{}, []string{`"type"`, "lockMode", "outpostArn"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseSnapshotParameters(tc.params)
			if tc.wrong == nil {
				if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(snapshotParameters{})); diff != "" || err != nil {
					t.Errorf("%s: %v (-want +got)\n%s", tc.why, err, diff)
				}
				return
			}
			if !errors.Is(err, ebs.ErrInvalid) {
				t.Fatalf("%s: %v, want that it is invalid", tc.why, err)
			}
			for _, text := range tc.wrong {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not name %s", tc.why, err, text)
				}
			}
		})
	}
}
