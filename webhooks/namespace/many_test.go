package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// many is a namespace with many claims, each with ready snapshots, and counts
// what judging it costs.
type many struct {
	client.Reader
	policies  []v1alpha1.StoragePolicy
	claims    []corev1.PersistentVolumeClaim
	snapshots []snapshotv1.VolumeSnapshot
	byClaim   map[string][]snapshotv1.VolumeSnapshot
	noKind    bool
	asked     int // how often for the kind of snapshots, which is a live question
	handed    int // how many snapshots were read
	lists     int // of snapshots
}

func (m *many) IndexField(_ context.Context, o client.Object, field string, index client.IndexerFunc) error {
	if field != snapshots.ByClaim { // the schedules'
		return nil
	}
	m.asked++
	if m.noKind {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: fmt.Sprintf("%T", o)}}
	}
	m.byClaim = map[string][]snapshotv1.VolumeSnapshot{}
	for i := range m.snapshots {
		for _, claim := range index(&m.snapshots[i]) {
			m.byClaim[claim] = append(m.byClaim[claim], m.snapshots[i])
		}
	}
	return nil
}

func (m *many) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetName(key.Name)
	return nil
}

func (m *many) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.StoragePolicyList:
		l.Items = m.policies
	case *corev1.PersistentVolumeClaimList:
		l.Items = m.claims
	case *snapshotv1.VolumeSnapshotList:
		l.Items = m.snapshots
		var o client.ListOptions
		o.ApplyOptions(opts)
		if o.FieldSelector != nil {
			l.Items = m.byClaim[o.FieldSelector.Requirements()[0].Value]
		}
		m.lists++
		m.handed += len(l.Items)
	}
	return nil
}

// manyClaims are n claims with copies of each, cut that long ago, in a namespace
// whose claims want one of the last day.
func manyClaims(n, copies int, ago time.Duration) *many {
	now := time.Now()
	m := &many{policies: []v1alpha1.StoragePolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "databases", UID: "u"},
		Spec: v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{
			Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot},
		}},
	}}}
	static, ready, cut := "", true, metav1.NewTime(now.Add(-ago))
	for i := range n {
		name := fmt.Sprintf("data-%d", i)
		m.claims = append(m.claims, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &static, VolumeName: "v"},
		})
		for j := range copies {
			m.snapshots = append(m.snapshots, snapshotv1.VolumeSnapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: fmt.Sprintf("%s-%d", name, j)},
				Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &name}},
				Status:     &snapshotv1.VolumeSnapshotStatus{ReadyToUse: &ready, CreationTime: &cut},
			})
		}
	}
	return m
}

func (m *many) delete(ctx context.Context, t *testing.T) (admit.Answer, error) {
	t.Helper()
	raw, err := json.Marshal(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db"}})
	if err != nil {
		t.Fatal(err)
	}
	h := &Webhook{World: &world.World{Cache: m, Live: m, Index: snapshots.NewIndex(m), Clock: clocktesting.NewFakePassiveClock(time.Now())}}
	return h.Validate(ctx, &admit.Request{Operation: admissionv1.Delete, Name: "db", OldObject: runtime.RawExtension{Raw: raw}})
}

// TestManyClaimsAreJudgedInTime: what judging a namespace costs grows with its
// claims and not with claims times snapshots, else the API server would not wait
// for the answer, and the namespace would go.
func TestManyClaimsAreJudgedInTime(t *testing.T) {
	const claims, copies = 500, 20
	for name, tc := range map[string]struct {
		why                          string
		ago                          time.Duration
		noKind                       bool
		denied, asked, lists, handed int
	}{
		"all may go":   {"each snapshot is read once", time.Hour, false, 0, 1, claims, claims * copies},
		"none may go":  {"the first claims are enough to refuse", 48 * time.Hour, false, listed, 1, listed, listed * copies},
		"no snapshots": {"a kind that is not there is asked for once", 0, true, listed, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := manyClaims(claims, copies, tc.ago)
			m.noKind = tc.noKind
			answer, err := m.delete(t.Context(), t)
			if err != nil {
				t.Fatal(err)
			}
			if n := policy.Denied(answer.Findings); n != tc.denied {
				t.Errorf("%d findings refuse, want %d", n, tc.denied)
			}
			if m.asked != tc.asked || m.lists != tc.lists || m.handed != tc.handed {
				t.Errorf("%s: asked for the kind %d times, listed %d times, read %d snapshots; want %d, %d, %d", tc.why, m.asked, m.lists, m.handed, tc.asked, tc.lists, tc.handed)
			}
			if told := strings.Join(answer.Warnings, "\n"); tc.denied > 0 && !strings.Contains(told, fmt.Sprintf("%d further claims", claims-listed)) {
				t.Errorf("warned %q, want it to tell how many claims were not looked at", told)
			}
		})
	}
}

// TestNoTimeLeft: a judge whose time is over says so at once, and does not
// answer as if there were nothing to find.
func TestNoTimeLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := manyClaims(500, 1, time.Hour)
	if answer, err := m.delete(ctx, t); err == nil {
		t.Errorf("answered %+v, want an error", answer)
	}
	if m.lists > 0 {
		t.Errorf("%d lists of snapshots after the time was over", m.lists)
	}
}
