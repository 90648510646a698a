// Package snapshot judges VolumeSnapshots.
//
//	CREATE   snapshotClass.deletionPolicy   of the class that it names, or of the default class
//	DELETE   deletion                       the newest ready snapshot of a protected claim stays:
//	                                        it is what would let the claim go, or its last good copy
//	any      the override annotation        is written only by who may override
package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges VolumeSnapshots.
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
	if err != nil || len(policies) == 0 || snap.Spec.Source.PersistentVolumeClaimName == nil {
		return admit.Answer{}, err
	}
	source, err := h.World.Claim(ctx, snap.Namespace, *snap.Spec.Source.PersistentVolumeClaimName)
	if err != nil || source == nil { // without its claim no policy is about it
		return admit.Answer{}, err
	}
	_, of, err := claim.Look(ctx, h.World, source)
	if err != nil {
		return admit.Answer{}, err
	}
	var answer admit.Answer
	switch req.Operation {
	case admissionv1.Create:
		answer.Findings, err = h.class(ctx, policies, snap, of)
	case admissionv1.Delete:
		answer.Findings, err = h.deletion(ctx, policies, snap, source, of)
	}
	if err == nil && req.Operation != admissionv1.Delete {
		answer.Forbidden, err = h.mayOverride(ctx, req, policies, snap, of)
	}
	return answer, err
}

// mayOverride refuses who writes the override annotation without the right to.
func (h *Webhook) mayOverride(ctx context.Context, req *admit.Request, policies []*policy.Policy, snap *snapshotv1.VolumeSnapshot, of policy.Claim) (string, error) {
	reason := snap.Annotations[v1alpha1.AnnotationOverrideDeletion]
	if reason == "" {
		return "", nil
	}
	if len(req.OldObject.Raw) > 0 {
		old := &snapshotv1.VolumeSnapshot{}
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return "", fmt.Errorf("read the VolumeSnapshot as it was: %w", err)
		}
		if old.Annotations[v1alpha1.AnnotationOverrideDeletion] == reason {
			return "", nil
		}
	}
	var names []string
	for _, p := range policies {
		if p.Guardrails != nil && p.Guardrails.Deletion != nil && p.MatchesClaim(of) {
			names = append(names, p.Name)
		}
	}
	return h.Authorizer.MayOverride(ctx, req.UserInfo, names)
}

// class judges the class of a new snapshot.
func (h *Webhook) class(ctx context.Context, policies []*policy.Policy, snap *snapshotv1.VolumeSnapshot, of policy.Claim) ([]policy.Finding, error) {
	var found []policy.Finding
	for _, p := range policies {
		if p.Guardrails == nil || p.Guardrails.SnapshotClass == nil || !p.MatchesClaim(of) {
			continue
		}
		class, err := h.World.SnapshotClass(ctx, snap.Spec.VolumeSnapshotClassName, of.Provisioner)
		if err != nil {
			return nil, err
		}
		found = append(found, p.Findings(Class(p.Guardrails.SnapshotClass, class), snap.Labels, of.Namespace, h.World.Now())...)
	}
	return found, nil
}

// Class judges a VolumeSnapshotClass; nil is one that does not exist, which the
// snapshot-controller reports.
func Class(r *v1alpha1.SnapshotClassRules, class *snapshotv1.VolumeSnapshotClass) []policy.Breach {
	if r == nil || class == nil || string(class.DeletionPolicy) == r.DeletionPolicy {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleSnapshotClass, Field: "spec.volumeSnapshotClassName",
		Found:  fmt.Sprintf("%q, whose deletionPolicy is %s", class.Name, class.DeletionPolicy),
		Wanted: "a class whose deletionPolicy is " + r.DeletionPolicy, Todo: "name another class",
	}}
}

// deletion judges the deletion of a snapshot by the protection of its claim.
//
//	it is not ready, or being deleted already    nothing is lost by it
//	the claim's namespace is being deleted       was judged with the namespace
//	it carries the override annotation           let through
//	another ready one is as new or newer         let through
//	else                                         a breach
func (h *Webhook) deletion(ctx context.Context, policies []*policy.Policy, snap *snapshotv1.VolumeSnapshot, source *corev1.PersistentVolumeClaim, of policy.Claim) ([]policy.Finding, error) {
	if snap.DeletionTimestamp != nil || of.Namespace.Terminating || !isReady(snap) ||
		strings.TrimSpace(snap.Annotations[v1alpha1.AnnotationOverrideDeletion]) != "" {
		return nil, nil
	}
	ready, err := h.World.ReadySnapshots(ctx, snap.Namespace, source.Name)
	if err != nil {
		return nil, err
	}
	for _, other := range ready {
		if other.Name != snap.Name && !other.Status.CreationTime.Before(snap.Status.CreationTime) {
			return nil, nil
		}
	}
	bound := source.Spec.VolumeName != ""
	var found []policy.Finding
	for _, p := range policies {
		if p.Guardrails == nil || p.Guardrails.Deletion == nil || !p.MatchesClaim(of) {
			continue
		}
		r := p.Guardrails.Deletion
		if r.Protect == v1alpha1.ProtectNever || r.Protect == v1alpha1.ProtectWhenBound && !bound {
			continue
		}
		found = append(found, p.Findings([]policy.Breach{{
			Rule: v1alpha1.RuleDeletion, Field: "the deletion of snapshot " + snap.Namespace + "/" + snap.Name,
			Found: "the newest ready one of claim " + source.Name, Wanted: "a newer ready one",
			Todo: fmt.Sprintf("take another VolumeSnapshot and wait until it is ready; or who may override the policy can let one deletion through with the annotation %s=<reason>", v1alpha1.AnnotationOverrideDeletion),
		}}, snap.Labels, of.Namespace, h.World.Now())...)
	}
	return found, nil
}

func isReady(s *snapshotv1.VolumeSnapshot) bool {
	return s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse && s.Status.CreationTime != nil
}
