package storageclass

import (
	"context"
	"encoding/json"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges StorageClasses.
type Webhook struct{ World *world.World }

// Validate judges the creation or change of a class.
func (h *Webhook) Validate(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	now, err := decode(req.Object.Raw)
	if err != nil || now == nil {
		return admit.Answer{}, err
	}
	old, err := decode(req.OldObject.Raw)
	if err != nil {
		return admit.Answer{}, err
	}
	policies, err := h.World.Policies(ctx)
	if err != nil {
		return admit.Answer{}, err
	}
	findings := Findings(h.World, policies, now)
	if old != nil {
		findings = policy.Ratchet(Findings(h.World, policies, old), findings)
	}
	return admit.Answer{Findings: findings}, nil
}

func decode(raw []byte) (*storagev1.StorageClass, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	class := &storagev1.StorageClass{}
	if err := json.Unmarshal(raw, class); err != nil {
		return nil, fmt.Errorf("read the StorageClass: %w", err)
	}
	return class, nil
}

// Findings judges a class by every policy that it is under by itself. That a
// name is not among those that claims may use is no fault of the class.
func Findings(w *world.World, policies []*policy.Policy, class *storagev1.StorageClass) []policy.Finding {
	var found []policy.Finding
	for _, p := range policies {
		if p.Guardrails == nil || p.Guardrails.StorageClass == nil || !p.MatchesStorageClass(class.Name, class.Provisioner) {
			continue
		}
		rules := *p.Guardrails.StorageClass
		rules.Allowed = nil
		found = append(found, p.Findings(Breaches(&rules, class, 0), class.Labels, policy.Namespace{}, w.Now())...)
	}
	return found
}
