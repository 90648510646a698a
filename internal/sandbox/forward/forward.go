// Package forward passes TCP connections on, from a listener that was made in one
// network namespace to an address in another: how kubectl on the machine reaches
// the API server of a sandbox.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// dialTimeout bounds the wait for the other side, which is on this machine.
const dialTimeout = 5 * time.Second

// Serve accepts connections and passes them to the address until the listener
// fails.
func Serve(l net.Listener, address string) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection for %s: %w", address, err)
		}
		go pass(c.(*net.TCPConn), address)
	}
}

// pass copies both ways until both sides have ended. A half that ends closes only
// its own direction: a client may stop writing and still wait for the answer.
func pass(near *net.TCPConn, address string) {
	defer func() { _ = near.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return // the client sees its connection end, as if the server were down
	}
	far := conn.(*net.TCPConn)
	defer func() { _ = far.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyHalf(near, far)
	}()
	copyHalf(far, near)
	<-done
}

func copyHalf(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err != nil {
		_ = to.Close()
		return
	}
	_ = to.CloseWrite()
}
