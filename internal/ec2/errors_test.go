package ec2

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func TestTranslate(t *testing.T) {
	for name, tc := range map[string]struct {
		why          string
		status       int
		body         string
		read, mutate error
	}{
		"not found":        {"a definite answer", 400, "InvalidVolume.NotFound", ebs.ErrNotFound, ebs.ErrNotFound},
		"throttled at 503": {"rejected for sure, retriable", 503, "RequestLimitExceeded", ebs.ErrThrottled, ebs.ErrThrottled},
		"throttled at 400": {"the SDK's list of codes counts, not the status", 400, "EC2ThrottledException", ebs.ErrThrottled, ebs.ErrThrottled},
		"capacity":         {"a 500 that is a definite answer", 500, "InsufficientVolumeCapacity", ebs.ErrLimitExceeded, ebs.ErrLimitExceeded},
		"internal":         {"EC2 does not know itself what became of it", 500, "InternalError", ebs.ErrUnavailable, ebs.ErrMaybeAccepted},
		"unavailable":      {"EC2 does not know itself what became of it", 503, "Unavailable", ebs.ErrUnavailable, ebs.ErrMaybeAccepted},
		"unauthorized":     {"a definite answer", 403, "UnauthorizedOperation", ebs.ErrUnauthorized, ebs.ErrUnauthorized},
		"half an answer":   {"200 and then nothing that can be read", 200, "<", ebs.ErrUnavailable, ebs.ErrMaybeAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tc.status == 200 {
					w.Header().Set("Content-Length", "100")
				}
				w.WriteHeader(tc.status)
				if tc.status == 200 {
					w.Write([]byte(tc.body))
					return
				}
				w.Write([]byte("<Response><Errors><Error><Code>" + tc.body + "</Code><Message>m</Message></Error></Errors></Response>"))
			}))
			defer srv.Close()
			c := oneTryClient(srv.URL)
			if _, err := c.Volume(t.Context(), "vol-0123456789abcdef0"); !errors.Is(err, tc.read) {
				t.Errorf("%s: read: %v, want %v", tc.why, err, tc.read)
			}
			_, err := mutate(t.Context(), func(ctx context.Context) (*sdk.CreateVolumeOutput, error) {
				return c.api.CreateVolume(ctx, &sdk.CreateVolumeInput{ClientToken: aws.String("t")})
			})
			if !errors.Is(err, tc.mutate) {
				t.Errorf("%s: change: %v, want %v", tc.why, err, tc.mutate)
			}
		})
	}
}

func oneTryClient(url string) *Client {
	cfg := ec2sim.ClientConfig(url)
	cfg.RetryMaxAttempts = 1
	return New(cfg, clock.RealClock{})
}

// What never left the process cannot have been accepted.
func TestTranslateOfWhatWasNotSent(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	url := srv.URL
	srv.Close()
	err := oneTryClient(url).DeleteVolume(t.Context(), "vol-0123456789abcdef0")
	if !errors.Is(err, ebs.ErrUnavailable) || errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Errorf("nobody listens: %v, want that EC2 is unavailable", err)
	}
	cfg := ec2sim.ClientConfig(url)
	cfg.Credentials = nil
	err = New(cfg, clock.RealClock{}).DeleteVolume(t.Context(), "vol-0123456789abcdef0")
	if !errors.Is(err, ebs.ErrUnavailable) || errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Errorf("no credentials: %v, want that EC2 is unavailable", err)
	}
}

// Throttling is no reason to restart the process, an EC2 that cannot be reached is "not yet".
func TestReachable(t *testing.T) {
	sim, err := ec2sim.New(ec2sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	for _, code := range []string{"RequestLimitExceeded", "UnauthorizedOperation"} {
		sim.FailNext("DescribeAvailabilityZones", code, 1)
		if err := oneTryClient(srv.URL).Reachable(t.Context()); err != nil {
			t.Errorf("%s: %v, want that it counts as an answer", code, err)
		}
	}
	c := oneTryClient(srv.URL)
	if err := c.Reachable(t.Context()); err != nil {
		t.Error(err)
	}
	srv.Close()
	if err := c.Reachable(t.Context()); err != nil {
		t.Errorf("reached once: %v, want no further question", err)
	}
	if err := oneTryClient(srv.URL).Reachable(t.Context()); !errors.Is(err, ebs.ErrUnavailable) {
		t.Errorf("nobody listens: %v, want that EC2 is unavailable", err)
	}
}

func TestLoadConfig(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-west-1")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv(EndpointVariable, "http://127.0.0.1:1/x")
	cfg, err := LoadConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Region != "eu-west-1" || aws.ToString(cfg.BaseEndpoint) != "http://127.0.0.1:1/x" {
		t.Errorf("region %q, endpoint %q", cfg.Region, aws.ToString(cfg.BaseEndpoint))
	}
}
