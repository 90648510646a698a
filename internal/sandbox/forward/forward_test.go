package forward

import (
	"bytes"
	"io"
	"net"
	"testing"
)

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// forwardTo starts a forwarder and returns its address.
func forwardTo(t *testing.T, address string) string {
	t.Helper()
	l := listen(t)
	done := make(chan error, 1)
	go func() { done <- Serve(l, address) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-done; err != nil {
			t.Errorf("the end of the listener is no failure: %v", err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// TestHalfClose: a client may end its half and still get the whole answer, as
// kubectl does with `exec -i`.
func TestHalfClose(t *testing.T) {
	server := listen(t)
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { // answer once the question has ended
				defer c.Close()
				q, err := io.ReadAll(c)
				if err == nil {
					_, _ = c.Write(bytes.Repeat(q, 2))
				}
			}()
		}
	}()
	c := dial(t, forwardTo(t, server.Addr().String()))
	question := bytes.Repeat([]byte("x"), 1<<20)
	go func() {
		_, _ = c.Write(question)
		_ = c.CloseWrite()
	}()
	answer, err := io.ReadAll(c)
	if err != nil || len(answer) != 2*len(question) {
		t.Errorf("answer of %d bytes, %v; want %d", len(answer), err, 2*len(question))
	}
}

func TestNobodyThere(t *testing.T) {
	gone := listen(t)
	_ = gone.Close()
	c := dial(t, forwardTo(t, gone.Addr().String()))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v; want the connection to end", n, err)
	}
}
