package ec2sim

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"
)

// newID makes an id as EC2 does: the prefix, a zero and 16 hexadecimal digits.
func newID(prefix string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return prefix + "0" + hex.EncodeToString(b[:])
}

// idDigits: ids have 8 digits (before 2016) or 17.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html
var idDigits = regexp.MustCompile(`^([0-9a-f]{8}|[0-9a-f]{17})$`)

// kinds of ids: prefix, the parameter that a refusal names, the code for bad digits.
type idKind struct{ prefix, param, malformed string }

var (
	volumeIDs   = idKind{"vol-", "volumeId", "InvalidVolumeID.Malformed"}
	snapshotIDs = idKind{"snap-", "snapshotId", "InvalidSnapshotID.Malformed"}
	instanceIDs = idKind{"i-", "instanceId", "InvalidInstanceID.Malformed"}
)

// check refuses what cannot be an id: a foreign prefix is an invalid value,
// wrong digits are malformed. An instance id is malformed in either case.
func (k idKind) check(id string) *APIError {
	digits, ok := strings.CutPrefix(id, k.prefix)
	switch {
	case ok && idDigits.MatchString(digits):
		return nil
	case ok || k.prefix == "i-":
		return refuse(k.malformed, "Invalid id: \"%s\"", id)
	default:
		return refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected: '%s...'.", id, k.param, k.prefix)
	}
}

func (k idKind) checkAll(ids []string) *APIError {
	for _, id := range ids {
		if err := k.check(id); err != nil {
			return err
		}
	}
	return nil
}
