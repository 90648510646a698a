package world

import (
	"context"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// indexer notes what is indexed.
type indexer struct {
	kinds []client.Object
	err   error
}

func (x *indexer) IndexField(_ context.Context, o client.Object, _ string, _ client.IndexerFunc) error {
	x.kinds = append(x.kinds, o)
	return x.err
}

// informers are started and never read.
type informers struct{ cache.Cache }

func (informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, nil
}

// TestWatchStartsWithSnapshots: the informer of snapshots is there, and waited
// for with the others, before the first deletion; a cluster without the kind is
// no reason not to start.
func TestWatchStartsWithSnapshots(t *testing.T) {
	for name, x := range map[string]*indexer{"the kind is there": {}, "the kind is missing": {err: &meta.NoKindMatchError{}}} {
		w := &World{Cache: &reader{}, Index: snapshots.NewIndex(x), Clock: clocktesting.NewFakePassiveClock(time.Now())}
		if err := w.Watch(informers{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(x.kinds) == 0 {
			t.Fatalf("%s: nothing is indexed, want snapshots", name)
		}
		if _, is := x.kinds[0].(*snapshotv1.VolumeSnapshot); !is {
			t.Errorf("%s: %T is indexed, want snapshots", name, x.kinds[0])
		}
	}
}
