package template

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// play is a cluster in which a set is made anew: what the API server holds, what
// the StatefulSet controller and the garbage collector do with it, and its user.
type play struct {
	random *rand.Rand
	set    *appsv1.StatefulSet // nil: there is none
	claims []corev1.PersistentVolumeClaim
	pods   []corev1.Pod
	record *Record // as it is stored
	did    []string

	sets     int  // how many there were
	wanted   bool // its user wants a set of the name to be there
	foreign  types.UID
	retained appsv1.PersistentVolumeClaimRetentionPolicyType // what its user wants
	min      int32                                           // minReadySeconds as its user wants it
	lost     string                                          // what must not happen, and did
}

func newPlay(seed uint64) *play {
	p := &play{random: rand.New(rand.NewPCG(seed, 1)), wanted: true, retained: "Delete"}
	seen := grown()
	p.set, p.claims, p.pods = seen.Set, seen.Claims, seen.Pods
	if p.random.IntN(3) == 0 {
		p.retained = "Retain"
		p.set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = "Retain"
	}
	for i := range p.claims {
		if p.retained == "Delete" {
			p.claims[i] = owned(p.claims[i], p.set)
		}
	}
	if p.random.IntN(2) == 0 { // of an ordinal that it had
		p.claims = append(p.claims, owned(claimOf(p.set, 5, "10Gi"), p.set))
	}
	return p
}

// controllers do what the StatefulSet controller and the garbage collector do.
func (p *play) controllers() {
	if p.set == nil {
		return
	}
	if p.set.DeletionTimestamp != nil { // the garbage collector takes the owner off, then the set goes
		if !slices.Contains(p.set.Finalizers, metav1.FinalizerOrphanDependents) {
			return
		}
		p.disown(p.set.UID)
		p.gone()
		return
	}
	p.set.Status.ObservedGeneration = p.set.Generation
	for i := range p.pods {
		if len(p.pods[i].OwnerReferences) == 0 {
			p.pods[i].OwnerReferences = podOf(p.set, 0).OwnerReferences
		}
	}
	for i := range p.claims {
		if c := &p.claims[i]; strings.HasSuffix(c.Name, "-5") {
			continue
		} else if whenDeleted(p.set) == "Delete" && len(c.OwnerReferences) == 0 {
			c.OwnerReferences = podOf(p.set, 0).OwnerReferences
		} else if whenDeleted(p.set) == "Retain" && p.random.IntN(2) == 0 {
			c.OwnerReferences = nil
		}
	}
	for i := range p.claims { // and the manager's stamps
		p.claims[i].Annotations[v1alpha1.AnnotationSetUID] = string(p.set.UID)
	}
}

func (p *play) disown(uid types.UID) {
	for i := range p.pods {
		if controlled(&p.pods[i], string(uid)) {
			p.pods[i].OwnerReferences = nil
		}
	}
	for _, c := range ownedBy(uid, p.claims) {
		c.OwnerReferences = nil
	}
}

// gone: the set is no more. What names it as its owner goes with it.
func (p *play) gone() {
	uid := p.set.UID
	p.set = nil
	if !p.wanted {
		return // its user's doing, and wish
	}
	if c := ownedBy(uid, p.claims); len(c) > 0 {
		p.lost = "claim " + c[0].Name + " goes with the set"
	}
	for i := range p.pods {
		if controlled(&p.pods[i], string(uid)) {
			p.lost = "Pod " + p.pods[i].Name + " goes with the set"
		}
	}
}

// user does what a user may do at any time.
func (p *play) user() {
	if p.set == nil {
		if p.random.IntN(3) == 0 { // another tool makes a set of the name
			p.did = append(p.did, "somebody creates")
			p.make(stableSet("10Gi"))
			p.foreign, p.wanted = p.set.UID, true
			p.retained, p.min = whenDeleted(p.set), 0
		}
		return
	}
	if p.set.DeletionTimestamp != nil {
		return
	}
	switch p.random.IntN(4) {
	case 0:
		p.did = append(p.did, "user edits")
		p.min++
		p.set.Spec.MinReadySeconds = p.min
		p.touch()
	case 1:
		p.did = append(p.did, "user deletes")
		p.wanted = false
		uid := p.set.UID
		if p.random.IntN(2) == 0 { // in the foreground: it stays until its Pods are gone
			p.set.DeletionTimestamp, p.set.Finalizers = &metav1.Time{}, []string{metav1.FinalizerDeleteDependents}
			p.touch()
			return
		}
		p.gone()
		if p.random.IntN(2) == 0 {
			p.pods = slices.DeleteFunc(p.pods, func(o corev1.Pod) bool { return controlled(&o, string(uid)) })
		}
	case 2:
		p.did = append(p.did, "user hands it to Helm")
		p.set.Labels = map[string]string{managedBy: "Helm"}
		p.touch()
	}
}

func (p *play) touch() {
	p.set.Generation++
	p.set.ResourceVersion += "1"
}

func (p *play) make(set *appsv1.StatefulSet) {
	p.sets++
	p.set = set
	set.UID, set.ResourceVersion, set.Generation = types.UID(fmt.Sprint("set-", p.sets)), fmt.Sprint(p.sets*1000), 1
	set.Status = stableSet("1Gi").Status
	set.Status.ObservedGeneration = 0
}

func (p *play) store(r *Record) {
	stored := *r
	stored.Object = r.Object.DeepCopy()
	p.record = &stored
}

// seen is the cluster as a leader reads it.
func (p *play) seen() Observed {
	seen := Observed{Recreate: []string{"data"}, Pods: slices.Clone(p.pods), Claims: slices.Clone(p.claims), Refused: p.random.IntN(4) == 0}
	if p.set != nil {
		seen.Set = p.set.DeepCopy()
	}
	if p.record != nil {
		r := *p.record
		seen.Record = &r
	}
	return seen
}

