package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func with(labels ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		s.MatchLabels[k] = v
	}
	return s
}

func compiled(t *testing.T, spec v1alpha1.StoragePolicySpec) *Policy {
	t.Helper()
	p := &v1alpha1.StoragePolicy{Spec: spec}
	p.Name = "tier-db"
	ready, errs := Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return ready
}

func TestMatches(t *testing.T) {
	prod := Namespace{Name: "prod", Labels: map[string]string{"env": "prod"}}
	claim := Claim{Namespace: prod, Labels: map[string]string{"tier": "db"}, ClassName: "gp3", Provisioner: "ebs.csi.aws.com"}
	for name, tc := range map[string]struct {
		why          string
		match        v1alpha1.PolicyMatch
		claim        Claim
		want, wantSC bool
	}{
		"empty":             {"what is left out matches everything", v1alpha1.PolicyMatch{}, claim, true, true},
		"empty selectors":   {"and so does an empty selector", v1alpha1.PolicyMatch{NamespaceSelector: with(), ClaimSelector: with()}, claim, true, true},
		"all hold":          {"all that is named holds; classes are judged through claims only", v1alpha1.PolicyMatch{NamespaceSelector: with("env=prod"), ClaimSelector: with("tier=db"), StorageClassNames: []string{"gp3"}, Provisioners: []string{"ebs.csi.aws.com"}}, claim, true, false},
		"other namespace":   {"one that does not hold is enough", v1alpha1.PolicyMatch{NamespaceSelector: with("env=dev")}, claim, false, false},
		"other label":       {"likewise", v1alpha1.PolicyMatch{ClaimSelector: with("tier=web")}, claim, false, false},
		"other class":       {"likewise", v1alpha1.PolicyMatch{StorageClassNames: []string{"io2"}}, claim, false, false},
		"other provisioner": {"likewise", v1alpha1.PolicyMatch{Provisioners: []string{"efs.csi.aws.com"}}, claim, false, false},
		"unknown class":     {"a claim whose class does not exist has no provisioner", v1alpha1.PolicyMatch{Provisioners: []string{"ebs.csi.aws.com"}}, Claim{Namespace: prod, ClassName: "gone"}, false, true},
		"system namespace":  {"what runs the cluster is never matched", v1alpha1.PolicyMatch{}, Claim{Namespace: Namespace{Name: "kube-system"}}, false, true},
		"our namespace":     {"nor is what runs Holdfast", v1alpha1.PolicyMatch{}, Claim{Namespace: Namespace{Name: "holdfast-system"}}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := compiled(t, v1alpha1.StoragePolicySpec{Match: tc.match})
			if got := p.MatchesClaim(tc.claim); got != tc.want {
				t.Errorf("%s: MatchesClaim = %v", tc.why, got)
			}
			if got := p.MatchesStorageClass("gp3", "ebs.csi.aws.com"); got != tc.wantSC {
				t.Errorf("%s: MatchesStorageClass = %v", tc.why, got)
			}
		})
	}
}

func TestCompileNamesEachBrokenSelector(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is", Values: []string{"b"}}}}
	p := &v1alpha1.StoragePolicy{Spec: v1alpha1.StoragePolicySpec{
		Match:      v1alpha1.PolicyMatch{NamespaceSelector: bad, ClaimSelector: bad},
		Exemptions: []v1alpha1.Exemption{{Selector: with("a=b")}, {Selector: bad, NamespaceSelector: bad}},
	}}
	_, errs := Compile(p)
	var got []string
	for _, e := range errs {
		got = append(got, e.Field)
	}
	want := []string{"spec.match.namespaceSelector", "spec.match.claimSelector", "spec.exemptions[1].selector", "spec.exemptions[1].namespaceSelector"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got)\n%s", diff)
	}
}

func TestSort(t *testing.T) {
	policies := []*Policy{{Name: "b"}, {Name: "high", Priority: 7}, {Name: "a"}, {Name: "low", Priority: -1}}
	Sort(policies)
	var got []string
	for _, p := range policies {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"high", "a", "b", "low"}, got); diff != "" {
		t.Errorf("order (-want +got)\n%s", diff)
	}
}

