// Package snapshots is how the manager watches and looks up VolumeSnapshots.
// Their kinds are no part of Kubernetes: they may be installed after the manager
// has started, or be taken away while it runs.
//
//	not there at the start    the manager starts without them
//	they come                 within 10 seconds their informers start, and each
//	                          controller gets the watches that it asked for
//	they go                   Served says no; the informers have seen each object
//	                          go before, and list again in vain until
//	they come again           the same informers go on
package snapshots
