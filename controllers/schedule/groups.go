package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// Pod is a running Pod, as far as it matters to groups.
type Pod struct {
	Node string
	// Claims are the names of those that it mounts.
	Claims []string
}

// Group is a VolumeGroupSnapshot to ask for.
type Group struct {
	Object groupv1.VolumeGroupSnapshot
	// Claims are what it is of, sorted by UID.
	Claims []copies.GroupClaim
}

// unit are claims that are copied together.
type unit struct {
	// key follows from the claims. It gives them their place in a run.
	key    types.UID
	claims []Candidate // by name
	// whole: by one VolumeGroupSnapshot; else each by a VolumeSnapshot.
	whole bool
	// loose: no running Pod mounts the claim.
	loose bool
}

// class is under what a unit counts against the cap of its class.
func (u unit) class() string {
	if u.whole {
		return groupLoad(u.claims[0].GroupClass)
	}
	return u.claims[0].Class
}

// groupLoad tells the copies of a VolumeGroupSnapshotClass from those of a
// VolumeSnapshotClass of its name: a slash is in no name.
func groupLoad(class string) string { return "group/" + class }

func (u unit) className() string {
	if u.whole {
		return "VolumeGroupSnapshotClass " + u.claims[0].GroupClass
	}
	return "VolumeSnapshotClass " + u.claims[0].Class
}

