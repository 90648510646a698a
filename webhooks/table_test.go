package webhooks_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// The table of every rule by every operation. Each row is played against a real
// API server once for each action (TestWebhooks, in play_test.go); here is what
// is sent, and what holds the table to be whole.

// operation is what is asked of the API server.
type operation string

const (
	opCreate     operation = "CREATE"
	opUpdate     operation = "UPDATE"
	opDelete     operation = "DELETE"
	opCollection operation = "DELETE as a collection"
	opScale      operation = "scale"
)

// operations are those that each rule has rows for, or a reason why not.
var operations = []operation{opCreate, opUpdate, opDelete, opScale}

// place is where a row is played: names that no other row has.
type place struct{ namespace, id string }

// row is a request that breaks one rule and no other.
type row struct {
	rule v1alpha1.Rule
	op   operation
	what string // what is sent
	// holds are the guardrails of the policy, less its action.
	holds v1alpha1.Guardrails
	// snapshots are the schedules of the policy, less what required does.
	snapshots *v1alpha1.PolicySnapshots
	// there is what exists besides, before the policy comes.
	there func(place) []client.Object
	// object is what is created, changed, scaled or deleted. It exists before
	// the policy, unless it is created.
	object func(place) client.Object
	// change changes it, at an update.
	change func(place, client.Object)
	// says is what the answer tells besides the policy and the rule: the field first.
	says []string
	// hides is what the answer must not tell.
	hides []string
	// most is the strongest action that the row can have; empty: Deny.
	most v1alpha1.Action
	// as is the user who asks; empty: an administrator.
	as string
}

// Labels of what rows send. Exemptions pick by these.
var (
	letOff = map[string]string{"let": "off"}
	inRow  = "row" // on namespaces, with the place's id
)

const ebs = "ebs.csi.aws.com"

// Objects of the rows.

func (p place) name(what string) string { return p.id + "-" + what }

// class is an EBS class that breaks no rule of the table.
func (p place) class(change func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := classOf(p.name("class"), ebs, map[string]string{"type": "gp3", "encrypted": "true"})
	c.Labels, c.VolumeBindingMode, c.AllowVolumeExpansion = letOff, ptr(storagev1.VolumeBindingWaitForFirstConsumer), ptr(true)
	c.ReclaimPolicy = ptr(corev1.PersistentVolumeReclaimRetain)
	if change != nil {
		change(c)
	}
	return c
}

func (p place) claim(size string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := claimOf(p.namespace, "claim", size, nil)
	c.Labels = letOff
	if change != nil {
		change(c)
	}
	return c
}

// held is a claim with a volume of 1 GiB, of the place's class.
func (p place) held(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName, c.Spec.StorageClassName = "pv-"+p.id, ptr(p.name("class"))
	c.Status.Phase = corev1.ClaimBound
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

func (p place) set(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := setOf(p.namespace, "pg", func(s *appsv1.StatefulSet) {
		s.Labels, s.Spec.VolumeClaimTemplates[0].Labels = letOff, letOff
		s.Spec.Replicas = ptr[int32](2)
	})
	if change != nil {
		change(s)
	}
	return s
}

// claimOfSet is the claim of the set's ordinal.
func (p place) claimOfSet(ordinal string) *corev1.PersistentVolumeClaim {
	return claimOf(p.namespace, "data-pg-"+ordinal, "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Labels = letOff; bound(c) })
}

func (p place) snapshotClass(deletion snapshotv1.DeletionPolicy) *snapshotv1.VolumeSnapshotClass {
	c := &snapshotv1.VolumeSnapshotClass{Driver: p.name("driver"), DeletionPolicy: deletion}
	c.Name = p.name(strings.ToLower(string(deletion)))
	return c
}

func (p place) snapshot(class *string) *snapshotv1.VolumeSnapshot {
	s := &snapshotv1.VolumeSnapshot{}
	s.Namespace, s.Name, s.Labels = p.namespace, "copy", letOff
	s.Spec.VolumeSnapshotClassName, s.Spec.Source.PersistentVolumeClaimName = class, ptr("claim")
	return s
}

func (p place) readySnapshot() *snapshotv1.VolumeSnapshot {
	s := p.snapshot(nil)
	s.Status = &snapshotv1.VolumeSnapshotStatus{
		ReadyToUse: ptr(true), CreationTime: ptr(metav1.NewTime(time.Now().Add(time.Minute))), BoundVolumeSnapshotContentName: ptr("content-" + p.id),
	}
	return s
}

// group is a VolumeGroupSnapshot, and member a ready snapshot that was cut with it.
func (p place) group() *groupv1.VolumeGroupSnapshot {
	g := &groupv1.VolumeGroupSnapshot{}
	g.Namespace, g.Name, g.Labels = p.namespace, "group", letOff
	g.Spec.Source.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"row": p.id}}
	return g
}

func (p place) member() *snapshotv1.VolumeSnapshot {
	s := p.readySnapshot()
	s.Status.VolumeGroupSnapshotName = ptr("group")
	return s
}

func (p place) theNamespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: map[string]string{inRow: p.id, "let": "off"}}}
}

// classRule is one rule on classes, with a class that breaks it alone.
type classRule struct {
	rule  v1alpha1.Rule
	what  string
	holds v1alpha1.StorageClassRules
	bad   func(*storagev1.StorageClass)
	field string
	found string
}

