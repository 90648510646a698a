// Package faults breaks things in a real cluster while a volume is made,
// attached, mounted or copied: driver processes are killed, EC2's answers are
// lost or it asks to slow down, a node loses its power. After each test the
// Pod runs with its data and nothing is left over: EC2 has a volume for each
// PersistentVolume and no other, an attachment for each VolumeAttachment, and
// no node a mount or loop device that belongs to nothing.
//
// Faults hit whoever calls next, so these tests run one after the other.
package faults
