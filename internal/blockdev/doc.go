// Package blockdev finds the block device of an EBS volume on this instance
// and proves that it is the right one.
//
// A device is looked for, then proved, and only a proved device is handed
// out: who formats or mounts it need not ask again. What counts as proof is
// the Identity:
//
//	identity           found by                                   proved by
//	nvme               by-id link, else the serials of all        serial number = volume id
//	                   NVMe disks (there may be no udev)          without its dash
//	xen                the attachment's device name               name and the Xen block driver
//	loop-backing-file  by-id link                                 base name of the backing file
//	                                                              = volume id + ".img"
//
// A link that leads to another volume's disk is refused at once and nothing
// else is searched: two pieces of evidence disagree, and the caller's next try
// comes when udev has caught up. A device that is not there yet is waited for.
//
// Sources: "Identify the EBS device" and "Device names" in the Amazon EBS User
// Guide (an EBS volume's NVMe serial number is its id without the dash; udev's
// link is nvme-Amazon_Elastic_Block_Store_<serial>); Linux,
// Documentation/ABI/stable/sysfs-block (size in 512-byte sectors, dev, ro).
package blockdev
