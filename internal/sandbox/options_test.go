package sandbox

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		in   Options
		want string // part of the error; empty: none
	}{
		"zero value":     {"the zero options are useful", Options{}, ""},
		"own place":      {"a folder and a name may be chosen", Options{Name: "x-1", Dir: "/srv/x"}, ""},
		"upper case":     {"the name is used in cgroups and file names", Options{Name: "A"}, `sandbox name "A": use 1 to 32 of a-z`},
		"path as name":   {"a name must not lead out of the folder", Options{Name: "../x"}, `sandbox name "../x"`},
		"below /run":     {"nodes have a /run of their own and would not see it", Options{Dir: "/run/x"}, "folder /run/x lies in /run, of which every node has its own"},
		"is /var/lib":    {"the same for the folder itself", Options{Dir: "/var/lib"}, "folder /var/lib lies in /var/lib"},
		"programs there": {"programs must be visible as well", Options{Binaries: "/var/lib/x"}, "folder /var/lib/x lies in /var/lib"},
		"deep folder":    {"a unix socket's address is short", Options{Dir: "/srv/" + strings.Repeat("x", 90)}, "choose a shorter one"},
		"comma":          {"kubelet splits the name of an authority's file there", Options{Dir: "/srv/a,b"}, `folder "/srv/a,b": some programs misread such a path`},
		"colon":          {"PATH is split there", Options{Binaries: "/srv/a:b"}, `folder "/srv/a:b"`},
		"bad zone":       {"the simulated EC2 has one region", Options{Nodes: []NodeSpec{{Name: "n", Zone: "eu-west-1a"}}}, `zone "eu-west-1a" of node n: use us-east-1a to us-east-1f`},
		"bad instance":   {"instance ids have EC2's form", Options{Nodes: []NodeSpec{{Name: "n", Zone: "us-east-1a", InstanceID: "i-1"}}}, `instance id "i-1" of node n: use i- and 17 hexadecimal digits`},
		"node named top": {"that name is the outer machine's", Options{Nodes: []NodeSpec{{Name: "top", Zone: "us-east-1a"}}}, `node name "top"`},
		"twice the same": {"names are unique", Options{Nodes: []NodeSpec{{Name: "n", Zone: "us-east-1a"}, {Name: "n", Zone: "us-east-1b"}}}, "node n (i-00000000000000002) is there twice"},
		"too many":       {"addresses have room for fifty", Options{Nodes: make([]NodeSpec, 51)}, "51 nodes: at most 50"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := tc.in.complete()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: error %v, want %q", tc.why, err, tc.want)
			}
		})
	}
}

// TestCheckCache: the programs must not be built where no node can run them. What
// is built needs half an hour, so that is told first.
func TestCheckCache(t *testing.T) {
	for name, tc := range map[string]struct {
		why, cache, home string
		in               Options
		want             string // part of the error; empty: none
	}{
		"visible": {"the usual case", "/srv/cache", "/root", Options{}, ""},
		"below /var/lib": {"nodes have a /var/lib of their own", "/var/lib/nope", "/root", Options{},
			"cache of built programs: folder /var/lib/nope lies in /var/lib, of which every node has its own: choose one outside of"},
		"way out":   {"the variable is the way out", "/run/x", "/root", Options{}, "with the variable HOLDFAST_CACHE"},
		"home":      {"homes of CI users often lie there", "", "/var/lib/jenkins", Options{}, "folder /var/lib/jenkins/.cache/holdfast lies in /var/lib"},
		"not asked": {"who brings programs needs no cache", "/var/lib/nope", "/root", Options{Binaries: "/srv/bin"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOLDFAST_CACHE", tc.cache)
			t.Setenv("HOME", tc.home)
			t.Setenv("XDG_CACHE_HOME", "")
			_, _, err := tc.in.complete()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: error %v, want %q", tc.why, err, tc.want)
			}
		})
	}
}

func TestDefaultNodes(t *testing.T) {
	o, nodes, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	if o.Name != "default" || o.Dir != "/var/tmp/holdfast-sandbox/default" {
		t.Errorf("name %s in %s", o.Name, o.Dir)
	}
	var got [][]string
	for _, n := range nodes {
		got = append(got, []string{n.Name, n.Zone, n.IP.String(), n.PodNet, n.InstanceID, n.InstanceType})
	}
	want := [][]string{
		{"node-a1", "us-east-1a", "10.200.0.11", "10.201.1.0/24", "i-0000000000000a001", "m5.large"},
		{"node-a2", "us-east-1a", "10.200.0.12", "10.201.2.0/24", "i-0000000000000a002", "m5.large"},
		{"node-b1", "us-east-1b", "10.200.0.13", "10.201.3.0/24", "i-0000000000000b001", "m5.large"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("default nodes (-want +got)\n%s", diff)
	}
}

func TestMissingPrograms(t *testing.T) {
	all := []requirement{{program: "runc", pkg: "runc"}, {program: "ptp", pkg: "cni"}, {program: "loopback", pkg: "cni"}, {program: "nft", pkg: "nftables"}}
	err := missingPrograms(all, func(r requirement) bool { return r.program == "runc" })
	want := "this machine lacks ptp, loopback, nft: install with `apt-get install -y cni nftables`"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if err := missingPrograms(all, func(requirement) bool { return true }); err != nil {
		t.Errorf("nothing is missing, and yet: %v", err)
	}
}

func TestComponents(t *testing.T) {
	_, nodes, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	r := record{Name: "x", Dir: "/s", Nodes: nodes, Binaries: "/b", ControllerPolicy: "/p.json"}
	seen := map[string]bool{}
	for _, c := range r.components() {
		if seen[c.name] {
			t.Errorf("two components named %s", c.name)
		}
		seen[c.name] = true
		if c.machine == "" || !strings.HasPrefix(c.argv[0], "/") {
			t.Errorf("component %s runs %q in %q", c.name, c.argv[0], c.machine)
		}
	}
	if len(seen) != 7+3*len(nodes) {
		t.Errorf("%d components", len(seen))
	}
	ec2, err := r.component(EC2)
	if err != nil {
		t.Fatal(err)
	}
	if line := strings.Join(ec2.argv, " "); !strings.Contains(line, "--principal AKIAHOLDFASTCONTROLLER=/s/conf/controller-policy.json") {
		t.Errorf("the simulated EC2 is not told of the controller's policy: %s", line)
	}
	r.ControllerPolicy = ""
	if ec2, _ = r.component(EC2); strings.Contains(strings.Join(ec2.argv, " "), "--principal") {
		t.Errorf("without a policy, the controller must not be held to one: %q", ec2.argv)
	}
}

func TestInstances(t *testing.T) {
	_, nodes, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	got := record{Dir: "/s", Nodes: nodes}.instances()[1]
	want := instance{
		ID: "i-0000000000000a002", Zone: "us-east-1a", Type: "m5.large",
		Sources: []string{"10.200.0.12/32", "10.201.2.0/24"}, DevDir: "/s/nodes/node-a2/dev",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instance (-want +got)\n%s", diff)
	}
}
