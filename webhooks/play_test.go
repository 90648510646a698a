//go:build envtest

package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// played counts the places, which all have names of their own.
var played int

// testTable plays every row with every action.
func testTable(t *testing.T) {
	wanted := map[string]v1alpha1.Action{} // the event that each policy must have
	for _, r := range table() {
		t.Run(fmt.Sprintf("%s/%s/%s", r.rule, r.op, r.what), func(t *testing.T) {
			for _, action := range []v1alpha1.Action{v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit} {
				t.Run(string(action), func(t *testing.T) {
					g := newGame(t, r)
					p := g.policy(t, action, leavingExemption(r)...)
					if action == v1alpha1.Deny && r.most != "" {
						action = r.most
					}
					g.answers(t, p, action)
					wanted[p.Name] = action
				})
			}
		})
	}
	reasons := map[v1alpha1.Action]string{v1alpha1.Deny: "Denied", v1alpha1.Warn: "Warned", v1alpha1.Audit: "Audited"}
	eventually(t, "each policy has an event of what it did", func() error {
		var list eventsv1.EventList
		if err := server.client.List(t.Context(), &list); err != nil {
			return err
		}
		has := map[string]bool{}
		for _, e := range list.Items {
			has[e.Regarding.Name+" "+e.Reason] = true
		}
		for name, action := range wanted {
			if !has[name+" "+reasons[action]] {
				return fmt.Errorf("policy %s has no event %s; there are %d events", name, reasons[action], len(list.Items))
			}
		}
		return nil
	})
}

// testFree plays what no policy may touch.
func testFree(t *testing.T) {
	for _, r := range free() {
		t.Run(fmt.Sprintf("%s/%s/%s", r.rule, r.op, r.what), func(t *testing.T) {
			g := newGame(t, r)
			g.passes(t, g.policy(t, v1alpha1.Deny))
		})
	}
}

// testExemptions plays a row of each rule and operation with exemptions.
func testExemptions(t *testing.T) {
	later, before := metav1.NewTime(time.Now().Add(time.Hour)), metav1.NewTime(time.Now().Add(-time.Minute))
	object, other := &metav1.LabelSelector{MatchLabels: letOff}, &metav1.LabelSelector{MatchLabels: map[string]string{"let": "on"}}
	type kind struct {
		rule v1alpha1.Rule
		op   operation
	}
	done := map[kind]bool{}
	for _, r := range table() {
		if leavingExemption(r) != nil || done[kind{r.rule, r.op}] {
			continue
		}
		done[kind{r.rule, r.op}] = true
		inNamespace := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: inRow, Operator: metav1.LabelSelectorOpExists}}}
		_, class := r.object(place{}).(*storagev1.StorageClass)
		for name, tc := range map[string]struct {
			exemption v1alpha1.Exemption
			exempt    bool
		}{
			"in force":               {v1alpha1.Exemption{Selector: object, Rules: []v1alpha1.Rule{r.rule}, Until: later}, true},
			"in force for all rules": {v1alpha1.Exemption{Selector: object, Until: later}, true},
			"by namespace":           {v1alpha1.Exemption{NamespaceSelector: inNamespace, Until: later}, !class},
			"ended":                  {v1alpha1.Exemption{Selector: object, Until: before}, false},
			"for another rule":       {v1alpha1.Exemption{Selector: object, Rules: []v1alpha1.Rule{otherThan(r.rule)}, Until: later}, false},
			"for another object":     {v1alpha1.Exemption{Selector: other, Until: later}, false},
		} {
			t.Run(fmt.Sprintf("%s/%s/%s/%s", r.rule, r.op, r.what, name), func(t *testing.T) {
				tc.exemption.Reason = "migration"
				g := newGame(t, r)
				p := g.policy(t, v1alpha1.Deny, tc.exemption)
				switch {
				case tc.exempt:
					g.passes(t, p)
				case r.most != "":
					g.answers(t, p, r.most)
				default:
					g.answers(t, p, v1alpha1.Deny)
				}
			})
		}
	}
}

