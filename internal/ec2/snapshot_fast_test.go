package ec2

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Snapshots with the same zones go together, ten at most, and those that need
// nothing are left out.
func TestFastChanges(t *testing.T) {
	var ids, ten []ebs.SnapshotID
	for i := range 12 {
		ids = append(ids, ebs.SnapshotID(fmt.Sprint("snap-", i)))
	}
	ten = ids[1:11]
	zones := func(id ebs.SnapshotID) []string {
		switch id {
		case "snap-0":
			return nil
		case "snap-11":
			return []string{"a"}
		}
		return []string{"a", "b"}
	}
	want := []fastChange{{ids[11:], []string{"a"}}, {ten, []string{"a", "b"}}}
	if diff := cmp.Diff(want, fastChanges(ids, zones), cmp.AllowUnexported(fastChange{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := fastChanges(append(ids[1:11:11], "snap-12"), zones); len(got) != 2 || len(got[0].snapshots) != 10 || len(got[1].snapshots) != 1 {
		t.Errorf("eleven snapshots become %+v, want calls for ten and for one", got)
	}
}
