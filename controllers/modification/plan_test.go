package modification

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
)

func TestParameters(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        map[string]string
		class, err  string
	}{
		"none":            {map[string]string{"a": "b"}, nil, "holdfast-ebs", ""},
		"all":             {map[string]string{driver + "/volumeType": "io2", driver + "/iops": "4000", driver + "/throughput": "250", "a": "b"}, map[string]string{"type": "io2", "iops": "4000", "throughput": "250"}, "holdfast-ebs-io2-iops4000-throughput250", ""},
		"in capitals":     {map[string]string{driver + "/volumeType": "GP3"}, map[string]string{"type": "gp3"}, "holdfast-ebs-gp3", ""},
		"IOPS alone":      {map[string]string{driver + "/iops": "16000"}, map[string]string{"iops": "16000"}, "holdfast-ebs-iops16000", ""},
		"no type":         {map[string]string{driver + "/volumeType": "fast disk"}, nil, "", `volumeType is "fast disk", want a type`},
		"an empty type":   {map[string]string{driver + "/volumeType": ""}, nil, "", `volumeType is ""`},
		"no number":       {map[string]string{driver + "/iops": "4k"}, nil, "", `iops is "4k", want a whole number above 0`},
		"0":               {map[string]string{driver + "/iops": "0"}, nil, "", `iops is "0"`},
		"below 0":         {map[string]string{driver + "/throughput": "-1"}, nil, "", `throughput is "-1"`},
		"two spellings":   {map[string]string{driver + "/iops": "+4000"}, nil, "", `iops is "+4000"`},
		"leading zero":    {map[string]string{driver + "/iops": "04000"}, nil, "", `iops is "04000"`},
		"past any number": {map[string]string{driver + "/iops": "99999999999"}, nil, "", `iops is "99999999999"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parameters(tc.annotations)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if err == nil && ClassOf(got).Name != tc.class {
				t.Errorf("class %s, want %s", ClassOf(got).Name, tc.class)
			}
		})
	}
}

// TestDecide is the table of doc.go.
func TestDecide(t *testing.T) {
	const wanted = "holdfast-ebs-gp3-iops6000"
	ours := []string{wanted, "holdfast-ebs-io2"}
	for name, tc := range map[string]struct {
		why    string
		change func(*corev1.PersistentVolumeClaim)
		want   Step
		says   string
	}{
		"asked for":     {"the class is set", func(*corev1.PersistentVolumeClaim) {}, Set, ""},
		"nothing asked": {"most claims", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, Nothing, ""},
		"annotations off": {"the volume stays as it is", func(c *corev1.PersistentVolumeClaim) {
			c.Annotations, c.Spec.VolumeAttributesClassName = nil, ptr.To(wanted)
		}, Nothing, ""},
		"not bound":       {"there is no volume", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }, Nothing, ""},
		"being deleted":   {"in vain", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, Nothing, ""},
		"no number":       {"told", func(c *corev1.PersistentVolumeClaim) { c.Annotations[driver+"/iops"] = "many" }, Tell, `"many"`},
		"done":            {"set already", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To(wanted) }, Nothing, ""},
		"other values":    {"from one of ours to another", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("holdfast-ebs-io2") }, Set, ""},
		"of its owner":    {"whose class is what counts", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("gold") }, Tell, `"gold", which its owner set`},
		"named like ours": {"a name alone does not make it ours", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("holdfast-ebs-st1") }, Tell, "its owner set"},
		"no class":        {"an empty name is none", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("") }, Set, ""},
		"under way": {"one at a time", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeAttributesClassName = ptr.To("holdfast-ebs-io2")
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "holdfast-ebs-io2", Status: corev1.PersistentVolumeClaimModifyVolumeInProgress}
		}, Wait, ""},
		"infeasible": {"another value is the way out", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeAttributesClassName = ptr.To("holdfast-ebs-io2")
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "holdfast-ebs-io2", Status: corev1.PersistentVolumeClaimModifyVolumeInfeasible}
		}, Set, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{driver + "/volumeType": "gp3", driver + "/iops": "6000"}}}
			c.Status.Phase = corev1.ClaimBound
			tc.change(c)
			step, why, class := Decide(c, ours)
			if step != tc.want || !strings.Contains(why, tc.says) || (class != nil) != (step == Set) {
				t.Errorf("%s: step %d, %q, class %v; want step %d with %q", tc.why, step, why, class, tc.want, tc.says)
			}
			if class != nil && (class.Name != wanted || class.DriverName != driver || class.Parameters["iops"] != "6000") {
				t.Errorf("%s: class %+v", tc.why, class)
			}
		})
	}
}

// TestNotesAreCutBetweenLetters: what others say is of any length and language, and an
// event that the API server does not take is told to nobody.
func TestNotesAreCutBetweenLetters(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	m := New(Options{Events: recorder})
	m.tell(&corev1.PersistentVolumeClaim{}, "x"+strings.Repeat("é", 1024))
	note := strings.TrimPrefix(<-recorder.Events, "Warning ModificationBlocked ")
	if !utf8.ValidString(note) || len(note) > 1024 || len(note) < 1000 {
		t.Errorf("the note has %d bytes and ends with %q", len(note), note[len(note)-3:])
	}
}
