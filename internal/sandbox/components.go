package sandbox

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Addresses inside every sandbox. They may repeat from one to the next: each has a
// network of its own.
const (
	topIP       = "10.200.0.1"
	apiAddress  = topIP + ":6443"
	apiURL      = "https://" + apiAddress
	serviceNet  = "10.96.0.0/16"
	serviceIP   = "10.96.0.1"
	podNet      = "10.201.0.0/16"
	ec2Address  = topIP + ":4566"
	imdsIP      = "169.254.169.254"
	imdsAddress = imdsIP + ":80"
	// snapshotAddress has metrics only.
	snapshotAddress = "127.0.0.1:8190"
	etcdURL         = "http://127.0.0.1:2379"
	etcdPeerURL     = "http://127.0.0.1:2380"
)

// Names of the listeners in the machine's network namespace that top is given.
const (
	apiListener = "api"
	ec2Listener = "ec2"
)

// Components, by the names that StopComponent takes. Those of a node have the
// node's name behind a slash: "kubelet/node-a1".
const (
	Etcd               = "etcd"
	APIServer          = "kube-apiserver"
	ControllerManager  = "kube-controller-manager"
	Scheduler          = "kube-scheduler"
	SnapshotController = "snapshot-controller"
	EC2                = "ec2sim"
	Forwarder          = "forwarder"
	Containerd         = "containerd"
	Kubelet            = "kubelet"
	KubeProxy          = "kube-proxy"
)

// component is a process to run, and where.
type component struct {
	name      string
	machine   string // topName or a node
	argv      []string
	env       []string
	listeners []string
}

// components lists every component of a sandbox.
func (r record) components() []component {
	p := paths{r.Dir}
	bin := func(program string) string { return filepath.Join(r.Binaries, program) }
	out := []component{
		{name: Etcd, argv: etcdArgs(bin(Etcd), p)},
		{name: APIServer, argv: apiServerArgs(bin(APIServer), p)},
		{name: ControllerManager, argv: controllerManagerArgs(bin(ControllerManager), p)},
		{name: Scheduler, argv: []string{bin(Scheduler), "--kubeconfig", p.userConfig(Scheduler), "--leader-elect=false", "--bind-address=127.0.0.1"}},
		{name: SnapshotController, argv: []string{bin(SnapshotController), "--kubeconfig", p.userConfig(SnapshotController), "--http-endpoint", snapshotAddress}},
		{name: Forwarder, argv: []string{p.own("sandbox"), "forward", "--to", apiAddress}, listeners: []string{apiListener}},
		{name: EC2, argv: r.ec2Args(), listeners: []string{ec2Listener}},
	}
	for i := range out {
		out[i].machine = topName
		out[i].env = daemonEnv(r.Binaries)
	}
	for _, n := range r.Nodes {
		out = append(out, r.nodeComponents(n)...)
	}
	return out
}

// nodeComponents are those of one node, in the order of their start.
func (r record) nodeComponents(n Node) []component {
	p := paths{r.Dir}
	out := []component{
		{name: Containerd, argv: []string{filepath.Join(r.Binaries, Containerd), "-c", p.node(n.Name, "containerd.toml")}},
		{name: Kubelet, argv: kubeletArgs(filepath.Join(r.Binaries, Kubelet), p, n)},
		{name: KubeProxy, argv: []string{
			filepath.Join(r.Binaries, KubeProxy), "--kubeconfig", p.userConfig(KubeProxy), "--proxy-mode=nftables",
			"--hostname-override=" + n.Name, "--cluster-cidr=" + podNet,
		}},
	}
	for i := range out {
		out[i].name += "/" + n.Name
		out[i].machine = n.Name
		out[i].env = daemonEnv(r.Binaries)
	}
	return out
}

// component finds one by its name.
func (r record) component(name string) (component, error) {
	var names []string
	for _, c := range r.components() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return component{}, fmt.Errorf("no component %q: there are %s", name, strings.Join(names, ", "))
}