func TestFindings(t *testing.T) {
	p := compiled(t, v1alpha1.StoragePolicySpec{
		Guardrails: &v1alpha1.Guardrails{
			Action:    v1alpha1.Deny,
			Overrides: []v1alpha1.RuleOverride{{Rule: v1alpha1.RuleClaimMaxSize, Action: v1alpha1.Warn}},
		},
		Exemptions: []v1alpha1.Exemption{
			{Selector: with("app=old"), Rules: []v1alpha1.Rule{v1alpha1.RuleClaimMinSize}, Until: metav1.NewTime(now.Add(time.Second))},
			{Selector: with("app=older"), Until: metav1.NewTime(now)},
			{NamespaceSelector: with("team=x"), Selector: with("app=both"), Until: metav1.NewTime(now.Add(time.Hour))},
		},
	})
	breaches := []Breach{{Rule: v1alpha1.RuleClaimMinSize}, {Rule: v1alpha1.RuleClaimMaxSize}}
	minDenied := Finding{Breach: breaches[0], Policy: "tier-db", Action: v1alpha1.Deny}
	maxWarned := Finding{Breach: breaches[1], Policy: "tier-db", Action: v1alpha1.Warn}
	for name, tc := range map[string]struct {
		why    string
		labels map[string]string
		ns     Namespace
		want   []Finding
	}{
		"none":          {"the override gives one rule another action", nil, Namespace{Name: "n"}, []Finding{minDenied, maxWarned}},
		"one rule":      {"an exemption is for its rules", map[string]string{"app": "old"}, Namespace{Name: "n"}, []Finding{maxWarned}},
		"ended":         {"an exemption ends at its time", map[string]string{"app": "older"}, Namespace{Name: "n"}, []Finding{minDenied, maxWarned}},
		"all rules":     {"without rules it is for all", map[string]string{"app": "both"}, Namespace{Name: "n", Labels: map[string]string{"team": "x"}}, nil},
		"half":          {"both selectors must hold", map[string]string{"app": "both"}, Namespace{Name: "n"}, []Finding{minDenied, maxWarned}},
		"cluster scope": {"what is in no namespace is not exempt by one", map[string]string{"app": "both"}, Namespace{}, []Finding{minDenied, maxWarned}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, p.Findings(breaches, tc.labels, tc.ns, now)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
	if got := p.Ended(now); got != 1 {
		t.Errorf("%d exemptions have ended, want 1", got)
	}
}

func TestRatchet(t *testing.T) {
	size := func(found string) Finding {
		return Finding{Policy: "p", Breach: Breach{Rule: v1alpha1.RuleClaimMaxSize, Field: "size", Found: found}}
	}
	mode := Finding{Policy: "p", Breach: Breach{Rule: v1alpha1.RuleClaimVolumeModes, Field: "mode", Found: "Block"}}
	for name, tc := range map[string]struct {
		why          string
		old, changed []Finding
		want         []Finding
	}{
		"untouched": {"what was broken before stays editable", []Finding{size("3Ti"), mode}, []Finding{size("3Ti"), mode}, nil},
		"worse":     {"a broken field that is changed is judged", []Finding{size("3Ti")}, []Finding{size("4Ti")}, []Finding{size("4Ti")}},
		"another":   {"a rule that held before is judged", []Finding{size("3Ti")}, []Finding{size("3Ti"), mode}, []Finding{mode}},
		"healed":    {"nothing is left to say", []Finding{size("3Ti")}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Ratchet(tc.old, tc.changed)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	deny, warn, audit := Finding{Action: v1alpha1.Deny}, Finding{Action: v1alpha1.Warn}, Finding{Action: v1alpha1.Audit}
	want := Verdict{Denied: []Finding{deny}, Warned: []Finding{warn}, Audited: []Finding{audit, audit}}
	if diff := cmp.Diff(want, Judge([]Finding{audit, deny, warn, audit})); diff != "" {
		t.Errorf("verdict (-want +got)\n%s", diff)
	}
}

func TestMessageTellsAll(t *testing.T) {
	f := Finding{Policy: "tier-db", Breach: Breach{Rule: v1alpha1.RuleClaimMaxSize, Field: "spec.size", Found: "3Ti", Wanted: "at most 2Ti", Todo: "ask for less"}}
	for _, part := range []string{`"tier-db"`, "claim.maxSize", "spec.size", "3Ti", "at most 2Ti", "ask for less"} {
		if !strings.Contains(f.Message(), part) {
			t.Errorf("message %q lacks %q", f.Message(), part)
		}
	}
}

func TestDeletion(t *testing.T) {
	recent := &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot}
	for name, tc := range map[string]struct {
		why   string
		rules *v1alpha1.DeletionRules
		held  Held
		want  string // part of the breach's message; empty: let through
	}{
		"no rule":        {"no rule, no protection", nil, Held{Bound: true}, ""},
		"never":          {"protect: Never protects nothing", &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectNever}, Held{Bound: true}, ""},
		"not bound":      {"a claim without a volume holds no data", recent, Held{}, ""},
		"always":         {"unless the policy says so", &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowRecentSnapshot}, Held{}, "not there"},
		"no snapshot":    {"no copy, no deletion", recent, Held{Bound: true}, "not there"},
		"old snapshot":   {"a day by default", recent, Held{Bound: true, NewestCut: now.Add(-24*time.Hour - time.Second)}, "24h0m1s old"},
		"fresh snapshot": {"a fresh copy is permission", recent, Held{Bound: true, NewestCut: now.Add(-24 * time.Hour)}, ""},
		"cut ahead":      {"clocks differ a little", recent, Held{Bound: true, NewestCut: now.Add(time.Second)}, ""},
		"own age":        {"the policy's own age counts", &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot, SnapshotNotOlderThanSeconds: 60}, Held{Bound: true, NewestCut: now.Add(-61 * time.Second)}, "at most 1m0s"},
		"override only":  {"then a fresh copy is no permission", &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowOverrideOnly}, Held{Bound: true, NewestCut: now}, "override"},
	} {
		t.Run(name, func(t *testing.T) {
			checkBreach(t, tc.why, Deletion(tc.rules, tc.held, now), tc.want)
		})
	}
}

