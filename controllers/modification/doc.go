// Package modification honours the older way to modify an EBS volume: annotations
// on its claim, as awslabs/volume-modifier-for-k8s reads them. For the values it
// makes a VolumeAttributesClass and sets it on the claim; the rest is Kubernetes'
// and the driver's.
//
//	annotation                     parameter
//	ebs.csi.aws.com/volumeType     type
//	ebs.csi.aws.com/iops           iops
//	ebs.csi.aws.com/throughput     throughput, in MiB/s
//
// The class is named after its values, as in holdfast-ebs-gp3-iops6000-throughput250,
// so that a policy can allow it and claims with the same values share it. It has the
// label holdfast.dev/modification, and is deleted once no claim and no volume names it.
//
//	claim                                           what is done
//	none of the annotations                         nothing: the volume stays as it is
//	being deleted, not Bound, or of another driver  nothing; a new volume is made as its
//	                                                StorageClass says, and modified once bound
//	a value that cannot be one                      told
//	its owner set a class that is not ours          told: the class is what counts
//	has that class already                          nothing
//	a modification is under way                     waits for it
//	guardrails refuse the class, or its IOPS        told
//	modified too often within a day                 told, and done later
//	somebody refused that class a moment ago        told, and asked for again after 10 minutes
//	else                                            class made, then set on the claim
//
// Killed between the two, the next sweep finds the class by its name. A value that
// the driver refuses shows on the claim as Infeasible, with the resizer's event.
package modification
