package policy

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Breach is what a rule function answers where its rule does not hold.
type Breach struct {
	Rule v1alpha1.Rule
	// Field is the path of the field, as in "spec.resources.requests.storage".
	Field string
	// Found and Wanted are values as the user would write them.
	Found, Wanted string
	// Todo says what to do, as a sentence without a full stop.
	Todo string
}

// Finding is a breach of a policy's rule, with what follows from it.
type Finding struct {
	Breach
	Policy string
	UID    types.UID // of the policy
	Action v1alpha1.Action
	// Reason is why somebody overrides the policy, where Action is Overridden.
	Reason string
}

// Overridden is the action of a finding that somebody who may has overridden:
// the request goes through in silence, and is recorded. A policy cannot ask for it.
const Overridden v1alpha1.Action = "Overridden"

// Override lets findings through where the override annotation of the object,
// with a reason, says so. Without a reason nothing is overridden.
func Override(findings []Finding, reason string) []Finding {
	if reason = strings.TrimSpace(reason); reason != "" {
		for i := range findings {
			findings[i].Action, findings[i].Reason = Overridden, reason
		}
	}
	return findings
}

// Message names the policy, the rule, the field, the found and the wanted value,
// and what to do; or why the policy is overridden.
func (f Finding) Message() string {
	if f.Action == Overridden {
		return fmt.Sprintf("StoragePolicy %q, rule %s, is overridden for %s: %s", f.Policy, f.Rule, f.Field, f.Reason)
	}
	return fmt.Sprintf("StoragePolicy %q, rule %s: %s", f.Policy, f.Rule, f.Sentence())
}

// Sentence names the field, the found and the wanted value, and what to do.
func (b Breach) Sentence() string {
	return fmt.Sprintf("%s is %s, wanted is %s: %s", b.Field, b.Found, b.Wanted, b.Todo)
}

// Short is a text of at most so many bytes, cut between two letters: one that is
// cut within is written with a stand-in, which differs and may be longer.
func Short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// Findings gives breaches of one object their action, less those that the
// policy lets the object off.
func (p *Policy) Findings(breaches []Breach, object map[string]string, n Namespace, now time.Time) []Finding {
	var found []Finding
	for _, b := range breaches {
		if p.Exempts(b.Rule, object, n, now) {
			continue
		}
		found = append(found, Finding{Breach: b, Policy: p.Name, UID: p.UID, Action: p.ActionOf(b.Rule)})
	}
	return found
}

// Ratchet keeps of the findings of a changed object those that it did not have
// before: what is broken already stays editable, and is not made worse.
func Ratchet(old, changed []Finding) []Finding {
	type breach struct{ policy, rule, field, found string }
	had := map[breach]bool{}
	for _, f := range old {
		had[breach{f.Policy, string(f.Rule), f.Field, f.Found}] = true
	}
	var fresh []Finding
	for _, f := range changed {
		if !had[breach{f.Policy, string(f.Rule), f.Field, f.Found}] {
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// Denied counts the findings that refuse the request.
func Denied(findings []Finding) int {
	n := 0
	for _, f := range findings {
		if f.Action == v1alpha1.Deny {
			n++
		}
	}
	return n
}

// Verdict is the findings of one request by what follows from them.
type Verdict struct {
	Denied, Warned, Audited, Overridden []Finding
}

// Judge sorts findings by their action.
func Judge(findings []Finding) Verdict {
	var v Verdict
	for _, f := range findings {
		switch f.Action {
		case v1alpha1.Warn:
			v.Warned = append(v.Warned, f)
		case v1alpha1.Audit:
			v.Audited = append(v.Audited, f)
		case Overridden:
			v.Overridden = append(v.Overridden, f)
		default:
			v.Denied = append(v.Denied, f)
		}
	}
	return v
}
