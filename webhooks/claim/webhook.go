package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges claims.
type Webhook struct {
	World      *world.World
	Authorizer world.Authorizer
}

// Validate judges the creation, change or deletion of a claim.
func (h *Webhook) Validate(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	old, now, err := decode(req)
	if err != nil {
		return admit.Answer{}, err
	}
	if req.Operation == admissionv1.Delete {
		return h.delete(ctx, old)
	}
	findings, err := h.findings(ctx, now, old)
	if err != nil {
		return admit.Answer{}, err
	}
	answer := admit.Answer{Findings: findings}
	if old != nil {
		before, err := h.findings(ctx, old, nil)
		if err != nil {
			return admit.Answer{}, err
		}
		answer.Findings = policy.Ratchet(before, findings)
	}
	answer.Forbidden, err = h.mayOverride(ctx, req, old, now)
	return answer, err
}

// decode reads the claims of a request; nil where there is none.
func decode(req *admit.Request) (old, now *corev1.PersistentVolumeClaim, err error) {
	if len(req.OldObject.Raw) > 0 {
		old = &corev1.PersistentVolumeClaim{}
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return nil, nil, fmt.Errorf("read the claim as it was: %w", err)
		}
	}
	if len(req.Object.Raw) > 0 && req.Operation != admissionv1.Delete {
		now = &corev1.PersistentVolumeClaim{}
		if err := json.Unmarshal(req.Object.Raw, now); err != nil {
			return nil, nil, fmt.Errorf("read the claim: %w", err)
		}
		now.Namespace = req.Namespace
	}
	if old != nil {
		old.Namespace = req.Namespace
	}
	return old, now, nil
}

// findings judges a claim as it is by every policy that it is under.
func (h *Webhook) findings(ctx context.Context, claim, before *corev1.PersistentVolumeClaim) ([]policy.Finding, error) {
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return nil, err
	}
	subject, of, err := Look(ctx, h.World, claim)
	if err != nil {
		return nil, err
	}
	if before != nil {
		subject.Before = &before.Spec
	}
	var found []policy.Finding
	for _, p := range policies {
		if p.MatchesClaim(of) {
			found = append(found, p.Findings(Breaches(p.Guardrails, subject), claim.Labels, of.Namespace, h.World.Now())...)
		}
	}
	return found, nil
}

// Look is all that is to be known of a claim to judge it.
func Look(ctx context.Context, w *world.World, claim *corev1.PersistentVolumeClaim) (Subject, policy.Claim, error) {
	namespace, err := w.Namespace(ctx, claim.Namespace)
	if err != nil {
		return Subject{}, policy.Claim{}, err
	}
	name, class, err := w.ClassOfClaim(ctx, claim.Annotations, &claim.Spec)
	if err != nil {
		return Subject{}, policy.Claim{}, err
	}
	of := policy.Claim{Namespace: namespace, Labels: claim.Labels, ClassName: name}
	if class != nil {
		of.Provisioner = class.Provisioner
	}
	return Subject{Spec: claim.Spec, ClassName: name, Class: class}, of, nil
}

// delete judges the deletion of a claim.
//
//	being deleted already                        nothing changes
//	its namespace is being deleted               was judged with the namespace
//	belongs to a Pod (generic ephemeral volume)  goes with the Pod, by design
//	else                                         as the policies protect it
func (h *Webhook) delete(ctx context.Context, claim *corev1.PersistentVolumeClaim) (admit.Answer, error) {
	if claim == nil || claim.DeletionTimestamp != nil || OfPod(claim) {
		return admit.Answer{}, nil
	}
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return admit.Answer{}, err
	}
	findings, err := Deletion(ctx, h.World, policies, claim)
	return admit.Answer{Findings: findings}, err
}

// OfPod says whether a claim is a generic ephemeral volume of a Pod.
// https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes
func OfPod(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}

// Deletion judges the deletion of a claim by every policy that it is under.
func Deletion(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim) ([]policy.Finding, error) {
	_, of, err := Look(ctx, w, claim)
	if err != nil || of.Namespace.Terminating {
		return nil, err
	}
	return protection(ctx, w, policies, claim, of, func(g *v1alpha1.Guardrails, held policy.Held) []policy.Breach {
		return policy.Deletion(g.Deletion, held, w.Now())
	})
}

