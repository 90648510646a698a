package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

func newUpCommand(w *which) *cobra.Command {
	var o sandbox.Options
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox, and leave it running",
		Long: `Start a sandbox, and leave it running until "sandbox down".

The first time, the programs of the cluster are built into a cache folder
($HOLDFAST_CACHE, or holdfast in the user's cache folder), which takes about half an
hour on a small machine. After that, a sandbox is up in well under a minute.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Name, o.Dir, o.Out, o.Detach = w.name, w.dir, c.ErrOrStderr(), true
			s, err := sandbox.Start(c.Context(), o)
			if err != nil {
				return err
			}
			flags := sandbox.Flags(s.Name(), s.Dir())
			fmt.Fprintf(c.OutOrStdout(), `
Look around:
  export KUBECONFIG=%s
  %s/kubectl get nodes
  sandbox %s exec node-a1 -- ctr images ls
  curl -s %s/_sim/state            # the simulated EC2
Logs, one file for each component: %s
Stop it:
  sandbox %s down
`, s.Kubeconfig(), s.Binaries(), flags, s.EC2Endpoint(), s.Logs(), flags)
			return nil
		},
	}
	c.Flags().StringVar(&o.Binaries, "binaries", "", "folder with the built programs of the cluster (default: build them)")
	c.Flags().StringVar(&o.Own, "own", "", "folder with built sandbox, ec2sim and pause (default: build them)")
	c.Flags().StringVar(&o.ControllerPolicy, "controller-policy", "", "file with the IAM policy of access key "+sandbox.ControllerKey+" (default: all is allowed)")
	return c
}

func newDownCommand(w *which) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End a sandbox and remove everything that is left of it",
		Long: `End a sandbox and remove everything that is left of it: processes, mounts, loop
devices, network links, cgroups and files. It needs nothing of the sandbox to be
alive, and may be called again. One that has a folder of its own (up --dir) needs
the same --dir here: name and folder must be those of one sandbox.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return sandbox.DownAt(c.Context(), w.name, w.dir)
		},
	}
}

func newBuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the programs of the cluster, and print the folder that has them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := sandbox.CheckCache(); err != nil {
				return err
			}
			dir, err := toolchain.Build(c.Context(), toolchain.Options{Out: c.ErrOrStderr()})
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), dir)
			return nil
		},
	}
}
