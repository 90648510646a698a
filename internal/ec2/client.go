package ec2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// EndpointVariable names the environment variable with EC2's URL that AWS's
// driver reads besides the SDK's own AWS_ENDPOINT_URL_EC2, which goes first.
const EndpointVariable = "AWS_EC2_ENDPOINT"

// Client talks to EC2 in one region.
type Client struct {
	api   *sdk.Client
	clock clock.Clock
	// started is when this process began: what is older a process before it may have done.
	started time.Time
	names   *deviceNames

	lookups lookups
	seen    *seenInstances
	changes *changes
	rates   *modifyRates

	metrics *Metrics

	zones zoneList

	// reached: EC2 has answered once.
	reached atomic.Bool

	mu sync.Mutex
	// tokens holds, by volume name, how many client tokens of it are known to
	// be used up. It only saves calls: EC2 tells the same again.
	tokens map[string]int
	// unsure holds the creates that may have been accepted, until a look-up
	// must show what they made.
	unsure map[string]sentCreate
}

// LoadConfig reads region, credentials and endpoint as every SDK program does
// (environment, shared files, web identity, container, instance role).
func LoadConfig(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion(), config.WithAppID("holdfast-"+version.Version))
	if err != nil {
		return aws.Config{}, fmt.Errorf("load the AWS configuration (without AWS_REGION the region is asked of the instance metadata service): %w", err)
	}
	if cfg.Region == "" {
		return aws.Config{}, errors.New("no AWS region: set AWS_REGION, or let the process reach the instance metadata service")
	}
	if url := os.Getenv(EndpointVariable); url != "" {
		cfg.BaseEndpoint = &url
	}
	return cfg, nil
}

// New makes a client.
func New(cfg aws.Config, clk clock.Clock) *Client {
	metrics := newMetrics()
	c := &Client{
		api: sdk.NewFromConfig(cfg, func(o *sdk.Options) {
			o.HTTPClient = sentRecorder{next: o.HTTPClient}
			if cfg.Retryer == nil {
				o.Retryer = newRetryer(o.RetryMode, o.RetryMaxAttempts, clk)
			}
			o.APIOptions = append(o.APIOptions, metrics.install, noteDoubt)
		}),
		clock:   clk,
		started: clk.Now(),
		names:   newDeviceNames(clk),
		seen:    newSeenInstances(clk),
		metrics: metrics,
		tokens:  map[string]int{},
		unsure:  map[string]sentCreate{},
		rates:   &modifyRates{clock: clk, until: map[ebs.VolumeID]modifyHold{}},
	}
	c.lookups = c.newLookups()
	c.changes = newChanges(clk, c.lookToModify, c.carryOut)
	return c
}

// Reachable says whether EC2 has answered once, and asks it if not. Any answer
// counts, throttling and refusals too: what they mean is for the request that
// meets them, not for the health of the process.
func (c *Client) Reachable(ctx context.Context) error {
	if c.reached.Load() {
		return nil
	}
	_, err := c.api.DescribeAvailabilityZones(ctx, &sdk.DescribeAvailabilityZonesInput{})
	if err != nil && !isAnswer(err) {
		return fmt.Errorf("ask EC2 for its availability zones: %w", translate(ctx, err, false))
	}
	c.reached.Store(true)
	return nil
}
