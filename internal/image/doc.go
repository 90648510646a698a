// Package image writes container images without Docker and without a
// registry: a list of files becomes one uncompressed layer in a
// "docker-archive" tar, which `ctr images import`, `docker load` and
// `crane push` read.
//
// The same files give the same bytes on every run and machine: entries are
// sorted, owned by root and dated 1970-01-01. So an image's digest says whether
// anything changed, and Build leaves a tar alone whose inputs are those that it
// was made from.
//
// What the project's images hold is in package catalog.
package image
