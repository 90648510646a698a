package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/audit"
	"github.com/holdfast-dev/holdfast/controllers/stamp"
	"github.com/holdfast-dev/holdfast/internal/certs"
	"github.com/holdfast-dev/holdfast/webhooks"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// certificateSecret is the Secret that the webhooks' certificates are kept in.
const certificateSecret = "holdfast-webhook-certificates"

// leaseName is the lease of the leading replica.
const leaseName = "holdfast-manager"

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	host, port, err := o.webhookHostPort()
	if err != nil {
		return err
	}
	cfg, err := loadConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	var store *certs.Store // set below; the server asks it once it runs
	serving := func(c *tls.Config) {
		if o.certDir == "" {
			c.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return store.GetCertificate(h) }
		}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        newScheme(),
		Logger:                        logr.FromContextOrDiscard(ctx),
		Cache:                         cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                       metricsOptions(o.metricsAddress),
		HealthProbeBindAddress:        orNone(o.healthAddress),
		LeaderElection:                o.leaderElection,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends right after
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: host, Port: port, CertDir: o.certDir, TLSOpts: []func(*tls.Config){serving},
		}),
	})
	if err != nil {
		return fmt.Errorf("reach the API server at %s: %w", cfg.Host, err)
	}
	if o.certDir == "" {
		if store, err = keepCertificates(mgr, o); err != nil {
			return err
		}
	}
	if err := addWork(mgr); err != nil {
		return err
	}
	if err := addChecks(mgr, store); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

func loadConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find out how to reach the API server: %w", err)
	}
	// The API server's own priority and fairness is what holds us back.
	cfg.QPS = -1
	return cfg, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // types that contradict each other: a fault of the build
		}
	}
	return scheme
}

func metricsOptions(address string) metricsserver.Options {
	if address == "" {
		return metricsserver.Options{BindAddress: "0"}
	}
	return metricsserver.Options{BindAddress: address, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization}
}

// orNone is controller-runtime's word for no address.
func orNone(address string) string {
	if address == "" {
		return "0"
	}
	return address
}

// keepCertificates makes this replica serve what the Secret says, and the
// leader keep it.
func keepCertificates(mgr ctrl.Manager, o options) (*certs.Store, error) {
	host := o.webhookService + "." + o.namespace + ".svc"
	options := certs.Options{
		Secret:        types.NamespacedName{Namespace: o.namespace, Name: certificateSecret},
		Names:         []string{host, host + ".cluster.local", o.webhookService + "." + o.namespace},
		Configuration: o.webhookConfig,
	}
	store := certs.NewStore(mgr.GetAPIReader(), options)
	metrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_webhook_certificate_expiry_timestamp_seconds",
		Help: "When the certificate ends that this replica serves; 0: it has none.",
	}, func() float64 {
		if end := store.Expiry(); !end.IsZero() {
			return float64(end.Unix())
		}
		return 0
	}))
	return store, errors.Join(mgr.Add(store), mgr.Add(certs.NewRotator(mgr.GetClient(), mgr.GetAPIReader(), options)))
}

// addWork adds the webhooks and the leader's work.
func addWork(mgr ctrl.Manager) error {
	w := world.Of(mgr)
	stamps := &stamp.Reconciler{Client: mgr.GetClient(), Events: mgr.GetEventRecorder("holdfast")}
	return errors.Join(
		webhooks.Add(mgr, w, metrics.Registry),
		mgr.Add(audit.New(mgr.GetClient(), w, clock.RealClock{}, metrics.Registry)),
		stamps.Add(mgr),
	)
}

// syncWithin bounds how long a readiness check waits for the informers.
const syncWithin = time.Second

// addChecks says when this replica lives and when it can answer.
func addChecks(mgr ctrl.Manager, store *certs.Store) error {
	ready := func(req *http.Request) error {
		if store != nil {
			if err := store.Ready(); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(req.Context(), syncWithin)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the informers are not synced yet")
		}
		return mgr.GetWebhookServer().StartedChecker()(req)
	}
	return errors.Join(
		mgr.AddHealthzCheck("alive", func(*http.Request) error { return nil }),
		mgr.AddReadyzCheck("ready", ready),
	)
}
