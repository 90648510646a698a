// Package arrows holds the direction of imports between the packages of the
// tree, as drawn in docs/design/001-foundation.md.
package arrows

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/holdfast-dev/holdfast"

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath string
	Imports    []string
}

// rule forbids imports: packages that match from must not import any that
// match to, except those that match but.
type rule struct {
	why  string
	from func(pkg string) bool
	to   func(imported string) bool
}

func under(prefixes ...string) func(string) bool {
	return func(p string) bool {
		p = strings.TrimPrefix(p, module+"/")
		for _, prefix := range prefixes {
			if p == prefix || strings.HasPrefix(p, prefix+"/") {
				return true
			}
		}
		return false
	}
}

func not(f func(string) bool) func(string) bool { return func(p string) bool { return !f(p) } }

var development = under("internal/ec2sim", "internal/sandbox", "internal/testenv", "internal/testvm", "internal/image", "internal/debian")

var rules = []rule{
	{"the driver knows CSI and no Kubernetes kinds",
		under("driver"), under("api", "controllers", "webhooks", "internal/kube", "k8s.io/api", "k8s.io/client-go")},
	{"controllers and webhooks work for every CSI driver",
		under("controllers", "webhooks"), under("driver", "internal/ec2", "github.com/aws")},
	{"internal/ec2 is the one importer of the EC2 SDK",
		not(under("internal/ec2", "internal/ec2sim", "cmd", "test")), under("github.com/aws/aws-sdk-go-v2/service/ec2")},
	{"the kinds are for anybody to import",
		under("api"), func(p string) bool {
			return strings.Contains(strings.SplitN(p, "/", 2)[0], ".") && !under("api", "k8s.io/api", "k8s.io/apimachinery")(p)
		}},
	{"our words for the cloud stand on the standard library alone",
		under("internal/ebs"), func(p string) bool { return strings.Contains(strings.SplitN(p, "/", 2)[0], ".") }},
	{"parts for development stay out of the product",
		not(func(p string) bool {
			return development(p) || under("cmd/ec2sim", "cmd/sandbox", "cmd/images", "test")(p)
		}), development},
	{"the driver reaches the cloud through internal/ebs",
		under("driver"), under("internal/ec2", "github.com/aws")},
}

func TestArrows(t *testing.T) {
	for _, p := range packages(t) {
		for _, r := range rules {
			if !r.from(p.ImportPath) {
				continue
			}
			for _, imported := range p.Imports {
				if r.to(imported) {
					t.Errorf("%s imports %s: %s", p.ImportPath, imported, r.why)
				}
			}
		}
	}
}

// packages lists every package of the module without its tests.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("output of go list: %v", err)
		}
		all = append(all, p)
	}
	if len(all) < 3 {
		t.Fatalf("go list found %d packages, the tree has more", len(all))
	}
	return all
}

// TestRulesBite shows each rule on an import that it must refuse, since a rule
// whose pattern matches nothing would hold for ever.
func TestRulesBite(t *testing.T) {
	for _, tc := range []struct{ from, to string }{
		{module + "/driver", "k8s.io/client-go/kubernetes"},
		{module + "/controllers/schedule", module + "/driver"},
		{module + "/driver", "github.com/aws/aws-sdk-go-v2/service/ec2/types"},
		{module + "/internal/ebs", "k8s.io/utils/clock"},
		{module + "/api/v1alpha1", "sigs.k8s.io/controller-runtime/pkg/scheme"},
		{module + "/cmd/holdfast-driver", module + "/internal/ec2sim"},
		{module + "/driver", module + "/internal/ec2"},
	} {
		refused := false
		for _, r := range rules {
			refused = refused || (r.from(tc.from) && r.to(tc.to))
		}
		if !refused {
			t.Errorf("%s may import %s", tc.from, tc.to)
		}
	}
}
