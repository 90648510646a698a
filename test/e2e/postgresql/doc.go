// Package postgresql asks of copies what they are for: a real PostgreSQL is
// copied by schedule while it is written to, another one is started on the newest
// copy, and every row whose commit was told before the cut is there.
//
// It plays examples/24-postgresql. Its tests run in a sandbox: `make test-e2e`.
package postgresql
