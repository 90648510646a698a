package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/imds"
)

func TestParseSources(t *testing.T) {
	for text, want := range map[string][]string{
		"imds,kubernetes": {"imds", "kubernetes"}, "kubernetes,imds": {"kubernetes", "imds"}, "imds": {"imds"}, "kubernetes": {"kubernetes"},
		"": nil, "imds,": nil, "imds,imds": nil, "metadata": nil, "IMDS": nil,
	} {
		got, err := parseSources(text)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// place is a source that answers what a test says.
type place struct {
	id    ebs.InstanceID
	taken int
	err   error
}

func (p *place) Instance(context.Context) (imds.Instance, error) {
	return imds.Instance{ID: p.id}, p.err
}

func (p *place) Occupancy(context.Context) (ebs.Occupancy, error) {
	return ebs.Occupancy{NetworkInterfaces: p.taken}, p.err
}

// The first source goes first; the second never replaces what the first has
// told about the limit, which could only raise or lower it without a cause.
func TestMetadataOrder(t *testing.T) {
	down := errors.New("no route to host")
	first, second := &place{id: "i-1", taken: 2, err: down}, &place{id: "i-1", taken: 15}
	m := &metadata{sources: []source{{fromIMDS, first}, {fromKubernetes, second}}, log: testr.New(t)}
	taken := func() int {
		t.Helper()
		o, err := m.Occupancy(t.Context())
		if err != nil && !errors.Is(err, down) {
			t.Fatal(err)
		}
		return o.NetworkInterfaces
	}
	if i, err := m.Instance(t.Context()); err != nil || i.ID != "i-1" {
		t.Errorf("the second source is not asked: %v, %v", i, err)
	}
	if n := taken(); n != 15 {
		t.Errorf("%d places taken while only the second source has ever answered, want 15", n)
	}
	first.err = nil
	if n := taken(); n != 2 {
		t.Errorf("%d places taken once the first source answers, want its 2", n)
	}
	first.err = down
	if n := taken(); n != 0 {
		t.Errorf("%d places taken by the second source after the first had answered: want an error", n)
	}
	if _, err := m.Instance(t.Context()); err != nil {
		t.Errorf("what the instance is stays known: %v", err)
	}
	second.err = down
	if _, err := m.Instance(t.Context()); !errors.Is(err, down) || !strings.Contains(err.Error(), fromIMDS) || !strings.Contains(err.Error(), fromKubernetes) {
		t.Errorf("want the reasons of both, got %v", err)
	}
}

// Outside of a cluster there is no Node: no harm unless it is all there is.
func TestMetadataWithoutCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	m, err := newMetadata([]string{fromIMDS, fromKubernetes}, "a", "", testr.New(t))
	if err != nil || len(m.sources) != 1 || m.sources[0].name != fromIMDS {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := newMetadata([]string{fromKubernetes}, "a", "", testr.New(t)); err == nil {
		t.Error("no source at all is an error")
	}
}

func TestPreStopFlags(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv(nodeNameVariable, "")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no name":    {nil, "--node-name"},
		"no time":    {[]string{"--node-name=a", "--timeout=0s"}, "--timeout is 0s"},
		"no cluster": {[]string{"--node-name=a"}, "no API server"},
	} {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		err := run(ctx, append([]string{"pre-stop"}, tc.args...)...)
		stop()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, tc.want)
		}
	}
}

// A process that starts while the metadata service is silent counts no more
// places than the one before it, which had heard it.
func TestSilenceOverARestartRaisesNothing(t *testing.T) {
	file := memory(filepath.Join(t.TempDir(), "occupancy.json"))
	heard, assumed := &place{id: "i-1", taken: 9}, &place{id: "i-1", taken: 3}
	started := func() *metadata {
		return &metadata{sources: []source{{fromIMDS, heard}, {fromKubernetes, assumed}}, memory: file, log: testr.New(t)}
	}
	taken := func(m *metadata, want int, why string) {
		t.Helper()
		if o, err := m.Occupancy(t.Context()); err != nil || o.NetworkInterfaces != want {
			t.Errorf("%s: %d interfaces, %v, want %d", why, o.NetworkInterfaces, err, want)
		}
	}
	taken(started(), 9, "the service answers")
	heard.err = errors.New("no route to host")
	taken(started(), 9, "it is silent after a restart: what was known")
	assumed.taken = 12
	taken(started(), 12, "an assumption of more places taken stands")
	assumed.id, assumed.taken = "i-2", 3
	taken(started(), 3, "what was known of another instance is not of this one")
	heard.err, heard.taken, heard.id, assumed.id = nil, 4, "i-1", "i-1"
	taken(started(), 4, "what the service tells goes first, also where it is less")
	heard.err = errors.New("no route to host")
	taken(started(), 4, "and is remembered")
	if err := os.WriteFile(string(file), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken(started(), 3, "a file that cannot be read keeps no node from its volumes")
}
