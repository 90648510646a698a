package diagnosis

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

func claim(age time.Duration, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	c.Status.Phase = corev1.ClaimPending
	change(c)
	return c
}

func class(provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{Provisioner: provisioner, VolumeBindingMode: &mode}
}

// TestPending is the table of doc.go, upper half.
func TestPending(t *testing.T) {
	same := func(*corev1.PersistentVolumeClaim) {}
	chosen := func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{selectedNode: "n1"} }
	waits, at := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	for name, tc := range map[string]struct {
		why    string
		claim  *corev1.PersistentVolumeClaim
		around Around
		want   Reason // empty: not stuck
		says   string
	}{
		"young":              {"volumes take their time", claim(tooLong-time.Second, same), Around{}, "", ""},
		"bound":              {"it has come", claim(time.Hour, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }), Around{}, "", ""},
		"being deleted":      {"nobody waits for it", claim(time.Hour, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }), Around{}, "", ""},
		"no phase yet":       {"no controller has seen it", claim(time.Hour, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = "" }), Around{}, NoClass, "mark one as default"},
		"no class":           {"to the second", claim(tooLong, same), Around{}, NoClass, "mark one as default"},
		"static":             {"its volume is named", claim(time.Hour, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-1" }), Around{}, NoVolume, "pv-1"},
		"missing class":      {"a typing error", claim(time.Hour, same), Around{ClassName: "gp33"}, ClassNotFound, `"gp33"`},
		"no Pod":             {"the volume is made with the first Pod", claim(time.Hour, same), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", waits)}, NoPod, "no Pod does"},
		"Pod waits":          {"the provisioner was told the node", claim(time.Hour, chosen), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", waits), Pods: []string{"pg-0"}, PodsSince: now.Add(-tooLong)}, NotProvisioned, "Pod pg-0 waits"},
		"Pod came":           {"nobody was asked before it came: the claim's age tells nothing", claim(24*time.Hour, chosen), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", waits), Pods: []string{"pg-0"}, PodsSince: now.Add(time.Second - tooLong)}, "", ""},
		"older Pod":          {"the claim was made while a Pod waited", claim(tooLong, chosen), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", waits), Pods: []string{"pg-0"}, PodsSince: now.Add(-time.Hour)}, NotProvisioned, "Pod pg-0 waits"},
		"no node":            {"the provisioner was not asked: it is the scheduler's", claim(time.Hour, same), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", waits), Pods: []string{"pg-0"}, PodsSince: now.Add(-time.Hour)}, NotScheduled, "no node was found for Pod pg-0"},
		"local, no node":     {"there is no volume for a node to have", claim(time.Hour, same), Around{ClassName: "local", Class: class("kubernetes.io/no-provisioner", waits), Pods: []string{"pg-0"}, PodsSince: now.Add(-time.Hour)}, NoVolume, "makes no volumes"},
		"of a class, static": {"a provisioner makes none for a claim that names one", claim(time.Hour, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-1" }), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", waits)}, NoVolume, "pv-1"},
		"at once, new Pod":   {"it waits for no Pod, and was asked for when it was made", claim(time.Hour, same), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", at), Pods: []string{"pg-0"}, PodsSince: now}, NotProvisioned, "Pod pg-0 waits"},
		"at once":            {"it waits for no Pod", claim(time.Hour, same), Around{ClassName: "gp3", Class: class("ebs.csi.aws.com", at)}, NotProvisioned, "ebs.csi.aws.com has not"},
		"no mode":            {"the API's default is Immediate", claim(time.Hour, same), Around{ClassName: "gp3", Class: &storagev1.StorageClass{Provisioner: "x"}}, NotProvisioned, "x has not"},
		"no provisioner":     {"local volumes", claim(time.Hour, same), Around{ClassName: "local", Class: class("kubernetes.io/no-provisioner", at)}, NoVolume, "makes no volumes"},
	} {
		t.Run(name, func(t *testing.T) { compare(t, tc.why, Pending(now, tc.claim, tc.around), tc.want, tc.says) })
	}
}

// TestTerminating is its lower half.
func TestTerminating(t *testing.T) {
	going := func(since time.Duration, finalizers ...string) *corev1.PersistentVolumeClaim {
		return claim(24*time.Hour, func(c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: now.Add(-since)}, finalizers
		})
	}
	for name, tc := range map[string]struct {
		why    string
		claim  *corev1.PersistentVolumeClaim
		around Around
		want   Reason
		says   string
	}{
		"not deleted":      {"it stays", claim(time.Hour, func(*corev1.PersistentVolumeClaim) {}), Around{}, "", ""},
		"a moment ago":     {"Pods take their time", going(tooLong-time.Second, ofPods), Around{Pods: []string{"pg-0"}}, "", ""},
		"held by Pods":     {"the first three", going(tooLong, ofPods), Around{Pods: []string{"a", "b", "c", "d"}}, HeldByPod, "Pod a, b, c names it"},
		"by a snapshot":    {"it is being cut", going(time.Hour, ofSnapshots), Around{Snapshots: []string{"s"}}, HeldBySnapshot, "VolumeSnapshot s"},
		"by both":          {"the Pod comes first", going(time.Hour, ofPods, ofSnapshots), Around{Pods: []string{"p"}, Snapshots: []string{"s"}}, HeldByPod, "Pod p"},
		"Pod without hold": {"a Pod of the name that came later holds nothing", going(time.Hour, "example.com/backup"), Around{Pods: []string{"p"}}, HeldByFinalizer, "example.com/backup"},
		"nobody there":     {"the protection is not taken off", going(time.Hour, ofPods), Around{}, HeldByFinalizer, ofPods},
	} {
		t.Run(name, func(t *testing.T) { compare(t, tc.why, Terminating(now, tc.claim, tc.around), tc.want, tc.says) })
	}
}

func compare(t *testing.T, why string, got *Stuck, want Reason, says string) {
	t.Helper()
	switch {
	case got == nil && want != "":
		t.Errorf("%s: nothing is said, want %s", why, want)
	case got != nil && (got.Reason != want || !strings.Contains(got.Why, says)):
		t.Errorf("%s: %s, %q; want %q with %q", why, got.Reason, got.Why, want, says)
	}
}

// TestReleased: why a volume is still there whose claim is gone.
func TestReleased(t *testing.T) {
	volume := func(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy, message string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec:   corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy, ClaimRef: &corev1.ObjectReference{Namespace: "db", Name: "data-pg-0"}},
			Status: corev1.PersistentVolumeStatus{Phase: phase, Message: message},
		}
	}
	for name, tc := range map[string]struct {
		why    string
		volume *corev1.PersistentVolume
		want   Reason
		says   string
	}{
		"bound":       {"its claim has it", volume(corev1.VolumeBound, "Delete", ""), "", ""},
		"available":   {"it waits for a claim", volume(corev1.VolumeAvailable, "Retain", ""), "", ""},
		"retained":    {"as somebody wanted", volume(corev1.VolumeReleased, "Retain", ""), Retained, "db/data-pg-0 is gone, its reclaim policy is Retain"},
		"not deleted": {"the driver says why", volume(corev1.VolumeFailed, "Delete", "VolumeInUse: vol-1"), NotDeleted, "VolumeInUse: vol-1"},
		"deleting":    {"it has said nothing yet", volume(corev1.VolumeReleased, "Delete", ""), NotDeleted, "its other events"},
		"no claim": {"nobody knows whose it was", func() *corev1.PersistentVolume {
			v := volume(corev1.VolumeReleased, "Retain", "")
			v.Spec.ClaimRef = nil
			return v
		}(), Retained, "its claim is gone"},
	} {
		t.Run(name, func(t *testing.T) { compare(t, tc.why, Released(tc.volume), tc.want, tc.says) })
	}
}

// TestLost: by what Kubernetes says, and at once.
func TestLost(t *testing.T) {
	claim := func(phase corev1.PersistentVolumeClaimPhase, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		return claim(0, func(c *corev1.PersistentVolumeClaim) {
			c.Status.Phase, c.Spec.VolumeName = phase, "pv-1"
			change(c)
		})
	}
	for name, tc := range map[string]struct {
		why   string
		claim *corev1.PersistentVolumeClaim
		want  Reason
		says  string
	}{
		"bound":   {"it has its volume", claim(corev1.ClaimBound, func(*corev1.PersistentVolumeClaim) {}), "", ""},
		"pending": {"it never had one", claim(corev1.ClaimPending, func(*corev1.PersistentVolumeClaim) {}), "", ""},
		"lost":    {"the volume is named", claim(corev1.ClaimLost, func(*corev1.PersistentVolumeClaim) {}), VolumeGone, "PersistentVolume pv-1 is not there"},
		"unnamed": {"somebody took the name off", claim(corev1.ClaimLost, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }), VolumeGone, "PersistentVolume (none) is"},
		"going":   {"nobody wants it", claim(corev1.ClaimLost, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }), "", ""},
	} {
		t.Run(name, func(t *testing.T) { compare(t, tc.why, Lost(tc.claim), tc.want, tc.says) })
	}
}

// TestIdle: by what Kubernetes says, after a week.
func TestIdle(t *testing.T) {
	unused := func(status corev1.ConditionStatus, since time.Duration, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return claim(1000*time.Hour, func(c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = phase
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-900 * time.Hour))},
				{Type: corev1.PersistentVolumeClaimUnused, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-since))},
			}
		})
	}
	for name, tc := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		"a week":         {unused(corev1.ConditionTrue, idleFor, corev1.ClaimBound), true},
		"less":           {unused(corev1.ConditionTrue, idleFor-time.Second, corev1.ClaimBound), false},
		"used":           {unused(corev1.ConditionFalse, idleFor, corev1.ClaimBound), false},
		"never bound":    {unused(corev1.ConditionTrue, idleFor, corev1.ClaimPending), false},
		"old Kubernetes": {claim(1000*time.Hour, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }), false},
	} {
		if got := Idle(now, tc.claim); got != tc.want {
			t.Errorf("%s: idle is %t, want %t", name, got, tc.want)
		}
	}
}
