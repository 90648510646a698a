// Package snapshot judges VolumeSnapshots and VolumeGroupSnapshots.
//
//	CREATE   snapshotClass.deletionPolicy   of the class that it names, or of the default class;
//	                                        of a group and its members: of the group's class
//	UPDATE   snapshotClass.deletionPolicy   where it is given another class, which it can be
//	                                        until the snapshot-controller has begun
//	DELETE   deletion                       the newest ready snapshot of a protected claim stays:
//	                                        it is what would let the claim go, or its last good copy
//	any      the override annotation        is written only by who may override, and so are
//	         labels                         that let a protected snapshot off by an exemption
//
// A VolumeGroupSnapshot takes its members along, and the driver is told to delete
// them all before the snapshot-controller asks for the deletion of the first one
// (external-snapshotter v8.7, processGroupSnapshotWithDeletionTimestamp). What is
// to stay must hold the group back, and a member that a group takes along has no
// data any more that could be held back:
//
//	a group is deleted               each member is judged as if it were deleted itself
//	a member of a group that is      let through: it was judged with its group
//	 being deleted is deleted
//	a snapshot of such a group       vouches for no other one
package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges VolumeSnapshots and VolumeGroupSnapshots.
type Webhook struct {
	World      *world.World
	Authorizer world.Authorizer
}

// Validate judges the creation, change or deletion of a snapshot.
func (h *Webhook) Validate(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	raw := req.Object.Raw
	if req.Operation == admissionv1.Delete {
		raw = req.OldObject.Raw
	}
	snap := &snapshotv1.VolumeSnapshot{}
	if err := json.Unmarshal(raw, snap); err != nil {
		return admit.Answer{}, fmt.Errorf("read the VolumeSnapshot: %w", err)
	}
	snap.Namespace = req.Namespace
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return admit.Answer{}, err
	}
	source, of, err := h.source(ctx, snap)
	if err != nil || source == nil { // without its claim no policy is about it
		return admit.Answer{}, err
	}
	var answer admit.Answer
	switch req.Operation {
	case admissionv1.Create:
		answer.Findings, err = Findings(ctx, h.World, policies, snap, of)
	case admissionv1.Update:
		answer.Findings, err = h.changed(ctx, policies, req, snap, of)
	case admissionv1.Delete:
		answer.Findings, err = h.deletion(ctx, policies, snap, source, of)
	}
	if err == nil && req.Operation != admissionv1.Delete {
		answer.Forbidden, err = h.mayOverride(ctx, req, policies, snap, source, of)
	}
	return answer, err
}

// source is the claim that a snapshot is of; nil: there is none.
func (h *Webhook) source(ctx context.Context, snap *snapshotv1.VolumeSnapshot) (*corev1.PersistentVolumeClaim, policy.Claim, error) {
	if snap.Spec.Source.PersistentVolumeClaimName == nil {
		return nil, policy.Claim{}, nil
	}
	source, err := h.World.Claim(ctx, snap.Namespace, *snap.Spec.Source.PersistentVolumeClaimName)
	if err != nil || source == nil {
		return nil, policy.Claim{}, err
	}
	of, err := h.look(ctx, source)
	return source, of, err
}

// look is what policies ask of a claim, with its driver.
func (h *Webhook) look(ctx context.Context, source *corev1.PersistentVolumeClaim) (policy.Claim, error) {
	_, of, err := claim.Look(ctx, h.World, source)
	if err == nil {
		err = h.nameDriver(ctx, source, &of)
	}
	return of, err
}

// nameDriver fills in the driver of a claim that has no class, which its volume
// tells: the default class of snapshots goes by it. The volume is read live,
// since nothing else here is about volumes.
func (h *Webhook) nameDriver(ctx context.Context, source *corev1.PersistentVolumeClaim, of *policy.Claim) error {
	if of.Provisioner != "" || source.Spec.VolumeName == "" {
		return nil
	}
	pv := &corev1.PersistentVolume{}
	err := h.World.Live.Get(ctx, client.ObjectKey{Name: source.Spec.VolumeName}, pv)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look up PersistentVolume %s of claim %s/%s: %w", source.Spec.VolumeName, source.Namespace, source.Name, err)
	}
	if pv.Spec.CSI != nil {
		of.Provisioner = pv.Spec.CSI.Driver
	}
	return nil
}

