// Package world is what judging needs to know of the cluster, read from
// informers: policies, namespaces, classes, claims and snapshots. What an
// informer does not have yet is read live once, since a claim may follow its
// class or namespace within a second.
package world
