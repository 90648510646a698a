package expansion

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// TestSpent: who asks by hand has what the budget allows, without its reserve.
func TestSpent(t *testing.T) {
	now := time.Date(2027, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(hours ...int) string {
		r := &Record{}
		for _, h := range hours {
			r = r.with(Modification{At: now.Add(-time.Duration(h) * time.Hour), ToBytes: 1}, 1, "")
		}
		return r.String()
	}
	under, ebs, other := &policy.Policy{Name: "p", Expansion: &v1alpha1.PolicyExpansion{}}, "ebs.csi.aws.com", "other.csi.example.com"
	for name, tc := range map[string]struct {
		why         string
		policy      *policy.Policy
		provisioner string
		record      string
		asks        int64
		want        string
	}{
		"no record":                {"nothing was modified", under, ebs, "", 1, ""},
		"two":                      {"of EBS's four, less one in reserve, one is left", under, ebs, at(20, 10), 1, ""},
		"three":                    {"the fourth is the reserve", under, ebs, at(20, 10, 5), 1, `the budget of StoragePolicy "p" is 4, 1 of them kept for volumes above 95 % used: growth goes on at 2027-01-02T16:00:00Z`},
		"two, and one by hand":     {"what the record does not tell of yet counts too", under, ebs, at(20, 10), 2, "3 modifications"},
		"long ago":                 {"the window has moved on", under, ebs, at(30, 26, 25), 1, ""},
		"other drivers":            {"have no budget unless the policy says", under, other, at(4, 3, 2, 1), 1, ""},
		"unreadable":               {"what was done is not known", under, ebs, "x", 1, "cannot be read"},
		"no policy, three":         {"nobody else is there whom a reserve could be for", nil, ebs, at(20, 10, 5), 1, ""},
		"no policy, four":          {"EC2 would refuse a fifth, or hold it up for hours", nil, ebs, at(20, 10, 5, 1), 1, "4 modifications of the volume within 86400 s, and EC2 takes no more than 4: growth goes on at 2027-01-02T16:00:00Z"},
		"no policy, in-tree":       {"the same volumes", nil, "kubernetes.io/aws-ebs", at(20, 10, 5, 1), 1, "EC2 takes no more than 4"},
		"no policy, other drivers": {"nobody has said how often theirs can be modified", nil, other, at(4, 3, 2, 1), 1, ""},
		"no policy, unreadable":    {"what was done is not known", nil, ebs, "x", 1, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corev1.PersistentVolumeClaim{}
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(tc.asks, resource.BinarySI)}
			c.Status.Capacity = c.Spec.Resources.Requests
			if tc.record != "" {
				c.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationModifications: tc.record}}
			}
			got := Spent(now, tc.policy, tc.provisioner, c)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}

// TestRecorded: what somebody else asks for is in the record once, with what was
// changed by hand before; and the manager's next look adds nothing to it but how
// large the filesystem was.
func TestRecorded(t *testing.T) {
	c := boundOfTen(func(c *corev1.PersistentVolumeClaim) {
		r := (*Record)(nil).with(Modification{At: now.Add(-time.Hour), ToBytes: 8 * gib}, 8*gib, "")
		c.Annotations = map[string]string{v1alpha1.AnnotationModifications: r.String()}
	})
	written, err := Recorded(now, c, 20*gib)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations[v1alpha1.AnnotationModifications] = written
	c.Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("20Gi")
	asked := claimOf(c)
	if n := len(asked.Record.within(24*time.Hour, now)); n != 3 {
		t.Fatalf("%d modifications are recorded, want the one of before, one by hand to 10Gi and this: %s", n, written)
	}
	if m := asked.Record.newest(); m.ToBytes != 20*gib || m.FromBytes != 10*gib || m.Ours || asked.Record.RequestBytes != 20*gib {
		t.Errorf("recorded is %+v", m)
	}
	history := settled(sized("10Gi"))
	history.Sample = *used("9980Mi", 90)
	history.Sample.At = now.Add(-time.Minute)
	d := Decide(now.Add(time.Minute), rulesOf("tier", policyOf("50Gi"), ""), asked, used("9980Mi", 90), history)
	if m := d.Record.newest(); len(d.Record.Modifications) != 3 || m.FilesystemBytes != 9980*mib {
		t.Errorf("after the next look the record is %s", d.Record)
	}
	asked.Record = d.Record
	if again := Decide(now.Add(2*time.Minute), rulesOf("tier", policyOf("50Gi"), ""), asked, used("9980Mi", 90), d.History); again.Record != d.Record {
		t.Errorf("it is written anew at each look: %s", again.Record)
	}
	if !JustModified(now.Add(time.Minute), c) || JustModified(now.Add(answerWithin), c) {
		t.Errorf("it was asked for at %v", asked.Record.newest().At)
	}
	c.Annotations[v1alpha1.AnnotationModifications] = "x"
	if _, err := Recorded(now, c, 20*gib); err == nil || JustModified(now, c) {
		t.Errorf("what cannot be read is written over: %v", err)
	}
}
