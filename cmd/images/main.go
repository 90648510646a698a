// Command images builds Holdfast's container images, and stand-ins for those
// of a bare cluster, without Docker and without a registry.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/image/catalog"
	"github.com/holdfast-dev/holdfast/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "images",
		Short:         "Build container images without Docker and without a registry",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	o := catalog.Options{}
	flags := root.PersistentFlags()
	flags.StringVar(&o.Binaries, "binaries", os.Getenv("HOLDFAST_BIN"),
		"folder with the toolchain's static binaries (default: HOLDFAST_BIN, else the user's cache, built if need be)")
	flags.StringVar(&o.Version, "version", version.Version, "version of the driver and tag of its images")
	root.AddCommand(buildCommand(&o), rootfsCommand(&o), listCommand())
	return root
}

func buildCommand(o *catalog.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Write image tars (docker-archive) and print their paths",
		Long: "Write image tars that `ctr images import`, `docker load` and `crane push` read.\n" +
			"A tar whose inputs have not changed is left alone. Progress goes to standard error,\n" +
			"the paths of the tars to standard output.",
		Example: "  images build --out bin/images --binaries ~/.cache/holdfast/bin/<key>\n" +
			"  images build --out bin/images --only driver,driver-node",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			built, err := catalog.Build(cmd.Context(), *o)
			if err != nil {
				return err
			}
			for _, b := range built {
				fmt.Fprintln(cmd.OutOrStdout(), b.Path)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Out, "out", "bin/images", "folder of the tars")
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "images to build (see `images list`); default all")
	return cmd
}

func rootfsCommand(o *catalog.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "rootfs NAME FOLDER",
		Short:   "Unpack the content of one image into an empty folder",
		Example: "  images rootfs driver-node /rootfs",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return catalog.Rootfs(cmd.Context(), *o, args[0], args[1])
		},
	}
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show the images that can be built",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			for _, name := range catalog.Names() {
				fmt.Fprintf(cmd.OutOrStdout(), "%-20s %s\n", name, catalog.Describe(name))
			}
		},
	}
}
