package stage

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// image is the only image of the tests' own Pods; it has a shell and the tools
// of a small distribution.
const image = "docker.io/library/busybox:1.37"

// idle is a container's command that does nothing and ends at once when told.
var idle = []string{"sh", "-c", "trap exit TERM; while :; do sleep 1; done"}

// Create makes objects; it stops the test on an error. A cluster-scoped object
// is deleted when the test ends.
func (s *Stage) Create(objects ...client.Object) {
	s.T.Helper()
	for _, o := range objects {
		if err := s.Client.Create(s.T.Context(), o); err != nil {
			s.T.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		if _, isNamespace := o.(*corev1.Namespace); o.GetNamespace() != "" || isNamespace {
			continue
		}
		s.T.Cleanup(func() {
			if err := s.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
				s.T.Errorf("delete %T %s: %v", o, o.GetName(), err)
			}
		})
	}
}

// Class makes a StorageClass for the test alone and returns its name.
func (s *Stage) Class(suffix string, parameters map[string]string, change ...func(*storagev1.StorageClass)) string {
	s.T.Helper()
	c := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: s.Namespace + "-" + suffix},
		Provisioner:          Driver,
		Parameters:           parameters,
		VolumeBindingMode:    ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: ptr.To(true),
	}
	for _, f := range change {
		f(c)
	}
	s.Create(c)
	return c.Name
}

// Claim makes a ReadWriteOnce claim of a size such as "1Gi".
func (s *Stage) Claim(name, class, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	s.T.Helper()
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
	for _, f := range change {
		f(c)
	}
	s.Create(c)
	return c
}

// Pod makes a Pod that has a claim at /data and does nothing by itself.
func (s *Stage) Pod(name, claim string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.T.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name:         "app",
				Image:        image,
				Command:      idle,
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	s.Create(p)
	return p
}

// OnNode has the scheduler put a Pod on one node.
func OnNode(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
}

// Ready waits until a Pod of the test's namespace is ready and returns it.
func (s *Stage) Ready(pod string) *corev1.Pod {
	s.T.Helper()
	p, err := s.WaitPodReady(s.T.Context(), s.Namespace, pod, Patience)
	s.Must(err)
	return p
}

// DeletePod deletes a Pod and waits until it is gone.
func (s *Stage) DeletePod(name string) {
	s.T.Helper()
	s.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}})
}

