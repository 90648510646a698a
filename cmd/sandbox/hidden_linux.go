package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/sandbox/forward"
	"github.com/holdfast-dev/holdfast/internal/sandbox/machine"
)

// newInitCommand is the first process of a machine; the sandbox starts it.
func newInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "init SPEC",
		Short:  "Be the first process of a sandbox's machine",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return machine.Init(args[0]) },
	}
}

// inheritedFD is the first descriptor behind the standard streams.
const inheritedFD = 3

// newForwardCommand passes connections of an inherited listener on.
func newForwardCommand() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:    "forward --to ADDRESS",
		Short:  "Pass connections on from the listener that was inherited as descriptor 3",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f := os.NewFile(inheritedFD, "listener")
			l, err := net.FileListener(f)
			if err != nil {
				return fmt.Errorf("take over the listener: %w", err)
			}
			_ = f.Close()
			context.AfterFunc(c.Context(), func() { _ = l.Close() })
			return forward.Serve(l, to)
		},
	}
	c.Flags().StringVar(&to, "to", "", "host and port to pass connections to")
	return c
}
