package admit

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Recorder counts findings and tells them as events on their policies.
type Recorder struct {
	events    events.EventRecorder
	decisions *prometheus.CounterVec
}

// NewRecorder makes a recorder and registers its metric.
func NewRecorder(e events.EventRecorder, registry prometheus.Registerer) *Recorder {
	r := &Recorder{events: e, decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_policy_decisions_total",
		Help: "Findings of admission by policy, rule and action (Deny, Warn, Audit); dry runs are not counted.",
	}, []string{"policy", "rule", "action"})}
	registry.MustRegister(r.decisions)
	return r
}

// maxNote is the longest note of an event that the API takes.
const maxNote = 1024

// Report counts findings and tells each as an event on its policy: the object
// may not exist, or may be refused.
func (r *Recorder) Report(req *Request, findings []policy.Finding) {
	subject := req.Kind.Kind + " " + strings.TrimPrefix(req.Namespace+"/"+nameOf(req), "/")
	for _, f := range findings {
		r.decisions.WithLabelValues(f.Policy, string(f.Rule), string(f.Action)).Inc()
		note := subject + " by " + req.UserInfo.Username + ": " + f.Message()
		r.events.Eventf(onPolicy(f.Policy, f.UID), nil, eventType(f.Action), reasons[f.Action], string(req.Operation), "%s", note[:min(len(note), maxNote)])
	}
}

func nameOf(req *Request) string {
	if req.Name == "" {
		return "(name to be generated)"
	}
	return req.Name
}

var reasons = map[v1alpha1.Action]string{v1alpha1.Deny: "Denied", v1alpha1.Warn: "Warned", v1alpha1.Audit: "Audited"}

func eventType(a v1alpha1.Action) string {
	if a == v1alpha1.Audit {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// onPolicy is the policy as far as an event needs it.
func onPolicy(name string, uid types.UID) runtime.Object {
	p := &v1alpha1.StoragePolicy{}
	p.APIVersion, p.Kind = v1alpha1.GroupVersion.String(), "StoragePolicy"
	p.Name, p.UID = name, uid
	return p
}
