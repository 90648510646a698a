package admit

import (
	"cmp"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// How many findings are told as events: of each policy, and in all. Whoever is
// refused may try under ever new names, each an event of its own that the API
// server keeps for an hour and client-go for some minutes; fifty policies with
// ten refusals a second would fill hundreds of MiB. The metric counts them all.
const (
	toldOfPolicy      = 10 // at once
	toldOfPolicyEvery = 10 * time.Second
	toldInAll         = 200 // at once
	toldInAllEvery    = time.Second / 20
)

// Recorder counts findings and tells them as events on their policies, as far as
// they are not too many. That a policy was overridden is always told.
type Recorder struct {
	events    events.EventRecorder
	decisions *prometheus.CounterVec

	inAll    *rate.Limiter
	mu       sync.Mutex
	ofPolicy map[string]*rate.Limiter // by name
}

// NewRecorder makes a recorder and registers its metric.
func NewRecorder(e events.EventRecorder, registry prometheus.Registerer) *Recorder {
	r := &Recorder{events: e, inAll: rate.NewLimiter(rate.Every(toldInAllEvery), toldInAll), ofPolicy: map[string]*rate.Limiter{}, decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_policy_decisions_total",
		Help: "Findings of admission by policy, rule and action (Deny, Warn, Audit, or Overridden by who may); dry runs are not counted.",
	}, []string{"policy", "rule", "action"})}
	registry.MustRegister(r.decisions)
	return r
}

// maxNote is the longest note of an event that the API takes.
const maxNote = 1024

// tells says whether a finding is told as an event.
func (r *Recorder) tells(f policy.Finding) bool {
	if f.Action == policy.Overridden {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := r.ofPolicy[f.Policy]
	if mine == nil {
		mine = rate.NewLimiter(rate.Every(toldOfPolicyEvery), toldOfPolicy)
		r.ofPolicy[f.Policy] = mine
	}
	return mine.Allow() && r.inAll.Allow()
}

// Report counts findings and tells them as events on their policies: the object
// may not exist, or may be refused. Client-go counts events alike instead of
// writing them, and looks at everything but the note: so the event names the
// object as related, and the operation with the rule as its action.
func (r *Recorder) Report(req *Request, findings []policy.Finding) {
	name := nameOf(req)
	subject := req.Kind.Kind + " " + strings.TrimPrefix(req.Namespace+"/"+cmp.Or(name, "(name to be generated)"), "/")
	object := &corev1.ObjectReference{
		APIVersion: schema.GroupVersion{Group: req.Kind.Group, Version: req.Kind.Version}.String(),
		Kind:       req.Kind.Kind, Namespace: req.Namespace, Name: name,
	}
	for _, f := range findings {
		r.decisions.WithLabelValues(f.Policy, string(f.Rule), string(f.Action)).Inc()
		if !r.tells(f) {
			continue
		}
		note := subject + " by " + req.UserInfo.Username + ": " + f.Message()
		r.events.Eventf(onPolicy(f.Policy, f.UID), object, eventType(f.Action), reasons[f.Action], string(req.Operation)+" "+string(f.Rule), "%s", policy.Short(note, maxNote))
	}
}

// nameOf is the name of the object; "" where it is not known yet. A deletion of
// a collection names it in the object alone.
func nameOf(req *Request) string {
	if req.Name != "" {
		return req.Name
	}
	raw := req.Object.Raw
	if req.Operation == admissionv1.Delete {
		raw = req.OldObject.Raw
	}
	o := metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, &o); err != nil {
		return "" // the judge has read it; what is only told is not worth an error
	}
	return o.Name
}

var reasons = map[v1alpha1.Action]string{v1alpha1.Deny: "Denied", v1alpha1.Warn: "Warned", v1alpha1.Audit: "Audited", policy.Overridden: "Overridden"}

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
