package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/cron"
)

// grouped is what a schedule of 11:00 sees a second after that. claims are
// name/driver/groupClass/class, pods node:claim,claim.
func grouped(consistency v1alpha1.Consistency, claims []string, pods ...string) Observed {
	every, err := cron.Parse("0 11 * * *", "UTC")
	if err != nil {
		panic(err)
	}
	seen := Observed{
		Namespace: "db", Name: "nightly", UID: "schedule-uid", Created: today("10:00:00"), Cron: every,
		Spec: v1alpha1.SnapshotScheduleSpec{Consistency: consistency, StartingDeadlineSeconds: 3600, ReadyDeadlineSeconds: 86400},
		Load: Load{Class: map[string]int{}},
	}
	for _, c := range claims {
		f := strings.Split(c, "/")
		candidate := Candidate{Claim: bound(), Driver: f[1], GroupClass: f[2], Class: f[3]}
		candidate.Claim.Name, candidate.Claim.UID = f[0], types.UID("uid-"+f[0])
		seen.Candidates = append(seen.Candidates, candidate)
	}
	for _, p := range pods {
		node, mounts, _ := strings.Cut(p, ":")
		seen.Pods = append(seen.Pods, Pod{Node: node, Claims: strings.Split(mounts, ",")})
	}
	return seen
}

// asked is what a plan asks for, as lines.
func asked(plan Plan) []string {
	var lines []string
	for _, g := range plan.Groups {
		var names []string
		for _, c := range g.Claims {
			names = append(names, c.Name)
		}
		lines = append(lines, fmt.Sprintf("group %s of %s", strings.Join(names, "+"), *g.Object.Spec.VolumeGroupSnapshotClassName))
	}
	series := map[string][]string{}
	for _, s := range plan.Create {
		claim, of := *s.Spec.Source.PersistentVolumeClaimName, s.Annotations[v1alpha1.AnnotationGroup]
		if of == "" {
			lines = append(lines, "single "+claim)
			continue
		}
		series[of] = append(series[of], claim)
	}
	for _, claims := range series {
		lines = append(lines, "series "+strings.Join(claims, "+"))
	}
	for _, w := range plan.Waiting {
		lines = append(lines, fmt.Sprintf("%s %s", w.Reason, w.Name))
	}
	slices.Sort(lines)
	return lines
}

