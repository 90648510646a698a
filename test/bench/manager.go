package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// managerPackage is the command that is measured.
const managerPackage = "github.com/holdfast-dev/holdfast/cmd/holdfast-manager"

// Manager is the manager as a process, which the API server asks as its webhook.
type Manager struct {
	// Webhook asks it as the API server does: over TLS, by connections that stay.
	Webhook *http.Client

	process *exec.Cmd
	ended   chan error
	base    string // of the webhooks' URLs
	token   string // to read the metrics with
	health  string // address
	metrics string
}

// ManagerOptions say how the manager runs.
type ManagerOptions struct {
	// Log takes what it logs; nil: nobody.
	Log io.Writer
	// Processors is its GOMAXPROCS; 0: as it is.
	Processors int
	// Args are further flags.
	Args []string
	// Env is put into its environment, as "GODEBUG=…".
	Env []string
}

// StartManager builds the manager, starts it and waits until it is ready.
func (s *Server) StartManager(ctx context.Context, o ManagerOptions) (*Manager, error) {
	binary := filepath.Join(s.Dir, "holdfast-manager")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, managerPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", managerPackage, err, out)
	}
	kubeconfig, err := s.Kubeconfig()
	if err != nil {
		return nil, err
	}
	install := s.Env.WebhookInstallOptions
	m := &Manager{base: "https://" + net.JoinHostPort(install.LocalServingHost, strconv.Itoa(install.LocalServingPort)), ended: make(chan error, 1)}
	if m.health, err = freeAddress(); err != nil {
		return nil, err
	}
	if m.metrics, err = freeAddress(); err != nil {
		return nil, err
	}
	if m.token, err = s.metricsToken(ctx); err != nil {
		return nil, err
	}
	m.process = exec.Command(binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-election=false", "--health-address=" + m.health, "--metrics-address=" + m.metrics,
		"--webhook-address=" + net.JoinHostPort(install.LocalServingHost, strconv.Itoa(install.LocalServingPort)), "--webhook-cert-dir=" + install.LocalServingCertDir,
	}, o.Args...)...)
	m.process.Stdout, m.process.Stderr = o.Log, o.Log
	m.process.Env = append(os.Environ(), o.Env...)
	if o.Processors > 0 {
		m.process.Env = append(m.process.Env, "GOMAXPROCS="+strconv.Itoa(o.Processors))
	}
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.process.Start(); err != nil {
		return nil, fmt.Errorf("start the manager: %w", err)
	}
	go func() { m.ended <- m.process.Wait() }()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(install.LocalServingCAData)
	m.Webhook = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 1000, ForceAttemptHTTP2: true,
	}}
	if err := testenv.Eventually(ctx, Within, "the manager is ready", m.ready); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

func (m *Manager) ready(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.health+"/readyz", nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.Status, nil
	}
	return "", nil
}

// Stop ends it with SIGTERM, as kubelet does.
func (m *Manager) Stop() error {
	err := m.process.Process.Signal(syscall.SIGTERM)
	select {
	case ended := <-m.ended:
		return errors.Join(err, ended)
	case <-time.After(Within):
		return errors.Join(err, errors.New("the manager did not end"), m.process.Process.Kill())
	}
}

// WebhookURL is where a judge answers.
func (m *Manager) WebhookURL(path string) string { return m.base + path }

// Scrape reads its metrics.
func (m *Manager) Scrape(ctx context.Context) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	// The manager makes a certificate for its metrics that nobody knows.
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	res, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the manager's metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return nil, fmt.Errorf("read the manager's metrics: %s: %s", res.Status, text)
	}
	return Parse(res.Body)
}

// freeAddress is an address of this machine that nobody listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// metricsToken is a token of somebody who may read the manager's metrics.
func (s *Server) metricsToken(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	}
	for _, o := range []client.Object{account, role, binding} {
		if err := s.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("make %T: %w", o, err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := s.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("ask for a token: %w", err)
	}
	return request.Status.Token, nil
}
