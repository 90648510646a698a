package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
)

func newStatusCommand(w *which) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show nodes and components of a sandbox; fails if one has ended",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := w.open()
			if err != nil {
				return err
			}
			all, err := s.Components(c.Context())
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintf(t, "sandbox\t%s\nfolder\t%s\nkubeconfig\t%s\nEC2\t%s\n\n", s.Name(), s.Dir(), s.Kubeconfig(), s.EC2Endpoint())
			fmt.Fprintf(t, "NODE\tZONE\tADDRESS\tPODS\tINSTANCE\tPID\n")
			for _, n := range s.Nodes() {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.Zone, n.IP, n.PodNet, n.InstanceID, pidOrOff(n.PID))
			}
			fmt.Fprintf(t, "\nCOMPONENT\tSTATE\tLOG\n")
			ended := 0
			for _, p := range all {
				state := "running"
				if p.Exit != nil {
					ended++
					state = fmt.Sprintf("ended (exit code %d)", p.Exit.Code)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\n", p.Name, state, p.Log)
			}
			if err := t.Flush(); err != nil {
				return err
			}
			if ended > 0 {
				return fmt.Errorf("%d components of sandbox %s have ended", ended, s.Name())
			}
			return nil
		},
	}
}

func pidOrOff(pid int) string {
	if pid == 0 {
		return "off"
	}
	return fmt.Sprint(pid)
}

func newKubeconfigCommand(w *which) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := w.open()
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), s.Kubeconfig())
			return nil
		},
	}
}

func newLoadImageCommand(w *which) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image ARCHIVE...",
		Short: "Load image archives (as docker save writes them) into all nodes",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, archives []string) error {
			s, err := w.open()
			if err != nil {
				return err
			}
			return s.LoadImages(c.Context(), archives...)
		},
	}
}

func newExecCommand(w *which) *cobra.Command {
	return &cobra.Command{
		Use:     "exec NODE -- COMMAND [ARGUMENT...]",
		Short:   "Run a command in a node's namespaces",
		Example: "  sudo sandbox exec node-a1 -- ctr containers ls",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("name a node and a command: sandbox exec node-a1 -- ctr images ls")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := w.open()
			if err != nil {
				return err
			}
			return asOurs(s.Exec(c.Context(), args[0], sandbox.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, args[1:]...))
		},
	}
}