// mayOverride refuses who has not the right to override and writes the override
// annotation, or lets a snapshot off its protection by labels that an exemption
// picks. One that is being deleted is protected no more, and its finalizers come off
// with whatever labels.
func (h *Webhook) mayOverride(ctx context.Context, req *admit.Request, policies []*policy.Policy, snap *snapshotv1.VolumeSnapshot, source *corev1.PersistentVolumeClaim, of policy.Claim) (string, error) {
	if snap.DeletionTimestamp != nil {
		return "", nil
	}
	old := &snapshotv1.VolumeSnapshot{}
	if len(req.OldObject.Raw) > 0 {
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return "", fmt.Errorf("read the VolumeSnapshot as it was: %w", err)
		}
	}
	reason := snap.Annotations[v1alpha1.AnnotationOverrideDeletion]
	writes := reason != "" && old.Annotations[v1alpha1.AnnotationOverrideDeletion] != reason
	moves := req.Operation == admissionv1.Update && !maps.Equal(old.Labels, snap.Labels)
	if !writes && !moves {
		return "", nil
	}
	exempts := func(p *policy.Policy, labels map[string]string) bool {
		return p.Exempts(v1alpha1.RuleDeletion, labels, of.Namespace, h.World.Now())
	}
	var names []string
	for _, p := range policies {
		annotated := writes && p.Guardrails != nil && p.Guardrails.Deletion != nil && p.MatchesClaim(of)
		letOff := moves && protects(p, source, of) && p.ActionOf(v1alpha1.RuleDeletion) == v1alpha1.Deny && !exempts(p, old.Labels) && exempts(p, snap.Labels)
		if annotated || letOff {
			names = append(names, p.Name)
		}
	}
	return h.Authorizer.MayOverride(ctx, req.UserInfo, names), nil
}

// protects says whether a policy keeps the snapshots of a claim.
func protects(p *policy.Policy, source *corev1.PersistentVolumeClaim, of policy.Claim) bool {
	if p.Guardrails == nil || p.Guardrails.Deletion == nil || !p.MatchesClaim(of) {
		return false
	}
	protect := p.Guardrails.Deletion.Protect
	return protect != v1alpha1.ProtectNever && (protect != v1alpha1.ProtectWhenBound || source.Spec.VolumeName != "")
}

// Findings judges the class of a snapshot by all policies that are about its
// claim. A class that does not exist breaks nothing.
func Findings(ctx context.Context, w *world.World, policies []*policy.Policy, snap *snapshotv1.VolumeSnapshot, of policy.Claim) ([]policy.Finding, error) {
	about := func(p *policy.Policy) bool {
		return p.Guardrails != nil && p.Guardrails.SnapshotClass != nil && p.MatchesClaim(of)
	}
	if !slices.ContainsFunc(policies, about) {
		return nil, nil
	}
	judge, err := classOf(ctx, w, snap, of)
	if err != nil {
		return nil, err
	}
	var found []policy.Finding
	for _, p := range policies {
		if about(p) {
			found = append(found, p.Findings(judge(p.Guardrails.SnapshotClass), snap.Labels, of.Namespace, w.Now())...)
		}
	}
	return found, nil
}

// classOf looks up what a snapshot's content is made by, to judge it. A member of
// a group has no class of its own, and its content has the policy of the group's.
func classOf(ctx context.Context, w *world.World, snap *snapshotv1.VolumeSnapshot, of policy.Claim) (func(*v1alpha1.SnapshotClassRules) []policy.Breach, error) {
	if snap.Spec.VolumeSnapshotClassName == nil {
		group, err := w.GroupSnapshot(ctx, snap.Namespace, copies.GroupOf(snap))
		if err != nil {
			return nil, err
		}
		if group != nil {
			class, err := w.GroupClass(ctx, group)
			return func(r *v1alpha1.SnapshotClassRules) []policy.Breach { return GroupClass(r, group.Name, class) }, err
		}
	}
	class, err := w.SnapshotClass(ctx, snap.Spec.VolumeSnapshotClassName, of.Provisioner)
	return func(r *v1alpha1.SnapshotClassRules) []policy.Breach { return Class(r, class) }, err
}

// changed judges the class of a snapshot where it is another than it was.
func (h *Webhook) changed(ctx context.Context, policies []*policy.Policy, req *admit.Request, snap *snapshotv1.VolumeSnapshot, of policy.Claim) ([]policy.Finding, error) {
	old := &snapshotv1.VolumeSnapshot{}
	if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
		return nil, fmt.Errorf("read the VolumeSnapshot as it was: %w", err)
	}
	before, err := Findings(ctx, h.World, policies, old, of)
	if err != nil {
		return nil, err
	}
	after, err := Findings(ctx, h.World, policies, snap, of)
	return policy.Ratchet(before, after), err
}

