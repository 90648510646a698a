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

// Tags by which the snapshots of a group are found again under its CSI name, and
// by which a group of other volumes is told. AWS's driver knows no groups.
const (
	TagGroupName    = "ebs.csi.aws.com/group-snapshot-name"
	TagGroupVolumes = "ebs.csi.aws.com/group-snapshot-volumes"
)

// Tags that remember how many IOPS a volume has for each GiB and, if "true",
// that they grow with its size. AWS's driver keeps both on the volume too
// (kubernetes-sigs/aws-ebs-csi-driver#2635): a request to grow says nothing of
// them.
const (
	TagIOPSPerGiB = "ebs.csi.aws.com/IOPSPerGb"
	TagAutoIOPS   = "ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify"
)
