package snapshots

import (
	"context"
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// serving answers what it serves by group and version.
type serving struct {
	resources map[string][]string
	err       error
	asked     map[string]int // by group and version
}

func (s *serving) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	if s.asked != nil {
		s.asked[groupVersion]++
	}
	names, is := s.resources[groupVersion]
	switch {
	case s.err != nil:
		return nil, s.err
	case !is:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	list := &metav1.APIResourceList{GroupVersion: groupVersion}
	for _, n := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: n})
	}
	return list, nil
}

// informers starts none.
type informers struct{ cache.Cache }

func (informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, nil
}

// indexer takes each index once, as client-go's does.
type indexer struct {
	taken map[string]bool
	asked int
	err   error
}

func (x *indexer) IndexField(_ context.Context, _ client.Object, name string, _ client.IndexerFunc) error {
	x.asked++
	if x.err != nil {
		return x.err
	}
	if x.taken[name] {
		return errors.New("indexer conflict: " + name)
	}
	x.taken[name] = true
	return nil
}

var single = map[string][]string{"snapshot.storage.k8s.io/v1": {"volumesnapshots", "volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots/status"}}

// TestKindsComeAndGo: what waits for a family begins once when it comes, and a
// question that fails is no absence.
func TestKindsComeAndGo(t *testing.T) {
	server, clk := &serving{}, clocktesting.NewFakeClock(time.Unix(1e9, 0))
	x := &indexer{taken: map[string]bool{}}
	k := newKinds(server, informers{}, NewIndex(x), clk)
	begun, refusals := 0, 1
	if err := k.Watch(Single, func() error {
		if refusals > 0 {
			refusals--
			return errors.New("not yet")
		}
		begun++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	told := 0
	k.changed = append(k.changed, func() { told++; k.Served(Single) }) // asks back
	for _, step := range []struct {
		name        string
		resources   map[string][]string
		err         error
		served      bool
		begun, told int
		fails       bool
	}{
		{name: "nothing is there"},
		{name: "half of the CRDs are there", resources: map[string][]string{"snapshot.storage.k8s.io/v1": {"volumesnapshots"}}},
		{name: "an older version alone", resources: map[string][]string{"snapshot.storage.k8s.io/v1beta1": single["snapshot.storage.k8s.io/v1"]}},
		{name: "they come, and a watch cannot begin", resources: single, served: true, told: 1, fails: true},
		{name: "the watch begins", resources: single, served: true, told: 1, begun: 1},
		{name: "once", resources: single, served: true, told: 1, begun: 1},
		{name: "the server does not answer", err: errors.New("timeout"), served: true, told: 1, begun: 1, fails: true},
		{name: "they go", told: 2, begun: 1},
		{name: "they come again", resources: single, served: true, told: 3, begun: 1},
	} {
		server.resources, server.err = step.resources, step.err
		clk.Step(everyServed)
		if err := k.look(t.Context()); (err != nil) != step.fails {
			t.Fatalf("%s: %v", step.name, err)
		}
		if k.Served(Single) != step.served || begun != step.begun || told != step.told || k.Served(Group) {
			t.Errorf("%s: served %t, %d watches begun, told %d times, groups %t; want %t, %d, %d, false", step.name, k.Served(Single), begun, told, k.Served(Group), step.served, step.begun, step.told)
		}
		if got := testutil.ToFloat64(k.gauge.WithLabelValues(string(Single))); got != map[bool]float64{true: 1}[step.served] {
			t.Errorf("%s: the metric says %v", step.name, got)
		}
	}
	late := 0
	if err := k.Watch(Single, func() error { late++; return nil }); err != nil || late != 1 {
		t.Errorf("a watch of what is there begins %d times: %v", late, err)
	}
}

// TestKindsAreAskedForAgain: the manager looks by itself.
func TestKindsAreAskedForAgain(t *testing.T) {
	server, clk := &serving{}, clocktesting.NewFakeClock(time.Unix(1e9, 0))
	k := newKinds(server, informers{}, NewIndex(&indexer{taken: map[string]bool{}}), clk)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	begun := make(chan struct{})
	if err := k.Watch(Single, func() error { close(begun); return nil }); err != nil {
		t.Fatal(err)
	}
	server.resources = single
	go func() { _ = k.Start(ctx) }()
	for !clk.HasWaiters() {
		select {
		case <-t.Context().Done():
			t.Fatal("nobody waits for the time")
		case <-time.After(time.Millisecond):
		}
	}
	clk.Step(every)
	select {
	case <-begun:
	case <-time.After(10 * time.Second):
		t.Fatal("the kinds are there, and 10 seconds later nobody has seen them")
	}
}

// TestServedKindsAreAskedForEachMinute: each question is a live read. What is
// missing is asked for every 10 seconds, and so is what could not begin.
func TestServedKindsAreAskedForEachMinute(t *testing.T) {
	server, clk := &serving{resources: single, asked: map[string]int{}}, clocktesting.NewFakeClock(time.Unix(1e9, 0))
	k := newKinds(server, informers{}, NewIndex(&indexer{taken: map[string]bool{}}), clk)
	refusals := 3
	if err := k.Watch(Single, func() error {
		refusals--
		if refusals >= 0 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var failed int
	for range 3 + 6*2 { // what waits begins with the fourth look; two minutes later it is time for the third question after it
		if k.look(t.Context()) != nil {
			failed++
		}
		clk.Step(every)
	}
	if failed != 3 || server.asked["snapshot.storage.k8s.io/v1"] != 3+2 || server.asked["groupsnapshot.storage.k8s.io/v1"] != 3+6*2 {
		t.Errorf("%d looks failed, questions %v; want 3, and 5 for what is served, 15 for what is not", failed, server.asked)
	}
	server.err = errors.New("timeout") // unknown: the next look asks again
	for range 2 {
		if k.look(t.Context()) == nil {
			t.Error("a look that got no answer succeeded")
		}
		clk.Step(every)
	}
	if got := server.asked["snapshot.storage.k8s.io/v1"]; got != 3+2+2 {
		t.Errorf("%d questions after two that were not answered, want 7", got)
	}
}

// TestIndexBeginsOnce: a missing kind is asked for once in 10 seconds, and an
// error in the middle leaves what is done.
func TestIndexBeginsOnce(t *testing.T) {
	x, now := &indexer{taken: map[string]bool{}, err: &meta.NoKindMatchError{}}, time.Unix(1e9, 0)
	i := NewIndex(x)
	for range 100 {
		if there, err := i.Begin(t.Context(), now); there || err != nil {
			t.Fatal(there, err)
		}
	}
	if x.asked != 1 {
		t.Errorf("100 questions for a missing kind are %d live ones, want 1", x.asked)
	}
	x.err = nil
	if there, _ := i.Begin(t.Context(), now.Add(absentFor)); !there {
		t.Error("the kind that came is not seen 10 seconds later")
	}
	if there, err := i.Begin(t.Context(), now.Add(absentFor)); !there || err != nil {
		t.Errorf("begun twice: %t, %v", there, err)
	}
}

// TestIndexes: by what snapshots are found.
func TestIndexes(t *testing.T) {
	claim, now := "data-0", metav1.Now()
	ours := map[string]string{v1alpha1.LabelSchedule: "daily"}
	status := &snapshotv1.VolumeSnapshotStatus{CreationTime: &now}
	spec := snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}}
	for name, tc := range map[string]struct {
		of   snapshotv1.VolumeSnapshot
		want map[string]string
	}{
		"ours, not cut":  {snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Labels: ours}, Spec: spec}, map[string]string{ByClaim: claim, BySchedule: "daily", ByProgress: Uncut}},
		"ours, accepted": {snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Labels: ours}, Spec: spec, Status: &snapshotv1.VolumeSnapshotStatus{}}, map[string]string{ByClaim: claim, BySchedule: "daily", ByProgress: Uncut}},
		"ours, cut":      {snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Labels: ours}, Spec: spec, Status: status}, map[string]string{ByClaim: claim, BySchedule: "daily"}},
		"ours, deleting": {snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Labels: ours, DeletionTimestamp: &now}, Spec: spec}, map[string]string{ByClaim: claim, BySchedule: "daily"}},
		"somebody's":     {snapshotv1.VolumeSnapshot{Spec: spec}, map[string]string{ByClaim: claim}},
		"of a content":   {snapshotv1.VolumeSnapshot{}, map[string]string{}},
	} {
		for _, i := range indexes {
			got, want := i.of(&tc.of), tc.want[i.name]
			if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0] != want) {
				t.Errorf("%s: index %s has %q, want %q", name, i.name, got, want)
			}
		}
	}
}
