// Package namespace judges Namespaces: the deletion of one that holds protected
// claims is refused before anything in it goes, and the label that makes the
// webhooks fail closed is not taken off by who may not override the policies.
//
//	DELETE   each claim in it may go, or the namespace carries the override annotation
//	UPDATE   takes holdfast.dev/enforce=strict off           only who may override
//	         writes the override annotation                  only who may override
package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

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
	if n == nil || n.DeletionTimestamp != nil || strings.TrimSpace(n.Annotations[v1alpha1.AnnotationOverrideDeletion]) != "" {
		return admit.Answer{}, nil
	}
	claims, err := h.World.Claims(ctx, n.Name)
	if err != nil {
		return admit.Answer{}, err
	}
	var found []policy.Finding
	for i := range claims {
		c := &claims[i]
		if c.DeletionTimestamp != nil || claim.OfPod(c) {
			continue
		}
		findings, err := claim.Deletion(ctx, h.World, policies, c)
		if err != nil {
			return admit.Answer{}, err
		}
		found = append(found, findings...)
	}
	told, more := first(found)
	answer := admit.Answer{Findings: told}
	if more > 0 {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("namespace %s has %d further findings alike", n.Name, more))
	}
	return answer, nil
}

// first keeps the first findings of each action, and says how many more there
// are. What is only audited must not push out what is denied: the namespace
// would go with its claims.
func first(found []policy.Finding) (told []policy.Finding, more int) {
	kept := map[v1alpha1.Action]int{}
	for _, f := range found {
		if kept[f.Action] == listed {
			more++
			continue
		}
		kept[f.Action]++
		told = append(told, f)
	}
	return told, more
}

// mayOverride asks for the right to override where the namespace is opened up.
func (h *Webhook) mayOverride(ctx context.Context, req *admit.Request, policies []*policy.Policy, old, now *corev1.Namespace) (string, error) {
	reason := now.Annotations[v1alpha1.AnnotationOverrideDeletion]
	writes := reason != "" && (old == nil || old.Annotations[v1alpha1.AnnotationOverrideDeletion] != reason)
	opens := old != nil && old.Labels[v1alpha1.LabelEnforce] == v1alpha1.EnforceStrict && now.Labels[v1alpha1.LabelEnforce] != v1alpha1.EnforceStrict
	if !writes && !opens {
		return "", nil
	}
	var names []string
	for _, p := range policies {
		before := policy.Namespace{Name: now.Name, Labels: now.Labels}
		if old != nil {
			before.Labels = old.Labels
		}
		if p.Guardrails != nil && p.MatchesNamespace(before) {
			names = append(names, p.Name)
		}
	}
	return h.Authorizer.MayOverride(ctx, req.UserInfo, names)
}
