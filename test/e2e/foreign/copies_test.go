//go:build e2e

package foreign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// play is a schedule over claims of a StatefulSet with a volume of each driver,
// and over two claims that nobody can copy.
type play struct {
	*stage.Stage
	class string // StorageClass of the driver that is not ours
	sum   string // of what its volume holds
	token string // that reads metrics
}

// The claims.
const (
	foreignClaim = "foreign-store-0"
	ourClaim     = "ours-store-0"
)

// begin makes the claims, writes data and makes the schedule.
func begin(s *stage.Stage) *play {
	s.T.Helper()
	p := &play{Stage: s, class: s.Class("block", map[string]string{"media": "ssd"}, classOf(block))}
	apply(s, strings.NewReplacer("NAMESPACE", s.Namespace, "BLOCK", p.class, "EBS", s.Class("ebs", nil)).Replace(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: app
          image: docker.io/library/busybox:1.37
          command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
          volumeMounts: [{name: foreign, mountPath: /foreign}, {name: ours, mountPath: /ours}]
  volumeClaimTemplates:
    - metadata: {name: foreign, labels: {copied: "yes"}}
      spec: {accessModes: [ReadWriteOnce], storageClassName: BLOCK, resources: {requests: {storage: 1Gi}}}
    - metadata: {name: ours, labels: {copied: "yes"}}
      spec: {accessModes: [ReadWriteOnce], storageClassName: EBS, resources: {requests: {storage: 1Gi}}}
`))
	uncopied(s, "tape", s.Class("tape", nil, classOf("tape.example.com")), corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "tape.example.com", VolumeHandle: "tape-1"}})
	uncopied(s, "folder", "", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}})
	s.Ready("store-0")
	p.sum = s.FillAndSum("store-0", "/foreign/blob", 4)
	if got := s.PV(foreignClaim).Spec.NodeAffinity.Required.NodeSelectorTerms; len(got) != 1 || len(got[0].MatchExpressions) != 1 || got[0].MatchExpressions[0].Key != rack {
		s.T.Errorf("the foreign volume is bound to %+v, want a %s alone", got, rack)
	}
	apply(s, fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: SnapshotSchedule
metadata: {name: all}
spec:
  schedule: "* * * * *"
  target: {claimSelector: {matchLabels: {copied: "yes"}}}
  snapshotClassNamesByDriver: [{driver: %s, name: %s-block}, {driver: %s, name: %[2]s-ours}]
  retention: {keepLast: 1}
  onScheduleDelete: Delete
`, block, s.Namespace, stage.Driver))
	return p
}

// uncopied makes a claim that is bound to a volume by hand.
func uncopied(s *stage.Stage, name, class string, source corev1.PersistentVolumeSource) {
	s.T.Helper()
	volume := &corev1.PersistentVolume{}
	volume.Name = s.Namespace + "-" + name
	claim := s.Claim(name, class, "1Gi", func(c *corev1.PersistentVolumeClaim) {
		c.Labels, c.Spec.VolumeName = map[string]string{"copied": "yes"}, volume.Name
	})
	volume.Spec = corev1.PersistentVolumeSpec{
		Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		StorageClassName:       class,
		ClaimRef:               &corev1.ObjectReference{Namespace: s.Namespace, Name: name},
		PersistentVolumeSource: source,
	}
	s.Create(volume)
	s.PV(name)
}

// waits: without the kinds the schedule says so, and so do the metrics.
func (p *play) waits() {
	p.T.Helper()
	p.token = p.MetricsToken()
	p.Eventually("the schedule says that the kinds are missing", func(ctx context.Context) (string, error) {
		out, err := p.condition(ctx, "Ready")
		if err == nil && !strings.HasPrefix(out, "False SnapshotKindsMissing ") {
			return out, nil
		}
		return "", err
	})
	served(p.Stage, p.token, 0)
	p.Step("schedule and metrics say that the snapshot kinds are missing")
}

// condition is status, reason and message of a condition of the schedule.
func (p *play) condition(ctx context.Context, name string) (string, error) {
	at := fmt.Sprintf(`{.status.conditions[?(@.type==%q)]`, name)
	out, err := p.Kubectl(ctx, "-n", p.Namespace, "get", "snapshotschedule", "all", "-o", "jsonpath="+at+".status} "+at+".reason} "+at+".message}")
	return string(out), err
}

// copied: the kinds are there.
func (p *play) copied() {
	p.T.Helper()
	served(p.Stage, p.token, 1)
	snapshotClass(p.Stage, "block", snapshotv1.VolumeSnapshotContentRetain)
	p.SnapshotClass("ours", nil)
	p.Eventually("a copy of each driver is ready", func(context.Context) (string, error) {
		var have []string
		for _, o := range copies(p.Stage, "all") {
			have = append(have, *o.Spec.Source.PersistentVolumeClaimName)
		}
		if !slices.Contains(have, foreignClaim) || !slices.Contains(have, ourClaim) {
			return fmt.Sprintf("of %v", have), nil
		}
		return "", nil
	})
	first := p.foreign()
	handle := p.retained(first)
	p.Step("a copy of each driver is ready")
	p.named()
	p.restored(first.Name)
	p.agedOut(first, handle)
	p.ended()
}

