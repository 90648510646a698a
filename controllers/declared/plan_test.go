package declared

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// setOfTwo is a set of two replicas with the templates data and wal.
func setOfTwo(declares string) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg", UID: "set", Annotations: map[string]string{v1alpha1.AnnotationSize: declares}}}
	s.Spec.Replicas = ptr.To[int32](2)
	for _, name := range []string{"data", "wal"} {
		s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return s
}

// claimOf is a bound claim that asks for a size and has it.
func claimOf(template string, ordinal int, size string) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "db", Name: fmt.Sprintf("%s-pg-%d", template, ordinal),
		Annotations: map[string]string{v1alpha1.AnnotationSetUID: "set", v1alpha1.AnnotationSetTemplate: template},
	}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return c
}

// cannot has a claim ask for a size that the driver has given up on.
func cannot(c *corev1.PersistentVolumeClaim, size string) {
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInfeasible}
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		why      string
		declares string
		change   func(*Observed)
		want     string // claim=size, of those that are asked to grow
		growing  string
		done     string
		problem  string
	}{
		"both":             {"all claims of a template go to one size", "data=20Gi", nil, "data-pg-0=20Gi data-pg-1=20Gi", "", "", ""},
		"two":              {"each template to its own", "data=20Gi,wal=3Gi", nil, "data-pg-0=20Gi data-pg-1=20Gi wal-pg-0=3Gi wal-pg-1=3Gi", "", "", ""},
		"there":            {"nothing to do", "data=10Gi", nil, "", "", "data-pg-0 data-pg-1", ""},
		"less":             {"claims never shrink", "data=5Gi", nil, "", "", "data-pg-0 data-pg-1", ""},
		"one there":        {"the other follows", "data=20Gi", func(o *Observed) { o.Claims[0] = claimOf("data", 0, "20Gi") }, "data-pg-1=20Gi", "", "data-pg-0", ""},
		"above all":        {"the policy is named", "data=60Gi", func(o *Observed) { o.Bounds["data"] = Bound{"databases", resource.MustParse("50Gi")} }, "", "", "", "above the expansion.maxSize of StoragePolicy databases, which is 50Gi"},
		"at maxSize":       {"the bound itself is allowed", "data=50Gi", func(o *Observed) { o.Bounds["data"] = Bound{"databases", resource.MustParse("50Gi")} }, "data-pg-0=50Gi data-pg-1=50Gi", "", "", ""},
		"other bound":      {"one template's bound is not the other's", "wal=60Gi", func(o *Observed) { o.Bounds["data"] = Bound{"databases", resource.MustParse("50Gi")} }, "wal-pg-0=60Gi wal-pg-1=60Gi", "", "", ""},
		"unreadable":       {"nothing of it is done", "data=20Gi,x=1Gi", nil, "", "", "", `"x=1Gi" names no volumeClaimTemplate`},
		"blocked":          {"one claim's trouble is not the other's", "data=20Gi", func(o *Observed) { o.Blocked["data-pg-0"] = "the budget is spent" }, "data-pg-1=20Gi", "", "", "claim data-pg-0: the budget is spent"},
		"blocked, at size": {"what is done needs no leave", "data=10Gi", func(o *Observed) { o.Blocked["data-pg-0"] = "the budget is spent" }, "", "", "data-pg-0 data-pg-1", ""},
		"in flight": {"no change on top of another", "data=20Gi", func(o *Observed) {
			o.Claims[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("15Gi")
		}, "data-pg-1=20Gi", "data-pg-0", "", ""},
		"asked": {"it is asked once", "data=20Gi", func(o *Observed) {
			o.Claims[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Gi")
		}, "data-pg-1=20Gi", "data-pg-0", "", ""},
		"attributes": {"no change on top of another", "data=20Gi", func(o *Observed) {
			o.Claims[0].Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimVolumeModifyingVolume, Status: corev1.ConditionTrue}}
		}, "data-pg-1=20Gi", "data-pg-0", "", ""},
		"class":              {"nobody has taken it up yet, and may at any moment", "data=20Gi", func(o *Observed) { o.Claims[0].Spec.VolumeAttributesClassName = ptr.To("fast") }, "data-pg-1=20Gi", "data-pg-0", "", ""},
		"cannot":             {"the user has to know", "data=20Gi", func(o *Observed) { cannot(&o.Claims[0], "20Gi") }, "data-pg-1=20Gi", "", "", "claim data-pg-0: the driver says that its volume cannot grow from 10Gi to 20Gi"},
		"cannot, just asked": {"what is said may be about the size before", "data=20Gi", func(o *Observed) { cannot(&o.Claims[0], "20Gi"); o.JustAsked["data-pg-0"] = true }, "data-pg-1=20Gi", "data-pg-0", "", ""},
		"cannot, now less":   {"Kubernetes lets the request come down", "data=15Gi", func(o *Observed) { cannot(&o.Claims[0], "20Gi") }, "data-pg-0=15Gi data-pg-1=15Gi", "", "", ""},
		"cannot, modifying": {"its attributes are being changed", "data=15Gi", func(o *Observed) {
			cannot(&o.Claims[0], "20Gi")
			o.Claims[0].Spec.VolumeAttributesClassName = ptr.To("fast")
		}, "data-pg-1=15Gi", "data-pg-0", "", ""},
		"cannot, now more":   {"its user knows best", "data=25Gi", func(o *Observed) { cannot(&o.Claims[0], "20Gi") }, "data-pg-0=25Gi data-pg-1=25Gi", "", "", ""},
		"cannot, blocked":    {"that is growth as well", "data=15Gi", func(o *Observed) { cannot(&o.Claims[0], "20Gi"); o.Blocked["data-pg-0"] = "the budget is spent" }, "data-pg-1=15Gi", "", "", "claim data-pg-0: the budget is spent"},
		"cannot, taken back": {"it has what is declared", "data=10Gi", func(o *Observed) { cannot(&o.Claims[0], "20Gi") }, "", "", "data-pg-0 data-pg-1", ""},
		"infeasible": {"the resizer is not done with it", "data=20Gi", func(o *Observed) {
			o.Claims[0].Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInfeasible}
		}, "data-pg-1=20Gi", "data-pg-0", "", ""},
		"going":     {"it is left alone", "data=20Gi", func(o *Observed) { o.Claims[0].DeletionTimestamp = &metav1.Time{} }, "data-pg-1=20Gi", "", "", ""},
		"pending":   {"it has no volume yet", "data=20Gi", func(o *Observed) { o.Claims[0].Status.Phase = corev1.ClaimPending }, "data-pg-1=20Gi", "", "", ""},
		"unstamped": {"names alone do not tell whose it is", "data=20Gi", func(o *Observed) { o.Claims[0].Annotations = nil }, "data-pg-1=20Gi", "", "", ""},
		"scaled in": {"it has no Pod", "data=20Gi", func(o *Observed) { o.Set.Spec.Replicas = ptr.To[int32](1) }, "data-pg-0=20Gi", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{Set: setOfTwo(tc.declares), Bounds: map[string]Bound{}, Blocked: map[string]string{}, JustAsked: map[string]bool{}}
			for _, of := range []string{"data", "wal"} {
				size := map[string]string{"data": "10Gi", "wal": "2Gi"}[of]
				seen.Claims = append(seen.Claims, claimOf(of, 0, size), claimOf(of, 1, size))
			}
			if tc.change != nil {
				tc.change(&seen)
			}
			plan := Decide(seen)
			var grow []string
			for _, g := range plan.Grow {
				grow = append(grow, g.Claim.Name+"="+g.To.String())
			}
			for what, pair := range map[string][2]string{"grow": {strings.Join(grow, " "), tc.want}, "growing": {strings.Join(plan.Growing, " "), tc.growing}, "done": {strings.Join(plan.Done, " "), tc.done}} {
				if pair[0] != pair[1] {
					t.Errorf("%s: %s %q, want %q", tc.why, what, pair[0], pair[1])
				}
			}
			if problems := plan.problems(); !strings.Contains(problems, tc.problem) || (problems != "") != (tc.problem != "") {
				t.Errorf("%s: problems %q, want %q", tc.why, problems, tc.problem)
			}
		})
	}
}

