package ec2sim

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// AdminKey is the access key id that ClientConfig uses. It has no policy, so
// it may do everything.
const AdminKey = "AKIAHOLDFASTADMIN"

// ClientConfig is a configuration of the AWS SDK for a simulator at a URL:
// region us-east-1, static credentials, no look at environment or files.
func ClientConfig(url string) aws.Config { return ClientConfigAs(url, AdminKey) }

// ClientConfigAs is ClientConfig with another access key id.
func ClientConfigAs(url, accessKeyID string) aws.Config {
	return aws.Config{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(url),
		Credentials:  credentials.NewStaticCredentialsProvider(accessKeyID, "not-checked", ""),
	}
}
