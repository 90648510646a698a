//go:build e2e

package guardrails

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// longVariable asks for the full load all the time, and for the whole rotation.
// `make test-all` sets it.
const longVariable = "HOLDFAST_LONG"

// Claims made and deleted a second. The low rate is for the minutes in which a
// rotation waits.
const (
	fullRate = 50
	lowRate  = 5
)

// testAnswers makes claims in a strict namespace all the time while the manager's
// certificate is rotated by hand, one of its Pods is deleted, and all are
// replaced. Not one request may fail for want of an answer.
func testAnswers(t *testing.T) {
	s := stage.New(t)
	ctx := t.Context()
	long := os.Getenv(longVariable) != ""
	policy(s, "", "", "deletion: {protect: WhenBound}")
	s.Run("label", "namespace", s.Namespace, "holdfast.dev/enforce=strict")
	strict := s.Namespace
	s.Eventually("a claim of the strict namespace is judged", func(ctx context.Context) (string, error) {
		return "", s.Client.Create(ctx, claim(strict, "first", "1Gi"), client.DryRunAll)
	})
	before, first := asked(s), served(s)
	l := begin(s, fullRate)

	begun := time.Now()
	s.Run("-n", testenv.Namespace, "annotate", "secret", "holdfast-webhook-certificates", "holdfast.dev/rotate="+begun.Format(time.RFC3339Nano), "--overwrite")
	s.Eventually("the next CA is trusted", func(context.Context) (string, error) {
		if n := len(trusted(s)); n != 2 {
			return fmt.Sprintf("%d CAs are", n), nil
		}
		return "", nil
	})
	pods, err := managers(ctx, s)
	s.Must(err)
	s.Run("-n", testenv.Namespace, "delete", "pod", pods[0].Name)
	s.Must(s.Rollout(ctx, stage.Patience))
	l.step("a Pod was deleted")
	s.Run("-n", testenv.Namespace, "rollout", "restart", "deployment/holdfast-manager")
	s.Must(s.Rollout(ctx, stage.Patience))
	gone(s, pods...)
	l.step("all Pods were replaced")

	if !long {
		l.rate(lowRate)
		s.Eventually("the next certificate is about to be served", func(context.Context) (string, error) {
			if left := time.Until(begun.Add(110 * time.Second)); left > 0 {
				return "in " + left.String(), nil
			}
			return "", nil
		})
		l.rate(fullRate)
	}
	s.Must(s.Within(2*stage.Patience, "a certificate of the next CA is served", func(context.Context) (string, error) {
		if bytes.Equal(served(s), first) {
			return "the first one is", nil
		}
		return "", nil
	}))
	l.step("the next certificate is served")
	if long {
		s.Must(s.Within(2*stage.Patience, "the last CA is trusted no longer", func(context.Context) (string, error) {
			if n := len(trusted(s)); n != 1 {
				return fmt.Sprintf("%d CAs are trusted", n), nil
			}
			return "", nil
		}))
		l.step("the last CA is trusted no longer")
	}
	l.goOn(10 * time.Second) // replicas look every five seconds
	made, failed := l.end()
	for what, n := range failed {
		t.Errorf("%d requests of %d failed: %s", n, made, what)
	}
	after := asked(s)
	if n := after.answered - before.answered; n < made {
		t.Errorf("the webhook answered %d questions about %d claims made and deleted", n, made)
	}
	if after.failedOpen != before.failedOpen || after.failed != before.failed {
		t.Errorf("in vain asked %d times, of which %d passed unjudged", after.failed-before.failed, after.failedOpen-before.failedOpen)
	}
	t.Logf("%d requests were judged, none failed", made)
}

// gone waits until Pods are gone: they answer to the end.
func gone(s *stage.Stage, pods ...corev1.Pod) {
	s.T.Helper()
	for i := range pods {
		s.Must(s.WaitGone(s.T.Context(), &pods[i], stage.Patience))
	}
}

// load makes claims in a strict namespace and deletes them, at a rate.
type load struct {
	s       *stage.Stage
	stop    context.CancelFunc
	workers sync.WaitGroup
	ticks   chan struct{}
	rates   chan int

	mu     sync.Mutex
	made   int
	failed map[string]int
}

