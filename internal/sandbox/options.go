package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/sandbox/machine"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

// Defaults.
const (
	DefaultName = "default"
	// DefaultParent holds the folders of all sandboxes. It is not below /var/lib
	// or /run, of which nodes have their own.
	DefaultParent = "/var/tmp/holdfast-sandbox"
	Region        = "us-east-1"
	InstanceType  = "m5.large"
)

// Access keys that the simulated EC2 knows. It does not check secrets.
const (
	// ControllerKey is bound to Options.ControllerPolicy.
	ControllerKey = "AKIAHOLDFASTCONTROLLER"
	// AdminKey may do everything.
	AdminKey = "AKIAHOLDFASTADMIN"
)

// maxSocketPath is what a unix socket's address holds (unix(7)), less the zero.
const maxSocketPath = 107

// Options say what sandbox to start. The zero value is three nodes in two zones,
// of programs built from the repository that the current folder is in.
type Options struct {
	// Name tells sandboxes apart: letters, digits and dashes. Default "default".
	Name string
	// Dir is the folder for all state. Default: Name below DefaultParent.
	Dir string
	// Nodes default to DefaultNodes.
	Nodes []NodeSpec
	// Binaries is a folder with the programs that package toolchain builds.
	// Default: they are built, or taken from the cache.
	Binaries string
	// Own is a folder with sandbox, ec2sim and pause of this repository.
	// Default: they are built.
	Own string
	// Out is told of progress. Default: nobody.
	Out io.Writer
	// ControllerPolicy is a file with the IAM policy of ControllerKey. Default:
	// that key may do everything.
	ControllerPolicy string
	// Detach lets the sandbox go on when the context, or the process, ends.
	Detach bool
}

// NodeSpec describes a node.
type NodeSpec struct {
	Name string
	// Zone is an availability zone of us-east-1.
	Zone string
	// InstanceID defaults to one derived from the node's number.
	InstanceID string
	// InstanceType defaults to m5.large.
	InstanceType string
}

// DefaultNodes are three nodes, two of them in one zone: a volume can then move to
// another node, and can fail to move to another zone.
func DefaultNodes() []NodeSpec {
	return []NodeSpec{
		{Name: "node-a1", Zone: "us-east-1a", InstanceID: "i-0000000000000a001"},
		{Name: "node-a2", Zone: "us-east-1a", InstanceID: "i-0000000000000a002"},
		{Name: "node-b1", Zone: "us-east-1b", InstanceID: "i-0000000000000b001"},
	}
}

// Node is one node of a sandbox.
type Node struct {
	Name         string     `json:"name"`
	Zone         string     `json:"zone"`
	IP           netip.Addr `json:"ip"`
	PodNet       string     `json:"podNet"` // CIDR
	InstanceID   string     `json:"instanceID"`
	InstanceType string     `json:"instanceType"`
	// PID of the node's first process, as this process sees it; 0 if it is off.
	PID int `json:"-"`
	// Number counts from 1; addresses are made of it.
	Number int `json:"number"`
}

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)
	instanceForm = regexp.MustCompile(`^i-[0-9a-f]{17}$`)
	// pathForm leaves out what some program takes for a separator: kubelet splits
	// the names of authorities at commas, PATH is split at colons.
	pathForm = regexp.MustCompile(`^[A-Za-z0-9._/+@=~-]*$`)
	zoneForm = regexp.MustCompile(`^us-east-1[a-f]$`)
)

// maxNodes keeps addresses within one octet; nobody wants as many.
const maxNodes = 50

// complete fills in defaults and refuses what cannot work.
func (o Options) complete() (Options, []Node, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if !nameForm.MatchString(o.Name) {
		return o, nil, fmt.Errorf("sandbox name %q: use 1 to 32 of a-z, 0-9 and dashes inside", o.Name)
	}
	dir, err := stateDir(o.Name, o.Dir)
	if err != nil {
		return o, nil, err
	}
	o.Dir = dir
	if o.Out == nil {
		o.Out = io.Discard
	}
	if len(o.Nodes) == 0 {
		o.Nodes = DefaultNodes()
	}
	for _, p := range []*string{&o.Binaries, &o.Own, &o.ControllerPolicy} {
		if *p == "" {
			continue
		}
		if *p, err = filepath.Abs(*p); err != nil {
			return o, nil, err
		}
	}
	nodes, err := completeNodes(o.Nodes)
	if err != nil {
		return o, nil, err
	}
	for _, p := range append([]string{o.Dir}, o.Binaries, o.Own) {
		if err := usableInNodes(p); err != nil {
			return o, nil, err
		}
	}
	if o.Binaries == "" {
		if err := CheckCache(); err != nil {
			return o, nil, err
		}
	}
	return o, nodes, checkSocketPaths(o.Dir, nodes)
}

