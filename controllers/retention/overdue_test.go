package retention

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

func TestOverdue(t *testing.T) {
	h := time.Hour
	held := func(m *Member) { m.Hold = "audit" }
	source := func(m *Member) { m.Source = "restored" }
	in := func(g string) func(*Member) { return func(m *Member) { m.Group = g } }
	r, f := copies.Ready, copies.Failed
	for name, tc := range map[string]struct {
		why    string
		copies []Member
		want   string
	}{
		"nothing unusual":       {"what the rules keep is as it should be", []Member{ago("r2", 2*h, r), ago("r1", h, r)}, ""},
		"held, and due":         {"it would go", []Member{ago("r2", 2*h, r, held), ago("r1", h, r)}, "r2"},
		"held, not due":         {"the rules keep it anyway", []Member{ago("r2", 2*h, r), ago("r1", h, r, held)}, ""},
		"in use":                {"it would go", []Member{ago("r2", 2*h, r, source), ago("r1", h, r)}, "r2"},
		"failed, held":          {"whatever it is", []Member{ago("f", 90*24*h, f, held), ago("r1", h, r)}, "f"},
		"in a group":            {"the other member stays for its sake", []Member{ago("a", 3*h+time.Second, r, held, in("g")), ago("b", 3*h, r, in("g")), ago("r1", h, r)}, "a b"},
		"several, by their age": {"oldest first", []Member{ago("r2", 2*h, r, held), ago("r3", 3*h, r, source), ago("r1", h, r)}, "r3 r2"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{Rules: v1alpha1.SnapshotRetention{KeepLast: 1, Failed: v1alpha1.FailedRetention{DeleteAfterSeconds: 60}}, Zone: time.UTC, Claims: map[types.UID]Life{"a": Living}, Copies: tc.copies}
			plan := Decide(now, seen)
			if diff := cmp.Diff(tc.want, names(Overdue(now, seen, plan))); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
			for i := range seen.Copies {
				if seen.Copies[i].Hold != tc.copies[i].Hold {
					t.Fatal("it forgot a hold")
				}
			}
		})
	}
}

// TestRelease: whatever the history, a schedule that is deleted with its copies
// deletes none that is held or in use, no part of a group with one that is, and
// leaves nothing else.
func TestRelease(t *testing.T) {
	for seed := range uint64(500) {
		_, seen := history(rand.New(rand.NewPCG(seed, 2)), time.UTC)
		plan, waits := Release(seen)
		goes := map[types.UID]bool{}
		for _, v := range plan.Delete {
			goes[v.UID] = true
		}
		mustWait := false
		for _, m := range seen.Copies {
			bound, used := false, false
			for _, o := range seen.Copies {
				if !o.Deleting && (o.UID == m.UID || m.Group != "" && o.Group == m.Group) {
					bound, used = bound || o.Hold != "", used || o.Source != ""
				}
			}
			mustWait = mustWait || m.Deleting || used && !bound
			if want := !m.Deleting && !bound && !used; goes[m.UID] != want {
				t.Fatalf("seed %d: %+v: deleted %t, want %t", seed, m, goes[m.UID], want)
			}
		}
		if waits != mustWait {
			t.Fatalf("seed %d: waits %t, want %t", seed, waits, mustWait)
		}
	}
}

// TestBatches: a group is one deletion, in the place of its oldest.
func TestBatches(t *testing.T) {
	var told []string
	for _, b := range batches([]Verdict{{Member: Member{Copy: copies.Copy{UID: "1"}}}, {Member: Member{Copy: copies.Copy{UID: "2"}, Group: "g"}}, {Member: Member{Copy: copies.Copy{UID: "3"}}}, {Member: Member{Copy: copies.Copy{UID: "4"}, Group: "g"}}}) {
		told = append(told, fmt.Sprintf("%s %d", b.key, len(b.members)))
	}
	if diff := cmp.Diff([]string{"1 1", "group g 2", "3 1"}, told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