var classRules = []classRule{
	{v1alpha1.RuleClassInTree, "an in-tree class", v1alpha1.StorageClassRules{InTreeProvisioners: v1alpha1.Forbidden},
		func(c *storagev1.StorageClass) { c.Provisioner = "kubernetes.io/aws-ebs" }, "provisioner", "kubernetes.io/aws-ebs"},
	{v1alpha1.RuleClassParameters, "an unencrypted class", v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}}},
		func(c *storagev1.StorageClass) { delete(c.Parameters, "encrypted") }, "parameters.encrypted", "not set"},
	{v1alpha1.RuleClassBindingMode, "a class that binds at once", v1alpha1.StorageClassRules{VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer},
		func(c *storagev1.StorageClass) { c.VolumeBindingMode = nil }, "volumeBindingMode", "Immediate"},
	{v1alpha1.RuleClassExpansion, "a class whose volumes cannot grow", v1alpha1.StorageClassRules{AllowVolumeExpansion: v1alpha1.Required},
		func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = nil }, "allowVolumeExpansion", "false"},
	{v1alpha1.RuleClassReclaimPolicy, "a class that deletes its volumes", v1alpha1.StorageClassRules{ReclaimPolicy: corev1.PersistentVolumeReclaimRetain},
		func(c *storagev1.StorageClass) { c.ReclaimPolicy = nil }, "reclaimPolicy", "Delete"},
	{v1alpha1.RuleClassMaxIOPS, "a class with many IOPS", v1alpha1.StorageClassRules{MaxIOPS: 16000},
		func(c *storagev1.StorageClass) { c.Parameters["iops"] = "16001" }, "parameters.iops", "16001"},
}

// rowsOfClasses are the class itself, and the claim and the template that name it.
func rowsOfClasses() []row {
	var rows []row
	for _, r := range classRules {
		holds := v1alpha1.Guardrails{StorageClass: &r.holds}
		class := func(p place) client.Object { return p.class(r.bad) }
		rows = append(rows, row{rule: r.rule, op: opCreate, what: r.what, holds: holds, object: class, says: []string{r.field, r.found}})
		rows = append(rows, namings(row{
			rule: r.rule, what: r.what, holds: holds, says: []string{"spec.storageClassName", `-class"`, r.field, r.found},
			there: func(p place) []client.Object { return []client.Object{class(p)} },
		}, func(p place) string { return p.name("class") })...)
	}
	rows = append(rows, row{
		rule: v1alpha1.RuleClassExpansion, op: opUpdate, what: "a class that no longer lets volumes grow", holds: v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{AllowVolumeExpansion: v1alpha1.Required}},
		object: func(p place) client.Object { return p.class(nil) },
		change: func(_ place, o client.Object) { o.(*storagev1.StorageClass).AllowVolumeExpansion = ptr(false) },
		says:   []string{"allowVolumeExpansion", "false"},
	})
	iopsPerGB := row{
		rule: v1alpha1.RuleClassMaxIOPS, what: "a class whose IOPS grow with the claim", holds: v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{MaxIOPS: 100}},
		there: func(p place) []client.Object {
			return []client.Object{p.class(func(c *storagev1.StorageClass) { c.Parameters["iopsPerGB"] = "101" })}
		},
		says: []string{"spec.storageClassName", "101 for each of 1 GiB", "at most 100 IOPS"},
	}
	rows = append(rows, namings(iopsPerGB, func(p place) string { return p.name("class") })...)
	return append(rows, namings(row{
		rule: v1alpha1.RuleClassAllowed, what: "a class that is not allowed", holds: v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{Allowed: []string{"gp3-encrypted"}}},
		says: []string{"spec.storageClassName", "other", "gp3-encrypted"},
	}, func(place) string { return "other" })...)
}

// namings are a claim and a template that name a class, and a claim that is given it later.
func namings(r row, class func(place) string) []row {
	names := func(p place) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr(class(p)) }
	}
	create, later, template, pods := r, r, r, r
	create.op, create.what = opCreate, "a claim of "+r.what
	create.object = func(p place) client.Object { return p.claim("1Gi", names(p)) }
	later.op, later.what = opUpdate, "a claim that is given "+r.what
	later.object = func(p place) client.Object {
		return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
	}
	later.change = func(p place, o client.Object) { names(p)(o.(*corev1.PersistentVolumeClaim)) }
	pods.op, pods.what = opCreate, "the claim of a Pod's ephemeral volume, of "+r.what
	pods.object = func(p place) client.Object {
		return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { names(p)(c); ofPod(c) })
	}
	template.op, template.what, template.most = opCreate, "a template of "+r.what, v1alpha1.Warn
	template.object = func(p place) client.Object {
		return p.set(func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = ptr(class(p))
		})
	}
	template.says = append([]string{"spec.volumeClaimTemplates[0]."}, r.says...)
	sets := create
	sets.what, sets.as = "the StatefulSet controller, which makes "+create.what, "system:serviceaccount:kube-system:statefulset-controller"
	return []row{create, later, pods, sets, template}
}

// ofPod makes a claim that of a generic ephemeral volume.
func ofPod(c *corev1.PersistentVolumeClaim) {
	c.Name = "db-0-scratch"
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "db-0", UID: "8b1f", Controller: ptr(true)}}
}

