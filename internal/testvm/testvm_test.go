package testvm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

// unpack reads an archive as the kernel does: header, name and content, each
// filled up to four bytes.
func unpack(t *testing.T, data []byte) (names []string, contents map[string]string) {
	t.Helper()
	contents = map[string]string{}
	number := func(at, field int) int {
		n, err := strconv.ParseInt(string(data[at+6+8*field:at+14+8*field]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	up := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; at < len(data); {
		if string(data[at:at+6]) != "070701" {
			t.Fatalf("no header at byte %d", at)
		}
		size, nameSize := number(at, 6), number(at, 11)
		name := string(data[at+110 : at+110+nameSize-1])
		content := up(at + 110 + nameSize)
		if name == "TRAILER!!!" {
			return names, contents
		}
		names = append(names, name)
		contents[name] = string(data[content : content+size])
		at = up(content + size)
	}
	t.Fatal("no trailer")
	return nil, nil
}

func TestArchive(t *testing.T) {
	var out bytes.Buffer
	a := newArchive(&out)
	a.file("/usr/bin/a", []byte("12345"))
	a.file("/usr/bin/bc", nil)
	a.char("/dev/console", 5, 1)
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	names, contents := unpack(t, out.Bytes())
	// Folders come before what is in them, once: the kernel makes none by itself.
	if diff := cmp.Diff([]string{"usr", "usr/bin", "usr/bin/a", "usr/bin/bc", "dev", "dev/console"}, names); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	if contents["usr/bin/a"] != "12345" || contents["usr/bin/bc"] != "" {
		t.Errorf("contents %q", contents)
	}
}

// failing is a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestArchiveFails(t *testing.T) {
	a := newArchive(failing{})
	a.file("/a", []byte("x"))
	if err := a.end(); err == nil {
		t.Error("an archive that could not be written must say so")
	}
}

func TestLineWriter(t *testing.T) {
	var lines []string
	w := &lineWriter{emit: func(line string) { lines = append(lines, line) }}
	for _, part := range []string{"one\r\ntw", "o\n", "\nrest"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if diff := cmp.Diff([]string{"one", "two", ""}, lines); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
}

// qemu plays QEMU's monitor: it answers every command, refuses those in
// refused, and says an event before each answer.
func qemu(t *testing.T, refused string) (*monitor, *[]string) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	var commands []string
	go func() {
		fmt.Fprintln(theirs, `{"QMP": {}}`)
		lines := bufio.NewScanner(theirs)
		for lines.Scan() {
			var said struct {
				Execute   string
				Arguments map[string]any
			}
			if json.Unmarshal(lines.Bytes(), &said) != nil {
				return
			}
			commands = append(commands, said.Execute)
			fmt.Fprintln(theirs, `{"event": "NICE_TO_KNOW"}`)
			if said.Execute == refused {
				fmt.Fprintln(theirs, `{"error": {"desc": "not today"}}`)
				continue
			}
			fmt.Fprintln(theirs, `{"return": {}}`)
			if said.Execute == "device_del" {
				fmt.Fprintf(theirs, `{"event": "DEVICE_DELETED", "data": {"device": %q}}`+"\n", said.Arguments["id"])
			}
		}
	}()
	m, err := newMonitor(ours)
	if err != nil {
		t.Fatal(err)
	}
	return m, &commands
}

func TestDisks(t *testing.T) {
	m, commands := qemu(t, "")
	d := newDisks(t.TempDir(), m)
	ask := func(r wire.Request, wantError string) wire.Answer {
		t.Helper()
		answer := d.handle(t.Context(), r)
		if wantError == "" && answer.Error != "" || !strings.Contains(answer.Error, wantError) {
			t.Errorf("%+v: want error %q, got %q", r, wantError, answer.Error)
		}
		return answer
	}
	ask(wire.Request{Do: wire.Attach, Disk: "a", Serial: "vol1", SizeBytes: 1 << 20}, "")
	ask(wire.Request{Do: wire.Attach, Disk: "a", Serial: "vol1"}, "attached already")
	ask(wire.Request{Do: wire.Detach, Disk: "b"}, "not attached")
	for i := 1; i < ports; i++ {
		ask(wire.Request{Do: wire.Attach, Disk: fmt.Sprint("more", i), SizeBytes: 1}, "")
	}
	ask(wire.Request{Do: wire.Attach, Disk: "z"}, "ports are taken")
	ask(wire.Request{Do: wire.Detach, Disk: "a"}, "")
	ask(wire.Request{Do: wire.Attach, Disk: "a", SizeBytes: 2 << 20}, "")
	ask(wire.Request{Do: "dance"}, "unknown request")
	if info, err := os.Stat(d.file("a")); err != nil || info.Size() != 2<<20 {
		t.Errorf("a disk that comes back larger must have grown: %v, %v", info, err)
	}
	sum := ask(wire.Request{Do: wire.Checksum, Disk: "a"}, "").Checksum
	if err := os.WriteFile(d.file("a"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := ask(wire.Request{Do: wire.Checksum, Disk: "a"}, "").Checksum; again == sum || len(sum) != 64 {
		t.Errorf("the checksum must tell the content: %q, %q", sum, again)
	}
	ask(wire.Request{Do: wire.Copy, From: "a", Disk: "copy"}, "")
	if copied := ask(wire.Request{Do: wire.Checksum, Disk: "copy"}, "").Checksum; copied != ask(wire.Request{Do: wire.Checksum, Disk: "a"}, "").Checksum {
		t.Error("a copy must have the same content")
	}
	ask(wire.Request{Do: wire.Copy, From: "a", Disk: "copy"}, "exists")
	if got := strings.Join((*commands)[:4], " "); got != "qmp_capabilities blockdev-add device_add blockdev-add" {
		t.Errorf("QEMU was told %q", got)
	}
}

// TestDiskRefused: what QEMU does not plug in is not attached and leaves no
// backend behind.
func TestDiskRefused(t *testing.T) {
	m, commands := qemu(t, "device_add")
	d := newDisks(t.TempDir(), m)
	answer := d.handle(t.Context(), wire.Request{Do: wire.Attach, Disk: "a", SizeBytes: 1})
	if !strings.Contains(answer.Error, "not today") || len(d.attached) != 0 {
		t.Errorf("got %+v, %v", answer, d.attached)
	}
	if last := (*commands)[len(*commands)-1]; last != "blockdev-del" {
		t.Errorf("the backend must be removed, the last command was %s", last)
	}
}

func TestServeRequests(t *testing.T) {
	m, _ := qemu(t, "")
	for name, tc := range map[string]struct {
		says string
		code int
		ok   bool
	}{
		"end":           {`{"do":"exit","code":3}`, 3, true},
		"no end":        {"", -1, false},
		"not a request": {"oops", -1, false},
	} {
		conn := struct {
			*strings.Reader
			writer
		}{strings.NewReader(tc.says + "\n"), writer{&bytes.Buffer{}}}
		code, err := serveRequests(t.Context(), conn, newDisks(t.TempDir(), m))
		if code != tc.code || (err == nil) != tc.ok {
			t.Errorf("%s: got %d, %v", name, code, err)
		}
	}
}

// writer is the sending half of a connection.
type writer struct{ to *bytes.Buffer }

func (w writer) Write(p []byte) (int, error) { return w.to.Write(p) }

func TestFindKernelFromEnvironment(t *testing.T) {
	t.Setenv("HOLDFAST_VM_KERNEL", "/boot/vmlinuz")
	t.Setenv("HOLDFAST_VM_MODULES", "")
	if _, err := FindKernel(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "HOLDFAST_VM_MODULES") {
		t.Errorf("want an error that names what is missing, got %v", err)
	}
	t.Setenv("HOLDFAST_VM_MODULES", "/lib/modules/6")
	got, err := FindKernel(t.Context(), t.TempDir())
	if err != nil || got != (Kernel{Image: "/boot/vmlinuz", Modules: "/lib/modules/6"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestKernelIn(t *testing.T) {
	dir := t.TempDir()
	if _, err := kernelIn(dir); err == nil {
		t.Error("an empty folder holds no kernel")
	}
	for _, path := range []string{"boot/vmlinuz-6.1", "usr/lib/modules/6.1/kernel/a.ko"} {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := kernelIn(dir)
	if err != nil || filepath.Base(got.Image) != "vmlinuz-6.1" || got.Modules != filepath.Join(dir, "usr/lib/modules/6.1") {
		t.Errorf("got %+v, %v", got, err)
	}
}
