package world

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
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
		c.of(pointers(step.items))
		own, _ := c.of(pointers(step.items))
		clear(own) // a caller may filter its own answer
		got, broken := c.of(pointers(step.items))
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
		if allocated := testing.AllocsPerRun(10, func() { c.of(pointers(step.items)) }); allocated > 1 { // the answer
			t.Errorf("%s: asked again, it allocates %v times: it is made ready again", step.what, allocated)
		}
		before = got
	}
}

func pointers(items []v1alpha1.StoragePolicy) []*v1alpha1.StoragePolicy {
	all := make([]*v1alpha1.StoragePolicy, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// lister is a cache's reader of policies.
type lister struct {
	client.Reader
	names []string
}

func (l *lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, name := range l.names {
		list.(*v1alpha1.StoragePolicyList).Items = append(list.(*v1alpha1.StoragePolicyList).Items, v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	return nil
}

// informer is one of policies, whose store is filled by hand.
type informer struct {
	toolscache.SharedIndexInformer
	synced bool
	store  toolscache.Store
}

func (i *informer) HasSynced() bool            { return i.synced }
func (i *informer) GetStore() toolscache.Store { return i.store }

// TestPoliciesAreThoseOfTheStore: what the informer's store holds is seen at once,
// without any event: a controller acts on the same event. Before the informer has
// synced the cache is asked, which waits for that.
func TestPoliciesAreThoseOfTheStore(t *testing.T) {
	i := &informer{store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	w := &World{Cache: &lister{names: []string{"listed"}}, policies: compiled{informer: i}}
	named := func(name string, priority int32) *v1alpha1.StoragePolicy {
		return &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: int64(priority)}, Spec: v1alpha1.StoragePolicySpec{Priority: priority}}
	}
	for _, step := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"before it has synced", func() error { return i.store.Add(named("a", 1)) }, []string{"listed"}},
		{"it has", func() error { i.synced = true; return nil }, []string{"a"}},
		{"one comes", func() error { return i.store.Add(named("b", 2)) }, []string{"b", "a"}},
		{"one changes", func() error { return i.store.Update(named("a", 3)) }, []string{"a", "b"}},
		{"one goes", func() error { return i.store.Delete(named("a", 3)) }, []string{"b"}},
		{"the last goes", func() error { return i.store.Delete(named("b", 2)) }, nil},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		got, err := w.Policies(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		var names []string
		for _, p := range got {
			names = append(names, p.Name)
		}
		if diff := cmp.Diff(step.want, names); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.what, diff)
		}
	}
}
