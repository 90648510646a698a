package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// control stands for the simulator's control API.
func control(t *testing.T, state, unmodelled string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sim/state", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(state)) })
	mux.HandleFunc("GET /_sim/unmodelled", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(unmodelled)) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestNothingLeft(t *testing.T) {
	url := control(t, `{"volumes":[{"id":"vol-1"}],"snapshots":[{"id":"snap-1"}]}`, `[]`)
	before, err := inEC2(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"vol-1", "snap-1"}, before); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	problems, err := leftInEC2(t.Context(), url, before, time.Minute)
	if err != nil || len(problems) != 0 {
		t.Errorf("what was there before is no leftover: %q, %v", problems, err)
	}
}

func TestLeft(t *testing.T) {
	url := control(t, `{"volumes":[{"id":"vol-1"},{"id":"vol-2"}]}`, `[]`)
	problems, err := leftInEC2(t.Context(), url, []string{"vol-1"}, 10*time.Millisecond)
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0], "vol-2") || strings.Contains(problems[0], "vol-1") {
		t.Errorf("problems %q, %v; want the volume that was not there before", problems, err)
	}
}

func TestNotModelled(t *testing.T) {
	problems, err := leftInEC2(t.Context(), control(t, `{}`, `[{"action":"RunInstances","count":2}]`), nil, time.Minute)
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0], "RunInstances") {
		t.Errorf("problems %q, %v; want the action", problems, err)
	}
}
