package imds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Client asks the metadata service.
type Client struct {
	api *imds.Client
}

// Options of a Client; the zero value is right on an instance.
type Options struct {
	// Endpoint is where the service answers; empty means the SDK's own rules:
	// AWS_EC2_METADATA_SERVICE_ENDPOINT, else http://169.254.169.254.
	Endpoint string
}

// New returns a Client.
func New(o Options) *Client {
	return &Client{api: imds.New(imds.Options{Endpoint: o.Endpoint})}
}

// Instance is what stays the same for an instance's life.
type Instance struct {
	ID     ebs.InstanceID
	Type   string // "m5.large"
	Zone   string // "us-east-1a"
	Region string
}

// Instance reads the identity document.
func (c *Client) Instance(ctx context.Context) (Instance, error) {
	out, err := c.api.GetInstanceIdentityDocument(ctx, &imds.GetInstanceIdentityDocumentInput{})
	if err != nil {
		return Instance{}, fmt.Errorf("read the instance identity document from IMDS: %w", err)
	}
	i := Instance{
		ID:     ebs.InstanceID(out.InstanceID),
		Type:   out.InstanceType,
		Zone:   out.AvailabilityZone,
		Region: out.Region,
	}
	for name, value := range map[string]string{"instanceId": out.InstanceID, "instanceType": i.Type, "availabilityZone": i.Zone} {
		if value == "" {
			return Instance{}, fmt.Errorf("instance identity document from IMDS has no %s", name)
		}
	}
	return i, nil
}

// Occupancy counts the network interfaces that are attached now and the EBS
// volumes that are the instance's own. The metadata service's block device
// mapping shows what was attached when the instance booted, and stays so: volumes
// of claims are in it after a boot with them attached, also when they have left
// (kubernetes-sigs/aws-ebs-csi-driver#1808). They are told by their device names
// and do not count.
func (c *Client) Occupancy(ctx context.Context) (ebs.Occupancy, error) {
	macs, err := c.get(ctx, "network/interfaces/macs/")
	if err != nil {
		return ebs.Occupancy{}, err
	}
	interfaces := len(strings.Fields(macs))
	if interfaces == 0 {
		return ebs.Occupancy{}, errors.New("IMDS lists no network interface")
	}
	reserved, err := c.ownVolumes(ctx)
	return ebs.Occupancy{NetworkInterfaces: interfaces, ReservedVolumes: reserved}, err
}

// ownVolumes counts the EBS volumes in the block device mapping that are of no
// claim: the root volume, which stands under "ami" and "root" and is one, and of
// ebs1, ebs2, ... those with another name than the driver gives. Instance store
// ("ephemeral0") and "swap" are none.
func (c *Client) ownVolumes(ctx context.Context) (int, error) {
	mapping, err := c.get(ctx, mappingPath)
	if err != nil && !isNotFound(err) {
		return 0, err
	}
	volumes := 1
	for _, entry := range strings.Fields(mapping) {
		if !strings.HasPrefix(entry, "ebs") {
			continue
		}
		device, err := c.get(ctx, mappingPath+entry)
		if err != nil {
			return 0, err
		}
		if !ebs.IsClaimDevice(strings.TrimSpace(device)) {
			volumes++
		}
	}
	return volumes, nil
}

const mappingPath = "block-device-mapping/"

// get reads one category.
func (c *Client) get(ctx context.Context, path string) (string, error) {
	out, err := c.api.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", fmt.Errorf("read %s from IMDS: %w", path, err)
	}
	defer out.Content.Close()
	data, err := io.ReadAll(io.LimitReader(out.Content, maxAnswerBytes))
	if err != nil {
		return "", fmt.Errorf("read %s from IMDS: %w", path, err)
	}
	return string(data), nil
}

// maxAnswerBytes is far above any list that is read here.
const maxAnswerBytes = 1 << 20

// isNotFound reports whether IMDS answered that the category is absent.
func isNotFound(err error) bool {
	var answer interface{ HTTPStatusCode() int }
	return errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusNotFound
}
