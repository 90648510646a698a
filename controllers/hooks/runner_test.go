//go:build envtest

package hooks

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// server is a real API server. It has no kubelet: commands are the tests' own.
var server struct {
	cfg    *rest.Config
	client client.Client
}

func TestRunner(t *testing.T) {
	scheme := apiruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), snapshotv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	server.cfg = testenv.APIServer(t)
	var err error
	if server.client, err = client.New(server.cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	t.Run("good", testGood)
	t.Run("killed", testKilled)
	t.Run("not reached", testNotReached)
	t.Run("gone", testGone)
}

// stage is a runner and what its commands did, in a namespace of its own that
// stands for the manager's too.
type stage struct {
	*Runner
	namespace string
	events    *events.FakeRecorder
	registry  *prometheus.Registry

	mu  sync.Mutex
	did []string
	run func(Command) error // nil: each ends well
}

func newStage(t *testing.T, namespace string) *stage {
	t.Helper()
	s := &stage{namespace: namespace, events: events.NewFakeRecorder(100), registry: prometheus.NewPedanticRegistry()}
	s.Runner = NewRunner(Options{
		Client: server.client, Live: server.client, Events: s.events, Clock: clock.RealClock{}, Namespace: namespace, Registry: s.registry,
		Run: func(_ context.Context, c Command, _ time.Duration) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.did = append(s.did, c.Hook+" "+c.Pod)
			if s.run != nil {
				return s.run(c)
			}
			return nil
		},
	})
	return s
}

// start starts the runner for as long as the test runs.
func (s *stage) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.eventually(t, "the runner is ready", func() error {
		if _, why := s.take(nil, Owner{}); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// counted are the metrics of the runner, by name and the label when.
func (s *stage) counted(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() == "when" {
					name += " " + l.GetValue()
				}
			}
			all[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

func (s *stage) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.did, ", ")
}

func (s *stage) eventually(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v; did %s", what, err, s.log())
}

// records are how many there are.
func (s *stage) records(t *testing.T) int {
	t.Helper()
	var list corev1.ConfigMapList
	if err := server.client.List(t.Context(), &list, client.InNamespace(s.namespace), client.MatchingLabels{labelRecord: recordHooks}); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// making asks for copies, and cuts those that are named.
func (s *stage) making(t *testing.T, copies []string, cut ...string) func(context.Context, map[string]string) []string {
	return func(ctx context.Context, annotations map[string]string) []string {
		for _, name := range copies {
			c := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Annotations: annotations}}
			claim := "data"
			c.Spec.Source.PersistentVolumeClaimName = &claim
			if err := server.client.Create(ctx, c); err != nil {
				t.Error(err)
			}
			if slices.Contains(cut, name) {
				now, content := metav1.Now(), "content-"+name
				c.Status = &snapshotv1.VolumeSnapshotStatus{CreationTime: &now, BoundVolumeSnapshotContentName: &content}
				if err := server.client.Status().Update(ctx, c); err != nil {
					t.Error(err)
				}
			}
		}
		return copies
	}
}

// marks are what the copies are marked with.
func (s *stage) marks(t *testing.T, copies ...string) string {
	t.Helper()
	var marks []string
	for _, name := range copies {
		c := &snapshotv1.VolumeSnapshot{}
		if err := server.client.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, c); err != nil {
			t.Fatal(err)
		}
		marks = append(marks, c.Annotations[v1alpha1.AnnotationQuiesced])
	}
	return strings.Join(marks, " ")
}

func namespace(t *testing.T) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hooks-"}}
	if err := server.client.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n.Name
}

// one is a freeze of one Pod and some copies.
func one(most time.Duration, copies ...string) Freeze {
	return Freeze{Copies: copies, MaxFreeze: most, Before: []Before{{Command: in("before[0]", "p")}}, After: []Command{in("after[0]", "p")}}
}

func testGood(t *testing.T) {
	s := newStage(t, namespace(t))
	owner := Owner{Namespace: s.namespace, Name: "daily"}
	if r := s.Freeze(t.Context(), owner, one(time.Minute, "early"), nil); !strings.Contains(r.Failed, "still looked up") {
		t.Errorf("a runner that has not looked for records freezes: %+v", r)
	}
	s.start(t)
	create := s.making(t, []string{"a", "b"}, "a", "b")
	r := s.Freeze(t.Context(), owner, one(time.Minute, "a", "b"), func(ctx context.Context, annotations map[string]string) []string {
		if n := s.records(t); n != 1 {
			t.Errorf("%d records while the Pod is frozen", n)
		}
		if r := s.Freeze(ctx, Owner{Namespace: s.namespace, Name: "other"}, one(time.Minute, "c"), nil); !strings.Contains(r.Failed, s.namespace+"/daily") {
			t.Errorf("a second freeze of the Pod: %+v", r)
		}
		return create(ctx, annotations)
	})
	if r != (Result{}) || s.log() != "before[0] p, after[0] p" || s.marks(t, "a", "b") != "Yes Yes" || s.records(t) != 0 {
		t.Errorf("ended with %+v, did %s, marked %s, %d records", r, s.log(), s.marks(t, "a", "b"), s.records(t))
	}
	r = s.Freeze(t.Context(), owner, one(300*time.Millisecond, "x", "y"), s.making(t, []string{"x", "y"}, "y"))
	if !strings.Contains(r.Flaw, "maxFreezeSeconds") || s.marks(t, "x", "y") != "No Yes" {
		t.Errorf("one that is not cut in time: %+v, marked %s", r, s.marks(t, "x", "y"))
	}
}

