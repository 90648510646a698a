// Package bench is what measurements of the manager have in common: a real API
// server, the manager as a process of its own, what its metrics and its process
// tell, claims as a cluster has them, and figures beside their targets.
package bench