const sizeField = "spec.resources.requests.storage"

// rowsOfClaims are the rules on claims by themselves.
func rowsOfClaims() []row {
	quantity := func(s string) *resource.Quantity { return ptr(resource.MustParse(s)) }
	class := func(p place) []client.Object { return []client.Object{p.class(nil)} }
	asking := func(size string) func(place, client.Object) {
		return func(_ place, o client.Object) {
			o.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
		}
	}
	rows := []row{
		{op: opUpdate, rule: v1alpha1.RuleClaimMinSize, what: "a claim made smaller", holds: v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MinSize: quantity("4Gi")}},
			there: class, object: func(p place) client.Object { return p.claim("5Gi", p.held) }, change: asking("3Gi"), says: []string{sizeField, "3Gi", "at least 4Gi"}},
		{op: opUpdate, rule: v1alpha1.RuleClaimMaxSize, what: "a claim grown too large", holds: v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: quantity("4Gi")}},
			there: class, object: func(p place) client.Object { return p.claim("1Gi", p.held) }, change: asking("5Gi"), says: []string{sizeField, "5Gi", "at most 4Gi"}},
		{op: opUpdate, rule: v1alpha1.RuleClaimMaxGrowth, what: "a claim grown too fast", holds: v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxGrowthPercent: 50}},
			there: class, object: func(p place) client.Object { return p.claim("2Gi", p.held) }, change: asking("4Gi"), says: []string{sizeField, "4Gi after 2Gi", "50"}},
		{op: opUpdate, rule: v1alpha1.RuleAttributesClass, what: "a claim given another attributes class", holds: v1alpha1.Guardrails{AttributesClass: &v1alpha1.AttributesClassRules{Allowed: []string{"silver"}}},
			there: class, object: func(p place) client.Object { return p.claim("1Gi", p.held) },
			change: func(_ place, o client.Object) {
				o.(*corev1.PersistentVolumeClaim).Spec.VolumeAttributesClassName = ptr("gold")
			},
			says: []string{"spec.volumeAttributesClassName", "gold", "silver"}},
	}
	for _, r := range []struct {
		rule  v1alpha1.Rule
		what  string
		holds v1alpha1.Guardrails
		bad   func(*corev1.PersistentVolumeClaim)
		says  []string
	}{
		{v1alpha1.RuleClaimMinSize, "too small", v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MinSize: quantity("2Gi")}},
			func(*corev1.PersistentVolumeClaim) {}, []string{sizeField, "1Gi", "at least 2Gi"}},
		{v1alpha1.RuleClaimMaxSize, "too large", v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: quantity("1023Mi")}},
			func(*corev1.PersistentVolumeClaim) {}, []string{sizeField, "1Gi", "at most 1023Mi"}},
		{v1alpha1.RuleClaimAccessModes, "for many nodes", v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}}},
			func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			}, []string{"spec.accessModes[0]", "ReadWriteMany"}},
		{v1alpha1.RuleClaimVolumeModes, "of a bare device", v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{VolumeModes: []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem}}},
			func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) }, []string{"spec.volumeMode", "Block"}},
		{v1alpha1.RuleAttributesClass, "of another attributes class", v1alpha1.Guardrails{AttributesClass: &v1alpha1.AttributesClassRules{Allowed: []string{"silver"}}},
			func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr("gold") }, []string{"spec.volumeAttributesClassName", "gold", "silver"}},
	} {
		rows = append(rows,
			row{rule: r.rule, op: opCreate, what: "a claim " + r.what, holds: r.holds, says: r.says, object: func(p place) client.Object { return p.claim("1Gi", r.bad) }},
			row{rule: r.rule, op: opCreate, what: "a template of claims " + r.what, holds: r.holds, says: append([]string{"spec.volumeClaimTemplates[0]."}, r.says...), most: v1alpha1.Warn,
				object: func(p place) client.Object {
					return p.set(func(s *appsv1.StatefulSet) { r.bad(&s.Spec.VolumeClaimTemplates[0]) })
				}})
	}
	return rows
}

// rowsOfSets are the rules on StatefulSets by themselves.
func rowsOfSets() []row {
	var rows []row
	for _, r := range []struct {
		rule  v1alpha1.Rule
		what  string
		holds v1alpha1.StatefulSetRules
		bad   func(*appsv1.StatefulSet)
		says  []string
		most  v1alpha1.Action
	}{
		{v1alpha1.RuleSetWhenDeleted, "that deletes its claims with itself", v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims},
			func(s *appsv1.StatefulSet) { retaining(s, "Delete", "Retain") }, []string{"spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Delete"}, ""},
		{v1alpha1.RuleSetWhenScaled, "that deletes its claims when it shrinks", v1alpha1.StatefulSetRules{WhenScaled: v1alpha1.RetainClaims},
			func(s *appsv1.StatefulSet) { retaining(s, "Retain", "Delete") }, []string{"spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Delete"}, ""},
		{v1alpha1.RuleSetGracePeriod, "whose Pods are killed early", v1alpha1.StatefulSetRules{MinTerminationGracePeriodSeconds: 60},
			func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr[int64](59) }, []string{"spec.template.spec.terminationGracePeriodSeconds", "59", "at least 60"}, ""},
		{v1alpha1.RuleSetDisruptionBudget, "without a budget", v1alpha1.StatefulSetRules{PodDisruptionBudget: v1alpha1.Required},
			func(*appsv1.StatefulSet) {}, []string{"PodDisruptionBudget", "not there"}, v1alpha1.Warn},
	} {
		holds := v1alpha1.Guardrails{StatefulSet: &r.holds}
		good := func(p place) client.Object {
			return p.set(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr[int64](60) })
		}
		rows = append(rows, row{rule: r.rule, op: opCreate, what: "a set " + r.what, holds: holds, object: func(p place) client.Object { return p.set(r.bad) }, says: r.says, most: r.most})
		if r.rule != v1alpha1.RuleSetDisruptionBudget {
			rows = append(rows, row{rule: r.rule, op: opUpdate, what: "a set changed to one " + r.what, holds: holds, object: good,
				change: func(_ place, o client.Object) { r.bad(o.(*appsv1.StatefulSet)) }, says: r.says, most: r.most})
		}
	}
	return rows
}

