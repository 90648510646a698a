package expansion

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Spent says why the budget of a policy that has an expansion does not let a claim
// of a provisioner be modified now, and when it does again; empty: it does. The
// budget's reserve is not for those who ask.
func Spent(now time.Time, p *policy.Policy, provisioner string, c *corev1.PersistentVolumeClaim) string {
	record, err := parseRecord(c.Annotations)
	if err != nil {
		return err.Error()
	}
	if note := (Decision{Record: record}).spent(now, rulesOf(p.Name, p.Expansion, provisioner), false); note != nil {
		return note.Message
	}
	return ""
}
