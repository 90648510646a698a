package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	os.Exit(tell(os.Stderr, err))
}

// exitCode is the error of a command that has used our own streams, and so has
// said itself what went wrong. It becomes the code that we end with.
type exitCode int

// Error implements error.
func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// asOurs has us end as the command in a node did, without a word of our own. Other
// errors stay what they are.
func asOurs(err error) error {
	var failed *sandbox.ExitError
	if errors.As(err, &failed) {
		return exitCode(failed.Code)
	}
	return err
}

// tell says what went wrong, unless a command has said it, and returns the code to
// end with.
func tell(w io.Writer, err error) int {
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(w, "sandbox:", err)
	return 1
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
