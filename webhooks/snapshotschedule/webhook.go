package snapshotschedule

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Webhook judges SnapshotSchedules.
type Webhook struct {
	World      *world.World
	Authorizer world.Authorizer
	// Hooks says whether the install runs hooks.
	Hooks bool
}

// Validate judges the creation or change of a schedule.
func (h *Webhook) Validate(ctx context.Context, req *admit.Request) (admit.Answer, error) {
	if req.Operation == admissionv1.Delete {
		return admit.Answer{}, nil
	}
	s := &v1alpha1.SnapshotSchedule{}
	if err := json.Unmarshal(req.Object.Raw, s); err != nil {
		return admit.Answer{Forbidden: fmt.Sprintf("SnapshotSchedule %q cannot be read: %v", req.Name, err)}, nil
	}
	if s.DeletionTimestamp != nil {
		return admit.Answer{}, nil
	}
	var was *v1alpha1.SnapshotScheduleSpec
	if req.Operation == admissionv1.Update {
		old := &v1alpha1.SnapshotSchedule{}
		if err := json.Unmarshal(req.OldObject.Raw, old); err == nil {
			was = &old.Spec // one that cannot be read is mended by this update, or refused
		}
	}
	if errs := Refusals(&s.Spec, was); len(errs) > 0 {
		return admit.Answer{Forbidden: fmt.Sprintf("SnapshotSchedule %q: %v", s.Name, errs.ToAggregate())}, nil
	}
	if BringsHooks(&s.Spec, was) {
		if missing := h.mayHook(ctx, req); missing != "" {
			return admit.Answer{Forbidden: fmt.Sprintf("SnapshotSchedule %q: spec.hooks: %s", s.Name, missing)}, nil
		}
	}
	return admit.Answer{Warnings: Warnings(&s.Spec, h.World.Now())}, nil
}

// BringsHooks says whether a spec makes commands run that the one that is stored
// (nil: there is none) does not, or in other Pods: those that mount the claims of
// the target are where hooks run by default.
func BringsHooks(spec, was *v1alpha1.SnapshotScheduleSpec) bool {
	return spec.Hooks != nil && (was == nil || !reflect.DeepEqual(spec.Hooks, was.Hooks) || !reflect.DeepEqual(spec.Target, was.Target))
}

// mayHook says what stands against hooks that a request brings; empty: nothing.
func (h *Webhook) mayHook(ctx context.Context, req *admit.Request) string {
	if !h.Hooks {
		return "hooks are not enabled in this install, so the schedule would copy nothing: take them out, or enable them (config/components/hooks, or hooks.enabled in the chart)"
	}
	return h.Authorizer.MayExec(ctx, req.UserInfo, req.Namespace)
}
