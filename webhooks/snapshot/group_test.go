package snapshot

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	groupedv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
)

var keepsNewest = v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{
	Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot},
}}

// groupOf is a VolumeGroupSnapshot.
func groupOf(name string, change func(*groupv1.VolumeGroupSnapshot)) *groupv1.VolumeGroupSnapshot {
	g := &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name, UID: types.UID("uid of " + name)}}
	if change != nil {
		change(g)
	}
	return g
}

func goes(g *groupv1.VolumeGroupSnapshot) {
	g.DeletionTimestamp, g.Finalizers = ptr(metav1.NewTime(now)), []string{"groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection"}
}

// memberOf is a snapshot of the claim data as the snapshot-controller makes it
// for a group.
func memberOf(group, name string, at time.Time) *snapshotv1.VolumeSnapshot {
	s := cut(name, at)
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "groupsnapshot.storage.k8s.io/v1", Kind: "VolumeGroupSnapshot", Name: group, UID: types.UID("uid of " + group)}}
	s.Status.VolumeGroupSnapshotName = ptr(group)
	return s
}

// ofClaim is the same of another claim, whose name it is given.
func ofClaim(s *snapshotv1.VolumeSnapshot, claim string) *snapshotv1.VolumeSnapshot {
	s.Spec.Source.PersistentVolumeClaimName = &claim
	return s
}

func aboutGroup(t *testing.T, op admissionv1.Operation, old, after *groupv1.VolumeGroupSnapshot) *admit.Request {
	t.Helper()
	r := &admit.Request{Operation: op, Namespace: "db"}
	for _, x := range []struct {
		to *[]byte
		g  *groupv1.VolumeGroupSnapshot
	}{{&r.OldObject.Raw, old}, {&r.Object.Raw, after}} {
		if x.g == nil {
			continue
		}
		raw, err := json.Marshal(x.g)
		if err != nil {
			t.Fatal(err)
		}
		*x.to, r.Name = raw, x.g.Name
	}
	return r
}

