package statefulset

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	if err != nil {
		return admit.Answer{}, err
	}
	judgesSizesOnly := len(policies) == 0
	if judgesSizesOnly && (req.SubResource != "" || req.Operation == admissionv1.Delete) {
		return admit.Answer{}, nil
	}
	if req.SubResource == "scale" {
		return h.scale(ctx, policies, req)
	}
	old, err := decode(req.OldObject.Raw, req.Namespace)
	if err != nil {
		return admit.Answer{}, err
	}
	if req.Operation == admissionv1.Delete {
		return h.delete(ctx, policies, old, req.Options.Raw)
	}
	now, err := decode(req.Object.Raw, req.Namespace)
	if err != nil || now == nil {
		return admit.Answer{}, err
	}
	var answer admit.Answer
	if !judgesSizesOnly {
		if answer.Findings, err = h.findings(ctx, policies, old, now); err != nil {
			return admit.Answer{}, err
		}
	}
	answer.Forbidden, answer.Warnings, err = judgeSizes(ctx, h.World, old, now)
	return answer, err
}

// findings judges a set that is made, or changed, by the guardrails.
func (h *Webhook) findings(ctx context.Context, policies []*policy.Policy, old, now *appsv1.StatefulSet) ([]policy.Finding, error) {
	findings, err := Findings(ctx, h.World, policies, now)
	if err != nil || old == nil {
		return findings, err
	}
	before, err := Findings(ctx, h.World, policies, old)
	if err != nil {
		return nil, err
	}
	losing, err := h.losing(ctx, policies, old, now)
	return append(policy.Ratchet(before, findings), losing...), err
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
		template, err := claimOf(ctx, w, policies, set, i)
		if err != nil {
			return nil, err
		}
		subject, of, err := claim.Look(ctx, w, template)
		if err != nil {
			return nil, err
		}
		if subject.Cover, err = claim.CoverOf(ctx, w, policies, template, of, true); err != nil {
			return nil, err
		}
		for _, p := range policies {
			if !p.MatchesClaim(of) {
				continue
			}
			if p.Guardrails != nil && !own[p.Name] {
				own[p.Name] = true
				itself, err := judge(ctx, w, p, set, of.Namespace)
				if err != nil {
					return nil, err
				}
				found = append(found, itself...)
			}
			breaches := claim.Breaches(p, subject)
			for b := range breaches {
				breaches[b].Field = fieldOf(i, breaches[b].Field)
			}
			found = append(found, Soften(p.Findings(breaches, template.Labels, of.Namespace, w.Now()), true)...)
		}
	}
	return found, nil
}

// claimOf is a claim template as its claims will be, with the class that they are
// given where it names none.
func claimOf(ctx context.Context, w *world.World, policies []*policy.Policy, set *appsv1.StatefulSet, i int) (*corev1.PersistentVolumeClaim, error) {
	template := templateOf(set, i)
	class, err := claim.DefaultClass(ctx, w, policies, template)
	if class != "" {
		template.Spec.StorageClassName = &class
	}
	return template, err
}

// fieldOf is what is broken of a claim, told of the template that it is made of.
func fieldOf(template int, field string) string {
	at := fmt.Sprintf("spec.volumeClaimTemplates[%d]", template)
	if strings.Contains(field, " ") { // in words
		return field + " of " + at
	}
	return at + "." + field
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
	claims, err := h.World.Claims(ctx, now.Namespace)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(claims, func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	var found []policy.Finding
	_, whenScaled := Retention(now)
	losing := Losing(old, now)
	for i := range claims {
		c := &claims[i]
		if c.DeletionTimestamp != nil || !isClaimOf(now, c.Name, losing) {
			continue // one that is being deleted may go: that was judged
		}
		if on, err := admit.GoesOn(ctx, policy.Denied(found), admit.Told); err != nil || !on {
			return found, err
		}
		findings, err := claim.ScaleDown(ctx, h.World, policies, c)
		if err != nil {
			return nil, err
		}
		found = append(found, findings...)
		if whenScaled != v1alpha1.DeleteClaims {
			continue
		}
		if findings, err = claim.Deletion(ctx, h.World, policies, c); err != nil {
			return nil, err
		}
		found = append(found, findings...)
	}
	return found, nil
}

// delete judges the deletion of a set that deletes claims: each must be one that
// may go. A set that retains them loses nothing, nor does one that is deleted
// with propagationPolicy Orphan.
func (h *Webhook) delete(ctx context.Context, policies []*policy.Policy, set *appsv1.StatefulSet, options []byte) (admit.Answer, error) {
	orphans, err := orphaning(options)
	if err != nil || orphans || set == nil || set.DeletionTimestamp != nil {
		return admit.Answer{}, err
	}
	claims, err := h.World.Claims(ctx, set.Namespace)
	if err != nil {
		return admit.Answer{}, err
	}
	var found []policy.Finding
	for _, c := range Doomed(set, claims) {
		if c.DeletionTimestamp != nil {
			continue
		}
		on, err := admit.GoesOn(ctx, policy.Denied(found), admit.Told)
		if err != nil {
			return admit.Answer{}, err
		}
		if !on {
			break
		}
		findings, err := claim.Deletion(ctx, h.World, policies, c)
		if err != nil {
			return admit.Answer{}, err
		}
		found = append(found, findings...)
	}
	return admit.Answer{Findings: found}, nil
}

// orphaning says whether a deletion leaves what the object owns.
func orphaning(raw []byte) (bool, error) {
	if len(raw) == 0 {
		return false, nil
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(raw, &options); err != nil {
		return false, fmt.Errorf("read the options of the deletion: %w", err)
	}
	return options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationOrphan ||
		options.OrphanDependents != nil && *options.OrphanDependents, nil //nolint:staticcheck // deprecated since 1.7, and still obeyed by the API server
}
