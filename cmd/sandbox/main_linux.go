package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newRootCommand().ExecuteContext(ctx)
	var failed *sandbox.ExitError
	switch {
	case err == nil:
	case errors.As(err, &failed):
		os.Exit(failed.Code)
	default:
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

// which says which sandbox a command is about.
type which struct {
	name string
	dir  string
}

func (w *which) open() (*sandbox.Sandbox, error) { return sandbox.OpenAt(w.name, w.dir) }

func newRootCommand() *cobra.Command {
	w := &which{}
	root := &cobra.Command{
		Use:   "sandbox",
		Short: "A whole Kubernetes on this machine, with a simulated EC2 for its disks",
		Long: `A whole Kubernetes on this machine, with a simulated EC2 for its disks.

The control plane, kubelets, containerd and CSI sidecars are the real ones, built
from their Go modules. Three nodes in two zones (node-a1, node-a2 in us-east-1a,
node-b1 in us-east-1b) live in namespaces: nothing is installed on the machine, and
"down" leaves nothing behind, whatever became of the sandbox.`,
		Example: `  sudo sandbox up
  export KUBECONFIG=$(sudo sandbox kubeconfig)
  kubectl get nodes
  sudo sandbox exec node-a1 -- findmnt /var/lib/kubelet
  sudo sandbox down`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&w.name, "name", sandbox.DefaultName, "which sandbox; several can run side by side")
	root.PersistentFlags().StringVar(&w.dir, "dir", "", "folder for all its state (default "+sandbox.DefaultParent+"/<name>)")
	root.AddCommand(
		newUpCommand(w), newDownCommand(w), newStatusCommand(w), newKubeconfigCommand(w),
		newLoadImageCommand(w), newExecCommand(w), newBuildCommand(),
		newInitCommand(), newForwardCommand(),
	)
	return root
}
