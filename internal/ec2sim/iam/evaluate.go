package iam

import (
	"slices"
	"strings"
)

// Request is one question: may this action be done on this resource?
type Request struct {
	// Action is service:Action, such as ec2:CreateVolume.
	Action string
	// Resource is an ARN, "*" for actions that are on no resource.
	Resource string
	// Context holds the values of condition keys. Keys compare without case.
	Context map[string][]string
}

// Decision is the answer.
type Decision struct {
	Allowed bool
	// Statement is the name of the statement that decided; empty if none did.
	Statement string
}

// Evaluate answers a request: a statement that denies wins over any that
// allows, and what none allows is refused.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
func (p *Policy) Evaluate(r Request) Decision {
	ctx := map[string][]string{}
	for k, v := range r.Context {
		ctx[strings.ToLower(k)] = v
	}
	var d Decision
	for _, st := range p.statements {
		if !st.applies(r, ctx) {
			continue
		}
		if st.deny {
			return Decision{Allowed: false, Statement: st.name}
		}
		if !d.Allowed {
			d = Decision{Allowed: true, Statement: st.name}
		}
	}
	return d
}

func (st *statement) applies(r Request, ctx map[string][]string) bool {
	action := strings.ToLower(r.Action)
	named := slices.ContainsFunc(st.actions, func(pat string) bool { return like(pat, action) })
	on := slices.ContainsFunc(st.resources, func(pat string) bool { return arnLike(pat, r.Resource) })
	if named == st.notActions || on == st.notOn {
		return false
	}
	for _, c := range st.conditions {
		if !c.holds(ctx) {
			return false
		}
	}
	return true
}

// arnParts is how many parts an ARN has; only the last may hold colons.
const arnParts = 6

// arnLike compares part by part: a wildcard does not reach over a colon, but
// in the last part.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_resource.html
func arnLike(pat, arn string) bool {
	if pat == "*" {
		return true
	}
	p, a := strings.SplitN(pat, ":", arnParts), strings.SplitN(arn, ":", arnParts)
	if len(p) != arnParts || len(a) != arnParts {
		return false
	}
	for i := range p {
		if !like(p[i], a[i]) {
			return false
		}
	}
	return true
}

// like matches * (any characters) and ? (one).
func like(pat, text string) bool {
	for pat != "" {
		switch {
		case pat[0] == '*':
			for i := 0; i <= len(text); i++ {
				if like(pat[1:], text[i:]) {
					return true
				}
			}
			return false
		case text == "" || pat[0] != '?' && pat[0] != text[0]:
			return false
		}
		pat, text = pat[1:], text[1:]
	}
	return text == ""
}
