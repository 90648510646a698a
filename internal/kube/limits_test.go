package kube

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

func typed(name, instanceType string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}}
	if instanceType != "" {
		n.Labels = map[string]string{corev1.LabelInstanceTypeStable: instanceType}
	}
	return n
}

// cloud answers Limits and keeps what it was asked.
type cloud struct {
	mu    sync.Mutex
	says  map[string]ebs.InstanceLimit
	fails error
	asked [][]string
}

func (c *cloud) limits(_ context.Context, types []string) (map[string]ebs.InstanceLimit, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, types)
	return c.says, c.fails
}

func (c *cloud) questions() [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([][]string{}, c.asked...)
}

func TestDueTypes(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	seen := instanceTypes([]any{typed("b", "m5.large"), typed("a", "m5.large"), typed("c", "m7i.large"), typed("d", "c5.large"), typed("e", "")})
	if got := seen["m5.large"].Name; got != "a" {
		t.Errorf("the first node by name stands for its type, got %s", got)
	}
	got := dueTypes(seen, map[string]time.Time{"m7i.large": now.Add(time.Second), "c5.large": now}, now)
	if diff := cmp.Diff([]string{"c5.large", "m5.large"}, got); diff != "" {
		t.Errorf("due are new types and those whose time has come (-want +got)\n%s", diff)
	}
}

// One call for all types, once a day; a new type soon; one event a type and day.
func TestLimitsAreCompared(t *testing.T) {
	server, client := startAPIServer(t)
	for _, n := range []*corev1.Node{typed("a", "m5.large"), typed("b", "m7i.large"), typed("c", "m7i.large"), typed("d", "new.large")} {
		server.put(n)
	}
	ec2 := &cloud{says: map[string]ebs.InstanceLimit{
		"m5.large":  {Volumes: 27, Kind: ebs.Shared, Hypervisor: ebs.Nitro},
		"m7i.large": {Volumes: 40, Kind: ebs.Dedicated, Hypervisor: ebs.Nitro},
	}}
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	chores := Chores{Client: client, DriverName: ours, Limits: ec2.limits, Clock: clk, Log: testr.New(t)}
	nodes := runningNodes(t, client)
	w := newLimitWatch(chores, nodes)
	compare := func(w *limitWatch, events int) {
		t.Helper()
		if err := w.compare(t.Context()); err != nil || len(server.events()) != events {
			t.Fatalf("compare: %v, %d events, want %d", err, len(server.events()), events)
		}
	}
	compare(w, 1)
	e := server.events()[0]
	if e.InvolvedObject.Name != "b" || e.InvolvedObject.Kind != "Node" || e.Reason != reasonLimitDiffers || e.Namespace != "default" {
		t.Errorf("event %+v", e)
	}
	for _, text := range []string{"m7i.large", " 40 ", " 32:", "--volume-attach-limit"} {
		if !strings.Contains(e.Message, text) {
			t.Errorf("event %q does not say %q", e.Message, text)
		}
	}
	clk.Step(lookInterval)
	compare(w, 1) // nothing is due
	server.put(typed("e", "c5.large"))
	server.eventually("the new node cached", func() bool { return cached[*corev1.Node](nodes, "e") != nil })
	compare(w, 1)
	want := [][]string{{"m5.large", "m7i.large", "new.large"}, {"c5.large"}}
	if diff := cmp.Diff(want, ec2.questions()); diff != "" {
		t.Errorf("questions (-want +got)\n%s", diff)
	}
	compare(newLimitWatch(chores, nodes), 1) // another replica, or a restarted process, tells nothing twice
	clk.Step(askInterval)
	compare(w, 2)
}

// The chores ask by themselves, at their start and then from time to time.
func TestLimitsAreAsked(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(typed("a", "m5.large"))
	ec2 := &cloud{}
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	runChores(t, Chores{Client: client, DriverName: ours, Limits: ec2.limits, Clock: clk, Log: testr.New(t)})
	server.eventually("asked at the start", func() bool { return len(ec2.questions()) == 1 })
	server.eventually("asked a day later", func() bool {
		if clk.HasWaiters() {
			clk.Step(lookInterval)
		}
		return len(ec2.questions()) == 2
	})
}

// A refusal does not lead to more calls.
func TestLimitsThatCannotBeAsked(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(typed("a", "m5.large"))
	ec2 := &cloud{fails: errors.New("not authorized")}
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	w := newLimitWatch(Chores{Client: client, Limits: ec2.limits, Clock: clk}, runningNodes(t, client))
	if err := w.compare(t.Context()); err == nil {
		t.Error("the reason is kept quiet")
	}
	clk.Step(askAgain - time.Second)
	if err := w.compare(t.Context()); err != nil || len(ec2.asked) != 1 {
		t.Errorf("asked again within the hour: %v, %v", err, ec2.asked)
	}
	clk.Step(time.Second)
	if err := w.compare(t.Context()); err == nil || len(ec2.asked) != 2 {
		t.Errorf("not asked again after an hour: %v", ec2.asked)
	}
}

// An event that cannot be made keeps no other type's back, and is not lost for a day.
func TestLimitsThatCannotBeTold(t *testing.T) {
	server, client := startAPIServer(t)
	server.put(typed("a", "c6i.large"))
	server.put(typed("b", "m7i.large"))
	other := ebs.InstanceLimit{Volumes: 99, Kind: ebs.Dedicated, Hypervisor: ebs.Nitro}
	ec2 := &cloud{says: map[string]ebs.InstanceLimit{"c6i.large": other, "m7i.large": other}}
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	w := newLimitWatch(Chores{Client: client, Limits: ec2.limits, Clock: clk, Log: testr.New(t)}, runningNodes(t, client))
	first := true
	server.refusing(func(r *http.Request) *apierrors.StatusError {
		if r.Method == http.MethodPost && first {
			first = false
			return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("not now"))
		}
		return nil
	})
	if err := w.compare(t.Context()); err == nil || len(server.events()) != 1 {
		t.Errorf("want an error and the other type's event, got %v and %d events", err, len(server.events()))
	}
	clk.Step(askAgain)
	if err := w.compare(t.Context()); err != nil || len(server.events()) != 2 {
		t.Errorf("an hour later: %v, %d events, want both", err, len(server.events()))
	}
}
