package ec2sim

import (
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
