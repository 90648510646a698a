package iam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// languageVersion is the version of the policy language that is evaluated.
const languageVersion = "2012-10-17"

// Policy is a parsed policy document.
type Policy struct {
	statements []statement
}

type statement struct {
	name       string // Sid, or "statement N"
	deny       bool
	actions    []string // lower case
	notActions bool     // actions says what it is not about
	resources  []string
	notOn      bool // resources says on what not
	conditions []condition
}

// document and its parts are a policy as JSON has it.
type document struct {
	Version   string
	ID        string `json:"Id"`
	Statement many[statementDoc]
}

type statementDoc struct {
	Sid         string
	Effect      string
	Action      many[string]
	NotAction   many[string]
	Resource    many[string]
	NotResource many[string]
	Condition   map[string]map[string]values
}

// many is one thing or a list of them.
type many[T any] []T

func (m *many[T]) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return strict(data, (*[]T)(m))
	}
	var one T
	if err := strict(data, &one); err != nil {
		return err
	}
	*m = many[T]{one}
	return nil
}

// values are condition values, where true and 5 are as good as "true" and "5".
type values []string

func (v *values) UnmarshalJSON(data []byte) error {
	var raw many[json.RawMessage]
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	for _, r := range raw {
		var s string
		if json.Unmarshal(r, &s) != nil {
			s = string(bytes.TrimSpace(r))
			if strings.ContainsAny(s, "{[") || s == "null" {
				return fmt.Errorf("condition value %s: want a string, a number or a bool", s)
			}
		}
		*v = append(*v, s)
	}
	return nil
}

func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// Parse reads a policy. knownKey tells which condition keys the caller can
// give values for; a policy with another key is refused.
func Parse(data []byte, knownKey func(key string) bool) (*Policy, error) {
	var doc document
	if err := strict(data, &doc); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if doc.Version != languageVersion {
		return nil, fmt.Errorf("policy: version %q: want %q", doc.Version, languageVersion)
	}
	if len(doc.Statement) == 0 {
		return nil, errors.New("policy: no statement")
	}
	p := &Policy{}
	for i, d := range doc.Statement {
		st, err := parseStatement(d, knownKey)
		if st.name == "" {
			st.name = fmt.Sprintf("statement %d", i+1)
		}
		if err != nil {
			return nil, fmt.Errorf("policy: %s: %w", st.name, err)
		}
		p.statements = append(p.statements, st)
	}
	return p, nil
}

func parseStatement(d statementDoc, knownKey func(string) bool) (statement, error) {
	st := statement{name: d.Sid, deny: d.Effect == "Deny"}
	if d.Effect != "Allow" && d.Effect != "Deny" {
		return st, fmt.Errorf("effect %q: want Allow or Deny", d.Effect)
	}
	var err error
	if st.actions, st.notActions, err = eitherOr("Action", d.Action, d.NotAction); err != nil {
		return st, err
	}
	for i, a := range st.actions {
		if service, name, ok := strings.Cut(a, ":"); a != "*" && (!ok || service == "" || name == "") {
			return st, fmt.Errorf("action %q: want service:action", a)
		}
		st.actions[i] = strings.ToLower(a)
	}
	if st.resources, st.notOn, err = eitherOr("Resource", d.Resource, d.NotResource); err != nil {
		return st, err
	}
	for _, r := range st.resources {
		if r != "*" && len(strings.SplitN(r, ":", arnParts)) != arnParts {
			return st, fmt.Errorf("resource %q: want * or an ARN", r)
		}
	}
	for _, op := range slices.Sorted(maps.Keys(d.Condition)) {
		for _, key := range slices.Sorted(maps.Keys(d.Condition[op])) {
			c, err := parseCondition(op, key, d.Condition[op][key], knownKey)
			if err != nil {
				return st, err
			}
			st.conditions = append(st.conditions, c)
		}
	}
	return st, nil
}

// eitherOr is a list that is given one of two ways.
func eitherOr(name string, yes, no []string) ([]string, bool, error) {
	if (len(yes) > 0) == (len(no) > 0) {
		return nil, false, fmt.Errorf("give one of %s and Not%s", name, name)
	}
	list := slices.Concat(yes, no)
	for _, v := range list {
		if strings.Contains(v, "${") {
			return nil, false, fmt.Errorf("%s %q: policy variables are not evaluated", name, v)
		}
	}
	return list, len(no) > 0, nil
}

// Statements are the names of the policy's statements: their Sid, or
// "statement N".
func (p *Policy) Statements() []string {
	var out []string
	for _, st := range p.statements {
		out = append(out, st.name)
	}
	return out
}
