package fs

import (
	"context"
	"fmt"

	mountutils "k8s.io/mount-utils"
)

// Growth is a filesystem's size before and after.
type Growth struct {
	FromBytes, ToBytes int64
}

// Changed reports whether the filesystem is larger than before.
func (g Growth) Changed() bool { return g.ToBytes > g.FromBytes }

// Grow makes the filesystem that is mounted at path as large as its device. A
// filesystem that is as large already, and a device that is read-only, stay as
// they are.
func (m *Mounter) Grow(ctx context.Context, device, path string) (Growth, error) {
	before, err := UsageOf(path)
	if err != nil {
		return Growth{}, err
	}
	same := Growth{FromBytes: before.TotalBytes, ToBytes: before.TotalBytes}
	resizer := mountutils.NewResizeFs(withContext(ctx, m.exec))
	needed, err := resizer.NeedResize(device, path)
	if err != nil || !needed {
		return same, explainGrow(ctx, device, err)
	}
	if _, err := resizer.Resize(device, path); err != nil {
		return same, explainGrow(ctx, device, err)
	}
	after, err := UsageOf(path)
	if err != nil {
		return same, err
	}
	return Growth{FromBytes: before.TotalBytes, ToBytes: after.TotalBytes}, nil
}

// explainGrow names the device, and the context's end where that was the reason.
func explainGrow(ctx context.Context, device string, err error) error {
	if err == nil {
		return nil
	}
	return withCause(ctx, fmt.Errorf("grow the filesystem on %s: %w", device, err))
}
