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
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/audit"
	"github.com/holdfast-dev/holdfast/controllers/declared"
	"github.com/holdfast-dev/holdfast/controllers/diagnosis"
	"github.com/holdfast-dev/holdfast/controllers/expansion"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
	"github.com/holdfast-dev/holdfast/controllers/modification"
	"github.com/holdfast-dev/holdfast/controllers/orphan"
	"github.com/holdfast-dev/holdfast/controllers/policyschedule"
	"github.com/holdfast-dev/holdfast/controllers/retention"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/controllers/stamp"
	"github.com/holdfast-dev/holdfast/controllers/template"
	"github.com/holdfast-dev/holdfast/internal/certs"
	"github.com/holdfast-dev/holdfast/internal/gate"
	"github.com/holdfast-dev/holdfast/internal/slim"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// certificateSecret is the Secret that the webhooks' certificates are kept in.
const certificateSecret = "holdfast-webhook-certificates"

// leaseName is the lease of the leading replica.
const leaseName = "holdfast-manager"

// run serves until ctx ends, and for leaveWithin more.
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
	var leaves leaver
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        newScheme(),
		Logger:                        logr.FromContextOrDiscard(ctx),
		Cache:                         cacheOptions(),
		Metrics:                       metricsOptions(o.metricsAddress),
		HealthProbeBindAddress:        orNone(o.healthAddress),
		LeaderElection:                o.leaderElection,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends right after
		WebhookServer: leaves.serving(webhook.NewServer(webhook.Options{
			Host: host, Port: port, CertDir: o.certDir, TLSOpts: []func(*tls.Config){serving},
		})),
	})
	if err != nil {
		return fmt.Errorf("reach the API server at %s: %w", cfg.Host, err)
	}
	if o.certDir == "" {
		if store, err = keepCertificates(mgr, o); err != nil {
			return err
		}
	}
	if err := addWork(ctx, mgr, o); err != nil {
		return err
	}
	if err := addChecks(mgr, store, &leaves); err != nil {
		return err
	}
	lasting, end := leaves.lasting(ctx, leaveWithin)
	defer end()
	if err := mgr.Start(lasting); err != nil {
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
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, groupsnapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // types that contradict each other: a fault of the build
		}
	}
	return scheme
}

// cacheOptions says what of the objects the informers hold. See package slim for
// what that asks of those who read them.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: slimmed,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.PersistentVolumeClaim{}: {Transform: slim.Claim},
			&corev1.PersistentVolume{}:      {Transform: schedule.SlimVolume},
			&corev1.Node{}:                  {Transform: expansion.SlimNode},
			&storagev1.VolumeAttachment{}:   {Transform: expansion.SlimAttachment},
			&corev1.Pod{}:                   {Transform: orphan.SlimPod},
		},
	}
}

// slimmed is the transform of kinds that have none of their own. Snapshots are
// among these: the cache takes it that the cluster has the kinds that it is given
// options for, and theirs may be installed later.
func slimmed(o any) (any, error) {
	if s, is := o.(*snapshotv1.VolumeSnapshot); is {
		return snapshots.Slim(s)
	}
	return cache.TransformStripManagedFields()(o)
}

func metricsOptions(address string) metricsserver.Options {
	if address == "" {
		return metricsserver.Options{BindAddress: "0"}
	}
	return metricsserver.Options{BindAddress: address, SecureServing: true, FilterProvider: gate.Provide}
}

// orNone is controller-runtime's word for no address.
func orNone(address string) string {
	if address == "" {
		return "0"
	}
	return address
}

// keepCertificates makes this replica serve what the Secret says, and keep it
// where it leads.
func keepCertificates(mgr ctrl.Manager, o options) (*certs.Store, error) {
	host := o.webhookService + "." + o.namespace + ".svc"
	options := certs.Options{
		Secret:        types.NamespacedName{Namespace: o.namespace, Name: certificateSecret},
		Names:         []string{host, host + ".cluster.local", o.webhookService + "." + o.namespace},
		Configuration: o.webhookConfig,
		Elected:       mgr.Elected(),
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
func addWork(ctx context.Context, mgr ctrl.Manager, o options) error {
	kinds, err := snapshots.New(ctx, mgr, metrics.Registry)
	if err != nil {
		return err
	}
	w := world.Of(mgr, kinds.Index())
	templates := template.New(template.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), World: w, Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{},
		Namespace: o.namespace, Recreate: o.enableRecreate, Registry: metrics.Registry,
	})
	orphans := orphan.New(orphan.Options{
		Client: mgr.GetClient(), World: w, Kinds: kinds, Remade: templates.Remade, Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{}, Registry: metrics.Registry,
	})
	auditor := audit.New(mgr.GetClient(), w, clock.RealClock{}, metrics.Registry)
	auditor.Orphan = orphans.Told
	doctor := diagnosis.New(diagnosis.Options{
		World: w, Kinds: kinds, Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{}, Registry: metrics.Registry,
	})
	stamps := &stamp.Reconciler{Client: mgr.GetClient(), Events: mgr.GetEventRecorder("holdfast")}
	runner, err := addHooks(mgr, o)
	if err != nil {
		return err
	}
	schedules := schedule.New(mgr, schedule.Options{Kinds: kinds, Hooks: runner, Clock: clock.RealClock{}, Limits: schedule.DefaultLimits(), Registry: metrics.Registry})
	given := &policyschedule.Reconciler{Client: mgr.GetClient(), World: w, Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{}}
	usage, err := o.usageReader(mgr.GetConfig())
	if err != nil {
		return err
	}
	grower := expansion.New(mgr, expansion.Options{World: w, Usage: usage, Clock: clock.RealClock{}, Registry: metrics.Registry, Every: o.usageInterval})
	sizes := declared.New(declared.Options{
		Client: mgr.GetClient(), World: w, Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{},
	})
	return errors.Join(
		webhooks.Add(mgr, w, metrics.Registry, o.enableHooks),
		auditor.Watch(context.Background(), mgr.GetCache()),
		mgr.Add(auditor),
		orphans.Watch(context.Background(), mgr.GetCache()),
		mgr.Add(orphans),
		doctor.Watch(context.Background(), mgr.GetCache()),
		mgr.Add(doctor),
		mgr.Add(modification.New(modification.Options{Client: mgr.GetClient(), World: w, Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{}})),
		stamps.Add(mgr),
		retention.Add(mgr, kinds, clock.RealClock{}, metrics.Registry),
		schedules.Add(mgr),
		given.Add(mgr),
		mgr.Add(grower),
		templates.Add(mgr),
		sizes.Add(mgr),
	)
}

// addHooks adds what runs hooks; nil: they are not enabled.
func addHooks(mgr ctrl.Manager, o options) (*hooks.Runner, error) {
	if !o.enableHooks {
		return nil, nil
	}
	exec, err := hooks.NewExec(mgr.GetConfig(), mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	runner := hooks.NewRunner(hooks.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Run: exec.Run, Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{}, Namespace: o.namespace, Registry: metrics.Registry,
	})
	return runner, mgr.Add(runner)
}

// syncWithin bounds how long a readiness check waits for the informers.
const syncWithin = time.Second

// addChecks says when this replica lives and when it can answer.
func addChecks(mgr ctrl.Manager, store *certs.Store, leaves *leaver) error {
	ready := func(req *http.Request) error {
		if leaves.leaving.Load() {
			return errors.New("it was told to stop")
		}
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
