package expansion

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// toldAfter is how long a kubelet may tell of a claim that is gone: it looks once a
// minute, and may have looked just before.
const toldAfter = 2 * time.Minute

// names are the claims that bore each name last. Kubelets tell of claims by their
// names: a claim that is made again, as that of a replica that is set up anew, would
// be taken for as full as the one before it.
type names map[types.NamespacedName]bearer

// bearer is a claim that bears a name.
type bearer struct {
	uid types.UID
	// seen is when it last did, until from when on what is told of the name is its own.
	seen, until time.Time
}

// successor says whether what is told of a claim may be of the one that bore its name
// before it.
func (n names) successor(now time.Time, c *corev1.PersistentVolumeClaim) bool {
	key := client.ObjectKeyFromObject(c)
	b := n[key]
	if b.uid != c.UID {
		before := b.uid
		b = bearer{uid: c.UID}
		if before != "" {
			b.until = now.Add(toldAfter)
		}
	}
	b.seen = now
	n[key] = b
	return now.Before(b.until)
}

// forget drops the names that no claim has borne for a while.
func (n names) forget(now time.Time) {
	for key, b := range n {
		if now.Sub(b.seen) > toldAfter {
			delete(n, key)
		}
	}
}
