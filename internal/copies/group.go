package copies

import (
	"encoding/json"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// GroupClaim is a claim of a group.
type GroupClaim struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// GroupName is the name of the group of claims in a run, as Name is of one
// claim's copy: the same for the same claims, whichever Pod mounts them. first is
// the claim that is read in it; uids are all of them, sorted.
func GroupName(first string, uids []types.UID, schedule types.UID, slot string) string {
	return Name(first, types.UID(fmt.Sprint(uids)), schedule, slot)
}

// GroupLabel is the key of the label by which a group picks its claims; the value
// is the name of the group. OwnGroupLabels begins those of a schedule's groups.
func GroupLabel(schedule types.UID, group string) string {
	return OwnGroupLabels(schedule) + hash(group)[:hashLength]
}

// OwnGroupLabels begins the keys of the labels of a schedule's groups.
func OwnGroupLabels(schedule types.UID) string {
	return v1alpha1.LabelGroupPrefix + hash(string(schedule))[:hashLength] + "-"
}

// GroupOf names the VolumeGroupSnapshot that a snapshot is a member of; empty:
// none. The snapshot-controller writes the owner when it makes the member, and the
// status later.
func GroupOf(s *snapshotv1.VolumeSnapshot) string {
	if s.Status != nil && s.Status.VolumeGroupSnapshotName != nil && *s.Status.VolumeGroupSnapshotName != "" {
		return *s.Status.VolumeGroupSnapshotName
	}
	for _, o := range s.OwnerReferences {
		if o.Kind == "VolumeGroupSnapshot" {
			return o.Name
		}
	}
	return ""
}

// WriteClaims is the annotation AnnotationClaims of a group.
func WriteClaims(claims []GroupClaim) string {
	raw, err := json.Marshal(claims)
	if err != nil {
		panic(err) // two strings each
	}
	return string(raw)
}

// ClaimsOf are the claims of a group that a schedule made; none: it is
// somebody's, with our label.
func ClaimsOf(g *groupv1.VolumeGroupSnapshot) []GroupClaim {
	var claims []GroupClaim
	if g.Labels[v1alpha1.LabelSchedule] == "" || g.Labels[v1alpha1.LabelSlot] == "" ||
		json.Unmarshal([]byte(g.Annotations[v1alpha1.AnnotationClaims]), &claims) != nil {
		return nil
	}
	return claims
}

// Cut is when a group was cut; zero: not yet.
func Cut(g *groupv1.VolumeGroupSnapshot) time.Time {
	if g.Status == nil || g.Status.CreationTime == nil {
		return time.Time{}
	}
	return g.Status.CreationTime.Time
}

// OfGroup are the copies that a group stands for as long as its members are not
// there: one of each claim. None of them is ready: only a member is.
func OfGroup(g *groupv1.VolumeGroupSnapshot, readyWithin time.Duration, now time.Time) []Copy {
	member := &snapshotv1.VolumeSnapshot{ObjectMeta: *g.ObjectMeta.DeepCopy()}
	if g.Status != nil && g.Status.Error != nil {
		member.Status = &snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: g.Status.Error.Message}}
	}
	var all []Copy
	for _, claim := range ClaimsOf(g) {
		c := Of(member, readyWithin, now)
		c.UID, c.ClaimUID, c.With, c.Whole = g.UID+"/"+claim.UID, claim.UID, g.Name, true
		all = append(all, c)
	}
	return all
}
