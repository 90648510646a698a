// Package namespace judges Namespaces: the deletion of one that holds protected
// claims is refused before anything in it goes, and the label that makes the
// webhooks fail closed is not taken off by who may not override the policies.
//
//	DELETE   each claim in it may go, or the namespace carries the override annotation
//	UPDATE   takes holdfast.dev/enforce=strict off           only who may override
//	         writes the override annotation                  only who may override
//	         takes protected claims from a policy, by other
//	         labels, or brings under it what carries the
//	         override annotation                             only who may override
package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges Namespaces.
type Webhook struct {
	World      *world.World
	Authorizer world.Authorizer
}

// Validate judges the creation, change or deletion of a namespace.
func (h *Webhook) Validate(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	old, err := decode(req.OldObject.Raw)
	if err != nil {
		return admit.Answer{}, err
	}
	policies, err := h.World.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return admit.Answer{}, err
	}
	if req.Operation == admissionv1.Delete {
		return h.delete(ctx, policies, old)
	}
	now, err := decode(req.Object.Raw)
	if err != nil || now == nil {
		return admit.Answer{}, err
	}
	forbidden, err := h.mayOverride(ctx, req, policies, old, now)
	return admit.Answer{Forbidden: forbidden}, err
}

func decode(raw []byte) (*corev1.Namespace, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	n := &corev1.Namespace{}
	if err := json.Unmarshal(raw, n); err != nil {
		return nil, fmt.Errorf("read the Namespace: %w", err)
	}
	return n, nil
}

// listed bounds the findings of each action that an answer names.
const listed = 5

// delete judges every claim that would go with a namespace.
func (h *Webhook) delete(ctx context.Context, policies []*policy.Policy, n *corev1.Namespace) (admit.Answer, error) {
	if n == nil || n.DeletionTimestamp != nil {
		return admit.Answer{}, nil
	}
	claims, err := h.World.Claims(ctx, n.Name)
	if err != nil {
		return admit.Answer{}, err
	}
	var found some
	left := len(claims)
	for i := range claims {
		on, err := admit.GoesOn(ctx, found.kept[v1alpha1.Deny], listed)
		if err != nil {
			return admit.Answer{}, err
		}
		if !on {
			break
		}
		left--
		c := &claims[i]
		if c.DeletionTimestamp != nil || claim.OfPod(c) {
			continue
		}
		findings, err := claim.Deletion(ctx, h.World, policies, c)
		if err != nil {
			return admit.Answer{}, err
		}
		found.add(policy.Override(findings, n.Annotations[v1alpha1.AnnotationOverrideDeletion]))
	}
	answer := admit.Answer{Findings: found.findings}
	if found.more > 0 {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("namespace %s has %d further findings alike", n.Name, found.more))
	}
	if left > 0 {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("%d further claims of namespace %s were not looked at: it stays already", left, n.Name))
	}
	return answer, nil
}

// some are the first findings of each action, and how many more there are. What
// is only audited must not push out what is denied: the namespace would go with
// its claims. All findings of thousands of claims would take much memory.
type some struct {
	findings []policy.Finding
	kept     map[v1alpha1.Action]int
	more     int
}

func (s *some) add(findings []policy.Finding) {
	if s.kept == nil {
		s.kept = map[v1alpha1.Action]int{}
	}
	for _, f := range findings {
		if s.kept[f.Action] == listed {
			s.more++
			continue
		}
		s.kept[f.Action]++
		s.findings = append(s.findings, f)
	}
}

// mayOverride asks for the right to override where the namespace is opened up:
// by itself, or by what its labels mean for the claims in it.
func (h *Webhook) mayOverride(ctx context.Context, req *admit.Request, policies []*policy.Policy, old, now *corev1.Namespace) (string, error) {
	if now.DeletionTimestamp != nil { // nothing is held back any more
		return "", nil
	}
	var before *policy.Namespace
	after := policy.Namespace{Name: now.Name, Labels: now.Labels}
	opens, had := false, ""
	if old != nil {
		before = &policy.Namespace{Name: now.Name, Labels: old.Labels}
		opens = old.Labels[v1alpha1.LabelEnforce] == v1alpha1.EnforceStrict && now.Labels[v1alpha1.LabelEnforce] != v1alpha1.EnforceStrict
		had = old.Annotations[v1alpha1.AnnotationOverrideDeletion]
	}
	reason := now.Annotations[v1alpha1.AnnotationOverrideDeletion]
	takes := map[string]bool{}
	for _, p := range policies {
		armed := reason != "" && claim.GuardsDeletion(p) && p.MatchesNamespace(after) &&
			(before == nil || reason != had || !p.MatchesNamespace(*before))
		takes[p.Name] = armed || opens && p.Guardrails != nil && p.MatchesNamespace(*before)
	}
	if before != nil && !maps.Equal(before.Labels, after.Labels) {
		if err := h.moves(ctx, policies, *before, after, takes); err != nil {
			return "", err
		}
	}
	var names []string
	for _, p := range policies {
		if takes[p.Name] {
			names = append(names, p.Name)
		}
	}
	return h.Authorizer.MayOverride(ctx, req.UserInfo, names), nil
}

// moves adds the policies that other labels of the namespace take claims from,
// and those that claims come under which carry the override annotation.
func (h *Webhook) moves(ctx context.Context, policies []*policy.Policy, before, after policy.Namespace, takes map[string]bool) error {
	policies = slices.DeleteFunc(slices.Clone(policies), func(p *policy.Policy) bool { return takes[p.Name] || !claim.Guards(p) })
	if len(policies) == 0 {
		return nil
	}
	claims, err := h.World.Claims(ctx, after.Name)
	if err != nil {
		return err
	}
	for i := range claims {
		was, err := claim.StateOf(ctx, h.World, &claims[i])
		if err != nil {
			return err
		}
		is := was
		was.Of.Namespace, is.Of.Namespace = before, after
		for _, p := range policies {
			takes[p.Name] = takes[p.Name] || claim.TakesOverride(p, &was, is, h.World.Now())
		}
	}
	return nil
}
