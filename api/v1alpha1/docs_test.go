package v1alpha1_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// schema is as much of a CRD's schema as these tests read.
type schema struct {
	Description string            `json:"description"`
	Enum        []any             `json:"enum"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
	Validations []validation      `json:"x-kubernetes-validations"`
}

// validation is a rule in CEL.
type validation struct {
	Rule string `json:"rule"`
}

// storagePolicy is the schema that `make generate` writes for StoragePolicy.
func storagePolicy(t *testing.T) schema {
	t.Helper()
	data, err := os.ReadFile("../../config/crd/holdfast.dev_storagepolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil || len(crd.Spec.Versions) != 1 {
		t.Fatalf("%d versions, %v", len(crd.Spec.Versions), err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// Every rule that a policy can name has its row in docs/guardrails.md, and every
// row its rule.
func TestEveryRuleIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/guardrails.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "\n## The rules\n")
	if !found {
		t.Fatal("docs/guardrails.md has no section The rules")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 2 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		rows = append(rows, strings.Trim(cells[1], " `"))
		if len(cells) != 7 || slices.ContainsFunc(cells[1:6], func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("docs/guardrails.md: a row lacks a cell: %s", line)
		}
	}
	spec := storagePolicy(t).Properties["spec"]
	guardrails := spec.Properties["guardrails"]
	var rules []string
	for _, value := range guardrails.Properties["overrides"].Items.Properties["rule"].Enum {
		rules = append(rules, value.(string))
	}
	if diff := cmp.Diff(rules, rows); diff != "" || len(rules) == 0 {
		t.Errorf("rows of docs/guardrails.md (-rules of the kind, in their order +rows)\n%s", diff)
	}
	// A rule's name is the path of its field, so that who reads one finds the other.
	for _, rule := range rules {
		if !guardrails.has(rule) && !spec.has(rule) {
			t.Errorf("rule %s is no field below guardrails or spec", rule)
		}
	}
}

// has says whether there is a field of this path.
func (s schema) has(path string) bool {
	for _, name := range strings.Split(path, ".") {
		field, is := s.Properties[name]
		if !is {
			return false
		}
		s = field
	}
	return true
}

// What a schedule of a policy may not have, though a SnapshotSchedule may: its
// author would run commands in the Pods of others, and what takes a namespace from
// the policy, a label, would delete copies.
func TestSchedulesOfPoliciesAreBounded(t *testing.T) {
	schedule := storagePolicy(t).Properties["spec"].Properties["snapshots"].Properties["schedules"].Items
	for _, field := range []string{"hooks", "onScheduleDelete"} {
		if !schedule.Properties["spec"].has(field) {
			continue // nobody has it
		}
		if !slices.ContainsFunc(schedule.Validations, func(v validation) bool { return strings.Contains(v.Rule, "!has(self.spec."+field+")") }) {
			t.Errorf("a schedule of a policy may have %s: PolicySchedule needs a rule that refuses it", field)
		}
	}
}

// kubectl explain has a sentence for every field.
func TestEveryFieldIsExplained(t *testing.T) {
	var walk func(path string, s schema)
	walk = func(path string, s schema) {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			at, field := path+"."+name, s.Properties[name]
			if len(strings.Fields(field.Description)) < 3 && at != ".metadata" {
				t.Errorf("%s is explained as %q", at, field.Description)
			}
			walk(at, field)
		}
		if s.Items != nil {
			walk(path+"[]", *s.Items)
		}
	}
	walk("", storagePolicy(t))
}
