package ec2sim_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// sim calls the control API and gives the status and the body.
func (r *region) sim(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+"/_sim/"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// get reads an entry of the control API.
func get[T any](r *region, path string) T {
	r.t.Helper()
	status, body := r.sim(http.MethodGet, path, "")
	var out T
	if err := json.Unmarshal([]byte(body), &out); status != http.StatusOK || err != nil {
		r.t.Fatalf("GET %s: %d %v\n%s", path, status, err, body)
	}
	return out
}

func (r *region) do(method, path, body string) {
	r.t.Helper()
	if status, answer := r.sim(method, path, body); status != http.StatusNoContent {
		r.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
}

func TestControlShowsStateAndCalls(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	r.newSnapshot(vol)
	wantSame(t, r.State(), get[ec2sim.State](r, "state"))
	wantSame(t, r.Instances(), get[[]ec2sim.Instance](r, "instances"))
	_, err := r.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{absentVolume}})
	wantCode(t, err, "InvalidVolume.NotFound")
	_, err = client(r.url, "AKIAOTHER").DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{})
	wantCode(t, err, "")
	want := []ec2sim.CallCount{
		{Action: "CreateSnapshot", Principal: ec2sim.AdminKey, Code: "OK", Count: 1},
		{Action: "CreateVolume", Principal: ec2sim.AdminKey, Code: "OK", Count: 1},
		{Action: "DescribeVolumes", Principal: ec2sim.AdminKey, Code: "InvalidVolume.NotFound", Count: 1},
		{Action: "DescribeVolumes", Principal: "AKIAOTHER", Code: "OK", Count: 1},
	}
	wantSame(t, want, get[[]ec2sim.CallCount](r, "calls"))
	r.do(http.MethodDelete, "calls", "")
	wantSame(t, []ec2sim.CallCount{}, get[[]ec2sim.CallCount](r, "calls"))
}

func TestControlChanges(t *testing.T) {
	r := newRegion(t)
	r.do(http.MethodPut, "delays", `{"create": "10s"}`)
	want := ec2sim.DefaultDelays()
	want.Create = ec2sim.Duration(10 * time.Second)
	wantSame(t, want, get[ec2sim.Delays](r, "delays"))

	r.do(http.MethodPut, "throttling", `{"on": true}`)
	if !r.Throttled() {
		t.Error("throttling is not on")
	}
	r.do(http.MethodPut, "quotas", `{"volumes": 1}`)
	wantSame(t, ec2sim.Quotas{Volumes: 1}, get[ec2sim.Quotas](r, "quotas"))

	r.do(http.MethodPost, "faults", `{"action": "CreateVolume", "code": "VolumeLimitExceeded"}`)
	wantSame(t, []ec2sim.Fault{{Action: "CreateVolume", Code: "VolumeLimitExceeded", Count: 1}}, get[[]ec2sim.Fault](r, "faults"))
	wantCode(t, r.createOnce(), "VolumeLimitExceeded")
	wantSame(t, []ec2sim.Fault{}, get[[]ec2sim.Fault](r, "faults"))
	r.do(http.MethodPost, "faults", `{"action": "*", "code": "X", "count": -1}`)
	r.do(http.MethodDelete, "faults", "")
	wantSame(t, []ec2sim.Fault{}, r.Faults())

	const id = "i-00000000000000c04"
	r.do(http.MethodPost, "instances", `{"id": "`+id+`", "zone": "`+zoneA+`"}`)
	for path, state := range map[string]string{"stop": "stopped", "start": "running"} {
		r.do(http.MethodPost, "instances/"+id+"/"+path, "")
		for _, i := range r.Instances() {
			if i.ID == id && i.State != state {
				t.Errorf("after %s it is %s", path, i.State)
			}
		}
	}
	r.do(http.MethodPost, "instances/"+id+"/terminate", "")
	r.do(http.MethodDelete, "instances/"+id, "")
	if n := len(r.Instances()); n != 2 {
		t.Errorf("%d instances after it was removed", n)
	}

	raw(t, r.url, form("RunInstances"))
	wantSame(t, r.Unmodelled(), get[[]ec2sim.UnmodelledCount](r, "unmodelled"))
	r.do(http.MethodDelete, "unmodelled", "")
}

func TestControlRefuses(t *testing.T) {
	r := newRegion(t)
	rows := []struct{ method, path, body, says string }{
		{http.MethodPut, "delays", `{"create": "soon"}`, "1.5s"},
		{http.MethodPut, "delays", `{"create": "-1s"}`, "not negative"},
		{http.MethodPut, "delays", `{"creation": "1s"}`, "creation"},
		{http.MethodPost, "faults", `{"action": "Nothing", "code": "X"}`, "Nothing"},
		{http.MethodPost, "faults", `not json`, "body"},
		{http.MethodPost, "instances", `{"id": "x"}`, "17 hexadecimal digits"},
		{http.MethodPost, "instances/i-00000000000000000/stop", "", "does not exist"},
		{http.MethodDelete, "instances/" + instanceA, "", "not terminated"},
	}
	for _, row := range rows {
		status, body := r.sim(row.method, row.path, row.body)
		if status != http.StatusBadRequest || !strings.Contains(body, row.says) {
			t.Errorf("%s %s %s: %d %s, want 400 and %q", row.method, row.path, row.body, status, body, row.says)
		}
	}
	if status, _ := r.sim(http.MethodGet, "nothing", ""); status != http.StatusNotFound {
		t.Errorf("an entry that does not exist: %d", status)
	}
}

// TestRunMovesStatesOn: with Run, states pass without a call.
func TestRunMovesStatesOn(t *testing.T) {
	disks := &recorder{attached: make(chan string, 1)}
	r := newRegion(t, func(c *ec2sim.Config) { c.Disks = disks })
	if err := r.AddInstance(ec2sim.Instance{ID: instanceA, Zone: zoneA, DevDir: "/somewhere"}); err != nil {
		t.Fatal(err)
	}
	vol := r.newVolume()
	wantCode(t, r.attach(vol, instanceA, "/dev/xvdaa"), "")
	go r.Run(t.Context())
	for !r.clock.HasWaiters() { // Run waits for the attachment's time
		select {
		case <-t.Context().Done():
			t.Fatal("Run does not wait")
		case <-time.After(time.Millisecond):
		}
	}
	r.pass(2 * time.Second)
	select {
	case got := <-disks.attached:
		wantSame(t, vol+" /somewhere", got)
	case <-time.After(10 * time.Second):
		t.Error("the device did not appear by itself")
	}
}
