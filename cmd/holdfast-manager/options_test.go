package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// TestOptions: what a flag says wrongly is told by the flag's name, the value and
// what is wanted, before anything is started.
func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		args []string
		want []string // parts of what is told; none: nothing is wrong
	}{
		"none":                   {"what an install says is enough", []string{"--namespace=holdfast-system"}, nil},
		"one address":            {"the webhooks may listen on one address", []string{"--webhook-address=127.0.0.1:9443"}, nil},
		"no port":                {"an address has a port", []string{"--webhook-address=localhost"}, []string{"--webhook-address", `"localhost"`, "host:port"}},
		"port of no number":      {"a port is a number", []string{"--webhook-address=:https"}, []string{"--webhook-address", `":https"`, "host:port"}},
		"port 0":                 {"the Service would not find it", []string{"--webhook-address=:0"}, []string{"--webhook-address", "1 to 65535"}},
		"port above":             {"there is none", []string{"--webhook-address=:65536"}, []string{"--webhook-address", "1 to 65535"}},
		"looked at all the time": {"each look asks every node", []string{"--usage-interval=10ms"}, []string{"--usage-interval", "10ms", "at least 1s"}},
		"no Prometheus":          {"it is an address", []string{"--prometheus-url=prometheus:9090"}, []string{"--prometheus-url"}},
		"no number":              {"flags are typed", []string{"--usage-interval=often"}, []string{"--usage-interval", "often"}},
		"neither":                {"on or off", []string{"--leader-election=perhaps"}, []string{"--leader-election", "perhaps"}},
		"unknown":                {"a typing error must not pass for a setting", []string{"--leader-elect=false"}, []string{"leader-elect"}},
	} {
		t.Run(name, func(t *testing.T) {
			var o options
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.register(flags)
			err := flags.Parse(tc.args)
			if err == nil {
				_, _, err = o.webhookHostPort()
			}
			if err == nil && len(tc.want) > 0 { // one that can be made registers its metrics, once in a process
				_, err = o.usageReader(&rest.Config{Host: "https://127.0.0.1:1"})
			}
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("%s: %v", tc.why, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: told without %q: %v", tc.why, part, err)
				}
			}
		})
	}
}
