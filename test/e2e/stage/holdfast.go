package stage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// How the Pods of Holdfast are told apart, and their driver's container.
const (
	controllerLabel = "app.kubernetes.io/component=controller"
	nodeLabel       = "app.kubernetes.io/component=node"
	container       = "holdfast-driver"
)

// Controllers are the Pods of Holdfast's controller.
func (s *Stage) Controllers() []corev1.Pod {
	s.T.Helper()
	return s.holdfast(controllerLabel)
}

// NodePod is the Pod of Holdfast on a node.
func (s *Stage) NodePod(node string) corev1.Pod {
	s.T.Helper()
	for _, p := range s.holdfast(nodeLabel) {
		if p.Spec.NodeName == node {
			return p
		}
	}
	s.T.Fatalf("no Pod of Holdfast on node %s", node)
	return corev1.Pod{}
}

func (s *Stage) holdfast(label string) []corev1.Pod {
	s.T.Helper()
	var pods corev1.PodList
	key, value, _ := strings.Cut(label, "=")
	s.Must(s.Client.List(s.T.Context(), &pods, client.InNamespace(testenv.Namespace), client.MatchingLabels{key: value}))
	if len(pods.Items) == 0 {
		s.T.Fatalf("no Pod in %s with label %s", testenv.Namespace, label)
	}
	return pods.Items
}

// Logs are the lines of Holdfast's driver in a Pod, the container before the
// last restart included.
func (s *Stage) Logs(p corev1.Pod) []string {
	s.T.Helper()
	var out []byte
	for _, status := range p.Status.ContainerStatuses {
		if status.Name == container && status.RestartCount > 0 {
			before, err := s.Kubectl(s.T.Context(), "-n", p.Namespace, "logs", p.Name, "-c", container, "--previous")
			s.Must(err)
			out = append(out, before...)
		}
	}
	now, err := s.Kubectl(s.T.Context(), "-n", p.Namespace, "logs", p.Name, "-c", container)
	s.Must(err)
	return strings.Split(strings.TrimSpace(string(append(out, now...))), "\n")
}

// killScript kills every process of the container whose id is $1, with the
// signal that no process can catch. cgroup names hold the container's id.
const killScript = `
n=0
for c in /proc/[0-9]*/cgroup; do
  if grep -q "$1" "$c" 2>/dev/null; then p=${c#/proc/}; kill -9 "${p%/cgroup}" && n=$((n+1)); fi
done
[ $n -gt 0 ] || { echo "no process of container $1" >&2; exit 1; }`

// Kill ends the driver's process in a Pod of Holdfast as a crash would.
func (s *Stage) Kill(p corev1.Pod) {
	s.T.Helper()
	s.KillContainer(p, container)
}

// KillContainer ends the process of a container of a Pod of Holdfast as a crash
// would.
func (s *Stage) KillContainer(p corev1.Pod, name string) {
	s.T.Helper()
	out, err := s.NodeCommand(s.T.Context(), p.Spec.NodeName, "sh", "-c", killScript, "kill", s.idOf(p, name))
	if err != nil {
		s.T.Fatalf("kill %s on %s: %v\n%s", p.Name, p.Spec.NodeName, err, out)
	}
}

// runningScript defines `running NAME`: does a process of that name run? It
// starts no process itself, so that it sees those that live for milliseconds.
const runningScript = `
running() {
  for c in /proc/[0-9]*/comm; do
    read -r n <"$c" && [ "$n" = "$1" ] && return 0
  done 2>/dev/null
  return 1
}`

// missed is how killWhenScript ends where the moment did not come.
const missed = 3

// killWhenScript is killScript as soon as the condition $3 holds, which is
// asked for all the time once the file $2 is there, for some ten seconds. It
// starts no process for that either.
var killWhenScript = runningScript + fmt.Sprintf(`
until [ -e "$2" ]; do sleep 0.02; done
read -r now rest </proc/uptime
end=$((${now%%%%.*} + 10))
until eval "$3"; do
  read -r now rest </proc/uptime
  [ ${now%%%%.*} -lt $end ] || exit %d
done`, missed) + killScript

// KillWhen waits on the Pod's node for a file and then, without a pause, for a
// shell condition, and ends the driver's process at that moment. It runs
// beside the test; the returned function waits for it, and says whether the
// moment was met: one of milliseconds can pass unseen on a busy machine.
func (s *Stage) KillWhen(p corev1.Pod, file, condition string) (wait func() (met bool)) {
	s.T.Helper()
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	id := s.containerID(p)
	go func() {
		out, err := s.NodeCommand(s.T.Context(), p.Spec.NodeName, "timeout", "--signal=KILL", "60", "sh", "-c", killWhenScript, "kill", id, file, condition)
		done <- result{out, err}
	}()
	return func() bool {
		s.T.Helper()
		r := <-done
		var failed *sandbox.ExitError
		if errors.As(r.err, &failed) && failed.Code == missed {
			return false
		}
		if r.err != nil {
			s.T.Fatalf("kill %s on %s when %q: %v\n%s", p.Name, p.Spec.NodeName, condition, r.err, r.out)
		}
		return true
	}
}

// containerID is the runtime's id of the running driver's container.
func (s *Stage) containerID(p corev1.Pod) string {
	s.T.Helper()
	return s.idOf(p, container)
}

// idOf is the runtime's id of a running container.
func (s *Stage) idOf(p corev1.Pod, name string) string {
	s.T.Helper()
	for _, status := range p.Status.ContainerStatuses {
		if status.Name == name && status.State.Running != nil {
			_, id, ok := strings.Cut(status.ContainerID, "://")
			if !ok {
				break
			}
			return id
		}
	}
	s.T.Fatalf("container %s of pod %s does not run: %+v", name, p.Name, p.Status.ContainerStatuses)
	return ""
}

// Restarted waits until the driver's container of a Pod runs again, with
// another process than before, and all of Holdfast is ready.
func (s *Stage) Restarted(before corev1.Pod) {
	s.T.Helper()
	old := s.containerID(before)
	s.Eventually("pod "+before.Name+" restarted and ready", func(ctx context.Context) (string, error) {
		var p corev1.Pod
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(&before), &p); err != nil {
			return "", err
		}
		for _, status := range p.Status.ContainerStatuses {
			if status.Name == container && strings.HasSuffix(status.ContainerID, old) {
				return "still the old container", nil
			}
			if !status.Ready {
				return fmt.Sprintf("container %s is not ready: %+v", status.Name, status.State), nil
			}
		}
		return "", nil
	})
}

// Interfaces gives the instance of a node that many network interfaces. It may
// be called when the test is over.
func (s *Stage) Interfaces(node string, number int) {
	s.T.Helper()
	state, err := s.Sim.State(context.Background())
	s.Must(err)
	for _, n := range s.Nodes() {
		for _, i := range state.Instances {
			if n.Name == node && i.ID == n.InstanceID {
				i.NetworkInterfaces = number
				s.Must(s.Sim.call(context.Background(), http.MethodPost, "instances", i, nil))
				return
			}
		}
	}
	s.T.Fatalf("no instance of node %s", node)
}