// testMatch plays a row of each kind with policies that match by one field more:
// of what the row is about, and of something else.
func testMatch(t *testing.T) {
	kinds := []string{
		"an unencrypted class", "a claim of an unencrypted class", "a template of an unencrypted class", "a claim",
		"a namespace with a claim", "the newest snapshot of a claim", "the group of the newest snapshot of a claim",
	}
	fields := map[string]func(m *v1alpha1.PolicyMatch, p place, its bool){
		"claimSelector": func(m *v1alpha1.PolicyMatch, _ place, its bool) {
			m.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"let": map[bool]string{true: "off", false: "on"}[its]}}
		},
		"storageClassNames": func(m *v1alpha1.PolicyMatch, p place, its bool) {
			m.StorageClassNames = []string{"some-other", map[bool]string{true: p.name("class"), false: "another"}[its]}
		},
		"provisioners": func(m *v1alpha1.PolicyMatch, _ place, its bool) {
			m.Provisioners = []string{"efs.csi.aws.com", map[bool]string{true: ebs, false: "driver.longhorn.io"}[its]}
		},
	}
	for _, r := range table() {
		if r.op != opCreate && r.op != opDelete || !slices.Contains(kinds, r.what) {
			continue
		}
		kinds = slices.DeleteFunc(kinds, func(what string) bool { return what == r.what })
		_, class := r.object(place{}).(*storagev1.StorageClass)
		for name, field := range fields {
			for _, its := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/%s %v", r.op, r.what, name, its), func(t *testing.T) {
					g := newGame(t, r)
					g.match = func(m *v1alpha1.PolicyMatch) { field(m, g.at, its) }
					p := g.policy(t, v1alpha1.Deny)
					switch {
					case !its || class && name == "claimSelector": // which judges classes through claims alone
						g.passes(t, p)
					case r.most != "":
						g.answers(t, p, r.most)
					default:
						g.answers(t, p, v1alpha1.Deny)
					}
				})
			}
		}
	}
	if len(kinds) > 0 {
		t.Errorf("the table has no rows for %q", kinds)
	}
}

func otherThan(r v1alpha1.Rule) v1alpha1.Rule {
	if r == v1alpha1.RuleClaimMaxSize {
		return v1alpha1.RuleClaimMinSize
	}
	return v1alpha1.RuleClaimMaxSize
}

// testRatchet makes what breaks a rule before the policy comes, and edits it.
func testRatchet(t *testing.T) {
	for _, r := range table() {
		if r.op != opCreate {
			continue
		}
		t.Run(fmt.Sprintf("%s/%s", r.rule, r.what), func(t *testing.T) {
			r.op = opUpdate
			r.change = func(_ place, o client.Object) {
				o.SetAnnotations(map[string]string{"note": "edited"})
				o.SetLabels(map[string]string{"let": "off", "more": "labels"})
			}
			g := newGame(t, r)
			g.passes(t, g.policy(t, v1alpha1.Deny))
		})
	}
}

// game is a row at its place.
type game struct {
	row
	at     place
	it     client.Object // the row's object, at the place
	match  func(*v1alpha1.PolicyMatch)
	client client.Client
}

// newGame makes all that exists before the policy.
func newGame(t *testing.T, r row) *game {
	t.Helper()
	played++
	p := place{id: fmt.Sprintf("r%d", played)}
	p.namespace = p.id
	create(t, p.theNamespace())
	g := &game{row: r, at: p, it: r.object(p), client: server.client}
	if r.there != nil {
		for _, o := range r.there(p) {
			put(t, o)
		}
	}
	switch o := g.it.(type) {
	case *corev1.Namespace:
		if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	default:
		if r.op != opCreate {
			put(t, o)
		}
	}
	if r.as != "" {
		cfg := rest.CopyConfig(server.cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: r.as}
		c, err := client.New(cfg, client.Options{Scheme: scheme()})
		if err != nil {
			t.Fatal(err)
		}
		g.client = c
	}
	return g
}

// put makes an object with its status, and waits until the manager has seen it.
func put(t *testing.T, o client.Object) {
	t.Helper()
	withStatus := o.DeepCopyObject().(client.Object)
	create(t, o)
	if hasStatus(withStatus) {
		withStatus.SetResourceVersion(o.GetResourceVersion())
		if err := server.client.Status().Update(t.Context(), withStatus); err != nil {
			t.Fatal(err)
		}
		if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	seen(t, o)
}

func hasStatus(o client.Object) bool {
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		return o.Status.Phase != ""
	case *snapshotv1.VolumeSnapshot:
		return o.Status != nil
	}
	return false
}

// seen waits until the manager's informer has an object as it is.
func seen(t *testing.T, o client.Object) {
	t.Helper()
	got := o.DeepCopyObject().(client.Object)
	eventually(t, fmt.Sprintf("the manager sees %T %s", o, o.GetName()), func() error {
		if err := server.cache.Get(t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
			return err
		}
		if got.GetUID() != o.GetUID() || got.GetResourceVersion() != o.GetResourceVersion() {
			return errors.New("it has an older one")
		}
		return nil
	})
}

