package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

func TestIsOurs(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		files []string
		ours  bool
	}{
		"no folder":       {"it will be made", nil, true},
		"empty":           {"nothing can be lost", []string{}, true},
		"record":          {"it is a sandbox's", []string{"sandbox.json", "log"}, true},
		"record at birth": {"the start died while it wrote the record", []string{"sandbox.json.new"}, true},
		"record lost":     {"what top was told says whose it is", []string{"run/top.json", "etcd"}, true},
		"moved":           {"what top was told is of another folder", []string{"run/top.json other", "etcd"}, false},
		"someone's files": {"down deletes the folder: a wrong --dir must not cost a home folder", []string{"thesis.txt"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			if tc.files != nil {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range tc.files {
				f, other, _ := strings.Cut(f, " ")
				var text []byte
				if f == "run/top.json" {
					text = fmt.Appendf(nil, `{"state": %q}`, dir+other)
				}
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, f), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := isOurs(dir); (err == nil) != tc.ours {
				t.Errorf("%s: error %v", tc.why, err)
			}
		})
	}
}

func TestRemoveState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	r := record{Name: "x", Dir: dir}
	for _, f := range []string{"log/etcd.log", "pki/ca.key", "ec2/volumes/v.img"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	if err := removeState(dir, keepLogs); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"log", "sandbox.json"}, names); diff != "" {
		t.Errorf("after a failed start (-want +got)\n%s", diff)
	}
	for range 2 {
		if err := removeState(dir, removeAll); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder is left: %v", err)
	}
}

func TestLockFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	unlock, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFolder(dir); err == nil || !strings.Contains(err.Error(), "another process is starting a sandbox in "+dir) {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	if unlock, err = lockFolder(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockFolder(filepath.Join(file, "s")); err == nil || !strings.Contains(err.Error(), "choose another one") {
		t.Errorf("folder that cannot be made: %v", err)
	}
}

// TestConfig reads back with client-go what kubelets and kubectl will read.
func TestConfig(t *testing.T) {
	_, nodes, err := Options{Nodes: DefaultNodes()[:1]}.complete()
	if err != nil {
		t.Fatal(err)
	}
	r := record{Name: "x", Dir: t.TempDir(), Nodes: nodes, APIPort: 4711}
	p := paths{r.Dir}
	for _, d := range []string{p.in("conf"), p.node("node-a1", "cni")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writePKI(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := r.writeConfig(); err != nil {
		t.Fatal(err)
	}
	for file, server := range map[string]string{
		p.kubeconfig():                       "https://127.0.0.1:4711",
		p.userConfig(kubeletUser("node-a1")): "https://10.200.0.1:6443",
	} {
		cfg, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Host != server || len(cfg.CAData) == 0 || len(cfg.CertData) == 0 || len(cfg.KeyData) == 0 {
			t.Errorf("%s leads to %s, want %s with certificates", file, cfg.Host, server)
		}
	}
}

func TestAwait(t *testing.T) {
	s := &Sandbox{rec: record{Dir: t.TempDir()}}
	boom := errors.New("boom")
	t.Run("no use", func(t *testing.T) {
		err := s.await(t.Context(), "it", time.Minute, nil, func(context.Context) error { return stopWaiting{boom} })
		if !errors.Is(err, boom) {
			t.Errorf("error %v, want boom at once", err)
		}
	})
	t.Run("limit", func(t *testing.T) {
		err := s.await(t.Context(), "it", time.Millisecond, nil, func(context.Context) error { return boom })
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), "it did not come up within 1ms: boom; logs are in "+s.Logs()) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.await(ctx, "it", time.Minute, nil, func(context.Context) error { return boom })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
	})
}

func TestLastLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.log")
	if err := os.WriteFile(file, []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "the end of its log " + file + ":\n2\n3\n4\n5\n6\n7\n8\n9"
	if got := lastLines(file); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
