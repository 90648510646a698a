package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Bounds of one read.
const (
	// nodesAtOnce is how many kubelets are asked at a time.
	nodesAtOnce = 10
	// timeoutPerNode is how long a kubelet may take for everything. One that is
	// alive answers within a fraction of a second.
	timeoutPerNode = 10 * time.Second
	// prometheusTimeout is how long Prometheus may take.
	prometheusTimeout = 20 * time.Second
	// maxBodyBytes is how much an answer may have. The metrics of a kubelet with
	// 110 Pods are below 2 MiB, Prometheus' answer for 5,000 claims is below 8.
	maxBodyBytes = 32 << 20
)

// KubeletOptions say how kubelets are verified.
type KubeletOptions struct {
	// CertificateAuthority is a file with the certificates that sign those of
	// kubelets; empty: the one that signs the API server's.
	CertificateAuthority string
	// SkipVerify asks whoever answers. It shows them the token of ServiceAccount.
	SkipVerify bool
}

// kubeletClient makes the client that asks kubelets. Of how the API server is
// reached it has whom to trust, and no credentials: those of the manager are for
// nobody but the API server.
func kubeletClient(cfg *rest.Config, o KubeletOptions) (*http.Client, error) {
	c := rest.AnonymousClientConfig(cfg)
	c.ServerName = ""
	c.Timeout, c.Proxy, c.Dial = 0, nil, (&net.Dialer{Timeout: timeoutPerNode}).DialContext
	if o.CertificateAuthority != "" {
		c.CAFile, c.CAData = o.CertificateAuthority, nil
	}
	if o.SkipVerify {
		c.Insecure, c.CAFile, c.CAData = true, "", nil
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make the client of kubelets: %w", err)
	}
	asking := *client // it may be everybody's
	// A redirect would take the token to any port of the node, without TLS too.
	asking.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &asking, nil
}

// Node is where a kubelet answers.
type Node struct {
	Name string
	// Address is its host and port; empty: it has no InternalIP.
	Address string
	// Has says of which claims it is believed: those whose volumes it has. Others
	// it may have had, or never; nil: of all.
	Has func(types.NamespacedName) bool
}

func (n Node) has(claim types.NamespacedName) bool { return n.Has == nil || n.Has(claim) }

// NodeOf is the kubelet of a node as the node's status tells it.
func NodeOf(n *corev1.Node) Node {
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = 10250
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && net.ParseIP(a.Address) != nil {
			return Node{Name: n.Name, Address: net.JoinHostPort(a.Address, strconv.Itoa(int(port)))}
		}
	}
	return Node{Name: n.Name}
}

// statusError is an answer with a status other than 200.
type statusError struct {
	url  string
	code int
	says string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answers %d %s: %s", e.url, e.code, http.StatusText(e.code), e.says)
}

// get asks once, with a token unless that is "", and reads the answer as it comes.
func get(ctx context.Context, client *http.Client, url, token string, read func(io.Reader) (found, error)) (found, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	body := &bounded{from: answer.Body, left: maxBodyBytes}
	defer func() {
		// Read to its end, the connection can be used again.
		_, _ = io.Copy(io.Discard, body)
		_ = answer.Body.Close()
	}()
	if answer.StatusCode != http.StatusOK {
		says, _ := io.ReadAll(io.LimitReader(body, 200))
		return nil, &statusError{url, answer.StatusCode, string(says)}
	}
	f, err := read(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return f, nil
}

// bounded fails where there is more to read than it lets through: what was cut
// off could be a claim's.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

var errTooLong = errors.New("the answer is above " + strconv.Itoa(maxBodyBytes>>20) + " MiB")
