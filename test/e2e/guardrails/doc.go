// Package guardrails holds the manager in a real cluster: real claims are judged
// through the Service of its Pods, and nothing of it may keep the cluster from
// working. The tests have the build tag e2e.
package guardrails
