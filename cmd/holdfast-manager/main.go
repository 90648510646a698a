// Command holdfast-manager holds a cluster to its StoragePolicies.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/holdfast-dev/holdfast/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-manager:", err)
		os.Exit(1)
	}
}

// newCommand is the command line.
func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "holdfast-manager",
		Short: "Hold a cluster to its StoragePolicies",
		Long: `holdfast-manager judges claims, classes, StatefulSets, snapshots and deletions by
the StoragePolicies of the cluster: at admission through its webhooks, and in the
background for what exists already.

Several may run at once: all serve the webhooks, one of them, the leader, audits,
writes status and keeps the webhooks' certificates. It finds the cluster as
kubectl does: --kubeconfig, KUBECONFIG, or the service account of its Pod.`,
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(o.verbosity)
			if err != nil {
				return err
			}
			return run(logr.NewContext(cmd.Context(), log), o)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

// newLogger logs as Kubernetes' own components do, libraries included.
func newLogger(verbosity int) (logr.Logger, error) {
	if verbosity < 0 {
		return logr.Logger{}, fmt.Errorf("-v is %d: use 0 or 1", verbosity)
	}
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity), textlogger.Output(os.Stderr)))
	klog.SetLogger(log)
	ctrl.SetLogger(log)
	return log, nil
}
