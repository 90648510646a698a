package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options say which certificates to keep and whom to tell.
type Options struct {
	// Secret that everything is kept in.
	Secret types.NamespacedName
	// Names of the webhook's Service, under which API servers call it.
	Names []string
	// Configuration is the name that the ValidatingWebhookConfiguration and the
	// MutatingWebhookConfiguration have.
	Configuration string
	// While is how long a change takes to be seen by all API servers and
	// replicas; 0: two minutes.
	While time.Duration
	Clock clock.Clock
	// Elected is closed when this replica leads; nil: it never does.
	Elected <-chan struct{}
}

// defaultWhile is well above the seconds that a watch of an API server and our
// own look at the Secret take.
const defaultWhile = 2 * time.Minute

// lookEvery is how often a replica looks at the Secret, and the leader whether
// the configurations still carry what it told them.
const lookEvery = 5 * time.Second

// Store serves the certificate that the Secret says. Every replica has one.
type Store struct {
	reader  client.Reader
	options Options
	serving atomic.Pointer[tls.Certificate]
}

// NewStore makes a store; reader must not be a cache.
func NewStore(reader client.Reader, o Options) *Store {
	return &Store{reader: reader, options: o.withDefaults()}
}

func (o Options) withDefaults() Options {
	if o.While == 0 {
		o.While = defaultWhile
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// GetCertificate answers the certificate of the moment, see tls.Config.
func (s *Store) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := s.serving.Load(); cert != nil {
		return cert, nil
	}
	return nil, errNotYet
}

var errNotYet = errors.New("the webhook has no certificate yet: the leading replica makes it")

// Expiry is when the served certificate ends; the zero time where there is none.
func (s *Store) Expiry() time.Time {
	if cert := s.serving.Load(); cert != nil {
		return cert.Leaf.NotAfter
	}
	return time.Time{}
}

// Ready says whether there is a certificate that is valid now.
func (s *Store) Ready() error {
	switch cert := s.serving.Load(); {
	case cert == nil:
		return errNotYet
	case s.options.Clock.Now().After(cert.Leaf.NotAfter):
		return fmt.Errorf("the webhook's certificate ended at %s", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// NeedLeaderElection says that every replica serves.
func (s *Store) NeedLeaderElection() bool { return false }

// Start looks at the Secret until ctx ends.
func (s *Store) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	return every(ctx, s.options.Clock, func() time.Duration {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Look at the webhook's certificate, serving the last one")
		}
		if s.serving.Load() == nil {
			return time.Second
		}
		return lookEvery
	})
}

func (s *Store) look(ctx context.Context) error {
	var secret corev1.Secret
	if err := s.reader.Get(ctx, s.options.Secret, &secret); err != nil {
		return client.IgnoreNotFound(err)
	}
	now, err := fromSecret(&secret)
	if err != nil {
		return fmt.Errorf("secret %s: %w", s.options.Secret, err)
	}
	if now.serving != nil && now.serving.key != nil {
		s.serving.Store(now.serving.tls())
	}
	return nil
}

// Rotator keeps the Secret and tells the API server whom to trust. Every replica
// has one, and the leader's does it all.
type Rotator struct {
	client  client.Client
	reader  client.Reader
	options Options
	told    time.Time // see wish
}

// NewRotator makes a rotator; reader must not be a cache.
func NewRotator(c client.Client, reader client.Reader, o Options) *Rotator {
	return &Rotator{client: c, reader: reader, options: o.withDefaults()}
}

// NeedLeaderElection says that every replica can begin.
func (r *Rotator) NeedLeaderElection() bool { return false }

// Start keeps the certificates until ctx ends: the leader takes every step, the
// others begin where there is nothing that can be served. They may not wait for
// the leader: it may be one that keeps no certificates, told of a folder, and
// goes only when another replica is ready.
func (r *Rotator) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	return every(ctx, r.options.Clock, func() time.Duration {
		step := r.Begin
		select {
		case <-r.options.Elected:
			step = r.Step
		default:
		}
		pause, err := step(ctx)
		if err != nil {
			if ctx.Err() == nil {
				log.Error(err, "Keep the webhook's certificate, trying again", "after", lookEvery.String())
			}
			return lookEvery
		}
		return min(pause, lookEvery)
	})
}

// Begin makes a CA and a serving certificate where the Secret has none that can
// be served, and answers when to look again. All else is the leader's to judge,
// also a certificate that is not yet valid: by whose clock, one replica alone
// cannot tell.
func (r *Rotator) Begin(ctx context.Context) (time.Duration, error) {
	secret, now, absent, err := r.read(ctx)
	if err != nil || !nothingToServe(r.options.Clock.Now(), now) {
		return lookEvery, err
	}
	look, err := r.step(ctx, secret, now, absent)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return lookEvery, nil // another replica has begun
	}
	return look, err
}

// Step has the configurations trust all CAs, takes at most one step of the plan
// and answers when to look again.
func (r *Rotator) Step(ctx context.Context) (time.Duration, error) {
	secret, now, absent, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	told, err := r.tell(ctx, now.trusted)
	if err != nil {
		return 0, err
	}
	if told {
		r.told = r.options.Clock.Now()
	}
	return r.step(ctx, secret, now, absent)
}

