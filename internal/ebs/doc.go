// Package ebs holds Holdfast's own words for Amazon EBS: volumes, attachments
// and snapshots, what a volume type allows, how many volumes an instance
// takes, and the errors that callers branch on.
//
// It imports the standard library only. The CSI services (package driver)
// speak it on one side, package internal/ec2 translates it to the EC2 API on
// the other.
package ebs
