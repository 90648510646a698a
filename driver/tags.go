package driver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Tags that the driver sets. IAM policies, dashboards and AWS's own driver know
// them, so they are what they are.
const (
	tagVolumeName    = ebs.TagVolumeName
	tagSnapshotName  = ebs.TagSnapshotName
	tagManaged       = ebs.TagManaged
	tagClusterName   = "ebs.csi.aws.com/cluster-name"
	tagClusterPrefix = "kubernetes.io/cluster/"
	tagOldCluster    = "KubernetesCluster"
	tagName          = "Name"
	tagCreatedFor    = "kubernetes.io/created-for/"
)

// EC2's limits on tags, see
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
)

// Tagging says which tags all volumes and snapshots get.
type Tagging struct {
	// ClusterID marks everything as owned by a cluster; empty: no such tags.
	ClusterID string
	// Extra tags, overridden by those of a class.
	Extra map[string]string
}

// ParseExtraTags reads "key=value,key=value". A comma cannot be part of a value.
func ParseExtraTags(list string) (map[string]string, error) {
	tags := map[string]string{}
	if list == "" {
		return tags, nil
	}
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("extra tag %q: want key=value", pair)
		}
		if _, twice := tags[key]; twice {
			return nil, fmt.Errorf("extra tag %q is given twice", key)
		}
		if err := checkUserTag(key, value); err != nil {
			return nil, fmt.Errorf("extra tag %q: %w", pair, err)
		}
		tags[key] = value
	}
	return tags, nil
}

// volumeTags are all tags of a new volume. Those of a VolumeAttributesClass go
// before those of the StorageClass.
func (t Tagging) volumeTags(name string, p volumeParameters, m mutableParameters) (map[string]string, error) {
	tags := t.ownTags(tagVolumeName, name)
	for field, suffix := range map[string]string{"PVCName": "pvc/name", "PVCNamespace": "pvc/namespace", "PVName": "pv/name"} {
		if v := p.claim[field]; v != "" {
			tags[tagCreatedFor+suffix] = v
		}
	}
	maps.Copy(tags, rateTags(p.iopsPerGB, p.iopsFollowSize))
	tags, err := t.withUserTags(tags, p.tags, p.claim)
	if err != nil {
		return nil, err
	}
	set, remove, err := m.tagChanges(p.claim)
	if err != nil {
		return nil, err
	}
	maps.Copy(tags, set)
	for _, key := range remove {
		delete(tags, key)
	}
	return tags, judgeTags(tags, len(p.tags)+len(set), nil)
}

// snapshotTags are all tags of a new snapshot.
func (t Tagging) snapshotTags(name string, p snapshotParameters) (map[string]string, error) {
	return t.withUserTags(t.ownTags(tagSnapshotName, name), p.tags, p.snapshot)
}

// groupTags are all tags of each snapshot of a new group.
func (t Tagging) groupTags(name string, volumes []ebs.VolumeID, p snapshotParameters) (map[string]string, error) {
	tags := t.ownTags(ebs.TagGroupName, name)
	tags[ebs.TagGroupVolumes] = ebs.GroupVolumes(volumes)
	return t.withUserTags(tags, p.tags, p.snapshot)
}

func (t Tagging) ownTags(nameKey, name string) map[string]string {
	tags := map[string]string{nameKey: name, tagManaged: ebs.TagManagedValue}
	if t.ClusterID != "" {
		tags[tagClusterPrefix+t.ClusterID] = "owned"
		tags[tagName] = t.ClusterID + "-dynamic-" + name
		tags[tagOldCluster] = t.ClusterID
		tags[tagClusterName] = t.ClusterID
	}
	return tags
}

// withUserTags adds the extra tags and those of the class, and judges the whole.
func (t Tagging) withUserTags(tags, specs, fields map[string]string) (map[string]string, error) {
	for k, v := range t.Extra {
		tags[k] = v
	}
	fromClass, wrong := evaluateTags(specs, fields)
	maps.Copy(tags, fromClass)
	return tags, judgeTags(tags, len(fromClass), wrong)
}

// judgeTags says all that is wrong with the tags of a new resource.
func judgeTags(tags map[string]string, fromClass int, wrong []string) error {
	for k, v := range tags {
		if n := utf8.RuneCountInString(v); n > maxTagValue {
			wrong = append(wrong, fmt.Sprintf("tag %q: its value has %d characters, at most %d are allowed", k, n, maxTagValue))
		}
	}
	if len(tags) > maxTags {
		wrong = append(wrong, fmt.Sprintf("%d tags, of them %d by the driver and its flags: EC2 allows %d", len(tags), len(tags)-fromClass, maxTags))
	}
	if len(wrong) > 0 {
		sort.Strings(wrong)
		return fmt.Errorf("%w: %s", ebs.ErrInvalid, strings.Join(wrong, "; "))
	}
	return nil
}

