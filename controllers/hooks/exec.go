package hooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Exec runs commands in containers through the API server's pods/exec.
type Exec struct {
	cfg  *rest.Config
	core rest.Interface
	live client.Reader
}

// NewExec makes an Exec. live reads from the API server: a Pod is looked up
// right before each command, and no informer of Pods is kept for that.
func NewExec(cfg *rest.Config, live client.Reader) (*Exec, error) {
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client for pods/exec: %w", err)
	}
	return &Exec{cfg: cfg, core: set.CoreV1().RESTClient(), live: live}, nil
}

// Run runs a command and waits for its end, at most so long. Its error is ErrGone,
// ErrRan or ErrMayRun, or another one where it is not known to have ended. What the command
// writes is not kept, but for the end of its last words on stderr.
func (e *Exec) Run(ctx context.Context, c Command, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pod := &corev1.Pod{}
	err := e.live.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Pod}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return ErrGone
	case err != nil:
		return fmt.Errorf("look up the Pod: %w", err)
	case pod.UID != c.PodUID, pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return ErrGone
	}
	stream, err := e.stream(c)
	if err != nil {
		return fmt.Errorf("prepare to run it: %w", err)
	}
	var stderr tail
	err = stream.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: nothing{}, Stderr: &stderr})
	var exit utilexec.CodeExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return fmt.Errorf("%w with exit code %d%s", ErrRan, exit.Code, stderr.said())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it took longer than %v, and %w", within.Round(time.Millisecond), ErrMayRun)
	}
	return fmt.Errorf("it cannot be run: %w", err)
}

// stream is the way to a command: a WebSocket, or SPDY where a proxy or an older
// API server does not let one through.
// https://kubernetes.io/blog/2024/08/20/websockets-transition/
func (e *Exec) stream(c Command) (remotecommand.Executor, error) {
	url := e.core.Post().Resource("pods").Namespace(c.Namespace).Name(c.Pod).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: c.Container, Command: c.Argv, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec).URL()
	socket, err := remotecommand.NewWebSocketExecutor(e.cfg, "GET", url.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(e.cfg, "POST", url)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// nothing takes what a command writes, and keeps none of it.
type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }

// kept is how much of the end of stderr is kept, in bytes.
const kept = 200

// tail keeps the end of what is written to it.
type tail struct{ end []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.end = append(t.end, p[max(0, len(p)-kept):]...)
	t.end = t.end[max(0, len(t.end)-kept):]
	return len(p), nil
}

// said is the last line of what is kept, to be put after a sentence.
func (t *tail) said() string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.end), "")), "\n")
	last := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, lines[len(lines)-1])
	if last == "" {
		return ""
	}
	return ": " + last
}
