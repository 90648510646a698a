package modification

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/expansion"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Every is the time between two sweeps.
const Every = 30 * time.Second

// unusedFor is how old a class of ours must be before it goes unused: one that was
// just made is about to be set.
const unusedFor = 10 * time.Minute

// refusedFor is how long a class that somebody refused a claim is not asked for again.
const refusedFor = 10 * time.Minute

// maxNote is what the API server takes of an event's note, in bytes.
const maxNote = 1024

// Options are what a Modifier works with.
type Options struct {
	Client client.Client
	World  *world.World
	Events events.EventRecorder
	Clock  clock.WithTicker
}

// Modifier sets the classes that annotations of claims ask for. The leader runs it.
type Modifier struct {
	Options
	told    map[types.UID]string
	refused map[types.UID]refusal
}

// refusal is what was said to a class on a claim, and when.
type refusal struct {
	class, why string
	at         time.Time
}

// New makes a Modifier.
func New(o Options) *Modifier {
	return &Modifier{Options: o, told: map[types.UID]string{}, refused: map[types.UID]refusal{}}
}

// NeedLeaderElection says that one replica acts.
func (m *Modifier) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends.
func (m *Modifier) Start(ctx context.Context) error {
	tick := m.Clock.NewTicker(Every)
	defer tick.Stop()
	for {
		if err := m.Sweep(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Look for annotations that modify volumes, trying again", "after", Every.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Sweep looks at each claim once, and at the classes.
func (m *Modifier) Sweep(ctx context.Context) error {
	var classes storagev1.VolumeAttributesClassList
	err := m.World.Cache.List(ctx, &classes, client.MatchingLabels{Label: ""}, client.UnsafeDisableDeepCopy)
	if meta.IsNoMatchError(err) { // Kubernetes before 1.34
		return nil
	}
	if err != nil {
		return fmt.Errorf("list VolumeAttributesClasses: %w", err)
	}
	var ours []string
	for i := range classes.Items {
		ours = append(ours, classes.Items[i].Name)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := m.World.Cache.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	var failed []error
	asks := map[types.UID]bool{}
	asked := map[string]bool{} // classes that this sweep may have set on claims
	for i := range claims.Items {
		c := &claims.Items[i]
		step, why, class := Decide(c, ours)
		if step == Nothing {
			continue
		}
		of, err := m.ofDriver(ctx, c)
		if err != nil || !of {
			failed = append(failed, err)
			continue
		}
		asks[c.UID] = true
		if step == Set {
			asked[class.Name] = true
			if why, err = m.set(ctx, c, class); err != nil {
				failed = append(failed, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err))
			}
		}
		m.tell(c, why)
	}
	for uid := range m.told {
		if !asks[uid] {
			delete(m.told, uid)
		}
	}
	for uid := range m.refused {
		if !asks[uid] {
			delete(m.refused, uid)
		}
	}
	return errors.Join(append(failed, m.clean(ctx, classes.Items, claims.Items, asked))...)
}

// ofDriver says whether a claim's volume is of the driver.
func (m *Modifier) ofDriver(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	v := &corev1.PersistentVolume{}
	err := m.World.Cache.Get(ctx, client.ObjectKey{Name: c.Spec.VolumeName}, v, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up PersistentVolume %s: %w", c.Spec.VolumeName, err)
	}
	return v.Spec.CSI != nil && v.Spec.CSI.Driver == driver, nil
}

// set makes the class and sets it on the claim, or says why not.
func (m *Modifier) set(ctx context.Context, c *corev1.PersistentVolumeClaim, class *storagev1.VolumeAttributesClass) (why string, err error) {
	if r, is := m.refused[c.UID]; is && r.class == class.Name && m.Clock.Since(r.at) < refusedFor {
		return r.why, nil
	}
	delete(m.refused, c.UID)
	after := c.DeepCopy()
	after.Spec.VolumeAttributesClassName = &class.Name
	if why, err = m.refusal(ctx, c, after, class); err != nil || why != "" {
		return why, err
	}
	if why, err = m.ensure(ctx, class); err != nil || why != "" {
		return why, err
	}
	err = m.Client.Patch(ctx, after, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		m.Events.Eventf(c, class, corev1.EventTypeNormal, "ModificationSet", "Modify", "VolumeAttributesClass %s is set, as the claim's annotations ask for", class.Name)
		return "", nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the next sweep looks anew
		return "", nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		why = fmt.Sprintf("VolumeAttributesClass %s is refused: %v", class.Name, err)
		m.refused[c.UID] = refusal{class: class.Name, why: why, at: m.Clock.Now()}
		return why, nil
	}
	return "", fmt.Errorf("set VolumeAttributesClass %s: %w", class.Name, err)
}

// refusal is why policies or the budget do not let a claim have a class now; empty:
// they do. Policies judge the claim after the change; the budget counts what was
// changed before it.
func (m *Modifier) refusal(ctx context.Context, before, after *corev1.PersistentVolumeClaim, class *storagev1.VolumeAttributesClass) (string, error) {
	policies, err := m.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return "", err
	}
	subject, of, err := claim.Look(ctx, m.World, after)
	if err != nil {
		return "", err
	}
	subject.Attributes = class
	var refusals []string
	for _, p := range policies {
		if !p.MatchesClaim(of) {
			continue
		}
		found := slices.DeleteFunc(claim.Breaches(p, subject), func(b policy.Breach) bool { return b.Field != "spec.volumeAttributesClassName" })
		for _, f := range p.Findings(found, after.Labels, of.Namespace, m.World.Now()) {
			if f.Action == v1alpha1.Deny {
				refusals = append(refusals, f.Message())
			}
		}
	}
	if grows := policy.Growing(policies, of); len(refusals) == 0 && grows != nil {
		if spent := expansion.Spent(m.World.Now(), grows, driver, before); spent != "" {
			refusals = append(refusals, spent)
		}
	}
	return strings.Join(refusals, "; "), nil
}

// ensure makes a class, or says why it cannot be had. One of the name that is there
// and says something else is somebody's, and is left alone.
func (m *Modifier) ensure(ctx context.Context, class *storagev1.VolumeAttributesClass) (why string, err error) {
	err = m.Client.Create(ctx, class.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	there := &storagev1.VolumeAttributesClass{}
	if err := m.World.Live.Get(ctx, client.ObjectKeyFromObject(class), there); err != nil {
		return "", fmt.Errorf("read VolumeAttributesClass %s, which is there already: %w", class.Name, err)
	}
	switch {
	case there.DriverName != class.DriverName || fmt.Sprint(there.Parameters) != fmt.Sprint(class.Parameters):
		return fmt.Sprintf("VolumeAttributesClass %s is there already with driver %s and parameters %v, want %s and %v: have it deleted, or made again under another name", class.Name, there.DriverName, there.Parameters, class.DriverName, class.Parameters), nil
	case there.DeletionTimestamp != nil:
		return fmt.Sprintf("VolumeAttributesClass %s is being deleted, and is made again once it is gone: claims and volumes that name it keep it until then", class.Name), nil
	}
	return "", nil
}

// clean deletes the classes of ours that nothing names, nor was asked to in this
// sweep: claims are as they were before it. Kubernetes keeps one that is named after
// all (finalizer of its VAC protection controller), and lets nobody else have it.
func (m *Modifier) clean(ctx context.Context, classes []storagev1.VolumeAttributesClass, claims []corev1.PersistentVolumeClaim, used map[string]bool) error {
	if len(classes) == 0 {
		return nil
	}
	var volumes corev1.PersistentVolumeList
	if err := m.World.Cache.List(ctx, &volumes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PersistentVolumes: %w", err)
	}
	add := func(name *string) {
		if name != nil {
			used[*name] = true
		}
	}
	for i := range volumes.Items { // also those that have outlived their claims
		add(volumes.Items[i].Spec.VolumeAttributesClassName)
	}
	for i := range claims {
		c := &claims[i]
		add(c.Spec.VolumeAttributesClassName)
		add(c.Status.CurrentVolumeAttributesClassName)
		if s := c.Status.ModifyVolumeStatus; s != nil {
			add(&s.TargetVolumeAttributesClassName)
		}
	}
	var failed []error
	for i := range classes {
		class := &classes[i]
		if used[class.Name] || m.Clock.Since(class.CreationTimestamp.Time) < unusedFor || class.DeletionTimestamp != nil {
			continue
		}
		err := m.Client.Delete(ctx, class, client.Preconditions{UID: &class.UID, ResourceVersion: &class.ResourceVersion})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			failed = append(failed, fmt.Errorf("delete VolumeAttributesClass %s: %w", class.Name, err))
		}
	}
	return errors.Join(failed...)
}

// tell tells of what is in the way, once for each reason.
func (m *Modifier) tell(c *corev1.PersistentVolumeClaim, why string) {
	if m.told[c.UID] == why {
		return
	}
	m.told[c.UID] = why
	if why != "" {
		m.Events.Eventf(c, nil, corev1.EventTypeWarning, "ModificationBlocked", "Modify", "%s", policy.Short(why, maxNote))
	}
}
