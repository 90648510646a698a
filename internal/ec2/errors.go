package ec2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// errorCodes says what EC2's error codes mean to us, see
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
// Throttling codes are the SDK's own list.
var errorCodes = map[string]error{
	"InvalidVolume.NotFound":                ebs.ErrNotFound,
	"InvalidVolumeID.Malformed":             ebs.ErrNotFound,
	"InvalidAttachment.NotFound":            ebs.ErrNotFound,
	"InvalidSnapshot.NotFound":              ebs.ErrNotFound,
	"InvalidSnapshotID.Malformed":           ebs.ErrNotFound,
	"InvalidVolumeModification.NotFound":    ebs.ErrNotFound,
	"InvalidInstanceID.NotFound":            ebs.ErrInstanceNotFound,
	"InvalidInstanceID.Malformed":           ebs.ErrInstanceNotFound,
	"IdempotentParameterMismatch":           ebs.ErrAlreadyExists,
	"VolumeInUse":                           ebs.ErrInUse,
	"InvalidSnapshot.InUse":                 ebs.ErrInUse,
	"InvalidVolume.ZoneMismatch":            ebs.ErrZoneMismatch,
	"InvalidVolumeID.ZoneMismatch":          ebs.ErrZoneMismatch,
	"AttachmentLimitExceeded":               ebs.ErrAttachLimit,
	"VolumeLimitExceeded":                   ebs.ErrLimitExceeded,
	"MaxIOPSLimitExceeded":                  ebs.ErrLimitExceeded,
	"InsufficientVolumeCapacity":            ebs.ErrLimitExceeded,
	"VolumeTypeNotAvailableInZone":          ebs.ErrNoZone,
	"SnapshotLimitExceeded":                 ebs.ErrLimitExceeded,
	"PendingSnapshotLimitExceeded":          ebs.ErrLimitExceeded,
	"FastSnapshotRestoreLimitExceeded":      ebs.ErrLimitExceeded,
	"VolumeModificationSizeLimitExceeded":   ebs.ErrLimitExceeded,
	"VolumeModificationRateExceeded":        ebs.ErrModificationRate,
	"SnapshotCreationPerVolumeRateExceeded": ebs.ErrSnapshotRate,
	"ConcurrentSnapshotLimitExceeded":       ebs.ErrSnapshotRate,
	"ConcurrentCopyVolumeLimitExceeded":     ebs.ErrNotReady, // a copy of the source is being initialized
	"IncorrectState":                        ebs.ErrNotReady,
	"IncorrectInstanceState":                ebs.ErrNotReady,
	"IncorrectModificationState":            ebs.ErrNotReady,
	"InvalidParameter":                      ebs.ErrInvalid,
	"InvalidParameterCombination":           ebs.ErrInvalid,
	"InvalidParameterDependency":            ebs.ErrInvalid,
	"InvalidParameterValue":                 ebs.ErrInvalid,
	"MissingParameter":                      ebs.ErrInvalid,
	"UnknownParameter":                      ebs.ErrInvalid,
	"UnknownVolumeType":                     ebs.ErrInvalid,
	"UnsupportedOperation":                  ebs.ErrInvalid,
	"ValidationError":                       ebs.ErrInvalid,
	"VolumeIOPSLimit":                       ebs.ErrInvalid,
	"InvalidZone.NotFound":                  ebs.ErrInvalid,
	"InvalidAvailabilityZone":               ebs.ErrInvalid,
	"InvalidTagKey.Malformed":               ebs.ErrInvalid,
	"TagLimitExceeded":                      ebs.ErrInvalid,
	"InvalidNextToken":                      ebs.ErrInvalidToken,
	"InvalidPaginationToken":                ebs.ErrInvalidToken,
	"UnauthorizedOperation":                 ebs.ErrUnauthorized,
	"AuthFailure":                           ebs.ErrUnauthorized,
	"Blocked":                               ebs.ErrUnauthorized,
	"CustomerKeyHasBeenRevoked":             ebs.ErrUnauthorized,
	"ExpiredToken":                          ebs.ErrUnauthorized,
	"InvalidClientTokenId":                  ebs.ErrUnauthorized,
	"OperationNotPermitted":                 ebs.ErrUnauthorized,
	"OptInRequired":                         ebs.ErrUnauthorized,
	"PendingVerification":                   ebs.ErrUnauthorized,
	"RequestExpired":                        ebs.ErrUnauthorized,
	"SignatureDoesNotMatch":                 ebs.ErrUnauthorized,
}