// evaluateTags reads the tagSpecification parameters of a class, and says what
// is wrong with each.
func evaluateTags(specs, fields map[string]string) (tags map[string]string, wrong []string) {
	tags = map[string]string{}
	from := map[string]string{} // parameter by key
	for _, parameter := range slices.Sorted(maps.Keys(specs)) {
		key, value, err := evaluateTag(specs[parameter], fields)
		if twin, twice := from[key]; err == nil && twice {
			err = fmt.Errorf("key %q is given by %s too", key, twin)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("parameter %q: value %q: %v", parameter, specs[parameter], err))
			continue
		}
		from[key] = parameter
		tags[key] = value
	}
	return tags, wrong
}

// evaluateTag reads "key=value" and fills in the value's template.
func evaluateTag(spec string, fields map[string]string) (key, value string, err error) {
	key, value, ok := strings.Cut(spec, "=")
	if !ok {
		return "", "", errors.New("want key=value")
	}
	value, err = fillTemplate(value, fields)
	if err != nil {
		return "", "", err
	}
	return key, value, checkUserTag(key, value)
}

// checkUserTag says whether a tag may be set by a user.
func checkUserTag(key, value string) error {
	lower := strings.ToLower(key)
	switch {
	case key == "":
		return errors.New("the key is empty")
	case utf8.RuneCountInString(key) > maxTagKey:
		return fmt.Errorf("the key has %d characters, at most %d are allowed", utf8.RuneCountInString(key), maxTagKey)
	case utf8.RuneCountInString(value) > maxTagValue:
		return fmt.Errorf("the value has %d characters, at most %d are allowed", utf8.RuneCountInString(value), maxTagValue)
	case strings.HasPrefix(lower, "aws:"):
		return errors.New("keys that begin with aws: are reserved by AWS")
	case key == tagVolumeName, key == tagSnapshotName,
		strings.HasPrefix(lower, "kubernetes.io/"), strings.HasPrefix(lower, "ebs.csi.aws.com/"):
		return fmt.Errorf("the key is reserved: the driver sets %s, %s and what begins with kubernetes.io/ or ebs.csi.aws.com/ itself", tagVolumeName, tagSnapshotName)
	}
	return nil
}

// maxTemplateOutput bounds what a template may write, well above what a tag may hold.
const maxTemplateOutput = 4096

// fillTemplate runs the Go template of a tag's value.
func fillTemplate(text string, fields map[string]string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := template.New("tag").Option("missingkey=error").Funcs(templateFunctions).Parse(text)
	if err != nil {
		return "", fmt.Errorf("template: %w", err)
	}
	for _, part := range t.Templates() {
		if loops(part.Root) {
			return "", errors.New("template: range is not available")
		}
	}
	var out boundedBuilder
	if err := t.Execute(&out, fields); err != nil {
		return "", fmt.Errorf("template: %w", err)
	}
	return out.String(), nil
}

// loops says whether a template has a range: over a number it would go on for
// ages, and nothing can end it.
func loops(n parse.Node) bool {
	switch n := n.(type) {
	case *parse.ListNode:
		return n != nil && slices.ContainsFunc(n.Nodes, loops)
	case *parse.IfNode:
		return loops(n.List) || loops(n.ElseList)
	case *parse.WithNode:
		return loops(n.List) || loops(n.ElseList)
	case *parse.RangeNode:
		return true
	}
	return false
}

// boundedBuilder refuses to grow beyond maxTemplateOutput.
type boundedBuilder struct{ strings.Builder }

func (b *boundedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxTemplateOutput {
		return 0, fmt.Errorf("the value is longer than %d bytes", maxTemplateOutput)
	}
	return b.Builder.Write(p)
}

// templateFunctions are those of AWS's driver, with its order of arguments, so
// that values can be piped: {{ .PVCNamespace | field "-" 1 | toUpper }}. See
// https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/tagging.md
// Functions for other languages and for calls make no sense in a tag.
var templateFunctions = template.FuncMap{
	"field":     templateField,
	"substring": templateSubstring,
	"toUpper":   strings.ToUpper,
	"toLower":   strings.ToLower,
	"contains":  func(part, s string) bool { return strings.Contains(s, part) },
	"index":     func(part, s string) int { return strings.Index(s, part) },
	"lastIndex": func(part, s string) int { return strings.LastIndex(s, part) },
	"html":      refuseFunction("html"),
	"js":        refuseFunction("js"),
	"call":      refuseFunction("call"),
	"urlquery":  refuseFunction("urlquery"),
}

func refuseFunction(name string) func(...any) (string, error) {
	return func(...any) (string, error) { return "", fmt.Errorf("function %s is not available", name) }
}

func templateField(separator string, n int, s string) (string, error) {
	parts := strings.Split(s, separator)
	if n < 0 || n >= len(parts) {
		return "", fmt.Errorf("field %d of %q: it has %d fields, counted from 0", n, s, len(parts))
	}
	return parts[n], nil
}

// templateSubstring is s from start to before end. A negative start means the
// beginning, an end that is negative or beyond s means its end.
func templateSubstring(start, end int, s string) (string, error) {
	if start < 0 {
		start = 0
	}
	if end < 0 || end > len(s) {
		end = len(s)
	}
	if start > end {
		return "", fmt.Errorf("substring from %d to %d of %q: there is none", start, end, s)
	}
	return s[start:end], nil
}
