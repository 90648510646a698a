package expansion

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// boundOfTen is a bound claim that asks for 10Gi and has them.
func boundOfTen(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *quantity("10Gi")}
	c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: *quantity("10Gi")}
	change(c)
	return c
}

// TestInFlight: a claim of which anything is being changed, or about to be, is
// left alone though it is full.
func TestInFlight(t *testing.T) {
	status := func(of corev1.ClaimResourceStatus) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: of}
		}
	}
	condition := func(kind corev1.PersistentVolumeClaimConditionType, is corev1.ConditionStatus) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: kind, Status: is}}
		}
	}
	class := func(asked, has string, m *corev1.ModifyVolumeStatus) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			if asked != "" {
				c.Spec.VolumeAttributesClassName = ptr.To(asked)
			}
			if has != "" {
				c.Status.CurrentVolumeAttributesClassName = ptr.To(has)
			}
			c.Status.ModifyVolumeStatus = m
		}
	}
	impossible := func(class string) *corev1.ModifyVolumeStatus {
		return &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: class, Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
	}
	for name, tc := range map[string]struct {
		why    string
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"nothing": {"it has what it asks for", func(*corev1.PersistentVolumeClaim) {}, false},
		"asked for more": {"the resizer has not begun", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("12Gi")
		}, true},
		"the controller resizes":    {"it has", status(corev1.PersistentVolumeClaimControllerResizeInProgress), true},
		"the node resizes":          {"the filesystem is not grown", status(corev1.PersistentVolumeClaimNodeResizePending), true},
		"resizing":                  {"older resizers say it so", condition(corev1.PersistentVolumeClaimResizing, corev1.ConditionTrue), true},
		"not resizing":              {"a condition that is false says the contrary", condition(corev1.PersistentVolumeClaimResizing, corev1.ConditionFalse), false},
		"the filesystem is to grow": {"kubelet has work to do", condition(corev1.PersistentVolumeClaimFileSystemResizePending, corev1.ConditionTrue), true},
		"attributes change":         {"it is one volume", condition(corev1.PersistentVolumeClaimVolumeModifyingVolume, corev1.ConditionTrue), true},
		"a class as asked for":      {"it has it", class("fast", "fast", nil), false},
		"a class not taken up":      {"nobody has begun, and that may be any moment", class("fast", "slow", nil), true},
		"the first class":           {"likewise", class("fast", "", nil), true},
		"no class asked for":        {"it stays with what it has", class("", "slow", nil), false},
		"a class pending":           {"it is looked into", class("fast", "slow", &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "fast", Status: corev1.PersistentVolumeClaimModifyVolumePending}), true},
		"a class in progress":       {"the volume is being modified", class("fast", "slow", &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "fast", Status: corev1.PersistentVolumeClaimModifyVolumeInProgress}), true},
		"going back":                {"what was begun is not over though the class is the old one", class("slow", "slow", &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "fast", Status: corev1.PersistentVolumeClaimModifyVolumeInProgress}), true},
		"infeasible":                {"a class that cannot be does not let the volume fill up", class("fast", "slow", impossible("fast")), false},
		"infeasible, another now":   {"that was about the class before", class("faster", "slow", impossible("fast")), true},
		"infeasible, taken back":    {"nothing is asked for", class("", "", impossible("fast")), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := claimOf(boundOfTen(tc.change))
			if c.InFlight != tc.want {
				t.Errorf("%s: in flight: %v, want %v", tc.why, c.InFlight, tc.want)
			}
			d := Decide(now, rulesOf("tier", policyOf("50Gi"), ""), func() Claim { c.Mounted, c.Expandable = true, true; return c }(), used("10Gi", 90), settled(c))
			if asks := d.TargetBytes > 0; asks == tc.want {
				t.Errorf("%s: asks for %s", tc.why, text(d.TargetBytes))
			}
		})
	}
}
