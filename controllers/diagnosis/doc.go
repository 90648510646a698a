// Package diagnosis looks for storage that is stuck or forgotten, counts it, and
// tells the likely reason by an event on the object. It changes nothing.
//
//	what                                         counted when          reason
//	claim Pending                                older than 15 minutes NoClass, ClassNotFound, NoPod,
//	                                                                   NotProvisioned, NoVolume
//	claim Terminating                            for over 15 minutes   HeldByPod, HeldBySnapshot,
//	                                                                   HeldByFinalizer
//	VolumeAttachment of a node that is not there at once               –
//	PersistentVolume Released or Failed          at once               –
//	claim unused, by its condition Unused        for over a week       –
//
// The reasons, in the order in which they are looked for:
//
//	NoClass          it names no class and none is marked as default, or names "" and
//	                 no volume fits
//	ClassNotFound    there is no class of its name
//	NoPod            its class waits for the first consumer, and no Pod names it: nothing
//	                 is wrong yet, and no alert is about it
//	NotProvisioned   the provisioner has not made a volume; its last event says why
//	NoVolume         its class makes none (kubernetes.io/no-provisioner), and none fits
//	HeldByPod        a Pod names it
//	HeldBySnapshot   a snapshot of it is being taken
//	HeldByFinalizer  something else, by the finalizers
//
// The condition Unused is Kubernetes' own (1.37 and newer, KEP-5541). Where it is
// not served, no claim is counted as idle.
package diagnosis
