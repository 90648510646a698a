//go:build envtest

package gate

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const page = "holdfast_up 1\n"

// behind starts a server whose page is behind the gate.
func behind(t *testing.T, config *rest.Config) string {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := Provide(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := filter(testr.New(t), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// ask is what somebody is answered who sends this header.
func ask(t *testing.T, method, url, authorization string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestGate: the page is for whom a real API server knows by their token and lets
// get the path, and for nobody else; a right that is taken away is gone at once.
func TestGate(t *testing.T) {
	config := testenv.APIServer(t)
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	token := func(name string) string {
		t.Helper()
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		must(c.Create(t.Context(), account))
		request := &authenticationv1.TokenRequest{}
		must(c.SubResource("token").Create(t.Context(), account, request))
		return request.Status.Token
	}
	reader, other := token("reader"), token("other")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reads-metrics"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads-metrics"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}},
	}
	must(c.Create(t.Context(), role))
	must(c.Create(t.Context(), binding))
	url := behind(t, config) + "/metrics"
	answered := func(want int) { // the API server's own informers lag
		t.Helper()
		must(testenv.Eventually(t.Context(), time.Minute, fmt.Sprintf("the reader is answered %d", want), func(context.Context) (string, error) {
			if code, text := ask(t, http.MethodGet, url, "Bearer "+reader); code != want {
				return fmt.Sprintf("%d %q", code, text), nil
			}
			return "", nil
		}))
	}
	answered(http.StatusOK)
	for name, tc := range map[string]struct {
		method, url, authorization string
		want                       int
	}{
		"who may":                    {http.MethodGet, url, "Bearer " + reader, http.StatusOK},
		"the scheme in small":        {http.MethodGet, url, "bearer " + reader, http.StatusOK},
		"nobody":                     {http.MethodGet, url, "", http.StatusUnauthorized},
		"no token":                   {http.MethodGet, url, "Bearer ", http.StatusUnauthorized},
		"a password":                 {http.MethodGet, url, "Basic " + reader, http.StatusUnauthorized},
		"somebody else's token":      {http.MethodGet, url, "Bearer " + reader[:len(reader)-6] + "AAAAAA", http.StatusUnauthorized},
		"who may not":                {http.MethodGet, url, "Bearer " + other, http.StatusForbidden},
		"another path":               {http.MethodGet, strings.TrimSuffix(url, "/metrics") + "/debug", "Bearer " + reader, http.StatusForbidden},
		"another verb":               {http.MethodPost, url, "Bearer " + reader, http.StatusForbidden},
		"a path that leads to it":    {http.MethodGet, url + "/../metrics/x", "Bearer " + reader, http.StatusForbidden},
		"an API server that is gone": {http.MethodGet, behind(t, &rest.Config{Host: "http://127.0.0.1:1"}) + "/metrics", "Bearer " + reader, http.StatusServiceUnavailable},
	} {
		code, text := ask(t, tc.method, tc.url, tc.authorization)
		if code != tc.want || (text == page) != (tc.want == http.StatusOK) {
			t.Errorf("%s: %d %q, want %d", name, code, text, tc.want)
		}
		if strings.Contains(text, reader) {
			t.Errorf("%s: the answer has the token", name)
		}
	}
	must(c.Delete(t.Context(), binding))
	answered(http.StatusForbidden)
}
