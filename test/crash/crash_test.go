package crash

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/test/process"
)

// patience is how long a request may be repeated, and how long one may take.
const patience = 30 * time.Second

// build builds the driver once for all tests.
var build = sync.OnceValues(func() (string, error) {
	return process.Build(context.Background(), buildDir)
})

var buildDir string

// atOnce is how many rows run at once: they mostly wait.
const atOnce = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	err := flag.Set("test.parallel", atOnce)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if buildDir, err = os.MkdirTemp("", "holdfast-crash-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}

// site is a region and a controller process in front of it.
type site struct {
	*process.Client
	t      *testing.T
	sim    *ec2sim.Sim
	url    string
	dir    string
	log    bytes.Buffer
	driver *process.Driver
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	var err error
	delays := ec2sim.Delays{Create: short, Attach: short, Detach: short, Modify: short, Snapshot: short, Delete: short}
	if s.sim, err = ec2sim.New(ec2sim.Config{Delays: &delays}); err != nil {
		t.Fatal(err)
	}
	if err := s.sim.AddInstance(ec2sim.Instance{ID: instance, Zone: zone}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.sim)
	s.url = srv.URL
	s.start()
	t.Cleanup(func() {
		s.Close()
		s.driver.Kill()
		srv.CloseClientConnections()
		srv.Close()
		s.sim.FailOnUnmodelled(t)
		if t.Failed() {
			t.Logf("the controller's log:\n%s", s.log.String())
		}
	})
	return s
}

// start starts a controller that remembers nothing.
func (s *site) start() {
	s.t.Helper()
	bin, err := build()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.driver, err = process.StartController(s.t.Context(), process.Options{Binary: bin, Dir: s.dir, Log: &s.log, Args: []string{"-v=1"}}, s.url); err != nil {
		s.t.Fatalf("%v\n%s", err, s.log.String())
	}
	if s.Client, err = process.Dial(s.driver.Endpoint); err != nil {
		s.t.Fatal(err)
	}
}

// crash kills the controller and starts another.
func (s *site) crash() {
	s.t.Helper()
	s.driver.Kill()
	s.Close()
	s.start()
}

func (s *site) inject(f ec2sim.Fault) {
	s.t.Helper()
	if err := s.sim.Inject(f); err != nil {
		s.t.Fatal(err)
	}
}

// must repeats a request as the sidecars do until it succeeds.
func (s *site) must(what string, request func(context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := request(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: no success within %v, the last error is %v", what, patience, err)
		case <-tick.C:
		}
	}
}

// accepted is how often EC2 accepted an action.
func (s *site) accepted(action string) int {
	n := 0
	for _, c := range s.sim.Calls() {
		if c.Action == action && c.Code == "OK" {
			n += c.Count
		}
	}
	return n
}

// awaitAccepted waits until EC2 has accepted an action.
func (s *site) awaitAccepted(action string, ended <-chan error) {
	s.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); s.accepted(action) == 0; {
		if time.Now().After(deadline) {
			s.t.Fatalf("EC2 accepted no %s within %v", action, patience)
		}
		select {
		case err := <-ended:
			s.t.Fatalf("the request ended, with %v, before EC2 accepted %s", err, action)
		case <-tick.C:
		}
	}
}

// TestKilled: the controller is killed in the moment that EC2 has accepted.
func TestKilled(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel() // mostly waiting
			s := newSite(t)
			s.killed(r, r.prepare(s))
		})
	}
}

// TestKilledBeforeItShows: besides, EC2 does not show yet what it has accepted
// when the new process looks. Client tokens, and EC2's own refusals, are what
// keeps it from doing everything twice.
func TestKilledBeforeItShows(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c := r.prepare(s)
			delays := s.sim.Delays()
			// A modification lasts longer than reads lag, and a volume's snapshots have to be apart, in EC2.
			delays.Modify, delays.SnapshotSpacing = 2*lag, ec2sim.DefaultDelays().SnapshotSpacing
			if err := errors.Join(s.sim.SetDelays(delays), s.sim.SetReadLag(map[string]ec2sim.Duration{"*": lag})); err != nil {
				t.Fatal(err)
			}
			s.killed(r, c)
		})
	}
}

// killed makes a request, kills the controller in the middle, and makes it again.
func (s *site) killed(r row, c trial) {
	s.t.Helper()
	s.sim.ResetCalls()
	s.inject(ec2sim.Fault{Action: r.action, LostAnswer: ec2sim.LostHeld})
	ended := make(chan error, 1)
	go func() { ended <- c.request(s.t.Context()) }()
	s.awaitAccepted(r.action, ended)
	s.driver.Kill()
	if err := <-ended; status.Code(err) != codes.Unavailable {
		s.t.Errorf("the request to the killed controller ended with %v, want UNAVAILABLE: the sidecars ask again", err)
	}
	s.crash()
	s.must("the same request again", c.request)
	c.check()
}

// TestAnswerLost: the connection breaks in the moment that EC2 has accepted,
// and the controller lives on.
func TestAnswerLost(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c := r.prepare(s)
			s.inject(ec2sim.Fault{Action: r.action, LostAnswer: ec2sim.LostAfter})
			s.must("the request", func(ctx context.Context) error {
				err := c.request(ctx)
				if code := status.Code(err); err != nil && !slices.Contains(keptCodes, code) {
					t.Fatalf("the request ended with %v: csi-provisioner gives up what it asked for with any code but %v", err, keptCodes)
				}
				return err
			})
			if left := s.sim.Faults(); len(left) != 0 {
				t.Errorf("faults that hit nothing: %+v", left)
			}
			c.check()
		})
	}
}

// keptCodes are those with which csi-provisioner takes a volume to exist, maybe.
// https://github.com/kubernetes-csi/external-provisioner/blob/v6.4.0/pkg/controller/controller.go (isFinalError)
var keptCodes = []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted}

// sent finds the requests that the driver makes of EC2.
var sent = regexp.MustCompile(`sdk\.([A-Z]\w+)Input\{`)

// TestTableIsComplete: every change that the driver can make has a row, and
// every row is of a change that it makes.
func TestTableIsComplete(t *testing.T) {
	files, err := filepath.Glob("../../internal/ec2/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("the driver's requests are not where they were: %v", err)
	}
	makes := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sent.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(m[1], "Describe") {
				makes[m[1]] = true
			}
		}
	}
	for action := range makes {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.action == action }) {
			t.Errorf("internal/ec2 sends %s, which has no row in this table", action)
		}
	}
	for _, r := range rows {
		if !makes[r.action] {
			t.Errorf("the table has a row for %s, which internal/ec2 does not send", r.action)
		}
	}
}