// meaning is our word for EC2's error code; nil where we have none.
func meaning(code string) error {
	if known, ok := errorCodes[code]; ok {
		return known
	}
	if _, ok := retry.DefaultThrottleErrorCodes[code]; ok {
		return ebs.ErrThrottled
	}
	return nil
}

// translate wraps our word for what went wrong around err. sent says that a
// call that changes EC2 has left this process: without a definite answer it may
// have been accepted.
func translate(ctx context.Context, err error, sent bool) error {
	if err == nil {
		return nil
	}
	maybe := ebs.ErrUnavailable
	if sent {
		maybe = ebs.ErrMaybeAccepted
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", maybe, ctx.Err())
	}
	var answer smithy.APIError
	if !errors.As(err, &answer) {
		return fmt.Errorf("%w: %w", maybe, err)
	}
	if word := meaning(answer.ErrorCode()); word != nil {
		return fmt.Errorf("%w: %w", word, err)
	}
	if httpStatus(err) >= http.StatusInternalServerError {
		return fmt.Errorf("%w: %w", maybe, err)
	}
	return err // a refusal with a code that we do not know
}

// hasCode says whether err is EC2's answer with that error code.
func hasCode(err error, code string) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorCode() == code
}

// messageHas says whether EC2's answer contains a text.
func messageHas(err error, part string) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && strings.Contains(strings.ToLower(answer.ErrorMessage()), part)
}

// messageWords are the words of EC2's answer, ids among them.
func messageWords(err error) map[string]bool {
	words := map[string]bool{}
	var answer smithy.APIError
	if errors.As(err, &answer) {
		for _, word := range strings.FieldsFunc(answer.ErrorMessage(), func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			words[word] = true
		}
	}
	return words
}

// isAnswer says whether EC2 answered at all, be it with an error.
func isAnswer(err error) bool { return httpStatus(err) != 0 }

func httpStatus(err error) int {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

// read does a call that changes nothing.
func read[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	out, err := call(ctx)
	return out, translate(ctx, err, false)
}

// mutate does a call that changes EC2.
func mutate[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	var tries sentTries
	out, err := call(context.WithValue(ctx, sentKey{}, &tries))
	err = translate(ctx, err, tries.sent.Load())
	if tries.doubt.Load() {
		err = accepted(err) // an earlier try may have done it, whatever the last one was answered
	}
	return out, err
}

// accepted marks an error that came after EC2 had accepted a change.
func accepted(err error) error {
	if err == nil || errors.Is(err, ebs.ErrMaybeAccepted) {
		return err
	}
	return fmt.Errorf("%w: %w", ebs.ErrMaybeAccepted, err)
}

type sentKey struct{}

// sentTries is what is known of the tries of a call.
type sentTries struct {
	sent  atomic.Bool // one has reached a connection
	doubt atomic.Bool // one has, and ended without a definite answer
}

// noteDoubt is behind the SDK's retries: it sees how each try ends.
func noteDoubt(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("HoldfastDoubt",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleFinalize(ctx, in)
			if tries, ok := ctx.Value(sentKey{}).(*sentTries); ok && err != nil && errors.Is(translate(context.Background(), err, tries.sent.Load()), ebs.ErrMaybeAccepted) {
				tries.doubt.Store(true)
			}
			return out, metadata, err
		}), middleware.After)
}

// sentRecorder notes in the context of a call that a request has reached a
// connection. Without credentials or a listening peer none has, and then
// nothing can have been accepted.
type sentRecorder struct{ next aws.HTTPClient }

func (r sentRecorder) Do(req *http.Request) (*http.Response, error) {
	answer, err := r.next.Do(req)
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		return answer, err
	}
	if tries, ok := req.Context().Value(sentKey{}).(*sentTries); ok {
		tries.sent.Store(true)
	}
	return answer, err
}
