package retention

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestFilledFrom(t *testing.T) {
	const group = "snapshot.storage.k8s.io"
	ref := func(kind, group, namespace string) *corev1.TypedObjectReference {
		r := &corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Name: "s"}
		if namespace != "" {
			r.Namespace = &namespace
		}
		return r
	}
	for name, tc := range map[string]struct {
		source *corev1.TypedLocalObjectReference
		ref    *corev1.TypedObjectReference
		phase  corev1.PersistentVolumeClaimPhase
		want   string
		index  string
	}{
		"new":                    {ref: ref("VolumeSnapshot", group, ""), want: "db/s"},
		"waits for a Pod":        {ref: ref("VolumeSnapshot", group, ""), phase: corev1.ClaimPending, want: "db/s"},
		"bound":                  {ref: ref("VolumeSnapshot", group, ""), phase: corev1.ClaimBound, want: "/"},
		"lost":                   {ref: ref("VolumeSnapshot", group, ""), phase: corev1.ClaimLost, want: "/"},
		"dataSource alone":       {source: &corev1.TypedLocalObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, want: "db/s"},
		"of another namespace":   {ref: ref("VolumeSnapshot", group, "other"), want: "other/s", index: "other"},
		"own namespace, said":    {ref: ref("VolumeSnapshot", group, "db"), want: "db/s"},
		"a clone":                {source: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "s"}, want: "/"},
		"a kind of other people": {ref: ref("VolumeSnapshot", "example.com", ""), want: "/"},
		"another kind of theirs": {ref: ref("VolumeSnapshotContent", group, ""), want: "/"},
		"a populator, not ours":  {ref: ref("VolumeSnapshot", "example.com", ""), source: &corev1.TypedLocalObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, want: "/"},
		"empty":                  {want: "/"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "c"}}
			c.Spec.DataSource, c.Spec.DataSourceRef, c.Status.Phase = tc.source, tc.ref, tc.phase
			if got := filledFrom(c).String(); got != tc.want {
				t.Errorf("filled from %s, want %s", got, tc.want)
			}
			index := ""
			if of := namespaceOfSource(c); len(of) > 0 {
				index = of[0]
			}
			if index != tc.index {
				t.Errorf("found under %q, want %q", index, tc.index)
			}
		})
	}
}