// begin makes and deletes claims until end is called.
func begin(s *stage.Stage, rate int) *load {
	ctx, stop := context.WithCancel(s.T.Context())
	l := &load{s: s, stop: stop, ticks: make(chan struct{}), rates: make(chan int), failed: map[string]int{}}
	s.T.Cleanup(func() { stop(); l.workers.Wait() })
	l.workers.Go(func() { l.tick(ctx, rate) })
	for worker := range 20 {
		l.workers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.ticks:
					l.one(ctx, fmt.Sprintf("load-%d-%d", worker, n))
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return l
}

func (l *load) tick(ctx context.Context, rate int) {
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case rate := <-l.rates:
			ticker.Reset(time.Second / time.Duration(rate))
		case <-ticker.C:
			select {
			case l.ticks <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// rate changes how many claims are made a second.
func (l *load) rate(n int) { l.rates <- n }

// one makes a claim and deletes it: two questions.
func (l *load) one(ctx context.Context, name string) {
	c := claim(l.s.Namespace, name, "1Gi")
	for _, do := range []func() error{
		func() error { return l.s.Client.Create(ctx, c) },
		func() error { return l.s.Client.Delete(ctx, c) },
	} {
		err := do()
		if ctx.Err() != nil {
			return // ended under way
		}
		l.mu.Lock()
		l.made++
		if err != nil {
			l.failed[strings.ReplaceAll(err.Error(), name, "…")]++
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// goOn waits for some time.
func (l *load) goOn(d time.Duration) {
	l.s.T.Helper()
	until := time.Now().Add(d)
	l.s.Eventually("the load goes on for "+d.String(), func(context.Context) (string, error) {
		if time.Now().Before(until) {
			return "not yet", nil
		}
		return "", nil
	})
}

// step logs how far it is.
func (l *load) step(what string) {
	l.s.T.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s.Step("%s: %d requests, of which failed %v", what, l.made, l.failed)
}

// end stops, and answers how many requests there were and how many of them
// failed, by what was said.
func (l *load) end() (made int, failed map[string]int) {
	l.stop()
	l.workers.Wait()
	return l.made, l.failed
}

// questions are what the API server counts of its questions to our webhooks.
type questions struct{ answered, failed, failedOpen int }

// asked reads the API server's metrics: answered are the strict webhook's
// answers about claims that let a request through, the others are of all of our
// webhooks.
// https://kubernetes.io/docs/reference/instrumentation/metrics/
func asked(s *stage.Stage) questions {
	s.T.Helper()
	var q questions
	for lines := bufio.NewScanner(strings.NewReader(s.Run("get", "--raw", "/metrics"))); lines.Scan(); {
		line := lines.Text()
		name, _, _ := strings.Cut(line, "{")
		if !strings.Contains(line, "holdfast.dev\"") {
			continue
		}
		n := func() int {
			v, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			s.Must(err)
			return int(v)
		}
		switch {
		case name == "apiserver_admission_webhook_request_total" && strings.Contains(line, `code="200"`) && strings.Contains(line, `name="claims.strict.holdfast.dev"`):
			q.answered += n()
		case name == "apiserver_admission_webhook_rejection_count" && strings.Contains(line, `error_type="calling_webhook_error"`):
			q.failed += n()
		case name == "apiserver_admission_webhook_fail_open_count":
			q.failedOpen += n()
		}
	}
	return q
}

// certificates are those under a key of the webhooks' Secret.
func certificates(s *stage.Stage, key string) []*x509.Certificate {
	s.T.Helper()
	var secret corev1.Secret
	s.Must(s.Client.Get(s.T.Context(), types.NamespacedName{Namespace: testenv.Namespace, Name: "holdfast-webhook-certificates"}, &secret))
	var all []*x509.Certificate
	for block, rest := pem.Decode(secret.Data[key]); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		s.Must(err)
		all = append(all, c)
	}
	return all
}

// served is the certificate that replicas present, trusted are the CAs that the
// API server is told of.
func served(s *stage.Stage) []byte {
	s.T.Helper()
	return certificates(s, "tls.crt")[0].Raw
}

func trusted(s *stage.Stage) []*x509.Certificate {
	s.T.Helper()
	return certificates(s, "ca.crt")
}
