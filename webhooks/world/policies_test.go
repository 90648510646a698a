package world

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// TestPoliciesAreKeptReady: what does not change is made ready and sorted once,
// and each change of the set is seen at the next question.
func TestPoliciesAreKeptReady(t *testing.T) {
	named := func(name string, generation int64, priority int32) v1alpha1.StoragePolicy {
		return v1alpha1.StoragePolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Generation: generation}, Spec: v1alpha1.StoragePolicySpec{Priority: priority},
		}
	}
	unready := named("broken", 1, 9)
	unready.Spec.Match.ClaimSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	a, b := named("a", 1, 1), named("b", 1, 2)
	var c compiled
	var before []*policy.Policy
	for _, step := range []struct {
		what  string
		items []v1alpha1.StoragePolicy
		want  []string
	}{
		{"two, and one that cannot be made ready", []v1alpha1.StoragePolicy{a, unready, b}, []string{"b", "a"}},
		{"one's priority is changed", []v1alpha1.StoragePolicy{named("a", 2, 3), unready, b}, []string{"a", "b"}},
		{"one goes and another comes", []v1alpha1.StoragePolicy{named("c", 1, 0), unready, b}, []string{"b", "c"}},
		{"one goes", []v1alpha1.StoragePolicy{unready, b}, []string{"b"}},
		{"one is made again under its name", []v1alpha1.StoragePolicy{unready, func() v1alpha1.StoragePolicy { n := named("b", 1, 7); n.UID = "new"; return n }()}, []string{"b"}},
		{"all go", nil, nil},
	} {
		c.of(step.items, 0)
		own, _ := c.of(step.items, 0)
		clear(own) // a caller may filter its own answer
		got, broken := c.of(step.items, 0)
		if len(got) != len(step.want) {
			t.Fatalf("%s: %d policies are ready, want %v", step.what, len(got), step.want)
		}
		for i, p := range got {
			if p.Name != step.want[i] {
				t.Errorf("%s: policy %d is %s, want %s", step.what, i, p.Name, step.want[i])
			}
		}
		if n := len(slices.DeleteFunc(slices.Clone(step.items), func(p v1alpha1.StoragePolicy) bool { return p.Name != "broken" })); len(broken) != n || n > 0 && (broken[0].Name != "broken" || !strings.Contains(broken[0].Why, "spec.match.claimSelector")) {
			t.Errorf("%s: those that cannot be made ready are %+v, want %d", step.what, broken, n)
		}
		if len(got) > 0 && len(before) > 0 && got[0] == before[0] && step.what == "one is made again under its name" {
			t.Errorf("%s: the old one still judges", step.what)
		}
		if allocated := testing.AllocsPerRun(10, func() { c.of(step.items, 0) }); allocated > 1 { // the answer
			t.Errorf("%s: asked again, it allocates %v times: it is made ready again", step.what, allocated)
		}
		before = got
	}
}

// lister is an informer's reader of policies.
type lister struct {
	client.Reader
	names []string
	asked int
	err   error
	// meanwhile happens while it lists.
	meanwhile func()
}

func (l *lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.asked++
	if l.err != nil {
		return l.err
	}
	for _, name := range l.names {
		list.(*v1alpha1.StoragePolicyList).Items = append(list.(*v1alpha1.StoragePolicyList).Items, v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	if l.meanwhile != nil {
		l.meanwhile()
		l.meanwhile = nil
	}
	return nil
}

// TestPoliciesAreListedOnChange: with an informer that tells of changes, policies
// are listed once for each, and none is missed: not those before the first
// question, not one that comes while they are listed. Without, always.
func TestPoliciesAreListedOnChange(t *testing.T) {
	l, i := &lister{}, &informer{}
	w := &World{Cache: l}
	for _, step := range []struct {
		what  string
		do    func()
		asked int
		want  []string
		fails bool
	}{
		{what: "no informer tells", asked: 1},
		{what: "nor now", do: func() { l.names = []string{"a"} }, asked: 1, want: []string{"a"}},
		{what: "one tells from now on", do: func() {
			if err := w.policies.watch(i); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"a"}},
		{what: "what was there is told", do: func() { i.told.OnAdd(nil, true) }, asked: 1, want: []string{"a"}},
		{what: "nothing has changed", want: []string{"a"}},
		{what: "one comes, and another while they are listed", do: func() {
			l.names = []string{"a", "b"}
			i.told.OnAdd(nil, false)
			l.meanwhile = func() { l.names = []string{"a", "b", "c"}; i.told.OnAdd(nil, false) }
		}, asked: 1, want: []string{"a", "b"}},
		{what: "that one is seen", asked: 1, want: []string{"a", "b", "c"}},
		{what: "one changes, and the list fails", do: func() { l.err = errors.New("not synced"); i.told.OnUpdate(nil, nil) }, asked: 1, fails: true},
		{what: "it succeeds", do: func() { l.err = nil; l.names = []string{"b", "c"} }, asked: 1, want: []string{"b", "c"}},
		{what: "the others go", do: func() { l.names = nil; i.told.OnDelete(nil) }, asked: 1},
		{what: "still none"},
	} {
		if step.do != nil {
			step.do()
		}
		before := l.asked
		got, err := w.Policies(t.Context())
		if (err != nil) != step.fails {
			t.Fatalf("%s: %v", step.what, err)
		}
		var names []string
		for _, p := range got {
			names = append(names, p.Name)
		}
		clear(got) // it is the caller's own
		if diff := cmp.Diff(step.want, names); diff != "" || l.asked-before != step.asked {
			t.Errorf("%s: listed %d times, want %d (-want +got)\n%s", step.what, l.asked-before, step.asked, diff)
		}
	}
}