func retaining(s *appsv1.StatefulSet, whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) {
	s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: whenDeleted, WhenScaled: whenScaled}
}

// rowsOfSnapshots are the rule on the classes of snapshots.
func rowsOfSnapshots() []row {
	holds := v1alpha1.Guardrails{SnapshotClass: &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"}}
	there := func(p place) []client.Object {
		byDefault := p.snapshotClass(snapshotv1.VolumeSnapshotContentDelete)
		byDefault.Annotations = map[string]string{"snapshot.storage.kubernetes.io/is-default-class": "true"}
		return []client.Object{
			byDefault, p.snapshotClass(snapshotv1.VolumeSnapshotContentRetain),
			p.class(func(c *storagev1.StorageClass) { c.Provisioner = p.name("driver") }), p.claim("1Gi", p.held),
		}
	}
	says := []string{"spec.volumeSnapshotClassName", `-delete"`, "deletionPolicy is Delete"}
	return []row{
		{rule: v1alpha1.RuleSnapshotClass, op: opCreate, what: "a snapshot of a class that deletes", holds: holds, there: there, says: says,
			object: func(p place) client.Object { return p.snapshot(ptr(p.name("delete"))) }},
		{rule: v1alpha1.RuleSnapshotClass, op: opCreate, what: "a snapshot of a default class that deletes", holds: holds, there: there, says: says,
			object: func(p place) client.Object { return p.snapshot(nil) }},
		{rule: v1alpha1.RuleSnapshotClass, op: opUpdate, what: "a snapshot given a class that deletes", holds: holds, there: there, says: says,
			object: func(p place) client.Object { return p.snapshot(ptr(p.name("retain"))) },
			change: func(p place, o client.Object) {
				o.(*snapshotv1.VolumeSnapshot).Spec.VolumeSnapshotClassName = ptr(p.name("delete"))
			}},
	}
}

// rowsOfEnds are the rules on what is deleted, and what loses its Pod.
func rowsOfEnds() []row {
	protects := v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot}}
	class := func(p place) []client.Object { return []client.Object{p.class(nil)} }
	held := func(p place) client.Object { return p.claim("1Gi", p.held) }
	with := func(objects ...func(place) client.Object) func(place) []client.Object {
		return func(p place) []client.Object {
			all := class(p)
			for _, o := range objects {
				all = append(all, o(p))
			}
			return all
		}
	}
	first := func(p place) client.Object { return p.claimOfSet("0") }
	second := func(p place) client.Object { return p.claimOfSet("1") }
	deleting := func(p place) client.Object {
		return p.set(func(s *appsv1.StatefulSet) { retaining(s, "Delete", "Delete") })
	}
	plain := func(p place) client.Object { return p.set(nil) }
	smaller := func(_ place, o client.Object) { o.(*appsv1.StatefulSet).Spec.Replicas = ptr[int32](1) }
	missing := []string{"the newest ready snapshot of claim", "not there", v1alpha1.AnnotationOverrideDeletion}
	scaled := v1alpha1.Guardrails{ScaleDown: &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 3600}}
	return []row{
		{rule: v1alpha1.RuleDeletion, op: opDelete, what: "a claim", holds: protects, there: class, object: held, says: append(missing, "/claim")},
		{rule: v1alpha1.RuleDeletion, op: opCollection, what: "all claims of a namespace", holds: protects, there: class, object: held, says: append(missing, "/claim")},
		{rule: v1alpha1.RuleDeletion, op: opDelete, what: "a namespace with a claim", holds: protects, there: with(held), object: func(p place) client.Object { return p.theNamespace() }, says: append(missing, "/claim")},
		{rule: v1alpha1.RuleDeletion, op: opDelete, what: "a set that deletes its claims", holds: protects, there: with(first, second), object: deleting, says: append(missing, "/data-pg-0", "/data-pg-1")},
		{rule: v1alpha1.RuleDeletion, op: opDelete, what: "the newest snapshot of a claim", holds: protects, there: with(held), object: func(p place) client.Object { return p.readySnapshot() }, says: []string{"the deletion of snapshot", "/copy", "the newest ready one"}},
		{rule: v1alpha1.RuleDeletion, op: opDelete, what: "the group of the newest snapshot of a claim", holds: protects, there: with(held, func(p place) client.Object { return p.member() }),
			object: func(p place) client.Object { return p.group() }, says: []string{"the deletion of snapshot", "/copy with VolumeGroupSnapshot group", "the newest ready one"}},
		{rule: v1alpha1.RuleDeletion, op: opDelete, what: "a claim that only an override lets go", holds: v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowOverrideOnly}},
			object: func(p place) client.Object { return p.claim("1Gi", nil) }, says: []string{"the deletion of claim", "/claim", "not overridden"}},
		{rule: v1alpha1.RuleDeletion, op: opDelete, what: "a claim that its set lets go, which a Pod controls", holds: v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowOverrideOnly}},
			as: "system:serviceaccount:kube-system:generic-garbage-collector", says: []string{"the deletion of claim", "/data-db-0", "not overridden"},
			object: func(p place) client.Object {
				return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { ofPod(c); c.Name = "data-db-0" })
			}},
		{rule: v1alpha1.RuleDeletion, op: opUpdate, what: "fewer replicas of a set that then deletes claims", holds: protects, there: with(first, second), object: deleting, change: smaller, says: append(missing, "/data-pg-1")},
		{rule: v1alpha1.RuleDeletion, op: opScale, what: "a set that then deletes claims", holds: protects, there: with(first, second), object: deleting, change: smaller, says: append(missing, "/data-pg-1")},
		{rule: v1alpha1.RuleScaleDown, op: opUpdate, what: "fewer replicas", holds: scaled, there: with(first, second), object: plain, change: smaller, says: []string{"the newest ready snapshot of claim", "/data-pg-1", "not there"}},
		{rule: v1alpha1.RuleScaleDown, op: opUpdate, what: "ordinals that begin later", holds: scaled, there: with(first, second), object: plain, says: []string{"the newest ready snapshot of claim", "/data-pg-0", "not there"},
			change: func(_ place, o client.Object) {
				o.(*appsv1.StatefulSet).Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
			}},
		{rule: v1alpha1.RuleScaleDown, op: opScale, what: "fewer replicas", holds: scaled, there: with(first, second), object: plain, change: smaller, says: []string{"the newest ready snapshot of claim", "/data-pg-1", "not there"}},
	}
}

