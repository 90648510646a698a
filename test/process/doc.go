// Package process runs the two halves of the driver as processes of their own,
// as they are installed, against a simulated EC2: for tests that kill them and
// for measurements of what they need.
package process
