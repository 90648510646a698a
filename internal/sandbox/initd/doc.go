// Package initd is the first process of a pid namespace: it starts, stops and
// lists daemons, runs commands for callers outside, and reaps every orphan.
//
// It is asked over a unix socket in the sandbox's state folder, which crosses all
// namespaces as long as the path is visible. A request is one line of JSON, and
// so is each answer:
//
//	start   a daemon with a name, a log file and, if asked, the listeners that
//	        the init was given at birth            → pid
//	stop    it, by SIGTERM and after a while SIGKILL → when it is gone
//	list    all that were started                  → names, pids, how they ended
//	run     a command; its standard streams are the descriptors that come with the
//	        request (SCM_RIGHTS)                    → pid, then the exit status
//	probe   an HTTP address from in here           → status and body
//
// and whatever the init of that kind adds (see Handler). The caller who goes away
// during run takes the command with it: nobody would read its answer.
//
// The process that answers is pid 1, so its death ends all of them; nothing here
// needs to be told to clean up.
package initd
