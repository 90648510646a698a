// Command driver is a CSI driver that is not ours, for tests: block.example.com.
// It stands before Holdfast's driver, which it asks to do the work, and takes
// away what users of another driver would not have:
//
//	groups of snapshots, changes of attributes, clones, lists, health    not offered
//	topology   topology.block.example.com/rack=rack-us-east-1a           and no zone
//	classes    one parameter, media, which is ssd or disk                and none of EBS's
//
// Holdfast's own processes run behind it unchanged, so that it needs no cloud of
// its own, and what it stores can be looked for in the simulated EC2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	listen := flag.String("listen", "/csi/csi.sock", "socket on which sidecars and kubelet ask")
	behind := flag.String("behind", "/csi/behind.sock", "socket of holdfast-driver")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *behind); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listen, behind string) error {
	conn, err := grpc.NewClient("unix://"+behind, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("reach %s: %w", behind, err)
	}
	defer func() { _ = conn.Close() }()
	if err := os.Remove(listen); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	listener, err := net.Listen("unix", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(front(conn)))
	csi.RegisterIdentityServer(server, csi.UnimplementedIdentityServer{})
	csi.RegisterControllerServer(server, csi.UnimplementedControllerServer{})
	csi.RegisterNodeServer(server, csi.UnimplementedNodeServer{})
	defer context.AfterFunc(ctx, server.GracefulStop)()
	return server.Serve(listener)
}
