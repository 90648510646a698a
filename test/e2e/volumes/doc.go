// Package volumes tests in a real cluster what a claim is made into: the EBS
// volume with its type and tags, the filesystem or raw device in the Pod, what
// becomes of the data when the Pod moves, what a wrong class is answered, and
// that the logs tell the story. Each test has a namespace of its own and runs
// beside the others.
package volumes
