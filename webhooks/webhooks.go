// Package webhooks puts the judges of all kinds under their paths. The rules
// are in the packages below, one a kind; config/webhook names the paths.
package webhooks

import (
	"net/http"

	"github.com/go-logr/logr"

	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/namespace"
	"github.com/holdfast-dev/holdfast/webhooks/snapshot"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
	"github.com/holdfast-dev/holdfast/webhooks/storageclass"
	"github.com/holdfast-dev/holdfast/webhooks/storagepolicy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Handlers are the judges by path.
func Handlers(log logr.Logger, w *world.World, a world.Authorizer, r admit.Reporter) map[string]http.Handler {
	claims := &claim.Webhook{World: w, Authorizer: a}
	sets := &statefulset.Webhook{World: w}
	handlers := map[string]http.Handler{}
	for path, judge := range map[string]admit.Judge{
		"/validate/claims":          claims.Validate,
		"/default/claims":           claims.Default,
		"/validate/statefulsets":    sets.Validate,
		"/default/statefulsets":     sets.Default,
		"/validate/storageclasses":  (&storageclass.Webhook{World: w}).Validate,
		"/validate/volumesnapshots": (&snapshot.Webhook{World: w, Authorizer: a}).Validate,
		"/validate/namespaces":      (&namespace.Webhook{World: w, Authorizer: a}).Validate,
		"/validate/storagepolicies": (&storagepolicy.Webhook{World: w}).Validate,
	} {
		handlers[path] = admit.Handler(log.WithName(path), judge, r)
	}
	return handlers
}
