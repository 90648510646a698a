// Package fs puts filesystems on proved block devices, mounts, checks and
// grows them, through k8s.io/mount-utils and the distribution's own tools.
//
// What a device holds decides what may be done with it:
//
//	blkid says                     read-write                        read-only
//	nothing, device readable       mkfs, mount                       refuse
//	nothing, device unreadable     refuse (ErrUnreadable)            refuse
//	the wanted filesystem          fsck -a, mount, grow              mount
//	ext3 where ext4 is wanted      fsck -a, mount as it is, grow     mount as it is
//	nothing, copy of an ext superblock
//	of a filesystem that was used  refuse (ErrContent)               refuse
//	xfs that mkfs left unfinished  mkfs again, mount                 refuse
//	another filesystem             refuse (ErrContent)               refuse
//	partitions, LUKS, LVM, swap    refuse (ErrContent)               refuse
//	an error, an ambivalent answer refuse (ErrUnreadable)            refuse
//
// Nothing is ever formatted but in the first row and that of the unfinished
// xfs, also where the device cannot be read any more a moment later; and a
// filesystem that fsck cannot repair by itself (ErrDamaged) stays as it is.
//
// Options of mkfs (FormatOptions) act in those rows alone: what has a filesystem
// keeps it as it is, so that volumes restored from one class's snapshot under
// another class differ from that class and work.
//
// Tools: blkid, mkfs.ext3, mkfs.ext4, mkfs.xfs, fsck and its helpers, mount,
// umount, blockdev, resize2fs, xfs_growfs. The names are taken from PATH.
package fs
