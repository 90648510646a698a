// Package ec2 turns Holdfast's words for the cloud (package internal/ebs) into
// calls of the EC2 API, and is the only importer of its SDK.
//
// Every method may be repeated with the same arguments, also by another process
// after a crash: what is remembered lives in EC2. A volume is found by the tag
// of its name before it is created, and created with a client token made of its
// name; a snapshot, for which EC2 knows no token, is found by tag before each
// create, and its create is not sent again once EC2 may have accepted it.
//
// Reads of EC2 may lag behind writes
// (https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html).
// So what a read does not show is taken for absent only after it has been
// missing for a while (appearWithin), and where a write answers a question
// (detaching, device names) it is the write that is asked.
//
// Look-ups of single things that come at about the same time share calls, and so
// do waits, which look at growing intervals (batcher, Client.watch). Each ends
// with its own context. Nothing goes on in the background.
//
// Retries within a call are the SDK's, with a state for each action (retryer).
package ec2
