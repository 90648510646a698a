// Package diagnosis looks for storage that is stuck or forgotten, counts it, and
// tells the likely reason by an event on the object. It changes nothing.
//
//	what                                         counted when          reason
//	claim Pending                                for over 15 minutes   NoClass, ClassNotFound, NoPod,
//	                                                                   NotScheduled, NotProvisioned,
//	                                                                   NoVolume
//	claim Terminating                            for over 15 minutes   HeldByPod, HeldBySnapshot,
//	                                                                   HeldByFinalizer
//	claim Lost                                   at once               VolumeGone
//	VolumeAttachment of a node that is not there at once               NodeGone
//	PersistentVolume Released or Failed          at once               Retained, NotDeleted
//	claim unused, by its condition Unused        for over a week       Idle
//
// What is stuck is told once an hour, what is forgotten (the last two) once a day.
// Attachments and volumes are told of once they have lasted for 15 minutes: where a
// node or a claim goes, most follow by themselves.
//
// The reasons, in the order in which they are looked for:
//
//	NoVolume         it names a volume, which is not there or does not fit
//	NoClass          it names no class and none is marked as default, or names "" and
//	                 no volume fits
//	ClassNotFound    there is no class of its name, and no volume fits
//	NoPod            its class waits for the first consumer, and no Pod names it: nothing
//	                 is wrong yet, and no alert is about it
//	NoVolume         its class makes none (kubernetes.io/no-provisioner), and none fits
//	NotScheduled     its class waits for the first consumer, and the scheduler has
//	                 found no node for that: the last warning about claim or Pod says why
//	NotProvisioned   the provisioner has not made a volume; the last warning says why
//	VolumeGone       it was bound, and its volume is not there or another's
//	HeldByPod        a Pod names it
//	HeldBySnapshot   a snapshot of it is being taken
//	HeldByFinalizer  something else, by the finalizers
//
// A claim whose class waits for the first consumer has waited since its oldest Pod
// was made: nobody was asked for a volume before.
//
// The condition Unused is Kubernetes' own (1.37 and newer, KEP-5541). Where it is
// not served, no claim is counted as idle.
package diagnosis
