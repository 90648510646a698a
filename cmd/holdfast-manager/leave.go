package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// leaveWithin is how long a replica that was told to stop goes on answering. An
// API server asks it until it has seen that the Pod's endpoint is gone, and in a
// strict namespace a question without an answer is a refusal. It is well below
// the Pod's terminationGracePeriodSeconds.
const leaveWithin = 10 * time.Second

// leaver has a replica stop without leaving a question unanswered.
//
//	told to stop      not ready any more; answers, and has each connection given
//	                  up after its answer, so that none is kept for the end
//	leaveWithin later stops
type leaver struct{ leaving atomic.Bool }

// lasting is ctx, but that it ends some time later. The returned function ends
// it at once.
func (l *leaver) lasting(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		l.leaving.Store(true)
		select {
		case <-time.After(after):
		case <-lasting.Done():
		}
		end()
	})
	return lasting, func() { stop(); end() }
}

// serving is a webhook server that gives up its connections when it leaves. A
// connection that is closed while idle may be just what the API server sends
// its next question on, and it does not ask twice.
func (l *leaver) serving(s webhook.Server) webhook.Server { return server{s, l} }

type server struct {
	webhook.Server
	leaver *leaver
}

// Register serves a handler under a path.
func (s server) Register(path string, h http.Handler) { s.Server.Register(path, s.leaver.closing(h)) }

func (l *leaver) closing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