// read answers the Secret and what it says; nothing, where that cannot be read:
// it can serve nobody.
func (r *Rotator) read(ctx context.Context) (secret *corev1.Secret, now state, absent bool, err error) {
	secret = &corev1.Secret{}
	err = r.reader.Get(ctx, r.options.Secret, secret)
	absent = apierrors.IsNotFound(err)
	if err != nil && !absent {
		return nil, state{}, false, fmt.Errorf("read secret %s: %w", r.options.Secret, err)
	}
	if now, err = fromSecret(secret); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "The webhook's certificates cannot be read, making new ones", "secret", r.options.Secret.String())
		now = state{}
	}
	return secret, now, absent, nil
}

// step takes at most one step of the plan.
func (r *Rotator) step(ctx context.Context, secret *corev1.Secret, now state, absent bool) (time.Duration, error) {
	w := wish{names: r.options.Names, rotate: secret.Annotations[AnnotationRotate], while: r.options.While, told: r.told}
	if !usable(r.options.Clock.Now(), now) {
		var err error
		if w.before, err = r.trusted(ctx); err != nil {
			return 0, err
		}
	}
	after, step, look, err := next(r.options.Clock.Now(), now, w)
	if err != nil || step == "" {
		return look, err
	}
	if err := r.save(ctx, secret, absent, after); err != nil {
		return 0, err
	}
	logr.FromContextOrDiscard(ctx).Info("Webhook certificates changed", "step", step, "until", after.serving.cert.NotAfter.UTC().Format(time.RFC3339), "trusted", len(after.trusted))
	_, err = r.tell(ctx, after.trusted)
	return look, err
}

// save writes the Secret as it was read, so that of two replicas that both
// believe to lead one fails.
func (r *Rotator) save(ctx context.Context, secret *corev1.Secret, absent bool, s state) error {
	if err := s.into(secret); err != nil {
		return err
	}
	if absent {
		secret.Namespace, secret.Name = r.options.Secret.Namespace, r.options.Secret.Name
		secret.Type = corev1.SecretTypeTLS
		return wrap("make secret "+r.options.Secret.String(), r.client.Create(ctx, secret))
	}
	return wrap("write secret "+r.options.Secret.String(), r.client.Update(ctx, secret))
}

// tell makes the configurations trust exactly these CAs, and says whether one
// did not. A configuration that is not there is not made: installing and
// uninstalling are not the manager's to do.
func (r *Rotator) tell(ctx context.Context, trusted []*pair) (told bool, err error) {
	if len(trusted) == 0 {
		return false, nil
	}
	var bundle bytes.Buffer
	for _, ca := range trusted {
		bundle.Write(ca.certPEM())
	}
	for _, c := range configurations() {
		changed, err := r.patch(ctx, c, bundle.Bytes())
		if err != nil {
			return false, err
		}
		told = told || changed
	}
	return told, nil
}

// configuration is one of the two that the API server asks by.
type configuration struct {
	object client.Object
	// clients are those of the object's webhooks, as it was last read.
	clients func() []*admissionregistrationv1.WebhookClientConfig
}

func configurations() []configuration {
	validating, mutating := &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}
	return []configuration{
		{validating, func() (clients []*admissionregistrationv1.WebhookClientConfig) {
			for i := range validating.Webhooks {
				clients = append(clients, &validating.Webhooks[i].ClientConfig)
			}
			return clients
		}},
		{mutating, func() (clients []*admissionregistrationv1.WebhookClientConfig) {
			for i := range mutating.Webhooks {
				clients = append(clients, &mutating.Webhooks[i].ClientConfig)
			}
			return clients
		}},
	}
}

// get reads a configuration; one that is not there has no webhooks.
func (r *Rotator) get(ctx context.Context, c configuration) error {
	err := r.reader.Get(ctx, types.NamespacedName{Name: r.options.Configuration}, c.object)
	return wrap("read webhook configuration "+r.options.Configuration, client.IgnoreNotFound(err))
}

// trusted are the CAs that the configurations trust now, each once. A bundle
// that cannot be read vouches for nobody.
func (r *Rotator) trusted(ctx context.Context) ([]*pair, error) {
	var all []*pair
	for _, c := range configurations() {
		if err := r.get(ctx, c); err != nil {
			return nil, err
		}
		for _, of := range c.clients() {
			told, err := parsePairs(of.CABundle, nil)
			if err != nil {
				continue
			}
			for _, ca := range told {
				if !slices.ContainsFunc(all, func(p *pair) bool { return p.cert.Equal(ca.cert) }) {
					all = append(all, ca)
				}
			}
		}
	}
	return all, nil
}

// patch sets the bundle of every webhook of a configuration.
func (r *Rotator) patch(ctx context.Context, c configuration, bundle []byte) (changed bool, err error) {
	if err := r.get(ctx, c); err != nil {
		return false, err
	}
	old := c.object.DeepCopyObject().(client.Object)
	for _, of := range c.clients() {
		if !bytes.Equal(of.CABundle, bundle) {
			of.CABundle, changed = bundle, true
		}
	}
	if !changed {
		return false, nil
	}
	err = r.client.Patch(ctx, c.object, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
	return true, wrap("tell webhook configuration "+r.options.Configuration+" whom to trust", client.IgnoreNotFound(err))
}

// every calls look again and again, each time after the pause that it answered.
func every(ctx context.Context, clk clock.Clock, look func() time.Duration) error {
	for {
		timer := clk.NewTimer(look())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}
