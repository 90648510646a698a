package ec2

import (
	"context"
	"errors"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Metrics count the requests that reach for EC2, each try of a call by itself.
// Names and labels are those of AWS's driver, so that its dashboards keep working:
//
//	aws_ebs_csi_api_request_duration_seconds{request}           how long EC2 took to do as asked
//	aws_ebs_csi_api_request_errors_total{request,code}          refusals, and requests without an answer
//	aws_ebs_csi_api_request_throttles_total{operation_name}     refusals to slow down, which count here alone
//
// https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/metrics.md
type Metrics struct {
	duration  *prometheus.HistogramVec
	errors    *prometheus.CounterVec
	throttles *prometheus.CounterVec
}

func newMetrics() *Metrics {
	return &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "aws_ebs_csi_api_request_duration_seconds",
			Help:    "Time that a successful request to the EC2 API took, in seconds, by action.",
			Buckets: prometheus.DefBuckets,
		}, []string{"request"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aws_ebs_csi_api_request_errors_total",
			Help: "Requests to the EC2 API that failed, throttled ones left out, by action and error code.",
		}, []string{"request", "code"}),
		throttles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aws_ebs_csi_api_request_throttles_total",
			Help: "Requests to the EC2 API that were throttled, by action.",
		}, []string{"operation_name"}),
	}
}

// Metrics are the metrics of this client.
func (c *Client) Metrics() *Metrics { return c.metrics }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.duration.Describe(ch)
	m.errors.Describe(ch)
	m.throttles.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.duration.Collect(ch)
	m.errors.Collect(ch)
	m.throttles.Collect(ch)
}

// install adds the metrics to each call: behind the SDK's retries, so that each
// try counts, and behind the signing, so that a wait for credentials does not.
func (m *Metrics) install(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("HoldfastMetrics",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			start := time.Now()
			out, metadata, err := next.HandleFinalize(ctx, in)
			m.note(awsmiddleware.GetOperationName(ctx), time.Since(start), err)
			return out, metadata, err
		}), middleware.After)
}

// note counts one request. The values of labels are few: the actions that this
// package calls, and the codes of codeLabel.
func (m *Metrics) note(action string, took time.Duration, err error) {
	switch code := codeLabel(err); {
	case err == nil:
		m.duration.WithLabelValues(action).Observe(took.Seconds())
	case errors.Is(meaning(code), ebs.ErrThrottled):
		m.throttles.WithLabelValues(action).Inc()
	default:
		m.errors.WithLabelValues(action, code).Inc()
	}
}

// The codes of requests that have none, or one that we do not know.
const (
	codeNoAnswer = "NoAnswer"
	codeOther    = "Other"
)

// serverFaults are the codes of EC2's own faults, see "Server error codes" at
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
var serverFaults = map[string]bool{
	"InternalError": true, "InternalFailure": true, "ServiceUnavailable": true, "Unavailable": true,
}

// codeLabel is the error code of an answer, if we know it.
func codeLabel(err error) string {
	var answer smithy.APIError
	if !errors.As(err, &answer) {
		return codeNoAnswer
	}
	if code := answer.ErrorCode(); meaning(code) != nil || serverFaults[code] {
		return code
	}
	return codeOther
}
