package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// Patience bounds each wait for the cluster. What is waited for takes seconds;
// the bound is for a machine that is busy with something else.
const Patience = 2 * time.Minute

// Driver is the name of the CSI driver under test.
const Driver = "ebs.csi.aws.com"

// ofTest labels the namespaces that New makes.
const ofTest = "e2e.holdfast.dev/test"

// cluster is opened once a test binary, by Main.
var cluster *testenv.Cluster

// Main runs a package's tests in the sandbox that HOLDFAST_SANDBOX names and
// afterwards asks whether anything leaked. It is all of a TestMain.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	name := os.Getenv(testenv.SandboxVariable)
	if name == "" {
		fmt.Fprintf(os.Stderr, "e2e: %s is not set: `make test-e2e` brings a sandbox up, runs these tests in it and takes it down\n", testenv.SandboxVariable)
		return 1
	}
	var err error
	if cluster, err = testenv.Open(name); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: open sandbox %s: %v\n", name, err)
		return 1
	}
	if err := beside(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
		return 1
	}
	code := m.Run()
	if err := end(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: after all tests: %v\n", err)
		return 1
	}
	return code
}

// beside lets more tests run beside each other than there are cores, as they
// wait for EC2 and kubelet nearly all of the time. A -parallel on the command
// line wins.
func beside() error {
	const tests = 6
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(tests))
}

// end holds what is true of the cluster after a package's tests.
func end() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	sim := Sim{endpoint: cluster.EC2Endpoint()}
	if err := sim.AllModelled(ctx); err != nil {
		return err
	}
	return errors.Join(noNamespace(ctx), noLeak(ctx, cluster, sim))
}

// noNamespace waits until the last namespace of a test is gone.
func noNamespace(ctx context.Context) error {
	return testenv.Eventually(ctx, Patience, "no namespace of a test left", func(ctx context.Context) (string, error) {
		var all corev1.NamespaceList
		if err := cluster.Client.List(ctx, &all); err != nil {
			return "", err
		}
		var left []string
		for _, n := range all.Items {
			if n.DeletionTimestamp != nil || n.Labels[ofTest] != "" {
				left = append(left, n.Name)
			}
		}
		return strings.Join(left, ", "), nil
	})
}

// Stage is one test's place in the cluster.
type Stage struct {
	*testenv.Cluster
	T testing.TB
	// Namespace is the test's own; everything in it goes with the test.
	Namespace string
	// EC2 asks the simulated EC2 as an administrator.
	EC2 *ec2.Client
	// Sim is the simulator's control API.
	Sim Sim
}

// New gives a test a namespace of its own. When the test ends the namespace is
// deleted, and no volume made for a claim in it may be left in EC2.
func New(t testing.TB) *Stage {
	t.Helper()
	s := For(t, "e2e-"+strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   s.Namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline", ofTest: "true"},
	}}
	s.Create(ns)
	return s
}

// For is New for a namespace that the test makes itself, as the examples do.
func For(t testing.TB, namespace string) *Stage {
	t.Helper()
	if cluster == nil {
		t.Fatal("no cluster: the package's TestMain has to call stage.Main")
	}
	s := &Stage{
		Cluster:   cluster,
		T:         t,
		Namespace: namespace,
		EC2:       ec2.NewFromConfig(ec2sim.ClientConfig(cluster.EC2Endpoint())),
		Sim:       Sim{endpoint: cluster.EC2Endpoint()},
	}
	begin := time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			s.tellTrouble(begin)
		}
		s.clear()
	})
	return s
}

// With is the same stage for a subtest: what it makes goes with the subtest,
// but for what is in the namespace.
func (s *Stage) With(t testing.TB) *Stage {
	sub := *s
	sub.T = t
	return &sub
}

// clear deletes the namespace and waits until EC2 has no volume of it. The
// namespace itself may take a few seconds more; Main waits for the last one.
func (s *Stage) clear() {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	s.clearPods(ctx)
	if out, err := s.Kubectl(ctx, "delete", "namespace", s.Namespace, "--ignore-not-found", "--wait=false"); err != nil {
		s.T.Errorf("delete namespace %s: %v\n%s", s.Namespace, err, out)
		return
	}
	err := testenv.Eventually(ctx, Patience, "EC2 without volumes of namespace "+s.Namespace, func(ctx context.Context) (string, error) {
		volumes, err := s.volumesOfNamespace(ctx)
		return strings.Join(idsOf(volumes), ", "), err
	})
	if err != nil {
		s.T.Error(err)
		s.sweep(ctx)
	}
}

// sweep deletes volumes that were left over, so that the next test is judged
// by its own.
func (s *Stage) sweep(ctx context.Context) {
	s.T.Helper()
	volumes, err := s.volumesOfNamespace(ctx)
	for _, v := range volumes {
		_, failed := s.EC2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: v.VolumeId})
		err = errors.Join(err, failed)
	}
	if err != nil {
		s.T.Errorf("sweep up: %v", err)
	}
}

// clearPods ends all Pods and waits until their volumes are detached. Where
// Pods and claims go together, csi-provisioner tries to delete volumes that are
// still attached, and waits longer each time.
func (s *Stage) clearPods(ctx context.Context) {
	s.T.Helper()
	if out, err := s.Kubectl(ctx, "-n", s.Namespace, "delete", "statefulsets,deployments,pods", "--all", "--wait=false"); err != nil {
		s.T.Errorf("delete pods of %s: %v\n%s", s.Namespace, err, out)
		return
	}
	err := testenv.Eventually(ctx, Patience, "volumes of namespace "+s.Namespace+" detached", func(ctx context.Context) (string, error) {
		volumes, err := s.volumesOfNamespace(ctx)
		volumes = slices.DeleteFunc(volumes, func(v types.Volume) bool { return len(v.Attachments) == 0 })
		return strings.Join(idsOf(volumes), ", "), err
	})
	if err != nil {
		s.T.Error(err)
	}
}

// Must stops the test on an error.
func (s *Stage) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Eventually polls until check reports "" for what is still missing.
func (s *Stage) Eventually(what string, check func(context.Context) (missing string, err error)) {
	s.T.Helper()
	s.Must(testenv.Eventually(s.T.Context(), Patience, what, check))
}

// Run is kubectl with its output; it stops the test on an error.
func (s *Stage) Run(args ...string) string {
	s.T.Helper()
	out, err := s.Kubectl(s.T.Context(), args...)
	if err != nil {
		s.T.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// In runs a command in the first container of a Pod of the test's namespace.
func (s *Stage) In(pod string, argv ...string) string {
	s.T.Helper()
	out, err := s.Exec(s.T.Context(), s.Namespace, pod, argv...)
	if err != nil {
		s.T.Fatalf("in pod %s/%s: %s: %v\n%s", s.Namespace, pod, strings.Join(argv, " "), err, out)
	}
	return out
}

// Step logs what a test shows next, with the time since its start.
func (s *Stage) Step(format string, args ...any) {
	s.T.Helper()
	s.T.Logf(time.Now().UTC().Format("15:04:05Z ")+format, args...)
}
