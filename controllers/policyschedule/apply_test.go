package policyschedule

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// TestWhatHasMovedIsNotRefused: the status of a schedule is written all the time,
// and a write that comes across another is tried again, and no refusal to tell.
func TestWhatHasMovedIsNotRefused(t *testing.T) {
	kinds := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	what := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "snapshotschedules"}
	for name, tc := range map[string]struct {
		answer         error
		refused, moved bool
	}{
		"taken":     {},
		"moved":     {answer: apierrors.NewConflict(what, "daily", errors.New("it has changed")), moved: true},
		"gone":      {answer: apierrors.NewNotFound(what, "daily")},
		"forbidden": {answer: apierrors.NewForbidden(what, "daily", errors.New("no")), refused: true},
	} {
		s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "daily", UID: "u"}}
		c := fake.NewClientBuilder().WithScheme(kinds).WithObjects(s).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return tc.answer
			},
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return tc.answer },
		}).Build()
		r := &Reconciler{Client: c, Events: events.NewFakeRecorder(10)}
		for does, plan := range map[string]Plan{
			"write":  {Change: []Change{{From: s, To: s.DeepCopy()}}},
			"delete": {Delete: []*v1alpha1.SnapshotSchedule{s}},
		} {
			refused, moved := r.apply(t.Context(), "databases", plan)
			if (refused != nil) != tc.refused || moved != tc.moved || refused != nil && !strings.Contains(refused.Error(), does+" SnapshotSchedule db/daily") {
				t.Errorf("%s, %s: refused %v, moved %t", does, name, refused, moved)
			}
		}
	}
}

// TestEachOwnerIsToldOfTheEdit: also the owner of a schedule whose name is within
// that of another, which was told of before.
func TestEachOwnerIsToldOfTheEdit(t *testing.T) {
	kinds := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	build := fake.NewClientBuilder().WithScheme(kinds)
	for _, namespace := range []string{"b", "db"} {
		build.WithObjects(&v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "daily"}})
	}
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Client: build.Build(), Events: recorder}
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases"}}
	p.Spec.Snapshots = &v1alpha1.PolicySnapshots{Schedules: []v1alpha1.PolicySchedule{{Name: "daily"}}}
	var old []metav1.Condition
	for _, tc := range []struct {
		edited []string
		told   int
	}{{[]string{"db/daily"}, 1}, {[]string{"b/daily", "db/daily"}, 1}, {[]string{"b/daily", "db/daily"}, 0}} {
		p.Status.Conditions = Report(old, p, Plan{Edited: tc.edited}, nil, time.Unix(0, 0))
		r.tell(t.Context(), p, old, tc.edited)
		if got := len(recorder.Events); got != tc.told {
			t.Errorf("%v are edited: %d told, want %d", tc.edited, got, tc.told)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
		old = p.Status.Conditions
	}
}