// testKilled kills the manager while the Pod is frozen: whoever leads next undoes.
func testKilled(t *testing.T) {
	s := newStage(t, namespace(t))
	s.start(t)
	copies := []string{"a", "b"}
	create, killed := s.making(t, copies, "a"), make(chan struct{})
	go func() {
		defer close(killed)
		s.Freeze(t.Context(), Owner{Namespace: s.namespace, Name: "deleted-meanwhile"}, one(time.Minute, copies...), func(ctx context.Context, annotations map[string]string) []string {
			create(ctx, annotations)
			runtime.Goexit()
			return nil
		})
	}()
	<-killed
	if s.log() != "before[0] p" || s.records(t) != 1 || s.marks(t, copies...) != "Pending Pending" {
		t.Fatalf("killed after %s, %d records, marked %s", s.log(), s.records(t), s.marks(t, copies...))
	}
	next := newStage(t, s.namespace)
	next.start(t)
	next.eventually(t, "the next leader undoes", func() error {
		if next.log() != "after[0] p" || s.records(t) != 0 || s.marks(t, copies...) != "No No" {
			return fmt.Errorf("%d records, marked %s", s.records(t), s.marks(t, copies...))
		}
		return nil
	})
	next.eventually(t, "then the Pod can be frozen again", func() error {
		if r := next.Freeze(t.Context(), Owner{}, one(time.Minute, "again"), func(context.Context, map[string]string) []string { return nil }); r.Failed != "" {
			return errors.New(r.Failed)
		}
		return nil
	})
}

// testNotReached: a Pod that does not answer when it is to be let go holds nobody
// up, and is let go once it answers.
func testNotReached(t *testing.T) {
	s := newStage(t, namespace(t))
	s.start(t)
	reached := false
	s.run = func(c Command) error {
		if strings.HasPrefix(c.Hook, "after") && !reached {
			return errDown
		}
		return nil
	}
	r := s.Freeze(t.Context(), Owner{Namespace: s.namespace, Name: "daily"}, one(time.Minute, "a"), s.making(t, []string{"a"}, "a"))
	if r != (Result{}) || s.marks(t, "a") != "Yes" || s.records(t) != 1 {
		t.Fatalf("ended with %+v, marked %s, %d records", r, s.marks(t, "a"), s.records(t))
	}
	select {
	case e := <-s.events.Events:
		if !strings.Contains(e, ReasonHookFailed) || !strings.Contains(e, "after[0]") || strings.Contains(e, "[x]") {
			t.Errorf("told %q", e)
		}
	default:
		t.Error("nothing is told")
	}
	if r := s.Freeze(t.Context(), Owner{}, one(time.Minute, "b"), nil); !strings.Contains(r.Failed, "still to be undone") {
		t.Errorf("the Pod is frozen again meanwhile: %+v", r)
	}
	s.eventually(t, "it is counted", func() error {
		if got := s.counted(t); got["holdfast_hooks_to_undo"] != 1 || got["holdfast_hook_failures_total after"] != 1 {
			return fmt.Errorf("counted are %v, want one freeze to undo and one failure of after", got)
		}
		return nil
	})
	s.mu.Lock()
	reached = true
	s.mu.Unlock()
	s.eventually(t, "it is undone", func() error {
		if n, told := s.counted(t)["holdfast_hooks_to_undo"]; s.records(t) != 0 || told {
			return fmt.Errorf("%d records are left, and %v freezes to undo are counted, or none by a series that stays", s.records(t), n)
		}
		return nil
	})
	s.mu.Lock()
	s.run = func(Command) error { return ErrRan }
	s.mu.Unlock()
	if r := s.Freeze(t.Context(), Owner{Namespace: s.namespace, Name: "daily"}, one(time.Minute, "c"), nil); r.Failed == "" || s.counted(t)["holdfast_hook_failures_total before"] != 1 {
		t.Errorf("a hook of before that fails: %+v, counted are %v", r, s.counted(t))
	}
}

// testGone asks the real API server about Pods, none of which a kubelet runs.
func testGone(t *testing.T) {
	ns := namespace(t)
	exec, err := NewExec(server.cfg, server.client)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	if err := server.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	c := Command{Hook: "after[0]", Namespace: ns, Pod: "p", PodUID: pod.UID, Container: "main", Argv: []string{"true"}}
	if err := exec.Run(t.Context(), c, time.Minute); err == nil || errors.Is(err, ErrGone) || errors.Is(err, ErrRan) {
		t.Errorf("a Pod that is on no node yet: %v", err)
	}
	other := c
	other.PodUID = "another"
	if err := exec.Run(t.Context(), other, time.Minute); !errors.Is(err, ErrGone) {
		t.Errorf("another Pod of the name: %v", err)
	}
	other = c
	other.Pod = "none"
	if err := exec.Run(t.Context(), other, time.Minute); !errors.Is(err, ErrGone) {
		t.Errorf("no Pod: %v", err)
	}
	pod.Status.Phase = corev1.PodFailed
	if err := server.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := exec.Run(t.Context(), c, time.Minute); !errors.Is(err, ErrGone) {
		t.Errorf("a Pod that has ended: %v", err)
	}
}
