// Package catalog says what each of the project's images holds, and builds
// them: the driver's two images, and for clusters without a registry stand-ins
// of the same names for the CSI sidecars, the snapshot controller, the pause
// container and busybox, and for what tests run: the images of Kubernetes'
// end-to-end suite, PostgreSQL, and a CSI driver that is not ours.
//
// The controller's image holds the driver and the machine's CA certificates,
// nothing else. The node's image adds the tools that format, check, mount and
// grow file systems, taken from this machine with their shared libraries. The
// Dockerfile makes the same two images from the same lists (cmd/images rootfs).
package catalog
