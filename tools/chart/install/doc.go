// Package install installs charts/holdfast in a real cluster with Helm's own
// library, as kubectl did before it: a volume's life, an upgrade that brings a
// field, an uninstallation that leaves nothing in anybody's way. The test has the
// build tag e2e and wants a sandbox of which it may take Holdfast away.
package install
