package ebs

import "strings"

// WellFormed says whether EC2 could have given the id. What is not well formed
// names nothing that exists, which saves a call that EC2 would refuse.
func (id VolumeID) WellFormed() bool { return wellFormed(string(id), "vol-") }

// WellFormed says whether EC2 could have given the id.
func (id InstanceID) WellFormed() bool { return wellFormed(string(id), "i-") }

// WellFormed says whether EC2 could have given the id.
func (id SnapshotID) WellFormed() bool { return wellFormed(string(id), "snap-") }

// wellFormed: a prefix and hexadecimal digits; EC2 gives 8 or 17 of them, see
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html
func wellFormed(id, prefix string) bool {
	digits, ok := strings.CutPrefix(id, prefix)
	return ok && digits != "" && len(digits) <= 17 && strings.Trim(digits, "0123456789abcdef") == ""
}
