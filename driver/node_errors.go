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

// errMetadata: the instance metadata service does not answer.
var errMetadata = errors.New("instance metadata is unavailable")

// nodeErrorCodes are the rows that only the node service needs; all other
// errors go through errorCodes. The codes are those that the CSI specification
// gives each RPC. None of them makes kubelet believe that a mount may exist
// which does not: NOT_FOUND and FAILED_PRECONDITION are final there.
var nodeErrorCodes = []struct {
	err  error
	code codes.Code
}{
	{errMetadata, codes.Unavailable},
	{errNotStaged, codes.FailedPrecondition},
	{blockdev.ErrNoDevice, codes.NotFound},
	{blockdev.ErrWrongDevice, codes.FailedPrecondition},
	// Not an infeasible size (csi-resizer and kubelet give up on those): the
	// instance will see it, or EC2 is still at it.
	{blockdev.ErrTooSmall, codes.Unavailable},
	{fs.ErrNotMounted, codes.NotFound},
	{fs.ErrConflict, codes.AlreadyExists},
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
