package hooks

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

const (
	// labelRecord marks the ConfigMaps that are records.
	labelRecord = "holdfast.dev/record"
	recordHooks = "hooks"
	// recordKey is where a record is in its ConfigMap.
	recordKey = "freeze.json"
)

// Owner is the SnapshotSchedule that a freeze is of.
type Owner struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Record is what has to be undone of a freeze, and whose copies are to be marked.
type Record struct {
	Owner  Owner     `json:"schedule"`
	Copies []string  `json:"copies"`
	After  []Command `json:"after"`
	// name is that of its ConfigMap.
	name string
}

// newRecord is the record of a freeze. Each has a name of its own: what is left of
// an earlier try at the same copies, whose answer was lost, stands in no way.
func newRecord(owner Owner, freeze Freeze) Record {
	return Record{Owner: owner, Copies: freeze.Copies, After: freeze.After, name: "hooks-" + string(uuid.NewUUID())}
}

// configMap is a record as it is stored.
func (r *Record) configMap(namespace string) (*corev1.ConfigMap, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write down what to undo: %w", err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.name, Labels: map[string]string{labelRecord: recordHooks}},
		Data:       map[string]string{recordKey: string(raw)},
	}, nil
}

// readRecord reads a record that was stored.
func readRecord(stored *corev1.ConfigMap) (*Record, error) {
	r := &Record{name: stored.Name}
	if err := json.Unmarshal([]byte(stored.Data[recordKey]), r); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s tells what to undo and cannot be read, see to the Pods by hand and delete it: %w", stored.Namespace, stored.Name, err)
	}
	return r, nil
}

// reference is the schedule as an event names it.
func (o Owner) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SnapshotSchedule", Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