// policy makes the row's policy and takes it away with the test.
func (g *game) policy(t *testing.T, action v1alpha1.Action, exemptions ...v1alpha1.Exemption) *v1alpha1.StoragePolicy {
	t.Helper()
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy-" + g.at.id}}
	holds := g.holds
	holds.Action = action
	p.Spec = v1alpha1.StoragePolicySpec{Guardrails: &holds, Exemptions: exemptions}
	if g.snapshots != nil { // which say for themselves what happens, and need no guardrails
		p.Spec.Guardrails, p.Spec.Snapshots = nil, g.snapshots.DeepCopy()
		p.Spec.Snapshots.Required = action
	}
	if class, ok := g.it.(*storagev1.StorageClass); ok {
		p.Spec.Match.StorageClassNames = []string{class.Name}
	} else {
		p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{inRow: g.at.id}}
	}
	if g.match != nil {
		g.match(&p.Spec.Match)
	}
	create(t, p)
	t.Cleanup(func() {
		if err := server.client.Delete(context.Background(), p); err != nil {
			t.Error(err)
		}
	})
	seen(t, p)
	server.warnings.taken()
	return p
}

// leavingExemption is what the policy of a row exempts whose object leaves its exemption.
func leavingExemption(r row) []v1alpha1.Exemption {
	if !strings.HasSuffix(r.what, leavesExemption) {
		return nil
	}
	return []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: letOff}, Reason: "migration", Until: metav1.NewTime(time.Now().Add(time.Hour))}}
}

// whole is a message that tells what was found and wanted, and what to do.
var whole = regexp.MustCompile(`.+ is .+, wanted is .+: \S.{9,}`)

// answers sends the row's request, as a dry run first, and holds that both are
// answered as the action says, and that only the real one is recorded.
func (g *game) answers(t *testing.T, p *v1alpha1.StoragePolicy, action v1alpha1.Action) {
	t.Helper()
	parts := append([]string{fmt.Sprintf("StoragePolicy %q", p.Name), "rule " + string(g.rule)}, g.says...)
	for _, c := range []client.Client{client.NewDryRunClient(g.client), g.client} {
		if n := recorded(t, p.Name); n[string(g.rule)+" "+string(action)] != 0 {
			t.Errorf("a dry run is counted: %v", n)
		}
		told := ""
		err := g.send(t.Context(), c)
		warned := server.warnings.taken()
		switch action {
		case v1alpha1.Deny:
			refused(t, g.what, err, parts...)
			told = fmt.Sprint(err)
		case v1alpha1.Warn:
			accepted(t, g.what, err)
			for _, part := range parts {
				if !strings.Contains(warned, part) {
					t.Errorf("the warning lacks %q: %q", part, warned)
				}
			}
			told = warned
		case v1alpha1.Audit:
			accepted(t, g.what, err)
			if warned != "" {
				t.Errorf("Audit is silent, warned %q", warned)
			}
		}
		if action != v1alpha1.Audit && !whole.MatchString(told) {
			t.Errorf("the answer does not tell what was found, what is wanted and what to do: %s", told)
		}
		for _, part := range g.hides {
			if strings.Contains(told, part) {
				t.Errorf("the answer tells %q: %s", part, told)
			}
		}
	}
	n := recorded(t, p.Name)
	if n[string(g.rule)+" "+string(action)] == 0 || len(n) != 1 {
		t.Errorf("counted is %v, want %s %s alone", n, g.rule, action)
	}
}

// passes sends the row's request and holds that nothing comes of it.
func (g *game) passes(t *testing.T, p *v1alpha1.StoragePolicy) {
	t.Helper()
	accepted(t, g.what, g.send(t.Context(), g.client))
	if w := server.warnings.taken(); w != "" {
		t.Errorf("warned %q", w)
	}
	if n := recorded(t, p.Name); len(n) > 0 {
		t.Errorf("counted is %v", n)
	}
}

// send sends the row's request.
func (g *game) send(ctx context.Context, c client.Client) error {
	o := g.it.DeepCopyObject().(client.Object)
	switch g.op {
	case opCreate:
		return c.Create(ctx, o)
	case opUpdate:
		g.change(g.at, o)
		return c.Update(ctx, o)
	case opDelete:
		return c.Delete(ctx, o)
	case opCollection:
		return c.DeleteAllOf(ctx, &corev1.PersistentVolumeClaim{}, client.InNamespace(g.at.namespace))
	case opScale:
		scaled := o.DeepCopyObject().(*appsv1.StatefulSet)
		g.change(g.at, scaled)
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: *scaled.Spec.Replicas}}
		return c.SubResource("scale").Update(ctx, o, client.WithSubResourceBody(scale))
	}
	return fmt.Errorf("the row's operation is %q", g.op)
}

// recorded is what is counted of a policy, by rule and action.
func recorded(t *testing.T, policy string) map[string]float64 {
	t.Helper()
	families, err := server.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "holdfast_policy_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if of["policy"] == policy {
				n[of["rule"]+" "+of["action"]] += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