// Delete deletes an object and waits until it is gone.
func (s *Stage) Delete(o client.Object) {
	s.T.Helper()
	if err := s.Client.Delete(s.T.Context(), o); client.IgnoreNotFound(err) != nil {
		s.T.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
	s.Must(s.WaitGone(s.T.Context(), o, Patience))
}

// PV waits until a claim is bound and returns its PersistentVolume.
func (s *Stage) PV(claim string) *corev1.PersistentVolume {
	s.T.Helper()
	c, err := s.WaitClaimBound(s.T.Context(), s.Namespace, claim, Patience)
	s.Must(err)
	pv := &corev1.PersistentVolume{}
	s.Must(s.Client.Get(s.T.Context(), client.ObjectKey{Name: c.Spec.VolumeName}, pv))
	return pv
}

// VolumeID waits until a claim is bound and returns the id of its EBS volume.
func (s *Stage) VolumeID(claim string) string {
	s.T.Helper()
	pv := s.PV(claim)
	id := handle(pv)
	if id == "" {
		s.T.Fatalf("PersistentVolume %s of claim %s is not EBS's", pv.Name, claim)
	}
	return id
}

// handle is the EBS volume behind a PersistentVolume, "" if there is none. An
// in-tree volume names it as vol-… or aws://zone/vol-….
func handle(pv *corev1.PersistentVolume) string {
	switch {
	case pv.Spec.CSI != nil && pv.Spec.CSI.Driver == Driver:
		return pv.Spec.CSI.VolumeHandle
	case pv.Spec.AWSElasticBlockStore != nil:
		return pv.Spec.AWSElasticBlockStore.VolumeID[strings.LastIndex(pv.Spec.AWSElasticBlockStore.VolumeID, "/")+1:]
	}
	return ""
}

// Event waits for an event about an object of the test's namespace whose
// reason and message contain all of want, and returns it.
func (s *Stage) Event(object string, want ...string) string {
	s.T.Helper()
	found := ""
	s.Eventually(fmt.Sprintf("event about %s with %q", object, want), func(ctx context.Context) (string, error) {
		var events corev1.EventList
		if err := s.Client.List(ctx, &events, client.InNamespace(s.Namespace)); err != nil {
			return "", err
		}
		var others []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name != object {
				continue
			}
			text := e.Reason + ": " + e.Message
			if containsAll(text, want) {
				found = text
				return "", nil
			}
			others = append(others, text)
		}
		return "only\n  " + strings.Join(others, "\n  "), nil
	})
	return found
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// FillAndSum writes a file of random bytes into a Pod's volume, has it reach
// the disk and returns its checksum.
func (s *Stage) FillAndSum(pod, file string, mebibytes int) string {
	s.T.Helper()
	s.In(pod, "sh", "-c", fmt.Sprintf("dd if=/dev/urandom of=%s bs=1048576 count=%d 2>/dev/null && sync", file, mebibytes))
	return s.Sum(pod, file)
}

// Sum is the SHA-256 of a file in a Pod.
func (s *Stage) Sum(pod, file string) string {
	s.T.Helper()
	return strings.Fields(s.In(pod, "sha256sum", file))[0]
}

// ZoneOf is the zone of a node; it stops the test if there is no such node.
func (s *Stage) ZoneOf(node string) string {
	for _, n := range s.Nodes() {
		if n.Name == node {
			return n.Zone
		}
	}
	s.T.Fatalf("no node %s in the sandbox", node)
	return ""
}

// Neighbour is the other node of a node's zone; it stops the test if there is none.
func (s *Stage) Neighbour(node string) string {
	for _, n := range s.Nodes() {
		if n.Name != node && n.Zone == s.ZoneOf(node) {
			return n.Name
		}
	}
	s.T.Fatalf("node %s is alone in zone %s", node, s.ZoneOf(node))
	return ""
}

// Within is Eventually with a bound of its own that reports instead of stopping.
func (s *Stage) Within(d time.Duration, what string, check func(context.Context) (string, error)) error {
	return testenv.Eventually(s.T.Context(), d, what, check)
}

// SizeKiB is the size of a filesystem as a Pod sees it, in KiB.
func (s *Stage) SizeKiB(pod, path string) int64 {
	s.T.Helper()
	size, err := s.sizeKiB(s.T.Context(), pod, path)
	s.Must(err)
	return size
}

func (s *Stage) sizeKiB(ctx context.Context, pod, path string) (int64, error) {
	out, err := s.Exec(ctx, s.Namespace, pod, "df", "-kP", path)
	if err != nil {
		return 0, err
	}
	lines := strings.Split(out, "\n")
	columns := strings.Fields(lines[len(lines)-1])
	if len(columns) < 6 {
		return 0, fmt.Errorf("df said %q", out)
	}
	return strconv.ParseInt(columns[1], 10, 64)
}

// Grown waits until a claim has a capacity and the Pod sees a filesystem that
// is larger than before by at least half. Kubelet looks for such work when it
// syncs a Pod, once in 60 to 90 s or when the Pod changes: a change of its
// annotations saves the wait.
func (s *Stage) Grown(pod, claim, path, capacity string, beforeKiB int64) {
	s.T.Helper()
	want := resource.MustParse(capacity)
	s.Eventually(fmt.Sprintf("claim %s grown to %s", claim, capacity), func(ctx context.Context) (string, error) {
		var c corev1.PersistentVolumeClaim
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: claim}, &c); err != nil {
			return "", err
		}
		if got := c.Status.Capacity[corev1.ResourceStorage]; got.Cmp(want) < 0 {
			if resizePending(&c) {
				return "capacity " + got.String() + ", the node has to grow the filesystem", s.nudge(ctx, pod)
			}
			return fmt.Sprintf("capacity %s, conditions %+v", got.String(), c.Status.Conditions), nil
		}
		now, err := s.sizeKiB(ctx, pod, path)
		if err == nil && now < beforeKiB*3/2 {
			return fmt.Sprintf("df still shows %d KiB", now), nil
		}
		return "", err
	})
}

// GrowOnNode waits until only the node's part of a growth is left to do, and
// has kubelet do it.
func (s *Stage) GrowOnNode(pod, claim string) {
	s.T.Helper()
	s.Eventually("claim "+claim+" waits for the node to grow its filesystem", func(ctx context.Context) (string, error) {
		var c corev1.PersistentVolumeClaim
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: claim}, &c); err != nil {
			return "", err
		}
		if !resizePending(&c) {
			return fmt.Sprintf("conditions %+v", c.Status.Conditions), nil
		}
		return "", s.nudge(ctx, pod)
	})
}

func resizePending(c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
	})
}

// Released waits until a PersistentVolume is released: its claim is gone and
// nobody else has it.
func (s *Stage) Released(pv *corev1.PersistentVolume) {
	s.T.Helper()
	s.Eventually("PersistentVolume "+pv.Name+" released", func(ctx context.Context) (string, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(pv), pv); err != nil {
			return "", err
		}
		if pv.Status.Phase != corev1.VolumeReleased {
			return "phase " + string(pv.Status.Phase), nil
		}
		return "", nil
	})
}

// nudge changes a Pod, for kubelet to sync it.
func (s *Stage) nudge(ctx context.Context, pod string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pod}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.holdfast.dev/looked":%q}}}`, time.Now().UTC().Format(time.RFC3339))
	return s.Client.Patch(ctx, p, client.RawPatch(types.MergePatchType, patch))
}

// Ask changes what a claim asks for.
func (s *Stage) Ask(claim, size string) {
	s.T.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: claim}}
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	s.Must(s.Client.Patch(s.T.Context(), c, client.RawPatch(types.MergePatchType, patch)))
}
