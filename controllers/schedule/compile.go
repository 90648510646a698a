package schedule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/cron"
)

// Ready is a spec made ready to plan with.
type Ready struct {
	Cron   *cron.Schedule
	Target Target
}

// Compile makes a spec ready, or answers all that is wrong with it and that the
// schema of the kind cannot say.
func Compile(spec *v1alpha1.SnapshotScheduleSpec) (*Ready, field.ErrorList) {
	at := field.NewPath("spec")
	var errs field.ErrorList
	s, err := cron.Parse(spec.Schedule, spec.TimeZone)
	var problem *cron.Error
	switch {
	case errors.As(err, &problem):
		errs = append(errs, field.Invalid(at.Child(problem.Field), problem.Value, problem.Problem))
	case err != nil:
		errs = append(errs, field.InternalError(at.Child("schedule"), err))
	}
	target, err := TargetOf(&spec.Target)
	if err != nil {
		errs = append(errs, field.Invalid(at.Child("target", "claimSelector"), spec.Target.ClaimSelector,
			fmt.Sprintf("%v; see https://kubernetes.io/docs/concepts/overview/working-with-objects/labels", err)))
	}
	errs = append(errs, hookSelectors(spec.Hooks, at.Child("hooks"))...)
	template := at.Child("template")
	errs = append(errs, metav1validation.ValidateLabels(spec.Template.Labels, template.Child("labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(spec.Template.Annotations, template.Child("annotations"))...)
	errs = append(errs, ours(spec.Template.Labels, template.Child("labels"))...)
	errs = append(errs, ours(spec.Template.Annotations, template.Child("annotations"))...)
	if len(errs) > 0 {
		return nil, errs
	}
	return &Ready{Cron: s, Target: target}, nil
}

// hookSelectors are the errors of the selectors of hooks.
func hookSelectors(hooks *v1alpha1.SnapshotHooks, at *field.Path) field.ErrorList {
	if hooks == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(selector *metav1.LabelSelector, at *field.Path) {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			errs = append(errs, field.Invalid(at.Child("podSelector"), selector,
				fmt.Sprintf("%v; see https://kubernetes.io/docs/concepts/overview/working-with-objects/labels", err)))
		}
	}
	for i, h := range hooks.Before {
		check(h.PodSelector, at.Child("before").Index(i))
	}
	for i, h := range hooks.After {
		check(h.PodSelector, at.Child("after").Index(i))
	}
	return errs
}

// TargetOf makes a target ready to match with, or says why its selector cannot be
// read. It is the cheap part of Compile.
func TargetOf(t *v1alpha1.SnapshotTarget) (Target, error) {
	ready := Target{selector: labels.Everything(), set: t.StatefulSetName, classes: t.StorageClassNames}
	if t.ClaimSelector == nil {
		return ready, nil
	}
	var err error
	ready.selector, err = metav1.LabelSelectorAsSelector(t.ClaimSelector)
	return ready, err
}

// ours refuses keys that Holdfast itself reads: a template that holds each copy,
// or says whose it is, would break retention.
func ours(of map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
			errs = append(errs, field.Invalid(at, key, "keys under "+v1alpha1.GroupVersion.Group+"/ are Holdfast's own: take it out of the template, and put it on single VolumeSnapshots where it is wanted"))
		}
	}
	return errs
}
