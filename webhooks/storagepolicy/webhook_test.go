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

// TestWhatIsStoredStaysEditable: a policy that is not good slipped through while
// no manager answered, or was good to the last release. Its labels can be changed,
// and where it is being deleted its finalizers come off.
func TestWhatIsStoredStaysEditable(t *testing.T) {
	const (
		bad        = `"spec":{"match":{"claimSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}}`
		unreadable = `"spec":{"exemptions":[{"until":"tomorrow"}]}`
		deleting   = `"deletionTimestamp":"2027-01-31T00:00:00Z"`
	)
	for name, tc := range map[string]struct {
		old, now string
		refused  bool
	}{
		"a label":                          {`{"metadata":{},` + bad + `}`, `{"metadata":{"labels":{"a":"b"}},` + bad + `}`, false},
		"a label, of one unreadable":       {`{"metadata":{},` + unreadable + `}`, `{"metadata":{"labels":{"a":"b"}},` + unreadable + `}`, false},
		"a finalizer, of one unreadable":   {`{"metadata":{"finalizers":["x/y"],` + deleting + `},` + unreadable + `}`, `{"metadata":{` + deleting + `},` + unreadable + `}`, false},
		"another spec while it is deleted": {`{"metadata":{` + deleting + `},"spec":{}}`, `{"metadata":{` + deleting + `},` + bad + `}`, false},
		"another bad spec":                 {`{"metadata":{},"spec":{}}`, `{"metadata":{},` + bad + `}`, true},
		"an unreadable one for a bad one":  {`{"metadata":{},` + bad + `}`, `{"metadata":{},` + unreadable + `}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			req := &admit.Request{
				Name: "p", Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: []byte(tc.now)}, OldObject: runtime.RawExtension{Raw: []byte(tc.old)},
			}
			answer, err := (&Webhook{}).Validate(t.Context(), req)
			if err != nil || (answer.Forbidden != "") != tc.refused {
				t.Errorf("answered %+v, %v; want refused: %v", answer, err, tc.refused)
			}
		})
	}
}
