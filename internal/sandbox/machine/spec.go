package machine

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
)

// Kind tells top and nodes apart.
type Kind string

// The kinds of machines.
const (
	Top  Kind = "top"
	Node Kind = "node"
)

// Bridge is the name of the switch in top's network namespace.
const Bridge = "br0"

// Spec is what a machine is told at its birth, as a JSON file.
type Spec struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // also its host name
	// Socket is where its init listens.
	Socket string `json:"socket"`
	// DieWithParent makes the kernel kill top when the process that started it
	// ends. Nodes go with top in any case.
	DieWithParent bool `json:"dieWithParent,omitempty"`
	// State is the sandbox's folder, the only one of the machine's file system
	// that this machine may write to.
	State string `json:"state"`
	// Keep lists further folders that must stay visible.
	Keep []string `json:"keep"`
	// Listeners names the listeners inherited from descriptor 4 on.
	Listeners []string `json:"listeners,omitempty"`
	// Addresses are given to the bridge of top, or to eth0 of a node (CIDR).
	Addresses []string `json:"addresses"`
	Routes    []Route  `json:"routes,omitempty"`

	// The rest is for nodes.

	Cgroups cgroup.Layout `json:"cgroups"`
	// Binds are folders of the machine that the node sees elsewhere.
	Binds []Bind `json:"binds,omitempty"`
	// DevDir is a folder of top that the node has as /dev.
	DevDir string `json:"devDir,omitempty"`
}

// Route sends a network through a neighbour.
type Route struct {
	To  string `json:"to"`  // CIDR
	Via string `json:"via"` // address
}

// Bind shows the folder From at To.
type Bind struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Shadowed are the folders of the machine that a node does not see: it has its
// own there.
var Shadowed = []string{"/var/lib", "/var/log", "/run", "/dev", "/proc", "/sys"}

// System are the folders whose mounts a machine keeps: a distribution may have its
// programs on a disk of their own.
var System = []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/nix"}

// Write stores the spec.
func (s Spec) Write(path string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the spec of %s: %w", s.Name, err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("write the spec of %s: %w", s.Name, err)
	}
	return nil
}

// ReadSpec reads what Write has stored.
func ReadSpec(path string) (Spec, error) {
	var s Spec
	raw, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read the spec of this machine: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("read the spec of this machine in %s: %w", path, err)
	}
	return s, nil
}
