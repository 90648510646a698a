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
// volumes that the instance was launched with. The metadata service's block
// device mapping does not change when volumes are attached or detached later,
// so volumes of claims are not in it.
func (c *Client) Occupancy(ctx context.Context) (ebs.Occupancy, error) {
	macs, err := c.get(ctx, "network/interfaces/macs/")
	if err != nil {
		return ebs.Occupancy{}, err
	}
	mapping, err := c.get(ctx, "block-device-mapping/")
	if err != nil && !isNotFound(err) {
		return ebs.Occupancy{}, err
	}
	interfaces := len(strings.Fields(macs))
	if interfaces == 0 {
		return ebs.Occupancy{}, errors.New("IMDS lists no network interface")
	}
	return ebs.Occupancy{NetworkInterfaces: interfaces, ReservedVolumes: launchVolumes(mapping)}, nil
}

// launchVolumes counts the EBS volumes in a block device mapping: the root
// volume, which stands under "ami" and "root" and is one, and ebs1, ebs2, ...
// Instance store ("ephemeral0") and "swap" are none.
func launchVolumes(mapping string) int {
	volumes := 1
	for _, name := range strings.Fields(mapping) {
		if strings.HasPrefix(name, "ebs") {
			volumes++
		}
	}
	return volumes
}

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
