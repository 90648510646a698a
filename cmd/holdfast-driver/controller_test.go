package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// run runs the command line until ctx ends.
func run(ctx context.Context, args ...string) error {
	root := newRootCommand()
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

func TestControllerFlags(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	for name, tc := range map[string]struct {
		args  []string
		texts []string
	}{
		"extra tags":   {[]string{"--extra-tags=abc"}, []string{"--extra-tags", "abc", "key=value"}},
		"reserved tag": {[]string{"--extra-tags=CSIVolumeName=x"}, []string{"--extra-tags", "reserved"}},
		"cluster id":   {[]string{"--k8s-tag-cluster-id=a b"}, []string{"--k8s-tag-cluster-id", "white space"}},
		"endpoint":     {[]string{"--endpoint=csi.sock"}, []string{"csi.sock", "unix:///csi/csi.sock"}},
		"verbosity":    {[]string{"-v=-1"}, []string{"-v", "-1"}},
		"no such flag": {[]string{"--batching"}, []string{"--batching"}},
		"an argument":  {[]string{"x"}, []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), append([]string{"controller"}, tc.args...)...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not name %q", err, text)
				}
			}
		})
	}
}

func TestHelpTeachesEachFlag(t *testing.T) {
	for _, sub := range []string{"controller", "node", "pre-stop"} {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{sub, "--help"})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(out.String(), "\n") {
			if fields := strings.Fields(line); len(fields) > 0 && strings.HasPrefix(fields[0], "--") && len(fields) < 5 {
				t.Errorf("%s: %q teaches little", sub, line)
			}
		}
	}
}

// The process as it is installed: configured by the environment, ready once EC2 has answered.
func TestControllerServes(t *testing.T) {
	sim, err := ec2sim.New(ec2sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	defer srv.Close()
	for k, v := range map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_EC2": srv.URL, "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(k, v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	socket := "unix://" + filepath.Join(t.TempDir(), "csi.sock")
	metrics := freeAddress(t)
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, "controller", "--endpoint="+socket, "--health-address=127.0.0.1:0", "--driver-name=x.example", "--metrics-address="+metrics)
	}()
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wait, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	client := csi.NewIdentityClient(conn)
	info, err := client.GetPluginInfo(wait, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetName() != "x.example" {
		t.Errorf("%v, %v", info, err)
	}
	if probe, err := client.Probe(wait, &csi.ProbeRequest{}); err != nil || !probe.GetReady().GetValue() {
		t.Errorf("probe: %v, %v, want ready", probe, err)
	}
	answer, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	for _, name := range []string{"aws_ebs_csi_api_request_duration_seconds_count", "holdfast_csi_operations_seconds_count"} {
		if err != nil || !strings.Contains(string(text), name) {
			t.Errorf("metrics: no %s, %v", name, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("stopped with %v", err)
	}
}