// ScaleDown judges that a claim loses its Pod.
func ScaleDown(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim) ([]policy.Finding, error) {
	_, of, err := Look(ctx, w, claim)
	if err != nil {
		return nil, err
	}
	return protection(ctx, w, policies, claim, of, func(g *v1alpha1.Guardrails, held policy.Held) []policy.Breach {
		return policy.ScaleDown(g.ScaleDown, held, w.Now())
	})
}

func protection(ctx context.Context, w *world.World, policies []*policy.Policy, claim *corev1.PersistentVolumeClaim, of policy.Claim,
	judge func(*v1alpha1.Guardrails, policy.Held) []policy.Breach,
) ([]policy.Finding, error) {
	var found []policy.Finding
	var held *policy.Held // read once, and only where a policy asks
	for _, p := range policies {
		if p.Guardrails == nil || p.Guardrails.Deletion == nil && p.Guardrails.ScaleDown == nil || !p.MatchesClaim(of) {
			continue
		}
		if held == nil {
			snapshots, err := w.ReadySnapshots(ctx, claim.Namespace, claim.Name)
			if err != nil {
				return nil, err
			}
			held = &policy.Held{
				Name: claim.Namespace + "/" + claim.Name, Bound: claim.Status.Phase == corev1.ClaimBound || claim.Spec.VolumeName != "",
				NewestCut: world.NewestCut(snapshots, claim), Override: claim.Annotations[v1alpha1.AnnotationOverrideDeletion],
			}
		}
		found = append(found, p.Findings(judge(p.Guardrails, *held), claim.Labels, of.Namespace, w.Now())...)
	}
	return found, nil
}

// mayOverride refuses who has not the right to override and writes the override
// annotation, or takes a claim out of a policy that protects it by its labels.
func (h *Webhook) mayOverride(ctx context.Context, req *admit.Request, old, now *corev1.PersistentVolumeClaim) (string, error) {
	reason := now.Annotations[v1alpha1.AnnotationOverrideDeletion]
	writes := reason != "" && (old == nil || old.Annotations[v1alpha1.AnnotationOverrideDeletion] != reason)
	moves := old != nil && !maps.Equal(old.Labels, now.Labels)
	if !writes && !moves {
		return "", nil
	}
	policies, err := h.World.Policies(ctx)
	if err != nil {
		return "", err
	}
	_, of, err := Look(ctx, h.World, now)
	if err != nil {
		return "", err
	}
	before := of
	if moves {
		before.Labels = old.Labels
	}
	var names []string
	for _, p := range policies {
		protects := p.Guardrails != nil && (p.Guardrails.Deletion != nil || p.Guardrails.ScaleDown != nil)
		if protects && (writes && p.MatchesClaim(of) || moves && p.MatchesClaim(before) && !p.MatchesClaim(of)) {
			names = append(names, p.Name)
		}
	}
	return h.Authorizer.MayOverride(ctx, req.UserInfo, names)
}

// Default gives a new claim that names no class the class of the policy with
// the highest priority that has one, unless the cluster has a default class:
// the API server gives that one itself, before or after us.
func (h *Webhook) Default(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	_, claim, err := decode(req)
	if err != nil || claim == nil || req.Operation != admissionv1.Create || world.ClassNameOf(claim.Annotations, &claim.Spec) != nil {
		return admit.Answer{}, err
	}
	policies, err := h.World.Policies(ctx)
	if err != nil {
		return admit.Answer{}, err
	}
	marked, err := h.World.DefaultClass(ctx)
	if err != nil || marked != nil {
		return admit.Answer{}, err
	}
	namespace, err := h.World.Namespace(ctx, req.Namespace)
	if err != nil {
		return admit.Answer{}, err
	}
	for _, p := range policies {
		if p.Defaults == nil || p.Defaults.StorageClassName == "" || !p.MatchesClaim(policy.Claim{Namespace: namespace, Labels: claim.Labels}) {
			continue
		}
		patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/storageClassName", "value": p.Defaults.StorageClassName}})
		return admit.Answer{Patch: patch}, err
	}
	return admit.Answer{}, nil
}
