package driver

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// A class's wishes for mkfs travel from CreateVolume to NodeStageVolume in the
// volume context, under the keys of AWS's driver, which are those of the class in
// small letters: volumes that either driver made can be staged by the other.

// formatTable holds the options of mkfs. A StorageClass and a volume context are
// read by it alike, since a PV is written by users too.
var formatTable = []parameter[fs.FormatOptions]{
	{"blockSize", formatSize, sizeOption(func(o *fs.FormatOptions) *int64 { return &o.BlockBytes })},
	{"inodeSize", formatSize, sizeOption(func(o *fs.FormatOptions) *int64 { return &o.InodeBytes })},
	{"bytesPerInode", formatSize, sizeOption(func(o *fs.FormatOptions) *int64 { return &o.BytesPerInode })},
	{"numberOfInodes", "a whole number above 0", sizeOption(func(o *fs.FormatOptions) *int64 { return &o.Inodes })},
	{"ext4BigAlloc", boolValues, boolOption(func(o *fs.FormatOptions) *bool { return &o.BigAlloc })},
	{"ext4ClusterSize", formatSize, sizeOption(func(o *fs.FormatOptions) *int64 { return &o.ClusterBytes })},
	{"ext4EncryptionSupport", boolValues, boolOption(func(o *fs.FormatOptions) *bool { return &o.Encrypt })},
}

// formatSize completes "allowed is …".
const formatSize = "a number of bytes above 0, also with K or M behind it"

func sizeOption(field func(o *fs.FormatOptions) *int64) func(o *fs.FormatOptions, _, v string) error {
	return func(o *fs.FormatOptions, _, v string) (err error) {
		if v != "" { // a template that fills in nothing means the default
			*field(o), err = parseFormatSize(v)
		}
		return err
	}
}

func boolOption(field func(o *fs.FormatOptions) *bool) func(o *fs.FormatOptions, _, v string) error {
	return func(o *fs.FormatOptions, _, v string) (err error) {
		*field(o), err = parseBool(v)
		return err
	}
}

// parseFormatSize takes digits, with the units that both mke2fs and mkfs.xfs
// know. A sign, a blank or anything else is none of them.
func parseFormatSize(v string) (int64, error) {
	shift := 0
	digits := v
	switch v[len(v)-1] {
	case 'k', 'K':
		shift, digits = 10, v[:len(v)-1]
	case 'm', 'M':
		shift, digits = 20, v[:len(v)-1]
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || n > math.MaxInt64>>shift {
		return 0, errValue
	}
	return int64(n) << shift, nil
}

// withFormat makes the rows of formatTable those of another table.
func withFormat[T any](table []parameter[T], options func(p *T) *fs.FormatOptions) []parameter[T] {
	for _, row := range formatTable {
		table = append(table, parameter[T]{row.key, row.allowed, func(p *T, key, v string) error { return row.parse(options(p), key, v) }})
	}
	return table
}

// checkFormat judges the options of mkfs for all that a volume is wanted to be;
// a size of 0 is not known.
func checkFormat(o fs.FormatOptions, caps []*csi.VolumeCapability, size ebs.GiB) error {
	if o == (fs.FormatOptions{}) {
		return nil
	}
	for _, c := range caps {
		if c.GetBlock() != nil {
			return invalid("parameters %s: a raw block volume has no filesystem, take a class without them", strings.Join(optionsOf(o), ", "))
		}
		fsType, err := fs.ParseType(c.GetMount().GetFsType())
		if err != nil {
			return invalid("%w", err)
		}
		if err := o.Check(fsType, size.Bytes()); err != nil {
			return invalid("filesystem %s: %w", fsType, err)
		}
	}
	return nil
}

// formatContext is the volume context that tells the node, nil for mkfs's own choice.
func formatContext(o fs.FormatOptions) map[string]string {
	context := map[string]string{}
	number := func(key string, n int64) {
		if n != 0 {
			context[key] = strconv.FormatInt(n, 10)
		}
	}
	flag := func(key string, set bool) {
		if set {
			context[key] = "true"
		}
	}
	number("blocksize", o.BlockBytes)
	number("inodesize", o.InodeBytes)
	number("bytesperinode", o.BytesPerInode)
	number("numberofinodes", o.Inodes)
	flag("ext4bigalloc", o.BigAlloc)
	number("ext4clustersize", o.ClusterBytes)
	flag("ext4encryptionsupport", o.Encrypt)
	if len(context) == 0 {
		return nil
	}
	return context
}

// optionsOf names the options that are set, as a class does.
func optionsOf(o fs.FormatOptions) []string {
	context := formatContext(o)
	var set []string
	for _, row := range formatTable {
		if context[strings.ToLower(row.key)] != "" {
			set = append(set, row.key)
		}
	}
	return set
}

// parseFormatContext reads the options out of a volume context and judges them
// for the filesystem that is to be staged. What else is in there is not ours.
func parseFormatContext(volumeContext map[string]string, fsType fs.Type) (fs.FormatOptions, error) {
	ours := map[string]string{}
	for key, value := range volumeContext {
		if _, known := findParameter(formatTable, strings.ToLower(key)); known {
			ours[key] = value
		}
	}
	var o fs.FormatOptions
	if err := parseParameters(formatTable, ours, &o); err != nil {
		return fs.FormatOptions{}, fmt.Errorf("volume context: %w", err)
	}
	if err := o.Check(fsType, 0); err != nil {
		return fs.FormatOptions{}, invalid("volume context, filesystem %s: %w", fsType, err)
	}
	return o, nil
}
