// Package guest is the part of package testvm that runs inside the machine: as
// pid 1 it prepares the machine and starts the tests, and in the tests it asks
// the host for disks.
package guest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

// Main is for TestMain: as pid 1 it is the machine's init, else it runs the
// tests.
func Main(m *testing.M) {
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	code, err := initMachine()
	if err != nil {
		fmt.Fprintln(os.Stderr, "test machine:", err)
		code = 1
	}
	if err := send(wire.Request{Do: wire.Exit, Code: code}); err != nil {
		fmt.Fprintln(os.Stderr, "test machine: report the end:", err)
	}
	drain(os.Stdout)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// mountPoints are what programs expect to find.
var mountPoints = []struct{ kind, at, options string }{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"tmpfs", "/tmp", ""},
	{"tmpfs", "/run", ""},
	{"cgroup2", "/sys/fs/cgroup", ""},
}

// initMachine prepares the machine and runs the tests; it returns their exit
// status.
func initMachine() (int, error) {
	for _, m := range mountPoints {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			return 0, fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := loadModules(); err != nil {
		return 0, err
	}
	// The tests' mounts propagate nowhere, as in a container.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("make mounts private: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "TMPDIR=/tmp"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// loadModules loads /modules in the order of its names.
func loadModules() error {
	files, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := unix.InitModule(content, ""); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return nil
}

// port is the machine's second serial port.
const port = "/dev/ttyS1"

// channel is the connection to the host: opened once, one request at a time.
var channel struct {
	sync.Mutex
	file   *os.File
	reader *bufio.Reader
}

// Ask asks the host and waits for its answer.
func Ask(r wire.Request) (wire.Answer, error) {
	channel.Lock()
	defer channel.Unlock()
	if err := sendLocked(r); err != nil {
		return wire.Answer{}, err
	}
	line, err := channel.reader.ReadBytes('\n')
	if err != nil {
		return wire.Answer{}, fmt.Errorf("answer to %s: %w", r.Do, err)
	}
	var answer wire.Answer
	if err := json.Unmarshal(line, &answer); err != nil {
		return wire.Answer{}, fmt.Errorf("answer %q to %s: %w", strings.TrimSpace(string(line)), r.Do, err)
	}
	if answer.Error != "" {
		return wire.Answer{}, fmt.Errorf("host: %s", answer.Error)
	}
	return answer, nil
}

// send sends a request that has no answer.
func send(r wire.Request) error {
	channel.Lock()
	defer channel.Unlock()
	return sendLocked(r)
}

func sendLocked(r wire.Request) error {
	if channel.file == nil {
		file, err := openRaw(port)
		if err != nil {
			return err
		}
		channel.file, channel.reader = file, bufio.NewReader(file)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = channel.file.Write(append(data, '\n'))
	drain(channel.file)
	return err
}

// drain waits until a serial port has sent everything: what it still holds
// when the machine goes off is lost.
func drain(file *os.File) {
	_ = unix.IoctlSetInt(int(file.Fd()), unix.TCSBRK, 1)
}

// openRaw opens a serial port without echo and line editing.
func openRaw(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	fd := int(file.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("settings of %s: %w", path, err), file.Close())
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return nil, errors.Join(fmt.Errorf("settings of %s: %w", path, err), file.Close())
	}
	return file, nil
}