func TestScaleDown(t *testing.T) {
	rules := &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 3600}
	for name, tc := range map[string]struct {
		why   string
		rules *v1alpha1.ScaleDownRules
		held  Held
		want  string
	}{
		"no rule":    {"no rule, no hold", nil, Held{}, ""},
		"not bound":  {"a claim without a volume cannot be copied", rules, Held{Name: "data-pg-2"}, ""},
		"no copy":    {"no copy, no scale-down", rules, Held{Name: "data-pg-2", Bound: true}, "data-pg-2"},
		"old copy":   {"an old one is none", rules, Held{Bound: true, NewestCut: now.Add(-time.Hour - time.Second)}, "1h0m1s old"},
		"fresh copy": {"a fresh one is permission", rules, Held{Bound: true, NewestCut: now.Add(-time.Hour)}, ""},
		"override":   {"who cannot take a copy is told of it", rules, Held{Bound: true}, v1alpha1.AnnotationOverrideDeletion + "=<reason> on the claim"},
	} {
		t.Run(name, func(t *testing.T) {
			checkBreach(t, tc.why, ScaleDown(tc.rules, tc.held, now), tc.want)
		})
	}
}

func checkBreach(t *testing.T, why string, got []Breach, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("%s: refused: %+v", why, got)
	case want != "" && len(got) != 1:
		t.Errorf("%s: %d breaches, want one with %q", why, len(got), want)
	case want != "" && !strings.Contains(Finding{Breach: got[0]}.Message(), want):
		t.Errorf("%s: breach %+v lacks %q", why, got[0], want)
	}
}

// TestOverride: a reason lets everything through and is kept; none does nothing.
func TestOverride(t *testing.T) {
	found := func() []Finding {
		return []Finding{{Breach: Breach{Rule: v1alpha1.RuleDeletion, Field: "the deletion of claim a/b"}, Policy: "databases", Action: v1alpha1.Deny}, {Action: v1alpha1.Warn}}
	}
	for _, none := range []string{"", "  "} {
		if v := Judge(Override(found(), none)); len(v.Denied) != 1 || len(v.Warned) != 1 {
			t.Errorf("the reason %q, which is none, has made of one denied and one warned %+v", none, v)
		}
	}
	v := Judge(Override(found(), " moved to s3 "))
	if len(v.Overridden) != 2 || len(v.Denied)+len(v.Warned)+len(v.Audited) != 0 {
		t.Fatalf("with a reason: %+v, want both overridden", v)
	}
	if want, got := `StoragePolicy "databases", rule deletion, is overridden for the deletion of claim a/b: moved to s3`, v.Overridden[0].Message(); got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}
