// Package cron says at which instants a schedule is due. The fields are read by
// github.com/robfig/cron/v3; time zones, changes of the clocks and the refusal
// of what can never be due are this package's.
//
// A Schedule has five fields (minute, hour, day of month, month, day of week)
// or is one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and
// @annually. As in every cron, a schedule that limits both the day of month and
// the day of week is due on days that fit either.
//
// When clocks change:
//
//	hours             the clocks skip a time     the clocks repeat a time
//	named (2, 1-5)    what is due in it runs     due in the first pass only
//	                  once, at the first
//	                  instant after it
//	* or */n          for as long as the clocks moved by, both the clock that
//	                  was and the clock that is count: no two runs are further
//	                  apart in elapsed time than on other days
//
// An hour field that names all 24 hours is the same as *. Time zones are
// compiled in; those that the machine has come first.
package cron