// TestGroups: what is copied together, and how.
func TestGroups(t *testing.T) {
	const g, b, no = v1alpha1.GroupCopies, v1alpha1.BestEffortGroups, v1alpha1.IndividualCopies
	set := []string{"data-0/a/ga/sa", "log-0/a/ga/sa", "data-1/a/ga/sa", "log-1/a/ga/sa"}
	pods := []string{"n1:data-0,log-0,other", "n2:data-1,log-1"}
	for name, tc := range map[string]struct {
		why         string
		consistency v1alpha1.Consistency
		claims      []string
		pods        []string
		change      func(*Observed)
		want        []string
	}{
		"a set of two":        {"a group a replica", g, set, pods, nil, []string{"group data-0+log-0 of ga", "group data-1+log-1 of ga"}},
		"best effort can":     {"the same", b, set, pods, nil, []string{"group data-0+log-0 of ga", "group data-1+log-1 of ga"}},
		"individual":          {"nobody asked for groups", no, set, pods, nil, []string{"single data-0", "single data-1", "single log-0", "single log-1"}},
		"one claim":           {"a group of one is a group", g, set[:1], pods, nil, []string{"group data-0 of ga"}},
		"not mounted":         {"EC2 takes volumes of an instance", g, set, pods[:1], nil, []string{"NotMounted data-1", "NotMounted log-1", "group data-0+log-0 of ga"}},
		"not mounted, best":   {"by itself", b, set, pods[:1], nil, []string{"group data-0+log-0 of ga", "single data-1", "single log-1"}},
		"not mounted, no way": {"there is no class to copy it by itself, and that is told", b, []string{"data-1/a/ga/"}, nil, nil, []string{"NotMounted data-1"}},
		"no class, best":      {"a series for each replica", b, []string{"data-0/a//sa", "log-0/a//sa", "data-1/a//sa"}, pods, nil, []string{"series data-0+log-0", "single data-1"}},
		"two drivers":         {"a group each", g, []string{"data-0/a/ga/", "log-0/b/gb/"}, pods, nil, []string{"group data-0 of ga", "group log-0 of gb"}},
		"shared claim":        {"a claim is in one group", g, set, []string{"n1:data-0,log-0", "n1:log-0,data-1,log-1"}, nil, []string{"group data-0+data-1+log-0+log-1 of ga"}},
		"apart":               {"the driver says whether it can", g, set[:2], []string{"n1:data-0,log-0", "n2:log-0"}, nil, []string{"group data-0+log-0 of ga"}},
		"apart, best":         {"of one node alone it is sure", b, set[:2], []string{"n1:data-0,log-0", "n2:log-0"}, nil, []string{"series data-0+log-0"}},
		"apart, no other way": {"without a single class", b, []string{"data-0/a/ga/", "log-0/a/ga/"}, []string{"n1:data-0,log-0", "n2:log-0"}, nil, []string{"group data-0+log-0 of ga"}},
		"one busy, all wait": {"Forbid is for each claim, and a group is whole", g, set[:2], pods, func(o *Observed) {
			o.Copies = []copies.Copy{{ClaimUID: "uid-log-0", Slot: "before", State: copies.Making, Asked: today("09:00:00"), Deadline: today("23:00:00")}}
		}, []string{"Waiting data-0", "Waiting log-0"}},
		"one refused, all wait": {"likewise", b, set[:2], pods, func(o *Observed) {
			o.Refusals = map[made]Refusal{{"uid-log-0", copies.SlotOf(today("11:00:00"))}: {Until: today("11:05:00")}}
		}, nil},
		"cap": {"a group that does not go in whole waits", g, set, pods, func(o *Observed) { o.Load.Class["group/ga"] = 7 }, []string{"Waiting data-1", "Waiting log-1", "group data-0+log-0 of ga"}},
		"made already": {"a claim has one copy of a run", g, set[:2], pods, func(o *Observed) {
			o.Copies = []copies.Copy{{ClaimUID: "uid-log-0", Slot: copies.SlotOf(today("11:00:00")), State: copies.Ready}}
		}, []string{"group data-0 of ga"}},
		"made after": {"and none of a run before it", g, set[:2], pods, func(o *Observed) { o.Candidates[1].Claim.CreationTimestamp = metav1.NewTime(today("11:00:01")) }, []string{"group data-0 of ga"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := grouped(tc.consistency, tc.claims, tc.pods...)
			if tc.change != nil {
				tc.change(&seen)
			}
			now := today("11:00:01")
			if want := tc.consistency != no; NeedsPods(now, seen) != want {
				t.Errorf("wants to know the Pods: %t", !want)
			}
			plan := Decide(now, seen, Limits{Cluster: 100, Class: 9})
			if got := asked(plan); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%s:\ngot  %q\nwant %q", tc.why, got, tc.want)
			}
			if len(plan.Waiting) > 0 && plan.NextLook.After(now.Add(time.Hour)) {
				t.Errorf("some wait, and the next look is at %v", plan.NextLook)
			}
		})
	}
}

// TestMembersAgain: members are looked for soon, and a member that never comes does
// not have its schedule looked at every two seconds for a day.
func TestMembersAgain(t *testing.T) {
	looks := 0
	for ago := time.Duration(0); ago < 24*time.Hour; ago += membersAgain(ago) {
		if looks++; ago < 10*time.Second && membersAgain(ago) > 3*time.Second {
			t.Errorf("%v after the cut the next look is in %v", ago, membersAgain(ago))
		}
	}
	if looks > 1500 {
		t.Errorf("%d looks in a day for a member that does not come", looks)
	}
}

