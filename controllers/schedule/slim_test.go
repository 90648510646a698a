package schedule

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestSlimVolume: a class of attributes that a volume names is not deleted, so that it
// has to be seen.
func TestSlimVolume(t *testing.T) {
	v := &corev1.PersistentVolume{}
	v.Spec.VolumeAttributesClassName = ptr.To("gold")
	kept, err := SlimVolume(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := kept.(*corev1.PersistentVolume).Spec.VolumeAttributesClassName; ptr.Deref(got, "") != "gold" {
		t.Errorf("it keeps class %v", got)
	}
}
