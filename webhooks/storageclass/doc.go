// Package storageclass judges StorageClasses, by themselves and on behalf of
// the claims that name them.
//
//	allowed                the name is in the list
//	inTreeProvisioners     no kubernetes.io/… provisioner but no-provisioner
//	parameters             EBS classes (or those of the named provisioners) have one of the values
//	volumeBindingMode      as wanted; absent is Immediate
//	allowVolumeExpansion   true
//	reclaimPolicy          as wanted; absent is Delete
//	maxIOPS                EBS classes: iops, or iopsPerGB × the claim's size
package storageclass
