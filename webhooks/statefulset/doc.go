// Package statefulset judges StatefulSets that have claim templates.
//
//	whenDeleted, whenScaled            absent is Retain
//	minTerminationGracePeriodSeconds   absent is 30
//	podDisruptionBudget                only ever warns: budgets are often applied after the set
//	its claim templates                warned of what its claims would be denied later
//	scaleDown                          each bound claim that loses its Pod has a fresh snapshot
//	deletion                           each claim that goes with the set may go
package statefulset