// Class judges a VolumeSnapshotClass; nil is one that does not exist, which the
// snapshot-controller reports.
func Class(r *v1alpha1.SnapshotClassRules, class *snapshotv1.VolumeSnapshotClass) []policy.Breach {
	if r == nil || class == nil || string(class.DeletionPolicy) == r.DeletionPolicy {
		return nil
	}
	return breach(r, "spec.volumeSnapshotClassName", class.Name, string(class.DeletionPolicy))
}

// GroupClass judges the class of a VolumeGroupSnapshot, by its name; nil is one
// that does not exist.
func GroupClass(r *v1alpha1.SnapshotClassRules, group string, class *groupv1.VolumeGroupSnapshotClass) []policy.Breach {
	if r == nil || class == nil || string(class.DeletionPolicy) == r.DeletionPolicy {
		return nil
	}
	return breach(r, "spec.volumeGroupSnapshotClassName of VolumeGroupSnapshot "+group, class.Name, string(class.DeletionPolicy))
}

func breach(r *v1alpha1.SnapshotClassRules, field, class, has string) []policy.Breach {
	return []policy.Breach{{
		Rule: v1alpha1.RuleSnapshotClass, Field: field,
		Found:  fmt.Sprintf("%q, whose deletionPolicy is %s", class, has),
		Wanted: "a class whose deletionPolicy is " + r.DeletionPolicy, Todo: "name another class",
	}}
}

// deletion judges the deletion of a snapshot by the protection of its claim. One
// that goes with its group was judged with it.
func (h *Webhook) deletion(ctx context.Context, policies []*policy.Policy, snap *snapshotv1.VolumeSnapshot, source *corev1.PersistentVolumeClaim, of policy.Claim) ([]policy.Finding, error) {
	found, err := h.lost(ctx, policies, snap, source, of)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if goes, err := h.goesWithGroup(ctx, snap); err != nil || goes {
		return nil, err
	}
	return found, nil
}

// lost judges what would be lost with a snapshot.
//
//	it is not ready, or being deleted already    nothing
//	it was cut before the claim was made         it is of an earlier claim of the name
//	the claim's namespace is being deleted       was judged with the namespace
//	another ready one is newer, or was cut       let through by a policy whose
//	 at the same time and comes first by name     exemptions do not pick the other
//	else                                         a breach, which the override annotation lets through
func (h *Webhook) lost(ctx context.Context, policies []*policy.Policy, snap *snapshotv1.VolumeSnapshot, source *corev1.PersistentVolumeClaim, of policy.Claim) ([]policy.Finding, error) {
	if snap.DeletionTimestamp != nil || of.Namespace.Terminating || !world.IsReady(snap) || copies.At(snap).Before(source.CreationTimestamp.Time) {
		return nil, nil
	}
	ready, err := h.World.ReadySnapshots(ctx, snap.Namespace, source.Name)
	if err != nil {
		return nil, err
	}
	var found []policy.Finding
	for _, p := range policies {
		vouches := func(other snapshotv1.VolumeSnapshot) bool {
			// One that an exemption picks may go at any time.
			return outlives(&other, snap) && !p.Exempts(v1alpha1.RuleDeletion, other.Labels, of.Namespace, h.World.Now())
		}
		if !protects(p, source, of) || slices.ContainsFunc(ready, vouches) {
			continue
		}
		found = append(found, p.Findings([]policy.Breach{{
			Rule: v1alpha1.RuleDeletion, Field: "the deletion of snapshot " + snap.Namespace + "/" + snap.Name,
			Found: "the newest ready one of claim " + source.Name, Wanted: "a newer ready one",
			Todo: fmt.Sprintf("take another VolumeSnapshot and wait until it is ready; or who may override the policy can let one deletion through with the annotation %s=<reason>", v1alpha1.AnnotationOverrideDeletion),
		}}, snap.Labels, of.Namespace, h.World.Now())...)
	}
	return policy.Override(found, snap.Annotations[v1alpha1.AnnotationOverrideDeletion]), nil
}

// outlives says whether a snapshot is one that lets another go. Of two that were
// cut at the same time only one vouches for the other, or both could go at once.
func outlives(other, s *snapshotv1.VolumeSnapshot) bool {
	if a, b := copies.At(other), copies.At(s); !a.Equal(b) {
		return a.After(b)
	}
	return other.Name < s.Name
}
