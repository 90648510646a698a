//go:build envtest

package diagnosis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/internal/tally"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// indexed asks the API server what the manager asks its informers' indexes. Where
// blind, it does not answer about Pods.
type indexed struct {
	client.Client
	blind *bool
}

func (c indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, pods := list.(*corev1.PodList); pods && *c.blind {
		return errors.New("no answer")
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	snaps, is := list.(*snapshotv1.VolumeSnapshotList)
	if !is || o.FieldSelector == nil {
		return c.Client.List(ctx, list, opts...)
	}
	claim, _ := o.FieldSelector.RequiresExactMatch(snapshots.ByClaim)
	o.FieldSelector, o.UnsafeDisableDeepCopy = nil, nil
	if err := c.Client.List(ctx, snaps, &o); err != nil {
		return err
	}
	snaps.Items = slices.DeleteFunc(snaps.Items, func(s snapshotv1.VolumeSnapshot) bool {
		return ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "") != claim
	})
	return nil
}

// slow lets something happen whenever events are read.
type slow struct {
	client.Client
	happens func()
}

func (s slow) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	s.happens()
	return s.Client.List(ctx, list, opts...)
}

type all struct{}

func (all) Served(snapshots.Family) bool { return true }

// TestLook looks at one real API server: what is stuck there is counted by its
// reason and told once an hour.
func TestLook(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(testenv.APIServer(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	create := func(objects ...client.Object) {
		t.Helper()
		for _, o := range objects {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	one := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := func(name, class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: one},
		}}
	}
	pod := func(name, claim string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "c"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		}}
	}
	volume := func(name string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: one, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: name}},
		}}
		create(v)
		v.Status.Phase = phase
		if err := c.Status().Update(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	failing, homeless := claim("failing", "gp3"), claim("homeless", "gp3")
	failing.Annotations = map[string]string{selectedNode: "n1"}
	create(
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &waits},
		claim("classless", "gp33"), claim("unwanted", "gp3"), failing, pod("db-0", "failing"), homeless, pod("web-0", "homeless"),
		claim("held", "gp3"), pod("db-1", "held"), claim("copied", "gp3"), claim("idle", "gp3"), claim("lost", "gp3"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
	)
	// As external-provisioner tells of it, and somebody of a claim that is not asked about.
	for _, e := range []struct {
		name, uid, kind, message string
		at                       time.Duration
	}{
		{"newest", string(failing.UID), corev1.EventTypeWarning, "VolumeLimitExceeded: the account's limit of gp3 is reached", 2 * time.Minute},
		{"older", string(failing.UID), corev1.EventTypeWarning, "throttled", time.Minute},
		{"normal", string(failing.UID), corev1.EventTypeNormal, "provisioning", 3 * time.Minute},
		{"other", "other", corev1.EventTypeWarning, "of another claim", 4 * time.Minute},
	} {
		create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: e.name}, Reason: "ProvisioningFailed", Message: e.message, Type: e.kind,
			InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "failing", UID: types.UID(e.uid)},
			LastTimestamp:  metav1.NewTime(time.Now().Add(e.at))})
	}
	// As the scheduler does.
	create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Reason: "FailedScheduling", Message: "0/3 nodes are available: 3 Insufficient memory.", Type: corev1.EventTypeWarning,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-0"}, LastTimestamp: metav1.NewTime(time.Now())})
	create(&snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "uncut"}, Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("copied")}}})
	copied := claim("copied", "")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+ofSnapshots+`"]}}`))
	if err := c.Patch(t.Context(), copied, patch); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"held", "copied"} {
		if err := c.Delete(t.Context(), claim(name, "")); err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakeClock(time.Now().Add(idleFor + 2*time.Hour).Truncate(time.Second))
	idle := claim("idle", "gp3")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(idle), idle); err != nil {
		t.Fatal(err)
	}
	idle.Status.Phase, idle.Status.Capacity = corev1.ClaimBound, one
	idle.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(clk.Now().Add(-idleFor))}}
	if err := c.Status().Update(t.Context(), idle); err != nil {
		t.Fatal(err)
	}
	lost := claim("lost", "gp3")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(lost), lost); err != nil {
		t.Fatal(err)
	}
	lost.Status.Phase = corev1.ClaimLost // as the controller of volumes does
	if err := c.Status().Update(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	volume("released", corev1.VolumeReleased)
	volume("failed", corev1.VolumeFailed)
	volume("bound", corev1.VolumeBound)
	for name, node := range map[string]string{"there": "n1", "gone": "n2"} {
		create(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "ebs.csi.aws.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("bound")},
		}})
	}

	recorder := events.NewFakeRecorder(100)
	blind, scrape := false, func() {}
	d := New(Options{
		World: &world.World{Cache: indexed{c, &blind}, Live: slow{c, func() { scrape() }}, Clock: clk}, Kinds: all{}, Events: recorder, Clock: clk, Registry: prometheus.NewRegistry(),
	})
	told := func() []string {
		var lines []string
		for {
			select {
			case e := <-recorder.Events:
				lines = append(lines, e)
			default:
				slices.Sort(lines)
				return lines
			}
		}
	}
	look := func() []string {
		t.Helper()
		if err := d.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return told()
	}
	first := look()
	for _, tc := range []struct {
		what string
		got  float64
		want float64
	}{
		{"claims of a missing class", testutil.ToFloat64(d.instruments.pending.WithLabelValues("default", string(ClassNotFound))), 1},
		{"claims without a Pod", testutil.ToFloat64(d.instruments.pending.WithLabelValues("default", string(NoPod))), 1},
		{"claims that are not provisioned", testutil.ToFloat64(d.instruments.pending.WithLabelValues("default", string(NotProvisioned))), 1},
		{"claims whose Pod has no node", testutil.ToFloat64(d.instruments.pending.WithLabelValues("default", string(NotScheduled))), 1},
		{"claims held by Pods", testutil.ToFloat64(d.instruments.terminating.WithLabelValues("default", string(HeldByPod))), 1},
		{"claims held by snapshots", testutil.ToFloat64(d.instruments.terminating.WithLabelValues("default", string(HeldBySnapshot))), 1},
		{"claims that are lost", testutil.ToFloat64(d.instruments.lost.WithLabelValues("default")), 1},
		{"attachments of nodes that are gone", testutil.ToFloat64(d.instruments.attachments.WithLabelValues("ebs.csi.aws.com")), 1},
		{"released volumes", testutil.ToFloat64(d.instruments.released.WithLabelValues("ebs.csi.aws.com")), 2},
		{"their bytes", testutil.ToFloat64(d.instruments.releasedBytes.WithLabelValues("ebs.csi.aws.com")), 2 << 30},
		{"idle claims", testutil.ToFloat64(d.instruments.idle.WithLabelValues("default")), 1},
		{"their bytes", testutil.ToFloat64(d.instruments.idleBytes.WithLabelValues("default")), 1 << 30},
	} {
		if tc.got != tc.want {
			t.Errorf("%v %s, want %v", tc.got, tc.what, tc.want)
		}
	}
	for _, want := range []string{
		`no StorageClass "gp33"`, "no Pod does", "last it was said: ProvisioningFailed: VolumeLimitExceeded", "no node was found for Pod web-0; last it was said: FailedScheduling: 0/3 nodes", "Pod db-1 names it", "VolumeSnapshot uncut of it", "no Pod has used it for over a week", "no Pod can start with this one",
	} {
		if n := strings.Count(strings.Join(first, "\n"), want); n != 1 {
			t.Errorf("%q is told %d times in\n%s", want, n, strings.Join(first, "\n"))
		}
	}
	clk.Step(Every)
	if again := look(); len(again) != 0 {
		t.Errorf("a minute later the same is told again:\n%s", strings.Join(again, "\n"))
	}
	clk.Step(tooLong)
	lasting := strings.Join(look(), "\n")
	for want, n := range map[string]int{"node n2 is not there": 1, "its reclaim policy is Retain": 2} {
		if got := strings.Count(lasting, want); got != n {
			t.Errorf("after a quarter of an hour %q is told %d times, want %d, in\n%s", want, got, n, lasting)
		}
	}
	clk.Step(tellAgain)
	scraped := 0
	scrape = func() {
		scraped++
		for what, g := range map[string]*tally.Gauge{"pending": d.instruments.pending, "terminating": d.instruments.terminating, "lost": d.instruments.lost, "released": d.instruments.released, "idle": d.instruments.idle, "attachments": d.instruments.attachments} {
			if testutil.CollectAndCount(g) == 0 {
				t.Errorf("a scrape in the middle of a look sees nothing of %s", what)
			}
		}
	}
	stuck := len(first) // without the idle claim, and with the node
	if again := look(); len(again) != stuck {
		t.Errorf("an hour later %d events, want %d: what is forgotten is told once a day", len(again), stuck)
	}
	clk.Step(remind)
	if again := look(); len(again) != stuck+3 {
		t.Errorf("a day later %d events, want %d", len(again), stuck+3)
	}
	if scraped == 0 {
		t.Error("no events were read: this shows nothing of a scrape in the middle")
	}
	blind = true
	clk.Step(Every)
	if err := d.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("Pods could not be read: %v", err)
	}
	blind = false
	if n := testutil.ToFloat64(d.instruments.terminating.WithLabelValues("default", string(HeldByPod))); n != 1 {
		t.Errorf("what holds a claim could not be looked up, and %v are counted, want 1 as before", n)
	}
	create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	if look(); testutil.CollectAndCount(d.instruments.attachments) != 0 {
		t.Error("the node is back, and its attachment is still counted")
	}
}
