// Package imds reads what an EC2 instance knows about itself from the instance
// metadata service (IMDSv2), by the AWS SDK. It needs no credentials.
//
// Source: "Instance metadata categories" and "Instance identity documents" in
// the Amazon EC2 User Guide.
package imds
