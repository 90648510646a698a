package storagepolicy

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-dev/holdfast/webhooks/admit"
)

// TestUnreadableIsRefused: a policy that cannot be read is refused, which an
// error would not do where the webhook fails open.
func TestUnreadableIsRefused(t *testing.T) {
	for _, spec := range []string{`{"guardrails":{"claim":{"maxSize":"1e1.5"}}}`, `{"priority":"high"}`, `{"exemptions":[{"until":"tomorrow"}]}`} {
		req := &admit.Request{Name: "p", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"spec":` + spec + `}`)}}
		answer, err := (&Webhook{}).Validate(t.Context(), req)
		if err != nil || !strings.Contains(answer.Forbidden, `StoragePolicy "p" cannot be read`) {
			t.Errorf("%s: answered %+v, %v", spec, answer, err)
		}
	}
}
