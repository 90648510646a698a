// Package config holds no code: its folders are what a cluster applies with
// kubectl, and config/iam what AWS is told. The tests here render and judge them.
package config
