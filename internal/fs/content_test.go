package fs

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilexec "k8s.io/utils/exec"
)

// TestDecide is the table of the package comment.
func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		why      string
		found    content
		want     Type
		readOnly bool
		do       action
		as       Type
		err      error
	}{
		"empty":                {"an empty device gets the wanted filesystem", content{}, XFS, false, format, XFS, nil},
		"empty, read-only":     {"read-only access makes nothing", content{}, Ext4, true, refuse, "", ErrContent},
		"same":                 {"what is there is mounted", content{filesystem: "ext4"}, Ext4, false, mountIt, Ext4, nil},
		"same, read-only":      {"reading needs no more", content{filesystem: "xfs"}, XFS, true, mountIt, XFS, nil},
		"ext3 for ext4":        {"an older snapshot under a newer class", content{filesystem: "ext3"}, Ext4, false, mountIt, Ext3, nil},
		"ext4 for ext3":        {"ext3 cannot mount what ext4 may have written", content{filesystem: "ext4"}, Ext3, false, refuse, "", ErrContent},
		"other":                {"data of another filesystem is data", content{filesystem: "xfs"}, Ext4, false, refuse, "", ErrContent},
		"LUKS":                 {"encrypted data is data", content{filesystem: "crypto_LUKS"}, Ext4, false, refuse, "", ErrContent},
		"partitions":           {"a partitioned disk is in use", content{partitions: "gpt"}, Ext4, false, refuse, "", ErrContent},
		"partitions besides":   {"a partition table beside a filesystem is no plain filesystem", content{filesystem: "ext4", partitions: "dos"}, Ext4, false, refuse, "", ErrContent},
		"remains":              {"a filesystem without its head can be saved", content{remains: &remains{offset: 1, used: true}}, Ext4, false, refuse, "", ErrContent},
		"remains of mkfs":      {"what nobody ever mounted holds nothing", content{remains: &remains{offset: 1}}, Ext4, false, format, Ext4, nil},
		"unfinished":           {"mkfs that was cut off is done again", content{filesystem: "xfs", unfinished: true}, XFS, false, reformat, XFS, nil},
		"unfinished, other":    {"nothing was ever in it, whatever it was to be", content{filesystem: "xfs", unfinished: true}, Ext4, false, reformat, Ext4, nil},
		"unfinished read-only": {"read-only access repairs nothing", content{filesystem: "xfs", unfinished: true}, XFS, true, refuse, "", ErrContent},
	} {
		t.Run(name, func(t *testing.T) {
			do, as, err := decide(tc.found, tc.want, tc.readOnly)
			if do != tc.do || as != tc.as || !errors.Is(err, tc.err) {
				t.Errorf("%s: want %v %q %v, got %v %q %v", tc.why, tc.do, tc.as, tc.err, do, as, err)
			}
		})
	}
}

func TestParseBlkid(t *testing.T) {
	exit := func(status int) error { return utilexec.CodeExitError{Err: errors.New("exit"), Code: status} }
	for name, tc := range map[string]struct {
		why  string
		out  string
		err  error
		want content
		is   error
	}{
		"filesystem": {"the usual answer", "DEVNAME=/dev/x\nTYPE=ext4\n", nil, content{filesystem: "ext4"}, nil},
		"partitions": {"a table alone", "DEVNAME=/dev/x\nPTTYPE=gpt\n", nil, content{partitions: "gpt"}, nil},
		"both":       {"both are kept", "TYPE=vfat\nPTTYPE=dos\n", nil, content{filesystem: "vfat", partitions: "dos"}, nil},
		"nothing":    {"status 2 is nothing found", "", exit(2), content{}, nil},
		"ambivalent": {"status 8 is never taken for empty", "ambivalent result", exit(8), content{}, ErrUnreadable},
		"other":      {"any other failure is never taken for empty", "", exit(1), content{}, ErrUnreadable},
		"no program": {"a missing blkid is never taken for empty", "", utilexec.ErrExecutableNotFound, content{}, ErrUnreadable},
		"partition":  {"an empty partition has an entry in the table and nothing else", "DEVNAME=/dev/x1\nPART_ENTRY_SCHEME=dos\nPART_ENTRY_NUMBER=1\n", nil, content{}, nil},
		"strange":    {"something without a type is never taken for empty", "DEVNAME=/dev/x\nUUID=1\nUSAGE=other\n", nil, content{}, ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseBlkid(tc.out, tc.err)
			if !errors.Is(err, tc.is) {
				t.Errorf("%s: want error %v, got %v", tc.why, tc.is, err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(content{}, remains{})); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestXFSUnfinished(t *testing.T) {
	superblock := func(magic uint32, flag byte) []byte {
		head := make([]byte, 512)
		binary.BigEndian.PutUint32(head, magic)
		head[126] = flag
		return head
	}
	for name, tc := range map[string]struct {
		head []byte
		want bool
	}{
		"in progress": {superblock(0x58465342, 1), true},
		"complete":    {superblock(0x58465342, 0), false},
		"not xfs":     {superblock(0x12345678, 1), false},
		"short":       {[]byte("XFSB"), false},
	} {
		if got := xfsUnfinished(tc.head); got != tc.want {
			t.Errorf("%s: want %t, got %t", name, tc.want, got)
		}
	}
}

func TestReadEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	data := make([]byte, 1<<20)
	data[0], data[headBytes] = 1, 2
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	head, err := readEnds(path)
	if err != nil || len(head) != headBytes || head[0] != 1 {
		t.Errorf("want the first %d bytes, got %d, %v", headBytes, len(head), err)
	}
	if err := clearHead(path); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil || after[0] != 0 || after[headBytes] != 2 || len(after) != len(data) {
		t.Errorf("clearing the head must clear that alone: %v %v %v", after[0], after[headBytes], err)
	}
	if _, err := readEnds(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent device is no empty one, got %v", err)
	}
}
