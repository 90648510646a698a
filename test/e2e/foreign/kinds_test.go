//go:build e2e

package foreign

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// withoutKinds makes the cluster one that never had VolumeSnapshots, with a
// manager that starts in it. The answer brings them, as installing the
// snapshot-controller does.
func withoutKinds(s *stage.Stage) (bring func()) {
	s.T.Helper()
	ctx, crds := s.T.Context(), toolchain.CRDs(s.Binaries())
	var snapshots snapshotv1.VolumeSnapshotList
	var contents snapshotv1.VolumeSnapshotContentList
	s.Must(s.Client.List(ctx, &snapshots))
	s.Must(s.Client.List(ctx, &contents))
	if n := len(snapshots.Items) + len(contents.Items); n > 0 {
		s.T.Fatalf("%d snapshots and contents are left of another test: they would go with their kinds", n)
	}
	gone := true
	bring = func() {
		s.T.Helper()
		ctx := context.Background()
		_, err := s.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--field-manager=sandbox", "-f", crds)
		s.Must(err)
		_, err = s.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
		s.Must(err)
		s.Must(s.StartComponent(ctx, sandbox.SnapshotController))
		gone = false
	}
	s.T.Cleanup(func() {
		if gone {
			bring()
		}
	})
	s.Must(s.StopComponent(ctx, sandbox.SnapshotController))
	s.Run("delete", "-f", crds, "--timeout=60s")
	s.Run("-n", testenv.Namespace, "delete", "pods", "-l", "app.kubernetes.io/component=manager")
	s.Eventually("managers start without the kinds", func(ctx context.Context) (string, error) {
		pods, err := managers(ctx, s)
		if err != nil || len(pods) != 2 {
			return fmt.Sprintf("%d Pods", len(pods)), err
		}
		for _, p := range pods {
			if !ready(&p) {
				return p.Name + " is not ready", nil
			}
			if n := p.Status.ContainerStatuses[0].RestartCount; n > 0 {
				s.T.Fatalf("manager %s has ended %d times", p.Name, n)
			}
		}
		return "", nil
	})
	s.Step("both managers start without the snapshot kinds")
	return bring
}

func managers(ctx context.Context, s *stage.Stage) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, client.InNamespace(testenv.Namespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
	return pods.Items, err
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// reader lets the test read metrics, as Prometheus may.
func reader(s *stage.Stage) {
	s.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "reader"}}
	s.Create(account, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "holdfast-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	})
}

// served waits until the metric of every manager says whether the kinds are there.
func served(s *stage.Stage, want int) {
	s.T.Helper()
	pods, err := managers(s.T.Context(), s)
	s.Must(err)
	token := s.Run("-n", s.Namespace, "create", "token", "reader")
	for _, p := range pods {
		func() {
			address, end := forward(s, p.Name)
			defer end()
			for _, group := range []string{"snapshot.storage.k8s.io", "groupsnapshot.storage.k8s.io"} {
				line := fmt.Sprintf("holdfast_snapshot_kinds_served{group=%q} %d\n", group, want)
				s.Eventually(p.Name+" tells "+line, func(ctx context.Context) (string, error) {
					text, err := scrape(ctx, address, token)
					if err == nil && !strings.Contains(text, line) {
						return "it does not", nil
					}
					return "", err
				})
			}
		}()
	}
}

// forward makes the metrics of a manager's Pod reachable.
func forward(s *stage.Stage, pod string) (address string, end func()) {
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
	return "127.0.0.1:" + port, func() { stop(); <-ended }
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
