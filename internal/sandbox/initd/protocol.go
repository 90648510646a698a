package initd

import (
	"encoding/json"
	"time"
)

// Request asks for one operation. Which fields count depends on Op.
type Request struct {
	Op   string   `json:"op"`
	Name string   `json:"name,omitempty"`
	Argv []string `json:"argv,omitempty"`
	// Env is the whole environment of the command, as KEY=value.
	Env []string `json:"env,omitempty"`
	Dir string   `json:"dir,omitempty"`
	// Log is the file that takes what a daemon prints.
	Log string `json:"log,omitempty"`
	// Listeners names inherited listeners; the daemon has them from
	// descriptor 3 on, in this order.
	Listeners []string `json:"listeners,omitempty"`
	// Grace is how long stop waits after SIGTERM before it sends SIGKILL. Zero
	// sends SIGKILL at once.
	Grace time.Duration `json:"grace,omitempty"`
	URL   string        `json:"url,omitempty"`
	// Body is for the operations that one kind of init adds.
	Body json.RawMessage `json:"body,omitempty"`
}

// Response answers a request. Error is empty if it went well.
type Response struct {
	Error string `json:"error,omitempty"`
	PID   int    `json:"pid,omitempty"`
	// Exit is there once a command has ended.
	Exit      *Exit     `json:"exit,omitempty"`
	Processes []Process `json:"processes,omitempty"`
	// Status and Body are what an HTTP probe saw.
	Status int    `json:"status,omitempty"`
	Body   string `json:"body,omitempty"`
}

// Exit is how a process ended: with a code, or by a signal.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}

// Process is one daemon that the init has started.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // as seen in the init's own pid namespace
	Exit *Exit  `json:"exit,omitempty"`
}

// Running says whether it has not ended.
func (p Process) Running() bool { return p.Exit == nil }
