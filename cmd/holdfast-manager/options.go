package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
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
	verbosity      int
}

func (o *options) register(f *pflag.FlagSet) {
	f.StringVar(&o.namespace, "namespace", "holdfast-system", "namespace of the manager: its lease and the Secret of its certificates")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; empty: KUBECONFIG, or the Pod's service account")
	f.StringVar(&o.webhookAddress, "webhook-address", ":9443", "address on which the API server's questions are answered")
	f.StringVar(&o.webhookService, "webhook-service", "holdfast-webhook", "name of the Service in front of it, for which certificates are made")
	f.StringVar(&o.webhookConfig, "webhook-configuration", "holdfast", "name of the webhook configurations, which are told whom to trust")
	f.StringVar(&o.certDir, "webhook-cert-dir", "", "folder with tls.crt and tls.key made by somebody else, such as cert-manager; empty: the manager makes and rotates them")
	f.StringVar(&o.healthAddress, "health-address", ":9811", "address of the health checks /healthz (alive) and /readyz (informers are synced, there is a certificate); empty: none")
	f.StringVar(&o.metricsAddress, "metrics-address", ":9812", "address of /metrics for Prometheus over TLS; readers need the right to get /metrics; empty: none")
	f.BoolVar(&o.leaderElection, "leader-election", true, "agree with other replicas on one that audits and writes; off only where there is one")
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