// foreign is the one ready copy of the foreign claim, or the newest of two.
func (p *play) foreign() snapshotv1.VolumeSnapshot {
	p.T.Helper()
	all := slices.DeleteFunc(copies(p.Stage, "all"), func(o snapshotv1.VolumeSnapshot) bool {
		return *o.Spec.Source.PersistentVolumeClaimName != foreignClaim
	})
	if len(all) == 0 {
		p.T.Fatal("the foreign claim has no ready copy")
	}
	return slices.MaxFunc(all, func(a, b snapshotv1.VolumeSnapshot) int {
		return a.Status.CreationTime.Compare(b.Status.CreationTime.Time)
	})
}

// named: what cannot be copied is in the status with its reason, and costs the
// others nothing.
func (p *play) named() {
	p.T.Helper()
	p.Eventually("the status names what cannot be copied, and counts the rest", func(ctx context.Context) (string, error) {
		out, err := p.Kubectl(ctx, "-n", p.Namespace, "get", "snapshotschedule", "all", "-o",
			`jsonpath={range .status.claims[*]}{.name} {.reason}: {.message}{"\n"}{end}{.status.claimCount} claims, {.status.readyCount} ready`)
		if err != nil {
			return "", err
		}
		for _, part := range []string{
			"tape DriverCannotSnapshot: there is no VolumeSnapshotClass of driver tape.example.com",
			"folder DriverCannotSnapshot: PersistentVolume \"" + p.Namespace + "-folder\" is not a CSI driver's",
			"4 claims, ",
		} {
			if !strings.Contains(string(out), part) {
				return fmt.Sprintf("%q in\n%s", part, out), nil
			}
		}
		for _, claim := range []string{foreignClaim, ourClaim} {
			if strings.Contains(string(out), claim) {
				return "no word of " + claim + " in\n" + string(out), nil
			}
		}
		if strings.HasSuffix(string(out), " 0 ready") {
			return "ready copies", nil
		}
		return "", nil
	})
	p.Step("what cannot be copied is named")
}

// restored: a claim that is made from a copy holds what the volume held.
func (p *play) restored(copy string) {
	p.T.Helper()
	p.Claim("restored", p.class, "1Gi", stage.FromSnapshot(copy))
	p.Pod("restored", "restored")
	p.Ready("restored")
	if got := p.Sum("restored", "/data/blob"); got != p.sum {
		p.T.Errorf("the restored file has sum %s, want %s", got, p.sum)
	}
	p.Step("a copy of %s is restored", block)
}

// agedOut: the next run's copy takes the place of the first, which goes, and with
// it what it stands for in EC2.
func (p *play) agedOut(first snapshotv1.VolumeSnapshot, handle string) {
	p.T.Helper()
	p.Must(p.Within(3*time.Minute, "the first copy ages out", func(ctx context.Context) (string, error) {
		err := p.Client.Get(ctx, client.ObjectKeyFromObject(&first), &snapshotv1.VolumeSnapshot{})
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		if err == nil {
			return "it is there", nil
		}
		if next := p.foreign(); next.Name == first.Name {
			return "another copy", nil
		}
		state, err := p.Sim.State(ctx)
		if slices.ContainsFunc(state.Snapshots, func(s ec2sim.Snapshot) bool { return s.ID == handle }) {
			return "EC2 still has " + handle, nil
		}
		return "", err
	}))
	p.Step("the first copy aged out, and %s with it", handle)
}

// retained is what a copy whose class retains stands for in EC2.
func (p *play) retained(o snapshotv1.VolumeSnapshot) (handle string) {
	p.T.Helper()
	content := &snapshotv1.VolumeSnapshotContent{}
	p.Must(p.Client.Get(p.T.Context(), client.ObjectKey{Name: *o.Status.BoundVolumeSnapshotContentName}, content))
	if content.Spec.DeletionPolicy != snapshotv1.VolumeSnapshotContentRetain || content.Spec.Driver != block {
		p.T.Fatalf("content %s is of driver %s with policy %s, want %s and Retain", content.Name, content.Spec.Driver, content.Spec.DeletionPolicy, block)
	}
	handle = *content.Status.SnapshotHandle
	state, err := p.Sim.State(p.T.Context())
	p.Must(err)
	if !slices.ContainsFunc(state.Snapshots, func(s ec2sim.Snapshot) bool { return s.ID == handle }) {
		p.T.Fatalf("EC2 has no %s", handle)
	}
	return handle
}

// ended: with the schedule go all of its copies, as it says.
func (p *play) ended() {
	p.T.Helper()
	p.Run("-n", p.Namespace, "delete", "snapshotschedule", "all", "--timeout", stage.Patience.String())
	p.Eventually("all copies go with the schedule", func(ctx context.Context) (string, error) {
		var contents snapshotv1.VolumeSnapshotContentList
		err := p.Client.List(ctx, &contents)
		for _, c := range contents.Items {
			if c.Spec.VolumeSnapshotRef.Namespace == p.Namespace {
				return "content " + c.Name, nil
			}
		}
		return "", err
	})
}
