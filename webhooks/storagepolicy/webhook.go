// Package storagepolicy judges StoragePolicies by what the API server cannot:
// selectors, which it does not look into for custom kinds, and the schedules that
// a policy gives, as SnapshotSchedules are judged. It warns of an expansion that
// the policy's own guardrails stop. An update is judged where it changes the spec
// of a policy that is not being deleted. Its webhook fails open: a policy or a
// schedule that slipped through is not applied, and says so in the status of the
// policy.
package storagepolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/policyschedule"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/snapshotschedule"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges StoragePolicies.
type Webhook struct{ World *world.World }

// Validate judges the creation or change of a policy.
func (h *Webhook) Validate(_ context.Context, req *admit.Request) (admit.Answer, error) {
	if req.Operation == admissionv1.Delete || asStored(req) {
		return admit.Answer{}, nil
	}
	p := &v1alpha1.StoragePolicy{}
	if err := json.Unmarshal(req.Object.Raw, p); err != nil {
		// No error: that would let it in where the webhook fails open, and one
		// policy that cannot be read keeps the informer from all of them.
		return admit.Answer{Forbidden: fmt.Sprintf("StoragePolicy %q cannot be read: %v", req.Name, err)}, nil
	}
	ready, errs := policy.Compile(p)
	if ready != nil {
		errs = policyschedule.Refusals(ready)
	}
	if len(errs) > 0 {
		return admit.Answer{Forbidden: fmt.Sprintf("StoragePolicy %q: %v", p.Name, errs.ToAggregate())}, nil
	}
	var answer admit.Answer
	for i, g := range ready.Given() {
		for _, warning := range snapshotschedule.Warnings(g.Asked, h.World.Now()) { // they begin with spec
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("spec.snapshots.schedules[%d].%s", i, warning))
		}
	}
	answer.Warnings = append(answer.Warnings, growthWarnings(ready)...)
	for i, e := range p.Spec.Exemptions {
		if now := h.World.Now(); !now.Before(e.Until.Time) {
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("spec.exemptions[%d].until: %s is past: the exemption has no effect; set a later time or take it out",
				i, e.Until.UTC().Format(time.RFC3339)))
		}
	}
	return answer, nil
}

// asStored says whether a request leaves the spec as it is stored, or is about a
// policy that is being deleted. What is not good slipped through before: its labels
// stay editable, and its finalizers come off, also where it cannot be read.
func asStored(req *admit.Request) bool {
	if req.Operation != admissionv1.Update {
		return false
	}
	var now, old struct {
		metav1.PartialObjectMetadata `json:",inline"`
		Spec                         any `json:"spec"`
	}
	if json.Unmarshal(req.Object.Raw, &now) != nil || json.Unmarshal(req.OldObject.Raw, &old) != nil {
		return false // and is refused for it
	}
	return now.DeletionTimestamp != nil || reflect.DeepEqual(now.Spec, old.Spec)
}

// growthWarnings tell where a policy's guardrails refuse what its expansion asks for.
func growthWarnings(p *policy.Policy) []string {
	if p.Expansion == nil || p.Guardrails == nil || p.Guardrails.Claim == nil {
		return nil
	}
	var warnings []string
	rules, e := p.Guardrails.Claim, p.Expansion
	if most := rules.MaxSize; most != nil && most.Cmp(e.MaxSize) < 0 && p.ActionOf(v1alpha1.RuleClaimMaxSize) == v1alpha1.Deny {
		warnings = append(warnings, fmt.Sprintf("spec.expansion.maxSize: %s is above guardrails.claim.maxSize, which refuses what is above %s: claims stop growing there; make the two equal", &e.MaxSize, most))
	}
	if most := rules.MaxGrowthPercent; most > 0 && e.Step.Percent > most && p.ActionOf(v1alpha1.RuleClaimMaxGrowth) == v1alpha1.Deny {
		warnings = append(warnings, fmt.Sprintf("spec.expansion.step.percent: %d is above guardrails.claim.maxGrowthPercent, which refuses steps of more than %d percent: no claim grows; make the step smaller", e.Step.Percent, most))
	}
	return warnings
}
