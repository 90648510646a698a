package initd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxRequest bounds a request in bytes; argument lists are a few KiB.
	maxRequest = 1 << 20
	// maxFiles is how many descriptors may come with a request.
	maxFiles = 3
	// maxBody bounds what a probe reads of an answer.
	maxBody = 64 << 10
	// probeTimeout bounds one probe: all that is probed answers in milliseconds.
	probeTimeout = 3 * time.Second
)

// Handler is an operation that one kind of init adds to the common ones.
type Handler func(Request) Response

// Server answers requests.
type Server struct {
	Table *Table
	// Listeners are what daemons may be given by name (Request.Listeners).
	Listeners map[string]*os.File
	// Handlers are the operations beyond the common ones, by name.
	Handlers map[string]Handler
}

// Serve listens on a unix socket at the path, for its owner alone, and answers
// until the listener fails.
func (s *Server) Serve(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("close %s to others: %w", path, err)
	}
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return fmt.Errorf("accept on %s: %w", path, err)
		}
		go s.serve(c)
	}
}

// serve answers the one request of a connection.
func (s *Server) serve(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	req, files, err := receive(c)
	defer closeAll(files)
	if err != nil {
		reply(c, failed(err))
		return
	}
	if req.Op == "run" {
		s.run(c, req, files)
		return
	}
	reply(c, s.answer(req))
}

func (s *Server) answer(req Request) Response {
	if h, ok := s.Handlers[req.Op]; ok {
		return h(req)
	}
	switch req.Op {
	case "start":
		return s.start(req)
	case "stop":
		if err := s.Table.Stop(req.Name, req.Grace); err != nil {
			return failed(err)
		}
		return Response{}
	case "list":
		return Response{PID: os.Getpid(), Processes: s.Table.List()}
	case "probe":
		return probe(req.URL)
	}
	return failed(fmt.Errorf("unknown operation %q", req.Op))
}

// start begins a daemon in a session of its own, with its log as both outputs.
func (s *Server) start(req Request) Response {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return failed(err)
	}
	defer null.Close()
	out, err := os.OpenFile(req.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return failed(fmt.Errorf("open the log of %s: %w", req.Name, err))
	}
	defer out.Close()
	fds := []uintptr{null.Fd(), out.Fd(), out.Fd()}
	for _, name := range req.Listeners {
		f, ok := s.Listeners[name]
		if !ok {
			return failed(fmt.Errorf("%s wants listener %q, which this init was not given", req.Name, name))
		}
		fds = append(fds, f.Fd())
	}
	pid, err := s.Table.Start(req.Name, req.Argv, attributes(req, fds), nil)
	if err != nil {
		return failed(err)
	}
	return Response{PID: pid}
}

// run runs a command on the caller's own streams. It ends with the connection.
func (s *Server) run(c *net.UnixConn, req Request, files []*os.File) {
	if len(files) != maxFiles {
		reply(c, failed(fmt.Errorf("run needs %d descriptors, %d came", maxFiles, len(files))))
		return
	}
	var fds []uintptr
	for _, f := range files {
		fds = append(fds, f.Fd())
	}
	p, err := s.Table.fork(req.Argv, attributes(req, fds))
	closeAll(files) // only the command holds them now, so that readers see its end
	if err != nil {
		reply(c, failed(err))
		return
	}
	reply(c, Response{PID: p.pid})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, c)
	}()
	select {
	case <-p.done:
	case <-gone:
		_ = unix.Kill(-p.pid, unix.SIGKILL) // its whole session's first group
		<-p.done
		return
	}
	reply(c, Response{PID: p.pid, Exit: p.exit})
}

func attributes(req Request, fds []uintptr) *syscall.ProcAttr {
	dir := req.Dir
	if dir == "" {
		dir = "/"
	}
	return &syscall.ProcAttr{Dir: dir, Env: req.Env, Files: fds, Sys: &syscall.SysProcAttr{Setsid: true}}
}

func probe(url string) Response {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return failed(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return failed(err)
	}
	return Response{Status: resp.StatusCode, Body: string(body)}
}

// receive reads the request and the descriptors that came with its first bytes.
func receive(c *net.UnixConn) (Request, []*os.File, error) {
	buf := make([]byte, 64<<10)
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return Request{}, nil, fmt.Errorf("read the request: %w", err)
	}
	files, err := parseRights(oob[:oobn])
	if err != nil {
		return Request{}, nil, err
	}
	rest := io.MultiReader(bytes.NewReader(buf[:n]), c)
	var req Request
	if err := json.NewDecoder(io.LimitReader(rest, maxRequest)).Decode(&req); err != nil {
		return Request{}, files, fmt.Errorf("read the request: %w", err)
	}
	return req, files, nil
}

// parseRights takes the descriptors out of a control message. The net package
// receives them closed-on-exec.
func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read the descriptors of the request: %w", err)
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("read the descriptors of the request: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return files, nil
}

// Failed is the answer that carries an error.
func Failed(err error) Response { return failed(err) }

func failed(err error) Response { return Response{Error: err.Error()} }

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// reply writes one answer. A caller who has gone needs none.
func reply(w io.Writer, r Response) {
	raw, err := json.Marshal(r)
	if err != nil {
		raw, _ = json.Marshal(failed(err))
	}
	b := bufio.NewWriter(w)
	_, _ = b.Write(append(raw, '\n'))
	_ = b.Flush()
}
