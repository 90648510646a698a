package driver

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

func TestGRPCError(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		err  error
		want codes.Code
	}{
		"nothing":             {"no error is no error", nil, codes.OK},
		"gave up":             {"csi-provisioner keeps the volume", context.Canceled, codes.Canceled},
		"time over":           {"csi-provisioner keeps the volume", context.DeadlineExceeded, codes.DeadlineExceeded},
		"time over, accepted": {"the end of the context goes first", fmt.Errorf("%w: %w", ebs.ErrMaybeAccepted, context.DeadlineExceeded), codes.DeadlineExceeded},
		"maybe accepted":      {"anything final would leak the volume", ebs.ErrMaybeAccepted, codes.Aborted},
		"accepted, then denied": {"what the last call said is not final for the volume", fmt.Errorf("%w: %w", ebs.ErrMaybeAccepted, ebs.ErrUnauthorized),
			codes.Aborted},
		"vanished":           {"retriable: the key may be cured", ebs.ErrVanished, codes.Aborted},
		"not ready":          {"retriable", ebs.ErrNotReady, codes.Aborted},
		"bad page token":     {"as the specification says for starting_token", ebs.ErrInvalidToken, codes.Aborted},
		"throttled":          {"retriable, nothing final", ebs.ErrThrottled, codes.Unavailable},
		"unavailable":        {"retriable, nothing final", ebs.ErrUnavailable, codes.Unavailable},
		"exists":             {"the specification's code", ebs.ErrAlreadyExists, codes.AlreadyExists},
		"attached elsewhere": {"the specification's code", ebs.ErrAttachedElsewhere, codes.FailedPrecondition},
		"in use":             {"the specification's code", ebs.ErrInUse, codes.FailedPrecondition},
		"node full":          {"the specification's code", ebs.ErrAttachLimit, codes.ResourceExhausted},
		"quota":              {"the scheduler may try another zone", ebs.ErrLimitExceeded, codes.ResourceExhausted},
		"modified too often": {"limits are RESOURCE_EXHAUSTED", ebs.ErrModificationRate, codes.ResourceExhausted},
		"snapshots too fast": {"limits are RESOURCE_EXHAUSTED", ebs.ErrSnapshotRate, codes.ResourceExhausted},
		"no instance":        {"the specification's code", ebs.ErrInstanceNotFound, codes.NotFound},
		"no volume":          {"the specification's code", ebs.ErrNotFound, codes.NotFound},
		"size":               {"csi-resizer takes it for infeasible", ebs.ErrOutOfRange, codes.OutOfRange},
		"other zone":         {"no repeat can work", ebs.ErrZoneMismatch, codes.InvalidArgument},
		"invalid":            {"csi-resizer takes it for infeasible", ebs.ErrInvalid, codes.InvalidArgument},
		"denied":             {"names the missing permission", ebs.ErrUnauthorized, codes.PermissionDenied},
		"not together":       {"the specification's code for volumes that cannot be snapshotted together", ebs.ErrNotTogether, codes.FailedPrecondition},
		"failed snapshot":    {"final, so that its object can be deleted", ebs.ErrSnapshotFailed, codes.Internal},
		"anything else":      {"nobody's fault", errors.New("odd"), codes.Internal},
		"a status already":   {"stays as it is", status.Error(codes.Unimplemented, "x"), codes.Unimplemented},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.err
			if err != nil && tc.want != codes.Unimplemented {
				err = fmt.Errorf("attach vol-1: %w", err)
			}
			got := grpcError(err)
			if status.Code(got) != tc.want {
				t.Errorf("%s: %s, want %s", tc.why, status.Code(got), tc.want)
			}
			if err != nil && !strings.Contains(status.Convert(got).Message(), status.Convert(err).Message()) {
				t.Errorf("the text is lost: %q", got)
			}
		})
	}
}

// Every sentinel of package ebs has a row: one that is forgotten would be INTERNAL.
func TestErrorCodesKnowEverySentinel(t *testing.T) {
	files, err := parser.ParseFile(token.NewFileSet(), "../internal/ebs/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, d := range files.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			declared += len(g.Specs)
		}
	}
	listed := 0
	for _, row := range errorCodes {
		if !errors.Is(row.err, context.Canceled) && !errors.Is(row.err, context.DeadlineExceeded) {
			listed++
		}
	}
	if declared == 0 || declared != listed {
		t.Errorf("package ebs declares %d sentinels, the table has rows for %d", declared, listed)
	}
}
