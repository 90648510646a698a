package world

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reviewer answers reviews of access: it lets through the names that it has, and
// keeps those that it is asked about.
type reviewer struct {
	client.Writer
	allows []string
	fails  string // the name that it cannot answer
	asked  []string
}

func (r *reviewer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	review := o.(*authorizationv1.SubjectAccessReview)
	name := review.Spec.ResourceAttributes.Name
	r.asked = append(r.asked, name)
	if name == r.fails {
		return errors.New("no answer")
	}
	review.Status.Allowed = slices.Contains(r.allows, name)
	return nil
}

func TestMayOverride(t *testing.T) {
	const none = "-"
	for name, tc := range map[string]struct {
		why      string
		policies []string
		reviewer reviewer
		asked    []string
		missing  string // part of the answer; empty: may override
	}{
		"no policy":       {"there is nothing to ask", nil, reviewer{fails: none}, nil, ""},
		"all":             {"who may override every policy is asked about once", []string{"a", "b", "c"}, reviewer{allows: []string{""}, fails: none}, []string{""}, ""},
		"each":            {"the right may be on single policies", []string{"a", "b"}, reviewer{allows: []string{"a", "b"}, fails: none}, []string{"", "a", "b"}, ""},
		"one":             {"one policy takes one question", []string{"a"}, reviewer{allows: []string{"a"}, fails: none}, []string{"a"}, ""},
		"none of many":    {"the first refusal is enough", []string{"a", "b", "c"}, reviewer{fails: none}, []string{"", "a"}, `user "dev" may not override StoragePolicy "a"`},
		"the second":      {"every one is needed", []string{"a", "b"}, reviewer{allows: []string{"a"}, fails: none}, []string{"", "a", "b"}, `may not override StoragePolicy "b"`},
		"no answer":       {"what cannot be asked is refused: the annotation would stay", []string{"a"}, reviewer{fails: "a"}, []string{"a"}, `StoragePolicy "a" cannot be asked now, try again: no answer`},
		"no answer, many": {"likewise", []string{"a", "b"}, reviewer{fails: ""}, []string{""}, "cannot be asked now, try again"},
	} {
		t.Run(name, func(t *testing.T) {
			missing := Authorizer{Client: &tc.reviewer}.MayOverride(t.Context(), authenticationv1.UserInfo{Username: "dev"}, tc.policies)
			if (missing == "") != (tc.missing == "") || !strings.Contains(missing, tc.missing) {
				t.Errorf("%s: answered %q, want %q", tc.why, missing, tc.missing)
			}
			if diff := cmp.Diff(tc.asked, tc.reviewer.asked); diff != "" {
				t.Errorf("%s: asked about (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}
