// Package pki makes the keys and certificates of one sandbox: an authority, what
// it signs for the control plane, kubelets and clients, and the pair that signs
// service account tokens.
//
// Everything is a file in one folder, <name>.key and <name>.crt in PEM, readable
// by its owner. They are made once, for ten years, for a cluster that nobody but
// this machine can reach.
package pki