// members are the claims of a unit by name and UID, sorted by UID.
func (u unit) members() []copies.GroupClaim {
	var all []copies.GroupClaim
	for _, c := range u.claims {
		all = append(all, copies.GroupClaim{Name: c.Claim.Name, UID: c.Claim.UID})
	}
	slices.SortFunc(all, func(a, b copies.GroupClaim) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

// name is that of the group or series of a unit in a run.
func (u unit) name(schedule types.UID, slot string) string {
	var uids []types.UID
	for _, m := range u.members() {
		uids = append(uids, m.UID)
	}
	return copies.GroupName(u.claims[0].Claim.Name, uids, schedule, slot)
}

// units are the candidates as they are copied:
//
//	Individual                         each by itself
//	claims that Pods have in common    together, those of one driver and class
//	  there is a group class           as one VolumeGroupSnapshot
//	  there is none, or the Pods are   BestEffortGroup: one after the other
//	  on several nodes
//	claims that no Pod mounts          Group: not at all; BestEffortGroup: by itself
func units(seen Observed) []unit {
	all := make([]unit, 0, len(seen.Candidates))
	together := seen.Spec.Consistency == v1alpha1.GroupCopies || seen.Spec.Consistency == v1alpha1.BestEffortGroups
	if !together {
		for _, c := range seen.Candidates {
			all = append(all, unit{key: c.Claim.UID, claims: []Candidate{c}})
		}
		return all
	}
	part, nodes := parts(seen.Candidates, seen.Pods)
	type kind struct {
		part               int
		driver, groupClass string
		class              string
	}
	byKind := map[kind][]Candidate{}
	for i, c := range seen.Candidates {
		k := kind{part[i], c.Driver, c.GroupClass, ""}
		if c.GroupClass == "" {
			k.class = c.Class
		}
		byKind[k] = append(byKind[k], c)
	}
	for k, claims := range byKind {
		slices.SortFunc(claims, func(a, b Candidate) int { return cmp.Compare(a.Claim.Name, b.Claim.Name) })
		u := unit{claims: claims, loose: len(nodes[k.part]) == 0}
		alone := slices.ContainsFunc(claims, func(c Candidate) bool { return c.Class == "" }) // there is no other way
		apart := len(nodes[k.part]) != 1 && seen.Spec.Consistency == v1alpha1.BestEffortGroups && !alone
		u.whole = k.groupClass != "" && !u.loose && !apart
		for _, m := range u.members() {
			u.key += m.UID
		}
		all = append(all, u)
	}
	return all
}

// parts tells which claims Pods have in common: they are of one part. nodes are
// those of the Pods of a part; none: no Pod mounts its claim.
func parts(claims []Candidate, pods []Pod) (part []int, nodes map[int]map[string]bool) {
	at := map[string]int{}
	part = make([]int, len(claims))
	for i, c := range claims {
		at[c.Claim.Name], part[i] = i, i
	}
	root := func(i int) int {
		for part[i] != i {
			part[i] = part[part[i]]
			i = part[i]
		}
		return i
	}
	for _, p := range pods {
		first := -1
		for _, name := range p.Claims {
			i, is := at[name]
			if !is {
				continue
			}
			if first < 0 {
				first = i
			}
			a, b := root(first), root(i)
			part[max(a, b)] = min(a, b)
		}
	}
	nodes = map[int]map[string]bool{}
	for _, p := range pods {
		for _, name := range p.Claims {
			if i, is := at[name]; is {
				r := root(i)
				if nodes[r] == nil {
					nodes[r] = map[string]bool{}
				}
				nodes[r][p.Node] = true
			}
		}
	}
	for i := range part {
		part[i] = root(i)
	}
	return part, nodes
}

// group is the VolumeGroupSnapshot of a unit in a run. Nothing owns it.
func (p *planner) group(u unit, r run) Group {
	g := Group{Claims: u.members()}
	name := u.name(p.seen.UID, r.slot)
	g.Object = groupv1.VolumeGroupSnapshot{
		TypeMeta: metav1.TypeMeta{APIVersion: groupv1.SchemeGroupVersion.String(), Kind: "VolumeGroupSnapshot"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.seen.Namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: groupv1.VolumeGroupSnapshotSpec{
			// The snapshot-controller heeds matchLabels alone (v8.7,
			// getClaimsFromVolumeGroupSnapshot): what says more picks more.
			Source:                       groupv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{copies.GroupLabel(p.seen.UID, name): name}}},
			VolumeGroupSnapshotClassName: &u.claims[0].GroupClass,
		},
	}
	maps.Copy(g.Object.Labels, p.seen.Spec.Template.Labels)
	maps.Copy(g.Object.Annotations, p.seen.Spec.Template.Annotations)
	g.Object.Labels[v1alpha1.LabelSchedule] = copies.LabelValue(p.seen.Name)
	g.Object.Labels[v1alpha1.LabelSlot] = r.slot
	g.Object.Annotations[v1alpha1.AnnotationClaims] = copies.WriteClaims(g.Claims)
	return g
}

// Marks are what a member of a group is still to carry.
type Marks struct {
	Labels, Annotations map[string]string
}

// MarksOf are the marks that members of a group lack, by name. The
// snapshot-controller makes members without them, and leaves the name of the claim
// empty where it finds no PersistentVolume: such a member is of the one claim that
// no other is of. What people change on a marked one stays.
func MarksOf(g *groupv1.VolumeGroupSnapshot, members []snapshotv1.VolumeSnapshot, template v1alpha1.SnapshotTemplate) map[string]Marks {
	left := map[string]types.UID{}
	for _, c := range copies.ClaimsOf(g) {
		left[c.Name] = c.UID
	}
	all, nameless := map[string]Marks{}, []string(nil)
	mark := func(member, claim string) {
		m := Marks{Labels: map[string]string{}, Annotations: map[string]string{}}
		maps.Copy(m.Labels, template.Labels)
		maps.Copy(m.Annotations, template.Annotations)
		m.Labels[v1alpha1.LabelSchedule], m.Labels[v1alpha1.LabelSlot] = g.Labels[v1alpha1.LabelSchedule], g.Labels[v1alpha1.LabelSlot]
		m.Labels[v1alpha1.LabelClaimUID] = string(left[claim])
		m.Annotations[v1alpha1.AnnotationClaim], m.Annotations[v1alpha1.AnnotationGroup] = claim, g.Name
		if q, has := g.Annotations[v1alpha1.AnnotationQuiesced]; has {
			m.Annotations[v1alpha1.AnnotationQuiesced] = q
		}
		all[member] = m
		delete(left, claim)
	}
	for i := range members {
		m := &members[i]
		claim := ""
		if m.Spec.Source.PersistentVolumeClaimName != nil {
			claim = *m.Spec.Source.PersistentVolumeClaimName
		}
		_, known := left[claim]
		switch {
		case m.DeletionTimestamp != nil:
		case m.Labels[v1alpha1.LabelClaimUID] != "":
			maps.DeleteFunc(left, func(_ string, uid types.UID) bool { return string(uid) == m.Labels[v1alpha1.LabelClaimUID] })
			if q, has := g.Annotations[v1alpha1.AnnotationQuiesced]; has && m.Annotations[v1alpha1.AnnotationQuiesced] != q {
				all[m.Name] = Marks{Annotations: map[string]string{v1alpha1.AnnotationQuiesced: q}}
			}
		case known:
			mark(m.Name, claim)
		case claim == "":
			nameless = append(nameless, m.Name)
		}
	}
	if len(nameless) == 1 && len(left) == 1 {
		for claim := range left {
			mark(nameless[0], claim)
		}
	}
	return all
}

// LastCut is how the groups of the newest run were cut of which all are; nil:
// there is none newer than old.
func LastCut(all []copies.Copy, old *v1alpha1.GroupCut) *v1alpha1.GroupCut {
	type span struct {
		first, last time.Time
		whole       bool
	}
	runs, waits := map[string]map[string]span{}, map[string]bool{}
	for _, c := range all {
		switch {
		case c.With == "" || c.Deleting:
			continue
		case c.Cut.IsZero():
			waits[c.Slot] = true
			continue
		}
		if runs[c.Slot] == nil {
			runs[c.Slot] = map[string]span{}
		}
		s, known := runs[c.Slot][c.With]
		if !known {
			s = span{first: c.Cut, last: c.Cut, whole: c.Whole}
		}
		if c.Cut.Before(s.first) {
			s.first = c.Cut
		}
		s.last = latest(s.last, c.Cut)
		runs[c.Slot][c.With] = s
	}
	newest := old
	for slot, groups := range runs {
		if waits[slot] {
			continue
		}
		cut := &v1alpha1.GroupCut{Slot: slot}
		for _, s := range groups {
			if cut.Time.IsZero() || s.first.Before(cut.Time.Time) {
				cut.Time = metav1.Time{Time: s.first}
			}
			if s.whole {
				cut.GroupCount++
			} else {
				cut.SeriesCount++
			}
			cut.SpreadSeconds = max(cut.SpreadSeconds, int32(s.last.Sub(s.first).Seconds()))
		}
		more := newest != nil && slot == newest.Slot && cut.GroupCount+cut.SeriesCount > newest.GroupCount+newest.SeriesCount
		if newest == nil || more || cut.Time.After(newest.Time.Time) {
			newest = cut
		}
	}
	return newest
}
