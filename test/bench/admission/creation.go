package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/bench"
)

// turns are all turns with one number of policies; 0: without Holdfast.
type turns struct {
	policies int
	created  []time.Duration
	took     time.Duration
}

// creation creates claims with each number of policies in turn, and in turn
// without Holdfast, so that what else the machine does hits all alike.
func (s *server) creation(ctx context.Context, o options) ([]*turns, error) {
	var all []*turns
	for _, n := range append([]int{0}, o.policies...) {
		all = append(all, &turns{policies: n})
	}
	for round := range o.rounds {
		order := slices.Clone(all)
		if round%2 == 1 { // there and back: what grows slower by and by hits all alike too
			slices.Reverse(order)
		}
		for _, t := range order {
			if err := s.setPolicies(ctx, t.policies); err != nil {
				return nil, err
			}
			if err := s.turn(ctx, o, t, round); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// turn creates one batch of claims.
func (s *server) turn(ctx context.Context, o options, t *turns, round int) error {
	var mu sync.Mutex
	start := time.Now()
	err := bench.Parallel(ctx, o.workers, o.batch, func(ctx context.Context, i int) error {
		claim := bench.Claim(loaded, fmt.Sprintf("turn-%d-%d-%d", round, t.policies, i), goodClass)
		begun := time.Now()
		if err := s.Client.Create(ctx, claim); err != nil {
			return fmt.Errorf("create a claim with %d policies: %w", t.policies, err)
		}
		mu.Lock()
		defer mu.Unlock()
		t.created = append(t.created, time.Since(begun))
		return nil
	})
	t.took += time.Since(start)
	return err
}

// setPolicies makes as many policies as there are to be, and waits until a claim
// is judged by them all. 0 takes the webhooks out, and leaves the policies.
func (s *server) setPolicies(ctx context.Context, n int) error {
	if n == 0 {
		for _, o := range s.configurations() {
			if err := s.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("take the webhooks out: %w", err)
			}
		}
		return s.until(ctx, "claims are created without Holdfast", func(err error) bool { return err == nil })
	}
	for _, o := range s.configurations() {
		if err := s.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("put the webhooks in: %w", err)
		}
	}
	var list v1alpha1.StoragePolicyList
	if err := s.Client.List(ctx, &list); err != nil {
		return err
	}
	have := len(list.Items)
	if err := bench.Parallel(ctx, 8, max(0, have-n), func(ctx context.Context, i int) error { return s.Client.Delete(ctx, policyOf(n+i)) }); err != nil {
		return fmt.Errorf("take policies away: %w", err)
	}
	if err := bench.Parallel(ctx, 8, max(0, n-have), func(ctx context.Context, i int) error { return s.Client.Create(ctx, policyOf(have+i)) }); err != nil {
		return fmt.Errorf("make policies: %w", err)
	}
	return s.until(ctx, fmt.Sprintf("%d policies judge claims", n), func(err error) bool {
		return apierrors.IsForbidden(err) && refusals(err.Error()) == findingsOfProbe*n
	})
}

// findingsOfProbe is what a claim of the bad class breaks of each policy: its
// class is not encrypted and of another type.
const findingsOfProbe = 2

// refusals counts the findings that an answer tells, and those that it counts.
func refusals(text string) int {
	n := strings.Count(text, "rule storageClass.parameters")
	if _, rest, more := strings.Cut(text, "; and "); more {
		var further int
		if _, err := fmt.Sscanf(rest, "%d further findings", &further); err == nil {
			n += further
		}
	}
	return n
}

// until waits until the creation of a claim that breaks the policies is answered so.
func (s *server) until(ctx context.Context, what string, is func(error) bool) error {
	return testenv.Eventually(ctx, bench.Within, what, func(ctx context.Context) (string, error) {
		err := s.Client.Create(ctx, bench.Claim(loaded, "probe", badClass), client.DryRunAll)
		if is(err) {
			return "", nil
		}
		return fmt.Sprintf("a bad claim is answered: %.300v", err), nil
	})
}

// configurations are the webhook configurations as they were installed.
func (s *server) configurations() []client.Object {
	var all []client.Object
	for _, c := range s.Env.WebhookInstallOptions.MutatingWebhooks {
		fresh := &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: c.Webhooks}
		fresh.Name = c.Name
		all = append(all, fresh)
	}
	for _, c := range s.Env.WebhookInstallOptions.ValidatingWebhooks {
		fresh := &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: c.Webhooks}
		fresh.Name = c.Name
		all = append(all, fresh)
	}
	return all
}