// daemonEnv is the environment of daemons and of commands in a machine: the built
// programs come first in the path. ctr looks for Kubernetes' images by default.
func daemonEnv(binaries string) []string {
	return []string{
		"PATH=" + binaries + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"LANG=C.UTF-8",
		"CONTAINERD_NAMESPACE=k8s.io",
	}
}

// etcdArgs: nothing that is stored here has to survive a crash of the machine, so
// etcd need not wait for the disk.
func etcdArgs(program string, p paths) []string {
	return []string{
		program, "--data-dir", p.in("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", etcdPeerURL, "--initial-advertise-peer-urls", etcdPeerURL,
		"--initial-cluster", "default=" + etcdPeerURL,
	}
}

func apiServerArgs(program string, p paths) []string {
	return []string{
		program,
		"--etcd-servers", etcdURL,
		"--bind-address=0.0.0.0", "--secure-port=6443", "--advertise-address=" + topIP,
		"--service-cluster-ip-range=" + serviceNet,
		"--client-ca-file", p.pki("ca.crt"),
		"--tls-cert-file", p.pki(APIServer + ".crt"), "--tls-private-key-file", p.pki(APIServer + ".key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file", p.pki("sa.pub"), "--service-account-signing-key-file", p.pki("sa.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--kubelet-client-certificate", p.pki(kubeletClient + ".crt"), "--kubelet-client-key", p.pki(kubeletClient + ".key"),
		"--kubelet-certificate-authority", p.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		// Services of webhooks are called at their Pods: no kube-proxy runs here.
		"--enable-aggregator-routing=true",
		// Pods leave a dead node after half a minute, not after five.
		"--default-not-ready-toleration-seconds=30", "--default-unreachable-toleration-seconds=30",
		"--profiling=false",
	}
}

// controllerManagerArgs: a node counts as dead after 8 seconds, so that tests of
// dead nodes are quick (kubelet reports every 2 seconds). The rate towards the API
// server is raised since with a service account for each controller the default
// one delays them all by five seconds at the start.
func controllerManagerArgs(program string, p paths) []string {
	return []string{
		program, "--kubeconfig", p.userConfig(ControllerManager), "--leader-elect=false", "--bind-address=127.0.0.1",
		"--service-account-private-key-file", p.pki("sa.key"), "--root-ca-file", p.pki("ca.crt"),
		"--use-service-account-credentials=true", "--kube-api-qps=200", "--kube-api-burst=400",
		"--controllers=*,-node-ipam-controller", "--allocate-node-cidrs=false",
		"--node-monitor-grace-period=8s", "--node-monitor-period=1s",
	}
}

func kubeletArgs(program string, p paths, n Node) []string {
	labels := []string{
		"topology.kubernetes.io/zone=" + n.Zone,
		"topology.kubernetes.io/region=" + Region,
		"node.kubernetes.io/instance-type=" + n.InstanceType,
	}
	return []string{
		program, "--config", p.node(n.Name, "kubelet.yaml"), "--kubeconfig", p.userConfig(kubeletUser(n.Name)),
		"--hostname-override=" + n.Name, "--node-ip=" + n.IP.String(), "--node-labels=" + strings.Join(labels, ","), "--v=2",
	}
}

func (r record) ec2Args() []string {
	p := paths{r.Dir}
	argv := []string{
		p.own("ec2sim"), "serve", "--state", p.in("ec2"), "--region", Region,
		"--listen", ec2Address, "--listen-fd", "3", "--imds", imdsAddress,
		"--instances", p.conf("instances.json"),
	}
	for _, n := range r.Nodes {
		if dir, ok := r.Cgroups.V2Folder(r.nodeGroup(n.Name)); ok {
			argv = append(argv, "--pause", dir)
		}
	}
	if r.ControllerPolicy != "" {
		argv = append(argv, "--principal", ControllerKey+"="+p.conf("controller-policy.json"))
	}
	return argv
}
