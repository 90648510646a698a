// Package claim judges PersistentVolumeClaims, and claim templates with the
// same rules.
//
//	storageClass.*           the class that the claim names, looked up; a static
//	                         claim (storageClassName "") has none
//	attributesClass.allowed  a claim that names none keeps the rule
//	claim.minSize            at creation, and where an update makes the claim smaller
//	claim.maxSize            the size asked for
//	claim.maxGrowthPercent   at an update, of the size asked for before
//	claim.accessModes        each mode is in the list
//	claim.volumeModes        absent is Filesystem
package claim
