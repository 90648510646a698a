package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cniFolders are where distributions put the CNI plugins.
var cniFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// requirement is a program of the distribution, and Debian's package for it.
type requirement struct {
	program string
	pkg     string
	folders []string // where to look; default: the path
}

// requirements are the programs that a sandbox takes from the distribution.
var requirements = []requirement{
	{program: "runc", pkg: "runc"},
	{program: "nft", pkg: "nftables"},
	{program: "ptp", pkg: "containernetworking-plugins", folders: cniFolders},
	{program: "host-local", pkg: "containernetworking-plugins", folders: cniFolders},
	{program: "loopback", pkg: "containernetworking-plugins", folders: cniFolders},
	{program: "mount", pkg: "mount"},
	{program: "losetup", pkg: "mount"},
	{program: "blkid", pkg: "util-linux"},
	{program: "mkfs.ext4", pkg: "e2fsprogs"},
	{program: "mkfs.xfs", pkg: "xfsprogs"},
}

// searchPath is where programs of the distribution are, also for a caller whose
// own path lacks the folders for administrators.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// preflight refuses a machine on which a sandbox cannot work.
func preflight() error {
	if os.Geteuid() != 0 {
		return errors.New("a sandbox needs root, for namespaces, mounts and loop devices: run this with sudo")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return fmt.Errorf("a sandbox needs loop devices for its disks: %w; try `modprobe loop`", err)
	}
	return missingPrograms(requirements, func(r requirement) bool {
		folders := r.folders
		if len(folders) == 0 {
			folders = append(filepath.SplitList(os.Getenv("PATH")), filepath.SplitList(searchPath)...)
		}
		return slices.ContainsFunc(folders, func(dir string) bool {
			_, err := exec.LookPath(filepath.Join(dir, r.program))
			return err == nil
		})
	})
}

// missingPrograms names everything that is not there, and how to get it.
func missingPrograms(all []requirement, have func(requirement) bool) error {
	var programs, packages []string
	for _, r := range all {
		if have(r) {
			continue
		}
		programs = append(programs, r.program)
		if !slices.Contains(packages, r.pkg) {
			packages = append(packages, r.pkg)
		}
	}
	if len(programs) == 0 {
		return nil
	}
	return fmt.Errorf("this machine lacks %s: install with `apt-get install -y %s`",
		strings.Join(programs, ", "), strings.Join(packages, " "))
}