// TestNeverTwiceNeverLess plays random sets by random steps of the resizer: a
// claim is never asked for less than it asks for, never while a change of it is
// under way, never for more than is declared or allowed; and in the end all have
// what is declared, where that is allowed.
func TestNeverTwiceNeverLess(t *testing.T) {
	gi := func(n int) resource.Quantity { return resource.MustParse(fmt.Sprintf("%dGi", n)) }
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 1))
		declared, most := 1+random.IntN(40), 1+random.IntN(40)
		seen := Observed{Set: setOfTwo(fmt.Sprintf("data=%dGi", declared)), Bounds: map[string]Bound{"data": {"p", gi(most)}}, Blocked: map[string]string{}}
		for i := range 2 {
			seen.Claims = append(seen.Claims, claimOf("data", i, fmt.Sprintf("%dGi", 1+random.IntN(30))))
		}
		for range 20 {
			for _, g := range Decide(seen).Grow {
				asked, has := g.Claim.Spec.Resources.Requests[corev1.ResourceStorage], g.Claim.Status.Capacity[corev1.ResourceStorage]
				limit := gi(most)
				if g.To.Cmp(asked) <= 0 || has.Cmp(asked) != 0 || g.To.Cmp(limit) > 0 || g.To.Cmp(gi(declared)) != 0 {
					t.Fatalf("seed %d: %s asks for %s and has %s, and is to ask for %s; declared %d, at most %d", seed, g.Claim.Name, asked.String(), has.String(), g.To.String(), declared, most)
				}
				g.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: g.To}
			}
			if random.IntN(3) == 0 { // the resizer is done
				for i := range seen.Claims {
					seen.Claims[i].Status.Capacity = seen.Claims[i].Spec.Resources.Requests
				}
			}
		}
		for _, c := range seen.Claims {
			if asked := c.Spec.Resources.Requests[corev1.ResourceStorage]; declared <= most && asked.Cmp(gi(declared)) < 0 {
				t.Fatalf("seed %d: claim %s asks for %s in the end, declared %d", seed, c.Name, asked.String(), declared)
			}
		}
	}
}

