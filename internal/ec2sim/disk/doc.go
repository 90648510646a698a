// Package disk makes the content of simulated EBS volumes: sparse files, shown
// to an instance as loop devices in the folder that the instance sees as /dev.
//
// A volume is <dir>/volumes/<volume id>.img, a snapshot is
// <dir>/snapshots/<snapshot id>.img. An attached volume is a loop device and,
// in the instance's dev folder, the link that udev makes on Nitro instances:
//
//	disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0 -> ../../loop7
//
// Each attachment has a loop device of its own, so that two instances with one
// Multi-Attach volume do not share a cache, as real ones do not.
//
// Loop devices belong to the whole machine. Only those are touched whose
// backing file is, by device and inode, a file of ours.
package disk
