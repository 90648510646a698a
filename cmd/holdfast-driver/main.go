// Command holdfast-driver is the CSI driver for Amazon EBS: its controller half
// runs once a cluster, its node half on every node.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/holdfast-dev/holdfast/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-driver:", err)
		os.Exit(1)
	}
}

// newRootCommand is the command line. The subcommands find their logger in
// their context.
func newRootCommand() *cobra.Command {
	verbosity := 0
	root := &cobra.Command{
		Use:   "holdfast-driver",
		Short: "CSI driver for Amazon EBS",
		Long: `holdfast-driver is a CSI driver for Amazon EBS, a drop-in for ebs.csi.aws.com.
"controller" creates, attaches, grows and snapshots volumes through the EC2 API,
beside the CSI sidecars; "node" finds, formats and mounts them, on every node;
"pre-stop" waits for a drained node's volumes before "node" is stopped.`,
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(verbosity)
			if err != nil {
				return err
			}
			cmd.SetContext(logr.NewContext(cmd.Context(), log))
			return nil
		},
	}
	root.PersistentFlags().IntVarP(&verbosity, "v", "v", 0, "how much is logged: 0 what happens to volumes, 1 every request too")
	root.AddCommand(newControllerCommand(), newNodeCommand(), newPreStopCommand())
	return root
}

// newLogger logs as Kubernetes' own components do. Libraries that know only
// klog's global logger, such as k8s.io/mount-utils, write to the same.
func newLogger(verbosity int) (logr.Logger, error) {
	if verbosity < 0 {
		return logr.Logger{}, fmt.Errorf("-v is %s: use 0 or 1", strconv.Itoa(verbosity))
	}
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity), textlogger.Output(os.Stderr)))
	klog.SetLogger(log)
	return log, nil
}
