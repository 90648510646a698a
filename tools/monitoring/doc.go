// Package monitoring holds alerts and dashboard of config/monitoring to
// docs/monitoring.md and tries them with Prometheus' own engine, which is why it
// is a module of its own. There is no code besides the tests.
//
// testdata has cases of the alerts, in the form of promtool's unit tests of
// rules, and series of some hours of a cluster, which every query of the dashboard
// is evaluated over. All of them are of metrics, with the labels, that
// docs/monitoring.md lists; package config holds that list to the code.
package monitoring
