//go:build envtest

package usage

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const namespace = "holdfast-system"

// house is a real API server with the accounts and rights of config/manager, and a
// kubelet that has it review who asks, as kubelet does.
type house struct {
	t     *testing.T
	admin *kubernetes.Clientset
	cfg   *rest.Config
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, cfg: testenv.APIServer(t)}
	var err error
	h.admin, err = kubernetes.NewForConfig(h.cfg)
	h.must(err)
	c, err := client.New(h.cfg, client.Options{})
	h.must(err)
	h.must(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("..", "..", "config", "manager"))
	h.must(err)
	for _, r := range objects.Resources() {
		if g := r.GetGvk(); g.Group != "rbac.authorization.k8s.io" && g.Kind != "ServiceAccount" {
			continue
		}
		content, err := r.Map()
		h.must(err)
		h.must(c.Create(t.Context(), &unstructured.Unstructured{Object: content}))
	}
	return h
}

// as is how who has that token reaches the API server.
func (h *house) as(token string) (*rest.Config, *kubernetes.Clientset) {
	h.t.Helper()
	cfg := rest.AnonymousClientConfig(h.cfg)
	cfg.BearerToken = token
	c, err := kubernetes.NewForConfig(cfg)
	h.must(err)
	return cfg, c
}

// request requests a token of an account.
func request(ctx context.Context, c *kubernetes.Clientset, account string) (string, error) {
	r, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return r.Status.Token, nil
}

// user is whose token it is; nil: nobody's.
func (h *house) user(token string) *authenticationv1.UserInfo {
	h.t.Helper()
	r, err := h.admin.AuthenticationV1().TokenReviews().Create(context.Background(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		h.t.Errorf("review a token: %v", err)
		return nil
	}
	if !r.Status.Authenticated {
		return nil
	}
	return &r.Status.User
}

// admit does what kubelet does with its webhooks on: the token is reviewed, with no
// audience, and whether its user may get the node's metrics or stats.
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
func (h *house) admit(token, subresource string) int {
	user := h.user(token)
	if user == nil {
		return http.StatusUnauthorized
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: subresource, Name: "a"},
	}}
	review, err := h.admin.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), review, metav1.CreateOptions{})
	if err != nil {
		h.t.Errorf("review a right: %v", err)
		return http.StatusInternalServerError
	}
	if !review.Status.Allowed {
		return http.StatusForbidden
	}
	return http.StatusOK
}

