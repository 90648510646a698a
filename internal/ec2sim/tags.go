package ec2sim

import (
	"maps"
	"strings"
	"unicode/utf8"
)

// Limits of tags.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
)

// newTags reads TagSpecification for a resource that is being made.
func (r *request) newTags(resourceType string) (map[string]string, *APIError) {
	tags := map[string]string{}
	for _, i := range r.indexes("TagSpecification") {
		prefix := indexed("TagSpecification", i)
		if t := r.str(prefix + ".ResourceType"); t != resourceType {
			return nil, refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", t)
		}
		if err := r.readTags(prefix+".Tag", tags); err != nil {
			return nil, err
		}
	}
	return tags, checkTagCount(len(tags))
}

// readTags reads prefix.N.Key and .Value into tags.
func (r *request) readTags(prefix string, tags map[string]string) *APIError {
	for _, i := range r.indexes(prefix) {
		p := indexed(prefix, i)
		key, value := r.str(p+".Key"), r.str(p+".Value")
		if err := checkTag(key, value); err != nil {
			return err
		}
		if _, twice := tags[key]; twice {
			return refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", key)
		}
		tags[key] = value
	}
	return nil
}

func checkTag(key, value string) *APIError {
	switch {
	case key == "":
		return refuse("InvalidParameterValue", "Tag key cannot be null or empty.")
	case strings.HasPrefix(strings.ToLower(key), "aws:"):
		return refuse("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
	case utf8.RuneCountInString(key) > maxTagKey:
		return refuse("InvalidParameterValue", "Tag key exceeds the maximum length of %d characters", maxTagKey)
	case utf8.RuneCountInString(value) > maxTagValue:
		return refuse("InvalidParameterValue", "Tag value exceeds the maximum length of %d characters", maxTagValue)
	}
	return nil
}

func checkTagCount(n int) *APIError {
	if n > maxTags {
		return refuse("TagLimitExceeded", "The maximum number of tags (%d) has been exceeded: %d", maxTags, n)
	}
	return nil
}

func tagActions() []action {
	return []action{{
		name:   "CreateTags",
		handle: createTags,
		params: []string{"ResourceId.N", "Tag.N.Key", "Tag.N.Value"},
		bucket: bucketTags,
	}, {
		name:   "DeleteTags",
		handle: deleteTags,
		params: []string{"ResourceId.N", "Tag.N.Key", "Tag.N.Value"},
		bucket: bucketTags,
	}, {
		name:    "DescribeTags",
		handle:  describeTags,
		params:  params(filterParam, paging),
		filters: []string{"key", "value", "resource-id", "resource-type", "tag:*"},
		bucket:  bucketDescribe,
	}}
}

// tagged is a resource that has tags.
type tagged struct {
	id, kind string
	resource resource
	tags     map[string]string
	put      func(tags map[string]string)
}

// taggable finds a resource of any kind by its id.
func (s *Sim) taggable(id string) (tagged, *APIError) {
	switch {
	case strings.HasPrefix(id, volumeIDs.prefix):
		v, err := s.volume(id)
		if err != nil {
			return tagged{}, err
		}
		return s.taggedVolume(v), nil
	case strings.HasPrefix(id, snapshotIDs.prefix):
		sn, err := s.snapshot(id)
		if err != nil {
			return tagged{}, err
		}
		return s.taggedSnapshot(sn), nil
	case strings.HasPrefix(id, instanceIDs.prefix):
		i, err := s.instance(id)
		if err != nil {
			return tagged{}, err
		}
		return s.taggedInstance(i), nil
	}
	return tagged{}, refuse("InvalidID", "The ID '%s' is not valid", id)
}

func (s *Sim) taggedVolume(v *Volume) tagged {
	return tagged{v.ID, "volume", s.volumeResource(v), v.Tags, func(t map[string]string) { v.Tags = t; s.store.putVolume(v) }}
}

func (s *Sim) taggedSnapshot(sn *Snapshot) tagged {
	return tagged{sn.ID, "snapshot", s.snapshotResource(sn), sn.Tags, func(t map[string]string) { sn.Tags = t; s.store.putSnapshot(sn) }}
}

func (s *Sim) taggedInstance(i *Instance) tagged {
	return tagged{i.ID, "instance", s.instanceResource(i), i.Tags, func(t map[string]string) { i.Tags = t; s.store.putInstance(i) }}
}

// wantedTagged are the resources that CreateTags and DeleteTags name.
func (r *request) wantedTagged(tags map[string]string) ([]tagged, *APIError) {
	ids := r.list("ResourceId")
	if len(ids) == 0 {
		return nil, refuse("MissingParameter", "The request must contain the parameter resourceIdSet")
	}
	var out []tagged
	for _, id := range ids {
		t, err := r.sim.taggable(id)
		if err != nil {
			return nil, err
		}
		if err := r.allow(t.resource.requestTags(tags)); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateTags.html
func createTags(r *request) (stampable, *APIError) {
	tags := map[string]string{}
	if err := r.readTags("Tag", tags); err != nil {
		return nil, err
	}
	if len(tags) == 0 {
		return nil, refuse("MissingParameter", "The request must contain the parameter tagSet")
	}
	resources, err := r.wantedTagged(tags)
	if err != nil {
		return nil, err
	}
	var merged []map[string]string
	for _, t := range resources {
		m := map[string]string{}
		maps.Copy(m, t.tags)
		maps.Copy(m, tags)
		if err := checkTagCount(len(m)); err != nil {
			return nil, err
		}
		merged = append(merged, m)
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	for i, t := range resources {
		t.put(merged[i])
	}
	return done(), nil
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteTags.html
func deleteTags(r *request) (stampable, *APIError) {
	asked := map[string]string{}
	valued := map[string]bool{} // with a value the tag goes only if it has it
	for _, i := range r.indexes("Tag") {
		p := indexed("Tag", i)
		asked[r.str(p+".Key")] = r.str(p + ".Value")
		valued[r.str(p+".Key")] = r.has(p + ".Value")
	}
	resources, err := r.wantedTagged(asked)
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	for _, t := range resources {
		left := map[string]string{}
		for k, v := range t.tags {
			want, named := asked[k]
			if goes := len(asked) == 0 || named && (!valued[k] || want == v); !goes {
				left[k] = v
			}
		}
		t.put(left)
	}
	return done(), nil
}

type describedTagXML struct {
	ResourceID string `xml:"resourceId"`
	Type       string `xml:"resourceType"`
	Key        string `xml:"key"`
	Value      string `xml:"value"`
}

type tagsAnswer struct {
	answer
	Tags      set[describedTagXML] `xml:"tagSet"`
	NextToken *string              `xml:"nextToken"`
}

func (x describedTagXML) fact(name string) []string {
	switch name {
	case "key":
		return []string{x.Key}
	case "value":
		return []string{x.Value}
	case "resource-id":
		return []string{x.ResourceID}
	case "resource-type":
		return []string{x.Type}
	}
	return tagFact(map[string]string{x.Key: x.Value}, name)
}

// allTagged are all resources.
func (s *Sim) allTagged() []tagged {
	var out []tagged
	for _, v := range s.store.volumes {
		out = append(out, s.taggedVolume(v))
	}
	for id, sn := range s.store.snapshots {
		if !s.copying[id] {
			out = append(out, s.taggedSnapshot(sn))
		}
	}
	for _, i := range s.store.instances {
		out = append(out, s.taggedInstance(i))
	}
	return out
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeTags.html
func describeTags(r *request) (stampable, *APIError) {
	filters, err := r.filters()
	if err != nil {
		return nil, err
	}
	if err := r.allow(anything()); err != nil {
		return nil, err
	}
	var found []describedTagXML
	for _, t := range r.sim.allTagged() {
		for k, v := range t.tags {
			if x := (describedTagXML{t.id, t.kind, k, v}); matchAll(filters, x.fact) {
				found = append(found, x)
			}
		}
	}
	found, next, err := page(r, found, func(x describedTagXML) string { return x.ResourceID + "\n" + x.Key }, 1000, nil, "")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	return &tagsAnswer{Tags: set[describedTagXML]{found}, NextToken: next}, nil
}
