package ebs

// Tags by which a volume or snapshot is found again under its CSI name. AWS's
// driver sets the same.
const (
	TagVolumeName   = "CSIVolumeName"
	TagSnapshotName = "CSIVolumeSnapshotName"
)

// The tag of everything that the driver makes. AWS's driver sets the same, and
// IAM policies ask for it.
const (
	TagManaged      = "ebs.csi.aws.com/cluster"
	TagManagedValue = "true"
)
