package template

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Stage is how far a set is made anew.
type Stage string

// Stages, as the table in doc.go has them.
const (
	Saved    Stage = "Saved"
	Deleting Stage = "Deleting"
	Created  Stage = "Created"
	// Superseded: somebody else made a set of the name. The record is for people.
	Superseded Stage = "Superseded"
)

const (
	// labelRecord marks the Secrets that are records.
	labelRecord  = "holdfast.dev/record"
	recordOfSets = "statefulset"
	// annotationSet on a record says for people whose it is: namespace/name.
	annotationSet = "holdfast.dev/statefulset"
	// annotationStage on a record says for people how far it is.
	annotationStage = "holdfast.dev/stage"
	// recordKey and objectKey are where a record and the set are in their Secret.
	recordKey = "record.json"
	objectKey = "statefulset.json.gz"
	// secretType keeps records apart from what others keep in Secrets.
	secretType corev1.SecretType = "holdfast.dev/saved-statefulset"
)

// Record is what is saved of a set that is made anew, and how far that is.
type Record struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Stage     Stage     `json:"stage"`
	// NewUID is the UID of the set that was made, from stage Created on.
	NewUID types.UID `json:"newUID,omitempty"`
	// WhenDeleted is what its user wants to become of its claims.
	WhenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType `json:"whenDeleted"`
	// Sizes are those that templates are to have.
	Sizes map[string]resource.Quantity `json:"sizes"`
	// Pods are the UIDs of its Pods by name, to tell which of them restarted.
	Pods map[string]types.UID `json:"pods"`
	// Object is the whole set as it was.
	Object *appsv1.StatefulSet `json:"-"`

	stored *corev1.Secret // as it was read; nil: it was not
}

// recordOf is the record of a set that is to have new sizes. before is the record
// that there is of it; nil: there is none.
func recordOf(set *appsv1.StatefulSet, sizes map[string]resource.Quantity, pods []corev1.Pod, before *Record) *Record {
	r := &Record{
		Namespace: set.Namespace, Name: set.Name, UID: set.UID, Stage: Saved,
		WhenDeleted: whenDeleted(set), Sizes: sizes, Pods: map[string]types.UID{}, Object: set.DeepCopy(),
	}
	for _, p := range membersOf(set, pods) {
		r.Pods[p.Name] = p.UID
	}
	if before == nil {
		return r
	}
	r.stored = before.stored
	if r.WhenDeleted == appsv1.RetainPersistentVolumeClaimRetentionPolicyType { // as we have set it, if it was not
		r.WhenDeleted = before.WhenDeleted
	}
	return r
}

// is says whether the record holds a set as it is, but for what we change of it.
func (r *Record) is(set *appsv1.StatefulSet) bool {
	if whenDeleted(set) != appsv1.RetainPersistentVolumeClaimRetentionPolicyType && whenDeleted(set) != r.WhenDeleted {
		return false
	}
	return equality.Semantic.DeepEqual(retaining(clean(r.Object)), retaining(clean(set)))
}

// sizes are those that the set is created with; none where they were refused.
func (r *Record) sizes(refused bool) map[string]resource.Quantity {
	if refused {
		return nil
	}
	return r.Sizes
}

// anew is the set as it is to be created.
func (r *Record) anew(sizes map[string]resource.Quantity) *appsv1.StatefulSet {
	set := retaining(sized(clean(r.Object), sizes))
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationRecreatedFrom, string(r.UID))
	return set
}

// clean is a set without what the API server fills in.
func clean(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	set = set.DeepCopy()
	set.Status = appsv1.StatefulSetStatus{}
	m := &set.ObjectMeta
	m.UID, m.ResourceVersion, m.Generation, m.GenerateName = "", "", 0, ""
	m.CreationTimestamp, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = metav1.Time{}, nil, nil
	m.ManagedFields = nil
	return set
}

// retaining is a set that keeps its claims when it is deleted. It is changed.
func retaining(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	if whenDeleted(set) != appsv1.RetainPersistentVolumeClaimRetentionPolicyType {
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	return set
}

// sized is a set whose templates ask for sizes. It is changed.
func sized(set *appsv1.StatefulSet, sizes map[string]resource.Quantity) *appsv1.StatefulSet {
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		size, is := sizes[t.Name]
		if !is {
			continue
		}
		t.Spec.Resources.Requests[corev1.ResourceStorage] = size
		if limit, is := t.Spec.Resources.Limits[corev1.ResourceStorage]; is && limit.Cmp(size) < 0 {
			t.Spec.Resources.Limits[corev1.ResourceStorage] = size
		}
	}
	return set
}

// nameOf is the name of the record of a set: one for each name of a set.
func nameOf(set types.NamespacedName) string {
	sum := sha256.Sum256([]byte(set.String()))
	return "statefulset-" + hex.EncodeToString(sum[:12])
}

// key is the full name of the set.
func (r *Record) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// secret is a record as it is stored.
func (r *Record) secret(namespace string) (*corev1.Secret, error) {
	told, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the record of StatefulSet %s: %w", r.key(), err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err = json.NewEncoder(w).Encode(r.Object); err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("pack StatefulSet %s: %w", r.key(), err)
	}
	s := &corev1.Secret{Type: secretType, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nameOf(r.key())}}
	if r.stored != nil {
		s.ObjectMeta = *r.stored.ObjectMeta.DeepCopy()
	}
	s.Labels = map[string]string{labelRecord: recordOfSets}
	s.Annotations = map[string]string{annotationSet: r.key().String(), annotationStage: string(r.Stage)}
	s.Data = map[string][]byte{recordKey: told, objectKey: packed.Bytes()}
	return s, nil
}

// maxSaved bounds what is unpacked: an object of etcd's largest size, and as much
// again for its JSON.
const maxSaved = 4 << 20

// readRecord reads a record that was stored.
func readRecord(stored *corev1.Secret) (*Record, error) {
	fail := func(err error) (*Record, error) {
		return nil, fmt.Errorf("Secret %s/%s is the saved copy of StatefulSet %s and cannot be read, see whether the set is there, and delete the Secret: %w", //nolint:staticcheck // a kind's name
			stored.Namespace, stored.Name, stored.Annotations[annotationSet], err)
	}
	r := &Record{Object: &appsv1.StatefulSet{}, stored: stored}
	if err := json.Unmarshal(stored.Data[recordKey], r); err != nil {
		return fail(fmt.Errorf("%s: %w", recordKey, err))
	}
	packed, err := gzip.NewReader(bytes.NewReader(stored.Data[objectKey]))
	if err != nil {
		return fail(fmt.Errorf("%s: %w", objectKey, err))
	}
	if err := json.NewDecoder(io.LimitReader(packed, maxSaved)).Decode(r.Object); err != nil {
		return fail(fmt.Errorf("%s: %w", objectKey, err))
	}
	if r.Object.Namespace != r.Namespace || r.Object.Name != r.Name || r.Object.UID != r.UID || nameOf(r.key()) != stored.Name {
		return fail(fmt.Errorf("%s tells of %s with UID %s, and %s holds %s/%s with UID %s", recordKey, r.key(), r.UID, objectKey, r.Object.Namespace, r.Object.Name, r.Object.UID))
	}
	return r, nil
}