// rowsOfSchedules are the rule that a schedule covers each claim.
func rowsOfSchedules() []row {
	required := &v1alpha1.PolicySnapshots{Required: v1alpha1.Deny}
	says := []string{"a SnapshotSchedule for claim", "not there", "whose target matches the claim"}
	none := func(place) []client.Object { return nil }
	notItsOwn := func(p place) []client.Object {
		return []client.Object{
			p.schedule("of-others", func(s *v1alpha1.SnapshotScheduleSpec) {
				s.Target.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
			}),
			p.schedule("suspended", func(s *v1alpha1.SnapshotScheduleSpec) { s.Suspend = true }),
			p.schedule("of-a-set", func(s *v1alpha1.SnapshotScheduleSpec) { s.Target.StatefulSetName = "other" }),
		}
	}
	labelled := func(p place) []client.Object {
		return []client.Object{p.schedule("labelled", func(s *v1alpha1.SnapshotScheduleSpec) {
			s.Target.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"copied": "yes"}}
		})}
	}
	rows := []row{
		{op: opCreate, what: "a claim without a schedule", there: none, says: says, object: func(p place) client.Object { return p.claim("1Gi", nil) }},
		{op: opCreate, what: "a claim that no schedule is about", there: notItsOwn, says: says, object: func(p place) client.Object { return p.claim("1Gi", nil) }},
		{op: opCreate, what: "a claim that opted out", there: labelled, says: []string{"metadata.annotations[" + v1alpha1.AnnotationNoSnapshots + "]", "set"}, object: func(p place) client.Object {
			return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{v1alpha1.AnnotationNoSnapshots: "scratch"}
			})
		}},
		{op: opCreate, what: "a template of claims without a schedule", there: none, most: v1alpha1.Warn, says: append([]string{"of spec.volumeClaimTemplates[0]"}, says...),
			object: func(p place) client.Object { return p.set(nil) }},
		{op: opUpdate, what: "a claim whose label for its schedule is taken off", there: labelled, says: says,
			object: func(p place) client.Object {
				return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"let": "off", "copied": "yes"} })
			},
			change: func(_ place, o client.Object) { o.SetLabels(letOff) }},
		{op: opUpdate, what: "a claim that opts out", there: labelled, says: []string{v1alpha1.AnnotationNoSnapshots},
			object: func(p place) client.Object {
				return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"let": "off", "copied": "yes"} })
			},
			change: func(_ place, o client.Object) {
				o.SetAnnotations(map[string]string{v1alpha1.AnnotationNoSnapshots: "no room"})
			}},
	}
	for i := range rows {
		rows[i].rule, rows[i].snapshots = v1alpha1.RuleSnapshotsRequired, required
	}
	return rows
}

