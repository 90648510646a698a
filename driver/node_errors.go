package driver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// errNotStaged: a volume is to be published that has not been staged.
var errNotStaged = errors.New("volume is not staged")

// errSecondWriter: a volume of one writer is to be published for another.
var errSecondWriter = errors.New("volume has its one writer already")

// errStaysStaged: the call failed and the volume is mounted at its staging path.
var errStaysStaged = errors.New("volume is mounted, and not as wanted yet")

// errMetadata: the instance metadata service does not answer.
var errMetadata = errors.New("instance metadata is unavailable")

// nodeErrorCodes are the rows that only the node service needs; all other
// errors go through errorCodes. The codes are those that the CSI specification
// gives each RPC. kubelet calls NodeUnstageVolume after a failed stage only if
// the code leaves open what has happened (CANCELED, DEADLINE_EXCEEDED,
// UNAVAILABLE, RESOURCE_EXHAUSTED, ABORTED; k8s.io/kubernetes
// pkg/volume/csi/csi_client.go, isFinalError): a failure that leaves a mount
// behind must have one of these, or the mount is never cleaned up.
var nodeErrorCodes = []struct {
	err  error
	code codes.Code
}{
	{errStaysStaged, codes.Unavailable},
	{errMetadata, codes.Unavailable},
	{errNotStaged, codes.FailedPrecondition},
	{errSecondWriter, codes.FailedPrecondition},
	{blockdev.ErrNoDevice, codes.NotFound},
	{blockdev.ErrWrongDevice, codes.FailedPrecondition},
	{blockdev.ErrUnprovable, codes.FailedPrecondition},
	// Not an infeasible size (csi-resizer and kubelet give up on those): the
	// instance will see it, or EC2 is still at it.
	{blockdev.ErrTooSmall, codes.Unavailable},
	{fs.ErrNotMounted, codes.NotFound},
	{fs.ErrConflict, codes.AlreadyExists},
	{fs.ErrNotWritable, codes.FailedPrecondition},
	{fs.ErrContent, codes.FailedPrecondition},
	{fs.ErrDamaged, codes.FailedPrecondition},
	{fs.ErrUnreadable, codes.Internal},
}

// nodeError gives an error of the node service its code.
func nodeError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return grpcError(err)
	}
	for _, row := range nodeErrorCodes {
		if errors.Is(err, row.err) {
			return status.Error(row.code, err.Error())
		}
	}
	return grpcError(err)
}
