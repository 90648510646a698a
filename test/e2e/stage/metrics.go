package stage

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// MetricsToken makes an account in the test's namespace that may read metrics and
// nothing else, and returns a token of it. It may be called once in a namespace.
func (s *Stage) MetricsToken() string {
	s.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "reader"}}
	s.Create(account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "holdfast-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	})
	return s.Run("-n", s.Namespace, "create", "token", account.Name)
}

// Metrics makes what a manager's Pod serves for Prometheus readable, until end is
// called.
func (s *Stage) Metrics(pod, token string) (read func(context.Context) (string, error), end func()) {
	s.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.Must(err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	s.Must(l.Close())
	ctx, stop := context.WithCancel(s.T.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil { // it ends where the Pod's node was slow to answer
			_, _ = s.Kubectl(ctx, "-n", testenv.Namespace, "port-forward", "pod/"+pod, port+":9812")
		}
	}()
	read = func(ctx context.Context) (string, error) { return scrape(ctx, "127.0.0.1:"+port, token) }
	return read, func() { stop(); <-ended }
}

func scrape(ctx context.Context, address, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	// The manager makes a certificate for its metrics that nobody knows.
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return string(text), err
}
