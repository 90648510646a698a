package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

func requires(requirements ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: requirements}
}

func require(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
}

// giving is a policy with this match that gives one schedule with this target.
func giving(match v1alpha1.PolicyMatch, target v1alpha1.SnapshotTarget) v1alpha1.StoragePolicySpec {
	return v1alpha1.StoragePolicySpec{Match: match, Snapshots: &v1alpha1.PolicySnapshots{
		Schedules: []v1alpha1.PolicySchedule{{Name: "daily", Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "0 3 * * *", Target: target}}},
	}}
}

func TestGivenTargetIsNarrowedToTheMatch(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		match  v1alpha1.PolicyMatch
		target v1alpha1.SnapshotTarget
		want   v1alpha1.SnapshotTarget
		cannot string // part of the contradiction; empty: there is none
	}{
		"neither says anything": {why: "all claims of the namespace"},
		"the match alone": {
			why:   "a schedule never copies what its policy is not about",
			match: v1alpha1.PolicyMatch{ClaimSelector: with("tier=db"), StorageClassNames: []string{"gp3", "io2"}},
			want:  v1alpha1.SnapshotTarget{ClaimSelector: with("tier=db"), StorageClassNames: []string{"gp3", "io2"}},
		},
		"the target alone": {
			why:    "what the schedule says stays",
			target: v1alpha1.SnapshotTarget{ClaimSelector: with("a=b"), StatefulSetName: "pg", StorageClassNames: []string{"gp3"}},
			want:   v1alpha1.SnapshotTarget{ClaimSelector: with("a=b"), StatefulSetName: "pg", StorageClassNames: []string{"gp3"}},
		},
		"both": {
			why:    "both must hold",
			match:  v1alpha1.PolicyMatch{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}, MatchExpressions: []metav1.LabelSelectorRequirement{require("scratch", metav1.LabelSelectorOpDoesNotExist)}}, StorageClassNames: []string{"io2", "gp3"}},
			target: v1alpha1.SnapshotTarget{ClaimSelector: with("a=b", "tier=db"), StorageClassNames: []string{"gp3", "st1"}},
			want: v1alpha1.SnapshotTarget{
				ClaimSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b", "tier": "db"}, MatchExpressions: []metav1.LabelSelectorRequirement{require("scratch", metav1.LabelSelectorOpDoesNotExist)}},
				StorageClassNames: []string{"gp3"},
			},
		},
		"no class in common": {
			why:    "an empty list would be every class",
			match:  v1alpha1.PolicyMatch{StorageClassNames: []string{"io2"}},
			target: v1alpha1.SnapshotTarget{StorageClassNames: []string{"gp3"}},
			cannot: "storageClassNames gp3 and match.storageClassNames io2 have no class in common",
		},
		"one label, two values": {
			why:    "no claim has both",
			match:  v1alpha1.PolicyMatch{ClaimSelector: with("tier=db")},
			target: v1alpha1.SnapshotTarget{ClaimSelector: with("tier=web")},
			cannot: "the label tier",
		},
		"there and not there": {
			why:    "nor is a label there and not there",
			match:  v1alpha1.PolicyMatch{ClaimSelector: requires(require("app", metav1.LabelSelectorOpDoesNotExist))},
			target: v1alpha1.SnapshotTarget{ClaimSelector: requires(require("app", metav1.LabelSelectorOpExists))},
			cannot: "the label app",
		},
		"every value ruled out": {
			why:    "what one picks the other leaves out",
			match:  v1alpha1.PolicyMatch{ClaimSelector: requires(require("app", metav1.LabelSelectorOpNotIn, "a", "b", "c"))},
			target: v1alpha1.SnapshotTarget{ClaimSelector: requires(require("app", metav1.LabelSelectorOpIn, "a", "b"))},
			cannot: "the label app",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := compiled(t, giving(tc.match, tc.target)).Given()[0]
			switch {
			case tc.cannot == "" && g.Contradiction != nil:
				t.Errorf("%s: contradiction: %v", tc.why, g.Contradiction)
			case tc.cannot != "" && (g.Contradiction == nil || !strings.Contains(g.Contradiction.Error(), tc.cannot)):
				t.Errorf("%s: contradiction %v, want one with %q", tc.why, g.Contradiction, tc.cannot)
			case tc.cannot != "" && g.Contradiction.Field != "spec.snapshots.schedules[0].spec.target":
				t.Errorf("the contradiction is at %s", g.Contradiction.Field)
			case tc.cannot == "":
				if diff := cmp.Diff(tc.want, g.Target); diff != "" {
					t.Errorf("%s (-want +got)\n%s", tc.why, diff)
				}
			}
		})
	}
}

