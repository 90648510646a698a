package imds

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// serve answers IMDSv2 with these categories; others are 404. It refuses
// requests without a token.
func serve(t *testing.T, categories map[string]string) *Client {
	t.Helper()
	const token, tokenTTL = "X-Aws-Ec2-Metadata-Token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" {
			w.Header().Set(tokenTTL, r.Header.Get(tokenTTL))
			_, _ = w.Write([]byte("secret"))
			return
		}
		if r.Header.Get(token) != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		text, ok := categories[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return New(Options{Endpoint: server.URL})
}

const document = `{"instanceId":"i-0123456789abcdef0","instanceType":"m5.large","availabilityZone":"us-east-1a","region":"us-east-1"}`

func TestInstance(t *testing.T) {
	c := serve(t, map[string]string{"/latest/dynamic/instance-identity/document": document})
	got, err := c.Instance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Instance{ID: "i-0123456789abcdef0", Type: "m5.large", Zone: "us-east-1a", Region: "us-east-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instance (-want +got)\n%s", diff)
	}
}

func TestInstanceIncomplete(t *testing.T) {
	for _, key := range []string{"instanceId", "instanceType", "availabilityZone"} {
		broken := strings.Replace(document, key, "other", 1)
		c := serve(t, map[string]string{"/latest/dynamic/instance-identity/document": broken})
		if _, err := c.Instance(t.Context()); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("a document without %s must be refused by name, got %v", key, err)
		}
	}
}

func TestOccupancy(t *testing.T) {
	const macs, mapping = "/latest/meta-data/network/interfaces/macs/", "/latest/meta-data/block-device-mapping/"
	for name, tc := range map[string]struct {
		why  string
		says map[string]string
		want ebs.Occupancy
	}{
		"plain":          {"ami and root are one volume", map[string]string{macs: "0a:01/", mapping: "ami\nroot"}, ebs.Occupancy{ReservedVolumes: 1, NetworkInterfaces: 1}},
		"launch volumes": {"volumes of the launch template take places", map[string]string{macs: "0a:01/\n0a:02/", mapping: "ami\nebs1\nebs12\nroot", mapping + "ebs1": "sdb", mapping + "ebs12": "xvdc"}, ebs.Occupancy{ReservedVolumes: 3, NetworkInterfaces: 2}},
		"claims at boot": {
			"volumes of claims that were attached when the instance booted may leave",
			map[string]string{macs: "0a:01/", mapping: "ami\nebs1\nebs2\nebs3\nroot", mapping + "ebs1": "xvdaa", mapping + "ebs2": "sdf", mapping + "ebs3": "/dev/xvdbq\n"},
			ebs.Occupancy{ReservedVolumes: 2, NetworkInterfaces: 1},
		},
		"instance store": {"instance store and swap are no EBS volumes", map[string]string{macs: "0a:01/", mapping: "ami\nephemeral0\nephemeral1\nroot\nswap"}, ebs.Occupancy{ReservedVolumes: 1, NetworkInterfaces: 1}},
		"no mapping":     {"metal instances may have none; the root volume is there", map[string]string{macs: "0a:01/"}, ebs.Occupancy{ReservedVolumes: 1, NetworkInterfaces: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := serve(t, tc.says).Occupancy(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
	if _, err := serve(t, map[string]string{macs: "0a:01/", mapping: "ebs1"}).Occupancy(t.Context()); err == nil {
		t.Error("a volume whose name is not told may be either: want an error, not a guess")
	}
	if _, err := serve(t, map[string]string{mapping: "ami\nroot"}).Occupancy(t.Context()); err == nil {
		t.Error("without the list of interfaces the limit is unknown: want an error, not a guess")
	}
}
