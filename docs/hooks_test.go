package docs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

const hooksPage = "hooks.md"

// TestMarksAreTold: the values of the annotation on copies are those of the code.
func TestMarksAreTold(t *testing.T) {
	var told []string
	for _, row := range table(t, read(t, hooksPage), "annotation `"+v1alpha1.AnnotationQuiesced+"` of a copy", "means") {
		told = append(told, code(row[0]))
	}
	if diff := cmp.Diff([]string{v1alpha1.QuiescedPending, v1alpha1.Quiesced, v1alpha1.NotQuiesced}, told); diff != "" {
		t.Errorf("marks (-of the code +of %s)\n%s", hooksPage, diff)
	}
}

// TestFieldsOfAHookAreTold: the table has each field of a hook, and no other.
func TestFieldsOfAHookAreTold(t *testing.T) {
	fields := map[string]bool{}
	hook := definition(t).Schema.OpenAPIV3Schema.Properties["spec"].Properties["hooks"].Properties["before"].Items.Schema
	for name := range hook.Properties {
		fields[name] = true
	}
	told := map[string]bool{}
	for _, row := range table(t, read(t, hooksPage), "field", "says") {
		told[code(row[0])] = true
	}
	if diff := cmp.Diff(fields, told); diff != "" {
		t.Errorf("fields of a hook (-of the kind +of %s)\n%s", hooksPage, diff)
	}
}