// CheckCache refuses a cache of built programs that nodes cannot see. It is asked
// before anything is built: the build takes half an hour, and its result would be
// of no use.
func CheckCache() error {
	dir, err := toolchain.DefaultCache()
	if err != nil {
		return err
	}
	if err := usableInNodes(dir); err != nil {
		return fmt.Errorf("cache of built programs: %w, with the variable %s", err, toolchain.CacheVariable)
	}
	return nil
}

// stateDir is the folder of a sandbox.
func stateDir(name, dir string) (string, error) {
	if dir == "" {
		return filepath.Join(DefaultParent, name), nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("folder of sandbox %s: %w", name, err)
	}
	return abs, nil
}

func completeNodes(specs []NodeSpec) ([]Node, error) {
	if len(specs) > maxNodes {
		return nil, fmt.Errorf("%d nodes: at most %d", len(specs), maxNodes)
	}
	var nodes []Node
	var problems []error
	for i, s := range specs {
		n := Node{Name: s.Name, Zone: s.Zone, InstanceID: s.InstanceID, InstanceType: s.InstanceType, Number: i + 1}
		if n.InstanceID == "" {
			n.InstanceID = fmt.Sprintf("i-%017x", n.Number)
		}
		if n.InstanceType == "" {
			n.InstanceType = InstanceType
		}
		n.IP = netip.AddrFrom4([4]byte{10, 200, 0, byte(10 + n.Number)})
		n.PodNet = fmt.Sprintf("10.201.%d.0/24", n.Number)
		if !nameForm.MatchString(n.Name) || n.Name == topName {
			problems = append(problems, fmt.Errorf("node name %q: use 1 to 32 of a-z, 0-9 and dashes inside, and not %q", n.Name, topName))
		}
		if !zoneForm.MatchString(n.Zone) {
			problems = append(problems, fmt.Errorf("zone %q of node %s: use us-east-1a to us-east-1f", n.Zone, n.Name))
		}
		if !instanceForm.MatchString(n.InstanceID) {
			problems = append(problems, fmt.Errorf("instance id %q of node %s: use i- and 17 hexadecimal digits", n.InstanceID, n.Name))
		}
		if slices.ContainsFunc(nodes, func(m Node) bool { return m.Name == n.Name || m.InstanceID == n.InstanceID }) {
			problems = append(problems, fmt.Errorf("node %s (%s) is there twice", n.Name, n.InstanceID))
		}
		nodes = append(nodes, n)
	}
	return nodes, errors.Join(problems...)
}

// usableInNodes refuses a path that nodes cannot see, since they have a folder of
// their own there, or that a program would misread.
func usableInNodes(path string) error {
	if !pathForm.MatchString(path) {
		return fmt.Errorf("folder %q: some programs misread such a path; choose one of letters, digits and . _ / + @ = ~ -", path)
	}
	for _, s := range machine.Shadowed {
		if path == s || strings.HasPrefix(path, s+"/") {
			return fmt.Errorf("folder %s lies in %s, of which every node has its own: choose one outside of %s",
				path, s, strings.Join(machine.Shadowed, ", "))
		}
	}
	return nil
}

func checkSocketPaths(dir string, nodes []Node) error {
	names := []string{topName}
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	for _, n := range names {
		if s := (paths{dir}).socket(n); len(s) > maxSocketPath {
			return fmt.Errorf("folder %s is too deep: the path of the socket %s has %d bytes, a unix socket takes %d; choose a shorter one",
				dir, s, len(s), maxSocketPath)
		}
	}
	return nil
}
