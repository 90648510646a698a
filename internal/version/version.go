// Package version tells which release a binary is.
package version

// Version is the release, in SemVer with a leading v. A release build sets it
// with -ldflags "-X github.com/holdfast-dev/holdfast/internal/version.Version=…".
var Version = "v0.1.0"
