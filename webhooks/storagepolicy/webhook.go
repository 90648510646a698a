// Package storagepolicy judges StoragePolicies by what the API server cannot:
// selectors, which it does not look into for custom kinds. Its webhook fails
// open: a policy that slipped through is not applied, and says so in its status.
package storagepolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges StoragePolicies.
type Webhook struct{ World *world.World }

// Validate judges the creation or change of a policy.
func (h *Webhook) Validate(_ context.Context, req *admit.Request) (admit.Answer, error) {
	if req.Operation == admissionv1.Delete {
		return admit.Answer{}, nil
	}
	p := &v1alpha1.StoragePolicy{}
	if err := json.Unmarshal(req.Object.Raw, p); err != nil {
		return admit.Answer{}, fmt.Errorf("read the StoragePolicy: %w", err)
	}
	if _, errs := policy.Compile(p); len(errs) > 0 {
		return admit.Answer{Forbidden: fmt.Sprintf("StoragePolicy %q: %v", p.Name, errs.ToAggregate())}, nil
	}
	var answer admit.Answer
	for i, e := range p.Spec.Exemptions {
		if now := h.World.Now(); !now.Before(e.Until.Time) {
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("spec.exemptions[%d].until: %s is past: the exemption has no effect; set a later time or take it out",
				i, e.Until.UTC().Format(time.RFC3339)))
		}
	}
	return answer, nil
}