// TestGroupDeletion: a group goes where each of its members may.
func TestGroupDeletion(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	reason := map[string]string{v1alpha1.AnnotationOverrideDeletion: "moved, ticket 4711"}
	wal := data(func(c *corev1.PersistentVolumeClaim) { c.Name = "wal" })
	for name, tc := range map[string]struct {
		why    string
		change func(*groupv1.VolumeGroupSnapshot)
		there  []client.Object
		want   []string // the action and the snapshot of each finding
	}{
		"the only copies": {"they are the last of both claims", nil, []client.Object{
			memberOf("g", "m-data", ago(time.Minute)), ofClaim(memberOf("g", "m-wal", ago(time.Minute)), "wal"),
		}, []string{"Deny db/m-data", "Deny db/m-wal"}},
		"one is newest": {"it holds the group back", nil, []client.Object{
			memberOf("g", "m-data", ago(2*time.Minute)), ofClaim(memberOf("g", "m-wal", ago(2*time.Minute)), "wal"), cut("newer", ago(time.Minute)),
		}, []string{"Deny db/m-wal"}},
		"none is": {"newer ones vouch for all", nil, []client.Object{
			memberOf("g", "m-data", ago(2*time.Minute)), memberOf("h", "n-data", ago(time.Minute)), groupOf("h", nil),
		}, nil},
		"the newer group goes": {"what it takes along vouches for nothing", nil, []client.Object{
			memberOf("g", "m-data", ago(2*time.Minute)), memberOf("h", "n-data", ago(time.Minute)), groupOf("h", goes),
		}, []string{"Deny db/m-data"}},
		"not ready": {"nothing is lost by it", nil, []client.Object{func() client.Object {
			m := memberOf("g", "m-data", ago(time.Minute))
			m.Status.ReadyToUse = ptr(false)
			return m
		}()}, nil},
		"of no claim":       {"no policy is about it", nil, []client.Object{ofClaim(memberOf("g", "m", ago(time.Minute)), "")}, nil},
		"its claim is gone": {"likewise", nil, []client.Object{ofClaim(memberOf("g", "m", ago(time.Minute)), "gone")}, nil},
		"goes already":      {"nothing changes", goes, []client.Object{memberOf("g", "m-data", ago(time.Minute))}, nil},
		"overridden": {"whoever may has let it through", func(g *groupv1.VolumeGroupSnapshot) { g.Annotations = reason }, []client.Object{
			memberOf("g", "m-data", ago(time.Minute)), ofClaim(memberOf("g", "m-wal", ago(time.Minute)), "wal"),
		}, []string{"Overridden db/m-data", "Overridden db/m-wal"}},
		"one is overridden": {"the other one holds the group back", nil, []client.Object{
			func() client.Object {
				m := memberOf("g", "m-data", ago(time.Minute))
				m.Annotations = reason
				return m
			}(), ofClaim(memberOf("g", "m-wal", ago(time.Minute)), "wal"),
		}, []string{"Overridden db/m-data", "Deny db/m-wal"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := groupOf("g", tc.change)
			h := webhook(t, append(tc.there, database(), data(nil), wal, policyOf(keepsNewest), g)...)
			answer, err := h.ValidateGroup(t.Context(), aboutGroup(t, admissionv1.Delete, g, nil))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range answer.Findings {
				of, _ := strings.CutPrefix(f.Field, "the deletion of snapshot ")
				snapshot, _ := strings.CutSuffix(of, " with VolumeGroupSnapshot g")
				got = append(got, string(f.Action)+" "+snapshot)
			}
			if strings.Join(got, ", ") != strings.Join(tc.want, ", ") {
				t.Errorf("%s: found %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}

// TestMemberGoesWithItsGroup: the snapshot-controller deletes the members of a
// group after the driver was told to delete their data. To refuse that would
// leave objects that say they are ready, and hold nothing.
func TestMemberGoesWithItsGroup(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		group  *groupv1.VolumeGroupSnapshot // nil: none
		change func(*snapshotv1.VolumeSnapshot)
		stays  bool
	}{
		"group goes":    {"it was judged with the group", groupOf("g", goes), nil, false},
		"group lives":   {"it is the last copy", groupOf("g", nil), nil, true},
		"no group":      {"it is the last copy", nil, nil, true},
		"of no group":   {"an owner that somebody wrote makes it none of the group's", groupOf("g", goes), func(s *snapshotv1.VolumeSnapshot) { s.Status.VolumeGroupSnapshotName = nil }, true},
		"another of it": {"the group was made again under its name", groupOf("g", goes), func(s *snapshotv1.VolumeSnapshot) { s.OwnerReferences[0].UID = "before" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := memberOf("g", "m", now.Add(-time.Minute))
			if tc.change != nil {
				tc.change(m)
			}
			objects := []client.Object{database(), data(nil), policyOf(keepsNewest), m}
			if tc.group != nil {
				objects = append(objects, tc.group)
			}
			answer, err := webhook(t, objects...).Validate(t.Context(), request(t, admissionv1.Delete, m, nil))
			if err != nil {
				t.Fatal(err)
			}
			if (policy.Denied(answer.Findings) > 0) != tc.stays {
				t.Errorf("%s: found %v", tc.why, answer.Findings)
			}
		})
	}
}

// TestOverrideOfGroup: the annotation on a group takes the right to override every
// policy that protects claims of the namespace. Nobody has it here.
func TestOverrideOfGroup(t *testing.T) {
	annotated := groupOf("g", func(g *groupv1.VolumeGroupSnapshot) {
		g.Annotations = map[string]string{v1alpha1.AnnotationOverrideDeletion: "moved"}
	})
	elsewhere := keepsNewest
	elsewhere.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	for name, tc := range map[string]struct {
		why        string
		policy     v1alpha1.StoragePolicySpec
		old, after *groupv1.VolumeGroupSnapshot
		wantsRight bool
	}{
		"made with it":     {"it could be deleted then", keepsNewest, nil, annotated, true},
		"written":          {"it could be deleted then", keepsNewest, groupOf("g", nil), annotated, true},
		"there already":    {"it was asked about when it was written", keepsNewest, annotated, annotated, false},
		"taken off":        {"more is protected then", keepsNewest, annotated, groupOf("g", nil), false},
		"another policy":   {"no policy is about the namespace", elsewhere, nil, annotated, false},
		"nothing to lift":  {"no policy protects", v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{}}, nil, annotated, false},
		"none of its kind": {"another annotation is nobody's business", keepsNewest, nil, groupOf("g", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			op := admissionv1.Update
			if tc.old == nil {
				op = admissionv1.Create
			}
			answer, err := webhook(t, database(), policyOf(tc.policy)).ValidateGroup(t.Context(), aboutGroup(t, op, tc.old, tc.after))
			if err != nil {
				t.Fatal(err)
			}
			if (answer.Forbidden != "") != tc.wantsRight {
				t.Errorf("%s: answered %q", tc.why, answer.Forbidden)
			}
		})
	}
}

// TestClassOfMember: the content of a member has the deletionPolicy of its group's
// class. The default class of snapshots says nothing about it.
func TestClassOfMember(t *testing.T) {
	retain := v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{SnapshotClass: &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"}}}
	claim := data(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr("") })
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "a.example"}
	byDefault := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: "deletes", Annotations: map[string]string{"snapshot.storage.kubernetes.io/is-default-class": "true"}},
		Driver:     "a.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	group := groupOf("g", func(g *groupv1.VolumeGroupSnapshot) { g.Spec.VolumeGroupSnapshotClassName = ptr("groups") })
	for name, tc := range map[string]struct {
		policy groupedv1.DeletionPolicy
		named  *string
		want   string
	}{
		"a group that retains":         {groupedv1.VolumeSnapshotContentRetain, nil, ""},
		"a group that deletes":         {groupedv1.VolumeSnapshotContentDelete, nil, "spec.volumeGroupSnapshotClassName of VolumeGroupSnapshot g"},
		"an owner, and its own class":  {groupedv1.VolumeSnapshotContentRetain, ptr("deletes"), "spec.volumeSnapshotClassName"},
		"no class of the group's name": {"", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{database(), claim, pv, byDefault, group, policyOf(retain)}
			if tc.policy != "" {
				objects = append(objects, &groupv1.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "groups"}, Driver: "a.example", DeletionPolicy: tc.policy})
			}
			m := memberOf("g", "m", now)
			m.Status, m.Spec.VolumeSnapshotClassName = nil, tc.named
			answer, err := webhook(t, objects...).Validate(t.Context(), request(t, admissionv1.Create, nil, m))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range answer.Findings {
				got += f.Field
			}
			if got != tc.want {
				t.Errorf("found %q, want %q: %v", got, tc.want, answer.Findings)
			}
		})
	}
}

