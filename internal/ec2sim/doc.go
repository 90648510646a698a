// Package ec2sim is an EC2 over HTTP that the unmodified AWS SDK talks to: the
// part of EC2 that deals with EBS volumes, with its states, limits, error
// codes, client tokens, paging and permissions, and the instance metadata
// service of each instance.
//
// What it does not model fails loudly: an unknown action, parameter or filter
// is answered with an error that names it and is counted under
// /_sim/unmodelled. docs/ec2sim.md lists every rule with AWS's page for it and
// where the simulator differs.
//
// # How it works
//
// One table (action.go) names each action, its handler, the parameters and
// filters that are modelled. A call goes: parse, who calls, throttle, fault,
// handler (validate, authorize, dry run, act), commit to the journal, answer.
//
// States that pass (creating, attaching, …) carry the time at which they end.
// advance moves everything whose time has come; it runs before each call and,
// where devices must appear without a call, from Run. So a fake clock decides
// everything, and a restart goes on where the old process stopped.
//
//	volume      creating -> available <-> in-use ; available -> deleting -> gone
//	attachment  attaching -> attached -> detaching [-> busy] -> gone
//	modification modifying -> optimizing -> completed
//	snapshot    pending -> completed
//	fast restore enabling -> optimizing -> enabled ; disabling -> disabled
//
// A read that lags is handled on a store of the past (history.go), all else on
// that of the present. A fault's outcome is a mark on the record that the call
// makes, so that it outlives the process too.
//
// A disk acts at the edge: the device is there before an attachment shows
// attached, and is gone before the attachment is.
package ec2sim