// TestGroupObject: what is asked for, and that whoever asks asks for the same.
func TestGroupObject(t *testing.T) {
	seen := grouped(v1alpha1.GroupCopies, []string{"log-0/a/ga/", strings.Repeat("data-", 40) + "0/a/ga/"})
	seen.Spec.Template.Labels, seen.Spec.Template.Annotations = map[string]string{"team": "db"}, map[string]string{"note": "n"}
	seen.Pods = []Pod{{Node: "n1", Claims: []string{seen.Candidates[0].Claim.Name, seen.Candidates[1].Claim.Name}}}
	first := Decide(today("11:00:01"), seen, DefaultLimits()).Groups[0]
	slices.Reverse(seen.Candidates)
	slices.Reverse(seen.Pods[0].Claims)
	seen.Pods[0].Node = "n9" // it moved
	again := Decide(today("11:10:00"), seen, DefaultLimits()).Groups[0]
	o := first.Object
	if diff := cmp.Diff(o, again.Object); diff != "" {
		t.Errorf("asked for again it is another (-first +again):\n%s", diff)
	}
	if errs := validation.IsDNS1123Label(o.Name); len(errs) > 0 {
		t.Errorf("name %s: %v", o.Name, errs)
	}
	if len(o.Spec.Source.Selector.MatchLabels) != 1 || len(o.Spec.Source.Selector.MatchExpressions) != 0 {
		t.Errorf("it picks by %v", o.Spec.Source.Selector)
	}
	for key, value := range o.Spec.Source.Selector.MatchLabels {
		if !strings.HasPrefix(key, v1alpha1.LabelGroupPrefix) || len(validation.IsQualifiedName(key)) > 0 || value != o.Name || len(validation.IsValidLabelValue(value)) > 0 {
			t.Errorf("it picks by %s=%s", key, value)
		}
	}
	if o.Labels["team"] != "db" || o.Annotations["note"] != "n" || o.Labels[v1alpha1.LabelSchedule] != "nightly" || o.Labels[v1alpha1.LabelSlot] != "20270505T110000Z" || len(o.OwnerReferences) != 0 {
		t.Errorf("it carries %v and %v", o.Labels, o.Annotations)
	}
	if claims := copies.ClaimsOf(&o); fmt.Sprint(claims) != fmt.Sprint(first.Claims) || len(claims) != 2 {
		t.Errorf("its claims read back are %v, want %v", claims, first.Claims)
	}
	other := grouped(v1alpha1.GroupCopies, []string{"log-0/a/ga/"}, "n1:log-0")
	if Decide(today("11:00:01"), other, DefaultLimits()).Groups[0].Object.Name == o.Name {
		t.Error("a group of other claims has its name")
	}
}

