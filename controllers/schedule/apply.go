package schedule

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// createAtOnce is how many copies of a run are created at once: the API server
// takes some milliseconds for each.
const createAtOnce = 8

// create asks for the planned copies, and answers which were refused and why. One
// that is refused stops no other. It is killed between any two of them without harm:
// what is there already is as good as created.
//
// Hooks of the schedule bracket the cut: with them this comes back once the copies
// are cut, or their Pods are let go all the same.
func (r *Reconciler) create(ctx context.Context, s *v1alpha1.SnapshotSchedule, plan Plan) (map[made]Refusal, error) {
	asks := r.asks(plan)
	err := r.askAll(ctx, s, asks)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		for _, a := range asks { // what is not known to be there is asked for anew
			for _, claim := range a.claims {
				r.ledger.shown(a.booked(claim.UID))
			}
		}
		return nil, fmt.Errorf("create copies: %w", err)
	}
	schedule, now := client.ObjectKeyFromObject(s), r.clock.Now()
	for _, a := range asks {
		for _, claim := range a.claims {
			if a.outcome == nil {
				r.ledger.made(schedule, claim.UID)
			}
		}
	}
	refused := map[made]Refusal{}
	for _, a := range asks {
		for _, claim := range a.claims {
			if slot := a.object.GetLabels()[v1alpha1.LabelSlot]; a.outcome != nil {
				refused[made{claim.UID, slot}] = r.ledger.refused(schedule, a.booked(claim.UID), claim.UID, slot, now, a.outcome)
			}
		}
	}
	return refused, nil
}

// ask is an object to create, and what became of it.
type ask struct {
	object client.Object // as planned
	claims []copies.GroupClaim
	group  bool
	create func(context.Context, client.Object) (fresh bool, err error)
	// outcome is nil where the object is there, fresh where it was not before.
	outcome error
	fresh   bool
}

// booked is under what a claim of it is booked.
func (a *ask) booked(claim types.UID) types.NamespacedName {
	if a.group {
		return ofGroup(client.ObjectKeyFromObject(a.object), claim)
	}
	return client.ObjectKeyFromObject(a.object)
}

// cut is what hooks are to know of it.
func (a *ask) cut() hooks.Cut {
	c := hooks.Cut{Name: a.object.GetName()}
	if a.group {
		c.Name = hooks.GroupName(a.object.GetName())
	}
	for _, claim := range a.claims {
		c.Claims = append(c.Claims, claim.Name)
	}
	return c
}

// do creates it, with more annotations.
func (a *ask) do(ctx context.Context, annotations map[string]string) {
	want := a.object.DeepCopyObject().(client.Object)
	if len(annotations) > 0 {
		all := want.GetAnnotations()
		maps.Copy(all, annotations)
		want.SetAnnotations(all)
	}
	a.fresh, a.outcome = a.create(ctx, want)
}

// asks are the objects of a plan.
func (r *Reconciler) asks(plan Plan) []*ask {
	var all []*ask
	for i := range plan.Create {
		s := &plan.Create[i]
		all = append(all, &ask{
			object: s, claims: []copies.GroupClaim{{Name: *s.Spec.Source.PersistentVolumeClaimName, UID: types.UID(s.Labels[v1alpha1.LabelClaimUID])}},
			create: r.ask,
		})
	}
	for i := range plan.Groups {
		g := &plan.Groups[i]
		all = append(all, &ask{object: &g.Object, claims: g.Claims, group: true, create: func(ctx context.Context, want client.Object) (bool, error) {
			if err := r.labelClaims(ctx, want, g.Claims); err != nil {
				return false, err
			}
			return r.ask(ctx, want)
		}})
	}
	return all
}

// askAll asks for objects; each keeps what became of it.
func (r *Reconciler) askAll(ctx context.Context, s *v1alpha1.SnapshotSchedule, asks []*ask) error {
	if s.Spec.Hooks != nil && len(asks) > 0 {
		return r.askFrozen(ctx, s, asks)
	}
	var group errgroup.Group
	group.SetLimit(createAtOnce)
	for _, a := range asks {
		group.Go(func() error {
			a.do(ctx, nil)
			return nil
		})
	}
	_ = group.Wait()
	return nil
}

// ask creates a copy or a group; fresh: it was not there before. One that is there
// and is the same one is as good; a stranger of its name is left alone.
func (r *Reconciler) ask(ctx context.Context, want client.Object) (fresh bool, err error) {
	key := client.ObjectKeyFromObject(want)
	err = r.client.Create(ctx, want.DeepCopyObject().(client.Object))
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, err
	}
	kind := "VolumeSnapshot"
	there := client.Object(&snapshotv1.VolumeSnapshot{})
	if _, group := want.(*groupv1.VolumeGroupSnapshot); group {
		kind, there = "VolumeGroupSnapshot", &groupv1.VolumeGroupSnapshot{}
	}
	if err := r.live.Get(ctx, key, there); err != nil {
		return false, fmt.Errorf("read %s %s, which is there already: %w", kind, key.Name, err)
	}
	for _, label := range []string{v1alpha1.LabelSchedule, v1alpha1.LabelClaimUID, v1alpha1.LabelSlot} {
		if has, should := there.GetLabels()[label], want.GetLabels()[label]; has != should {
			return false, fmt.Errorf("a %s %s is there already and is not this schedule's: its label %s is %q, want %q; delete or rename it", kind, key.Name, label, has, should)
		}
	}
	return false, nil
}

// stillRefused are the claims whose copy was refused, and is not asked for yet again.
func stillRefused(seen Observed, now time.Time) []v1alpha1.ClaimSnapshots {
	longest := map[types.UID]Refusal{} // of a claim that several runs are refused of
	for what, why := range seen.Refusals {
		if why.Until.After(longest[what.claim].Until) {
			longest[what.claim] = why
		}
	}
	var all []v1alpha1.ClaimSnapshots
	for _, c := range seen.Candidates {
		if why, is := longest[c.Claim.UID]; is && now.Before(why.Until) {
			all = append(all, v1alpha1.ClaimSnapshots{UID: c.Claim.UID, Name: c.Claim.Name, Reason: why.Reason, Message: cmp.Or(why.Message, "(no reason given)")})
		}
	}
	return all
}
