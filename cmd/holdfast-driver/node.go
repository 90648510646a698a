package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-dev/holdfast/driver"
	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
	"github.com/holdfast-dev/holdfast/internal/imds"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// nodeFlags are the flags of the node subcommand.
type nodeFlags struct {
	endpoint        string
	driverName      string
	kubeletSocket   string
	registrationDir string
	deviceIdentity  string
	attachLimit     int
	reserved        int
	healthAddress   string
	metricsAddress  string
	metadataSources string
	nodeName        string
}

// newNodeCommand returns the command that runs the node half of the driver.
func newNodeCommand() *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Find, format, mount and grow volumes on this node",
		Long: `Runs the node half of the driver: finds the devices of attached volumes, proves
that they are the right ones, formats, mounts and grows them. It registers
itself with kubelet and needs no credentials: it calls no EC2 API. What its
instance is it learns from the instance metadata service, or else from its Node.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runNode(cmd.Context(), f, logr.FromContextOrDiscard(cmd.Context()))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "endpoint", "unix:///csi/csi.sock", "socket on which CSI is served")
	flags.StringVar(&f.driverName, "driver-name", driver.DefaultName, "name of the driver, as in the CSIDriver object")
	flags.StringVar(&f.kubeletSocket, "kubelet-registration-path", "/var/lib/kubelet/plugins/"+driver.DefaultName+"/csi.sock",
		"path of the CSI socket as kubelet sees it on the node")
	flags.StringVar(&f.registrationDir, "registration-dir", "/registration",
		"where kubelet's plugins_registry folder is mounted; empty: do not register")
	flags.StringVar(&f.deviceIdentity, "device-identity", string(blockdev.NVMe),
		"what proves that a disk is the volume: nvme (its serial number; Nitro instances), xen (its name; older instances), loop-backing-file (development only)")
	flags.IntVar(&f.attachLimit, "volume-attach-limit", 0,
		"volumes that the node takes; 0: computed from the instance type")
	flags.IntVar(&f.reserved, "reserved-volume-attachments", -1,
		"attachments that are taken by other volumes than those of claims, the root volume among them; -1: those that the instance was launched with")
	flags.StringVar(&f.healthAddress, "health-address", ":9809", "address of the health checks /healthz and /readyz; empty: none")
	flags.StringVar(&f.metricsAddress, "metrics-address", "",
		"address of /metrics for Prometheus, such as 127.0.0.1:9810 for an agent on the node: CSI requests and the process; empty: none")
	flags.StringVar(&f.metadataSources, "metadata-sources", fromIMDS+","+fromKubernetes,
		"who is asked about the instance, in this order: imds (the instance metadata service), kubernetes (the Node object)")
	addNodeName(cmd, &f.nodeName)
	return cmd
}

// check finds values that cannot work.
func (f nodeFlags) check() (blockdev.Identity, error) {
	identity, err := blockdev.ParseIdentity(f.deviceIdentity)
	switch {
	case err != nil:
		return "", fmt.Errorf("--device-identity: %w", err)
	case f.attachLimit < 0:
		return "", fmt.Errorf("--volume-attach-limit is %d: use a number of volumes above 0, or 0 to compute it", f.attachLimit)
	case f.reserved < -1:
		return "", fmt.Errorf("--reserved-volume-attachments is %d: use 0 or more, or -1 to ask the instance", f.reserved)
	case f.attachLimit > 0 && f.reserved >= 0:
		return "", errors.New("--volume-attach-limit and --reserved-volume-attachments exclude each other: the first replaces the whole computation")
	}
	return identity, nil
}

// memory is kept beside the socket: the folder is the node's and outlives the Pod.
func (f nodeFlags) memory() memory {
	return memory(filepath.Join(filepath.Dir(strings.TrimPrefix(f.endpoint, "unix://")), "occupancy.json"))
}

// runNode serves until ctx ends.
func runNode(ctx context.Context, f nodeFlags, log logr.Logger) error {
	identity, err := f.check()
	if err != nil {
		return err
	}
	sources, err := parseSources(f.metadataSources)
	if err != nil {
		return err
	}
	metadata, err := newMetadata(sources, orNodeName(f.nodeName), f.memory(), log)
	if err != nil {
		return err
	}
	instance, err := waitForInstance(ctx, metadata, log)
	if err != nil {
		return err
	}
	if err := checkIdentity(identity, instance.Type); err != nil {
		return err
	}
	registrar := driver.NewRegistrar(driver.RegistrarOptions{
		DriverName: f.driverName, Dir: f.registrationDir, CSISocket: f.kubeletSocket, Log: log,
	})
	server, err := driver.NewServer(driver.ServerOptions{
		Endpoint:       f.endpoint,
		HealthAddress:  f.healthAddress,
		MetricsAddress: f.metricsAddress,
		Log:            log,
		Identity:       &driver.IdentityService{Name: f.driverName, Version: version.Version},
		Node: driver.NewNodeService(blockdev.NewFinder(blockdev.Options{Identity: identity}), fs.NewMounter(), metadata,
			driver.VolumeLimits{AttachLimit: f.attachLimit, Reserved: f.reserved}),
		Healthy: healthOf(f, registrar),
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	if f.registrationDir != "" {
		group.Go(func() error { return registrar.Run(ctx) })
	}
	return group.Wait()
}

// healthOf is what health checks ask besides the CSI socket.
func healthOf(f nodeFlags, r *driver.Registrar) func(context.Context) error {
	if f.registrationDir == "" {
		return nil
	}
	return r.Healthy
}

// How often and how long a starting process asks what its instance is: the
// metadata service may answer late on an instance that boots, and a new Node be
// without its providerID. Then kubelet starts the process anew.
const (
	metadataInterval = 2 * time.Second
	metadataPatience = time.Minute
)

// waitForInstance asks until there is an answer.
func waitForInstance(ctx context.Context, metadata driver.InstanceMetadata, log logr.Logger) (imds.Instance, error) {
	var instance imds.Instance
	var last error
	err := wait.PollUntilContextTimeout(ctx, metadataInterval, metadataPatience, true, func(ctx context.Context) (bool, error) {
		instance, last = metadata.Instance(ctx)
		if last != nil {
			log.Info("waiting to learn of the instance", "reason", last.Error())
		}
		return last == nil, nil
	})
	if err != nil && last == nil {
		return imds.Instance{}, err // stopped before the first answer
	}
	if err != nil {
		return imds.Instance{}, fmt.Errorf("nothing tells what this instance is (IMDSv2 from a Pod needs host networking or a hop limit of 2): %w (%w)", last, err)
	}
	log.Info("instance", "nodeID", instance.ID, "instanceType", instance.Type, "zone", instance.Zone)
	return instance, nil
}

// checkIdentity refuses an identity that cannot prove anything on this type of
// instance.
func checkIdentity(identity blockdev.Identity, instanceType string) error {
	hypervisor := ebs.LimitOf(instanceType).Hypervisor
	switch {
	case identity == blockdev.Xen && hypervisor != ebs.XenHypervisor:
		return fmt.Errorf("--device-identity=xen: %s is no Xen instance, its volumes carry serial numbers: use nvme", instanceType)
	case identity == blockdev.NVMe && hypervisor == ebs.XenHypervisor:
		return fmt.Errorf("--device-identity=nvme: %s is a Xen instance, its volumes carry no serial numbers: use xen", instanceType)
	}
	return nil
}
