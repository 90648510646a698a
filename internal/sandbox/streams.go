package sandbox

import (
	"context"
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
	// far are our ends of the pipes.
	far     []*os.File
	outputs sync.WaitGroup
	mu      sync.Mutex
	failed  error
}

func openPipes(s Streams) (*pipes, error) {
	p := &pipes{}
	if err := p.openInput(s.In); err != nil {
		return nil, errors.Join(err, p.finish(context.Background()))
	}
	for i, w := range []io.Writer{s.Out, s.Err} {
		if err := p.openOutput(i+1, w); err != nil {
			return nil, errors.Join(err, p.finish(context.Background()))
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
	p.files[0] = read
	p.far = append(p.far, write)
	p.ours = append(p.ours, read)
	go func() {
		_, err := io.Copy(write, r)
		_ = write.Close() // the command sees the end of its input
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
	p.far = append(p.far, read)
	p.outputs.Add(1)
	go func() {
		defer p.outputs.Done()
		if _, err := io.Copy(&lockedWriter{p: p, w: w}, read); err != nil && !errors.Is(err, os.ErrClosed) {
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

// finish is called when the command has ended: what it has printed is read to the
// end. That comes late if the command left something behind which holds its output
// open, and at the latest with the context.
func (p *pipes) finish(ctx context.Context) error {
	closeFiles(p.ours)
	stop := context.AfterFunc(ctx, func() { closeFiles(p.far) })
	p.outputs.Wait()
	stop()
	closeFiles(p.far)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // closing twice is harmless
	}
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
