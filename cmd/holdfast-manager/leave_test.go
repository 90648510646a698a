package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestLeaving: a replica that is told to stop serves on for a while, so that
// API servers have time to see that it goes.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, tell := context.WithCancel(t.Context())
		var l leaver
		lasting, end := l.lasting(ctx, leaveWithin)
		defer end()
		tell()
		synctest.Wait()
		if !l.leaving.Load() || lasting.Err() != nil {
			t.Fatalf("told to stop: leaving is %v, and it has stopped: %v; want it to leave and to serve on", l.leaving.Load(), lasting.Err())
		}
		<-time.After(leaveWithin - time.Second) // of the test's own clock
		synctest.Wait()
		if lasting.Err() != nil {
			t.Errorf("it stopped before %s were over", leaveWithin)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if lasting.Err() == nil {
			t.Errorf("it serves after %s", leaveWithin)
		}
	})
}

// TestLeavingAtOnce: where the manager fails by itself nothing waits.
func TestLeavingAtOnce(t *testing.T) {
	var l leaver
	lasting, end := l.lasting(t.Context(), leaveWithin)
	end()
	if lasting.Err() == nil || l.leaving.Load() {
		t.Errorf("ended: %v, leaving %v; want the end, and nobody told to leave", lasting.Err(), l.leaving.Load())
	}
}

// TestConnectionsAreGivenUp: kept connections serve until the replica leaves,
// and then for one last answer.
func TestConnectionsAreGivenUp(t *testing.T) {
	var l leaver
	s := httptest.NewServer(l.closing(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })))
	defer s.Close()
	for _, leaving := range []bool{false, true} {
		l.leaving.Store(leaving)
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || resp.Close != leaving {
			t.Errorf("leaving %v: status %d, the connection is given up: %v", leaving, resp.StatusCode, resp.Close)
		}
	}
}
