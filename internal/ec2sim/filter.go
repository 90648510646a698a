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
	name     string
	exact    map[string]bool // the values without wildcards, unescaped
	patterns []string        // the others
}

// newFilter sorts the values: most have no wildcard, there may be many, and
// each is compared with everything there is.
func newFilter(name string, values []string) filter {
	f := filter{name: name, exact: map[string]bool{}}
	for _, v := range values {
		if text, ok := literal(v); ok {
			f.exact[text] = true
		} else {
			f.patterns = append(f.patterns, v)
		}
	}
	return f
}

// literal is the one text that a filter value without wildcards matches.
func literal(pat string) (string, bool) {
	if !strings.ContainsAny(pat, `*?\`) {
		return pat, true
	}
	var text strings.Builder
	for i := 0; i < len(pat); i++ {
		switch {
		case pat[i] == '*' || pat[i] == '?':
			return "", false
		case pat[i] == '\\' && i+1 < len(pat):
			i++
		}
		text.WriteByte(pat[i])
	}
	return text.String(), true
}

// filters reads the Filter parameters and refuses what is not modelled.
func (r *request) filters() ([]filter, *APIError) {
	var out []filter
	total := 0
	for _, i := range r.indexes("Filter") {
		prefix := indexed("Filter", i)
		name, values := r.must(prefix+".Name"), r.list(prefix+".Value")
		if err := r.err(); err != nil {
			return nil, err
		}
		if !r.action.knowsFilter(name) {
			return nil, r.sim.notModelledLocked("filter", r.action.name, name)
		}
		if len(values) == 0 {
			return nil, refuse("InvalidParameterValue", "The filter '%s' has no values", name)
		}
		if total += len(values); total > maxFilterValues {
			return nil, refuse("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", maxFilterValues)
		}
		out = append(out, newFilter(name, values))
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
		return f.exact[h] || slices.ContainsFunc(f.patterns, func(want string) bool { return wildcard(want, h) })
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