// TestTokenOfItsOwn runs with the manager's own account and rights: what a node's
// owner can take from its kubelet reads metrics and does nothing else.
func TestTokenOfItsOwn(t *testing.T) {
	h := newHouse(t)
	ctx := t.Context()
	managers, err := request(ctx, h.admin, "holdfast-manager")
	h.must(err)
	cfg, manager := h.as(managers)

	a := newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	h.must(os.WriteFile(file, a.pem(), 0o600))
	k := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": says(exposition("data", 1000, 200)), "/stats/summary": says(summary)})
	k.admit = h.admit
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r, _ := reader(t, a, func(o *Options) { o.Config, o.Kubelet.CertificateAuthority, o.Clock = cfg, file, clock })
	read := func(step time.Duration) (Answer, string) {
		clock.SetTime(clock.Now().Add(step))
		return r.Read(ctx, []Node{k.node("a")}), k.last()
	}

	// Rights are there a moment after they are written.
	h.must(testenv.Eventually(ctx, 30*time.Second, "the manager may request tokens", func(ctx context.Context) (string, error) {
		_, err := request(ctx, manager, ServiceAccount)
		return "", err
	}))
	answer, first := read(0)
	if len(answer.Samples) != 1 || answer.Token != nil {
		t.Fatalf("the kubelet tells nothing: %v", answer)
	}
	if first == managers {
		t.Error("the kubelet was shown the manager's token")
	}
	if u := h.user(first); u == nil || u.Username != "system:serviceaccount:"+namespace+":"+ServiceAccount {
		t.Errorf("the kubelet was shown a token of %v, want one of %s", u, ServiceAccount)
	}
	for token, want := range map[string]int{first: http.StatusOK, managers: http.StatusForbidden} {
		for _, subresource := range []string{"metrics", "stats"} {
			if got := h.admit(token, subresource); got != want {
				t.Errorf("kubelet says %d to %s of %v, want %d", got, subresource, h.user(token).Username, want)
			}
		}
	}
	for subresource := range map[string]bool{"": true, "proxy": true, "log": true} {
		if got := h.admit(first, subresource); got != http.StatusForbidden {
			t.Errorf("kubelet says %d to %q of nodes", got, subresource)
		}
	}

	// What the manager may do, and the token may not.
	_, taken := h.as(first)
	for what, do := range map[string]func(c *kubernetes.Clientset) error{
		"delete a claim": func(c *kubernetes.Clientset) error {
			return c.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "data", metav1.DeleteOptions{})
		},
		"read its Secret": func(c *kubernetes.Clientset) error {
			_, err := c.CoreV1().Secrets(namespace).Get(ctx, "holdfast-webhook-certificates", metav1.GetOptions{})
			return err
		},
		"list Nodes": func(c *kubernetes.Clientset) error {
			_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		},
		"request another": func(c *kubernetes.Clientset) error {
			_, err := request(ctx, c, ServiceAccount)
			return err
		},
	} {
		if err := do(manager); apierrors.IsForbidden(err) {
			t.Errorf("%s, by the manager: %v", what, err)
		}
		if err := do(taken); !apierrors.IsForbidden(err) {
			t.Errorf("%s, by who took the token from a kubelet: %v, want that it is forbidden", what, err)
		}
	}
	// Nor may the manager be somebody else.
	_, err = h.admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-controller"}}, metav1.CreateOptions{})
	h.must(err)
	for _, account := range []string{"holdfast-controller", "holdfast-manager"} {
		if _, err := request(ctx, manager, account); !apierrors.IsForbidden(err) {
			t.Errorf("the manager requests a token of %s: %v, want that it is forbidden", account, err)
		}
	}

	if answer, again := read(time.Minute); again != first || len(answer.Samples) != 1 {
		t.Errorf("a minute later it is another token: %v", answer)
	}
	answer, second := read(7 * time.Minute)
	if second == first || len(answer.Samples) != 1 || h.user(second).Username != h.user(first).Username {
		t.Errorf("eight minutes later the token was not renewed: %v", answer)
	}

	// The right is taken away.
	binding, err := h.admin.RbacV1().RoleBindings(namespace).Get(ctx, "holdfast-manager", metav1.GetOptions{})
	h.must(err)
	h.must(h.admin.RbacV1().RoleBindings(namespace).Delete(ctx, binding.Name, metav1.DeleteOptions{}))
	h.must(testenv.Eventually(ctx, 30*time.Second, "the manager may request no tokens", func(ctx context.Context) (string, error) {
		if _, err := request(ctx, manager, ServiceAccount); !apierrors.IsForbidden(err) {
			return "it may", err
		}
		return "", nil
	}))
	answer, shown := read(8 * time.Minute)
	if !apierrors.IsForbidden(answer.Token) || shown != second || len(answer.Samples) != 1 {
		t.Errorf("the token of before lives: %v", answer)
	}
	k.questions()
	if answer, _ = read(2 * time.Minute); !apierrors.IsForbidden(answer.Token) || answer.Failed["a"] == nil || k.questions() != "" {
		t.Errorf("the token has ended: %v", answer)
	}
	if n := testutil.ToFloat64(r.errors.WithLabelValues(sourceToken)); n != 2 {
		t.Errorf("%v errors of tokens are counted, want 2", n)
	}
	binding.ResourceVersion, binding.UID = "", ""
	_, err = h.admin.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{})
	h.must(err)
	h.must(testenv.Eventually(ctx, 30*time.Second, "kubelets are asked again", func(context.Context) (string, error) {
		if answer, _ := read(0); len(answer.Samples) != 1 {
			return "no sample", answer.Token
		}
		return "", nil
	}))

	// Installed anew, the account is another one of the same name.
	before := k.last()
	h.must(h.admin.CoreV1().ServiceAccounts(namespace).Delete(ctx, ServiceAccount, metav1.DeleteOptions{}))
	_, err = h.admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: ServiceAccount}}, metav1.CreateOptions{})
	h.must(err)
	h.must(testenv.Eventually(ctx, time.Minute, "the account made anew is asked for a token", func(context.Context) (string, error) {
		answer, shown := read(0)
		if shown == before || len(answer.Samples) != 1 {
			return "the kubelet is shown a token of before", answer.Token
		}
		return "", nil
	}))
}
