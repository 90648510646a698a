package driver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// errorCodes is the one table from errors to gRPC codes; the first match wins.
// Where an error carries several sentinels the order decides: that a call may
// have been accepted goes before what the last answer said.
var errorCodes = []struct {
	err  error
	code codes.Code
}{
	// The caller has given up, or its time is over: it knows that it does not know.
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},

	// Something may exist in EC2 or is under way: the caller must keep asking.
	{ebs.ErrMaybeAccepted, codes.Aborted},
	{ebs.ErrVanished, codes.Aborted},
	{ebs.ErrNotReady, codes.Aborted},
	// ABORTED is what ListSnapshots owes to a token that it does not know.
	{ebs.ErrInvalidToken, codes.Aborted},

	// EC2 does not want to, or cannot, answer now.
	{ebs.ErrThrottled, codes.Unavailable},
	{ebs.ErrUnavailable, codes.Unavailable},

	// The specification's own codes for each of these.
	{ebs.ErrAlreadyExists, codes.AlreadyExists},
	{ebs.ErrAttachedElsewhere, codes.FailedPrecondition},
	{ebs.ErrInUse, codes.FailedPrecondition},
	// With this code csi-provisioner has the scheduler choose another node.
	{ebs.ErrNoZone, codes.ResourceExhausted},
	{ebs.ErrNotTogether, codes.FailedPrecondition},
	{ebs.ErrAttachLimit, codes.ResourceExhausted},
	{ebs.ErrLimitExceeded, codes.ResourceExhausted},
	{ebs.ErrModificationRate, codes.ResourceExhausted},
	{ebs.ErrSnapshotRate, codes.ResourceExhausted},
	{ebs.ErrInstanceNotFound, codes.NotFound},
	{ebs.ErrNotFound, codes.NotFound},
	{ebs.ErrOutOfRange, codes.OutOfRange},
	// A volume never changes its zone: no repeat of this pair of volume and node can work.
	{ebs.ErrZoneMismatch, codes.InvalidArgument},
	{ebs.ErrInvalid, codes.InvalidArgument},
	{ebs.ErrUnauthorized, codes.PermissionDenied},
	// Final: the object may be deleted, and with it the snapshot.
	{ebs.ErrSnapshotFailed, codes.Internal},
}

// grpcError gives err the code that the table says, INTERNAL where it says
// nothing. An error that is a gRPC status already stays as it is.
func grpcError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, row := range errorCodes {
		if errors.Is(err, row.err) {
			return status.Error(row.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
