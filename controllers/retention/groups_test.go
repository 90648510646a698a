package retention

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// era is a schedule that cuts groups, over time: what it sees, and how it goes on.
type era struct {
	*rand.Rand

	now  time.Time
	seen Observed
	runs int
}

// newEra is a schedule with rules as any, and some claims of one Pod.
func newEra(r *rand.Rand, zone *time.Location) *era {
	l := &era{Rand: r}
	l.now, l.seen = history(r, zone)
	l.seen.Copies = nil
	for c := range 2 + r.IntN(3) {
		l.seen.Claims[types.UID(rune('a'+c))] = Living
	}
	return l
}

// claims are those that a Pod mounts now, or has mounted.
func (l *era) claims() []types.UID {
	var all []types.UID
	for c := range 5 {
		if uid := types.UID(rune('a' + c)); l.IntN(4) > 0 {
			all = append(all, uid)
		}
	}
	return all
}

// run takes the copies of a run: as a group, or one by one.
func (l *era) run() {
	l.runs++
	group := ""
	if l.IntN(5) > 0 {
		group = fmt.Sprintf("g%03d", l.runs)
	}
	never := group != "" && l.IntN(8) == 0 // it was never cut: known by its claims
	held := group != "" && l.IntN(25) == 0 // by an annotation on the group
	for _, claim := range l.claims() {
		if l.seen.Claims[claim] != Living {
			continue
		}
		name := fmt.Sprintf("r%03d-%s", l.runs, claim)
		m := Member{Group: group, Copy: copies.Copy{
			Name: name, UID: types.UID(name), ClaimUID: claim, With: group, Whole: group != "",
			Asked: l.now, Deadline: l.now.Add(time.Duration(1+l.IntN(30)) * time.Hour),
		}}
		if !never {
			m.Cut = l.now.Add(time.Duration(l.IntN(3)) * time.Second)
		}
		if held || l.IntN(30) == 0 {
			m.Hold = "audit"
		}
		if !never && l.IntN(30) == 0 {
			m.Source = "restored"
		}
		l.seen.Copies = append(l.seen.Copies, m)
	}
}

// pass lets time pass, in which copies become ready or fail, claims and holds go,
// and somebody deletes a group by hand, which then goes whole.
func (l *era) pass() {
	l.now = l.now.Add([]time.Duration{10 * time.Minute, time.Hour, 5 * time.Hour, 30 * time.Hour, 20 * 24 * time.Hour}[l.IntN(5)])
	going := ""
	if l.IntN(6) == 0 {
		going = fmt.Sprintf("g%03d", l.IntN(l.runs+1))
	}
	for i := range l.seen.Copies {
		m := &l.seen.Copies[i]
		switch {
		case m.State != copies.Making && (m.State != copies.Failed || m.Cut.IsZero() || l.IntN(20) > 0):
		case !m.Cut.IsZero() && l.IntN(4) > 0:
			m.State = copies.Ready
		case !l.now.Before(m.Deadline):
			m.State = copies.Failed
		}
		if l.IntN(4) == 0 {
			m.Hold, m.Source = "", ""
		}
		m.Deleting = m.Deleting || m.Group != "" && m.Group == going
	}
	for _, claim := range []types.UID{"a", "b", "c", "d", "e"} {
		switch is := l.seen.Claims[claim]; {
		case is == Living && l.IntN(20) == 0:
			l.seen.Claims[claim] = Deleting
		case is == Deleting && l.IntN(3) == 0:
			delete(l.seen.Claims, claim)
		}
	}
	l.seen.Cautious = l.IntN(4) == 0
}

// delete carries out the first of a plan's deletions, as the budget lets it, and
// what was being deleted has gone.
func (l *era) delete(plan Plan, most int) {
	gone := map[types.UID]bool{}
	for i, b := range batches(plan.Delete) {
		for _, v := range b.members {
			gone[v.UID] = i < most
		}
	}
	l.seen.Copies = slices.DeleteFunc(l.seen.Copies, func(m Member) bool { return gone[m.UID] || m.Deleting })
}

