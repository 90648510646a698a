package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// asServer in the environment has the test binary be ec2sim itself.
const asServer = "EC2SIM_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// server is a running ec2sim.
type server struct {
	cmd *exec.Cmd
	log *syncBuffer
	t   *testing.T
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func command(t *testing.T, args ...string) (*exec.Cmd, *syncBuffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := &syncBuffer{}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asServer+"=1")
	cmd.Stderr = log
	return cmd, log
}

// startServer starts ec2sim on an inherited listener, as the sandbox does.
func startServer(t *testing.T, l *net.TCPListener, args ...string) *server {
	t.Helper()
	cmd, log := command(t, append([]string{"serve", "--listen-fd", "3"}, args...)...)
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{cmd, log, t}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _, _ = s.cmd.Process.Wait() })
	return s
}

// stop ends the server with a signal and gives its exit code.
func (s *server) stop(sig os.Signal) int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

func loopback(t *testing.T) (*net.TCPListener, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener), "http://" + l.Addr().String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const instancesFile = `[{"id": "i-0000000000000a001", "zone": "us-east-1a", "type": "m5.large", "sources": ["127.0.0.1/32"]}]`

// client tries again while the server starts.
func client(url, key string) *ec2.Client {
	return ec2.NewFromConfig(ec2sim.ClientConfigAs(url, key), func(o *ec2.Options) { o.RetryMaxAttempts = 20 })
}

func callContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestServeKilledAndStopped: what was answered survives kill -9; SIGTERM ends
// the process without an error; calls are logged one a line.
func TestServeKilledAndStopped(t *testing.T) {
	l, url := loopback(t)
	args := []string{"--state", t.TempDir(), "--no-disks", "--instances", write(t, "i.json", instancesFile)}
	s := startServer(t, l, args...)
	c, ctx := client(url, ec2sim.AdminKey), callContext(t)
	out, err := c.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1)})
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	if code := s.stop(unix.SIGKILL); code != -1 {
		t.Errorf("exit code %d of a killed process", code)
	}
	s = startServer(t, l, args...)
	resp, err := http.Post(url+"/_sim/instances/i-0000000000000a001/terminate", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("terminate: %d %v", resp.StatusCode, err)
	}
	if code := s.stop(unix.SIGKILL); code != -1 {
		t.Errorf("exit code %d of a killed process", code)
	}
	s = startServer(t, l, args...) // the file still names the terminated instance
	found, err := c.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{*out.VolumeId}})
	if err != nil || len(found.Volumes) != 1 {
		t.Fatalf("after kill -9: %v\n%s", err, s.log)
	}
	if code := s.stop(unix.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM\n%s", code, s.log)
	}
	if want := "action=DescribeVolumes principal=" + ec2sim.AdminKey + " code=OK"; !strings.Contains(s.log.String(), want) {
		t.Errorf("no line with %s in\n%s", want, s.log)
	}
}

// TestServeMetadataAndPolicy: the other two things it serves.
func TestServeMetadataAndPolicy(t *testing.T) {
	l, url := loopback(t)
	probe, imds := loopback(t)
	if err := probe.Close(); err != nil { // the address is free now, and for the server
		t.Fatal(err)
	}
	policy := write(t, "p.json", `{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"}}`)
	s := startServer(t, l, "--state", t.TempDir(), "--no-disks", "--imds", strings.TrimPrefix(imds, "http://"),
		"--instances", write(t, "i.json", instancesFile), "--principal", "AKIADRIVER="+policy)
	ctx := callContext(t)
	if _, err := client(url, "AKIADRIVER").DescribeVolumes(ctx, &ec2.DescribeVolumesInput{}); err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	_, err := client(url, "AKIADRIVER").DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	if err == nil || !strings.Contains(err.Error(), "UnauthorizedOperation") {
		t.Errorf("beyond its policy: %v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, imds+"/latest/api/token", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	token, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || len(token) == 0 {
		t.Errorf("token: %d %q %v", resp.StatusCode, token, err)
	}
}

// TestServeRefuses: what cannot work ends at once with one sentence.
func TestServeRefuses(t *testing.T) {
	state := t.TempDir()
	ok := []string{"serve", "--no-disks", "--state", state, "--listen", "127.0.0.1:0"}
	for why, row := range map[string]struct {
		args []string
		says string
	}{
		"no state":                {[]string{"serve", "--listen", "127.0.0.1:0"}, "--state"},
		"nothing to listen on":    {[]string{"serve", "--state", state}, "--listen"},
		"a descriptor not there":  {[]string{"serve", "--no-disks", "--state", state, "--listen-fd", "77"}, "listen-fd 77"},
		"an argument":             {append(ok, "x"), "x"},
		"a zone of elsewhere":     {append(ok, "--zones", "eu-west-1a"), "eu-west-1a"},
		"instances that are none": {append(ok, "--instances", write(t, "i.json", "{}")), "--instances"},
		"an instance unknown":     {append(ok, "--instances", write(t, "i.json", `[{"id": "x", "zone": "us-east-1a"}]`)), "17 hexadecimal digits"},
		"a policy without file":   {append(ok, "--principal", "KEY=/nonexistent.json"), "nonexistent"},
		"a principal without key": {append(ok, "--principal", "policy.json"), "KEY=policy.json"},
		"a policy not evaluated": {append(ok, "--principal", "KEY="+write(t, "p.json",
			`{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:*", "Resource": "*", "Condition": {"StringEquals": {"aws:SourceVpc": "x"}}}}`)), "aws:SourceVpc"},
	} {
		cmd, log := command(t, row.args...)
		err := cmd.Run()
		if err == nil || !strings.HasPrefix(log.String(), "ec2sim: ") || !strings.Contains(log.String(), row.says) ||
			strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: %v, says %q, want one sentence with %q", why, err, log, row.says)
		}
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) > 2 {
		t.Errorf("left in the state folder: %v %v", fmt.Sprint(entries), err)
	}
}
