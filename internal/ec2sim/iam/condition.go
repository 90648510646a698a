package iam

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// condition is one key under one operator.
type condition struct {
	match    func(want, have string) bool
	negated  bool // the operator says "not": it holds if no value matches
	null     bool // the operator asks whether the key is there
	ifExists bool
	forAll   bool // ForAllValues
	forAny   bool // ForAnyValue
	key      string
	values   []string
}

// operator is a condition operator without prefix and suffix.
type operator struct {
	match   func(want, have string) bool
	negated bool
	check   func(value string) error
}

func anyValue(string) error { return nil }

func numberValue(v string) error {
	_, err := strconv.ParseFloat(v, 64)
	return err
}

func boolValue(v string) error {
	if v != "true" && v != "false" {
		return fmt.Errorf("want true or false")
	}
	return nil
}

func arnValue(v string) error {
	if v != "*" && len(strings.SplitN(v, ":", arnParts)) != arnParts {
		return fmt.Errorf("want an ARN")
	}
	return nil
}

func equal(want, have string) bool { return want == have }

func number(cmp func(have, want float64) bool) func(want, have string) bool {
	return func(want, have string) bool {
		w, werr := strconv.ParseFloat(want, 64)
		h, herr := strconv.ParseFloat(have, 64)
		return werr == nil && herr == nil && cmp(h, w)
	}
}

// operators are the condition operators that are evaluated, besides Null.
var operators = map[string]operator{
	"StringEquals":              {equal, false, anyValue},
	"StringNotEquals":           {equal, true, anyValue},
	"StringEqualsIgnoreCase":    {strings.EqualFold, false, anyValue},
	"StringNotEqualsIgnoreCase": {strings.EqualFold, true, anyValue},
	"StringLike":                {like, false, anyValue},
	"StringNotLike":             {like, true, anyValue},
	"NumericEquals":             {number(func(h, w float64) bool { return h == w }), false, numberValue},
	"NumericNotEquals":          {number(func(h, w float64) bool { return h == w }), true, numberValue},
	"NumericLessThan":           {number(func(h, w float64) bool { return h < w }), false, numberValue},
	"NumericLessThanEquals":     {number(func(h, w float64) bool { return h <= w }), false, numberValue},
	"NumericGreaterThan":        {number(func(h, w float64) bool { return h > w }), false, numberValue},
	"NumericGreaterThanEquals":  {number(func(h, w float64) bool { return h >= w }), false, numberValue},
	"Bool":                      {strings.EqualFold, false, boolValue},
	"ArnEquals":                 {arnLike, false, arnValue},
	"ArnLike":                   {arnLike, false, arnValue},
	"ArnNotEquals":              {arnLike, true, arnValue},
	"ArnNotLike":                {arnLike, true, arnValue},
}

func parseCondition(op, key string, values []string, knownKey func(string) bool) (condition, error) {
	c := condition{key: strings.ToLower(key), values: values}
	name := op
	if rest, ok := strings.CutPrefix(name, "ForAllValues:"); ok {
		c.forAll, name = true, rest
	} else if rest, ok := strings.CutPrefix(name, "ForAnyValue:"); ok {
		c.forAny, name = true, rest
	}
	if !knownKey(key) {
		return c, fmt.Errorf("condition key %q is not evaluated", key)
	}
	if len(values) == 0 {
		return c, fmt.Errorf("condition %s on %s has no value", op, key)
	}
	check := boolValue
	if name == "Null" {
		c.null = true
	} else {
		name, c.ifExists = strings.CutSuffix(name, "IfExists")
		o, ok := operators[name]
		if !ok {
			return c, fmt.Errorf("condition operator %q is not evaluated", op)
		}
		c.match, c.negated, check = o.match, o.negated, o.check
	}
	for _, v := range values {
		if strings.Contains(v, "${") {
			return c, fmt.Errorf("condition value %q: policy variables are not evaluated", v)
		}
		if err := check(v); err != nil {
			return c, fmt.Errorf("condition %s on %s: value %q: %w", op, key, v, err)
		}
	}
	return c, nil
}

// holds evaluates the condition. A key that is not in the context makes a
// positive operator false and a negated one true; ForAllValues holds for a
// key without values, ForAnyValue does not.
func (c condition) holds(ctx map[string][]string) bool {
	have, present := ctx[c.key]
	present = present && len(have) > 0
	switch {
	case c.null:
		return slices.Contains(c.values, strconv.FormatBool(!present))
	case !present && (c.ifExists || c.forAll):
		return true
	case !present:
		return c.negated && !c.forAny
	case c.forAll:
		return !slices.ContainsFunc(have, func(h string) bool { return !c.one(h) })
	default:
		return slices.ContainsFunc(have, c.one)
	}
}

// one evaluates the condition for one value of the context.
func (c condition) one(have string) bool {
	matched := slices.ContainsFunc(c.values, func(want string) bool { return c.match(want, have) })
	return matched != c.negated
}
