package sandbox

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// pipes are the files that a command is given as standard streams, and the copying
// to and from whatever the caller has instead of files.
type pipes struct {
	files [3]*os.File
	// ours are to be closed once the command has them.
	ours []*os.File
	// input is our end of the command's input, if it is a pipe.
	input   *os.File
	outputs sync.WaitGroup
	mu      sync.Mutex
	failed  error
}

func openPipes(s Streams) (*pipes, error) {
	p := &pipes{}
	if err := p.openInput(s.In); err != nil {
		return nil, errors.Join(err, p.finish())
	}
	for i, w := range []io.Writer{s.Out, s.Err} {
		if err := p.openOutput(i+1, w); err != nil {
			return nil, errors.Join(err, p.finish())
		}
	}
	return p, nil
}

func (p *pipes) openInput(r io.Reader) error {
	switch in := r.(type) {
	case nil:
		return p.openNull(0)
	case *os.File:
		p.files[0] = in
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	p.files[0], p.input = read, write
	p.ours = append(p.ours, read)
	go func() {
		_, err := io.Copy(write, r)
		_ = write.Close()
		if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
			p.fail(err)
		}
	}()
	return nil
}

func (p *pipes) openOutput(i int, w io.Writer) error {
	switch out := w.(type) {
	case nil:
		return p.openNull(i)
	case *os.File:
		p.files[i] = out
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	p.files[i] = write
	p.ours = append(p.ours, write)
	p.outputs.Add(1)
	go func() {
		defer p.outputs.Done()
		defer read.Close()
		if _, err := io.Copy(&lockedWriter{p: p, w: w}, read); err != nil {
			p.fail(err)
		}
	}()
	return nil
}

func (p *pipes) openNull(i int) error {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	p.files[i] = f
	p.ours = append(p.ours, f)
	return nil
}

func (p *pipes) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = errors.Join(p.failed, err)
}

// finish is called when the command has ended: our ends close, and what it has
// printed is read to the end.
func (p *pipes) finish() error {
	for _, f := range p.ours {
		_ = f.Close()
	}
	if p.input != nil {
		_ = p.input.Close()
	}
	p.outputs.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// lockedWriter lets both outputs go to one writer.
type lockedWriter struct {
	p *pipes
	w io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.w.Write(b)
}
