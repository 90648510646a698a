package ec2sim

import (
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// form reads the parameters of a call. The first parameter that does not
// parse is kept and told by err, so that handlers read first and ask once.
type form struct {
	values url.Values
	failed *APIError
}

// pattern replaces the indexes in a parameter's name by N: Filter.3.Value.1
// is Filter.N.Value.N.
func pattern(key string) string {
	parts := strings.Split(key, ".")
	for i, p := range parts {
		if _, err := strconv.Atoi(p); err == nil && i > 0 {
			parts[i] = "N"
		}
	}
	return strings.Join(parts, ".")
}

func (f *form) has(name string) bool { return f.values.Has(name) }

func (f *form) str(name string) string { return f.values.Get(name) }

func (f *form) fail(err *APIError) {
	if f.failed == nil {
		f.failed = err
	}
}

// err is the first refusal met while reading, nil if there is none.
func (f *form) err() *APIError { return f.failed }

// must reads a parameter without which the action is refused.
func (f *form) must(name string) string {
	v := f.values.Get(name)
	if v == "" {
		f.fail(refuse("MissingParameter", "The request must contain the parameter %s", lowerFirst(name)))
	}
	return v
}

func (f *form) boolean(name string) bool {
	v := f.values.Get(name)
	switch strings.ToLower(v) {
	case "", "false":
		return false
	case "true":
		return true
	}
	f.fail(refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected: 'true' or 'false'.", v, lowerFirst(name)))
	return false
}

// number is the value of an integer parameter, and whether it was sent.
func (f *form) number(name string) (int32, bool) {
	if !f.has(name) {
		return 0, false
	}
	n, err := strconv.ParseInt(f.values.Get(name), 10, 64)
	if err != nil || n > math.MaxInt32 || n < math.MinInt32 {
		f.fail(refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected an integer.", f.values.Get(name), lowerFirst(name)))
		return 0, true
	}
	return int32(n), true
}

// list is the values of prefix.1, prefix.2, … in order of their index.
func (f *form) list(prefix string) []string {
	var out []string
	for _, i := range f.indexes(prefix) {
		if key := prefix + "." + strconv.Itoa(i); f.has(key) {
			out = append(out, f.values.Get(key))
		}
	}
	return out
}

// indexes are the numbers n for which prefix.n or prefix.n.… was sent.
func (f *form) indexes(prefix string) []int {
	var out []int
	for key := range f.values {
		rest, ok := strings.CutPrefix(key, prefix+".")
		if !ok {
			continue
		}
		n, _, _ := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(n); err == nil && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
