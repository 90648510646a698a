//go:build e2e

package expansion

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// fillHalf writes more than half of 1 GiB into the file $1.
const fillHalf = `dd if=/dev/zero of="$1" bs=1048576 count=600 2>/dev/null && sync`

// staysOnItsNode has a Pod tolerate a node that does not answer.
func staysOnItsNode(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
}

// TestNodesThatDoNotAnswer: of three nodes one has lost its power, the kubelet of
// another takes connections and says nothing, and that of the third has a new
// certificate. The claims on the third grow meanwhile. Of the others nothing is
// known, which is not zero: they are left alone, and grow when their nodes answer.
// It takes nodes away from whatever else runs, so it runs by itself.
func TestNodesThatDoNotAnswer(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") == "" {
		t.Skip("it takes nodes away for minutes: make test-all runs it")
	}
	const renewed, off, hung = "node-a1", "node-a2", "node-b1"
	s := stage.New(t)
	policy(s, `{maxSize: 2Gi, trigger: {usedPercent: 50}, cooldownSeconds: 1}`)
	class := s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	for _, node := range []string{renewed, off, hung} { // a claim and a Pod of the node's name
		s.Claim(node, class, "1Gi")
		s.Pod(node, node, stage.OnNode(node), staysOnItsNode)
	}
	pods := map[string]*corev1.Pod{}
	for _, node := range []string{renewed, off, hung} {
		pods[node] = s.Ready(node)
	}
	t.Cleanup(func() { s.Must(s.Rollout(context.WithoutCancel(t.Context()), stage.Patience)) })

	s.Must(s.RenewKubelet(t.Context(), renewed))
	powerOn := powerOff(s, off)
	goOn := hang(s, hung)
	s.Step("%s has a new certificate, %s is off, %s says nothing", renewed, off, hung)

	volume := fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~csi/%s/mount/file", pods[hung].UID, s.PV(hung).Name)
	if out, err := s.NodeCommand(t.Context(), hung, "sh", "-c", fillHalf, "fill", volume); err != nil {
		t.Fatalf("write into the volume of Pod %s: %v\n%s", hung, err, out)
	}
	s.In(renewed, "sh", "-c", fillHalf, "fill", "/data/file")
	capacity(s, renewed, "2Gi")
	for _, node := range []string{off, hung} {
		if got := get(s, node).Spec.Resources.Requests.Storage().String(); got != "1Gi" || len(sizes(s, node)) > 0 {
			t.Errorf("the claim on %s asks for %s, and EC2 was asked for %v GiB: nobody could tell how full it is", node, got, sizes(s, node))
		}
	}

	goOn()
	capacity(s, hung, "2Gi")
	s.Run("-n", s.Namespace, "wait", "pod/"+off, "--for=condition=Ready=false", "--timeout=2m") // or the next Ready would be one from before
	powerOn()
	s.Ready(off)
	s.In(off, "sh", "-c", fillHalf, "fill", "/data/file")
	capacity(s, off, "2Gi")
	for _, node := range []string{renewed, hung} {
		if p := s.Ready(node); p.UID != pods[node].UID || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the Pod on %s was restarted: %+v", node, p.Status)
		}
	}
}

// powerOff takes the power from a node until the returned function is called, or
// the test ends.
func powerOff(s *stage.Stage, node string) (on func()) {
	s.T.Helper()
	s.Must(s.PowerOff(s.T.Context(), node))
	off := true
	on = func() {
		if off {
			off = false
			s.Must(s.PowerOn(context.WithoutCancel(s.T.Context()), node))
		}
	}
	s.T.Cleanup(on)
	return on
}

// hang stops a node's kubelet where it is, its port open, until the returned
// function is called, or the test ends.
func hang(s *stage.Stage, node string) (goOn func()) {
	s.T.Helper()
	all, err := s.Components(s.T.Context())
	s.Must(err)
	pid := ""
	for _, c := range all {
		if c.Name == sandbox.Kubelet+"/"+node && c.Exit == nil {
			pid = strconv.Itoa(c.PID)
		}
	}
	if pid == "" {
		s.T.Fatalf("no kubelet runs on %s: %+v", node, all)
	}
	signal := func(name string) {
		s.T.Helper()
		if out, err := s.NodeCommand(context.WithoutCancel(s.T.Context()), node, "sh", "-c", `kill -`+name+` "$1"`, "signal", pid); err != nil {
			s.T.Errorf("signal %s to the kubelet of %s, process %s: %v\n%s", name, node, pid, err, out)
		}
	}
	signal("STOP")
	goOn = func() { signal("CONT") }
	s.T.Cleanup(goOn)
	return goOn
}
