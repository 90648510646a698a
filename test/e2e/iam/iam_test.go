//go:build e2e

package iam

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// One life of a volume needs every permission of the policy, and all tests
// before it needed no other. The simulator counts what the policy is asked:
// CreateVolume with tags asks for ec2:CreateTags too.
func TestPolicyIsWhatIsUsed(t *testing.T) {
	s := stage.New(t)
	live(s)
	asked, err := s.Sim.Permissions(t.Context())
	s.Must(err)
	var used []string
	statements := map[string]int{}
	for _, p := range asked {
		if p.Principal != stage.Controller {
			continue
		}
		if !p.Allowed {
			t.Errorf("%s on %s was refused %d times", p.Action, p.Kind, p.Count)
		}
		statements[p.Statement] += p.Count
		used = append(used, p.Action)
	}
	slices.Sort(used)
	t.Logf("statements that decided, and how often: %v", statements)
	if diff := cmp.Diff(allowed(t, s.Root), slices.Compact(used)); diff != "" {
		t.Errorf("config/iam/policy.json and what the controller needs differ (- allowed and never needed, + needed and not allowed)\n%s", diff)
	}
}

// live is a volume's whole life: made, attached, grown, tagged, cloned, copied, restored,
// moved and deleted.
func live(s *stage.Stage) {
	s.T.Helper()
	class := s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs", "tagSpecification_1": "kept=no"})
	initialized := s.Class("initialized", map[string]string{"csi.storage.k8s.io/fstype": "xfs", "blockAttachUntilInitialized": "true"})
	snapshots := s.SnapshotClass("copies", map[string]string{
		"fastSnapshotRestoreAvailabilityZones": s.Nodes()[0].Zone, "lockMode": "governance", "lockDuration": "1",
	})
	s.Claim("data", class, "1Gi", stage.InGroup("pair"))
	s.Pod("app", "data")
	node := s.Ready("app").Spec.NodeName
	small := s.SizeKiB("app", "/data")
	s.Ask("data", "2Gi")
	s.Grown("app", "data", "/data", "2Gi", small)
	for suffix, tags := range map[string]map[string]string{"set": {"tagSpecification_1": "tier=gold"}, "delete": {"tagDeletion_1": "kept"}} {
		attributes := s.Attributes(suffix, tags)
		s.AskAttributes("data", attributes, "")
		s.HasAttributes("data", attributes)
	}
	s.Claim("clone", class, "2Gi", stage.FromClaim("data"), stage.InGroup("pair"))
	s.Pod("twin", "clone", stage.OnNode(node))
	s.Ready("twin")
	pair := s.GroupSnapshot("pair", s.GroupSnapshotClass("pairs", nil))
	s.GroupMembers(pair)
	copied := s.Snapshot("copy", "data", snapshots)
	s.Claim("restored", initialized, "2Gi", stage.FromSnapshot("copy"))
	s.Pod("reader", "restored", stage.OnNode(node))
	s.Ready("reader")
	source, restored, clone := s.VolumeID("data"), s.VolumeID("restored"), s.VolumeID("clone")
	s.DeletePod("app")
	s.DeletePod("reader")
	s.DeletePod("twin")
	s.Delete(pair)
	s.GroupGone("groupsnapshot-" + string(pair.UID))
	// The lock is the operator's to take away: the driver may not.
	_, err := s.EC2.UnlockSnapshot(s.T.Context(), &ec2.UnlockSnapshotInput{SnapshotId: &copied})
	s.Must(err)
	s.Run("-n", s.Namespace, "delete", "volumesnapshot", "copy", "--timeout=2m")
	s.Run("-n", s.Namespace, "delete", "pvc", "data", "restored", "clone", "--timeout=2m")
	s.VolumeGone(source)
	s.VolumeGone(restored)
	s.VolumeGone(clone)
}

// allowed are the actions that the shipped policy allows.
func allowed(t *testing.T, root string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "config", "iam", "policy.json"))
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct {
			Sid, Effect string
			Action      list
		}
	}
	if err := json.Unmarshal(data, &policy); err != nil {
		t.Fatalf("config/iam/policy.json: %v", err)
	}
	var actions []string
	for _, st := range policy.Statement {
		if st.Effect != "Allow" {
			continue
		}
		for _, a := range st.Action {
			if !strings.HasPrefix(a, "ec2:") || strings.Contains(a, "*") {
				t.Errorf("statement %s allows %q, want single actions of EC2", st.Sid, a)
			}
			actions = append(actions, a)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// list is a JSON string or list of strings, as IAM takes both.
type list []string

func (l *list) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}
