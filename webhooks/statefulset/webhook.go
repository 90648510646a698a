package statefulset

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges StatefulSets and their scale subresource.
type Webhook struct{ World *world.World }

// Validate judges the creation, change, scaling or deletion of a set.
func (h *Webhook) Validate(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return admit.Answer{}, err
	}
	if req.SubResource == "scale" {
		return h.scale(ctx, policies, req)
	}
	old, err := decode(req.OldObject.Raw, req.Namespace)
	if err != nil {
		return admit.Answer{}, err
	}
	if req.Operation == admissionv1.Delete {
		return h.delete(ctx, policies, old)
	}
	now, err := decode(req.Object.Raw, req.Namespace)
	if err != nil || now == nil {
		return admit.Answer{}, err
	}
	findings, err := Findings(ctx, h.World, policies, now)
	if err != nil || old == nil {
		return admit.Answer{Findings: findings}, err
	}
	before, err := Findings(ctx, h.World, policies, old)
	if err != nil {
		return admit.Answer{}, err
	}
	losing, err := h.losing(ctx, policies, old, now)
	return admit.Answer{Findings: append(policy.Ratchet(before, findings), losing...)}, err
}

func decode(raw []byte, namespace string) (*appsv1.StatefulSet, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	set := &appsv1.StatefulSet{}
	if err := json.Unmarshal(raw, set); err != nil {
		return nil, fmt.Errorf("read the StatefulSet: %w", err)
	}
	set.Namespace = namespace
	return set, nil
}

// Findings judges a set by every policy that one of its templates is under:
// the set by its own rules, and each template by those of the claims that will
// be made of it.
func Findings(ctx context.Context, w *world.World, policies []*policy.Policy, set *appsv1.StatefulSet) ([]policy.Finding, error) {
	var found []policy.Finding
	own := map[string]bool{} // policies that have judged the set itself
	for i := range set.Spec.VolumeClaimTemplates {
		template := set.Spec.VolumeClaimTemplates[i].DeepCopy()
		template.Namespace = set.Namespace
		subject, of, err := claim.Look(ctx, w, template)
		if err != nil {
			return nil, err
		}
		for _, p := range policies {
			if p.Guardrails == nil || !p.MatchesClaim(of) {
				continue
			}
			if !own[p.Name] {
				own[p.Name] = true
				itself, err := judge(ctx, w, p, set, of.Namespace)
				if err != nil {
					return nil, err
				}
				found = append(found, itself...)
			}
			breaches := claim.Breaches(p.Guardrails, subject)
			for b := range breaches {
				breaches[b].Field = fmt.Sprintf("spec.volumeClaimTemplates[%d].%s", i, breaches[b].Field)
			}
			found = append(found, Soften(p.Findings(breaches, template.Labels, of.Namespace, w.Now()), true)...)
		}
	}
	return found, nil
}

// judge judges the set itself by one policy.
func judge(ctx context.Context, w *world.World, p *policy.Policy, set *appsv1.StatefulSet, n policy.Namespace) ([]policy.Finding, error) {
	s := Subject{Set: set}
	if r := p.Guardrails.StatefulSet; r != nil && r.PodDisruptionBudget == v1alpha1.Required {
		var err error
		if s.Budgeted, err = w.Budgeted(ctx, set.Namespace, set.Spec.Template.Labels); err != nil {
			return nil, err
		}
	}
	return Soften(p.Findings(Breaches(p.Guardrails.StatefulSet, s), set.Labels, n, w.Now()), false), nil
}

// scale judges a change through the scale subresource, whose objects are Scales.
func (h *Webhook) scale(ctx context.Context, policies []*policy.Policy, req *admit.Request) (admit.Answer, error) {
	var old, now autoscalingv1.Scale
	if err := json.Unmarshal(req.OldObject.Raw, &old); err != nil {
		return admit.Answer{}, fmt.Errorf("read the scale as it was: %w", err)
	}
	if err := json.Unmarshal(req.Object.Raw, &now); err != nil {
		return admit.Answer{}, fmt.Errorf("read the scale: %w", err)
	}
	if now.Spec.Replicas >= old.Spec.Replicas {
		return admit.Answer{}, nil
	}
	set, err := h.World.StatefulSet(ctx, req.Namespace, req.Name)
	if err != nil || set == nil {
		return admit.Answer{}, err
	}
	before, after := set.DeepCopy(), set.DeepCopy()
	before.Spec.Replicas, after.Spec.Replicas = &old.Spec.Replicas, &now.Spec.Replicas
	findings, err := h.losing(ctx, policies, before, after)
	return admit.Answer{Findings: findings}, err
}

// losing judges the claims that lose their Pod between two states of a set: by
// the scale-down rule, and where the set then deletes them by the deletion rule.
func (h *Webhook) losing(ctx context.Context, policies []*policy.Policy, old, now *appsv1.StatefulSet) ([]policy.Finding, error) {
	var found []policy.Finding
	_, whenScaled := Retention(now)
	err := h.eachClaim(ctx, now, Losing(old, now), func(c *corev1.PersistentVolumeClaim) error {
		findings, err := claim.ScaleDown(ctx, h.World, policies, c)
		found = append(found, findings...)
		if err != nil || whenScaled != v1alpha1.DeleteClaims {
			return err
		}
		findings, err = claim.Deletion(ctx, h.World, policies, c)
		found = append(found, findings...)
		return err
	})
	return found, err
}

// delete judges the deletion of a set that deletes its claims: each must be one
// that may go. A set that retains them loses nothing.
func (h *Webhook) delete(ctx context.Context, policies []*policy.Policy, set *appsv1.StatefulSet) (admit.Answer, error) {
	if set == nil || set.DeletionTimestamp != nil {
		return admit.Answer{}, nil
	}
	if whenDeleted, _ := Retention(set); whenDeleted != v1alpha1.DeleteClaims {
		return admit.Answer{}, nil
	}
	from, until := ordinals(set)
	var all []int32
	for i := from; i < until; i++ {
		all = append(all, i)
	}
	var found []policy.Finding
	err := h.eachClaim(ctx, set, all, func(c *corev1.PersistentVolumeClaim) error {
		findings, err := claim.Deletion(ctx, h.World, policies, c)
		found = append(found, findings...)
		return err
	})
	return admit.Answer{Findings: found}, err
}

// eachClaim calls do for the claims of some ordinals that there are.
func (h *Webhook) eachClaim(ctx context.Context, set *appsv1.StatefulSet, of []int32, do func(*corev1.PersistentVolumeClaim) error) error {
	if len(of) == 0 || len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	claims, err := h.World.Claims(ctx, set.Namespace)
	if err != nil {
		return err
	}
	byName := map[string]*corev1.PersistentVolumeClaim{}
	for i := range claims {
		byName[claims[i].Name] = &claims[i]
	}
	for _, ordinal := range of {
		for _, template := range set.Spec.VolumeClaimTemplates {
			if c := byName[ClaimName(template.Name, set.Name, ordinal)]; c != nil {
				if err := do(c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
