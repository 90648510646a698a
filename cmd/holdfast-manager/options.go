package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/holdfast-dev/holdfast/internal/usage"
)

// options are the flags.
type options struct {
	namespace      string
	kubeconfig     string
	webhookAddress string
	webhookService string
	webhookConfig  string
	certDir        string
	healthAddress  string
	metricsAddress string
	leaderElection bool
	enableHooks    bool
	usageInterval  time.Duration
	kubelets       usage.KubeletOptions
	prometheusURL  string
	enableRecreate bool
	verbosity      int
}

func (o *options) register(f *pflag.FlagSet) {
	f.StringVar(&o.namespace, "namespace", "holdfast-system", "namespace of the manager: its lease, the Secret of its certificates and the ServiceAccount holdfast-usage, whose tokens kubelets are shown")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; empty: KUBECONFIG, or the Pod's service account")
	f.StringVar(&o.webhookAddress, "webhook-address", ":9443", "address on which the API server's questions are answered")
	f.StringVar(&o.webhookService, "webhook-service", "holdfast-webhook", "name of the Service in front of it, for which certificates are made")
	f.StringVar(&o.webhookConfig, "webhook-configuration", "holdfast", "name of the webhook configurations, which are told whom to trust")
	f.StringVar(&o.certDir, "webhook-cert-dir", "", "folder with tls.crt and tls.key made by somebody else, such as cert-manager; empty: the manager makes and rotates them")
	f.StringVar(&o.healthAddress, "health-address", ":9811", "address of the health checks /healthz (alive) and /readyz (informers are synced, there is a certificate); empty: none")
	f.StringVar(&o.metricsAddress, "metrics-address", ":9812", "address of /metrics for Prometheus over TLS; readers need the right to get /metrics; empty: none")
	f.BoolVar(&o.leaderElection, "leader-election", true, "agree with other replicas on one that audits and writes; off only where there is one")
	f.BoolVar(&o.enableHooks, "enable-hooks", false, "run the hooks of SnapshotSchedules in Pods, which takes the rights of config/components/hooks; off: a schedule with hooks is refused, and one that is stored copies nothing")
	f.DurationVar(&o.usageInterval, "usage-interval", time.Minute, "time between two looks at how full the claims under an expansion are; each asks every node that has one of them once")
	f.StringVar(&o.kubelets.CertificateAuthority, "kubelet-certificate-authority", "", "file with the certificates that sign those of kubelets, which are asked how full volumes are; empty: the one that signs the API server's")
	f.BoolVar(&o.kubelets.SkipVerify, "kubelet-insecure-tls", false, "do not verify the certificates of kubelets: whoever answers at a node's address learns a token that for ten minutes reads the metrics of kubelets")
	f.StringVar(&o.prometheusURL, "prometheus-url", "", "address of a Prometheus that scrapes kubelets, such as http://prometheus.monitoring:9090, asked about the volumes of nodes that do not answer; empty: none")
	f.BoolVar(&o.enableRecreate, "enable-statefulset-recreate", false, "make StatefulSets anew where a policy's expansion.statefulSetTemplate is Recreate, which takes the rights of config/components/statefulset-recreate; off: that it would be done is told by events")
	f.IntVarP(&o.verbosity, "v", "v", 0, "how much is logged: 0 what the manager does, 1 every decision too")
}

// webhookHostPort splits --webhook-address.
func (o *options) webhookHostPort() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(o.webhookAddress)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err == nil && (port < 1 || port > 65535) {
		err = errors.New("ports are 1 to 65535")
	}
	if err != nil {
		return "", 0, fmt.Errorf("--webhook-address is %q, want host:port or :port: %w", o.webhookAddress, err)
	}
	return host, port, nil
}

// leastInterval is the shortest --usage-interval: kubelet itself looks no more
// often than every second (volumeStatsAggPeriod, by default a minute).
const leastInterval = time.Second

// usageReader is what tells how full claims are.
func (o *options) usageReader(cfg *rest.Config) (*usage.Reader, error) {
	if o.usageInterval < leastInterval {
		return nil, fmt.Errorf("--usage-interval is %v, want at least %v", o.usageInterval, leastInterval)
	}
	u := usage.Options{Config: cfg, Namespace: o.namespace, Kubelet: o.kubelets, Clock: clock.RealClock{}, Registry: metrics.Registry}
	if o.prometheusURL != "" {
		p, err := usage.NewPrometheus(o.prometheusURL)
		if err != nil {
			return nil, fmt.Errorf("--prometheus-url: %w", err)
		}
		u.Prometheus = p
	}
	return usage.New(u)
}
