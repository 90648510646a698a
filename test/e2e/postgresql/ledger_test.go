//go:build e2e

package postgresql

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// ledger commits rows numbered 1, 2, 3, … one by one, and notes outside of the
// cluster when the server said that each was committed.
type ledger struct {
	stop func()
	done chan struct{}

	mu        sync.Mutex
	committed []time.Time // committed[n-1] is when row n was said to be
	failed    error
}

// keepLedger begins a ledger in a Pod's database.
func keepLedger(s *stage.Stage, pod string) *ledger {
	s.T.Helper()
	query(s, pod, "CREATE TABLE ledger (n bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp())")
	ctx, cancel := context.WithCancel(context.Background())
	l := &ledger{stop: cancel, done: make(chan struct{})}
	kubectl := filepath.Join(s.Binaries(), "kubectl")
	cmd := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", s.Kubeconfig(), "-n", s.Namespace, "exec", "-i", pod, "--"}, psql...)...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	s.Must(err)
	out, err := cmd.StdoutPipe()
	s.Must(err)
	s.Must(cmd.Start())
	go func() {
		defer close(l.done)
		err := l.keep(in, bufio.NewScanner(out))
		if ended := ctx.Err(); ended == nil {
			err = errors.Join(err, errors.New(strings.TrimSpace(complaints.String())))
		} else {
			err = nil
		}
		cancel()
		_ = cmd.Wait()
		l.mu.Lock()
		l.failed = err
		l.mu.Unlock()
	}()
	s.T.Cleanup(l.end)
	return l
}

// keep sends a row as soon as the one before is committed. psql prints what a
// statement returns when the server has completed it, its commit included.
func (l *ledger) keep(in io.Writer, out *bufio.Scanner) error {
	for n := 1; ; n++ {
		if _, err := fmt.Fprintf(in, "INSERT INTO ledger (n) VALUES (%d) RETURNING n;\n", n); err != nil {
			return err
		}
		if !out.Scan() {
			return errors.Join(errors.New("psql ended"), out.Err())
		}
		if said := out.Text(); said != strconv.Itoa(n) {
			return fmt.Errorf("row %d: the server said %q", n, said)
		}
		l.mu.Lock()
		l.committed = append(l.committed, time.Now())
		l.mu.Unlock()
	}
}

// by is how many rows were said to be committed by then.
func (l *ledger) by(then time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.committed) && l.committed[n].Before(then) {
		n++
	}
	return n
}

// end ends the ledger; it may be called twice.
func (l *ledger) end() {
	l.stop()
	<-l.done
}

// err is why the ledger ended by itself.
func (l *ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// psql prints bare values and ends at the first error.
var psql = []string{"psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-U", "postgres"}

// query has a Pod's server answer.
func query(s *stage.Stage, pod, sql string) string {
	s.T.Helper()
	return s.In(pod, append(psql, "-c", sql)...)
}
