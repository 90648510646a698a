// Package chart holds charts/holdfast to what config/ says, with Helm's own
// library, which is why it is a module of its own. There is no code besides the
// tests.
package chart