// freeOfSchedules are claims that a schedule covers, or will.
func freeOfSchedules() []row {
	daily := v1alpha1.SnapshotScheduleSpec{Schedule: "0 3 * * *"}
	ofSet := daily
	ofSet.Target.StatefulSetName = "pg"
	claim := func(p place) client.Object { return p.claim("1Gi", nil) }
	ofTheSet := func(p place) client.Object {
		return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Name = "data-pg-0" })
	}
	alone := &v1alpha1.PolicySnapshots{}
	gives := func(spec v1alpha1.SnapshotScheduleSpec) *v1alpha1.PolicySnapshots {
		return &v1alpha1.PolicySnapshots{Schedules: []v1alpha1.PolicySchedule{{Name: "daily", Spec: spec}}}
	}
	rows := []row{
		{op: opCreate, what: "a claim with a schedule", snapshots: alone, object: claim, there: func(p place) []client.Object {
			return []client.Object{p.schedule("all", nil)}
		}},
		{op: opCreate, what: "a claim that the policy gives a schedule, which is not there yet", snapshots: gives(daily), object: claim},
		{op: opCreate, what: "a claim of a set, before it is stamped", snapshots: gives(ofSet), object: ofTheSet, as: "system:serviceaccount:kube-system:statefulset-controller"},
		{op: opCreate, what: "a set that a schedule names", snapshots: gives(ofSet), object: func(p place) client.Object { return p.set(nil) }},
		{op: opDelete, what: "a claim without a schedule", snapshots: alone, object: claim},
	}
	for i := range rows {
		rows[i].rule = v1alpha1.RuleSnapshotsRequired
	}
	return rows
}

// schedule is a SnapshotSchedule of every claim of the place.
func (p place) schedule(name string, change func(*v1alpha1.SnapshotScheduleSpec)) *v1alpha1.SnapshotSchedule {
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}}
	s.Spec.Schedule = "0 3 * * *"
	if change != nil {
		change(&s.Spec)
	}
	return s
}

// leaving is the UPDATE of a row that creates: the object is exempt by its
// label, and the label is taken off.
func leaving(r row) row {
	r.op, r.what = opUpdate, r.what+leavesExemption
	r.change = func(_ place, o client.Object) { o.SetLabels(nil) }
	return r
}

// leavesExemption ends what is sent in the rows whose policy exempts the object.
const leavesExemption = ", whose exemption's label is taken off"

// table is every row.
func table() []row {
	rows := slices.Concat(rowsOfClasses(), rowsOfClaims(), rowsOfSets(), rowsOfSnapshots(), rowsOfEnds(), rowsOfSchedules())
	for _, r := range slices.Clone(rows) {
		if r.op == opCreate && canLeave(r) {
			rows = append(rows, leaving(r))
		}
	}
	return append(rows, rowsOfRatchet()...)
}

// canLeave says whether taking a label off shows the breach: a snapshot's labels
// are not looked at once it is made, the labels of a template cannot be changed,
// and a claim may always stay as small as it is.
func canLeave(r row) bool {
	_, snapshot := r.object(place{}).(*snapshotv1.VolumeSnapshot)
	return !snapshot && !strings.Contains(r.what, "template") && r.rule != v1alpha1.RuleClaimMinSize
}

// rowsOfRatchet break a rule anew where another, or the same, was broken
// before: the old breach is not told.
func rowsOfRatchet() []row {
	both := v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{
		AllowVolumeExpansion: v1alpha1.Required, Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}},
	}}
	retain := v1alpha1.Guardrails{StatefulSet: &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, WhenScaled: v1alpha1.RetainClaims}}
	return []row{
		{rule: v1alpha1.RuleClassExpansion, op: opUpdate, what: "an unencrypted class that no longer lets volumes grow", holds: both,
			object: func(p place) client.Object {
				return p.class(func(c *storagev1.StorageClass) { delete(c.Parameters, "encrypted") })
			},
			change: func(_ place, o client.Object) { o.(*storagev1.StorageClass).AllowVolumeExpansion = nil },
			says:   []string{"allowVolumeExpansion"}, hides: []string{string(v1alpha1.RuleClassParameters)}},
		{rule: v1alpha1.RuleSetWhenScaled, op: opUpdate, what: "a set that deletes its claims with itself, and now when it shrinks too", holds: retain,
			object: func(p place) client.Object {
				return p.set(func(s *appsv1.StatefulSet) { retaining(s, "Delete", "Retain") })
			},
			change: func(_ place, o client.Object) { retaining(o.(*appsv1.StatefulSet), "Delete", "Delete") },
			says:   []string{"whenScaled"}, hides: []string{string(v1alpha1.RuleSetWhenDeleted)}},
		{rule: v1alpha1.RuleSetGracePeriod, op: opUpdate, what: "a set whose Pods are killed early, and now earlier", holds: v1alpha1.Guardrails{StatefulSet: &v1alpha1.StatefulSetRules{MinTerminationGracePeriodSeconds: 60}},
			object: func(p place) client.Object { return p.set(nil) },
			change: func(_ place, o client.Object) {
				o.(*appsv1.StatefulSet).Spec.Template.Spec.TerminationGracePeriodSeconds = ptr[int64](5)
			},
			says: []string{"is 5,"}},
		{rule: v1alpha1.RuleClaimMaxSize, op: opUpdate, what: "a claim that was too large, grown", holds: v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("4Gi"))}},
			there:  func(p place) []client.Object { return []client.Object{p.class(nil)} },
			object: func(p place) client.Object { return p.claim("5Gi", p.held) },
			change: func(_ place, o client.Object) {
				o.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("6Gi")
			},
			says: []string{"is 6Gi,"}},
	}
}