// do carries a step out, as apply.go does; the leader may die between its writes.
func (p *play) do(seen Observed, s Step) {
	p.did = append(p.did, string(s.Kind))
	dies := p.random.IntN(4) == 0
	fresh := p.set != nil && seen.Set != nil && p.set.UID == seen.Set.UID && p.set.ResourceVersion == seen.Set.ResourceVersion
	switch s.Kind {
	case Save:
		p.store(recordOf(seen.Set, s.Sizes, seen.Pods, seen.Record))
	case Retain:
		if fresh {
			retaining(p.set)
			p.touch()
		}
	case Release:
		p.disownClaims(seen.Set.UID)
	case Delete:
		seen.Record.Stage = Deleting
		p.store(seen.Record)
		if dies || !fresh {
			return
		}
		p.set.DeletionTimestamp, p.set.Finalizers = &metav1.Time{}, []string{metav1.FinalizerOrphanDependents}
		p.touch()
	case Reopen:
		seen.Record.Stage = Saved
		p.store(seen.Record)
	case Create:
		if p.set == nil {
			p.make(seen.Record.anew(s.Sizes))
		}
	case Note:
		seen.Record.Stage, seen.Record.NewUID = Created, seen.Set.UID
		p.store(seen.Record)
	case Finish, Abort:
		if !fresh {
			return
		}
		if whenDeleted(p.set) == "Retain" && seen.Record.WhenDeleted != "Retain" {
			p.set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = seen.Record.WhenDeleted
			p.touch()
		}
		if !dies {
			p.record = nil
		}
	case Forget:
		p.record = nil
	}
}

func (p *play) disownClaims(uid types.UID) {
	for _, c := range ownedBy(uid, p.claims) {
		c.OwnerReferences = nil
	}
}

// TestNothingIsLost plays the making anew of sets, with a leader that dies between
// any two writes, a user who does what users do at any time, and controllers that
// take their time. No claim and no Pod ever goes for it; who deletes a set has it
// deleted; what somebody else makes is left alone; and in the end there is a set
// as its user wants it, and no record.
func TestNothingIsLost(t *testing.T) {
	completed, undone := 0, 0
	for seed := range uint64(1500) {
		p := newPlay(seed)
		meddles, calm := p.random.IntN(3) == 0, 10
		if meddles {
			calm = 60
		}
		var tried *Tried
		var triedOf string
		deletedAt := -1
		ended := false
		for n := range 400 {
			if p.random.IntN(2) == 0 {
				p.controllers()
			}
			if meddles && n < calm && p.random.IntN(6) == 0 {
				p.user()
				if !p.wanted && deletedAt < 0 {
					deletedAt = len(p.did)
				}
			}
			if p.random.IntN(5) == 0 {
				tried = nil // another leader
			}
			seen := p.seen()
			if seen.Set != nil && triedOf == seen.Set.ResourceVersion {
				seen.Tried = tried
			}
			if meddles && n < calm && p.random.IntN(6) == 0 {
				p.user() // after it was read
			}
			s := Decide(seen)
			switch s.Kind {
			case Try:
				tried, triedOf = &Tried{}, seen.Set.ResourceVersion
			case Foreign:
				seen.Record.Stage = Superseded
				p.store(seen.Record)
				ended = n > calm
			case Idle, Blocked, Wait:
				ended = n > calm && s.Kind != Wait || n > 200 && p.record == nil // a set whose Pods are gone waits for ever
			default:
				p.do(seen, s)
			}
			if p.lost != "" || ended {
				break
			}
		}
		problem := p.lost
		if problem == "" && !ended {
			problem = "it does not end"
		}
		if problem == "" {
			problem = p.problem()
		}
		if problem != "" {
			t.Fatalf("seed %d: %s; did %s", seed, problem, strings.Join(p.did, ", "))
		}
		if slices.Contains(p.did, string(Finish)) {
			completed++
		} else if slices.Contains(p.did, string(Save)) {
			undone++
		}
	}
	if completed < 750 || undone < 30 {
		t.Errorf("%d were completed and %d begun and undone: this shows little", completed, undone)
	}
}

// problem is what the cluster must not look like in the end.
func (p *play) problem() string {
	inWay := p.set != nil && p.set.UID == p.foreign
	forPeople := p.record != nil && p.record.Stage == Superseded
	switch {
	case p.set == nil && p.wanted:
		return "the set is not there"
	case !p.wanted && p.set != nil && p.set.DeletionTimestamp == nil && p.record != nil:
		return "a set that its user deleted is being made anew"
	case p.record != nil && !forPeople:
		return "the record is left"
	case p.set == nil || !p.wanted:
		return ""
	case inWay && whenDeleted(p.set) != p.retained:
		return "the set of somebody else was changed"
	case !inWay && whenDeleted(p.set) != p.retained:
		return fmt.Sprintf("whenDeleted is %s, and its user wants %s", whenDeleted(p.set), p.retained)
	case !inWay && p.set.Spec.MinReadySeconds != p.min:
		return "an edit of its user is lost"
	}
	want := resource.MustParse("20Gi")
	if got := request(&p.set.Spec.VolumeClaimTemplates[0]); slices.Contains(p.did, string(Finish)) && !inWay && !slices.Contains(p.did, "somebody creates") &&
		!equality.Semantic.DeepEqual(got, want) && !equality.Semantic.DeepEqual(got, resource.MustParse("10Gi")) {
		return "the template asks for " + got.String()
	}
	return ""
}
