package expansion

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Spent says why the budget does not let a claim of a provisioner be modified now,
// and when it does again; empty: it does. p is the policy by which the claim grows:
// its reserve is not for those who ask. nil: there is none, and what the provisioner's
// volumes take counts, all of it.
func Spent(now time.Time, p *policy.Policy, provisioner string, c *corev1.PersistentVolumeClaim) string {
	record, err := recordOf(now, c)
	if err != nil {
		return err.Error()
	}
	rules := Rules{}
	switch {
	case p != nil:
		rules = rulesOf(p.Name, p.Expansion, provisioner)
	case ebsDrivers[provisioner]:
		rules.Budget, rules.Window = int(ebsBudget.Modifications), time.Duration(ebsBudget.WindowSeconds)*time.Second
	}
	if note := (Decision{Record: record}).spent(now, rules, false); note != nil {
		return note.Message
	}
	return ""
}

// Recorded is the annotation holdfast.dev/modifications of a claim that is asked for
// a size by somebody else than its policy. Written in one patch with the size, no
// crash keeps the modification from being counted.
func Recorded(now time.Time, c *corev1.PersistentVolumeClaim, toBytes int64) (string, error) {
	record, err := recordOf(now, c)
	if err != nil {
		return "", err
	}
	m := Modification{At: stamped(now), FromBytes: c.Status.Capacity.Storage().Value(), ToBytes: toBytes}
	return record.with(m, toBytes, deref(c.Spec.VolumeAttributesClassName)).String(), nil
}

// recordOf is the record on a claim, with what was changed since it was written; nil:
// nothing is known to have been.
func recordOf(now time.Time, object *corev1.PersistentVolumeClaim) (*Record, error) {
	c := claimOf(object)
	if c.BadRecord != nil {
		return nil, c.BadRecord
	}
	now = stamped(now)
	return seen(now, c, &History{}).until(now), nil
}

// JustModified says whether a claim was asked for another size so short a while ago
// that what its status says may still be about the one before.
func JustModified(now time.Time, c *corev1.PersistentVolumeClaim) bool {
	record, err := parseRecord(c.Annotations)
	m := record.newestSize()
	return err == nil && m != nil && now.Sub(m.At) < answerWithin
}
