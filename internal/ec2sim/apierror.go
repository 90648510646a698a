package ec2sim

import (
	"fmt"
	"net/http"
	"strings"
)

// APIError is an answer of EC2 that refuses a call.
type APIError struct {
	Code    string
	Message string
	// Status is the HTTP status; 0: the one EC2 uses for the code.
	Status int
}

func (e *APIError) Error() string { return e.Code + ": " + e.Message }

func (e *APIError) status() int {
	if e.Status != 0 {
		return e.Status
	}
	return statusOf(e.Code)
}

// statusOf is the HTTP status that goes with an error code. Client errors are
// 400 but for authentication, permission and dry run; the codes listed as
// server errors are 5xx.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
func statusOf(code string) int {
	switch code {
	case "AuthFailure", "MissingAuthenticationToken":
		return http.StatusUnauthorized
	case "UnauthorizedOperation":
		return http.StatusForbidden
	case "DryRunOperation":
		return http.StatusPreconditionFailed
	case "RequestLimitExceeded", "Unavailable", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "InternalError", "InternalFailure", "InsufficientVolumeCapacity", "InsufficientCapacity", "InsufficientInstanceCapacity":
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

func refuse(code, format string, args ...any) *APIError {
	return &APIError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// errDryRun is what a call with DryRun=true gets that would have succeeded.
var errDryRun = &APIError{Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set."}

func notFound(code, noun string, ids []string) *APIError {
	if len(ids) == 1 {
		return refuse(code, "The %s '%s' does not exist.", noun, ids[0])
	}
	return refuse(code, "The %ss '%s' do not exist.", noun, strings.Join(ids, ", "))
}

func volumeNotFound(ids ...string) *APIError {
	return notFound("InvalidVolume.NotFound", "volume", ids)
}

func snapshotNotFound(ids ...string) *APIError {
	return notFound("InvalidSnapshot.NotFound", "snapshot", ids)
}

func instanceNotFound(ids ...string) *APIError {
	if len(ids) == 1 {
		return refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", ids[0])
	}
	return refuse("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(ids, ", "))
}

func internalError(err error) *APIError {
	return refuse("InternalError", "An internal error has occurred: %v", err)
}
