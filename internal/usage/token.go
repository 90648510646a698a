package usage

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// ServiceAccount is whose tokens kubelets are shown. It may read what kubelets tell
// of themselves and nothing else; config/manager/rbac.yaml makes it.
const ServiceAccount = "holdfast-usage"

const (
	// tokenLife is how long a token is asked to live: the least that the API
	// server gives. See ValidateTokenRequest in
	// https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/authentication/validation/validation.go
	tokenLife = 10 * time.Minute
	// tokenTimeout is how long the API server may take to make one.
	tokenTimeout = 10 * time.Second
)

// tokens keeps one token of ServiceAccount, in memory alone.
type tokens struct {
	accounts corev1client.ServiceAccountInterface
	named    string // the account, for messages
	clock    clock.PassiveClock

	mu         sync.Mutex
	token      string // "": there is none
	renew, end time.Time
}

func newTokens(cfg *rest.Config, namespace string, c clock.PassiveClock) (*tokens, error) {
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the client that requests tokens: %w", err)
	}
	return &tokens{accounts: core.ServiceAccounts(namespace), named: namespace + "/" + ServiceAccount, clock: c}, nil
}

// get answers a token that lives; "": there is none, for the reason of the error.
// With both, it could not be renewed and lives for a while yet.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if t.token != "" && now.Before(t.renew) {
		return t.token, nil
	}
	if !now.Before(t.end) {
		t.token = ""
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	// No audience is named: kubelet has the API server review tokens for its own,
	// which is the one that a token gets where none is named. It is bound to no Pod,
	// since that would have to run as the account.
	asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLife / time.Second))}}
	given, err := t.accounts.CreateToken(ctx, ServiceAccount, asked, metav1.CreateOptions{})
	if err != nil {
		return t.token, fmt.Errorf("request a token of ServiceAccount %s, which kubelets are shown (the account, and the right to create serviceaccounts/token of it, are in config/manager/rbac.yaml): %w", t.named, err)
	}
	// What was given may be another time than was asked for. It is counted by this
	// clock alone: the API server's may be another.
	life := tokenLife
	if given.Spec.ExpirationSeconds != nil {
		life = time.Duration(*given.Spec.ExpirationSeconds) * time.Second
	}
	t.token, t.renew, t.end = given.Status.Token, now.Add(life*4/5), now.Add(life)
	return t.token, nil
}

// refused has the token renewed: a kubelet does not know it. The account may be
// another one of the same name, or the API server may sign with another key.
func (t *tokens) refused(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.renew = time.Time{}
	}
}
