package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// Controller is the access key of Holdfast's controller in the sandbox; the
// simulator holds it to config/iam/policy.json.
const Controller = "AKIAHOLDFASTCONTROLLER"

// Sim is the simulator's control API, /_sim/.
type Sim struct{ endpoint string }

// State asks for everything the simulator knows.
func (s Sim) State(ctx context.Context) (ec2sim.State, error) {
	var out ec2sim.State
	return out, s.call(ctx, http.MethodGet, "state", nil, &out)
}

// Calls counts the calls since the sandbox came up.
func (s Sim) Calls(ctx context.Context) ([]ec2sim.CallCount, error) {
	var out []ec2sim.CallCount
	return out, s.call(ctx, http.MethodGet, "calls", nil, &out)
}

// Permissions counts what the policies were asked since the sandbox came up.
func (s Sim) Permissions(ctx context.Context) ([]ec2sim.Permission, error) {
	var out []ec2sim.Permission
	return out, s.call(ctx, http.MethodGet, "permissions", nil, &out)
}

// Count is how often the controller was answered with an error code.
func (s Sim) Count(ctx context.Context, code string) (int, error) {
	calls, err := s.Calls(ctx)
	n := 0
	for _, c := range calls {
		if c.Principal == Controller && c.Code == code {
			n += c.Count
		}
	}
	return n, err
}

// AllModelled is an error that names what was asked for and is not modelled:
// tests that met such an answer have tested less than they believe.
func (s Sim) AllModelled(ctx context.Context) error {
	var out []ec2sim.UnmodelledCount
	if err := s.call(ctx, http.MethodGet, "unmodelled", nil, &out); err != nil {
		return err
	}
	if len(out) > 0 {
		return fmt.Errorf("asked of EC2 and not modelled by the simulator: %+v", out)
	}
	return nil
}

// Inject has calls of the controller fail until the test ends. The fault says
// how and how often; its principal is set here.
func (s Sim) Inject(t testing.TB, f ec2sim.Fault) {
	t.Helper()
	f.Principal = Controller
	if err := s.call(t.Context(), http.MethodPost, "faults", f, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Heal(t) })
}

// Heal takes all faults away.
func (s Sim) Heal(t testing.TB) {
	t.Helper()
	if err := s.call(context.Background(), http.MethodDelete, "faults", nil, nil); err != nil {
		t.Error(err)
	}
}

// Pending are the faults that have not hit yet.
func (s Sim) Pending(t testing.TB) []ec2sim.Fault {
	t.Helper()
	var out []ec2sim.Fault
	if err := s.call(t.Context(), http.MethodGet, "faults", nil, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Slow sets delays until the test ends, or until the returned function is called.
func (s Sim) Slow(t testing.TB, change func(*ec2sim.Delays)) (restore func()) {
	t.Helper()
	var before ec2sim.Delays
	if err := s.call(t.Context(), http.MethodGet, "delays", nil, &before); err != nil {
		t.Fatal(err)
	}
	slow := before
	change(&slow)
	if err := s.call(t.Context(), http.MethodPut, "delays", slow, nil); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := s.call(context.Background(), http.MethodPut, "delays", before, nil); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	return restore
}

func (s Sim) call(ctx context.Context, method, what string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.endpoint+"/_sim/"+what, sent)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ec2sim: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ec2sim: %s %s: %w", method, what, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("ec2sim: %s %s: %s: %s", method, what, resp.Status, data)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("ec2sim: %s %s: %w", method, what, err)
	}
	return nil
}
