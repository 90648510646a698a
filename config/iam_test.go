package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// statement is one statement of an IAM policy, as far as ours use the language.
type statement struct {
	Sid       string                          `json:"Sid"`
	Effect    string                          `json:"Effect"`
	Action    oneOrMany                       `json:"Action"`
	Resource  oneOrMany                       `json:"Resource"`
	Principal map[string]string               `json:"Principal"`
	Condition map[string]map[string]oneOrMany `json:"Condition"`
}

// oneOrMany is IAM's habit of writing a list of one as a string.
type oneOrMany []string

func (o *oneOrMany) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*o = oneOrMany{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(o))
}

func readPolicy(t *testing.T, name string) []statement {
	t.Helper()
	file, err := os.Open(filepath.Join("iam", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var policy struct {
		Version   string
		Statement []statement
	}
	d := json.NewDecoder(file)
	d.DisallowUnknownFields()
	if err := d.Decode(&policy); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if policy.Version != "2012-10-17" || len(policy.Statement) == 0 {
		t.Fatalf("%s: version %q and %d statements", name, policy.Version, len(policy.Statement))
	}
	for i, s := range policy.Statement {
		if s.Effect != "Allow" || len(s.Action) == 0 {
			t.Errorf("%s: statement %d: effect %q, %d actions", name, i, s.Effect, len(s.Action))
		}
	}
	return policy.Statement
}

// The sandbox's tests compare the policy with the calls that were really made;
// this comparison with the source says sooner which of them forgot the other.
func TestPolicyAllowsWhatTheDriverCalls(t *testing.T) {
	allowed := map[string]bool{}
	for _, s := range readPolicy(t, "policy.json") {
		for _, action := range s.Action {
			if strings.ContainsAny(action, "*?") {
				t.Errorf("%s: action %s is a pattern: name what is called", s.Sid, action)
			}
			allowed[action] = true
		}
	}
	called := map[string]bool{
		// EC2 asks for it when a call that creates carries tags, too.
		"ec2:CreateTags": true,
	}
	sources, err := filepath.Glob("../internal/ec2/*.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("sources of internal/ec2: %v, %v", sources, err)
	}
	input := regexp.MustCompile(`&\w+\.([A-Z]\w+)Input\{`)
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range input.FindAllStringSubmatch(string(code), -1) {
			called["ec2:"+match[1]] = true
		}
	}
	if diff := cmp.Diff(called, allowed); diff != "" {
		t.Errorf("actions that the driver calls (-) and that the policy allows (+)\n%s", diff)
	}
}

// What destroys or marks is tied to the tags that say that Kubernetes made it.
func TestPolicyTiesDestructionToTags(t *testing.T) {
	want := map[string][]string{
		"ec2:DeleteVolume": {"ec2:ResourceTag/CSIVolumeName", "ec2:ResourceTag/ebs.csi.aws.com/cluster",
			"ec2:ResourceTag/kubernetes.io/created-for/pvc/name"},
		"ec2:DeleteSnapshot": {"ec2:ResourceTag/CSIVolumeSnapshotName", "ec2:ResourceTag/ebs.csi.aws.com/cluster"},
		"ec2:CreateTags":     {"ec2:CreateAction", "ec2:ResourceTag/ebs.csi.aws.com/cluster"},
		"ec2:DeleteTags":     {"ec2:ResourceTag/ebs.csi.aws.com/cluster"},
		// A lock cannot always be taken away again, fast restore is billed by the hour.
		"ec2:LockSnapshot":                {"ec2:ResourceTag/ebs.csi.aws.com/cluster"},
		"ec2:EnableFastSnapshotRestores":  {"ec2:ResourceTag/ebs.csi.aws.com/cluster"},
		"ec2:DisableFastSnapshotRestores": {"ec2:ResourceTag/ebs.csi.aws.com/cluster"},
	}
	got := map[string][]string{}
	for _, s := range readPolicy(t, "policy.json") {
		for _, action := range s.Action {
			if _, watched := want[action]; !watched {
				continue
			}
			keys := 0
			for _, operator := range s.Condition {
				for key := range operator {
					got[action] = append(got[action], key)
					keys++
				}
			}
			if keys != 1 {
				t.Errorf("%s: %d condition keys for %s, want one a statement (all keys of a statement must hold)", s.Sid, keys, action)
			}
		}
	}
	for _, keys := range got {
		slices.Sort(keys)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("condition keys (-want +got)\n%s", diff)
	}
}

// Who may take the role is the service account that the manifests make.
func TestTrustPoliciesNameTheControllersAccount(t *testing.T) {
	irsa := readPolicy(t, "trust-irsa.json")[0]
	if got := irsa.Condition["StringEquals"]["OIDC_PROVIDER:sub"]; !slices.Equal(got, oneOrMany{"system:serviceaccount:holdfast-system:holdfast-controller"}) {
		t.Errorf("IRSA trusts %v", got)
	}
	pod := readPolicy(t, "trust-pod-identity.json")[0]
	tags := pod.Condition["StringEquals"]
	if pod.Principal["Service"] != "pods.eks.amazonaws.com" ||
		!slices.Equal(tags["aws:RequestTag/kubernetes-namespace"], oneOrMany{"holdfast-system"}) ||
		!slices.Equal(tags["aws:RequestTag/kubernetes-service-account"], oneOrMany{"holdfast-controller"}) {
		t.Errorf("Pod Identity trusts %v with %v", pod.Principal, tags)
	}
	for _, s := range readPolicy(t, "kms-policy.json") {
		if !slices.Equal(s.Resource, oneOrMany{"KMS_KEY_ARN"}) {
			t.Errorf("statement %s allows more keys than the one that is filled in: %v", s.Sid, s.Resource)
		}
	}
}
