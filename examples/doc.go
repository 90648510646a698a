// Package examples holds no code: its folders are scenarios that a user applies
// with kubectl. The test here judges the files; test/e2e/examples applies them
// to a cluster.
package examples