// strict are all rules on what something may be, which the free rows keep.
func strict() v1alpha1.Guardrails {
	return v1alpha1.Guardrails{
		StorageClass: &v1alpha1.StorageClassRules{
			Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}, {Key: "type", Values: []string{"gp3", "io2"}}}, MaxIOPS: 3000,
		},
		Claim: &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("512Mi"))},
	}
}

// free are requests that a policy must not touch.
func free() []row {
	var rows []row
	ebsOnly := v1alpha1.Guardrails{StorageClass: strict().StorageClass}
	// The class of the reference architecture's shared file system, and those of
	// Rook and Longhorn as their documentation gives them, with names of
	// parameters that EBS has too.
	for _, other := range []struct {
		name, provisioner string
		parameters        map[string]string
	}{
		{"efs-shared", "efs.csi.aws.com", map[string]string{"provisioningMode": "efs-ap", "fileSystemId": "fs-0123456789abcdef0", "directoryPerms": "700", "basePath": "/dynamic_provisioning"}},
		{"rook-ceph-block", "rook-ceph.rbd.csi.ceph.com", map[string]string{"clusterID": "rook-ceph", "pool": "replicapool", "imageFormat": "2", "encrypted": "false", "csi.storage.k8s.io/fstype": "ext4"}},
		{"longhorn", "driver.longhorn.io", map[string]string{"numberOfReplicas": "3", "staleReplicaTimeout": "2880", "encrypted": "false", "type": "ssd", "iops": "90000"}},
	} {
		class := func(p place) *storagev1.StorageClass {
			c := classOf(p.name("class"), other.provisioner, other.parameters)
			c.Labels = map[string]string{"like": other.name}
			return c
		}
		named := func(c *corev1.PersistentVolumeClaim, p place) { c.Spec.StorageClassName = ptr(p.name("class")) }
		there := func(p place) []client.Object { return []client.Object{class(p)} }
		rows = append(rows,
			row{rule: v1alpha1.RuleClassParameters, op: opCreate, what: "the class " + other.name, holds: ebsOnly, object: func(p place) client.Object { return class(p) }},
			row{rule: v1alpha1.RuleClassParameters, op: opCreate, what: "a claim of " + other.name, holds: ebsOnly, there: there, object: func(p place) client.Object {
				return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { named(c, p) })
			}},
			row{rule: v1alpha1.RuleClassParameters, op: opCreate, what: "a template of " + other.name, holds: ebsOnly, there: there, object: func(p place) client.Object {
				return p.set(func(s *appsv1.StatefulSet) { named(&s.Spec.VolumeClaimTemplates[0], p) })
			}})
	}
	bad := func(p place) client.Object { return p.class(func(c *storagev1.StorageClass) { c.Parameters = nil }) }
	badThere := func(p place) []client.Object { return []client.Object{bad(p)} }
	unnamed := func(p place) client.Object {
		return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
	}
	given := func(p place, o client.Object) {
		o.(*corev1.PersistentVolumeClaim).Spec.StorageClassName = ptr(p.name("class"))
	}
	sets := v1alpha1.Guardrails{StatefulSet: &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, MinTerminationGracePeriodSeconds: 60, PodDisruptionBudget: v1alpha1.Required}, ScaleDown: &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 60}}
	deleting := func(p place) client.Object {
		return p.set(func(s *appsv1.StatefulSet) { retaining(s, "Delete", "Retain") })
	}
	first := func(p place) []client.Object { return []client.Object{p.claimOfSet("0")} }
	snapshots := v1alpha1.Guardrails{SnapshotClass: &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"}}
	rows = append(rows, freeOfSchedules()...)
	return append(rows,
		row{rule: v1alpha1.RuleClassInTree, op: opCreate, what: "a class of volumes made by hand", holds: v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{InTreeProvisioners: v1alpha1.Forbidden}},
			object: func(p place) client.Object { return classOf(p.name("class"), "kubernetes.io/no-provisioner", nil) }},
		row{rule: v1alpha1.RuleClassAllowed, op: opCreate, what: "a class that claims may not name", holds: v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{Allowed: []string{"gp3-encrypted"}}}, object: bad},
		row{rule: v1alpha1.RuleClassParameters, op: opCreate, what: "a static claim", holds: ebsOnly, object: func(p place) client.Object { return p.claim("1Gi", nil) }},
		row{rule: v1alpha1.RuleClassParameters, op: opDelete, what: "a class that breaks rules", holds: ebsOnly, object: bad},
		row{rule: v1alpha1.RuleClaimMaxSize, op: opDelete, what: "a claim that breaks rules", holds: strict(), there: badThere, object: func(p place) client.Object {
			return p.claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr(p.name("class")) })
		}},
		row{rule: v1alpha1.RuleSetWhenDeleted, op: opDelete, what: "a set that breaks rules and deletes its claims", holds: sets, there: first, object: deleting},
		row{rule: v1alpha1.RuleSetWhenDeleted, op: opScale, what: "a set that breaks rules, to more replicas", holds: sets, there: first, object: deleting,
			change: func(_ place, o client.Object) { o.(*appsv1.StatefulSet).Spec.Replicas = ptr[int32](3) }},
		row{rule: v1alpha1.RuleSetWhenDeleted, op: opCreate, what: "a set without claims of its own", holds: sets, object: func(p place) client.Object {
			return p.set(func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates = nil })
		}},
		row{rule: v1alpha1.RuleSnapshotClass, op: opDelete, what: "a snapshot of a class that deletes", holds: snapshots,
			there: func(p place) []client.Object {
				return []client.Object{p.snapshotClass(snapshotv1.VolumeSnapshotContentDelete), p.claim("1Gi", nil)}
			},
			object: func(p place) client.Object { return p.snapshot(ptr(p.name("delete"))) }},
		row{rule: v1alpha1.RuleDeletion, op: opDelete, what: "the claim of a Pod's ephemeral volume", holds: v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowOverrideOnly}},
			object: func(p place) client.Object { return p.claim("1Gi", ofPod) }},
		row{rule: v1alpha1.RuleClassParameters, op: opUpdate, what: "the volume controller, which gives a claim its class", holds: ebsOnly, there: badThere, object: unnamed, change: given,
			as: "system:serviceaccount:kube-system:persistent-volume-binder"},
	)
}

