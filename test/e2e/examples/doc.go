// Package examples applies every folder of examples/ to a real cluster, from
// its own files and in the order of its README, and checks what the README
// promises: the data by checksum or content, EC2 by what it says of the volume,
// and that nothing is left in EC2 when the README's clean-up is done.
//
// The examples have namespaces of their own, so they run side by side.
package examples
