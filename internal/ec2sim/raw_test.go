package ec2sim_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// raw posts a form as the SDK does and gives the HTTP status and the error
// code, "" for a success.
func raw(t *testing.T, address, form string) (int, string) {
	t.Helper()
	status, body := rawBody(t, address, form)
	var e struct {
		Code string `xml:"Errors>Error>Code"`
	}
	if err := xml.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("%s: answer is no XML: %v\n%s", form, err, body)
	}
	return status, e.Code
}

func rawBody(t *testing.T, address, form string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+ec2sim.AdminKey+"/20260601/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=00")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// form joins key=value pairs, the action first.
func form(action string, pairs ...string) string {
	v := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		v.Set(key, value)
	}
	return v.Encode()
}

// TestEveryActionHonoursDryRun: a dry run of a call that would succeed is
// answered with DryRunOperation and 412, and changes nothing.
func TestEveryActionHonoursDryRun(t *testing.T) {
	r := newRegion(t)
	vol, free := r.newVolume(), r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	snap, locked := r.newSnapshot(vol), r.newSnapshot(r.newVolume())
	wantCode(t, r.lock(locked, days(1)), "")
	calls := map[string][]string{
		"DescribeAvailabilityZones":    nil,
		"DescribeInstances":            nil,
		"DescribeInstanceTypes":        nil,
		"CreateVolume":                 {"AvailabilityZone=" + zoneA, "Size=1"},
		"CopyVolumes":                  {"SourceVolumeId=" + free},
		"DescribeVolumes":              nil,
		"DeleteVolume":                 {"VolumeId=" + free},
		"AttachVolume":                 {"VolumeId=" + free, "InstanceId=" + instanceA, "Device=/dev/xvdab"},
		"DetachVolume":                 {"VolumeId=" + vol},
		"DescribeVolumeStatus":         nil,
		"ModifyVolume":                 {"VolumeId=" + vol, "Size=20"},
		"DescribeVolumesModifications": nil,
		"CreateSnapshot":               {"VolumeId=" + free},
		"CreateSnapshots":              {"InstanceSpecification.InstanceId=" + instanceA, "InstanceSpecification.ExcludeBootVolume=true"},
		"DescribeSnapshots":            nil,
		"DeleteSnapshot":               {"SnapshotId=" + snap},
		"EnableFastSnapshotRestores":   {"AvailabilityZone.1=" + zoneA, "SourceSnapshotId.1=" + snap},
		"DisableFastSnapshotRestores":  {"AvailabilityZone.1=" + zoneA, "SourceSnapshotId.1=" + snap},
		"DescribeFastSnapshotRestores": nil,
		"LockSnapshot":                 {"SnapshotId=" + snap, "LockMode=governance", "LockDuration=1"},
		"UnlockSnapshot":               {"SnapshotId=" + locked},
		"DescribeLockedSnapshots":      {"SnapshotId.1=" + snap},
		"CreateTags":                   {"ResourceId.1=" + vol, "Tag.1.Key=a", "Tag.1.Value=b"},
		"DeleteTags":                   {"ResourceId.1=" + vol, "Tag.1.Key=a"},
		"DescribeTags":                 nil,
	}
	before := r.State()
	for _, action := range r.ActionNames() {
		pairs, ok := calls[action]
		if !ok {
			t.Errorf("%s has no row in this test", action)
			continue
		}
		status, code := raw(t, r.url, form(action, append(pairs, "DryRun=true")...))
		if code != "DryRunOperation" || status != http.StatusPreconditionFailed {
			t.Errorf("%s: %d %s, want 412 DryRunOperation", action, status, code)
		}
	}
	wantSame(t, before, r.State())
}

// TestNotModelledIsLoud: what the simulator does not do is refused by name and
// counted, never answered as if it were done.
func TestNotModelledIsLoud(t *testing.T) {
	r := newRegion(t)
	rows := []struct{ form, code string }{
		{form("RunInstances", "ImageId=ami-1"), "NotModelled.Action"},
		{form("CreateVolume", "AvailabilityZone="+zoneA, "Size=1", "OutpostArn=arn:x"), "NotModelled.Parameter"},
		{form("DescribeVolumes", "Filter.1.Name=operator.managed", "Filter.1.Value.1=true"), "NotModelled.Filter"},
	}
	for _, row := range rows {
		if status, code := raw(t, r.url, row.form); code != row.code || status != http.StatusBadRequest {
			t.Errorf("%s: %d %s, want 400 %s", row.form, status, code, row.code)
		}
	}
	want := []ec2sim.UnmodelledCount{
		{Unmodelled: ec2sim.Unmodelled{What: "parameter", Action: "CreateVolume", Name: "OutpostArn"}, Count: 1},
		{Unmodelled: ec2sim.Unmodelled{What: "filter", Action: "DescribeVolumes", Name: "operator.managed"}, Count: 1},
		{Unmodelled: ec2sim.Unmodelled{What: "action", Action: "RunInstances"}, Count: 1},
	}
	wantSame(t, want, r.Unmodelled())
	failed := &failures{}
	r.FailOnUnmodelled(failed)
	if len(*failed) != 3 {
		t.Errorf("a test would fail with %q, want three failures", *failed)
	}
	r.ResetUnmodelled()
	if len(r.Volumes()) != 0 {
		t.Error("a volume was made although a parameter is not modelled")
	}
}

// failures is a test that keeps what it fails with.
type failures []string

func (f *failures) Helper()                           {}
func (f *failures) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func TestBadRequests(t *testing.T) {
	r := newRegion(t)
	rows := []struct{ why, form, code string }{
		{"a number has digits", form("CreateVolume", "AvailabilityZone="+zoneA, "Size=ten"), "InvalidParameterValue"},
		{"a number has 32 bits", form("CreateVolume", "AvailabilityZone="+zoneA, "Size=99999999999"), "InvalidParameterValue"},
		{"a bool is true or false", form("CreateVolume", "AvailabilityZone="+zoneA, "Size=1", "Encrypted=yes"), "InvalidParameterValue"},
		{"a volume has an id", form("DeleteVolume"), "MissingParameter"},
		{"a filter has values", form("DescribeVolumes", "Filter.1.Name=size"), "InvalidParameterValue"},
		{"a filter has a name", form("DescribeVolumes", "Filter.1.Value.1=1"), "MissingParameter"},
	}
	for _, row := range rows {
		if _, code := raw(t, r.url, row.form); code != row.code {
			t.Errorf("%s: %s, want %s", row.why, code, row.code)
		}
	}
	resp, err := http.PostForm(r.url, url.Values{"Action": {"DescribeVolumes"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("no Authorization header: %d, want 401", resp.StatusCode)
	}
}