// TestGroupsAreWhole: over random Pods, claims and histories each claim is asked
// for once at most, in a group that holds all of its Pod's claims of the kind that
// are still to be copied, and nothing is asked for twice.
func TestGroupsAreWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		consistency := []v1alpha1.Consistency{v1alpha1.GroupCopies, v1alpha1.BestEffortGroups}[random.IntN(2)]
		var claims []string
		for i := range 1 + random.IntN(8) {
			claims = append(claims, fmt.Sprintf("c%d/%s", i, []string{"a/ga/sa", "b/gb/sb", "c//sc"}[random.IntN(3)]))
		}
		if consistency == v1alpha1.GroupCopies { // these are not candidates then
			claims = slices.DeleteFunc(claims, func(c string) bool { return strings.Contains(c, "//") })
		}
		seen := grouped(consistency, claims)
		for range random.IntN(5) {
			p := Pod{Node: fmt.Sprint("n", random.IntN(2))}
			for range random.IntN(4) {
				p.Claims = append(p.Claims, fmt.Sprint("c", random.IntN(9)))
			}
			seen.Pods = append(seen.Pods, p)
		}
		slot := copies.SlotOf(today("11:00:00"))
		has := map[string]bool{}
		for _, c := range seen.Candidates {
			if random.IntN(4) == 0 {
				seen.Copies = append(seen.Copies, copies.Copy{ClaimUID: c.Claim.UID, Slot: slot, State: copies.Ready})
				has[c.Claim.Name] = true
			}
		}
		plan := Decide(today("11:00:01"), seen, DefaultLimits())
		in, kind := map[string]string{}, map[string]string{}
		put := func(claim, where string) {
			if in[claim] != "" || has[claim] {
				t.Fatalf("claim %s is asked for twice: %v", claim, asked(plan))
			}
			in[claim] = where
		}
		for _, g := range plan.Groups {
			for _, c := range g.Claims {
				put(c.Name, g.Object.Name)
			}
		}
		for _, s := range plan.Create {
			put(*s.Spec.Source.PersistentVolumeClaimName, s.Annotations[v1alpha1.AnnotationGroup])
		}
		for _, c := range seen.Candidates {
			kind[c.Claim.Name] = c.Driver
			waits := slices.ContainsFunc(plan.Waiting, func(w v1alpha1.ClaimSnapshots) bool { return w.UID == c.Claim.UID })
			if _, is := in[c.Claim.Name]; !is && !has[c.Claim.Name] && !waits {
				t.Fatalf("claim %s is forgotten: %v", c.Claim.Name, asked(plan))
			}
		}
		for _, p := range seen.Pods {
			for _, a := range p.Claims {
				for _, b := range p.Claims {
					if _, is := in[a]; is && kind[a] == kind[b] && !has[a] && !has[b] && in[a] != in[b] {
						t.Fatalf("%s and %s of one Pod are apart: %v, Pods %v", a, b, asked(plan), seen.Pods)
					}
				}
			}
		}
	}
}

// member is one as the snapshot-controller makes it.
func member(name, claim string) snapshotv1.VolumeSnapshot {
	return snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "VolumeGroupSnapshot", Name: "g"}}},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
	}
}

// TestMarksOf: members get what retention knows copies by, once.
func TestMarksOf(t *testing.T) {
	group := func(quiesced string) *groupv1.VolumeGroupSnapshot {
		g := &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{
			Name: "g", Labels: map[string]string{v1alpha1.LabelSchedule: "nightly", v1alpha1.LabelSlot: "s"},
			Annotations: map[string]string{v1alpha1.AnnotationClaims: copies.WriteClaims([]copies.GroupClaim{{Name: "data", UID: "d"}, {Name: "log", UID: "l"}})},
		}}
		if quiesced != "" {
			g.Annotations[v1alpha1.AnnotationQuiesced] = quiesced
		}
		return g
	}
	marked := member("m1", "data")
	marked.Labels, marked.Annotations = map[string]string{v1alpha1.LabelClaimUID: "d"}, map[string]string{v1alpha1.AnnotationQuiesced: v1alpha1.QuiescedPending}
	going := member("m1", "data")
	going.DeletionTimestamp = &metav1.Time{Time: today("11:00:00")}
	for name, tc := range map[string]struct {
		why     string
		group   *groupv1.VolumeGroupSnapshot
		members []snapshotv1.VolumeSnapshot
		want    string
	}{
		"none yet":             {"nothing to mark", group(""), nil, ""},
		"both":                 {"each by its claim", group(""), []snapshotv1.VolumeSnapshot{member("m1", "data"), member("m2", "log")}, "m1=d/data m2=l/log"},
		"one marked":           {"what people change on it stays", group(""), []snapshotv1.VolumeSnapshot{marked, member("m2", "log")}, "m2=l/log"},
		"all marked":           {"steady", group(v1alpha1.QuiescedPending), []snapshotv1.VolumeSnapshot{marked}, ""},
		"quiesced since":       {"hooks write on the group", group(v1alpha1.Quiesced), []snapshotv1.VolumeSnapshot{marked}, "m1=/ quiesced Yes"},
		"quiesced from begin":  {"in one write", group(v1alpha1.NotQuiesced), []snapshotv1.VolumeSnapshot{member("m1", "data")}, "m1=d/data quiesced No"},
		"one without a name":   {"the claim that is left", group(""), []snapshotv1.VolumeSnapshot{member("m1", ""), member("m2", "log")}, "m1=d/data m2=l/log"},
		"nameless, one marked": {"likewise", group(""), []snapshotv1.VolumeSnapshot{marked, member("m2", "")}, "m2=l/log"},
		"two without a name":   {"whose they are is not guessed", group(""), []snapshotv1.VolumeSnapshot{member("m1", ""), member("m2", "")}, ""},
		"of no claim of it":    {"left alone", group(""), []snapshotv1.VolumeSnapshot{member("m3", "other")}, ""},
		"on its way out":       {"not written to", group(""), []snapshotv1.VolumeSnapshot{going}, ""},
		"somebody's group":     {"it has no claims of ours", &groupv1.VolumeGroupSnapshot{}, []snapshotv1.VolumeSnapshot{member("m1", "data")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for member, m := range MarksOf(tc.group, tc.members, v1alpha1.SnapshotTemplate{Labels: map[string]string{"team": "db"}}) {
				line := fmt.Sprintf("%s=%s/%s", member, m.Labels[v1alpha1.LabelClaimUID], m.Annotations[v1alpha1.AnnotationClaim])
				if q := m.Annotations[v1alpha1.AnnotationQuiesced]; q != "" {
					line += " quiesced " + q
				}
				if m.Labels != nil && (m.Labels["team"] != "db" || m.Labels[v1alpha1.LabelSchedule] != "nightly" || m.Labels[v1alpha1.LabelSlot] != "s" || m.Annotations[v1alpha1.AnnotationGroup] != "g") {
					t.Errorf("%s lacks some: %v", member, m)
				}
				got = append(got, line)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: %q, want %q", tc.why, strings.Join(got, " "), tc.want)
			}
		})
	}
}

