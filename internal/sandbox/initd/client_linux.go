package initd

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Client asks the init that listens on a socket.
type Client struct {
	// Socket is the path of the unix socket.
	Socket string
}

// Do sends a request and returns its one answer. An answer with an error comes
// back as an error.
func (c Client) Do(ctx context.Context, req Request) (Response, error) {
	var resp Response
	err := c.talk(ctx, req, nil, func(read func() (Response, error)) error {
		var err error
		resp, err = read()
		return err
	})
	return resp, err
}

// Run runs a command in the init's namespaces with these streams as its standard
// input, output and error, and returns how it ended. If the context ends first,
// the command is killed.
func (c Client) Run(ctx context.Context, req Request, stdin, stdout, stderr *os.File) (Exit, error) {
	req.Op = "run"
	rights := unix.UnixRights(int(stdin.Fd()), int(stdout.Fd()), int(stderr.Fd()))
	var exit Exit
	err := c.talk(ctx, req, rights, func(read func() (Response, error)) error {
		if _, err := read(); err != nil { // it has started
			return err
		}
		last, err := read()
		if err != nil {
			return err
		}
		if last.Exit == nil {
			return fmt.Errorf("init on %s said nothing about how the command ended", c.Socket)
		}
		exit = *last.Exit
		return nil
	})
	return exit, err
}

// PID is the init's process id as the caller's pid namespace has it.
func (c Client) PID(ctx context.Context) (int, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("ask who listens on %s: %w", c.Socket, err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("ask who listens on %s: %w", c.Socket, err)
	}
	if credErr != nil {
		return 0, fmt.Errorf("ask who listens on %s: %w", c.Socket, credErr)
	}
	return int(cred.Pid), nil
}

func (c Client) dial(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("reach the init: %w", err)
	}
	return conn.(*net.UnixConn), nil
}

// talk sends the request and lets use read its answers; the end of the context
// breaks the connection off.
func (c Client) talk(ctx context.Context, req Request, rights []byte, use func(read func() (Response, error)) error) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	raw, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request %s: %w", req.Op, err)
	}
	if _, _, err := conn.WriteMsgUnix(append(raw, '\n'), rights, nil); err != nil {
		return fmt.Errorf("ask the init on %s for %s: %w", c.Socket, req.Op, err)
	}
	answers := json.NewDecoder(conn)
	err = use(func() (Response, error) {
		var r Response
		if err := answers.Decode(&r); err != nil {
			return r, fmt.Errorf("no answer from the init on %s to %s %s: %w", c.Socket, req.Op, req.Name, err)
		}
		if r.Error != "" {
			return r, fmt.Errorf("%s %s: %s", req.Op, req.Name, r.Error)
		}
		return r, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", req.Op, req.Name, context.Cause(ctx))
	}
	return err
}