// TestBothSelectorsAgainstLabels tries random selectors on every set of labels
// that could tell them apart: the one made of both picks what both pick, and it
// counts as unsatisfiable where, and only where, it picks nothing.
func TestBothSelectorsAgainstLabels(t *testing.T) {
	keys, values := []string{"a", "b"}, []string{"", "x", "y", "z"} // "z" is named by no selector, "" is no label
	var everything []labels.Set
	for _, a := range values {
		for _, b := range values {
			set := labels.Set{}
			for i, v := range []string{a, b} {
				if v != "" {
					set[keys[i]] = v
				}
			}
			everything = append(everything, set)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	selector := func() *metav1.LabelSelector {
		if random.IntN(10) == 0 {
			return nil
		}
		s := &metav1.LabelSelector{}
		for range random.IntN(3) {
			key, some := keys[random.IntN(2)], values[1:2+random.IntN(2)]
			switch random.IntN(5) {
			case 0:
				if s.MatchLabels == nil {
					s.MatchLabels = map[string]string{}
				}
				s.MatchLabels[key] = values[1+random.IntN(2)]
			case 1:
				s.MatchExpressions = append(s.MatchExpressions, require(key, metav1.LabelSelectorOpIn, some...))
			case 2:
				s.MatchExpressions = append(s.MatchExpressions, require(key, metav1.LabelSelectorOpNotIn, some...))
			case 3:
				s.MatchExpressions = append(s.MatchExpressions, require(key, metav1.LabelSelectorOpExists))
			default:
				s.MatchExpressions = append(s.MatchExpressions, require(key, metav1.LabelSelectorOpDoesNotExist))
			}
		}
		return s
	}
	picks := func(s *metav1.LabelSelector, set labels.Set) bool {
		if s == nil {
			return true
		}
		ready, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return ready.Matches(set)
	}
	contradictions := 0
	for range 20000 {
		a, b := selector(), selector()
		s, some := both(a, b), false
		for _, set := range everything {
			got, want := picks(s, set), picks(a, set) && picks(b, set)
			if got != want {
				t.Fatalf("of %v and %v: labels %v are picked: %v, want %v", a, b, set, got, want)
			}
			some = some || got
		}
		if key := unsatisfiable(s); (key == "") != some {
			t.Fatalf("of %v and %v: contradicts itself on %q, but picks something: %v", a, b, key, some)
		}
		if !some {
			contradictions++
		}
	}
	if contradictions < 1000 {
		t.Errorf("%d contradictions were tried, want many", contradictions)
	}
}

func TestGivenName(t *testing.T) {
	long := strings.Repeat("databases-of-the-", 12) + "x"
	names := map[string]string{}
	for _, of := range []struct{ policy, name string }{
		{"databases", "daily"}, {"tier.db", "daily"}, {long, "daily"}, {long, "weekly"}, {long + "y", "daily"},
	} {
		got := GivenName(of.policy, of.name)
		if errs := validation.IsDNS1123Subdomain(got); len(errs) > 0 || len(got) > validation.LabelValueMaxLength {
			t.Errorf("%s %s: %q is no name: %v", of.policy, of.name, got, errs)
		}
		if other, has := names[got]; has {
			t.Errorf("%q is of %v and of %v", got, other, of)
		}
		names[got] = fmt.Sprint(of)
	}
	if got := GivenName("databases", "daily"); got != "databases-daily" {
		t.Errorf("a short name is %q", got)
	}
}

func TestActionOfRequiredSnapshots(t *testing.T) {
	for name, tc := range map[string]struct {
		why        string
		required   v1alpha1.Action
		guardrails *v1alpha1.Guardrails
		requires   bool
		want       v1alpha1.Action
	}{
		"its own":          {"required says what happens, whatever the guardrails do", v1alpha1.Warn, &v1alpha1.Guardrails{Action: v1alpha1.Deny}, true, v1alpha1.Warn},
		"no guardrails":    {"also without any", v1alpha1.Audit, nil, true, v1alpha1.Audit},
		"overridden":       {"an override of the rule comes before, as for any rule", v1alpha1.Deny, &v1alpha1.Guardrails{Overrides: []v1alpha1.RuleOverride{{Rule: v1alpha1.RuleSnapshotsRequired, Action: v1alpha1.Audit}}}, true, v1alpha1.Audit},
		"nothing is asked": {"schedules alone ask nothing of claims", "", &v1alpha1.Guardrails{Action: v1alpha1.Deny}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := compiled(t, v1alpha1.StoragePolicySpec{Guardrails: tc.guardrails, Snapshots: &v1alpha1.PolicySnapshots{Required: tc.required}})
			if got := p.RequiresSnapshots(); got != tc.requires {
				t.Errorf("%s: requires snapshots: %v", tc.why, got)
			}
			if got := p.ActionOf(v1alpha1.RuleSnapshotsRequired); got != tc.want {
				t.Errorf("%s: action %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}
