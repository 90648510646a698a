package ebs

// Tags by which a volume or snapshot is found again under its CSI name. AWS's
// driver sets the same.
const (
	TagVolumeName   = "CSIVolumeName"
	TagSnapshotName = "CSIVolumeSnapshotName"
)
