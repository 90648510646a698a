// Package claim judges PersistentVolumeClaims, and claim templates with the
// same rules.
//
//	storageClass.*           the class that the claim names, looked up; a static
//	                         claim (storageClassName "") has none
//	storageClass.maxIOPS     and the VolumeAttributesClass that it names, where that is EBS's
//	attributesClass.allowed  a claim that names none keeps the rule
//	claim.minSize            at creation, and where an update makes the claim smaller
//	claim.maxSize            the size asked for, but where an update makes the claim smaller
//	claim.maxGrowthPercent   at an update, of the size asked for before
//	claim.accessModes        each mode is in the list
//	claim.volumeModes        absent is Filesystem
//	snapshots.required       a schedule copies the claim; whether its driver can make
//	                         copies is told by the status of the schedule
package claim
