package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/driver"
	"github.com/holdfast-dev/holdfast/internal/kube"
)

// nodeNameVariable holds the name of the node, by the Pod's fieldRef spec.nodeName.
const nodeNameVariable = "NODE_NAME"

// preStopTime is how long pre-stop waits: less than the Pod's termination grace
// period by what a stopping server may need, since kubelet counts both.
const preStopTime = 60 * time.Second

// preStopFlags are the flags of the pre-stop subcommand.
type preStopFlags struct {
	driverName string
	nodeName   string
	timeout    time.Duration
}

// newPreStopCommand returns the command that the node half's Pod runs before it
// is stopped.
func newPreStopCommand() *cobra.Command {
	var f preStopFlags
	cmd := &cobra.Command{
		Use:   "pre-stop",
		Short: "Wait until the volumes of a node that is being drained are detached",
		Long: `Run by kubelet before it stops the node half (lifecycle.preStop). If the node is
being drained or is gone, it waits until none of the driver's VolumeAttachments is
left on it, as nobody could unmount the volumes afterwards. Otherwise, as when the
driver is updated, it returns at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runPreStop(cmd.Context(), f, logr.FromContextOrDiscard(cmd.Context()))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.driverName, "driver-name", driver.DefaultName, "name of the driver, as in the CSIDriver object")
	addNodeName(cmd, &f.nodeName)
	flags.DurationVar(&f.timeout, "timeout", preStopTime, "how long it waits; shorter than the Pod's terminationGracePeriodSeconds")
	return cmd
}

// addNodeName adds the flag that names the node.
func addNodeName(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "node-name", "", "name of this Node in the API server; empty: what the environment variable "+nodeNameVariable+" says")
}

// orNodeName is the name of the node by flag or environment.
func orNodeName(flag string) string {
	if flag != "" {
		return flag
	}
	return os.Getenv(nodeNameVariable)
}

// runPreStop waits, for the flags' time at most.
func runPreStop(ctx context.Context, f preStopFlags, log logr.Logger) error {
	name := orNodeName(f.nodeName)
	switch {
	case name == "":
		return errors.New("the node's name is unknown: set --node-name, or " + nodeNameVariable + " in the environment")
	case f.timeout <= 0:
		return fmt.Errorf("--timeout is %s: use a time above 0, such as %s", f.timeout, preStopTime)
	}
	client, err := kube.InCluster()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, f.timeout)
	defer stop()
	return kube.PreStop{Client: client, DriverName: f.driverName, NodeName: name, Log: log}.Run(ctx)
}
