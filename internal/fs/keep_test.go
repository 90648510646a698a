package fs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	utilexec "k8s.io/utils/exec"
)

// forgetful is an exec whose blkid finds something at its first look only, as
// with a device that fails in between: blkid's exit status is then 2, the same
// as for an empty one.
type forgetful struct {
	utilexec.Interface
	looks int
}

func (f *forgetful) Command(cmd string, args ...string) utilexec.Cmd {
	return f.CommandContext(context.Background(), cmd, args...)
}

func (f *forgetful) CommandContext(ctx context.Context, cmd string, args ...string) utilexec.Cmd {
	if cmd == "blkid" {
		if f.looks++; f.looks > 1 {
			return f.Interface.CommandContext(ctx, "sh", "-c", "exit 2")
		}
	}
	return f.Interface.CommandContext(ctx, cmd, args...)
}

// TestMountKeepsWhatWasThere: what held a filesystem at our look is never
// formatted, whatever mount-utils' own look says.
func TestMountKeepsWhatWasThere(t *testing.T) {
	device := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(device, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", device).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	before, err := os.ReadFile(device)
	if err != nil {
		t.Fatal(err)
	}

	mounts := &recorder{}
	m := &Mounter{mounter: mounts, exec: &forgetful{Interface: utilexec.New()}}
	_, err = m.Mount(t.Context(), Request{Device: device, Target: filepath.Join(t.TempDir(), "at"), Type: Ext4})
	if !errors.Is(err, ErrUnreadable) || mounts.mounted {
		t.Errorf("want ErrUnreadable and no mount, got %v, mounted %t", err, mounts.mounted)
	}
	after, err := os.ReadFile(device)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the filesystem was written to")
	}
}
