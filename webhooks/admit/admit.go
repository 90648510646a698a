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

// Told bounds the findings that one answer names: hundreds of policies may all
// be broken by one object, and a person reads the first.
const Told = 50

// GoesOn says whether a judge that looks at many objects goes on to the next,
// with so many findings that refuse the request.
//
//	as many as an answer is to name     no: nothing would come of it
//	no time is left, there is one       no: it stands
//	no time is left, there is none      an error: it cannot judge
func GoesOn(ctx context.Context, denied, most int) (bool, error) {
	err := ctx.Err()
	if err != nil && denied == 0 {
		return false, fmt.Errorf("the time is over before all that this is about was looked at: %w", err)
	}
	return err == nil && denied < most, nil
}

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
		if lacks := missing(req); lacks != "" {
			http.Error(w, fmt.Sprintf("the AdmissionReview of a %s lacks %s", req.Operation, lacks), http.StatusBadRequest)
			return
		}
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

// missing says what a request lacks that every one of its operation has. Judges
// rely on it.
// https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request
func missing(req *Request) string {
	now, old := len(req.Object.Raw) > 0, len(req.OldObject.Raw) > 0
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update:
		if !now {
			return "its object"
		}
		if req.Operation == admissionv1.Update && !old {
			return "its oldObject"
		}
	case admissionv1.Delete:
		if !old {
			return "its oldObject"
		}
	default:
		return fmt.Sprintf("an operation that is judged: %q is none of CREATE, UPDATE, DELETE", req.Operation)
	}
	return ""
}

// response is the answer in the API server's words.
func (a Answer) response(req *Request) *admissionv1.AdmissionResponse {
	verdict := policy.Judge(a.Findings)
	out := &admissionv1.AdmissionResponse{UID: req.UID, Allowed: true, Warnings: a.Warnings}
	for i, f := range verdict.Warned {
		if i == Told {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%d further findings", len(verdict.Warned)-Told))
			break
		}
		out.Warnings = append(out.Warnings, f.Message())
	}
	var refusals []string
	if a.Forbidden != "" {
		refusals = append(refusals, a.Forbidden)
	}
	for i, f := range verdict.Denied {
		if i == Told {
			refusals = append(refusals, fmt.Sprintf("and %d further findings", len(verdict.Denied)-Told))
			break
		}
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
