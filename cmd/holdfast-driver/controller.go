package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/driver"
	"github.com/holdfast-dev/holdfast/internal/ec2"
	"github.com/holdfast-dev/holdfast/internal/kube"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// controllerFlags are the flags of the controller subcommand.
type controllerFlags struct {
	endpoint       string
	driverName     string
	extraTags      string
	clusterID      string
	healthAddress  string
	metricsAddress string
	startupTaint   bool
	compareLimits  bool
}

// newControllerCommand returns the command that runs the controller half of the driver.
func newControllerCommand() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Create, attach, grow and snapshot volumes through the EC2 API",
		Long: `Runs the controller half of the driver: what csi-provisioner, csi-attacher,
csi-resizer and csi-snapshotter ask for is done through the EC2 API. Several may
run at once; the sidecars' leader election decides which one is asked.

Region, credentials and endpoint are found as in every program that uses the AWS
SDK: AWS_REGION, web identity (IRSA), container credentials (EKS Pod Identity),
environment, shared files, instance metadata. AWS_ENDPOINT_URL_EC2, or
` + ec2.EndpointVariable + `, names another EC2. What EC2 must allow is in config/iam/policy.json.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runController(cmd.Context(), f, logr.FromContextOrDiscard(cmd.Context()))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "endpoint", "unix:///csi/csi.sock", "socket on which CSI is served, shared with the sidecars")
	flags.StringVar(&f.driverName, "driver-name", driver.DefaultName, "name of the driver, as in the CSIDriver object and in StorageClasses")
	flags.StringVar(&f.extraTags, "extra-tags", "", "tags for every volume and snapshot: key=value,key=value; those of a class go first")
	flags.StringVar(&f.clusterID, "k8s-tag-cluster-id", "", "id of the cluster; marks volumes and snapshots with kubernetes.io/cluster/<id>=owned and a Name")
	flags.StringVar(&f.healthAddress, "health-address", ":9808", "address of the health checks /healthz (alive) and /readyz (EC2 has answered); empty: none")
	flags.StringVar(&f.metricsAddress, "metrics-address", "",
		"address of /metrics for Prometheus, such as :9810: CSI requests, EC2 API requests, the process; empty: none")
	flags.BoolVar(&f.startupTaint, "remove-startup-taint", true,
		"take the taint <driver name>/agent-not-ready from nodes once the driver is registered there; nothing where there is no API server")
	flags.BoolVar(&f.compareLimits, "compare-attach-limits", true,
		"ask EC2 once a day how many volumes the cluster's instance types take, and tell by event where the nodes count otherwise")
	return cmd
}

// tagging reads the flags about tags.
func (f controllerFlags) tagging() (driver.Tagging, error) {
	extra, err := driver.ParseExtraTags(f.extraTags)
	if err != nil {
		return driver.Tagging{}, fmt.Errorf("--extra-tags: %w", err)
	}
	if strings.ContainsAny(f.clusterID, " \t\n") {
		return driver.Tagging{}, fmt.Errorf("--k8s-tag-cluster-id is %q: it cannot hold white space", f.clusterID)
	}
	return driver.Tagging{ClusterID: f.clusterID, Extra: extra}, nil
}

// runController serves until ctx ends.
func runController(ctx context.Context, f controllerFlags, log logr.Logger) error {
	tagging, err := f.tagging()
	if err != nil {
		return err
	}
	cfg, err := ec2.LoadConfig(ctx)
	if err != nil {
		return err
	}
	cloud := ec2.New(cfg, clock.RealClock{})
	server, err := driver.NewServer(driver.ServerOptions{
		Endpoint:        f.endpoint,
		HealthAddress:   f.healthAddress,
		MetricsAddress:  f.metricsAddress,
		Metrics:         []prometheus.Collector{cloud.Metrics()},
		Log:             log,
		Identity:        &driver.IdentityService{Name: f.driverName, Version: version.Version, Ready: cloud.Reachable},
		Controller:      driver.NewControllerService(cloud, cloud, tagging),
		GroupController: driver.NewGroupService(cloud, tagging),
	})
	if err != nil {
		return err
	}
	chores, err := f.chores(cloud, log)
	if err != nil {
		return err
	}
	log.Info("controller starts", "version", version.Version, "driver", f.driverName, "region", cfg.Region)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	if chores != nil {
		group.Go(func() error { return chores.Run(ctx) })
	}
	return group.Wait()
}

// chores are what the flags ask to be done in the cluster; nil if nothing is,
// or there is no cluster.
func (f controllerFlags) chores(cloud *ec2.Client, log logr.Logger) (*kube.Chores, error) {
	if !f.startupTaint && !f.compareLimits {
		return nil, nil
	}
	client, err := kube.InCluster()
	if errors.Is(err, kube.ErrNoCluster) {
		log.Info("no chores in the cluster", "reason", err.Error())
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	chores := &kube.Chores{
		Client: client, DriverName: f.driverName, StartupTaint: f.startupTaint, Clock: clock.RealClock{}, Log: log,
	}
	if f.compareLimits {
		chores.Limits = cloud.InstanceLimits
	}
	return chores, nil
}
