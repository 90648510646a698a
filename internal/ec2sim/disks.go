package ec2sim

// Disks makes the content of volumes and snapshots and shows volumes to
// instances. Sizes are bytes. Every method may be repeated after a crash with
// the same outcome. disk.Files is the one with sparse files and loop devices;
// without Disks the simulator keeps records only.
type Disks interface {
	// CreateVolume makes the content of a volume: zeros, or for a snapshot
	// that is not "" the snapshot's content and zeros behind it.
	CreateVolume(volumeID, snapshotID string, size int64) error
	// CopyVolume makes the content of a volume from that of another as it is
	// at one point in time, zeros behind it.
	CopyVolume(sourceID, volumeID string, size int64) error
	// Grow makes a volume larger, also while it is attached.
	Grow(volumeID string, size int64) error
	// DeleteVolume removes the content of a volume that is attached nowhere.
	DeleteVolume(volumeID string) error
	// CreateSnapshots copies volumes (by the id of the snapshot that each
	// becomes) as they are together at one point in time. After an error there
	// is none of them.
	CreateSnapshots(volumeOf map[string]string) error
	// DeleteSnapshot removes the content of a snapshot.
	DeleteSnapshot(snapshotID string) error
	// Attach shows the volume in the dev folder of an instance.
	Attach(volumeID, devDir string) error
	// Detach takes it away. It is false while the instance still uses the
	// device; with force the device goes at once.
	Detach(volumeID, devDir string, force bool) (bool, error)
	// Vacant fails where there is any content. It is asked before records are
	// begun: what is there then is somebody's, and no record says whose.
	Vacant() error
	// Reconcile, called once before all else but Vacant, brings the machine
	// to what the records say: volumes with the dev folders they are attached
	// to, and snapshots. Content and devices of volumes that are not among
	// them go, if their names are such as the simulator gives.
	Reconcile(volumes map[string][]string, snapshots []string) error
}

// noDisks keeps no content and shows no devices.
type noDisks struct{}

func (noDisks) CreateVolume(string, string, int64) error      { return nil }
func (noDisks) CopyVolume(string, string, int64) error        { return nil }
func (noDisks) Grow(string, int64) error                      { return nil }
func (noDisks) DeleteVolume(string) error                     { return nil }
func (noDisks) CreateSnapshots(map[string]string) error       { return nil }
func (noDisks) DeleteSnapshot(string) error                   { return nil }
func (noDisks) Attach(string, string) error                   { return nil }
func (noDisks) Detach(string, string, bool) (bool, error)     { return true, nil }
func (noDisks) Vacant() error                                 { return nil }
func (noDisks) Reconcile(map[string][]string, []string) error { return nil }
