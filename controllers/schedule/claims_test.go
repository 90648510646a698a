package schedule

import (
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

func bound(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data-pg-0", UID: "uid", Labels: map[string]string{"app": "pg"}, Annotations: map[string]string{v1alpha1.AnnotationSetName: "pg"}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	class := "gp3"
	c.Spec.StorageClassName = &class
	for _, f := range change {
		f(c)
	}
	return c
}

func volumeOf(driver string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	if driver != "" {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	}
	return v
}

func classOf(name, driver string, isDefault bool) snapshotv1.VolumeSnapshotClass {
	c := snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver}
	if isDefault {
		c.Annotations = map[string]string{defaultClassAnnotation: "true"}
	}
	return c
}

func TestJudge(t *testing.T) {
	classes := []snapshotv1.VolumeSnapshotClass{
		classOf("ebs", "ebs.csi.aws.com", true), classOf("ebs-retain", "ebs.csi.aws.com", false),
		classOf("lvm", "lvm.example.com", false),
		classOf("twin-1", "twin.example.com", true), classOf("twin-2", "twin.example.com", true),
	}
	annotated := func(key, value string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Annotations[key] = value }
	}
	named := v1alpha1.SnapshotScheduleSpec{
		SnapshotClassName:          "ebs-retain",
		SnapshotClassNamesByDriver: []v1alpha1.DriverSnapshotClass{{Driver: "lvm.example.com", Name: "lvm"}, {Driver: "twin.example.com", Name: "none"}},
	}
	for name, tc := range map[string]struct {
		why    string
		spec   v1alpha1.SnapshotScheduleSpec
		claim  *corev1.PersistentVolumeClaim
		volume *corev1.PersistentVolume
		class  string
		reason v1alpha1.ClaimReason
		says   string
	}{
		"the driver's default":   {why: "nobody named a class", claim: bound(), volume: volumeOf("ebs.csi.aws.com"), class: "ebs"},
		"named":                  {why: "the schedule names one", spec: named, claim: bound(), volume: volumeOf("ebs.csi.aws.com"), class: "ebs-retain"},
		"named by driver":        {why: "that of the driver comes first", spec: named, claim: bound(), volume: volumeOf("lvm.example.com"), class: "lvm"},
		"the claim's":            {why: "the claim's own comes before all", spec: named, claim: bound(annotated(v1alpha1.AnnotationSnapshotClass, "ebs")), volume: volumeOf("ebs.csi.aws.com"), class: "ebs"},
		"not bound":              {why: "there is nothing to copy yet", claim: bound(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }), volume: nil, reason: v1alpha1.ClaimNotBound, says: "Pending"},
		"lost":                   {why: "nor any more", claim: bound(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), volume: nil, reason: v1alpha1.ClaimNotBound, says: "Lost"},
		"deleting":               {why: "a copy would hold it back", claim: bound(func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }), volume: volumeOf("ebs.csi.aws.com"), reason: v1alpha1.ClaimDeleting},
		"opted out":              {why: "somebody said so, and why", claim: bound(annotated(v1alpha1.AnnotationNoSnapshots, "cache only")), volume: volumeOf("ebs.csi.aws.com"), reason: v1alpha1.ClaimOptedOut, says: "cache only"},
		"opted out, no reason":   {why: "an empty reason opts out as well", claim: bound(annotated(v1alpha1.AnnotationNoSnapshots, "")), volume: volumeOf("ebs.csi.aws.com"), reason: v1alpha1.ClaimOptedOut, says: "(no reason)"},
		"no volume":              {why: "the volume is not seen", claim: bound(), volume: nil, reason: v1alpha1.ClaimVolumeNotFound},
		"not CSI":                {why: "only CSI drivers snapshot", claim: bound(), volume: volumeOf(""), reason: v1alpha1.ClaimNoSnapshots, says: `"pv-1"`},
		"driver without classes": {why: "a class without snapshot support is named as such", claim: bound(), volume: volumeOf("nfs.example.com"), reason: v1alpha1.ClaimNoSnapshots, says: "nfs.example.com"},
		"no default":             {why: "which class would it be?", claim: bound(), volume: volumeOf("lvm.example.com"), reason: v1alpha1.ClaimNoClass, says: `"lvm"`},
		"two defaults":           {why: "the snapshot-controller would refuse to choose", claim: bound(), volume: volumeOf("twin.example.com"), reason: v1alpha1.ClaimAmbiguousClass, says: `"twin-1", "twin-2"`},
		"class of another":       {why: "a class is one driver's", spec: v1alpha1.SnapshotScheduleSpec{SnapshotClassName: "lvm"}, claim: bound(), volume: volumeOf("ebs.csi.aws.com"), reason: v1alpha1.ClaimClassOfOther, says: "snapshotClassName is \"lvm\", a class of driver lvm.example.com"},
		"no such class":          {why: "the message lists what there is", spec: named, claim: bound(), volume: volumeOf("twin.example.com"), reason: v1alpha1.ClaimClassNotFound, says: `"none", and there is no VolumeSnapshotClass of that name; driver twin.example.com has "twin-1", "twin-2"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, cannot := Judge(&tc.spec, tc.claim, tc.volume, Classes{Single: classes})
			switch {
			case tc.reason == "" && (cannot != nil || got.Class != tc.class || got.Claim != tc.claim || got.Driver != tc.volume.Spec.CSI.Driver):
				t.Errorf("%s: %+v, %+v, want class %s", tc.why, got, cannot, tc.class)
			case tc.reason != "" && (cannot == nil || cannot.Reason != tc.reason || !strings.Contains(cannot.Message, tc.says) || cannot.UID != "uid" || cannot.Name != "data-pg-0"):
				t.Errorf("%s: %+v, want %s with %q", tc.why, cannot, tc.reason, tc.says)
			}
		})
	}
}

func TestTarget(t *testing.T) {
	labelled := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	for name, tc := range map[string]struct {
		why    string
		target v1alpha1.SnapshotTarget
		want   bool
	}{
		"empty":          {"all claims of the namespace", v1alpha1.SnapshotTarget{}, true},
		"empty selector": {"an empty selector is everything", v1alpha1.SnapshotTarget{ClaimSelector: &metav1.LabelSelector{}}, true},
		"label":          {"its labels fit", v1alpha1.SnapshotTarget{ClaimSelector: labelled("app", "pg")}, true},
		"other label":    {"they do not", v1alpha1.SnapshotTarget{ClaimSelector: labelled("app", "web")}, false},
		"set":            {"the stamp says whose it is", v1alpha1.SnapshotTarget{StatefulSetName: "pg"}, true},
		"other set":      {"and whose not", v1alpha1.SnapshotTarget{StatefulSetName: "pg-0"}, false},
		"class":          {"its class is listed", v1alpha1.SnapshotTarget{StorageClassNames: []string{"io2", "gp3"}}, true},
		"other class":    {"it is not", v1alpha1.SnapshotTarget{StorageClassNames: []string{"io2"}}, false},
		"one of two":     {"all that is given must hold", v1alpha1.SnapshotTarget{ClaimSelector: labelled("app", "pg"), StatefulSetName: "other"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ready, errs := Compile(&v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Target: tc.target})
			if errs != nil {
				t.Fatal(errs)
			}
			if got := ready.Target.Matches(bound()); got != tc.want {
				t.Errorf("%s: %t, want %t", tc.why, got, tc.want)
			}
		})
	}
	unclassed := bound(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
	spec := v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Target: v1alpha1.SnapshotTarget{StorageClassNames: []string{"gp3"}}}
	if ready, errs := Compile(&spec); errs != nil || ready.Target.Matches(unclassed) {
		t.Error("a claim without a class is of none")
	}
}

// TestJudgeGroups: the class of a claim's group, and what is said where there is none.
func TestJudgeGroups(t *testing.T) {
	marked := map[string]string{defaultGroupClassAnnotation: "true"}
	class := func(name, driver string, annotations map[string]string) groupv1.VolumeGroupSnapshotClass {
		return groupv1.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Driver: driver}
	}
	classes := Classes{
		Single: []snapshotv1.VolumeSnapshotClass{{ObjectMeta: metav1.ObjectMeta{Name: "single", Annotations: map[string]string{defaultClassAnnotation: "true"}}, Driver: "a"}, {ObjectMeta: metav1.ObjectMeta{Name: "other", Annotations: map[string]string{defaultClassAnnotation: "true"}}, Driver: "b"}},
		Group: []groupv1.VolumeGroupSnapshotClass{
			class("a-1", "a", marked), class("a-2", "a", nil), class("c-1", "c", nil), class("d-1", "d", marked), class("d-2", "d", marked),
		},
	}
	for name, tc := range map[string]struct {
		why           string
		consistency   v1alpha1.Consistency
		named, driver string
		single, group string
		reason        v1alpha1.ClaimReason
	}{
		"default":                 {"the marked class of the driver, and no single one", v1alpha1.GroupCopies, "", "a", "", "a-1", ""},
		"named":                   {"what is named comes first", v1alpha1.GroupCopies, "a-2", "a", "", "a-2", ""},
		"none of the driver":      {"no fallback", v1alpha1.GroupCopies, "", "b", "", "", v1alpha1.ClaimNoGroups},
		"none marked":             {"which one is meant is not guessed", v1alpha1.GroupCopies, "", "c", "", "", v1alpha1.ClaimNoGroupClass},
		"two marked":              {"nor here", v1alpha1.GroupCopies, "", "d", "", "", v1alpha1.ClaimAmbiguousGroupClass},
		"named, of another":       {"a class is of one driver", v1alpha1.GroupCopies, "a-1", "c", "", "", v1alpha1.ClaimGroupClassOfOther},
		"named, not there":        {"it may come", v1alpha1.GroupCopies, "a-3", "a", "", "", v1alpha1.ClaimGroupClassNotFound},
		"best effort":             {"both, since the Pods may be apart", v1alpha1.BestEffortGroups, "", "a", "single", "a-1", ""},
		"best effort, no group":   {"falls back", v1alpha1.BestEffortGroups, "", "b", "other", "", ""},
		"best effort, no single":  {"needs none", v1alpha1.BestEffortGroups, "c-1", "c", "", "c-1", ""},
		"best effort, none":       {"the single one is what is missing at last", v1alpha1.BestEffortGroups, "", "x", "", "", v1alpha1.ClaimNoSnapshots},
		"individual has no group": {"and looks for none", v1alpha1.IndividualCopies, "", "a", "single", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.SnapshotScheduleSpec{Consistency: tc.consistency, GroupSnapshotClassName: tc.named}
			got, cannot := Judge(&spec, bound(), volumeOf(tc.driver), classes)
			if cannot != nil {
				if cannot.Reason != tc.reason || cannot.Message == "" {
					t.Errorf("%s: refused for %s: %s; want %q", tc.why, cannot.Reason, cannot.Message, tc.reason)
				}
				return
			}
			if tc.reason != "" || got.Class != tc.single || got.GroupClass != tc.group {
				t.Errorf("%s: classes %q and %q, want %q and %q, or %q", tc.why, got.Class, got.GroupClass, tc.single, tc.group, tc.reason)
			}
		})
	}
}
