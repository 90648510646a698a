// Package iam compares config/iam/policy.json with what the controller really
// does: it lives a volume's whole life under the policy, which the simulator
// enforces, and then holds that the actions allowed are the actions made,
// neither more nor less, and that none was refused.
package iam