// TestGroupsLiveAndDieWhole plays schedules that cut groups for a long time. At
// each look: what the plan deletes is what the definition does not keep, of no
// group a part is deleted, one that any rule or anybody keeps a member of stays
// whole, and no claim that lives loses its newest ready copy.
func TestGroupsLiveAndDieWhole(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	var went, stayed, partlyKept int
	for seed := range uint64(200) {
		l := newEra(rand.New(rand.NewPCG(seed, 2)), zone)
		for range 40 {
			if l.IntN(3) > 0 {
				l.run()
			}
			l.pass()
			l.Shuffle(len(l.seen.Copies), func(i, j int) {
				l.seen.Copies[i], l.seen.Copies[j] = l.seen.Copies[j], l.seen.Copies[i]
			})
			plan := Decide(l.now, l.seen)
			goes := map[types.UID]bool{}
			for _, v := range plan.Delete {
				goes[v.UID] = true
			}
			for _, m := range l.seen.Copies {
				if want := kept(l.now, l.seen, m); !m.Deleting && want == goes[m.UID] {
					t.Fatalf("seed %d, run %d: %+v: deleted %t, by the definition kept %t", seed, l.runs, m, goes[m.UID], want)
				}
			}
			groups := l.groups()
			for name, members := range groups {
				gone, must := 0, 0
				for _, m := range members {
					if goes[m.UID] {
						gone++
					}
					if keptAlone(l.now, l.seen, m) {
						must++
					}
				}
				switch {
				case gone > 0 && gone < len(members):
					t.Fatalf("seed %d, run %d: %d of the %d members of group %s are deleted: %+v", seed, l.runs, gone, len(members), name, members)
				case gone > 0 && must > 0:
					t.Fatalf("seed %d, run %d: group %s is deleted, and %d of its members are to be kept: %+v", seed, l.runs, name, must, members)
				case gone > 0:
					went++
				case must < len(members):
					partlyKept++
				default:
					stayed++
				}
			}
			for _, b := range batches(plan.Delete) {
				if b.group != "" && len(b.members) != len(groups[b.group]) {
					t.Fatalf("seed %d, run %d: group %s goes in parts", seed, l.runs, b.group)
				}
			}
			lastGoodStays(t, seed, l.seen, plan)
			l.delete(plan, l.IntN(6))
		}
	}
	// The test would hold of a world without groups, too.
	if went < 300 || stayed < 300 || partlyKept < 300 {
		t.Errorf("%d groups went, %d stayed for all and %d for some of their members: too few to say anything", went, stayed, partlyKept)
	}
}

// groups are those that are there, without what is on its way out.
func (l *era) groups() map[string][]Member {
	all := map[string][]Member{}
	for _, m := range l.seen.Copies {
		if m.Group != "" && !m.Deleting {
			all[m.Group] = append(all[m.Group], m)
		}
	}
	return all
}

// TestReleaseTakesGroupsWhole: a schedule that is deleted with its copies leaves no
// half of a group behind either.
func TestReleaseTakesGroupsWhole(t *testing.T) {
	for seed := range uint64(400) {
		l := newEra(rand.New(rand.NewPCG(seed, 3)), time.UTC)
		l.seen.OnClaimDelete = v1alpha1.KeepNewestCopy
		for range 1 + l.IntN(20) {
			l.run()
			l.pass()
		}
		plan, _ := Release(l.seen)
		goes := map[types.UID]bool{}
		for _, v := range plan.Delete {
			goes[v.UID] = true
		}
		for name, members := range l.groups() {
			gone, wanted := 0, 0
			for _, m := range members {
				if goes[m.UID] {
					gone++
				}
				if m.Hold != "" || m.Source != "" {
					wanted++
				}
			}
			if gone > 0 && (gone < len(members) || wanted > 0) {
				t.Fatalf("seed %d: %d of the %d members of group %s go, and %d are held or in use", seed, gone, len(members), name, wanted)
			}
		}
	}
}

// TestAHeldGroupStaysWithoutItsMarks: whoever takes the schedule's label off a
// group takes it from the schedule's view, and not what holds it.
func TestAHeldGroupStaysWithoutItsMarks(t *testing.T) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{snapshotv1.AddToScheme, groupv1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	for hold, stays := range map[string]bool{"none": false, "": true, " ": true, "audit": true} {
		g := &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "g", UID: "g", Annotations: map[string]string{v1alpha1.AnnotationHold: hold}}}
		if hold == "none" {
			g.Annotations = nil
		}
		m := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "m", UID: "m", OwnerReferences: []metav1.OwnerReference{{Kind: "VolumeGroupSnapshot", Name: "g", UID: "g"}}}}
		live := fake.NewClientBuilder().WithScheme(kinds).WithObjects(g, m).Build()
		if err := live.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}
		r := &Reconciler{Live: live}
		seen := sight{snapshots: map[types.UID]*snapshotv1.VolumeSnapshot{"m": m}}
		s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "hourly"}}
		goes := batches([]Verdict{{Member: Member{Group: "g", Copy: copies.Copy{UID: "m", Name: "m"}}}})
		whole, err := r.wholeGroup(t.Context(), s, seen, goes[0])
		if stays != refuses(err) || !stays && whole == nil {
			t.Errorf("held by %q: %+v, %v", hold, whole, err)
		}
	}
}
