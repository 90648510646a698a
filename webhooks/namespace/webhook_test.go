package namespace

import (
	"testing"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// TestDeniedIsNotPushedOut: a claim that must stay counts also where many others
// come before it that are only audited, or warned of.
func TestDeniedIsNotPushedOut(t *testing.T) {
	var found some
	for range 2 * listed {
		found.add([]policy.Finding{{Action: v1alpha1.Audit}, {Action: v1alpha1.Warn}})
	}
	found.add([]policy.Finding{{Action: v1alpha1.Deny}})
	v, more := policy.Judge(found.findings), found.more
	if len(v.Denied) != 1 || len(v.Audited) != listed || len(v.Warned) != listed || more != 2*listed {
		t.Errorf("%d denied, %d warned, %d audited are told and %d more; want 1, %d, %d and %d", len(v.Denied), len(v.Warned), len(v.Audited), more, listed, listed, 2*listed)
	}
}