// TestClassOfGroup: a group is told of its class when it is made. Its members would
// be refused for it one by one, when the driver has cut them already.
func TestClassOfGroup(t *testing.T) {
	retain := v1alpha1.StoragePolicySpec{
		Match:      v1alpha1.PolicyMatch{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}},
		Guardrails: &v1alpha1.Guardrails{SnapshotClass: &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"}},
	}
	labelled := func(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
		return data(func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.Labels, c.Spec.StorageClassName = name, labels, ptr("")
		})
	}
	group := func(class string, picks map[string]string) *groupv1.VolumeGroupSnapshot {
		return groupOf("g", func(g *groupv1.VolumeGroupSnapshot) {
			g.Spec.Source.Selector = &metav1.LabelSelector{MatchLabels: picks}
			if class != "" {
				g.Spec.VolumeGroupSnapshotClassName = &class
			}
		})
	}
	of := func(name string, policy groupedv1.DeletionPolicy) client.Object {
		return &groupv1.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: "a.example", DeletionPolicy: policy}
	}
	pg := map[string]string{"app": "pg"}
	for name, tc := range map[string]struct {
		group *groupv1.VolumeGroupSnapshot
		found int
	}{
		"a class that retains":       {group("keeps", pg), 0},
		"a class that deletes":       {group("deletes", pg), 1},
		"of claims of no policy":     {group("deletes", map[string]string{"app": "web"}), 0},
		"a class that is not there":  {group("gone", pg), 0},
		"no class yet":               {group("", pg), 0},
		"no selector: made by hand":  {groupOf("g", func(g *groupv1.VolumeGroupSnapshot) { g.Spec.VolumeGroupSnapshotClassName = ptr("deletes") }), 0},
		"one that the policy is for": {group("deletes", map[string]string{"tier": "db"}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := webhook(t, database(), policyOf(retain), of("keeps", groupedv1.VolumeSnapshotContentRetain), of("deletes", groupedv1.VolumeSnapshotContentDelete),
				labelled("data", map[string]string{"app": "pg", "tier": "db"}), labelled("wal", map[string]string{"app": "pg", "tier": "db"}), labelled("web", map[string]string{"app": "web"}))
			answer, err := h.ValidateGroup(t.Context(), aboutGroup(t, admissionv1.Create, nil, tc.group))
			if err != nil {
				t.Fatal(err)
			}
			if len(answer.Findings) != tc.found || tc.found > 0 && answer.Findings[0].Field != "spec.volumeGroupSnapshotClassName" {
				t.Errorf("found %+v, want %d", answer.Findings, tc.found)
			}
		})
	}
}
