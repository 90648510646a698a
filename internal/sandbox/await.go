package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// Limits of the waits at a start. They are generous: on a machine that is busy
// with a build, a start takes four times as long.
const (
	machineLimit   = 30 * time.Second
	componentLimit = 3 * time.Minute
)

// pollEvery is the pause between two looks at something that is coming up.
const pollEvery = 100 * time.Millisecond

// tailLines is how much of a log an error shows.
const tailLines = 8

// stopWaiting is an error that time does not heal.
type stopWaiting struct{ error }

func (s stopWaiting) Unwrap() error { return s.error }

// progress tells how far the start is.
func (s *Sandbox) progress(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// await looks until check has no error. It gives up when the limit is over, when
// the context ends, when check says that it is no use (stopWaiting), or when one of
// the components that it is waiting for has ended.
func (s *Sandbox) await(ctx context.Context, what string, limit time.Duration, watch []string, check func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := check(limited)
		if err == nil {
			return nil
		}
		var never stopWaiting
		if errors.As(err, &never) {
			return never.error
		}
		if dead := s.deadComponent(limited, watch); dead != nil {
			return dead
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("%s did not come up within %s: %w; logs are in %s", what, limit, err, s.Logs())
		}
	}
}

// awaitComponent waits until a component answers; of one that serves nothing, it is
// not known when it does its work.
func (s *Sandbox) awaitComponent(ctx context.Context, name string) error {
	kind, node, _ := strings.Cut(name, "/")
	var check func(context.Context) error
	switch kind {
	case Etcd:
		check = func(ctx context.Context) error { return s.probe(ctx, topName, etcdURL+"/health") }
	case APIServer, Forwarder:
		check = func(ctx context.Context) error {
			_, err := s.get(ctx, "/readyz")
			return err
		}
	case EC2:
		check = func(ctx context.Context) error { return getPlain(ctx, s.EC2Endpoint()+"/_sim/state") }
	case SnapshotController:
		check = func(ctx context.Context) error { return s.probe(ctx, topName, "http://"+snapshotAddress+"/metrics") }
	case Containerd:
		check = func(ctx context.Context) error {
			_, err := s.NodeCommand(ctx, node, "ctr", "version")
			return err
		}
	case Kubelet:
		check = func(ctx context.Context) error { return s.probe(ctx, node, "http://127.0.0.1:10248/healthz") }
	case KubeProxy:
		check = func(ctx context.Context) error { return s.probe(ctx, node, "http://127.0.0.1:10256/healthz") }
	default:
		return nil
	}
	return s.await(ctx, name, componentLimit, []string{name}, check)
}

// deadComponent is an error about the first of the components that has ended, with
// what it said last.
func (s *Sandbox) deadComponent(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	all, err := s.Components(ctx)
	if ctx.Err() != nil {
		return nil // the wait itself says so
	}
	if err != nil {
		return fmt.Errorf("the sandbox does not run any more: %w; %s", err, lastLines(s.Log(topName)))
	}
	for _, c := range all {
		if c.Exit == nil || !slices.Contains(names, c.Name) {
			continue
		}
		how := fmt.Sprintf("with exit code %d", c.Exit.Code)
		if c.Exit.Signal != "" {
			how = "by signal: " + c.Exit.Signal
		}
		return fmt.Errorf("%s has ended %s; %s", c.Name, how, lastLines(c.Log))
	}
	return nil
}

// lastLines quotes the end of a log file for an error.
func lastLines(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("its log cannot be read: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return fmt.Sprintf("the end of its log %s:\n%s", path, strings.Join(lines, "\n"))
}

// get reads a path of the API server as the administrator.
func (s *Sandbox) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", s.rec.APIPort, path), nil)
	if err != nil {
		return nil, err
	}
	return do(s.api, req)
}

// getPlain asks an HTTP address without credentials whether it is well.
func getPlain(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	_, err = do(http.DefaultClient, req)
	return err
}

func do(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", req.URL, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		return nil, fmt.Errorf("%s %s: %s: %.200s", strings.ToLower(req.Method), req.URL, resp.Status, body)
	}
	return body, nil
}
