package sandbox

import (
	"path/filepath"
	"strings"
)

// topName is the name of the outer machine, for sockets, logs and cgroups.
const topName = "top"

// paths are the places in the state folder.
type paths struct{ dir string }

func (p paths) in(elem ...string) string { return filepath.Join(append([]string{p.dir}, elem...)...) }

// record tells Open of the sandbox, and Down that the folder is one.
func (p paths) record() string { return p.in("sandbox.json") }

func (p paths) kubeconfig() string             { return p.in("kubeconfig") }
func (p paths) own(program string) string      { return p.in("bin", program) }
func (p paths) logs() string                   { return p.in("log") }
func (p paths) pki(file string) string         { return p.in("pki", file) }
func (p paths) conf(file string) string        { return p.in("conf", file) }
func (p paths) socket(machine string) string   { return p.in("run", machine+".sock") }
func (p paths) spec(machine string) string     { return p.in("run", machine+".json") }
func (p paths) node(n string, f string) string { return p.in("nodes", n, f) }

// log is the log file of a component: a slash in its name becomes a dash.
func (p paths) log(component string) string {
	return p.in("log", strings.ReplaceAll(component, "/", "-")+".log")
}

// userConfig is the kubeconfig of a component's user inside the sandbox.
func (p paths) userConfig(user string) string { return p.conf(user + ".kubeconfig") }

// cgroupOf is the cgroup of a sandbox, below which each machine has its own.
func cgroupOf(name string) string { return "holdfast-sandbox-" + name }
