package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

var now = time.Date(2027, 5, 5, 12, 0, 0, 0, time.UTC)

// ago makes a copy of claim "a" that was asked for and cut some time ago, and
// had an hour to become ready.
func ago(name string, age time.Duration, state copies.State, change ...func(*Member)) Member {
	m := Member{Copy: copies.Copy{
		Name: name, UID: types.UID(name), ClaimUID: "a", State: state,
		Asked: now.Add(-age), Cut: now.Add(-age), Deadline: now.Add(-age + time.Hour),
	}}
	for _, c := range change {
		c(&m)
	}
	return m
}

func names(verdicts []Verdict) string {
	var all []string
	for _, v := range verdicts {
		all = append(all, v.Name)
	}
	return strings.Join(all, " ")
}

func TestDecide(t *testing.T) {
	const ready, making, failed = copies.Ready, copies.Making, copies.Failed
	h := time.Hour
	d := 24 * h
	last := func(n int32) v1alpha1.SnapshotRetention {
		return v1alpha1.SnapshotRetention{KeepLast: n, Failed: v1alpha1.FailedRetention{DeleteAfterSeconds: 86400}}
	}
	with := func(r v1alpha1.SnapshotRetention, change func(*v1alpha1.SnapshotRetention)) v1alpha1.SnapshotRetention {
		change(&r)
		return r
	}
	held := func(m *Member) { m.Hold = "audit 2027" }
	source := func(m *Member) { m.Source = "restored" }
	deleting := func(m *Member) { m.Deleting = true }
	of := func(claim types.UID) func(*Member) { return func(m *Member) { m.ClaimUID = claim } }
	group := func(g string) func(*Member) { return func(m *Member) { m.Group = g } }
	three := []Member{ago("r3", 3*h, ready), ago("r2", 2*h, ready), ago("r1", 1*h, ready)}
	plus := func(more ...Member) []Member { return append(append([]Member{}, three...), more...) }

	for name, tc := range map[string]struct {
		why      string
		rules    v1alpha1.SnapshotRetention
		onDelete v1alpha1.OnClaimDelete
		cautious bool
		claims   map[types.UID]Life // none: "a" lives
		copies   []Member
		delete   string
		says     string        // of the first that is deleted or, where none is, kept
		next     time.Duration // 0: none
	}{
		"keepLast":               {why: "the newest ready ones are kept", rules: last(2), copies: three, delete: "r3", says: "none of the rules"},
		"keepLast of none":       {why: "never fewer than one", rules: last(0), copies: three, delete: "r3 r2"},
		"fewer than keepLast":    {why: "what there is is kept", rules: last(5), copies: three, says: "keepLast 5"},
		"by claim, not by name":  {why: "each claim has its own", rules: last(1), claims: map[types.UID]Life{"a": Living, "b": Living}, copies: plus(ago("b1", 9*h, ready, of("b"))), delete: "r3 r2"},
		"two of one time":        {why: "the one that the webhook of snapshots lets go goes", rules: last(1), copies: []Member{ago("r1", h, ready), ago("r2", h, ready)}, delete: "r2"},
		"one being deleted":      {why: "what is on its way out stands in for nothing", rules: last(1), copies: []Member{ago("r3", 3*h, ready), ago("r2", 2*h, ready), ago("r1", h, ready, deleting)}, delete: "r3"},
		"keepWithin":             {why: "the young are kept, and looked at again when they are not", rules: with(last(1), func(r *v1alpha1.SnapshotRetention) { r.KeepWithinSeconds = 2*3600 + 1 }), copies: three, delete: "r3", next: time.Second},
		"held":                   {why: "somebody said so", rules: last(1), copies: []Member{ago("r3", 3*h, ready, held), ago("r2", 2*h, ready), ago("r1", h, ready)}, delete: "r2"},
		"held, failed":           {why: "whatever it is", rules: last(1), copies: plus(ago("f", 90*d, failed, held)), delete: "r3 r2"},
		"C08 in use":             {why: "a Pending claim is filled from it", rules: last(1), copies: []Member{ago("r3", 3*h, ready, source), ago("r2", 2*h, ready), ago("r1", h, ready)}, delete: "r2"},
		"C08 bound":              {why: "once the claim is Bound it is as any", rules: last(1), copies: three, delete: "r3 r2"},
		"C08 says why":           {why: "the reason names the claim", rules: last(1), copies: []Member{ago("r3", 3*h, ready, source)}, says: "claim restored is being filled from it"},
		"C06 last good":          {why: "failed ones never push out a good one, and are capped", rules: last(3), copies: plus(ago("f4", 50*time.Minute, failed), ago("f3", 40*time.Minute, failed), ago("f2", 30*time.Minute, failed), ago("f1", 20*time.Minute, failed)), delete: "f4", says: "failed", next: 24*h + 20*time.Minute},
		"C06 one succeeds":       {why: "then the oldest ready one goes", rules: last(3), copies: plus(ago("r0", time.Minute, ready)), delete: "r3"},
		"C07 slow":               {why: "none is deleted before it is ready", rules: last(2), copies: plus(ago("m", 30*time.Minute, making)), delete: "r3", next: 30 * time.Minute},
		"C07 failed, then ready": {why: "one that failed is kept until it becomes ready after all", rules: last(2), copies: []Member{ago("r2", 3*h, ready), ago("r1", 2*h, ready), ago("f", 80*time.Minute, failed)}, says: "keepLast", next: 23*h + 40*time.Minute},
		"failed too long":        {why: "a failed one has an end, counted from its failure", rules: last(1), copies: []Member{ago("r1", h, ready), ago("f", 25*h, failed)}, delete: "f"},
		"failed, keep none":      {why: "somebody wants none", rules: with(last(1), func(r *v1alpha1.SnapshotRetention) { r.Failed.Keep = ptr.To[int32](0) }), copies: []Member{ago("r1", h, ready), ago("f", 2*h, failed)}, delete: "f"},
		"failed, claim deleting": {why: "it pins the claim", rules: last(1), claims: map[types.UID]Life{"a": Deleting}, copies: []Member{ago("r1", 3*h, ready), ago("f", 2*h, failed), ago("m", time.Minute, making)}, delete: "f", says: "holds back", next: 59 * time.Minute},
		"claim deleting":         {why: "its good copies are kept as ever", rules: last(2), claims: map[types.UID]Life{"a": Deleting}, copies: three, delete: "r3"},
		"gone, by default":       {why: "the newest stays", rules: last(3), claims: map[types.UID]Life{}, copies: three, delete: "r3 r2", says: "onClaimDelete KeepNewest"},
		"gone, KeepAll":          {why: "all stay", rules: last(1), onDelete: v1alpha1.KeepAllCopies, claims: map[types.UID]Life{}, copies: three, says: "KeepAll"},
		"gone, Expire":           {why: "none stays", rules: last(3), onDelete: v1alpha1.ExpireCopies, claims: map[types.UID]Life{}, copies: three, delete: "r3 r2 r1", says: "onClaimDelete Expire"},
		"gone, Expire, days":     {why: "they age out day by day, though no new ones come", rules: with(last(1), func(r *v1alpha1.SnapshotRetention) { r.Daily = 2 }), onDelete: v1alpha1.ExpireCopies, claims: map[types.UID]Life{}, copies: []Member{ago("d2", 2*d, ready), ago("d1", d, ready), ago("d1b", d-h, ready), ago("d0", h, ready)}, delete: "d2 d1", next: h},
		"gone, Expire, cautious": {why: "a suspended schedule never goes below keepLast", rules: last(2), onDelete: v1alpha1.ExpireCopies, cautious: true, claims: map[types.UID]Life{}, copies: three, delete: "r3"},
		"gone, made again":       {why: "a claim of the same name is another", rules: last(1), claims: map[types.UID]Life{"a2": Living}, copies: plus(ago("n", time.Minute, ready, of("a2"))), delete: "r3 r2"},
		"hourly":                 {why: "the newest of each hour with one", rules: with(last(1), func(r *v1alpha1.SnapshotRetention) { r.Hourly = 3 }), copies: []Member{ago("h9", 9*h, ready), ago("h5", 5*h, ready), ago("h3a", 3*h, ready), ago("h3b", 3*h-time.Minute, ready), ago("h1", h, ready)}, delete: "h9 h3a"},
		"weekly":                 {why: "weeks begin on Monday (2027-05-03)", rules: with(last(1), func(r *v1alpha1.SnapshotRetention) { r.Weekly = 2 }), copies: []Member{ago("sun", 2*d+13*h, ready), ago("mon", 2*d, ready), ago("sat", 4*d, ready)}, delete: "sat"},
		"monthly and yearly":     {why: "the union of all", rules: with(last(1), func(r *v1alpha1.SnapshotRetention) { r.Monthly, r.Yearly = 2, 2 }), copies: []Member{ago("y2", 700*d, ready), ago("y1", 200*d, ready), ago("m1", 10*d, ready), ago("m1b", 20*d, ready), ago("m0", h, ready)}, delete: "y2 m1b"},
		"group":                  {why: "one that is kept keeps its group", rules: last(1), claims: map[types.UID]Life{"a": Living, "b": Living}, copies: []Member{ago("a2", 2*h+time.Second, ready, group("g")), ago("a1", h, ready), ago("b2", 2*h, ready, group("g"), of("b"))}, says: "b2 of its group g is kept"},
		"group, none kept":       {why: "it goes whole", rules: last(1), claims: map[types.UID]Life{"a": Living, "b": Living}, copies: []Member{ago("a2", 2*h, ready, group("g")), ago("a1", h, ready), ago("b2", 2*h, ready, group("g"), of("b")), ago("b1", h, ready, of("b"))}, delete: "b2 a2"},
	} {
		t.Run(name, func(t *testing.T) {
			claims := tc.claims
			if claims == nil {
				claims = map[types.UID]Life{"a": Living}
			}
			plan := Decide(now, Observed{Rules: tc.rules, OnClaimDelete: tc.onDelete, Zone: time.UTC, Cautious: tc.cautious, Claims: claims, Copies: tc.copies})
			if diff := cmp.Diff(tc.delete, names(plan.Delete)); diff != "" {
				t.Errorf("%s: deleted (-want +got)\n%s", tc.why, diff)
			}
			if got := append(plan.Delete, plan.Keep...)[0].Why; !strings.Contains(got, tc.says) {
				t.Errorf("%s: %q, want it to say %q", tc.why, got, tc.says)
			}
			if got := plan.NextLook; tc.next == 0 && !got.IsZero() || tc.next != 0 && !got.Equal(now.Add(tc.next)) {
				t.Errorf("%s: looks again at %v, want in %v", tc.why, got, tc.next)
			}
		})
	}
}

func TestHoursThatTheClocksRepeat(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	var members []Member
	for i, at := range []string{"2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-07T07:30:00Z"} { // 01:30, 01:30 again, 02:30
		cut, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		uid := types.UID(rune('x' + i))
		members = append(members, Member{Copy: copies.Copy{Name: string(uid), UID: uid, ClaimUID: "a", State: copies.Ready, Cut: cut}})
	}
	plan := Decide(now, Observed{Rules: v1alpha1.SnapshotRetention{KeepLast: 1, Hourly: 3}, Zone: zone, Claims: map[types.UID]Life{"a": Living}, Copies: members})
	if len(plan.Delete) != 0 {
		t.Errorf("deleted %s: an hour that is repeated is two", names(plan.Delete))
	}
}
