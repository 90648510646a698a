// Package crash ends the driver's controller, or its connection to EC2, in the
// moment that EC2 has accepted a change and the driver does not know it yet: for
// every change that the driver can make. The sidecars repeat their request, to
// a process that remembers nothing; then the answer has to be right, and EC2
// must hold one of everything and no more.
//
// The table is in rows_test.go. A change that internal/ec2 makes and the table
// does not have fails a test.
package crash