// not says why a rule has no row for an operation.
var not = map[operation]map[string][]v1alpha1.Rule{
	opCreate: {
		"a new claim has not grown":                                 {v1alpha1.RuleClaimMaxGrowth},
		"nothing is lost by what is made":                           {v1alpha1.RuleDeletion},
		"a set that is made takes no Pod from a claim that has one": {v1alpha1.RuleScaleDown},
	},
	opDelete: {
		"what is deleted breaks no rule on what it may be": {
			v1alpha1.RuleClassAllowed, v1alpha1.RuleClassInTree, v1alpha1.RuleClassParameters, v1alpha1.RuleClassBindingMode, v1alpha1.RuleClassExpansion,
			v1alpha1.RuleClassReclaimPolicy, v1alpha1.RuleClassMaxIOPS, v1alpha1.RuleAttributesClass, v1alpha1.RuleSnapshotClass,
			v1alpha1.RuleClaimMinSize, v1alpha1.RuleClaimMaxSize, v1alpha1.RuleClaimMaxGrowth, v1alpha1.RuleClaimAccessModes, v1alpha1.RuleClaimVolumeModes,
			v1alpha1.RuleSetWhenDeleted, v1alpha1.RuleSetWhenScaled, v1alpha1.RuleSetGracePeriod, v1alpha1.RuleSetDisruptionBudget, v1alpha1.RuleSnapshotsRequired,
		},
		"the claims of a deleted set stay, or go by the rule deletion": {v1alpha1.RuleScaleDown},
	},
	opScale: {
		"a Scale carries a number of replicas and nothing else": {
			v1alpha1.RuleClassAllowed, v1alpha1.RuleClassInTree, v1alpha1.RuleClassParameters, v1alpha1.RuleClassBindingMode, v1alpha1.RuleClassExpansion,
			v1alpha1.RuleClassReclaimPolicy, v1alpha1.RuleClassMaxIOPS, v1alpha1.RuleAttributesClass, v1alpha1.RuleSnapshotClass,
			v1alpha1.RuleClaimMinSize, v1alpha1.RuleClaimMaxSize, v1alpha1.RuleClaimMaxGrowth, v1alpha1.RuleClaimAccessModes, v1alpha1.RuleClaimVolumeModes,
			v1alpha1.RuleSetWhenDeleted, v1alpha1.RuleSetWhenScaled, v1alpha1.RuleSetGracePeriod, v1alpha1.RuleSetDisruptionBudget, v1alpha1.RuleSnapshotsRequired,
		},
	},
}

// TestTableIsWhole: each rule that the API knows has a row for each operation,
// or a reason why it has none.
func TestTableIsWhole(t *testing.T) {
	has := map[v1alpha1.Rule]map[operation]bool{}
	for _, r := range table() {
		if has[r.rule] == nil {
			has[r.rule] = map[operation]bool{}
		}
		has[r.rule][r.op] = true
	}
	reasons := func(rule v1alpha1.Rule, op operation) (all []string) {
		for why, rules := range not[op] {
			if slices.Contains(rules, rule) {
				all = append(all, why)
			}
		}
		return all
	}
	rules := rulesOfTheAPI(t)
	for _, rule := range rules {
		for _, op := range operations {
			switch why := reasons(rule, op); {
			case has[rule][op] && len(why) > 0:
				t.Errorf("rule %s has rows for %s, and a reason why not: %q", rule, op, why)
			case !has[rule][op] && len(why) != 1:
				t.Errorf("rule %s has no row for %s, and %d reasons why not: add a row to the table, or the reason to not", rule, op, len(why))
			}
		}
	}
	for rule := range has {
		if !slices.Contains(rules, rule) {
			t.Errorf("the table has rows for %s, which the API does not know", rule)
		}
	}
}

// rulesOfTheAPI reads the rules from the definition that is installed.
func rulesOfTheAPI(t *testing.T) []v1alpha1.Rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "config", "crd", "holdfast.dev_storagepolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	enum := spec.Properties["guardrails"].Properties["overrides"].Items.Schema.Properties["rule"].Enum
	var rules []v1alpha1.Rule
	for _, e := range enum {
		rules = append(rules, v1alpha1.Rule(strings.Trim(string(e.Raw), `"`)))
	}
	if len(rules) < 20 {
		t.Fatalf("the definition has %d rules: %v", len(rules), rules)
	}
	return rules
}
