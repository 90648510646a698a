package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/sandbox/pki"
)

// kubeletClient is how the API server calls kubelets.
const kubeletClient = "apiserver-kubelet-client"

// pauseImage is the image of every Pod's first container.
const pauseImage = "registry.k8s.io/pause:3.10"

func kubeletUser(node string) string    { return "kubelet-" + node }
func kubeletServing(node string) string { return "kubelet-" + node + "-serving" }

// subjects are all certificates of a sandbox. The names of users and groups are
// Kubernetes' own (https://kubernetes.io/docs/setup/best-practices/certificates/),
// which its built-in roles are bound to.
func subjects(nodes []Node) []pki.Subject {
	out := []pki.Subject{
		{
			File: APIServer, CommonName: APIServer,
			IPs: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(topIP), net.ParseIP(serviceIP)},
			DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		},
		{File: "admin", CommonName: "admin", Organizations: []string{"system:masters"}},
		{File: kubeletClient, CommonName: kubeletClient, Organizations: []string{"system:masters"}},
		{File: ControllerManager, CommonName: "system:kube-controller-manager"},
		{File: Scheduler, CommonName: "system:kube-scheduler"},
		{File: KubeProxy, CommonName: "system:kube-proxy"},
		{File: SnapshotController, CommonName: SnapshotController},
	}
	for _, n := range nodes {
		out = append(out,
			pki.Subject{File: kubeletUser(n.Name), CommonName: "system:node:" + n.Name, Organizations: []string{"system:nodes"}},
			servingSubject(n))
	}
	return out
}

// servingSubject is the certificate that a node's kubelet shows to who calls it.
func servingSubject(n Node) pki.Subject {
	return pki.Subject{File: kubeletServing(n.Name), CommonName: "system:node:" + n.Name, IPs: []net.IP{net.IP(n.IP.AsSlice())}, DNS: []string{n.Name}}
}

// writePKI makes all keys and certificates.
func (r record) writePKI(now time.Time) error {
	p := paths{r.Dir}
	ca, err := pki.NewAuthority(p.in("pki"), "holdfast-sandbox-"+r.Name, now)
	if err != nil {
		return err
	}
	for _, s := range subjects(r.Nodes) {
		if err := ca.Issue(s); err != nil {
			return err
		}
	}
	return ca.IssueTokenKeys()
}

// writeConfig writes every configuration file. It needs the certificates.
func (r record) writeConfig() error {
	p := paths{r.Dir}
	var problems []error
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			problems = append(problems, fmt.Errorf("write configuration: %w", err))
		}
	}
	users := []string{ControllerManager, Scheduler, KubeProxy, SnapshotController}
	for _, n := range r.Nodes {
		users = append(users, kubeletUser(n.Name))
		write(p.node(n.Name, "kubelet.yaml"), kubeletConfig(p, n))
		write(p.node(n.Name, "containerd.toml"), containerdConfig(p, n))
		write(p.node(n.Name, "cni/10-ptp.conflist"), cniConfig(n))
	}
	for _, u := range users {
		text, err := kubeconfig(p, u, apiURL)
		problems = append(problems, err)
		write(p.userConfig(u), text)
	}
	text, err := kubeconfig(p, "admin", fmt.Sprintf("https://127.0.0.1:%d", r.APIPort))
	problems = append(problems, err)
	write(p.kubeconfig(), text)
	instances, err := json.MarshalIndent(r.instances(), "", "  ")
	problems = append(problems, err)
	write(p.conf("instances.json"), string(instances))
	return errors.Join(problems...)
}

// kubeconfig is a self-contained configuration for a user with a certificate.
func kubeconfig(p paths, user, server string) (string, error) {
	var data [3]string
	for i, file := range []string{"ca.crt", user + ".crt", user + ".key"} {
		raw, err := os.ReadFile(p.pki(file))
		if err != nil {
			return "", fmt.Errorf("write the kubeconfig of %s: %w", user, err)
		}
		data[i] = base64.StdEncoding.EncodeToString(raw)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: sandbox
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: %s
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: sandbox
  context: {cluster: sandbox, user: %s}
current-context: sandbox
`, server, data[0], user, data[1], data[2], user), nil
}

// kubeletConfig: disk pressure is the machine's business, not the node's; images
// cannot be pulled again, so they are never collected; there is no DNS. A grown
// volume is noticed when its Pod is synced again: every 5 s here, where a default
// of a minute would make up nearly all of an expansion's time.
func kubeletConfig(p paths, n Node) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
tlsCertFile: %s
tlsPrivateKeyFile: %s
readOnlyPort: 0
evictionHard: {imagefs.available: 0%%, nodefs.available: 0%%, nodefs.inodesFree: 0%%}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
volumeStatsAggPeriod: 5s
syncFrequency: 5s
volumePluginDir: /var/lib/kubelet/volume-plugins
resolvConf: ""
clusterDNS: []
providerID: aws:///%s/%s
`, p.pki("ca.crt"), p.pki(kubeletServing(n.Name)+".crt"), p.pki(kubeletServing(n.Name)+".key"), n.Zone, n.InstanceID)
}

// containerdConfig: oom_score_adj is left alone where it cannot be lowered, which
// takes CAP_SYS_RESOURCE. AppArmor's files are not mounted in a node, so containerd
// could load no profile there. The snapshotters and NRI that are off are not used.
func containerdConfig(p paths, n Node) string {
	off := []string{
		"io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.erofs",
		"io.containerd.snapshotter.v1.blockfile", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp",
	}
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
imports = []
disabled_plugins = ["%s"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["%s"]
  conf_dir = %q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = false
`, strings.Join(off, `", "`), pauseImage, strings.Join(cniFolders, `", "`), p.node(n.Name, "cni"))
}

// cniConfig: a cable for each Pod (ptp), not a bridge, so that no question of
// hairpins or of bridged packets and netfilter arises. Nothing is masqueraded:
// the simulated EC2 tells instances apart by source address.
func cniConfig(n Node) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "sandbox", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}
]}
`, n.PodNet)
}

// instance is what the simulated EC2 is told of a node.
type instance struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
	Type string `json:"type"`
	// Sources are the addresses that ask for this instance's metadata.
	Sources []string `json:"sources"`
	DevDir  string   `json:"devDir"`
}

func (r record) instances() []instance {
	var out []instance
	for _, n := range r.Nodes {
		out = append(out, instance{
			ID: n.InstanceID, Zone: n.Zone, Type: n.InstanceType,
			Sources: []string{n.IP.String() + "/32", n.PodNet},
			DevDir:  paths{r.Dir}.node(n.Name, "dev"),
		})
	}
	return out
}
