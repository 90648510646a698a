// Package stamp writes on the claims of living StatefulSets whose they are: the
// set's UID and name, the template and the ordinal. Names alone do not tell,
// and a claim that is retained has no owner; the stamp outlives the set, and
// only stamped claims are ever retired.
//
//	claim's name                  and its labels           stamp
//	<template>-<set>-<ordinal>    match the set's selector  this set's
//	of two sets (data-a-b-0)      match both                none, and an event that says so
//	of no living set              –                         left as it is
package stamp
