// Package webhooks puts the judges of all kinds under their paths. The rules
// are in the packages below, one a kind; config/webhook names the paths.
package webhooks

import (
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/namespace"
	"github.com/holdfast-dev/holdfast/webhooks/snapshot"
	"github.com/holdfast-dev/holdfast/webhooks/snapshotschedule"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
	"github.com/holdfast-dev/holdfast/webhooks/storageclass"
	"github.com/holdfast-dev/holdfast/webhooks/storagepolicy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Add serves the judges on a manager's webhook server and registers their
// metrics. hooks says whether the install runs hooks of SnapshotSchedules.
func Add(mgr ctrl.Manager, w *world.World, registry prometheus.Registerer, hooks bool) error {
	recorder := admit.NewRecorder(mgr.GetEventRecorder("holdfast"), registry)
	for path, handler := range handlers(mgr.GetLogger(), w, world.Authorizer{Client: mgr.GetClient()}, recorder, hooks) {
		mgr.GetWebhookServer().Register(path, handler)
	}
	return w.Watch(mgr.GetCache())
}

// handlers are the judges by path.
func handlers(log logr.Logger, w *world.World, a world.Authorizer, r admit.Reporter, hooks bool) map[string]http.Handler {
	claims := &claim.Webhook{World: w, Authorizer: a, SizeOf: statefulset.SizeOf}
	copies := &snapshot.Webhook{World: w, Authorizer: a}
	byPath := map[string]http.Handler{}
	for path, judge := range map[string]admit.Judge{
		"/validate/claims":               claims.Validate,
		"/default/claims":                claims.Default,
		"/validate/statefulsets":         (&statefulset.Webhook{World: w}).Validate,
		"/validate/storageclasses":       (&storageclass.Webhook{World: w}).Validate,
		"/validate/volumesnapshots":      copies.Validate,
		"/validate/volumegroupsnapshots": copies.ValidateGroup,
		"/validate/namespaces":           (&namespace.Webhook{World: w, Authorizer: a}).Validate,
		"/validate/storagepolicies":      (&storagepolicy.Webhook{World: w}).Validate,
		"/validate/snapshotschedules":    (&snapshotschedule.Webhook{World: w, Authorizer: a, Hooks: hooks}).Validate,
	} {
		byPath[path] = admit.Handler(log.WithName(path), judge, r)
	}
	return byPath
}
