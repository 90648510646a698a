package ec2sim_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// from is a client that calls from an address of 127.0.0.0/8.
func from(address string) *http.Client {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
}

func metadataServer(t *testing.T) (*region, string) {
	t.Helper()
	r := newRegion(t)
	for _, i := range []ec2sim.Instance{
		{ID: instanceA, Zone: zoneA, Sources: []string{"127.0.0.2", "127.1.1.0/24"}, NetworkInterfaces: 2},
		{ID: instanceB, Zone: zoneB, Type: "m7i.large", Sources: []string{"127.0.0.3/32", "127.1.0.0/16"}},
	} {
		if err := r.AddInstance(i); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(r.IMDS())
	t.Cleanup(srv.Close)
	return r, srv.URL
}

// TestIMDSTellsInstancesApart with the SDK's own client: by address, by net,
// and the more exact one wins.
func TestIMDSTellsInstancesApart(t *testing.T) {
	_, url := metadataServer(t)
	for address, want := range map[string][]string{
		"127.0.0.2": {instanceA, "m5.large", zoneA, "127.0.0.2"},
		"127.1.1.9": {instanceA, "m5.large", zoneA, "127.0.0.2"},
		"127.0.0.3": {instanceB, "m7i.large", zoneB, "127.0.0.3"},
		"127.1.2.9": {instanceB, "m7i.large", zoneB, "127.0.0.3"},
	} {
		c := imds.New(imds.Options{Endpoint: url, HTTPClient: from(address), EnableFallback: aws.FalseTernary})
		doc, err := c.GetInstanceIdentityDocument(t.Context(), nil)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		wantSame(t, want, []string{doc.InstanceID, doc.InstanceType, doc.AvailabilityZone, doc.PrivateIP})
		wantSame(t, []string{"us-east-1", "000000000000"}, []string{doc.Region, doc.AccountID})
	}
}

func TestIMDSPaths(t *testing.T) {
	_, url := metadataServer(t)
	c := imds.New(imds.Options{Endpoint: url, HTTPClient: from("127.0.0.2")})
	for path, want := range map[string]string{
		"instance-id":                    instanceA,
		"instance-type":                  "m5.large",
		"local-ipv4":                     "127.0.0.2",
		"placement/availability-zone":    zoneA,
		"placement/availability-zone-id": "use1-az1",
		"placement/region":               "us-east-1",
		"block-device-mapping":           "ami\nroot",
		"block-device-mapping/":          "ami\nroot",
		"block-device-mapping/root":      "/dev/xvda",
		"network/interfaces/macs":        "02:00:00:00:a0:01/\n02:01:00:00:a0:01/",
		"network/interfaces/macs/02:01:00:00:a0:01/device-number": "1",
	} {
		out, err := c.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: path})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		got, err := io.ReadAll(out.Content)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if _, err := c.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: "outpost-arn"}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("what an instance has not: %v, want 404", err)
	}
	out, err := c.GetMetadata(t.Context(), &imds.GetMetadataInput{})
	if err != nil {
		t.Fatal(err)
	}
	top, err := io.ReadAll(out.Content)
	if err != nil || !strings.Contains(string(top), "placement/\n") && !strings.HasSuffix(string(top), "placement/") {
		t.Errorf("the top lists %q", top)
	}
}

// TestIMDSNeedsAToken: version 1 is refused, a token is good for one instance
// and for its time.
func TestIMDSNeedsAToken(t *testing.T) {
	r, url := metadataServer(t)
	get := func(address, token string) int {
		t.Helper()
		return imdsDo(t, address, http.MethodGet, url+"/latest/meta-data/instance-id", "X-Aws-Ec2-Metadata-Token", token).status
	}
	put := func(address, ttl string) imdsReply {
		t.Helper()
		return imdsDo(t, address, http.MethodPut, url+"/latest/api/token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", ttl)
	}
	token := put("127.0.0.2", "60")
	if token.status != http.StatusOK || token.ttl != "60" {
		t.Fatalf("%+v, want a token with its time in the header", token)
	}
	rows := []struct {
		why  string
		got  int
		want int
	}{
		{"with the token", get("127.0.0.2", token.body), http.StatusOK},
		{"without token", get("127.0.0.2", ""), http.StatusUnauthorized},
		{"with another's token", get("127.0.0.3", token.body), http.StatusUnauthorized},
		{"no time asked", put("127.0.0.2", "").status, http.StatusBadRequest},
		{"six hours at most", put("127.0.0.2", "21601").status, http.StatusBadRequest},
		{"an address of nobody", put("127.0.0.9", "60").status, http.StatusNotFound},
	}
	r.pass(time.Minute)
	rows = append(rows, struct {
		why  string
		got  int
		want int
	}{"when its time is over", get("127.0.0.2", token.body), http.StatusUnauthorized})
	for _, row := range rows {
		if row.got != row.want {
			t.Errorf("%s: %d, want %d", row.why, row.got, row.want)
		}
	}
	if err := r.StopInstance(instanceA); err != nil {
		t.Fatal(err)
	}
	if got := put("127.0.0.2", "60").status; got != http.StatusNotFound {
		t.Errorf("a stopped instance asks for a token: %d", got)
	}
}

type imdsReply struct {
	status    int
	body, ttl string
}

func imdsDo(t *testing.T, address, method, url, header, value string) imdsReply {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if value != "" {
		req.Header.Set(header, value)
	}
	resp, err := from(address).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return imdsReply{resp.StatusCode, string(body), resp.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds")}
}
