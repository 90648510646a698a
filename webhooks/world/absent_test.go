package world

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reader has the classes that it names, and counts how often it is asked.
type reader struct {
	client.Reader
	names map[string]bool
	asked int
	err   error
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.asked++
	if r.err != nil {
		return r.err
	}
	if !r.names[key.Name] {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	o.SetName(key.Name)
	return nil
}

// TestMissingClassIsReadOnce: a claim that names a missing class costs one live
// read and not one each time that it is tried again, and a class that comes is
// seen at once.
func TestMissingClassIsReadOnce(t *testing.T) {
	cached, live, clk := &reader{names: map[string]bool{}}, &reader{names: map[string]bool{}}, clocktesting.NewFakePassiveClock(time.Now())
	w := &World{Cache: cached, Live: live, Clock: clk}
	look := func(name string) bool {
		t.Helper()
		class, err := w.Class(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return class != nil
	}
	for range 100 {
		if look("gone") {
			t.Fatal("a class that is nowhere is found")
		}
	}
	if live.asked != 1 {
		t.Errorf("100 questions for a missing class are %d live reads, want 1", live.asked)
	}
	live.names["fresh"] = true
	if !look("fresh") || live.asked != 2 {
		t.Error("a class that the informer does not have yet is not read live")
	}
	cached.names["gone"] = true
	if !look("gone") {
		t.Error("a class that the informer has is not seen since it was missing before")
	}
	delete(cached.names, "gone")
	clk.SetTime(clk.Now().Add(absentFor))
	if look("gone"); live.asked != 3 {
		t.Errorf("after %v there are %d live reads, want one more: 3", absentFor, live.asked)
	}
	for i := range 10 * maxAbsent {
		look(fmt.Sprint("name-", i))
	}
	if n := len(w.absent.until); n > maxAbsent {
		t.Errorf("%d names are kept, want at most %d", n, maxAbsent)
	}
}

// TestFailedReadIsNoAbsence: a class that could not be read is not taken for
// missing, and is asked for again.
func TestFailedReadIsNoAbsence(t *testing.T) {
	live := &reader{err: errors.New("the API server is away")}
	w := &World{Cache: &reader{}, Live: live, Clock: clocktesting.NewFakePassiveClock(time.Now())}
	for range 2 {
		if _, err := w.Class(t.Context(), "gp3"); err == nil {
			t.Fatal("a class that cannot be read is answered as missing")
		}
	}
	if live.asked != 2 {
		t.Errorf("asked %d times, want 2", live.asked)
	}
}

// TestMissingAttributesClassIsReadOnce: the same for a VolumeAttributesClass,
// whose name does not stand for a StorageClass's, and for a cluster that does
// not have the kind, where each look at the cache is a question to the server.
func TestMissingAttributesClassIsReadOnce(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	gone := "gone"
	for name, tc := range map[string]struct {
		cached       *reader
		asked, lived int // how often the cache and the server are asked
	}{
		"no such class": {&reader{}, 100, 1},
		"no such kind":  {&reader{err: &meta.NoKindMatchError{}}, 1, 0},
	} {
		live := &reader{}
		w := &World{Cache: tc.cached, Live: live, Clock: clk}
		for range 100 {
			if class, err := w.AttributesClass(t.Context(), &gone); class != nil || err != nil {
				t.Fatalf("%s: %v, %v", name, class, err)
			}
		}
		if tc.cached.asked != tc.asked || live.asked != tc.lived {
			t.Errorf("%s: 100 questions are %d looks at the cache and %d live reads, want %d and %d", name, tc.cached.asked, live.asked, tc.asked, tc.lived)
		}
	}
	live := &reader{names: map[string]bool{}}
	w := &World{Cache: &reader{}, Live: live, Clock: clk}
	if class, err := w.Class(t.Context(), gone); class != nil || err != nil {
		t.Fatal(class, err)
	}
	live.names[gone] = true
	if class, err := w.AttributesClass(t.Context(), &gone); class == nil || err != nil {
		t.Errorf("a missing StorageClass hides the VolumeAttributesClass of its name: %v", err)
	}
}