// TestLastCut: how far the cuts of a group were apart, of the newest run of which
// all are there.
func TestLastCut(t *testing.T) {
	cut := func(slot, with string, whole bool, at string) copies.Copy {
		c := copies.Copy{Slot: slot, With: with, Whole: whole, State: copies.Ready}
		if at != "" {
			c.Cut = today(at)
		}
		return c
	}
	done := []copies.Copy{cut("1", "g", true, "11:00:01"), cut("1", "g", true, "11:00:01"), cut("1", "s", false, "11:00:02"), cut("1", "s", false, "11:00:05"), cut("1", "", false, "12:00:00")}
	of := func(c *v1alpha1.GroupCut) string {
		if c == nil {
			return "none"
		}
		return fmt.Sprintf("%s: %d groups, %d series, %d s from %s", c.Slot, c.GroupCount, c.SeriesCount, c.SpreadSeconds, c.Time.UTC().Format("15:04:05"))
	}
	first := LastCut(done, nil)
	if of(first) != "1: 1 groups, 1 series, 3 s from 11:00:01" {
		t.Errorf("the first run: %s", of(first))
	}
	for name, tc := range map[string]struct {
		all  []copies.Copy
		old  *v1alpha1.GroupCut
		want string
	}{
		"none":             {[]copies.Copy{cut("1", "", false, "11:00:00")}, nil, "none"},
		"one still waits":  {append(slices.Clone(done), cut("2", "g2", true, "12:00:00"), cut("2", "g2", true, "")), first, of(first)},
		"a newer run":      {append(slices.Clone(done), cut("2", "g2", true, "12:00:00")), first, "2: 1 groups, 0 series, 0 s from 12:00:00"},
		"more of the run":  {append(slices.Clone(done), cut("1", "g3", true, "11:00:09")), first, "1: 2 groups, 1 series, 3 s from 11:00:01"},
		"aged out":         {nil, first, of(first)},
		"some aged out":    {done[:2], first, of(first)},
		"older ones stand": {done, LastCut([]copies.Copy{cut("2", "g2", true, "12:00:00")}, nil), "2: 1 groups, 0 series, 0 s from 12:00:00"},
	} {
		if got := of(LastCut(tc.all, tc.old)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
