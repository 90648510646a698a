package admit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Request is what the API server asks about.
type Request = admissionv1.AdmissionRequest

// Answer is what a judge found.
type Answer struct {
	Findings []policy.Finding
	// Warnings are told to the user besides.
	Warnings []string
	// Patch is a JSON patch (RFC 6902) of the object; nil: none.
	Patch []byte
	// Forbidden refuses the request whatever the findings; empty: it does not.
	Forbidden string
}

// Judge judges a request. An error means that it could not.
type Judge func(ctx context.Context, req *Request) (Answer, error)

// Reporter is told of the findings of a request that is no dry run.
type Reporter interface {
	Report(req *Request, findings []policy.Finding)
}

// Timeout is how long a judge may take. It is below the timeoutSeconds of the
// webhook configurations (5), so that it is us who say what took so long.
const Timeout = 4 * time.Second

// maxReview bounds a request's body: an object of etcd's largest size, old and
// new, and room for the envelope.
const maxReview = 8 << 20

// Handler serves a judge.
func Handler(log logr.Logger, judge Judge, r Reporter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, httpReq *http.Request) {
		review := admissionv1.AdmissionReview{}
		body, err := io.ReadAll(http.MaxBytesReader(w, httpReq.Body, maxReview))
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil || review.Request == nil {
			http.Error(w, fmt.Sprintf("the body is no AdmissionReview with a request: %v", err), http.StatusBadRequest)
			return
		}
		req := review.Request
		ctx, cancel := context.WithTimeout(httpReq.Context(), Timeout)
		defer cancel()
		answer, err := judge(ctx, req)
		if err != nil {
			log.Error(err, "Cannot judge", "operation", req.Operation, "kind", req.Kind.Kind, "namespace", req.Namespace, "name", req.Name)
			http.Error(w, fmt.Sprintf("holdfast cannot judge this %s: %v", req.Kind.Kind, err), http.StatusInternalServerError)
			return
		}
		if r != nil && (req.DryRun == nil || !*req.DryRun) {
			r.Report(req, answer.Findings)
		}
		review.Request, review.Response = nil, answer.response(req)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			log.V(1).Info("The API server did not wait for the answer", "error", err.Error())
		}
	})
}

// response is the answer in the API server's words.
func (a Answer) response(req *Request) *admissionv1.AdmissionResponse {
	verdict := policy.Judge(a.Findings)
	out := &admissionv1.AdmissionResponse{UID: req.UID, Allowed: true, Warnings: a.Warnings}
	for _, f := range verdict.Warned {
		out.Warnings = append(out.Warnings, f.Message())
	}
	var refusals []string
	if a.Forbidden != "" {
		refusals = append(refusals, a.Forbidden)
	}
	for _, f := range verdict.Denied {
		refusals = append(refusals, f.Message())
	}
	if len(refusals) > 0 {
		out.Allowed = false
		out.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: strings.Join(refusals, "; "),
		}
		return out
	}
	if a.Patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		out.Patch, out.PatchType = a.Patch, &kind
	}
	return out
}
