package fs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Usage is how full a filesystem is.
type Usage struct {
	TotalBytes, UsedBytes, AvailableBytes int64
	TotalInodes, UsedInodes, FreeInodes   int64
}

// UsageOf asks the filesystem mounted at path. Available is what an ordinary
// user may still write; used and available do not add up to the total where
// blocks are reserved (statfs(2)).
func UsageOf(path string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	block := s.Bsize
	return Usage{
		TotalBytes:     int64(s.Blocks) * block,
		UsedBytes:      int64(s.Blocks-s.Bfree) * block,
		AvailableBytes: int64(s.Bavail) * block,
		TotalInodes:    int64(s.Files),
		UsedInodes:     int64(s.Files - s.Ffree),
		FreeInodes:     int64(s.Ffree),
	}, nil
}