// TestHeld: a claim's own annotation holds it to less than its set declares.
func TestHeld(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		most string // empty: no annotation
		want string
	}{
		"none":    {"nobody holds it", "", ""},
		"more":    {"it may be larger", "30Gi", ""},
		"equal":   {"the bound itself is allowed", "20Gi", ""},
		"less":    {"its owner has said so", "15Gi", "holdfast.dev/max-size holds it to 15Gi"},
		"no size": {"what its owner wants is not known", "much", `is "much", and no size`},
	} {
		t.Run(name, func(t *testing.T) {
			c := claimOf("data", 0, "10Gi")
			if tc.most != "" {
				c.Annotations[v1alpha1.AnnotationMaxSize] = tc.most
			}
			if got := held(&c, resource.MustParse("20Gi")); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}

// TestNotesAreCutBetweenLetters: what others say is of any length and language, and an
// event that the API server does not take is told to nobody.
func TestNotesAreCutBetweenLetters(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	r := New(Options{Events: recorder})
	r.report(setOfTwo(""), nil, Plan{Problems: []string{"x" + strings.Repeat("é", 1024)}})
	note := strings.TrimPrefix(<-recorder.Events, "Warning GrowthBlocked ")
	if !utf8.ValidString(note) || len(note) > 1024 || len(note) < 1000 {
		t.Errorf("the note has %d bytes and ends with %q", len(note), note[len(note)-3:])
	}
}
