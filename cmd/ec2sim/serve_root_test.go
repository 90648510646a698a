//go:build linux && root

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// These tests need root and loop devices: go test -tags root.

// until polls the control API until a volume is as wanted.
func until(t *testing.T, url, what string, as func(ec2sim.State) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		var st ec2sim.State
		resp, err := http.Get(url + "/_sim/state")
		if err == nil {
			err = errors.Join(json.NewDecoder(resp.Body).Decode(&st), resp.Body.Close())
		}
		if err == nil && as(st) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s: %v %+v", what, err, st.Volumes)
		}
	}
}

func attachedState(want string) func(ec2sim.State) bool {
	return func(st ec2sim.State) bool {
		return len(st.Volumes) == 1 && len(st.Volumes[0].Attachments) == 1 && st.Volumes[0].Attachments[0].State == want
	}
}

// TestServeKeepsDisks: a disk outlives kill -9 of the simulator, comes back if
// its device is lost, appears and goes without anybody asking.
func TestServeKeepsDisks(t *testing.T) {
	l, url := loopback(t)
	state, dev := t.TempDir(), t.TempDir()
	file := strings.Replace(instancesFile, `"zone"`, `"devDir": "`+dev+`", "zone"`, 1)
	args := []string{"--state", state, "--instances", write(t, "i.json", file)}
	s := startServer(t, l, args...)
	c, ctx := client(url, ec2sim.AdminKey), callContext(t)
	out, err := c.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1)})
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	until(t, url, "available", func(st ec2sim.State) bool { return st.Volumes[0].State == "available" })
	if _, err := c.AttachVolume(ctx, &ec2.AttachVolumeInput{
		VolumeId: out.VolumeId, InstanceId: aws.String("i-0000000000000a001"), Device: aws.String("/dev/xvdaa")}); err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	link := filepath.Join(dev, "disk/by-id", "nvme-Amazon_Elastic_Block_Store_"+strings.ReplaceAll(*out.VolumeId, "-", ""))
	until(t, url, "the device, which nobody asks for", func(ec2sim.State) bool { _, err := os.Stat(link); return err == nil })
	until(t, url, "attached", attachedState("attached"))
	disk := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(link, os.O_RDWR|unix.O_SYNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := disk()
	if _, err := f.WriteAt([]byte("kept"), 4096); err != nil {
		t.Fatal(err)
	}
	if code := s.stop(unix.SIGKILL); code != -1 {
		t.Errorf("exit code %d of a killed process", code)
	}
	if err := errors.Join(unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0), f.Close(), os.Remove(link)); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, l, args...)
	until(t, url, "attached again", attachedState("attached"))
	f = disk()
	buf := make([]byte, 4)
	if _, err := f.ReadAt(buf, 4096); err != nil || string(buf) != "kept" {
		t.Errorf("after kill -9: %q %v", buf, err)
	}
	if _, err := c.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: out.VolumeId}); err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	until(t, url, "busy, as it is open", attachedState("busy"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, url, "detached", func(st ec2sim.State) bool { return st.Volumes[0].State == "available" })
	if _, err := c.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: out.VolumeId}); err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	until(t, url, "no volume", func(st ec2sim.State) bool { return len(st.Volumes) == 0 })
	if left, err := filepath.Glob(filepath.Join(state, "volumes", "*")); err != nil || len(left) > 0 {
		t.Errorf("left %v %v", left, err)
	}
}
