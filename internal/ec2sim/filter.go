package ec2sim

import (
	"slices"
	"strings"
)

// maxFilterValues is how many values a call's filters may have together.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
const maxFilterValues = 200

// filter is one filter of a call: any of the values has to match. Filters are
// joined by AND, values compare with case, * stands for any characters, ? for
// one, a backslash takes the meaning away.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
type filter struct {
	name   string
	values []string
}

// filters reads the Filter parameters and refuses what is not modelled.
func (r *request) filters() ([]filter, *APIError) {
	var out []filter
	total := 0
	for _, i := range r.indexes("Filter") {
		prefix := indexed("Filter", i)
		f := filter{name: r.must(prefix + ".Name"), values: r.list(prefix + ".Value")}
		if err := r.err(); err != nil {
			return nil, err
		}
		if !r.action.knowsFilter(f.name) {
			return nil, r.sim.notModelledLocked("filter", r.action.name, f.name)
		}
		if len(f.values) == 0 {
			return nil, refuse("InvalidParameterValue", "The filter '%s' has no values", f.name)
		}
		if total += len(f.values); total > maxFilterValues {
			return nil, refuse("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", maxFilterValues)
		}
		out = append(out, f)
	}
	return out, nil
}

// matchAll tells whether a thing passes the filters; fact gives the values it
// has under a filter's name.
func matchAll(filters []filter, fact func(name string) []string) bool {
	for _, f := range filters {
		if !f.matches(fact(f.name)) {
			return false
		}
	}
	return true
}

func (f filter) matches(have []string) bool {
	return slices.ContainsFunc(have, func(h string) bool {
		return slices.ContainsFunc(f.values, func(want string) bool { return wildcard(want, h) })
	})
}

// tagFact answers the filters tag:<key> and tag-key.
func tagFact(tags map[string]string, name string) []string {
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		if v, ok := tags[key]; ok {
			return []string{v}
		}
		return nil
	}
	var keys []string
	if name == "tag-key" {
		for k := range tags {
			keys = append(keys, k)
		}
	}
	return keys
}

// wildcard matches a filter value against a text.
func wildcard(pat, text string) bool {
	for pat != "" {
		switch {
		case pat[0] == '*':
			for i := 0; i <= len(text); i++ {
				if wildcard(pat[1:], text[i:]) {
					return true
				}
			}
			return false
		case text == "":
			return false
		case pat[0] == '?':
			pat, text = pat[1:], text[1:]
		default:
			if pat[0] == '\\' && len(pat) > 1 {
				pat = pat[1:]
			}
			if pat[0] != text[0] {
				return false
			}
			pat, text = pat[1:], text[1:]
		}
	}
	return text == ""
}

// prefixPattern matches a name against a pattern that ends in ":*".
func prefixPattern(pat, name string) bool {
	prefix, ok := strings.CutSuffix(pat, "*")
	return ok && strings.HasPrefix(name, prefix) && len(name) > len(prefix)
}
