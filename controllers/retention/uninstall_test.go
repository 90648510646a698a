//go:build envtest

package retention

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// Both ways in which the guide lets go schedules that delete their copies: what
// only the manager can take off must not be left in a cluster without one.
const (
	whileItRuns = `-p '{"spec":{"onScheduleDelete":"Retain"}}'`
	onceItsGone = `-p '{"metadata":{"finalizers":null}}'`
)

// uninstalled runs the commands of docs/guardrails.md, before and after the manager
// has gone.
func uninstalled(t *testing.T, cfg *rest.Config) {
	spec := last(3)
	spec.OnScheduleDelete = v1alpha1.DeleteCopies
	h := move(t, cfg, spec)
	h.schedule("kept", last(3))
	kept := h.get("kept").ResourceVersion
	h.must()
	if f := h.get("hourly").Finalizers; len(f) != 1 {
		t.Fatalf("before, the finalizers are %v", f)
	}
	run := kubectl(t, cfg)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "guardrails.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Install and uninstall\n")
	_, text, _ = strings.Cut(text, "```sh\n")
	command, after, _ := strings.Cut(text, "```\n")
	if !strings.Contains(command, whileItRuns) || !strings.Contains(after, "`"+onceItsGone+"`") {
		t.Fatalf("the guide has other commands: %s", command)
	}

	run(command)
	if s := h.get("hourly"); s.Spec.OnScheduleDelete != v1alpha1.RetainCopies {
		t.Errorf("while the manager runs the schedule is left with %s", s.Spec.OnScheduleDelete)
	}
	h.must()
	if f := h.get("hourly").Finalizers; len(f) > 0 {
		t.Errorf("and then its finalizers are %v", f)
	}
	if h.get("kept").ResourceVersion != kept {
		t.Error("a schedule that keeps its copies is changed")
	}

	s := h.get("hourly")
	h.change(s, func() { s.Spec.OnScheduleDelete = v1alpha1.DeleteCopies })
	h.must()
	if err := h.c.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if h.get("hourly").DeletionTimestamp == nil {
		t.Fatal("a schedule that deletes its copies goes without the manager")
	}
	run(strings.Replace(command, whileItRuns, onceItsGone, 1))
	if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
		t.Errorf("without the manager the schedule stays: %v", err)
	}
}

// kubectl answers what runs a command of the guide as who may do all.
func kubectl(t *testing.T, cfg *rest.Config) func(command string) {
	t.Helper()
	bin, err := testenv.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return func(command string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-ec", command)
		c.Env = append(os.Environ(), "KUBECONFIG="+file, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
}
